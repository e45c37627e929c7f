"""The files that commands leave behind, and what is in result.json."""

import json
import os
import platform
import secrets
from collections.abc import Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np

from unsplit import __version__
from unsplit.cli.progress import Console
from unsplit.cli.select import plain
from unsplit.data.readers.tables_and_arrays import Observations
from unsplit.data.saving import write_csv, write_json
from unsplit.devices import choose_device
from unsplit.errors import InputError
from unsplit.merging.review import UNCLEAR
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.api import Settings
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pipeline import Merged, MergeOptions


def spare(inputs: Iterable[str], outputs: Iterable[str]) -> None:
    """Refuse to write over what is read.

    Examples
    --------
    >>> spare(["cells.csv", "labels.csv"], ["out/labels.csv"])
    >>> spare(["cells.csv", "out/labels.csv"], ["out/labels.csv"])
    Traceback (most recent call last):
    ...
    unsplit.errors.InputError: out/labels.csv would be overwritten; choose another --out.
    """
    written = {os.path.realpath(path) for path in outputs}
    for path in inputs:
        if os.path.realpath(path) in written:
            raise InputError(f"{path} would be overwritten; choose another --out.")


def new_seed() -> int:
    """A seed for those who gave none, short enough to copy."""
    return secrets.randbelow(2**32)


def write_result(path: Path, content: dict[str, Any], console: Console) -> None:
    """Add how the run went and which files are beside ``path``, and write it all there."""
    files = sorted(file.name for file in path.parent.iterdir())
    went = {"warnings": console.warnings, "seconds": console.seconds}
    write_json(path, content | went | {"files": [*files, path.name]})


def tell(path: Path, lines: list[str], as_json: bool) -> None:
    """Print what :func:`write_result` wrote as it is, or some lines and where the files are."""
    text = path.read_text(encoding="utf-8")
    if as_json:
        click.echo(text, nl=False)
    else:
        files = ", ".join(json.loads(text)["files"])
        click.echo("\n".join([*lines, "", f"In {path.parent}/: {files}"]))


def require_figures() -> None:
    """Raise now what drawing would raise at the end."""
    if find_spec("matplotlib") is None:
        raise ImportError("--figures needs matplotlib: pip install unsplit[figures]")


def write_merge(folder: Path, read: Observations, merged: Merged, figures: bool) -> None:
    """Everything about a merge but result.json."""
    tree, distances = merged.tree, merged.fitted.result
    write_labels(folder / "labels.csv", read, tree)
    write_csv(folder / "merges.csv", tree.table())
    write_csv(folder / "review.csv", tree.review_table())
    distances.save(folder / "distances.npz")
    np.save(folder / "linkage.npy", tree.linkage)
    tree.save(folder / "tree.npz")
    if figures:
        from unsplit.plots import save_figures

        save_figures(folder, tree, distances)


def write_labels(path: Path, read: Observations, tree: MergeTree) -> None:
    """Old and new cluster of every row."""
    assert read.labels is not None
    columns = {"id": read.row_ids, "old": read.labels, "new": tree.labels(read.labels)}
    write_csv(path, columns)


def about_run(settings: Settings, merge_options: MergeOptions | None, seed: int) -> dict[str, Any]:
    """What is needed to repeat a run: every setting, the seed, the device and the versions."""
    chosen = {} if merge_options is None else vars(merge_options)
    packages = ("numpy", "torch", "scikit-learn")
    return {
        "settings": chosen | plain(settings),
        "seed": seed,
        "device": str(choose_device(settings.device)),
        "versions": {"unsplit": __version__, "python": platform.python_version()}
        | {name: version(name) for name in packages},
    }


def about_distances(read: Observations, distances: PairwiseTVD) -> dict[str, Any]:
    """The numbers of an estimate."""
    return {
        "n_observations": len(read.row_ids),
        "n_features": read.X.shape[1] if len(getattr(read.X, "shape", ())) == 2 else None,
        "n_initial": distances.n_clusters,
        "n_noise": distances.n_noise,
        "mean_accuracy": distances.mean_accuracy,
    }


def about_tree(tree: MergeTree) -> dict[str, Any]:
    """The numbers of a merge."""
    n_taken = int(tree.taken.sum())
    tvd = [merge.tvd for merge in tree.merges]
    return {
        "n_clusters": tree.n_clusters,
        "stopped": tree.stopped,
        "last_merge_tvd": tvd[n_taken - 1] if n_taken else None,
        "first_refused_tvd": tvd[n_taken] if n_taken < len(tvd) else None,
        "n_unclear": sum(row.pair.verdict == UNCLEAR for row in tree.reviewed),
        "mapping": tree.mapping,
    }
