"""Rankings of the remaining pairs, kept up to date when clusters are merged.

There is a class for each way to rank pairs: scores composed in closed form, linkage on a fixed
matrix, and a new estimate after every merge.  Clusters are slots 0 … k−1; merging b into a empties
slot b.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import rankdata

from unsplit._typing import Matrix
from unsplit.merging.evidence import Columns
from unsplit.pairwise.result import PairwiseTVD


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


class Composed(Columns):
    """Scores of merged clusters in closed form: z_ab = log((n_a e^z_a + n_b e^z_b)/(n_a + n_b)).

    The ranking statistic is soft accuracy, 2·mean σ(z_own − z_other) − 1 over the held-out
    observations of both.  Hard accuracy is 1 for all pairs that do not overlap; soft accuracy still
    ranks them.  Every observation counts once.  For clusters of equal size this is the Le Cam
    distance, in which every *cluster* counts once and which ranked slightly worse.  With batches it
    is the weighted mean of the Le Cam distances within batches, because a network prefers the
    cluster that is larger in a batch, and counting observations would take that for a difference.

    Parameters
    ----------
    result : PairwiseTVD
        The estimate whose scores are composed.
    lookup : bool
        As for :class:`Columns`.
    """

    statistic = "soft accuracy"
    unlinked = np.inf

    def __init__(self, result: PairwiseTVD, lookup: bool = True) -> None:
        super().__init__(result, lookup)
        k = result.n_clusters
        self.own = self.z[np.arange(len(self.slot)), self.slot]
        self.counts = self._sums_by_batch(np.ones(len(self.slot)))
        self.soft_hits = np.stack([self._hits_of(a) for a in range(k)], axis=1)

    def distances(self) -> Matrix:
        """Soft accuracy of all pairs, as a distance in [0, 1]."""
        k = self.z.shape[1]
        hits, weight = np.zeros((k, k)), np.zeros((k, k))
        for n, means in zip(self.counts, self.soft_hits, strict=True):
            weights = self._weights(n[:, None], n)
            hits += weights * means
            weight += weights
        return self._as_distance(hits + hits.T, weight + weight.T)

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Compose the score columns of the two and update row and column a."""
        super().merge(a, b)
        self.counts[:, a] += self.counts[:, b]
        self.counts[:, b] = 0
        members = self.slot == a
        self.own[members] = self.z[members, a]
        self.soft_hits[:, a] = self._hits_of(a)
        self.soft_hits[:, :, a] = self._hits_against(a)
        return (a,)

    def row(self, a: int) -> Matrix:
        """Soft accuracy between a and all slots, as a distance."""
        mine = self._weights(self.counts[:, [a]], self.counts)
        theirs = self._weights(self.counts, self.counts[:, [a]])
        hits = mine * self.soft_hits[:, a] + theirs * self.soft_hits[:, :, a]
        return self._as_distance(hits.sum(axis=0), (mine + theirs).sum(axis=0))

    def _weights(self, n: Matrix, n_other: Matrix) -> Matrix:
        """Weight of the soft hits of n observations against a cluster of n_other."""
        if len(self.counts) == 1:
            return np.broadcast_to(n, np.broadcast_shapes(n.shape, n_other.shape))
        return n * n_other / np.maximum(n + n_other, 1)

    @staticmethod
    def _as_distance(hits: Matrix, counts: Matrix) -> Matrix:
        # Two clusters without held-out observations cannot be compared and come last.
        accuracy = np.where(counts > 0, hits / np.maximum(counts, 1), 1.0)
        return np.clip(2 * accuracy - 1, 0.0, 1.0)

    def _hits_of(self, a: int) -> Matrix:
        """Mean soft hit of a's observations of each batch against every slot, shape (B, k).

        1/2 if there are none.
        """
        means = np.full((len(self.counts), self.z.shape[1]), 0.5)
        members = np.flatnonzero(self.slot == a)
        for batch in np.unique(self.batch[members]):
            inside = members[self.batch[members] == batch]
            margins = self.own[inside, None] - self.z[inside]
            means[batch] = expit(margins).mean(axis=0, dtype=np.float64)
        return means

    def _hits_against(self, a: int) -> Matrix:
        """Mean soft hit of every slot's observations of each batch against a, shape (B, k)."""
        sums = self._sums_by_batch(expit(self.own - self.z[:, a]))
        return np.where(self.counts > 0, sums / np.maximum(self.counts, 1), 0.5)

    def _sums_by_batch(self, values: Matrix) -> Matrix:
        """Sums over the observations of each batch and slot, shape (B, k)."""
        shape = self.result.scores.n_batches, self.z.shape[1]
        place = self.batch * shape[1] + self.slot
        sums = np.bincount(place, values, minlength=shape[0] * shape[1])
        return sums.astype(np.float64, copy=False).reshape(shape)


class Linked:
    """Average, single or complete linkage on a fixed matrix.

    Parameters
    ----------
    matrix : ndarray of shape (k, k)
    method : {"average", "single", "complete"}
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
        method: str,
        statistic: str,
        known: NDArray[np.bool_] | None = None,
    ) -> None:
        self.matrix = np.array(matrix, np.float64)
        self.method = method
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
        if self.method == "average":
            known = (n_pairs * pair).sum(axis=0) / np.maximum(total, 1)
        elif self.method == "single":
            known = np.where(n_pairs > 0, pair, np.inf).min(axis=0)
        else:
            known = np.where(n_pairs > 0, pair, -np.inf).max(axis=0)
        self.matrix[a] = self.matrix[:, a] = np.where(total > 0, known, pair[0])
        self.matrix[a, a] = 0.0
        self.n_pairs[a] = self.n_pairs[:, a] = total
        return (a,)

    def row(self, a: int) -> Matrix:
        """Linkage distance between a and all slots."""
        return self.matrix[a]
