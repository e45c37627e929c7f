"""How often clusters stay together if merging is repeated on resampled data."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index, Matrix


@dataclass(frozen=True, eq=False, repr=False)
class Stability:
    """Re-merges of the same initial clusters, each of another part of the observations.

    Parameters
    ----------
    groups : ndarray of shape (r, k)
        Group of every initial cluster in each of r re-merges, where its own rule stopped.
    merges : ndarray of shape (r, k − 1, 2)
        The two clusters of every merge, numbered as in a SciPy linkage; −1 after the last merge,
        if ``cannot_link`` allows no more.

    Examples
    --------
    >>> two = Stability(np.array([[0, 0, 1], [0, 1, 1]]), np.array([[[0, 1], [3, 2]], [[1, 2], [3, 0]]]))
    >>> two.together(0, 1), two.together(0, 2)
    (0.5, 0.0)
    >>> two
    Stability: 2 re-merges of resampled data leave 2 clusters
    """  # noqa: E501

    groups: Index
    merges: Index

    def __post_init__(self) -> None:
        for array in (self.groups, self.merges):
            array.flags.writeable = False

    def __repr__(self) -> str:
        return f"Stability: {self.left}"

    @property
    def n_remerges(self) -> int:
        """Number of re-merges."""
        return len(self.groups)

    @cached_property
    def numbers(self) -> Index:
        """Number of clusters that each re-merge left, shape (r,)."""
        return np.array([len(np.unique(groups)) for groups in self.groups])

    @property
    def left(self) -> str:
        """How many clusters the re-merges left, in words."""
        least, most = int(self.numbers.min()), int(self.numbers.max())
        span = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        plural = "" if most == 1 else "s"
        return f"{self.n_remerges} re-merges of resampled data leave {span} cluster{plural}"

    @cached_property
    def shares(self) -> Matrix:
        """Share of the re-merges in which two initial clusters are together, shape (k, k)."""
        found = np.zeros((self.groups.shape[1],) * 2)
        for groups in self.groups:
            found += groups[:, None] == groups
        return found / self.n_remerges

    def together(self, a: int, b: int) -> float:
        """Share of the re-merges in which two initial clusters are together.

        Parameters
        ----------
        a, b : int
            Their places in ``MergeTree.cluster_ids``.
        """
        return float((self.groups[:, a] == self.groups[:, b]).mean())

    def between(self, left: list[int], right: list[int], sizes: Index) -> float:
        """Mean of the shares over all pairs of an initial cluster of one side and one of the other.

        Parameters
        ----------
        left, right : lists of int
            The initial clusters of both sides.
        sizes : ndarray of shape (k,)
            Number of observations in each; larger clusters count more.
        """
        weights = sizes[left] / sizes[left].sum(), sizes[right] / sizes[right].sum()
        share = float(weights[0] @ self.shares[np.ix_(left, right)] @ weights[1])
        return min(1.0, round(share, 12))

    def agreement(self, groups: Index, sizes: Index) -> float:
        """Mean adjusted Rand index of a grouping and the re-merges, cut at as many clusters.

        Parameters
        ----------
        groups : ndarray of shape (k,)
            Group of every initial cluster, numbered from 0.
        sizes : ndarray of shape (k,)
            Number of observations in each.

        Examples
        --------
        >>> two = Stability(np.zeros((1, 3), int), np.array([[[0, 1], [3, 2]]]))
        >>> two.agreement(np.array([0, 0, 1]), np.array([5, 5, 5]))
        1.0
        """
        others = self.cut(len(np.unique(groups)))
        return float(np.mean([weighted_rand_index(groups, other, sizes) for other in others]))

    def cut(self, n_clusters: int) -> Index:
        """Group of every initial cluster in each re-merge at this number of clusters, shape (r, k).

        Parameters
        ----------
        n_clusters : int
        """
        k = self.groups.shape[1]
        found = np.empty((self.n_remerges, k), np.int64)
        for groups, merges in zip(found, self.merges[:, : k - n_clusters], strict=True):
            of_node = np.arange(2 * k - 1)
            for node in range(k + len(merges) - 1, k - 1, -1):
                # From the last merge on, so that a cluster knows its group before its parts do.
                of_node[merges[node - k][merges[node - k] >= 0]] = of_node[node]
            groups[:] = np.unique(of_node[:k], return_inverse=True)[1]
        return found


def weighted_rand_index(a: Index, b: Index, weights: NDArray[np.generic]) -> float:
    """Adjusted Rand index of two groupings of clusters, each counted with all its observations.

    Examples
    --------
    >>> weighted_rand_index(np.array([0, 0, 1]), np.array([1, 1, 0]), np.array([10, 10, 10]))
    1.0
    """
    table = np.zeros((int(a.max()) + 1, int(b.max()) + 1))
    np.add.at(table, (a, b), weights.astype(np.float64))

    def pairs(n: Matrix) -> float:
        return float((n * (n - 1)).sum()) / 2

    rows, columns = pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    by_chance = rows * columns / max(pairs(table.sum(keepdims=True)), 1.0)
    most = (rows + columns) / 2
    return 1.0 if most == by_chance else (pairs(table) - by_chance) / (most - by_chance)
