"""Over-clusterings: name → (problem, k, seed) → clusters 0, 1, … of the observations.

About k clusters, none with fewer than :data:`SMALLEST` observations: those of smaller ones join
the nearest cluster, so there may be some fewer than k.  Same seed, same clusters.

Greedy clusters leave observations out, whose cluster is −1; :func:`restricted` drops them and so
makes the problem smaller.  The others leave none out, and it changes nothing for them.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import Birch, KMeans
from sklearn.exceptions import ConvergenceWarning

from benchmarks.peers.communities import communities, connected
from benchmarks.peers.mixtures import mixture_of
from benchmarks.peers.task import Problem
from unsplit.overclustering import greedy_dense

Labels = NDArray[np.int64]
Overclustering = Callable[[Problem, int, int], Labels]

SMALLEST = 2
NOISE = 0.2
COVERED = 0.5  # share of the observations that greedy clusters hold


def k_means(problem: Problem, k: int, seed: int) -> Labels:
    return _tidy(problem.X, KMeans(k, n_init=3, random_state=seed).fit_predict(problem.X))


def gaussian_mixture(problem: Problem, k: int, seed: int) -> Labels:
    mixture = mixture_of(problem.X, k, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _tidy(problem.X, mixture.fit_predict(problem.X))


def birch(problem: Problem, k: int, seed: int) -> Labels:
    """Observations in random order; the threshold halves until there are 5 k subclusters.

    Whole numbers in few dimensions may have fewer distinct observations.
    """
    order = _generator(seed).permutation(len(problem.X))
    X = problem.X[order]
    threshold = float(np.sqrt(X.var(axis=0).sum()))
    enough = min(5 * k, len(X) // 2, len(np.unique(X, axis=0)))
    while _n_subclusters(X, threshold) < enough:
        threshold /= 2
    labels = np.empty(len(X), np.int64)
    labels[order] = Birch(threshold=threshold, n_clusters=k).fit_predict(X)
    return _tidy(problem.X, labels)


def _n_subclusters(X: NDArray[np.float64], threshold: float) -> int:
    return len(Birch(threshold=threshold, n_clusters=None).fit(X).subcluster_centers_)


def leiden(problem: Problem, k: int, seed: int) -> Labels:
    """Leiden on the graph of 15 nearest neighbours, at the resolution that gives about k."""
    graph = connected(problem.X)
    return _tidy(problem.X, _about(k, lambda resolution: communities(graph, resolution, seed)))


def _about(k: int, at: Callable[[float], Labels]) -> Labels:
    """Find a resolution that gives k clusters, or nearly so.

    Their number grows about as the resolution does; where that leads astray, bisect.
    """
    low, high, now = -3.0, 3.0, 0.0  # decimal logarithms
    best = labels = at(1.0)
    for _ in range(10):
        found = _number(labels)
        if abs(found - k) <= abs(_number(best) - k):
            best = labels
        if abs(found - k) <= 0.03 * k:
            break
        low, high = (now, high) if found < k else (low, now)
        now += float(np.log10(k / found))
        if not low < now < high:
            now = (low + high) / 2
        labels = at(10**now)
    return best


def random_split(problem: Problem, k: int, seed: int) -> Labels:
    """Each true group at random into pieces of unequal sizes, more pieces of larger groups."""
    rng = _generator(seed)
    return _tidy(problem.X, _split(problem.y, _pieces_of_each(problem.y, k), rng))


def noisy_random_split(problem: Problem, k: int, seed: int) -> Labels:
    """The random split; then a fifth of all moves to random clusters of other groups."""
    rng = _generator(seed)
    pieces = _pieces_of_each(problem.y, k)
    labels = _split(problem.y, pieces, rng)
    owner = np.repeat(np.arange(len(pieces)), pieces)
    for row in rng.choice(len(labels), round(NOISE * len(labels)), replace=False):
        labels[row] = rng.choice(np.flatnonzero(owner != problem.y[row]))
    return _tidy(problem.X, labels)


def _pieces_of_each(y: Labels, k: int) -> Labels:
    """In all k pieces, at least one a group; the next goes to where pieces are largest."""
    counts = np.bincount(y)
    pieces = np.ones(len(counts), np.int64)
    for _ in range(k - len(counts)):
        pieces[np.argmax(counts / (pieces + 1))] += 1
    return pieces


def _split(y: Labels, pieces: Labels, rng: np.random.Generator) -> Labels:
    labels = np.empty(len(y), np.int64)
    first = np.cumsum(pieces) - pieces
    for group, number in enumerate(pieces):
        members = rng.permutation(np.flatnonzero(y == group))
        weights = rng.dirichlet(np.full(number, 2.0))
        piece = rng.choice(number, len(members), p=weights)
        sure = min(len(members), SMALLEST * number)
        piece[:sure] = np.arange(sure) % number
        labels[members] = first[group] + piece
    return labels


def greedy(problem: Problem, k: int, _: int) -> Labels:
    """The paper's Algorithm 1: the k densest clusters of one size, half of all observations."""
    size = max(SMALLEST, int(COVERED * len(problem.X) / k))
    return greedy_dense(problem.X, k, size)


OVERCLUSTERINGS: dict[str, Overclustering] = {
    "k-means": k_means,
    "gaussian mixture": gaussian_mixture,
    "birch": birch,
    "leiden": leiden,
    "random split": random_split,
    "noisy random split": noisy_random_split,
    "greedy": greedy,
}


# They are made from the true groups; all others see the observations only.
FROM_GROUPS = ("random split", "noisy random split")


def overclusterings_of(problem: Problem) -> dict[str, Overclustering]:
    """Those that make sense: noise in a split needs a second group to come from.

    Where some observations are noise and belong to no group, there is nothing to split, and
    the densest half would be another problem.
    """
    absent = set() if problem.n_true > 1 else {"noisy random split"}
    if (problem.y < 0).any():
        absent |= {"greedy", *FROM_GROUPS}
    return {name: make for name, make in OVERCLUSTERINGS.items() if name not in absent}


def restricted(problem: Problem, labels: Labels) -> tuple[Problem, Labels]:
    """The problem without the observations that have no cluster, and the clusters of the rest."""
    kept = labels >= 0
    y = problem.y[kept]
    groups = np.unique(y[y >= 0])
    y = np.where(y < 0, -1, np.searchsorted(groups, y))
    return Problem(problem.name, problem.X[kept], y), labels[kept]


def _generator(seed: int) -> np.random.Generator:
    """Not the one that drew the data of this seed."""
    return np.random.default_rng([seed, 1])


def _number(labels: Labels) -> int:
    return int(labels.max()) + 1


def _tidy(X: NDArray[np.float64], labels: NDArray[Any]) -> Labels:
    """Numbers 0, 1, … without a gap; the observations of too small clusters join the nearest."""
    counts = np.bincount(labels)
    large = np.flatnonzero(counts >= SMALLEST)
    centres = np.stack([X[labels == c].mean(axis=0) for c in large])
    tidy = np.searchsorted(large, labels)
    for row in np.flatnonzero(counts[labels] < SMALLEST):
        tidy[row] = np.argmin(((centres - X[row]) ** 2).sum(axis=1))
    return tidy.astype(np.int64)
