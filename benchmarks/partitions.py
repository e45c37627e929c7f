"""Parts of a partition: is the tree right, and does `auto` stop at the right place?

python -m benchmarks.partitions [--cells mouse-bladder-cells.h5] [--gaussians 10]
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.datasets import load_digits, make_blobs, make_moons
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

import unsplit
from benchmarks.common import print_table
from unsplit.estimator import merge_overclustering
from unsplit.merging.options import MergeOptions
from unsplit.pairwise.api import Settings

Problem = tuple[NDArray[np.float64], NDArray[np.int64], int]


def moons(seed: int) -> Problem:
    X, y = make_moons(1000, noise=0.06, random_state=seed)
    return X, y, 30


def digits(_: int) -> Problem:
    return (*load_digits(return_X_y=True), 40)


def ten_gaussians(seed: int) -> Problem:
    X, y = make_blobs(2000, 10, centers=10, center_box=(-5, 5), random_state=seed)
    return X, y, 60


def one_gaussian(d: int) -> Callable[[int], Problem]:
    def draw(seed: int) -> Problem:
        rng = np.random.default_rng([d, seed])
        return rng.standard_normal((2000, d)), np.zeros(2000, np.int64), 20

    return draw


def cells(path: str) -> Callable[[int], Problem]:
    """Log-normalised counts, 2,000 variable genes, 30 principal components."""
    import h5py

    with h5py.File(path) as file:
        counts, y = file["X"][:].astype(float), file["Y"][:]
    X = np.log1p(counts / counts.sum(axis=1, keepdims=True) * 1e4)
    X = X[:, np.argsort(-X.var(axis=0))[:2000]]
    X = PCA(30, random_state=0).fit_transform(X)
    return lambda _: (X, y, 50)


def problems(args: argparse.Namespace) -> Iterator[tuple[str, Callable[[int], Problem], int]]:
    """Name, data of a seed, and number of seeds."""
    yield "two moons, 30", moons, 3
    yield "digits, 40", digits, 5
    if args.cells:
        yield "mouse bladder cells, 50", cells(args.cells), 5
    yield "ten Gaussians in 10-d, 60", ten_gaussians, 3
    for d in (2, 10, 50):
        yield f"one Gaussian in {d}-d, 20", one_gaussian(d), args.gaussians


def best_cut(tree: unsplit.MergeTree, labels: NDArray[np.int64], y: NDArray[np.int64]) -> float:
    """Best adjusted Rand index along the tree."""
    cuts = (tree.cut(n_clusters=n).labels(labels) for n in range(1, tree.n_initial + 1))
    return max(float(adjusted_rand_score(y, cut)) for cut in cuts)


def measure(X: NDArray[np.float64], y: NDArray[np.int64], k: int, seed: int) -> dict[str, Any]:
    labels = KMeans(k, n_init=10, random_state=seed).fit_predict(X)
    n_true = len(np.unique(y))
    start = time.perf_counter()
    merged = merge_overclustering(X, labels, MergeOptions(), Settings(), seed)
    seconds = time.perf_counter() - start
    tree, result = merged.tree, merged.fitted.result
    ignoring = unsplit.merge(result, max_tvd=1.0)
    ward = AgglomerativeClustering(n_true).fit_predict(X)
    given = KMeans(n_true, n_init=10, random_state=seed).fit_predict(X)
    return {
        "number": tree.n_clusters,
        "auto": adjusted_rand_score(y, tree.labels(labels)),
        "best cut": best_cut(tree, labels, y),
        "best cut, by the network alone": best_cut(ignoring, labels, y),
        "at the true number": adjusted_rand_score(y, tree.cut(n_clusters=n_true).labels(labels)),
        "Ward given it": adjusted_rand_score(y, ward),
        "k-means given it": adjusted_rand_score(y, given),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", help="mouse-bladder-cells.h5")
    parser.add_argument("--gaussians", type=int, default=10, help="seeds of one Gaussian")
    parser.add_argument("--only", default="", help="problems whose name holds this")
    args = parser.parse_args()
    rows = []
    for name, draw, n_seeds in problems(args):
        if args.only not in name:
            continue
        found = []
        for seed in range(n_seeds):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", unsplit.PartitionWarning)
                found.append(measure(*draw(seed), seed))
            print(name, seed, {key: round(float(v), 3) for key, v in found[-1].items()}, flush=True)
        means = [f"{np.mean([f[key] for f in found]):.3f}" for key in list(found[0])[1:]]
        rows.append((name, ", ".join(str(f["number"]) for f in found), *means))
    header = ("data, cut by k-means into", "clusters found by auto", *list(found[0])[1:])
    print_table("Adjusted Rand index, mean over the seeds", header, rows)


if __name__ == "__main__":
    main()
