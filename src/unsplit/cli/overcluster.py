"""``unsplit overcluster``: more clusters than there are categories, to merge afterwards."""

import json
import shlex
from typing import Any

import click
import numpy as np
from sklearn.cluster import KMeans

from unsplit import overclustering
from unsplit._typing import Index
from unsplit.cli import options, outputs, summary
from unsplit.cli.checks import option
from unsplit.cli.progress import Console
from unsplit.cli.run import interruptible
from unsplit.data.readers.tables_and_arrays import Observations, read_observations
from unsplit.data.saving import replacing, write_csv
from unsplit.errors import InputError

EXAMPLE = """\b
Example:
  unsplit overcluster cells.csv --out clusters.csv --method greedy --n-clusters 200 --size 25
"""

# What a method needs, and what it takes as well.
NEEDS = {"k-means": (), "greedy": ("n_clusters", "size"), "artificial": ("categories", "size")}
TAKES = {"k-means": ("n_clusters", "seed"), "greedy": (), "artificial": ("noise", "seed")}


@click.command(epilog=EXAMPLE)
@options.data
@click.option("--out", required=True, type=click.Path(), help="Table of row ids and labels.")
@click.option("--method", required=True, type=click.Choice(list(NEEDS)))
@click.option(
    "--n-clusters", type=click.IntRange(min=1), metavar="N", help="How many; √n for k-means."
)
@click.option(
    "--size", type=click.IntRange(min=1), metavar="N", help="Observations in each cluster."
)
@click.option("--categories", metavar="FILE|COLUMN", help="Known categories, to be cut up.")
@click.option(
    "--noise",
    type=click.FloatRange(0, 1, max_open=True),
    metavar="SHARE",
    help="Share of observations put into a cluster of another category.",
)
@options.seed
@options.as_json
def overcluster(data: str, out: str, method: str, as_json: bool, **choices: Any) -> None:
    """Cut DATA into many small clusters.

    k-means makes them of all observations; greedy finds the densest ones of a given size and
    leaves the rest out; artificial cuts known categories at random, to try merging out.
    """
    given = {name: value for name, value in choices.items() if value is not None}
    _check(method, given)
    if "seed" in TAKES[method]:
        given.setdefault("seed", outputs.new_seed())
    outputs.spare([data, given.get("categories", data)], [out])
    with interruptible(out), replacing(out) as new, Console().telling_warnings():
        read = read_observations(data, given.get("categories"))
        labels = _labels(method, read, given)
        write_csv(new, {"id": read.row_ids, "label": labels})
    if as_json:
        about = {"command": "overcluster", "data": data, "settings": {"method": method} | given}
        click.echo(json.dumps(about | _counts(labels), indent=2))
        return
    command = shlex.join(["unsplit", "merge", data, "--labels", out, "--out", "merged"])
    by = f" (seed {given['seed']})" if "seed" in given else ""
    click.echo(f"{summary.of_overclustering(labels)}\n\nIn {out}{by}. Go on with:\n  {command}")


def _check(method: str, given: dict[str, Any]) -> None:
    for name in NEEDS[method]:
        if name not in given:
            raise click.UsageError(f"--method {method} needs {option(name)}.")
    for name in given:
        if name not in NEEDS[method] + TAKES[method]:
            raise click.UsageError(f"--method {method} does not take {option(name)}.")


def _labels(method: str, read: Observations, given: dict[str, Any]) -> Index:
    if method == "greedy":
        return overclustering.greedy_dense(read.X, given["n_clusters"], given["size"])
    if method == "artificial":
        noise = given.get("noise", 0.0)
        categories = np.asarray(read.labels)
        return overclustering.artificial(categories, given["size"], noise, given["seed"])
    n, n_clusters = read.X.shape[0], given.get("n_clusters")
    if n_clusters is None:
        return overclustering.overcluster(read.X, None, given["seed"])
    if n_clusters > n:
        raise InputError(
            f"--n-clusters is {n_clusters}, but there are {n} rows; ask for fewer clusters."
        )
    return overclustering.overcluster(read.X, KMeans(n_clusters), given["seed"])


def _counts(labels: Index) -> dict[str, Any]:
    names, sizes = np.unique(labels[labels >= 0], return_counts=True)
    return {
        "n_observations": len(labels),
        "n_clusters": len(names),
        "n_noise": int((labels < 0).sum()),
        "sizes": dict(zip(names.tolist(), sizes.tolist(), strict=True)),
    }
