"""Rare groups: do small clusters that are groups of their own stay, and small pieces merge?

python -m benchmarks.small_groups [--seeds 3] [--only "twelve groups"]

Every case is fitted by ``ClusterMerger(random_state=seed)``.  A run is right if the clusters left
are the true groups; the last column counts the rare groups that are a cluster of their own.
"""

import argparse
import os
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from benchmarks.common import print_table
from unsplit import ClusterMerger

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]

D, APART = 5, 40.0
CLASSES = {"iris": load_iris, "wine": load_wine, "digits": load_digits}
CLASSES["breast cancer"] = load_breast_cancer


class Case(NamedTuple):
    """Observations, true groups, the clusters to start from, and which groups are rare."""

    name: str
    X: Matrix
    y: Labels
    clusters: Labels
    rare: Labels


def far_apart(sizes: NDArray[Any], rng: np.random.Generator) -> tuple[Matrix, Labels]:
    """Gaussians of given sizes about random points of a grid, 40 standard deviations apart."""
    side = int(np.ceil(len(sizes) ** (1 / D))) + 1
    points = rng.choice(side**D, len(sizes), replace=False)
    centres = APART * np.stack(np.unravel_index(points, (side,) * D), axis=1)
    y = np.repeat(np.arange(len(sizes)), sizes)
    return centres[y] + rng.standard_normal((len(y), D)), y


def twelve_groups(n: int, rng: np.random.Generator) -> Case:
    X, y = far_apart(np.full(12, n), rng)
    return Case(f"twelve groups of {n}, one cluster each", X, y, y, np.arange(12))


def rare_groups(n: int, rng: np.random.Generator) -> Case:
    X, y = far_apart(np.array([300] * 4 + [n] * 3), rng)
    clusters = y + 16
    large = y < 4
    clusters[large] = KMeans(20, n_init=3, random_state=0).fit_predict(X[large])
    return Case(f"four of 300 in 20 clusters, three of {n}", X, y, clusters, np.arange(4, 7))


def forty_pairs(rng: np.random.Generator) -> Case:
    X, y = far_apart(np.full(40, 10), rng)
    clusters = 2 * y + np.arange(len(y)) % 2
    return Case("forty groups in two clusters of 5", X, y, clusters, np.arange(40))


def classes(name: str) -> Case:
    X, y = CLASSES[name](return_X_y=True)
    # Features of unlike units are standardised.
    X = X if name == "digits" else StandardScaler().fit_transform(X)
    return Case(f"classes of {name}", X, y, y, np.unique(y))


def cases(rng: np.random.Generator) -> Iterator[Case]:
    yield from (twelve_groups(n, rng) for n in (6, 8, 10, 14, 20))
    yield from (rare_groups(n, rng) for n in (6, 10, 14))
    yield forty_pairs(rng)
    yield from map(classes, CLASSES)


def fitted(case: Case, seed: int) -> tuple[int, bool, int]:
    """Clusters left, whether they are the groups, and how many rare groups are one of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        merger = ClusterMerger(device="cpu", random_state=seed)
        labels = merger.fit(case.X, initial_labels=case.clusters).labels_
    found = {frozenset(np.flatnonzero(labels == c).tolist()) for c in np.unique(labels)}
    alone = sum(frozenset(np.flatnonzero(case.y == g).tolist()) in found for g in case.rare)
    return len(found), adjusted_rand_score(case.y, labels) == 1.0, alone


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose names hold this")
    args = parser.parse_args()
    found: dict[str, tuple[Case, list[tuple[int, bool, int]]]] = {}
    for seed in range(args.seeds):
        for case in cases(np.random.default_rng(seed)):
            if args.only in case.name:
                found.setdefault(case.name, (case, []))[1].append(fitted(case, seed))
    rows = []
    for name, (case, runs) in found.items():
        left = ", ".join(str(n) for n, _, _ in runs)
        alone = ", ".join(f"{k} of {len(case.rare)}" for _, _, k in runs)
        n_true, start = len(np.unique(case.y)), len(np.unique(case.clusters))
        rows.append((name, start, n_true, left, f"{sum(r for _, r, _ in runs)}/{len(runs)}", alone))
    head = ("case", "clusters", "groups", "clusters left", "right", "rare groups alone")
    print_table("Rare groups, one number a seed", head, rows)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
