"""All pairs of clusters: how close they are, the closest one, and what held-out scores say of two.

A merged cluster has the row of its first member.  The same for very many clusters, of which only
some pairs are stored, is in :mod:`unsplit.merging.sparse_pairs`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from unsplit._typing import Cluster, Index, Matrix
from unsplit.merging.neighbours.graph import Connections
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.divergences import log_of_shares
from unsplit.pairwise.groups import counts_of_pair, group_p_value
from unsplit.pairwise.result import PairwiseTVD

# How many nearest ones of each remaining cluster are reported as kept apart.
N_NEAREST = 10
# Of all intervals of the TVD.
CONFIDENCE = 0.95
# float32 scores (1 GiB) that are held at once.  Fixed, so that results do not depend on the memory
# of the machine.
MOST_SCORES = 2**28

# --- how close they are, and the closest pair ----------------------------------------------------

Forbidden = Mapping[Cluster, Collection[Cluster]]
"""By cluster, the clusters from which ``cannot_link`` keeps it apart."""


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

    ``statistic`` is the name of what the matrix holds, ``known`` which pairs could be compared, or
    how much each counts; the others count only if no pair of two merged clusters could be compared.
    """

    unlinked = np.inf

    def __init__(
        self,
        matrix: Matrix,
        statistic: str,
        known: NDArray[np.bool_] | Index | None = None,
    ) -> None:
        self.matrix = np.array(matrix, np.float64)
        self.statistic = statistic
        # Number of comparable pairs of initial clusters behind each distance.
        self.n_pairs = np.ones(self.matrix.shape) if known is None else known.astype(np.float64)

    def distances(self) -> Matrix:
        """The current matrix."""
        return self.matrix

    def merge(self, a: Cluster, b: Cluster) -> Sequence[Cluster]:
        """The Lance–Williams update; every pair of initial clusters counts once, as in SciPy."""
        pair, n_pairs = self.matrix[[a, b]], self.n_pairs[[a, b]]
        total = n_pairs.sum(axis=0)
        known = (n_pairs * pair).sum(axis=0) / np.maximum(total, 1)
        self.matrix[a] = self.matrix[:, a] = np.where(total > 0, known, pair[0])
        self.matrix[a, a] = 0.0
        self.n_pairs[a] = self.n_pairs[:, a] = total
        return (a,)

    def row(self, a: Cluster) -> Matrix:
        """Linkage distance between a and all clusters."""
        return self.matrix[a]


Ranking = Linked | Connections
"""How close clusters are; at ``unlinked`` or beyond they have no connection."""


class Pairs:
    """All pairs of clusters: how close they are, and the smallest TVD between initial clusters.

    ``tvd`` is None for a plain matrix: then the TVD counts as 1.
    """

    def __init__(self, ranking: Ranking, tvd: Matrix | None = None) -> None:
        self.ranking = ranking
        self.tvd = None if tvd is None else tvd.copy()

    def merge(self, a: Cluster, b: Cluster) -> Sequence[Cluster]:
        """Merge b into a and return the clusters whose distances have changed."""
        if self.tvd is not None:
            self.tvd[a] = self.tvd[:, a] = np.minimum(self.tvd[a], self.tvd[b])
        return self.ranking.merge(a, b)

    def nearest_tvd(self, a: Cluster, b: Cluster) -> float:
        """Smallest TVD between an initial cluster of one and one of the other."""
        return 1.0 if self.tvd is None else float(self.tvd[a, b])

    def distance(self, a: Cluster, b: Cluster) -> float:
        """What ranks the pair of two clusters."""
        return float(self.ranking.row(a)[b])

    def row(
        self, cluster: Cluster, alive: NDArray[np.bool_], forbidden: Collection[Cluster]
    ) -> Matrix:
        """Distances from a cluster; infinite to those it may not be merged with."""
        row = np.where(alive, self.ranking.row(cluster), np.inf)
        row[list(forbidden)] = np.inf
        return row

    def search(
        self,
        alive: NDArray[np.bool_],
        forbidden: Forbidden,
        reach: int | None = None,
        limit: float = np.inf,
    ) -> "ClosestPairs":
        """The search for the closest pair, of which none is refused yet."""
        matrix = self.ranking.distances().copy()
        matrix[~alive] = matrix[:, ~alive] = np.inf
        for cluster, others in forbidden.items():
            matrix[cluster, list(others)] = np.inf
        return ClosestPairs(matrix, reach, limit)

    def nearby(self, alive: NDArray[np.bool_]) -> list[tuple[Cluster, Cluster, float]]:
        """Pairs of each remaining cluster and its nearest ones, with their distance."""
        left = np.flatnonzero(alive)
        distances = self.ranking.distances()[np.ix_(left, left)]
        np.fill_diagonal(distances, np.inf)
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :N_NEAREST]
        near = np.zeros(distances.shape, bool)
        np.put_along_axis(near, nearest, values=True, axis=1)
        near = np.triu(near | near.T) & np.isfinite(distances)
        return [(int(left[i]), int(left[j]), float(distances[i, j])) for i, j in np.argwhere(near)]


class ClosestPairs:
    """Distances between clusters, some of which may not be merged.

    Every cluster keeps its nearest neighbour, so that finding the closest pair and merging it cost
    O(k) instead of O(k²).  With ``reach``, only pairs are considered in which one is among the
    ``reach`` nearest clusters of the other, including those that were refused; pairs at ``limit``
    or beyond are not considered.
    """

    def __init__(self, distances: Matrix, reach: int | None = None, limit: float = np.inf) -> None:
        self.distances = np.array(distances, np.float64)
        np.fill_diagonal(self.distances, np.inf)
        k = len(self.distances)
        self.limit = float(np.nextafter(limit, 0.0)) if np.isfinite(limit) else np.inf
        self.nearest: Index = self.distances.argmin(axis=1)
        self.least = self.distances[np.arange(k), self.nearest]
        self.horizons: Horizons | None = None
        if reach is not None and reach < k - 1:
            self.horizons = Horizons(self.distances, reach)

    def closest(self) -> tuple[Cluster, Cluster] | None:
        """The closest pair (a, b) with a < b, the first if several are; None if there is none."""
        within = self.least <= self.limit
        if self.horizons is not None:
            within &= self.least <= self.horizons.farthest
        least = self.least.min(initial=np.inf, where=within)
        if least == np.inf:
            return None
        rows = np.flatnonzero(within & (self.least == least))
        # A pair may be in reach of its second cluster only, so the first row may hold a later pair.
        pairs = np.sort(np.column_stack([rows, self.nearest[rows]]), axis=1)
        a, b = pairs[np.lexsort(pairs.T[::-1])[0]].tolist()
        return a, b

    def distance(self, a: Cluster, b: Cluster) -> float:
        """The distance between two clusters; infinite if they may not be merged."""
        return float(self.distances[a, b])

    def set_row(self, a: Cluster, row: Matrix) -> None:
        """Set the distances from a to all clusters; infinite where they may not be merged."""
        row = row.copy()
        row[a] = np.inf
        if self.horizons is not None:
            self.horizons.set_row(a, row)
        self.distances[a] = self.distances[:, a] = row
        # Rows that lose a as nearest neighbour need a new search; in others a can only get nearer.
        lost = np.flatnonzero((self.nearest == a) & (row > self.least))
        closer = (row < self.least) | ((row == self.least) & (a < self.nearest))
        self.nearest[closer], self.least[closer] = a, row[closer]
        self._look_again(np.append(lost, a))

    def forbid(self, a: Cluster, b: Cluster) -> None:
        """Exclude the pair until one of the two gets new distances."""
        self.distances[a, b] = self.distances[b, a] = np.inf
        pair = np.array([a, b])
        self._look_again(pair[self.nearest[pair] == pair[::-1]])

    def remove(self, a: Cluster) -> None:
        """Remove cluster a."""
        self.set_row(a, np.full(len(self.nearest), np.inf))

    def _look_again(self, rows: Index) -> None:
        self.nearest[rows] = self.distances[rows].argmin(axis=1)
        self.least[rows] = self.distances[rows, self.nearest[rows]]


class Horizons:
    """The distance from each cluster to its ``reach``-th nearest; refused pairs count."""

    def __init__(self, distances: Matrix, reach: int) -> None:
        self.distances = distances.copy()
        self.reach = reach
        self.farthest = np.empty(len(distances))
        self._measure(np.arange(len(distances)))

    def set_row(self, a: Cluster, row: Matrix) -> None:
        """Set the distances from a to all clusters."""
        old = self.distances[a].copy()
        self.distances[a] = self.distances[:, a] = row
        # Other horizons move only where a comes into reach or leaves it, which is rare.
        moved = (row < self.farthest) != (old < self.farthest)
        moved |= (row <= self.farthest) != (old <= self.farthest)
        moved[a] = True
        self._measure(np.flatnonzero(moved))

    def _measure(self, rows: Index) -> None:
        nearest = np.partition(self.distances[rows], self.reach - 1, axis=1)
        self.farthest[rows] = nearest[:, self.reach - 1]


# --- what the held-out scores say of two clusters -------------------------------------------------


@dataclass(frozen=True, eq=False)
class Contrast:
    """Score differences z_a − z_b of the held-out observations of clusters a and b.

    Parameters
    ----------
    values : ndarray of shape (m,)
        z_a − z_b, an estimate of log p_a/p_b.
    of_a : ndarray of shape (m,)
        Whether the observation belongs to a; the others belong to b.
    folds : ndarray of shape (m,)
        Fold of the network that scored it; with batches its stratum, fold · B + batch.
    n_folds : int
        Number of folds or strata.
    n_batches : int
        Number of batches, B; each holds observations of both clusters or of neither.
    groups : ndarray of shape (m,), optional
        Group of each observation.
    """

    values: NDArray[np.float64]
    of_a: NDArray[np.bool_]
    folds: Index
    n_folds: int
    n_batches: int = 1
    groups: Index | None = None

    @property
    def comparable(self) -> bool:
        """Whether the two can be compared, by a batch that they share or by groups of both."""
        if self.groups is not None:
            return bool(self.of_a.any() and not self.of_a.all())
        return self.n_batches == 1 or len(self.values) > 0

    @cached_property
    def counts(self) -> Index:
        """Held-out observations of a and b by fold or stratum, shape (K, 2)."""
        flat = np.bincount(2 * self.folds + ~self.of_a, minlength=2 * self.n_folds)
        return flat.reshape(self.n_folds, 2)

    @cached_property
    def hit_rate(self) -> NDArray[np.float64]:
        """Directed hit rates as in :class:`unsplit.PairwiseTVD`, shape (2, 2)."""
        if not self.comparable:
            return np.array([[0.5, 1.0], [1.0, 0.5]])
        if self.n_batches == 1:
            return _hit_rate(self.values, self.of_a)
        weights = [stats.pair_weights(counts)[0, 1] for counts in self._batch_counts]
        batches = [self.folds % self.n_batches == batch for batch in range(self.n_batches)]
        rates = [_hit_rate(self.values[inside], self.of_a[inside]) for inside in batches]
        return np.average(rates, axis=0, weights=weights)

    @property
    def tvd(self) -> float:
        """Total variation distance."""
        return float(max(0.0, self.hit_rate[0, 1] + self.hit_rate[1, 0] - 1))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the TVD."""
        counts, n_networks = self._batch_counts, self.n_folds // self.n_batches
        n_of_a, n_of_b = counts[0]
        if self.groups is not None or self.n_batches > 1:
            n = stats.effective_counts(counts)
            if self.groups is not None:
                n = counts_of_pair(self.values, self.of_a, self.groups, self.hit_rate)
            n_of_a, n_of_b = n[0, 1], n[1, 0]
        hits = stats.Hits(self.hit_rate[0, 1], self.hit_rate[1, 0], n_of_a, n_of_b)
        low, high = stats.tvd_interval(hits, CONFIDENCE, n_networks)
        return float(low), float(high)

    @cached_property
    def p_value(self) -> float:
        """One-sided rank-sum p-value of "same distribution"."""
        if self.groups is not None:
            return group_p_value(self.values, self.of_a, self.folds, self.groups, self.n_folds)
        U, n_networks = np.array([self._rank_sum()]), self.n_folds // self.n_batches
        sides = self.counts[:, :1], self.counts[:, 1:]
        return float(stats.rank_sum_p_value_of_pairs(U, *sides, n_networks)[0])

    @property
    def _batch_counts(self) -> Index:
        """Held-out observations of a and b by batch, shape (B, 2)."""
        return self.counts.reshape(-1, self.n_batches, 2).sum(axis=0)

    def _rank_sum(self) -> float:
        """Pairs of an observation of a and one of b with a above b, ties one half.

        They are in the same fold, unless both clusters are small.
        """
        n_networks = self.n_folds // self.n_batches
        larger = self.counts.sum(axis=0).max()
        small = stats.across_folds(larger, self.n_folds, n_networks)
        folds, n_folds = self.folds, self.n_folds
        if small:
            folds, n_folds = np.zeros_like(folds), 1
        return float(stats.rank_sums(self.values, self.of_a, folds, n_folds).sum())


def _hit_rate(values: NDArray[np.float64], of_a: NDArray[np.bool_]) -> NDArray[np.float64]:
    rates = np.full((2, 2), 0.5)
    for side, margins in enumerate((values[of_a], -values[~of_a])):
        if len(margins):
            hits = np.count_nonzero(margins > 0) + np.count_nonzero(margins == 0) / 2
            rates[side, 1 - side] = hits / len(margins)
    return rates


class Mixtures:
    """The held-out scores of clusters, of which a merged one is the mixture of its members.

    With ``columns`` the scores of all observations are held, which costs O(n) for a merge.  Without
    them scores are composed when two clusters are compared, which needs no memory, but time for
    every member of the two.
    """

    def __init__(self, result: PairwiseTVD, columns: bool = False) -> None:
        scores = result.scores
        self.result, self.clusters = result, scores.clusters.copy()
        order = np.argsort(self.clusters, kind="stable")
        starts = np.searchsorted(self.clusters[order], np.arange(1, result.n_clusters))
        self.rows = np.split(order, starts)
        self.members = [[cluster] for cluster in range(result.n_clusters)]
        self.z = scores.dense("F") if columns else None
        # By batch; a single row if there are no batches.
        self.sizes = scores.sizes_in_batches(result.sizes).astype(float)

    @classmethod
    def of(cls, result: PairwiseTVD) -> "Mixtures":
        """The faster way if it needs at most a gibibyte, otherwise the smaller one."""
        few = len(result.scores.rows) * result.n_clusters <= MOST_SCORES
        return cls(result, columns=few and not result.is_sparse)

    def merge(self, a: Cluster, b: Cluster) -> None:
        """Add the members of b to a."""
        if self.z is not None:
            logs = log_of_shares(self.sizes[:, [a, b]])
            if len(logs) > 1:
                logs = logs[self.result.scores.strata % len(logs)]
            self.z[:, a] = np.logaddexp(self.z[:, a] + logs[:, 0], self.z[:, b] + logs[:, 1])
            self.sizes[:, a] += self.sizes[:, b]
        self.members[a] += self.members[b]
        self.clusters[self.rows[b]] = a
        self.rows[a] = np.concatenate([self.rows[a], self.rows[b]])
        self.members[b], self.rows[b] = [], self.rows[b][:0]

    def contrast(self, a: Cluster, b: Cluster) -> Contrast:
        """Score differences between the two mixtures."""
        scores, sizes = self.result.scores, self.result.sizes
        index = np.sort(np.concatenate([self.rows[a], self.rows[b]]))
        if self.z is None:
            left, right = scores.composed(index, (self.members[a], self.members[b]), sizes).T
        else:
            left, right = self.z[index, a], self.z[index, b]
        values = (left - right).astype(np.float64)
        of_a, strata = self.clusters[index] == a, scores.strata[index]
        n_strata, n_batches = len(scores.bias), scores.n_batches
        if scores.groups is not None:
            return Contrast(values, of_a, strata, n_strata, groups=scores.groups[index])
        if n_batches > 1:  # batches in which only one of the two occurs say nothing
            batch = strata % n_batches
            counts = np.bincount(2 * batch + ~of_a, minlength=2 * n_batches).reshape(-1, 2)
            shared = counts.min(axis=1)[batch] > 0
            values, of_a, strata = values[shared], of_a[shared], strata[shared]
        return Contrast(values, of_a, strata, n_strata, n_batches)
