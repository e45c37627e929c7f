"""The files that commands write, and the contents of result.json."""

import contextlib
import json
import os
import platform
import secrets
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from unsplit import __version__
from unsplit.cli.about import about_run
from unsplit.cli.progress import Console
from unsplit.cli.select import settings_dict
from unsplit.data.labels import as_named
from unsplit.data.readers.folders import find_images
from unsplit.data.readers.observations import Observations
from unsplit.data.readers.shards import shards_of
from unsplit.data.saving import MANIFEST, earlier_results, write_csv, write_json
from unsplit.devices import choose_device
from unsplit.errors import InputError
from unsplit.estimator import Merged
from unsplit.merging.decision import UNCLEAR
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.options import MergeOptions
from unsplit.merging.tree import MergeTree
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.pairwise.api import Settings
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.saved_estimates import scores_path
from unsplit.report.api import PAGE, Content, make_page
from unsplit.report.collect import NAME as KEPT
from unsplit.report.collect import Source, collect
from unsplit.report.sections import View, with_borders

DISTANCES = "distances.npz"
SCORES = scores_path(DISTANCES).name
# All files that commands write to a folder: no others of an earlier result are ever removed.
WRITTEN = frozenset(
    {DISTANCES, SCORES, KEPT, PAGE, "labels.csv", "merges.csv", "review.csv", "pairs.csv"}
    | {"candidates.csv", "digits.csv", "linkage.npy", "tvd.npy", "tree.npz", "result.json"}
    | {"distances.json", "merged.h5ad", "dendrogram.png", "merge_curve.png", "distances.png"}
)


def refuse_overwriting(
    data: str, named: Iterable[str | None], out: str, names: Iterable[str]
) -> None:
    """Raise an error if a command would change what it reads, or cannot write a file.

    Parameters
    ----------
    data : str
        The file or folder that is read.
    named : iterable of str or None
        Other files that are read, or names of columns, which are ignored.
    out : str
        The folder that the results go to.
    names : iterable of str
        The files that will be written there.

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

    Parameters
    ----------
    path : str
        A file or folder that is read.
    written : iterable of str
        The files that will be written.

    Examples
    --------
    >>> refuse_replacing("cells.csv", ["clusters.csv"])
    >>> refuse_replacing(".", ["out/labels.csv"])
    Traceback (most recent call last):
    ...
    unsplit.errors.InputError: --out is inside ., ...; choose a folder outside it.
    """
    targets = {Path(os.path.realpath(name)) for name in written}
    around = _identities(folder for target in targets for folder in target.parents)
    if _identities(_folders_of(path)) & around:
        raise InputError(
            f"--out is inside {path}, where the next run would read the results as data; choose a "
            "folder outside it."
        )
    files = _files_of(path) if any(target.exists() for target in targets) else [path]
    taken = _identities(targets)
    for file in files:
        if _identities([file]) & taken:
            raise InputError(
                f"{file} is an input and would be replaced by the results; choose another --out."
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


def _folders_of(path: str) -> list[str]:
    """List a folder and the subfolders that are links to elsewhere; nothing for a file."""
    if not os.path.isdir(path):
        return []
    with os.scandir(path) as entries:
        return [path, *(e.path for e in entries if e.is_symlink() and e.is_dir())]


def _files_of(path: str) -> Iterator[str]:
    """List the files in a folder and in subfolders that are links; or a file and what it lists."""
    if not os.path.isdir(path):
        yield path
        with contextlib.suppress(InputError):  # most tables are not lists of images
            yield from find_images(path).paths
    for top in _folders_of(path):
        for folder, _, names in os.walk(top):
            yield from (os.path.join(folder, name) for name in names)


def new_seed() -> int:
    """Draw a seed that is short enough to copy."""
    return secrets.randbelow(2**32)


def seed_for(typed: int | None, checkpoint: Checkpoint) -> int:
    """The seed that was typed, or that of the interrupted run, or a new one."""
    if typed is not None:
        return typed
    found = checkpoint.seed()
    return new_seed() if found is None else found


def kept_by(checkpoint: Checkpoint) -> str:
    """Say what a run leaves behind whose processes have ended."""
    if not checkpoint.exists():
        return "nothing of this run is kept."
    return (
        f"{checkpoint.folder} keeps what was done so far, and the same command goes on from there, "
        "with any number of processes."
    )


def write_result(path: Path, content: dict[str, Any], console: Console) -> None:
    """Write ``content`` to ``path``, with the warnings, times and files of the run."""
    files = sorted(file.name for file in path.parent.iterdir())
    run = {"warnings": console.warnings, "seconds": console.seconds}
    write_json(path, content | run | {"files": [*files, path.name, MANIFEST]})


def print_result(
    path: Path, lines: list[str], as_json: bool, console: Console | None = None
) -> None:
    """Print the file that :func:`write_result` wrote, or a summary and where the files are."""
    text = path.read_text(encoding="utf-8")
    if console is not None and console.events is not None:
        console.events.event("result", file=str(path))
    if as_json:
        click.echo(text, nl=False)
    else:
        files = ", ".join(json.loads(text)["files"])
        click.echo("\n".join([*lines, "", f"Files in {path.parent}/: {files}"]))


def require_figures() -> None:
    """Check at the start of a run that figures can be drawn at its end."""
    if find_spec("matplotlib") is None:
        raise ImportError("--figures needs matplotlib: pip install unsplit[figures]")


def write_merge(
    folder: Path,
    read: Observations,
    merged: Merged,
    figures: bool,
    keep_scores: bool,
    console: Console,
) -> None:
    """Write all files of a merge except result.json.

    Parameters
    ----------
    folder : Path
    read : Observations
        What the command read.
    merged : Merged
    figures, keep_scores : bool
        Whether to draw figures, and to write the held-out scores.
    console : Console
        Is told how many files are written.
    """
    tree, distances = merged.tree, merged.fitted.result
    tasks: list[Callable[[], object]] = [
        lambda: write_labels(folder / "labels.csv", read, merged),
        lambda: write_csv(folder / "merges.csv", tree.table()),
        lambda: write_csv(folder / "review.csv", tree.review_table()),
        lambda: distances.save(folder / DISTANCES, scores=keep_scores),
        lambda: np.save(folder / "linkage.npy", tree.linkage),
        lambda: tree.save(folder / "tree.npz"),
    ]
    if figures:
        from unsplit.plots import save_figures

        # A picture of all pairs of very many clusters would show nothing.
        all_pairs = None if distances.is_sparse else distances
        tasks.append(lambda: save_figures(folder, tree, all_pairs))
    for done, task in enumerate(tasks, start=1):
        task()
        console.on_progress(done, len(tasks))


def write_report(
    folder: Path, source: Source, row_ids: NDArray[Any], merged: Merged, info: dict[str, Any]
) -> None:
    """Write the page, and the file that keeps what it shows of the observations."""
    tree, result = merged.tree, merged.fitted.result
    distances = None if result.is_sparse else result
    kept = collect(source, distances, merged.neighbours)
    if distances is not None:
        kept = with_borders(kept, View(tree), distances)
    kept.save(folder / KEPT)
    content = Content(tree, distances, kept, source.clusters, row_ids, about_run(info))
    make_page(content).save(folder / PAGE)


def write_labels(path: Path, read: Observations, merged: Merged) -> None:
    """Write the old, new and, if all neighbours are known, refined cluster of every row."""
    assert read.labels is not None
    columns = {"id": read.row_ids, "old": as_named(read.labels), "new": merged.labels}
    if merged.refined_labels is not None:
        columns["refined"] = merged.refined_labels
    write_csv(path, columns)


def describe_run(
    settings: Settings, merge_options: MergeOptions | None, seed: int
) -> dict[str, Any]:
    """Collect what is needed to repeat a run: settings, seed, device and versions."""
    chosen = {} if merge_options is None else dict(vars(merge_options))
    chosen.pop("answers", None)  # the file they came from is named, and the tree has them
    return {
        "settings": chosen | settings_dict(settings),
        "seed": seed,
        "device": str(choose_device(settings.device)),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the software that results depend on."""
    own = {"unsplit": __version__, "python": platform.python_version()}
    return own | {name: version(name) for name in ("numpy", "torch", "scikit-learn")}


def describe_distances(read: Observations, distances: PairwiseTVD) -> dict[str, Any]:
    """Collect the numbers of an estimate."""
    return {
        "n_observations": len(read.row_ids),
        "n_features": read.X.shape[1] if len(getattr(read.X, "shape", ())) == 2 else None,
        **describe_columns(read),
        "n_initial": distances.n_clusters,
        "n_noise": distances.n_noise,
        "mean_accuracy": distances.mean_accuracy,
    }


def describe_columns(read: Observations) -> dict[str, Any]:
    """Name the columns of a table that were used as features, and those left out."""
    if read.feature_names is None:
        return {}
    return {"id": read.id_name, "features": read.feature_names, "left_out": list(read.left_out)}


def describe_neighbours(graph: NeighbourGraph | None) -> dict[str, Any]:
    """Say how many observations the neighbour graph connects, if it is a sample."""
    if graph is None or graph.sampled_from is None:
        return {}
    return {"n_connected": len(graph.rows), "n_connected_from": graph.sampled_from}


def describe_tree(tree: MergeTree) -> dict[str, Any]:
    """Collect the numbers of a merge."""
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
