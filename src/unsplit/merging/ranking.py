"""Rankings of the remaining pairs, kept up to date when clusters are merged.

Clusters are slots 0 … k−1; merging b into a empties slot b.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from unsplit._typing import Matrix


class Ranking(Protocol):
    """How close clusters are, for the merging loop."""

    statistic: str
    unlinked: float
    """Clusters at this distance or beyond have no connection."""

    def distances(self) -> Matrix:
        """Current ranking statistic of all pairs, shape (k, k)."""

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Merge b into a and return the slots whose distances have changed."""

    def row(self, a: int) -> Matrix:
        """Ranking statistic between a and all slots, shape (k,)."""


def mean_rank(*distances: Matrix) -> Matrix:
    """Mean over several distances of a pair's rank among all pairs, from 0 to 1.

    Distances that are not on one scale can be ranked together in this way.

    Examples
    --------
    >>> near = np.array([[0, 3, 2], [3, 0, 9], [2, 9, 0]])
    >>> mean_rank(near, near.T)
    array([[0. , 0.5, 0. ],
           [0.5, 0. , 1. ],
           [0. , 1. , 0. ]])
    """
    i, j = np.triu_indices(len(distances[0]), 1)
    ranks = [rankdata(matrix[i, j]) - 1 for matrix in distances]
    found = np.zeros(distances[0].shape)
    found[i, j] = found[j, i] = np.mean(ranks, axis=0) / max(1, len(i) - 1)
    return found


class Linked:
    """Average linkage on a fixed matrix.

    Parameters
    ----------
    matrix : ndarray of shape (k, k)
    statistic : str
        Name of what the matrix holds.
    known : ndarray of shape (k, k), optional
        Which pairs could be compared; the others count only if no pair of two merged clusters
        could be compared.
    """

    unlinked = np.inf

    def __init__(
        self,
        matrix: Matrix,
        statistic: str,
        known: NDArray[np.bool_] | None = None,
    ) -> None:
        self.matrix = np.array(matrix, np.float64)
        self.statistic = statistic
        # Number of comparable pairs of initial clusters behind each distance.
        self.n_pairs = np.ones(self.matrix.shape) if known is None else known.astype(np.float64)

    def distances(self) -> Matrix:
        """The current matrix."""
        return self.matrix

    def merge(self, a: int, b: int) -> Sequence[int]:
        """The Lance–Williams update; every pair of initial clusters counts once, as in SciPy."""
        pair, n_pairs = self.matrix[[a, b]], self.n_pairs[[a, b]]
        total = n_pairs.sum(axis=0)
        known = (n_pairs * pair).sum(axis=0) / np.maximum(total, 1)
        self.matrix[a] = self.matrix[:, a] = np.where(total > 0, known, pair[0])
        self.matrix[a, a] = 0.0
        self.n_pairs[a] = self.n_pairs[:, a] = total
        return (a,)

    def row(self, a: int) -> Matrix:
        """Linkage distance between a and all slots."""
        return self.matrix[a]
