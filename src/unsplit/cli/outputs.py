"""The files that commands write, what result.json says, and which files are never replaced."""

import contextlib
import json
import os
import platform
import secrets
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
import scipy.sparse

from unsplit import __version__
from unsplit.anndata import annotations, refined_labels_of
from unsplit.cli.console import Console
from unsplit.data.cells import groups_in
from unsplit.data.labels import as_named
from unsplit.data.readers.h5ad import open_cells, write_extended
from unsplit.data.readers.observations import Observations
from unsplit.data.readers.shards import shards_of
from unsplit.data.saving import MANIFEST, earlier_results, write_csv, write_json
from unsplit.devices import choose_device
from unsplit.errors import InputError
from unsplit.estimator import ClusterMerger
from unsplit.merging.decision import UNCLEAR
from unsplit.merging.tree import MergeTree
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.saved_estimates import scores_path
from unsplit.report.api import PAGE, Content, make_page
from unsplit.report.collect import NAME as KEPT
from unsplit.report.collect import Source, collect
from unsplit.report.sections import View, with_borders

DISTANCES = "distances.npz"
MERGED = "merged.h5ad"
FIGURES = ("dendrogram.png", "merge_curve.png", "distances.png")
SCORES = scores_path(DISTANCES).name
# Pictures that scanpy writes, and that people already know their cells by.
PICTURES = ("X_umap", "X_tsne")
# The key that is added to cells, and the old clusters, if they are from another file.
KEY, INITIAL = "unsplit", "unsplit_initial"
# The answers that the page exports.
ANSWERS = "unsplit-review.json"
# Parameters of a merge that say nothing about its result.
NO_SETTINGS = ("random_state", "progress", "checkpoint", "overclusterer")


# --- what must not be replaced --------------------------------------------------------------------


def refuse_overwriting(
    data: str, named: Iterable[str | None], out: str, names: Iterable[str]
) -> None:
    """Raise an error if a command would change what it reads, or cannot write a file.

    ``named`` are other files that are read, or names of columns, which are ignored; ``names`` are
    the files that will be written to ``out``.

    Examples
    --------
    >>> refuse_overwriting("cells.csv", ["labels.csv", None], "out", ["labels.csv"])
    >>> refuse_overwriting("a/x.csv", [], "a", ["x.csv"])
    Traceback (most recent call last):
    ...
    unsplit.errors.InputError: a/x.csv is an input and would be replaced by the results; choose ...
    """
    require_name(out)
    # Results of an earlier run are removed when new results take their place.
    files = [*names, MANIFEST, *earlier_results(out)]
    written = [os.path.join(out, name) for name in files]
    for name in files:
        if os.path.isdir(os.path.join(out, name)):
            raise InputError(
                f"cannot write {name} to {os.path.join(out, '')}: a folder has this name; remove "
                "it or choose another --out."
            )
    read = [data, *map(str, shards_of(data))]
    for path in [*read, *(name for name in named if name and os.path.isfile(name))]:
        refuse_replacing(path, written)


def require_name(out: str) -> None:
    """Raise an error if ``--out`` is empty, which would mean the current folder."""
    if not out.strip():
        raise InputError(f"--out must not be empty, got {out!r}; name where the results go.")


def refuse_replacing(path: str, written: Iterable[str]) -> None:
    """Raise an error if an input is one of the files to write, or a folder around one.

    Files are compared after following links, and hard links to one file count as the same.

    Examples
    --------
    >>> refuse_replacing("cells.csv", ["clusters.csv"])
    >>> refuse_replacing(".", ["out/labels.csv"])
    Traceback (most recent call last):
    ...
    unsplit.errors.InputError: --out is inside ., ...; choose a folder outside it.
    """
    targets = {Path(os.path.realpath(name)) for name in written}
    around = {folder for target in targets for folder in target.parents}
    if os.path.isdir(path) and _identities([path]) & _identities(around):
        raise InputError(
            f"--out is inside {path}, where the next run would read the results as data; choose a "
            "folder outside it."
        )
    if _identities([path]) & _identities(targets):
        raise InputError(
            f"{path} is an input and would be replaced by the results; choose another --out."
        )


def _identities(paths: Iterable[str | Path]) -> set[object]:
    """Return what two names of one file share: the path without links, or device and inode."""
    found: set[object] = set()
    for path in paths:
        found.add(os.path.realpath(path))
        with contextlib.suppress(OSError):
            status = os.stat(path)
            found.add((status.st_dev, status.st_ino))
    return found


# --- the run --------------------------------------------------------------------------------------


def new_seed() -> int:
    """Draw a seed that is short enough to copy."""
    return secrets.randbelow(2**32)


def seed_for(typed: int | None, checkpoint: Checkpoint) -> int:
    """The seed that was typed, or that of the interrupted run, or a new one."""
    if typed is not None:
        return typed
    found = checkpoint.seed()
    return new_seed() if found is None else found


def checkpoint_beside(out: str) -> Checkpoint:
    """The checkpoint beside the results.

    Examples
    --------
    >>> checkpoint_beside("results/merged").folder.as_posix()
    'results/merged.checkpoint'
    """
    # In the current folder if that is where the results go.
    name = Path(out).name or Path(os.path.realpath(out)).name
    return Checkpoint(Path(out).parent / f"{name}.checkpoint")


def kept_by(checkpoint: Checkpoint) -> str:
    """Say what a run leaves behind whose processes have ended."""
    if not checkpoint.exists():
        return "nothing of this run is kept."
    return (
        f"{checkpoint.folder} keeps what was done so far, and the same command goes on from there, "
        "with any number of processes."
    )


def versions() -> dict[str, str]:
    """Return the versions of the software that results depend on."""
    own = {"unsplit": __version__, "python": platform.python_version()}
    return own | {name: version(name) for name in ("numpy", "torch", "scikit-learn")}


def described_run(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """What is needed to repeat a run: settings, seed, device, versions, and what was typed."""
    named = {name: value for name, value in settings.items() if name not in NO_SETTINGS}
    training = {} if named["training"] is None else named["training"].given
    return {
        "settings": named | {"training": training},
        "seed": seed,
        "device": str(choose_device(named["device"])),
        "versions": versions(),
        "typed": shlex.join(click.get_current_context().obj or []),
    }


def described_distances(read: Observations, distances: PairwiseTVD) -> dict[str, Any]:
    """The numbers of an estimate."""
    named = {} if read.representation is None else {"representation": read.representation}
    return named | {
        "n_observations": len(read.row_ids),
        "n_features": read.X.shape[1] if len(getattr(read.X, "shape", ())) == 2 else None,
        **described_columns(read),
        "n_initial": distances.n_clusters,
        "n_noise": distances.n_noise,
        "mean_accuracy": distances.mean_accuracy,
    }


def described_columns(read: Observations) -> dict[str, Any]:
    """The columns of a table that were used as features, and those left out."""
    if read.feature_names is None:
        return {}
    return {"id": read.id_name, "features": read.feature_names, "left_out": list(read.left_out)}


def described_tree(tree: MergeTree) -> dict[str, Any]:
    """The numbers of a merge."""
    n_taken = int(tree.taken.sum())
    tvd = [merge.tvd for merge in tree.merges]
    return {
        "n_clusters": tree.n_clusters,
        "stopped": tree.stopped,
        "remerges_by_n_clusters": None if tree.stability is None else tree.stability.numbers,
        "last_merge_tvd": tvd[n_taken - 1] if n_taken else None,
        "first_refused_tvd": tvd[n_taken] if n_taken < len(tvd) else None,
        "n_unclear": sum(row.pair.verdict == UNCLEAR for row in tree.reviewed),
        "mapping": tree.mapping,
    }


def described_merge(
    read: Observations, merger: ClusterMerger, settings: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """Everything about a merge but its input and its files."""
    graph, found = merger.neighbours_, described_run(settings, seed)
    found |= described_distances(read, merger.pairwise_)
    if graph is not None and graph.sampled_from is not None:
        found |= {"n_connected": len(graph.rows), "n_connected_from": graph.sampled_from}
    return found | described_tree(merger.tree_)


def about_run(result: Mapping[str, Any]) -> dict[str, Any]:
    """What result.json says about a run, as tables, and the commands that repeat it.

    Examples
    --------
    >>> about_run({"typed": "merge cells.csv --labels leiden --out merged", "seed": 3})["command"]
    'unsplit merge cells.csv --labels leiden --out merged --report --seed 3'
    """
    beside = ("typed", "stopped")  # which the page shows elsewhere
    plain = {
        n: v for n, v in result.items() if isinstance(v, str | int | float) and n not in beside
    }
    warnings = enumerate(result.get("warnings") or (), 1)
    tables = {"Result": plain} | {
        title: result.get(title.lower()) or {} for title in ("Settings", "Versions", "Seconds")
    }
    tables["Warnings"] = {str(number): text for number, text in warnings}
    shown = []
    for title, rows in tables.items():
        known = [(n, _shown(v)) for n, v in rows.items() if v not in (None, [], {}, "")]
        shown += [{"title": title, "rows": known}] if known else []
    return {"tables": shown} | _commands(result)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _commands(result: Mapping[str, Any]) -> dict[str, str]:
    """The command that repeats a run, and the one that obeys the answers exported from its page."""
    words = shlex.split(result.get("typed") or "")
    if not words:
        return {}
    words += [] if "--report" in words else ["--report"]
    if not any(word.split("=")[0] == "--seed" for word in words):
        words += ["--seed", str(result["seed"])]
    command = shlex.join(["unsplit", *words])
    return {"command": command, "again": f"{command} --constraints {ANSWERS}"}


# --- the files ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExtraFiles:
    """The files to write on request: what ``--also`` names, and the page.

    Examples
    --------
    >>> ExtraFiles(("scores", "h5ad")).names
    ['distances.scores.npz', 'merged.h5ad']
    """

    also: tuple[str, ...] = ()
    report: bool = False
    picture: str | None = None

    @property
    def names(self) -> list[str]:
        """The files."""
        made = {"figures": FIGURES, "scores": (SCORES,), "h5ad": (MERGED,)}
        names = [name for word in self.also for name in made[word]]
        return names + ([KEPT, PAGE] if self.report else [])

    @property
    def last_phases(self) -> list[str]:
        """What a run does after merging."""
        return ["writing", *(["making the page"] if self.report else ())]

    def check(self, data: str) -> None:
        """Raise an error if one of the files cannot be made from the data."""
        if self.picture is not None and not self.report:
            raise click.UsageError(
                "--picture works only with --report; add it or leave --picture out."
            )
        if "figures" in self.also and find_spec("matplotlib") is None:
            raise ImportError("--also figures needs matplotlib: pip install unsplit[figures]")
        if "h5ad" in self.also and not data.lower().endswith(".h5ad"):
            raise click.UsageError(
                f"--also h5ad works only with .h5ad files, got {data}; leave it out."
            )


def write_result(path: Path, content: dict[str, Any], console: Console) -> None:
    """Write ``content`` to ``path``, with the warnings, times and files of the run."""
    files = sorted(file.name for file in path.parent.iterdir())
    run = {"warnings": console.warnings, "seconds": console.seconds}
    write_json(path, content | run | {"files": [*files, path.name, MANIFEST]})


def print_result(path: Path, lines: list[str], console: Console) -> None:
    """Print the file that :func:`write_result` wrote, or a summary and where the files are."""
    text = path.read_text(encoding="utf-8")
    console.event("result", file=str(path))
    if console.as_json:
        click.echo(text, nl=False)
    else:
        files = ", ".join(json.loads(text)["files"])
        click.echo("\n".join([*lines, "", f"Files in {path.parent}/: {files}"]))


def write_merge(
    folder: Path, read: Observations, merger: ClusterMerger, also: tuple[str, ...], console: Console
) -> None:
    """Write all files of a merge except those of cells, the page and result.json."""
    tree, distances = merger.tree_, merger.pairwise_
    tasks: list[Callable[[], object]] = [
        lambda: write_labels(folder / "labels.csv", read, merger),
        lambda: write_csv(folder / "merges.csv", tree.table()),
        lambda: write_csv(folder / "review.csv", tree.review_table()),
        lambda: distances.save(folder / DISTANCES, scores="scores" in also),
        lambda: np.save(folder / "linkage.npy", tree.linkage),
        lambda: tree.save(folder / "tree.npz"),
    ]
    if "figures" in also:
        from unsplit.plots import save_figures

        # A picture of all pairs of very many clusters would show nothing.
        all_pairs = None if distances.is_sparse else distances
        tasks.append(lambda: save_figures(folder, tree, all_pairs))
    for done, task in enumerate(tasks, start=1):
        task()
        console.on_progress(done, len(tasks))


def write_labels(path: Path, read: Observations, merger: ClusterMerger) -> None:
    """Write the old, new and, if all neighbours are known, refined cluster of every row."""
    assert read.labels is not None
    columns = {"id": read.row_ids, "old": as_named(read.labels), "new": merger.labels_}
    refined = refined_labels_of(merger)
    if refined is not None:
        columns["refined"] = refined
    write_csv(path, columns)


def write_page(
    folder: Path, source: Source, read: Observations, merger: ClusterMerger, info: dict[str, Any]
) -> None:
    """Write the page, and the file that keeps what it shows of the observations."""
    tree, result = merger.tree_, merger.pairwise_
    distances = None if result.is_sparse else result
    kept = collect(source, distances, merger.neighbours_)
    if distances is not None:
        kept = with_borders(kept, View(tree), distances)
    kept.save(folder / KEPT)
    content = Content(tree, distances, kept, source.clusters, read.row_ids, about_run(info))
    make_page(content).save(folder / PAGE)


# --- cells ----------------------------------------------------------------------------------------


def write_cells(
    path: Path, data: str, labels: str, read: Observations, merger: ClusterMerger, params: Any
) -> None:
    """Write a copy of an .h5ad file with what :func:`unsplit.anndata.merge` adds.

    ``labels`` is a column of ``obs``, or the file that has the old clusters; ``params`` says how
    the merge was made.
    """
    import pandas as pd

    colours = f"{labels}_colors"
    with open_cells(Path(data)) as cells:
        known = labels in cells.obs
        column = cells.obs[labels] if known else read.labels
        groups = groups_in(column, f"labels of {data}")
        uns = {colours: cells.uns.get(colours)}
    defaults = ClusterMerger().get_params(deep=False)
    params = {"groupby": labels, "representation": read.representation} | params
    for name, value in merger.get_params(deep=False).items():
        if name not in NO_SETTINGS and value not in (defaults[name], [], ()):
            params[name] = value
    found = annotations(merger, groups, KEY, labels if known else INITIAL, params, uns)
    columns = dict(found.obs)
    if not known:
        names = pd.Index(groups.names, dtype=object)
        columns[INITIAL] = pd.Categorical.from_codes(groups.codes, categories=names)
    write_extended(Path(data), path, columns, found.uns)


def with_genes(source: Source, data: str) -> Source:
    """Add what the page of cells can show: the user's own picture, and genes instead of components.

    ``data`` is the .h5ad file that the cells were read from.
    """
    n = len(source.clusters)
    try:
        with open_cells(Path(data)) as cells:
            for name in PICTURES if source.picture is None else ():
                xy = np.asarray(cells.obsm[name]) if name in cells.obsm else np.zeros(0)
                if xy.shape == (n, 2) and np.isfinite(xy).all():
                    source = replace(source, picture=xy, picture_method=f"{name} of {data}")
                    break
            X = cells.X
            if X is None:
                return source
            X = scipy.sparse.csr_array(X) if scipy.sparse.issparse(X) else np.asarray(X)
            values: Any = X.data if scipy.sparse.issparse(X) else X
            if values.dtype.kind in "biuf" and np.isfinite(values).all():
                source = replace(source, shown=X, feature_names=cells.var_names)
    except MemoryError:  # of X, which only the page would show
        pass
    return source
