"""Seconds that `merge` takes where clusters are tiny and many, by what the networks learned.

python -m benchmarks.tiny_clusters [--clusters 5000] [--per-cluster 3] [--only untrained] [--sparse]

Gaussian groups are split at random.  Training would take longer than merging, so there is none:
scores are products with cluster means, or with random vectors for an untrained network.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import print_table
from unsplit import MergeTree, PairwiseTVD, merge, neighbour_graph
from unsplit._typing import Index
from unsplit.data.labels import encode_labels
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.networks.training.group import Fold
from unsplit.networks.training.progress import History
from unsplit.overclustering import artificial
from unsplit.pairwise.divergences import HeldoutScores, directed_means, hit
from unsplit.pairwise.heldout_scores import crossfit_folds, estimate_of

Matrix = NDArray[np.float64]

DIMENSIONS, FOLDS, CLUSTERS_A_GROUP = 20, 5, 20

# The means are of training rows; of all rows, as if every observation had been learned by heart,
# so that clusters look like a partition; or there are none, and all distances are near zero.
LEARNED = ("trained", "memorised", "untrained")

PATHS: dict[str, Callable[[Any, NeighbourGraph, int], MergeTree]] = {
    "auto, graph": lambda result, graph, _: merge(result, neighbours=graph),
    "auto": lambda result, graph, _: merge(result),
    "number given, graph": lambda result, graph, n: merge(result, neighbours=graph, n_clusters=n),
    "number given": lambda result, graph, n: merge(result, n_clusters=n),
}


def split_groups(k: int, per_cluster: int, seed: int = 0) -> tuple[Matrix, Index]:
    """Observations of Gaussian groups, twenty clusters of each, and their clusters."""
    rng = np.random.default_rng(seed)
    n_groups = max(1, k // CLUSTERS_A_GROUP)
    group = rng.permutation(np.repeat(np.arange(n_groups), k // n_groups * per_cluster))
    means = rng.normal(scale=1.5, size=(n_groups, DIMENSIONS))
    X = means[group] + rng.normal(size=(len(group), DIMENSIONS))
    return X, artificial(group, per_cluster, 0.0, seed)


def estimate(X: Matrix, clusters: Index, learned: str, seed: int = 0) -> PairwiseTVD:
    """What a linear network would say that learned this much."""
    scores, sizes = linear_scores(X, clusters, learned, seed), np.bincount(clusters)
    hits = directed_means(scores, hit)
    return PairwiseTVD(np.arange(len(sizes)), sizes, scores.counts.sum(0), hits, scores, NO_HISTORY)


NO_HISTORY = History(*(np.zeros(0, kind) for kind in (int, float, float, float, int)))


def linear_scores(X: Matrix, clusters: Index, learned: str, seed: int = 0) -> HeldoutScores:
    """Held-out scores of a linear network that learned this much."""
    rng = np.random.default_rng(seed)
    folds = crossfit_folds(clusters, FOLDS, rng)
    weights = np.stack([_weights(X, clusters, fold, learned, rng) for fold in folds])
    tests = [fold.test[np.argsort(clusters[fold.test], kind="stable")] for fold in folds]
    rows = np.concatenate(tests)
    return HeldoutScores(
        features=X[rows].astype(np.float32),
        weights=weights.astype(np.float32),
        bias=(-0.5 * (weights**2).sum(axis=2)).astype(np.float32),
        clusters=clusters[rows],
        folds=np.repeat(np.arange(FOLDS), [len(test) for test in tests]),
        rows=rows,
    )


def _weights(
    X: Matrix, clusters: Index, fold: Fold, learned: str, rng: np.random.Generator
) -> Matrix:
    k = int(clusters.max()) + 1
    if learned == "untrained":
        return rng.normal(scale=0.01, size=(k, X.shape[1]))
    rows = np.arange(len(X)) if learned == "memorised" else fold.train
    sums = np.stack([np.bincount(clusters[rows], column, k) for column in X[rows].T], axis=1)
    return sums / np.bincount(clusters[rows], minlength=k)[:, None]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clusters", type=int, default=5000)
    parser.add_argument("--per-cluster", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=LEARNED, default=LEARNED)
    parser.add_argument("--sparse", action="store_true", help="keep only confused pairs")
    arguments = parser.parse_args()
    X, clusters = split_groups(arguments.clusters, arguments.per_cluster)
    graph = neighbour_graph(X, clusters)
    table = []
    for learned in arguments.only:
        result: PairwiseTVD
        if arguments.sparse:
            scores = linear_scores(X, clusters, learned)
            result = estimate_of(scores, encode_labels(clusters), NO_HISTORY, is_sparse=True)
        else:
            result = estimate(X, clusters, learned)
        for name, path in PATHS.items():
            start, cpu = time.perf_counter(), time.process_time()
            tree = path(result, graph, max(1, arguments.clusters // CLUSTERS_A_GROUP))
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
            row = [learned, name, f"{tree.n_clusters:,}", tree.statistic]
            table.append([*row, f"{seconds:.1f}", f"{cpu:.1f}"])
    title = f"merge: k = {arguments.clusters:,}, clusters of {arguments.per_cluster}"
    head = ("network", "rule", "clusters left", "ranked by", "seconds", "of them on the processor")
    print_table(title, head, table)


if __name__ == "__main__":
    main()
