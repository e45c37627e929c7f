"""The files that commands write, and the contents of result.json."""

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
from unsplit.cli.select import settings_dict
from unsplit.data.readers.tables_and_arrays import Observations
from unsplit.data.saving import write_csv, write_json
from unsplit.devices import choose_device
from unsplit.errors import InputError
from unsplit.merging.review import UNCLEAR
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.api import Settings
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pipeline import Merged, MergeOptions


def refuse_overwriting(inputs: Iterable[str], outputs: Iterable[str]) -> None:
    """Raise an error if an output file would replace an input file.

    Examples
    --------
    >>> refuse_overwriting(["cells.csv", "labels.csv"], ["out/labels.csv"])
    >>> refuse_overwriting(["a/x.csv"], ["a/x.csv"])
    Traceback (most recent call last):
    ...
    unsplit.errors.InputError: a/x.csv is an input and would be overwritten; choose another --out.
    """
    written = {os.path.realpath(path) for path in outputs}
    for path in inputs:
        if os.path.realpath(path) in written:
            raise InputError(f"{path} is an input and would be overwritten; choose another --out.")


def new_seed() -> int:
    """Draw a seed that is short enough to copy."""
    return secrets.randbelow(2**32)


def write_result(path: Path, content: dict[str, Any], console: Console) -> None:
    """Write ``content`` to ``path``, with the warnings, times and files of the run."""
    files = sorted(file.name for file in path.parent.iterdir())
    run = {"warnings": console.warnings, "seconds": console.seconds}
    write_json(path, content | run | {"files": [*files, path.name]})


def print_result(path: Path, lines: list[str], as_json: bool) -> None:
    """Print the file that :func:`write_result` wrote, or a summary and where the files are."""
    text = path.read_text(encoding="utf-8")
    if as_json:
        click.echo(text, nl=False)
    else:
        files = ", ".join(json.loads(text)["files"])
        click.echo("\n".join([*lines, "", f"Files in {path.parent}/: {files}"]))


def require_figures() -> None:
    """Check at the start of a run that figures can be drawn at its end."""
    if find_spec("matplotlib") is None:
        raise ImportError("--figures needs matplotlib: pip install unsplit[figures]")


def write_merge(folder: Path, read: Observations, merged: Merged, figures: bool) -> None:
    """Write all files of a merge except result.json."""
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
    """Write the old and new cluster of every row."""
    assert read.labels is not None
    columns = {"id": read.row_ids, "old": read.labels, "new": tree.labels(read.labels)}
    write_csv(path, columns)


def describe_run(
    settings: Settings, merge_options: MergeOptions | None, seed: int
) -> dict[str, Any]:
    """Collect what is needed to repeat a run: settings, seed, device and versions."""
    chosen = {} if merge_options is None else vars(merge_options)
    packages = ("numpy", "torch", "scikit-learn")
    return {
        "settings": chosen | settings_dict(settings),
        "seed": seed,
        "device": str(choose_device(settings.device)),
        "versions": {"unsplit": __version__, "python": platform.python_version()}
        | {name: version(name) for name in packages},
    }


def describe_distances(read: Observations, distances: PairwiseTVD) -> dict[str, Any]:
    """Collect the numbers of an estimate."""
    return {
        "n_observations": len(read.row_ids),
        "n_features": read.X.shape[1] if len(getattr(read.X, "shape", ())) == 2 else None,
        "n_initial": distances.n_clusters,
        "n_noise": distances.n_noise,
        "mean_accuracy": distances.mean_accuracy,
    }


def describe_tree(tree: MergeTree) -> dict[str, Any]:
    """Collect the numbers of a merge."""
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
