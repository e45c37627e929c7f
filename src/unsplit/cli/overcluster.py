"""``unsplit overcluster``: cut data into many small clusters, to merge afterwards."""

import json
import secrets
import shlex
from typing import Any

import click
import numpy as np
from sklearn.cluster import KMeans

from unsplit import overclustering
from unsplit._typing import Index
from unsplit.cli import options, outputs
from unsplit.cli.console import Console, interruptible
from unsplit.cli.options import Input
from unsplit.data.readers.observations import Observations
from unsplit.data.saving import replacing, write_csv
from unsplit.errors import InputError, option
from unsplit.report import summary

# Options that a method takes; of greedy, both are required.
TAKES = {"k-means": ("n_clusters", "seed"), "greedy": ("n_clusters", "size")}


def overcluster(
    out: str,
    method: str | None,
    as_json: bool,
    progress: bool | None,
    **choices: Any,
) -> None:
    """Cut data into clusters, and write the table."""
    source = Input.taken_from(choices)
    given = {name: value for name, value in choices.items() if value is not None}
    method = method or ("k-means" if choices.get("size") is None else "greedy")
    _check(method, given)
    if method == "k-means":
        given.setdefault("seed", secrets.randbelow(2**32))
    outputs.require_name(out)
    outputs.refuse_replacing(source.data, [out])
    console = Console(progress, as_json)
    console.plan(["reading", "clustering", "writing"])
    with interruptible(out, console), replacing(out) as new, console.show_warnings():
        with console.stage("reading"):
            read = source.read(console.on_progress)
        with console.stage("clustering"):
            labels = _labels(method, read, given)
        with console.stage("writing"):
            write_csv(new, read.of_all_rows({"label": labels}))
    if as_json:
        info: dict[str, Any] = {"command": "overcluster", "data": source.data}
        info |= {"settings": {"method": method} | given, **outputs.described_columns(read)}
        click.echo(json.dumps(info | _counts(labels), indent=2))
        return
    chosen = options.typed_columns(source)
    command = ["unsplit", "merge", source.data, "--labels", out, *chosen, "--out", "merged"]
    seed = f" (seed {given['seed']})" if "seed" in given else ""
    click.echo("\n".join([summary.of_overclustering(labels), *summary.of_features(read)]))
    click.echo(f"\nThe clusters are in {out}{seed}. To merge them:\n  {shlex.join(command)}")


def _check(method: str, given: dict[str, Any]) -> None:
    for name in given:
        if name not in TAKES[method]:
            raise click.UsageError(f"--method {method} does not take {option(name)}.")
    for name in TAKES["greedy"] if method == "greedy" else ():
        if name not in given:
            raise click.UsageError(f"--method {method} needs {option(name)}.")


def _labels(method: str, read: Observations, given: dict[str, Any]) -> Index:
    if method == "greedy":
        return overclustering.greedy_dense(read.X, given["n_clusters"], given["size"])
    n, n_clusters = read.X.shape[0], given.get("n_clusters")
    if n_clusters is not None and n_clusters > n:
        raise InputError(
            f"--n-clusters must be at most {n}, the number of rows, got {n_clusters}; choose a "
            "smaller number."
        )
    clusterer = None if n_clusters is None else KMeans(n_clusters)
    return overclustering.overcluster(read.X, clusterer, given["seed"])


def _counts(labels: Index) -> dict[str, Any]:
    names, sizes = np.unique(labels[labels >= 0], return_counts=True)
    return {
        "n_observations": len(labels),
        "n_clusters": len(names),
        "n_noise": int((labels < 0).sum()),
        "sizes": dict(zip(names.tolist(), sizes.tolist(), strict=True)),
    }
