"""Photographs and speech, over-clustered and merged: which graph of neighbours serves them best?

python -m benchmarks.graphs_without_vectors --data ../shared/data [--only photographs]
    [--device auto] [--per-category 200] [--sounds 2000] [--k 40] [--epochs 200]

One training each; then the same estimate is merged with no graph, with those that the networks
make, and with one of the features that k-means had cut.  Figures are adjusted Rand indices.
"""

import argparse
import io
import time
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

import unsplit
from benchmarks.common import print_table
from benchmarks.peers.problems.features import log_mel
from benchmarks.peers.problems.real import some_of_each
from unsplit.data.rows.sequences import Ragged
from unsplit.devices import choose_device
from unsplit.merging.api import merge_with
from unsplit.merging.neighbours.graph import NeighbourGraph, connect, graph_of_scores
from unsplit.merging.plan import MergeOptions
from unsplit.pairwise.api import Settings, fit

CATEGORIES = 10
RATE = 8000  # samples per second, which the file does not say


class Problem(NamedTuple):
    """Data for the network, features for k-means, and the truth."""

    X: Any
    features: NDArray[np.float64]
    categories: NDArray[np.int64]


def photographs(args: argparse.Namespace) -> Problem:
    """Ten random categories of Tiny ImageNet, and features of a self-supervised network."""
    from PIL import Image

    with zipfile.ZipFile(args.data / "tiny-imagenet-60.zip") as archive:
        names = [name for name in archive.namelist() if name.endswith(".JPEG")]
        category = np.unique([name.split("/")[-2] for name in names], return_inverse=True)[1]
        rng = np.random.default_rng(args.seed)
        rows = some_of_each(category, CATEGORIES, args.per_category, rng)
        files = (io.BytesIO(archive.read(names[row])) for row in rows)
        X = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files])
    features = np.load(args.data / "tiny-imagenet-60.sscd64.npy", mmap_mode="r")[rows]
    return Problem(X, features.astype(np.float64), category[rows])


def spoken_digits(args: argparse.Namespace) -> Problem:
    """Recordings by six speakers, and log-mel bands in 16 time steps, 40 components."""
    with np.load(args.data / "free-spoken-digits.npz") as data:
        audio, offsets, digit = data["audio"], data["offsets"], data["digit"]
    rows = np.random.default_rng(args.seed).choice(len(digit), args.sounds, replace=False)
    sounds = [audio[offsets[row] : offsets[row + 1]] for row in rows]
    features = PCA(40, random_state=0).fit_transform(np.stack([log_mel(s) for s in sounds]))
    X = Ragged.of(sounds, RATE)
    return Problem(X, features, digit[rows].astype(np.int64))


PROBLEMS = {"photographs": photographs, "spoken digits": spoken_digits}


def graphs(
    result: unsplit.PairwiseTVD, features: NDArray[np.float64], labels: Any, device: str
) -> Iterator[tuple[str, NeighbourGraph | None]]:
    yield "none", None
    scores, where = result.scores, choose_device(device)
    yield (
        "held-out features of the networks, within folds",
        connect(
            scores.features.astype(np.float64),
            scores.clusters,
            scores.folds,
            where,
            result.n_clusters,
        ),
    )
    yield "held-out probabilities of the clusters (the default)", graph_of_scores(result)
    yield (
        "features passed (`features=`)",
        unsplit.neighbour_graph(features, labels, device=device),
    )


def merged(problem: Problem, args: argparse.Namespace) -> Iterator[tuple[Any, ...]]:
    """A row of the table for each graph."""
    kmeans = KMeans(args.k, n_init=10, random_state=args.seed)
    labels, y = kmeans.fit_predict(problem.features), problem.categories
    settings = Settings(device=args.device, training=unsplit.TrainConfig(epochs=args.epochs))
    start = time.perf_counter()
    fitted = fit(problem.X, labels, settings, args.seed)
    print(f"trained in {time.perf_counter() - start:.0f} s", flush=True)
    for name, graph in graphs(fitted.result, problem.features, labels, args.device):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", unsplit.errors.PartitionWarning)
            auto, told = (
                merge_with(
                    fitted.result,
                    MergeOptions(n_clusters=number),
                    neighbours=graph,
                    random_state=args.seed,
                    assigned=fitted.assigned(),
                )
                for number in (None, CATEGORIES)
            )
        indices = (adjusted_rand_score(y, tree.labels(labels)) for tree in (auto, told))
        yield (name, auto.n_clusters, *map(float, indices), best_cut(auto, labels, y))


def best_cut(tree: unsplit.MergeTree, labels: NDArray[np.int64], y: NDArray[np.int64]) -> float:
    """Best adjusted Rand index along the tree."""
    cuts = (tree.cut(n_clusters=n).labels(labels) for n in range(1, tree.n_initial + 1))
    return max(float(adjusted_rand_score(y, cut)) for cut in cuts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--per-category", type=int, default=200, help="photographs of each")
    parser.add_argument("--sounds", type=int, default=2000)
    parser.add_argument("--k", type=int, default=40, help="clusters by k-means")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    header = ("graph", "clusters found by auto", "auto", f"told {CATEGORIES}", "best cut of auto")
    for name in args.only:
        problem = PROBLEMS[name](args)
        rows = []
        for row in merged(problem, args):
            rows.append(row)
            print(name, *row, flush=True)
        title = f"{len(problem.features):,} {name}, {args.k} clusters, {CATEGORIES} true"
        print_table(f"{title}: adjusted Rand index", header, rows)


if __name__ == "__main__":
    main()
