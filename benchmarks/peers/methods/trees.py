"""Trees over clusters: grown from distances that follow the merges, and cut at any number."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.task import Outcome

Matrix = NDArray[np.float64]
Index = NDArray[np.int64]

# (distances to i, distances to j, distance of i and j, sizes of i, j and all) -> distances to both
Update = Callable[[Matrix, Matrix, float, float, float, Matrix], Matrix]


def average(di: Matrix, dj: Matrix, _: float, ni: float, nj: float, __: Matrix) -> Matrix:
    """Mean over all pairs of observations."""
    return (ni * di + nj * dj) / (ni + nj)


def ward(di: Matrix, dj: Matrix, dij: float, ni: float, nj: float, n: Matrix) -> Matrix:
    """What joining adds to the sum of squares, or to anything else made like it."""
    return ((ni + n) * di + (nj + n) * dj - n * dij) / (ni + nj + n)


def centroid(di: Matrix, dj: Matrix, dij: float, ni: float, nj: float, _: Matrix) -> Matrix:
    """Squared distance to the common mean."""
    return (ni * di + nj * dj - ni * nj * dij / (ni + nj)) / (ni + nj)


def grow(distances: Matrix, sizes: Index, update: Update) -> Index:
    """Join the closest two until one is left (Lance and Williams).

    Returns
    -------
    ndarray of shape (k − 1, 2)
        As in a SciPy linkage: 0 … k−1 are the initial clusters, merge t makes k + t.
    """
    k = len(sizes)
    d = distances.astype(np.float64)
    np.fill_diagonal(d, np.inf)
    n, node = sizes.astype(np.float64), np.arange(k)
    merges = np.empty((k - 1, 2), np.int64)
    for t in range(k - 1):
        i, j = sorted(divmod(int(d.argmin()), k))
        merges[t] = sorted((node[i], node[j]))
        with np.errstate(invalid="ignore"):  # infinity less infinity, for those already joined
            new = update(d[i], d[j], float(d[i, j]), float(n[i]), float(n[j]), n)
        gone = np.isinf(d[i]) | np.isinf(d[j])
        d[i] = d[:, i] = np.where(gone, np.inf, new)
        d[j] = d[:, j] = np.inf
        n[i] += n[j]
        node[i] = k + t
    return merges


def groups_at(merges: NDArray[np.generic], n_groups: int) -> Index:
    """Group of every leaf when so many are left, shape (k,)."""
    k = len(merges) + 1
    parent = np.arange(2 * k - 1)
    for t, pair in enumerate(merges[: max(k - n_groups, 0)]):
        parent[pair.astype(np.int64)] = k + t
    # Parents have higher numbers, so one pass from the top finds every root.
    for node in range(2 * k - 2, -1, -1):
        parent[node] = parent[parent[node]]
    return np.unique(parent[:k], return_inverse=True)[1].astype(np.int64)


def outcome_of(merges: NDArray[np.generic], leaves: Index) -> Outcome:
    """The cuts of a tree whose leaves are clusters, for the observations."""
    return Outcome(at=lambda n: groups_at(merges, n)[leaves], tree=True)
