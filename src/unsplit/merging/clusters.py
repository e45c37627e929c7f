"""Clusters that are still apart: how close any two are, and what merging changes.

One class for each way to rank pairs: scores composed in closed form, linkage on a fixed matrix, a
new estimate after every merge.  All speak of slots 0 … k−1; merging b into a empties slot b.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unsplit.devices import available_memory, require_memory
from unsplit.merging.contrast import Contrast
from unsplit.result import PairwiseTVD
from unsplit.sampling import Index

Matrix = NDArray[np.float64]
Estimate = Callable[[Index], PairwiseTVD]


class Ranking(Protocol):
    """How close clusters are, for the merging loop."""

    statistic: str

    def distances(self) -> Matrix:
        """Ranking statistic of all pairs, shape (k, k), as things stand."""

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Put b into a; which slots have new distances?"""

    def row(self, a: int) -> Matrix:
        """Ranking statistic between a and all slots, shape (k,)."""


class Evidence(Protocol):
    """What is known about two clusters beyond their rank."""

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Put b into a."""

    def contrast(self, a: int, b: int) -> Contrast:
        """What the scores say about two slots."""

    def p_value(self, a: int, b: int) -> float:
        """p-value of "same distribution" for two slots."""


class Mixtures:
    """Evidence from one estimate: a merged cluster is the mixture of its members."""

    def __init__(self, result: PairwiseTVD) -> None:
        self.result = result
        self.slot = result.scores.clusters.copy()
        self.members = [[slot] for slot in range(result.n_clusters)]

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Put b's members into a."""
        self.members[a] += self.members[b]
        self.slot[self.slot == b] = a
        return (a,)

    def contrast(self, a: int, b: int) -> Contrast:
        """Score differences between the two mixtures."""
        scores, sizes = self.result.scores, self.result.sizes
        index = np.flatnonzero((self.slot == a) | (self.slot == b))
        z_a, z_b = (scores.composed(index, self.members[slot], sizes) for slot in (a, b))
        difference = (z_a - z_b).astype(np.float64)
        return Contrast(difference, self.slot[index] == a, scores.folds[index], scores.n_folds)

    def p_value(self, a: int, b: int) -> float:
        """Looked up while neither has changed, because all pairs at once are quicker."""
        if len(self.members[a]) == len(self.members[b]) == 1:
            return float(self.result.p_value[a, b])
        return self.contrast(a, b).p_value


class Composed:
    """Scores of merged clusters in closed form: z_ab = log((n_a e^z_a + n_b e^z_b)/(n_a + n_b)).

    The ranking statistic is soft accuracy, 2·mean σ(z_own − z_other) − 1 over the held-out
    observations of both: hard accuracy says 1 for all pairs that do not overlap, soft accuracy
    still tells near from far.  Every observation counts once; for clusters of one size this is
    the Le Cam distance, which lets every *cluster* count once and ranked a little worse.

    Parameters
    ----------
    view : PairwiseTVD
        Whose scores are composed.
    """

    statistic = "soft accuracy"

    def __init__(self, view: PairwiseTVD) -> None:
        scores, k = view.scores, view.n_clusters
        require_memory(
            12 * len(scores.rows) * k,
            available_memory(),
            f"composing the scores of {len(scores.rows):,} observations for {k:,} clusters",
            'use strategy="linkage", which needs only the matrix',
        )
        # By row, not by cluster: sums are then the same whatever the clusters are called.
        order = np.argsort(scores.rows, kind="stable")
        self.z = np.asfortranarray(scores.dense()[order])
        self.slot = scores.clusters[order].copy()
        self.own = self.z[np.arange(len(self.slot)), self.slot]
        self.sizes = view.sizes.astype(float)
        self.counts = np.bincount(self.slot, minlength=k).astype(float)
        self.soft_hits = np.stack([self._hits_of(a) for a in range(k)])

    def distances(self) -> Matrix:
        """Soft accuracy of all pairs, as a distance in [0, 1]."""
        hits = self.counts[:, None] * self.soft_hits
        return self._as_distance(hits + hits.T, self.counts[:, None] + self.counts)

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Compose the two score columns and count row and column a anew."""
        log_sizes = np.log(self.sizes[[a, b]] / self.sizes[[a, b]].sum()).astype(np.float32)
        self.z[:, a] = np.logaddexp(self.z[:, a] + log_sizes[0], self.z[:, b] + log_sizes[1])
        self.sizes[a] += self.sizes[b]
        self.counts[a] += self.counts[b]
        self.counts[b] = 0
        self.slot[self.slot == b] = a
        members = self.slot == a
        self.own[members] = self.z[members, a]
        self.soft_hits[a] = self._hits_of(a)
        self.soft_hits[:, a] = self._hits_against(a)
        return (a,)

    def row(self, a: int) -> Matrix:
        """Soft accuracy between a and all slots, as a distance."""
        hits = self.counts[a] * self.soft_hits[a] + self.counts * self.soft_hits[:, a]
        return self._as_distance(hits, self.counts[a] + self.counts)

    @staticmethod
    def _as_distance(hits: Matrix, counts: Matrix) -> Matrix:
        # Nothing is known about two clusters with nothing held out: they come last.
        accuracy = np.where(counts > 0, hits / np.maximum(counts, 1), 1.0)
        return np.clip(2 * accuracy - 1, 0.0, 1.0)

    def _hits_of(self, a: int) -> Matrix:
        """Mean soft hit of a's observations against every slot; 1/2 if there are none."""
        members = np.flatnonzero(self.slot == a)
        if len(members) == 0:
            return np.full(self.z.shape[1], 0.5)
        margins = self.own[members, None] - self.z[members]
        return expit(margins).mean(axis=0, dtype=np.float64)

    def _hits_against(self, a: int) -> Matrix:
        """Mean soft hit of every slot's observations against a."""
        k = self.z.shape[1]
        sums = np.bincount(self.slot, expit(self.own - self.z[:, a]), minlength=k)
        return np.where(self.counts > 0, sums / np.maximum(self.counts, 1), 0.5)


class Linked:
    """Average, single or complete linkage on a matrix that stays as it is.

    Parameters
    ----------
    matrix : ndarray of shape (k, k)
    method : {"average", "single", "complete"}
    statistic : str
        What the matrix holds.
    """

    def __init__(self, matrix: Matrix, method: str, statistic: str) -> None:
        self.matrix = np.array(matrix, np.float64)
        self.method = method
        self.statistic = statistic
        self.leaves = np.ones(len(self.matrix))

    def distances(self) -> Matrix:
        """The matrix as it stands."""
        return self.matrix

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Lance and Williams' update; every initial cluster counts once, as in SciPy."""
        pair, leaves = self.matrix[[a, b]], self.leaves[[a, b]]
        if self.method == "average":
            merged = leaves @ pair / leaves.sum()
        else:
            merged = pair.min(axis=0) if self.method == "single" else pair.max(axis=0)
        self.matrix[a] = self.matrix[:, a] = merged
        self.matrix[a, a] = 0.0
        self.leaves[a] += self.leaves[b]
        return (a,)

    def row(self, a: int) -> Matrix:
        """Linkage distance between a and all slots."""
        return self.matrix[a]


class Reestimated:
    """A new estimate after every merge, as in the paper.

    Parameters
    ----------
    result : PairwiseTVD
        Of the initial clusters.
    estimate : callable
        Takes the group of every initial cluster, numbered from 0, and returns the estimate for
        the groups, in that order.
    statistic : str
        The divergence that ranks.
    """

    def __init__(self, result: PairwiseTVD, estimate: Estimate, statistic: str) -> None:
        self.result = result
        self.estimate = estimate
        self.statistic = statistic
        self.slot_of = np.arange(result.n_clusters)
        self.stale = False

    def distances(self) -> Matrix:
        """The present estimate, infinite for empty slots."""
        k, alive = len(self.slot_of), self._alive()
        matrix = np.full((k, k), np.inf)
        matrix[np.ix_(alive, alive)] = self._fresh().divergence(self.statistic)
        return matrix

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Note the merge; the next question makes the estimate."""
        self.slot_of[self.slot_of == b] = a
        self.stale = True
        return self._alive().tolist()

    def row(self, a: int) -> Matrix:
        """The present estimate between a and all slots."""
        k, alive = len(self.slot_of), self._alive()
        row = np.full(k, np.inf)
        row[alive] = self._fresh().divergence(self.statistic)[np.searchsorted(alive, a)]
        return row

    def contrast(self, a: int, b: int) -> Contrast:
        """From the scores of the present estimate."""
        left, right = np.searchsorted(self._alive(), [a, b])
        return Mixtures(self._fresh()).contrast(int(left), int(right))

    def p_value(self, a: int, b: int) -> float:
        """Of the present estimate."""
        left, right = np.searchsorted(self._alive(), [a, b])
        return float(self._fresh().p_value[left, right])

    def _alive(self) -> Index:
        return np.unique(self.slot_of)

    def _fresh(self) -> PairwiseTVD:
        if self.stale:
            self.result = self.estimate(np.searchsorted(self._alive(), self.slot_of))
            self.stale = False
        return self.result
