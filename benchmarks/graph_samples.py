"""What a graph of a sample changes: one estimate, merged by the neighbours of all and of some.

python -m benchmarks.graph_samples [--n 500000] [--k 500] [--sampled 100000 20000] [--uneven]
"""

import argparse
import time
import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics import adjusted_rand_score

import unsplit
from benchmarks.common import print_table
from benchmarks.large import DIMENSIONS, GROUPS
from unsplit.merging.neighbours import graph as graphs
from unsplit.merging.tree import MergeTree


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=500_000)
    parser.add_argument("--k", type=int, default=500)
    parser.add_argument("--sampled", type=int, nargs="+", default=[100_000, 20_000])
    parser.add_argument("--spread", type=float, default=1.2, help="of the centres of the Gaussians")
    parser.add_argument("--uneven", action="store_true", help="the largest is 100 times as large")
    args = parser.parse_args()
    X, y = observations(args.n, args.spread, args.uneven)
    labels = MiniBatchKMeans(args.k, random_state=0, n_init=1, batch_size=8192).fit_predict(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", unsplit.errors.PartitionWarning)
        estimate = unsplit.pairwise_tvd(X, labels, random_state=0)
        trees = {}
        for size in (args.n, *args.sampled):
            graphs.MOST_CONNECTED = graphs.SAMPLED = size
            start = time.perf_counter()
            graph = unsplit.neighbour_graph(X, labels)
            trees[size] = unsplit.merge(estimate, neighbours=graph, random_state=0)
            print(f"{graph}: {time.perf_counter() - start:.0f} s", flush=True)
    title = f"{args.n:,} x {DIMENSIONS}, k = {args.k}, {GROUPS} Gaussians, spread {args.spread}"
    names = (
        "in the graph",
        "clusters",
        "ARI",
        "merges of the full graph",
        "ARI with the full graph",
    )
    rows = [(size, *compared(tree, trees[args.n], labels, y)) for size, tree in trees.items()]
    print_table(title + (", uneven" if args.uneven else ""), names, rows)


def observations(
    n: int, spread: float, uneven: bool
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    centres = spread * rng.normal(size=(GROUPS, DIMENSIONS))
    share = np.geomspace(1, 100, GROUPS) if uneven else np.ones(GROUPS)
    y = rng.choice(GROUPS, size=n, p=share / share.sum())
    return (centres[y] + rng.normal(size=(n, DIMENSIONS))).astype(np.float32), y


def compared(
    tree: MergeTree, full: MergeTree, labels: NDArray[np.int64], y: NDArray[np.int64]
) -> tuple[int, float, str, float]:
    """Clusters, ARI with the truth, pairs together as by the full graph, ARI with its labels."""
    pairs, expected = together(tree), together(full)
    shared = f"{len(pairs & expected):,} of {len(expected):,}, {len(pairs - expected):,} others"
    mine, theirs = (one.labels(labels) for one in (tree, full))
    agreement = float(adjusted_rand_score(theirs, mine))
    return tree.n_clusters, float(adjusted_rand_score(y, mine)), shared, agreement


def together(tree: MergeTree) -> set[tuple[int, int]]:
    """Pairs of initial clusters that are merged."""
    same = tree.groups[:, None] == tree.groups
    return set(zip(*np.nonzero(np.triu(same, 1)), strict=True))


if __name__ == "__main__":
    main()
