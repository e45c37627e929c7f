"""``unsplit merge`` and ``unsplit distances``: the commands that train."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from unsplit.cli import options, outputs, summary
from unsplit.cli.console import Console, interruptible
from unsplit.cli.outputs import DISTANCES, MERGED, SCORES, ExtraFiles
from unsplit.cli.reading import Input, observations_named, read_clustered, read_picture
from unsplit.data.labels import encode_labels
from unsplit.data.readers.observations import Observations
from unsplit.data.saving import output_folder, write_csv
from unsplit.devices import current
from unsplit.errors import FeatureWarning
from unsplit.estimator import ClusterMerger, seeds_of
from unsplit.merging.answers import read_answers
from unsplit.merging.options import LABELS_FROM
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.networks.training.progress import PHASES
from unsplit.networks.training.ranks import together
from unsplit.pairwise.api import Settings, fit
from unsplit.pairwise.heldout_scores import Fitted
from unsplit.pairwise.result import write_tvd
from unsplit.report.api import PAGE, RESULT
from unsplit.report.collect import Source
from unsplit.selection import select, usual_candidates, without_repeated_warnings

COMPARED, MATRIX, CANDIDATES = "distances.json", "tvd.npy", "candidates.csv"
# Files that merge always writes.
WRITTEN = (
    "labels.csv", "merges.csv", "review.csv", DISTANCES, "linkage.npy", "tree.npz", RESULT,
)  # fmt: skip

Network = dict[str, Any]
Work = Callable[[Path, Observations, Network, int, Checkpoint], list[str]]

share = click.FloatRange(0, 1)
linked = partial(click.option, multiple=True, callback=options.pairs, metavar="A,B")


# --- merge ----------------------------------------------------------------------------------------

when_to_stop = options.under(
    "When to stop",
    click.option(
        "--n-clusters",
        metavar="N|N-M",
        callback=options.number_or_range,
        help="Stop at exactly N clusters, or keep from N to M clusters (also N- or -M).",
    ),
    click.option(
        "--max-tvd",
        type=share,
        metavar="T",
        help="Merge pairs with a total variation distance (TVD) of at most T, 0 to 1.",
    ),
    click.option(
        "--alpha",
        type=share,
        metavar="A",
        help="Merge pairs that do not differ significantly at level A, 0 to 1.",
    ),
    click.option(
        "--labels-from",
        type=click.Choice(LABELS_FROM),
        default="auto",
        show_default=True,
        help="Whether the labels were computed from the data; if not, tests decide.",
    ),
)

knowledge = options.under(
    "Your knowledge",
    linked("--must-link", help="Always merge clusters A and B; may be repeated."),
    linked("--cannot-link", help="Never merge clusters A and B; may be repeated."),
    click.option(
        "--constraints",
        type=click.Path(),
        metavar="FILE",
        help="Answers that the page of an earlier result exported (JSON).",
    ),
)

metric = click.option(
    "--metric",
    type=click.Choice(["euclidean", "cosine"]),
    default="euclidean",
    show_default=True,
    help="How far apart neighbours are; cosine suits embeddings of texts and images.",
)

what_to_write = options.packed(
    "extra",
    ExtraFiles,
    options.under(
        "Output",
        options.folder,
        options.report,
        options.also(
            "figures",
            "h5ad",
            "scores",
            help="More files: figures (the dendrogram, the distances and the merge curve), h5ad "
            "(merged.h5ad, a copy of an .h5ad file with the merged clusters in obs['unsplit'] and "
            "the tree in uns['unsplit']), scores (distances.scores.npz, a large file that Python "
            "needs to merge distances.npz again).",
        ),
        click.option(
            "--picture",
            type=click.Path(),
            metavar="FILE",
            help="Where the page draws the rows of DATA: a file with two coordinates of each, as "
            "UMAP makes them.",
        ),
    ),
)


@dataclass(frozen=True)
class Task:
    """What to merge, how, and what to write beside the usual files."""

    source: Input
    choices: dict[str, Any]
    extra: ExtraFiles
    constraints: str | None = None


@click.command(
    cls=options.Grouped,
    epilog="\b\nExamples:\n"
    "  unsplit merge cells.csv --labels leiden --out merged --report\n"
    "  unsplit merge photos/ --out merged\n"
    "  unsplit merge cells.h5ad --labels leiden --out merged --also h5ad\n"
    "  unsplit merge photos/ --vectors embedding.npy --out merged\n",
    short_help="Merge clusters that belong together.",
)
@options.source
@when_to_stop
@knowledge
@options.network(metric)
@what_to_write
@options.as_json
def merge(
    source: Input,
    out: str,
    network: Network,
    seed: int | None,
    must_link: list[list[str]],
    cannot_link: list[list[str]],
    constraints: str | None,
    extra: ExtraFiles,
    as_json: bool,
    progress: bool | None,
    **choices: Any,
) -> None:
    """Merge the clusters of DATA that belong together.

    DATA is a table with one row per observation (.csv, .tsv, .parquet, .arrow,
    .feather, .npy, .npz, also SciPy sparse), cells (.h5ad, where --labels is a column of obs), a
    folder of images, sounds, meshes or point clouds with one subfolder per cluster, or .tar files
    of images as WebDataset writes them. In a table every column of numbers is a feature, except
    those named by --labels, --batch, --id and --drop.

    The command writes labels.csv (old and new cluster of every row), review.csv (which pairs to
    check, unclear ones first), merges.csv (every merge and the reason), result.json (settings,
    versions, seed, numbers), distances.npz, tree.npz, linkage.npy and manifest.json (checksums).
    With --report it also writes report.html, the page to look at.
    """
    extra.check(source.data)
    choices["constraints"] = _known(must_link, cannot_link, constraints)
    requested = isinstance(choices["n_clusters"], int)
    task = Task(source, choices, extra, constraints)
    _merger(task, network | {"backbone": "auto"}).check_options()
    console = Console(progress, as_json)

    def work(folder: Path, read: Observations, network: Network, *run: Any) -> list[str]:
        merger = merge_into(folder, task, read, network, console, *run)
        tree, graph = merger.tree_, merger.neighbours_
        lines = [] if read.representation is None else [summary.of_cells(read)]
        lines += summary.of_merge(tree, merger.pairwise_.n_noise, requested)
        lines += ["", *summary.of_review(tree), *summary.of_sample(graph)]
        lines += summary.of_features(read)
        return lines + (["", f"Open {Path(out, PAGE)} in a browser."] if extra.report else [])

    lines = train(
        source, out, network, seed, console, work, lambda seed: seeds_of(seed)[0],
        written=[*WRITTEN, *extra.names],
        phases=[*PHASES, *extra.last_phases],
        named=[constraints, extra.picture],
    )  # fmt: skip
    if lines is not None:
        outputs.print_result(Path(out, RESULT), lines, console)


def _known(must: list[list[str]], cannot: list[list[str]], path: str | None) -> Any:
    """What the user knows about clusters: links, the answers in a file, or both."""
    links = {"must_link": must, "cannot_link": cannot}
    links = {name: pairs for name, pairs in links.items() if pairs}
    if path is None:
        return links or None
    read_answers(path)  # refuses a bad file before any work is done
    return path if not links else links | {"answers": path}


def _merger(task: Task, network: Network, **others: Any) -> ClusterMerger:
    return ClusterMerger(**task.choices, **network, **others)


def merge_into(
    folder: Path,
    task: Task,
    read: Observations,
    network: Network,
    console: Console,
    seed: int,
    checkpoint: Checkpoint,
) -> ClusterMerger:
    """Merge the clusters and write all files into the folder; ``demo`` does the same."""
    source, extra = task.source, task.extra
    clusters = encode_labels(np.asarray(read.labels), len(read.row_ids)).clusters
    picture = None if extra.picture is None else read_picture(extra.picture, clusters)
    merger = _merger(task, network, random_state=seed, progress=console, checkpoint=checkpoint)
    settings = merger.get_params(deep=False)
    with warnings.catch_warnings():
        # Whoever read the columns has warned of them by name.
        warnings.simplefilter("ignore", FeatureWarning)
        merger.fit(read.X, initial_labels=read.labels, batch=read.batch, groups=read.groups)
    with console.stage("writing"):
        outputs.write_merge(folder, read, merger, extra.also, console)
        if "h5ad" in extra.also:
            keys = {"batch_key": source.batch, "groups_key": source.groups, "random_state": seed}
            given = folder / MERGED, source.data, source.clusters, read, merger
            outputs.write_cells(*given, keys)
    files = {"constraints": task.constraints, "picture": extra.picture}
    info = {"command": "merge"} | source.described() | {n: v for n, v in files.items() if v}
    info |= outputs.described_merge(read, merger, settings, seed)
    if extra.report:
        with console.stage("making the page"):
            k, names = merger.tree_.n_initial, read.feature_names
            page_of = Source(read.X, clusters, k, names, picture, read.shown)
            if read.representation is not None:
                page_of = outputs.with_genes(page_of, source.data)
            times = {"warnings": console.warnings, "seconds": console.seconds}
            outputs.write_page(folder, page_of, read, merger, info | times)
    outputs.write_result(folder / RESULT, info, console)
    return merger


# --- distances ------------------------------------------------------------------------------------


@click.command(
    cls=options.Grouped,
    epilog="\b\nExample:\n  unsplit distances cells.csv --labels leiden --out compared\n",
    short_help="Compare all pairs of clusters, without merging.",
)
@options.source
@options.network()
@options.under(
    "Output",
    options.folder,
    options.also(
        "scores",
        "matrix",
        help="More files: scores (distances.scores.npz, a large file that Python needs to merge "
        "distances.npz), matrix (tvd.npy, the distances of all pairs as a (k, k) matrix, written "
        "block by block).",
    ),
)
@options.as_json
def distances(
    source: Input,
    out: str,
    network: Network,
    seed: int | None,
    also: tuple[str, ...],
    as_json: bool,
    progress: bool | None,
) -> None:
    """Compare all pairs of clusters in DATA, without merging any.

    The command writes pairs.csv (the total variation distance of every pair, which is at least
    "low", with its interval and p-value, closest pair first), distances.npz (read it with
    unsplit.PairwiseTVD.load), distances.json (settings, versions, seed) and manifest.json
    (checksums).
    """
    console = Console(progress, as_json)

    def work(
        folder: Path, read: Observations, network: Network, seed: int, kept: Checkpoint
    ) -> list[str]:
        with console.stage("training"):
            result = _estimate(read, network, seed, console, kept).result
        with console.stage("writing"):
            result.save(folder / DISTANCES, scores="scores" in also)
            write_csv(folder / "pairs.csv", result.table())
            if "matrix" in also:
                write_tvd(folder / MATRIX, result)
        info = {"command": "distances"} | source.described() | outputs.described_run(network, seed)
        info |= outputs.described_distances(read, result)
        outputs.write_result(folder / COMPARED, info, console)
        return [*summary.of_distances(result), "", *summary.of_features(read)]

    more = {"scores": SCORES, "matrix": MATRIX}
    written = [DISTANCES, "pairs.csv", COMPARED, *(more[word] for word in also)]
    phases = ["training", "writing"]
    given = source, out, network, seed, console, work, lambda seed: seed
    lines = train(*given, written=written, phases=phases)
    if lines is not None:
        outputs.print_result(Path(out, COMPARED), lines, console)


# --- both -----------------------------------------------------------------------------------------


def train(
    source: Input,
    out: str,
    network: Network,
    typed_seed: int | None,
    console: Console,
    work: Work,
    seed_of_training: Callable[[Any], Any],
    *,
    written: list[str],
    phases: list[str],
    named: Sequence[str | None] = (),
) -> list[str] | None:
    """Read, train, perhaps in several processes, and write the folder ``out``.

    ``work`` trains and writes, ``written`` are its files, ``phases`` what follows reading, and
    ``named`` other files that are read.  Returns the summary; None in a process that only helped to
    train.
    """
    selects = network["backbone"] == options.SELECT
    if selects:
        network = network | {"backbone": "auto"}
        written = [*written, CANDIDATES]
        phases = ["selecting", *phases]
    Settings(**network)  # refuses bad settings before anything is read
    outputs.refuse_overwriting(source.data, [*source.named, *named], out, written)
    kept = outputs.checkpoint_beside(out)
    with together(network["device"], lambda: outputs.kept_by(kept)) as ranks:
        seed = ranks.share(outputs.seed_for(typed_seed, kept))
        kept.seeded(seed)
        if ranks.rank:
            _help(source, network, selects, seed_of_training(seed), kept)
            return None
        console.plan(["reading", *phases])
        results = output_folder(out, outputs.versions())
        with interruptible(out, console, kept), console.show_warnings(), results as folder:
            read = read_clustered(source, console)
            with observations_named(read, source.data):
                if selects:
                    network = ranks.share(_selected(folder, read, network, seed, console))
                lines = work(folder, read, network, seed, kept)
        kept.remove()
    return lines


def _help(source: Input, network: Network, selects: bool, seed: Any, kept: Checkpoint) -> None:
    """Do the part of another process: train; nothing is printed or written."""
    console = Console(progress=False)
    with console.show_warnings():
        read = read_clustered(source, console)
        network = current().share(None) if selects else network
        _estimate(read, network, seed, console, kept)


def _estimate(
    read: Observations, network: Network, seed: Any, console: Console, kept: Checkpoint
) -> Fitted:
    given = read.X, np.asarray(read.labels), Settings(**network), seed, console, read.batch
    return fit(*given, checkpoint=kept, groups=read.groups)


def _selected(
    folder: Path, read: Observations, network: Network, seed: int, console: Console
) -> Network:
    """The settings with the most accurate network; the scores of all go to candidates.csv."""
    assert read.labels is not None
    # The estimate that follows gives the same warnings.
    with console.stage("selecting"), without_repeated_warnings(True):
        selection = select(
            read.X,
            read.labels,
            usual_candidates(network["backbone"]),
            batch=read.batch,
            groups=read.groups,
            training=network["training"],
            device=network["device"],
            random_state=seed,
            progress=lambda _, record: console.on_epoch(record),
        )
    write_csv(folder / CANDIDATES, selection.table())
    return network | selection.settings
