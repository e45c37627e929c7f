"""``unsplit demo``: over-clustered handwritten digits, merged and scored.

The true digits are used only to score the result.
"""

import os
import shlex
from importlib.util import find_spec
from pathlib import Path

import click
import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from unsplit._typing import Index
from unsplit.cli import outputs
from unsplit.cli.console import Console, interruptible
from unsplit.cli.merge import Started, merge_into
from unsplit.cli.options import Run
from unsplit.data.readers.observations import Observations
from unsplit.data.saving import output_folder, write_csv
from unsplit.estimator import ClusterMerger
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.neighbours.refine import refine
from unsplit.merging.tree import MergeTree
from unsplit.networks.training.progress import PHASES
from unsplit.report import summary
from unsplit.report.api import RESULT

DATA, LABELS = "digits.csv", "cluster"
N_PIECES, N_DIGITS = 40, 10


def demo(out: str, seed: int, report: bool) -> None:
    """Merge the digits, and compare the result with the truth."""
    outputs.require_name(out)
    data = os.path.join(out, DATA)
    rest = ["--labels", LABELS, "--out", "merged", "--seed", str(seed)]
    command = shlex.join(["unsplit", "merge", data, *rest])
    click.get_current_context().obj = shlex.split(command)[1:]  # what the page says to type
    extra = ["report"] if report else []
    extra += [] if find_spec("matplotlib") is None else ["figures"]
    run, console, kept = Run(data, LABELS, out=out), Console(), outputs.checkpoint_beside(out)
    merger = ClusterMerger(random_state=seed, progress=console, checkpoint=kept)
    results = output_folder(out, outputs.versions(), outputs.WRITTEN)
    with interruptible(out, console, kept), console.show_warnings(), results as folder:
        click.echo("Merging 1,797 handwritten digits that k-means cut into 40 clusters …\n")
        console.plan(["reading", *PHASES, "writing", *(["making the page"] if report else [])])
        with console.stage("reading"):
            digits, truth = overclustered_digits(seed)
        # The pixels and the cluster of every row, but not the true digits.
        columns = dict(zip(digits.feature_names or [], digits.X.T.astype(int), strict=True))
        write_csv(folder / DATA, columns | {LABELS: digits.labels})
        started = Started(folder, digits, {}, seed, kept, console)
        info = merge_into(started, run, merger, extra)
        outputs.write_result(folder / RESULT, info, console)
    kept.remove()
    lines = summary.of_merge(merger.tree_, n_noise=0)
    assert merger.neighbours_ is not None  # digits are vectors
    table = _table(scores(digits, merger.tree_, merger.neighbours_, truth, seed))
    more = "One data set shows how it works, not how well: docs/benchmark.md has many, held back."
    outputs.print_result(Path(out, RESULT), [*lines, "", *table, "", more], console)
    click.echo(f"\nTo repeat this from the file:\n  {command}")


def overclustered_digits(seed: int = 0) -> tuple[Observations, Index]:
    """Return 1,797 digits of 8 × 8 pixels in 40 clusters by k-means, and the true digits.

    Examples
    --------
    >>> digits, truth = overclustered_digits()
    >>> digits.X.shape, digits.feature_names[9], len(np.unique(digits.labels)), truth[:3]
    ((1797, 64), 'pixel_1_1', 40, array([0, 1, 2]))
    """
    X, truth = load_digits(return_X_y=True)
    labels = KMeans(N_PIECES, n_init=10, random_state=seed).fit_predict(X)
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    return Observations(X, names, np.arange(len(X)), labels.astype(np.int64)), truth


def scores(
    digits: Observations, tree: MergeTree, graph: NeighbourGraph, truth: ArrayLike, seed: int = 0
) -> list[tuple[str, int, float]]:
    """Score the clusters before and after merging, Ward and k-means against the true digits.

    Each has its name, its number of clusters and its adjusted Rand index.  Single digits of the
    merged clusters also move to the cluster of their neighbours ("refined").

    Examples
    --------
    >>> import unsplit
    >>> digits, truth = overclustered_digits()
    >>> centres = np.stack([digits.X[digits.labels == c].mean(axis=0) for c in range(40)])
    >>> D = np.linalg.norm(centres[:, None] - centres, axis=2)
    >>> graph = unsplit.neighbour_graph(digits.X, digits.labels)
    >>> for name, n_clusters, _ in scores(digits, unsplit.merge(D, n_clusters=12), graph, truth):
    ...     print(f"{name}: {n_clusters}")
    k-means, before merging: 40
    merged: 12
    merged and refined: 12
    merged, given the number 10: 10
    merged and refined, given the number 10: 10
    Ward, given the number 10: 10
    k-means, given the number 10: 10
    """
    initial, given = np.asarray(digits.labels), f"given the number {N_DIGITS}"
    merged, ten = tree.labels(initial), tree.cut(n_clusters=N_DIGITS).labels(initial)
    clusterings = {
        "k-means, before merging": initial,
        "merged": merged,
        "merged and refined": refine(merged, graph),
        f"merged, {given}": ten,
        f"merged and refined, {given}": refine(ten, graph),
        f"Ward, {given}": AgglomerativeClustering(N_DIGITS).fit_predict(digits.X),
        f"k-means, {given}": KMeans(N_DIGITS, n_init=10, random_state=seed).fit_predict(digits.X),
    }
    return [
        (name, len(np.unique(labels)), float(adjusted_rand_score(truth, labels)))
        for name, labels in clusterings.items()
    ]


def _table(rows: list[tuple[str, int, float]]) -> list[str]:
    width = max(len(name) for name, _, _ in rows)
    heading = f"  {'':{width}}  clusters  adjusted Rand index (1 = the true digits)"
    return [heading, *(f"  {name:{width}}  {n:8}  {score:.2f}" for name, n, score in rows)]
