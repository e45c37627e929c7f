"""What a first look would stumble on: right labels undone, and data that have no separated groups.

python -m benchmarks.first_look [--sizes 1000 3000] [--pulsars 5000] [--data ../shared/data]

Classes of tables are given as labels, whole and split at random: do refined labels keep them?
Structureless data, a made-up table of pulsars and separated groups are cut by k-means into 30: of
which is said that they hardly look like separated groups?
"""

import argparse
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_moons,
    make_s_curve,
    make_swiss_roll,
)
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from benchmarks.common import print_table
from benchmarks.peers.overclusterings import random_split
from benchmarks.peers.problems import PROBLEMS
from benchmarks.peers.task import Problem
from unsplit import ClusterMerger

Matrix = NDArray[np.float64]
BATTERIES = ("ecoli", "glass", "ionosphere", "sonar", "statlog", "wdbc", "yeast")


def tables(data: Path) -> Iterator[Problem]:
    """Tables with classes, scaled and as they are."""
    for load in (load_iris, load_wine, load_breast_cancer, load_digits):
        X, y = load(return_X_y=True)
        name = load.__name__.removeprefix("load_")
        yield Problem(name, X, y)
        if name != "digits":
            yield Problem(f"{name}, scaled", StandardScaler().fit_transform(X), y)
    for name in BATTERIES:
        yield PROBLEMS[f"battery: {name}"](data, 0)


def structureless(n: int) -> Iterator[tuple[str, Matrix]]:
    """One group each."""
    rng = np.random.default_rng
    for d in (2, 10, 50):
        yield f"Gaussian, {d}-d", rng(0).normal(size=(n, d))
        yield f"cube, {d}-d", rng(1).random((n, d))
    for d in (3, 8):
        yield f"Student t, {d}-d", rng(2).standard_t(3, size=(n, d))
        yield f"log-normal, {d}-d", np.exp(rng(3).normal(size=(n, d)) @ (np.eye(d) + 0.3))
    yield "Swiss roll", make_swiss_roll(n, noise=0.3, random_state=0)[0]
    yield "S curve", make_s_curve(n, noise=0.05, random_state=0)[0]
    angle, radius = rng(4).uniform(0, 2 * np.pi, n), 1 + 0.1 * rng(5).normal(size=n)
    yield "ring", np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


def separated(n: int) -> Iterator[tuple[str, Matrix]]:
    """Groups with gaps between them."""
    rng = np.random.default_rng
    for d, groups in ((2, 5), (10, 5), (10, 12), (50, 8), (2, 2), (5, 2)):
        centres = (20 if d == 2 else 8) * rng(d + groups).normal(size=(groups, d))
        X = centres[rng(6).integers(groups, size=n)] + rng(7).normal(size=(n, d))
        yield f"{groups} Gaussians, {d}-d", X
    yield "moons", make_moons(n, noise=0.05, random_state=0)[0]


def pulsars(n: int, seed: int) -> tuple[Matrix, NDArray[np.int64]]:
    """Two overlapping heavy-tailed groups, 9 : 1, like the candidates of a pulsar survey.

    Mean, deviation, kurtosis and skewness of a profile and of a curve, which depend on each other.
    """
    rng = np.random.default_rng(seed)
    normal: Callable[[], Matrix] = lambda: rng.normal(size=n)  # noqa: E731
    y = (rng.random(n) < 0.0916).astype(np.int64)
    away = np.where(y, 30.0, 17.5) * normal()
    deviation = np.where(y, 38.7 + 8 * normal(), 47.3 + 6.2 * normal()) + 0.15 * away
    kurtosis = np.where(y, 3.1 + 1.87 * normal() - 0.03 * away, 0.21 + 0.25 * normal())
    kurtosis -= np.where(y, 0.0, 0.012 * away)
    skewness = 1.4 * np.maximum(kurtosis, 0) ** 2 + 0.4 * rng.standard_t(4, size=n)
    level = np.where(y, 3.5, 1.2) + 0.9 * normal()
    of_curve = 11.5 - 2.7 * level + 1.3 * rng.standard_t(5, size=n)
    columns = [np.where(y, 56.7, 116.6) + away, deviation, kurtosis, skewness, np.exp(level)]
    columns += [9 * np.exp(0.45 * level + 0.15 * normal()), of_curve]
    columns.append(1.25 * np.maximum(of_curve, -1) ** 2 + 8 * normal())
    return np.column_stack(columns), y


def merged(X: Matrix, labels: NDArray[np.int64]) -> ClusterMerger:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return ClusterMerger(random_state=0, device="cpu").fit(X, initial_labels=labels)


def cut(X: Matrix, k: int = 30) -> NDArray[np.int64]:
    found: NDArray[np.int64] = KMeans(k, n_init=2, random_state=0).fit_predict(X)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="*", type=int, default=[1000, 3000])
    parser.add_argument("--pulsars", nargs="*", type=int, default=[5000])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--no-labels", action="store_true", help="only what has no classes")
    args = parser.parse_args()
    rows: list[tuple[object, ...]] = []
    for problem in () if args.no_labels else tables(args.data):
        split = random_split(problem, 3 * problem.n_true, 0)
        for name, labels in (("classes", problem.y), ("split at random", split)):
            merger = merged(problem.X, labels)
            scores = [
                f"{adjusted_rand_score(problem.y, found):.3f}"
                for found in (merger.labels_, merger.refined_labels_)
            ]
            rows.append((problem.name, name, merger.n_clusters_, *scores))
    print_table("Labels that are right", ("data", "labels", "left", "merged", "refined"), rows)
    rows = []
    for kind, sets in (("no groups", structureless), ("groups", separated)):
        for n in args.sizes:
            for name, X in sets(n):
                tree = merged(X, cut(X)).tree_
                rows.append((kind, n, name, tree.n_clusters, tree.how_separated is not None))
    print_table("Cut into 30", ("data", "observations", "kind", "left", "said"), rows)
    rows = []
    for n in args.pulsars:
        X, y = pulsars(n, 1)
        for scaled, values in ((False, X), (True, StandardScaler().fit_transform(X))):
            for k in (30, 40):
                merger, two = merged(values, cut(values, k)), cut(values, 2)
                score, plain = (adjusted_rand_score(y, of) for of in (merger.labels_, two))
                said = merger.tree_.how_separated is not None
                rows.append(
                    (n, scaled, k, merger.n_clusters_, f"{score:.2f}", f"{plain:.2f}", said)
                )
    names = ("observations", "scaled", "pieces", "left", "ARI", "k-means of two", "said")
    print_table("Pulsars", names, rows)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
