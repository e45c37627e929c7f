"""All pairs of clusters in matrices: what ranks them, the closest one, and those refused.

Clusters are slots 0 … k−1; merging b into a empties slot b.  The same for very many clusters, of
which only some pairs are stored, is in :mod:`unsplit.merging.sparse_pairs`.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from unsplit._typing import Index, Matrix
from unsplit.merging.decision import Reason
from unsplit.merging.neighbours.graph import Connections

# How many nearest ones of each remaining cluster are reported as kept apart.
N_NEAREST = 10
# If many clusters are equally near, this many are searched for the next one before all are.
NEXT = 64

Forbidden = Mapping[int, Collection[int]]
"""By slot, the slots from which ``cannot_link`` keeps it apart."""


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


Ranking = Linked | Connections
"""How close clusters are; at ``unlinked`` or beyond they have no connection."""


class Pairs:
    """All pairs of slots: how close they are, and the smallest TVD between initial clusters.

    ``tvd`` is None for a plain matrix: then the TVD counts as 1.
    """

    def __init__(self, ranking: Ranking, tvd: Matrix | None = None) -> None:
        self.ranking = ranking
        self.tvd = None if tvd is None else tvd.copy()

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Merge b into a and return the slots whose distances have changed."""
        if self.tvd is not None:
            self.tvd[a] = self.tvd[:, a] = np.minimum(self.tvd[a], self.tvd[b])
        return self.ranking.merge(a, b)

    def nearest_tvd(self, a: int, b: int) -> float:
        """Smallest TVD between an initial cluster of one slot and one of the other."""
        return 1.0 if self.tvd is None else float(self.tvd[a, b])

    def distance(self, a: int, b: int) -> float:
        """What ranks the pair of two slots."""
        return float(self.ranking.row(a)[b])

    def row(self, slot: int, alive: NDArray[np.bool_], forbidden: Collection[int]) -> Matrix:
        """Distances from a slot; infinite to those it may not be merged with."""
        row = np.where(alive, self.ranking.row(slot), np.inf)
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
        for slot, others in forbidden.items():
            matrix[slot, list(others)] = np.inf
        return ClosestPairs(matrix, reach, limit)

    def nearby(self, alive: NDArray[np.bool_]) -> list[tuple[int, int, float]]:
        """Pairs of each remaining slot and its nearest ones, with their distance."""
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
    O(k) instead of O(k²).  With ``reach``, only pairs are considered in which one is among so many
    nearest clusters of the other, including those that were refused; pairs at ``limit`` or beyond
    are not considered.
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

    def closest(self) -> tuple[int, int] | None:
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

    def distance(self, a: int, b: int) -> float:
        """The distance between two clusters; infinite if they may not be merged."""
        return float(self.distances[a, b])

    def set_row(self, a: int, row: Matrix) -> None:
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
        self._look_again(self._without_next(lost))
        self._look_again(np.array([a]))

    def forbid(self, a: int, b: int) -> None:
        """Exclude the pair until one of the two gets new distances."""
        self.distances[a, b] = self.distances[b, a] = np.inf
        pair = np.array([a, b])
        self._look_again(self._without_next(pair[self.nearest[pair] == pair[::-1]]))

    def remove(self, a: int) -> None:
        """Remove cluster a."""
        self.set_row(a, np.full(len(self.nearest), np.inf))

    def _without_next(self, rows: Index) -> Index:
        """Give rows that lost their nearest cluster an equally near one; return those without.

        Only later clusters can be equally near, because the nearest is always the first of them.
        """
        columns = self.nearest[rows, None] + np.arange(1, NEXT + 1)
        columns = np.minimum(columns, len(self.nearest) - 1)
        tied = self.distances[rows[:, None], columns] == self.least[rows, None]
        first, found = tied.argmax(axis=1), tied.any(axis=1)
        self.nearest[rows[found]] = columns[found, first[found]]
        return rows[~found]

    def _look_again(self, rows: Index) -> None:
        self.nearest[rows] = self.distances[rows].argmin(axis=1)
        self.least[rows] = self.distances[rows, self.nearest[rows]]


class Horizons:
    """The distance from each cluster to its ``reach``-th nearest, its horizon.

    Refused pairs count.  Counts of nearer clusters tell whether a new distance moves a horizon,
    which is rare.
    """

    def __init__(self, distances: Matrix, reach: int) -> None:
        self.distances = distances.copy()
        self.reach = reach
        self.farthest = np.partition(self.distances, reach - 1, axis=1)[:, reach - 1].copy()
        self.n_nearer: Index = (self.distances < self.farthest[:, None]).sum(axis=1)
        self.n_within: Index = (self.distances <= self.farthest[:, None]).sum(axis=1)

    def set_row(self, a: int, row: Matrix) -> None:
        """Set the distances from a to all clusters."""
        old = self.distances[a].copy()
        self.distances[a] = self.distances[:, a] = row
        self.n_nearer += (row < self.farthest).astype(np.int64) - (old < self.farthest)
        self.n_within += (row <= self.farthest).astype(np.int64) - (old <= self.farthest)
        self._move(np.array([a]), row[None], np.partition(row, self.reach - 1)[[self.reach - 1]])
        # One distance has changed in every other row, so the new horizon is one step away.
        inward = np.flatnonzero(self.n_nearer >= self.reach)
        near, limit = self.distances[inward], self.farthest[inward, None]
        self._move(inward, near, np.where(near < limit, near, -np.inf).max(axis=1))
        outward = np.flatnonzero(self.n_within < self.reach)
        far, limit = self.distances[outward], self.farthest[outward, None]
        self._move(outward, far, np.where(far > limit, far, np.inf).min(axis=1))

    def _move(self, rows: Index, distances: Matrix, farthest: Matrix) -> None:
        self.farthest[rows] = farthest
        self.n_nearer[rows] = (distances < farthest[:, None]).sum(axis=1)
        self.n_within[rows] = (distances <= farthest[:, None]).sum(axis=1)


Pair = tuple[int, int]
Objection = tuple[float, float, Reason]
"""Strength of the objection, the statistic that ranked the pair, and the reason."""


class Refused:
    """Refused pairs with their objections, and a queue that has the weakest objection first."""

    def __init__(self) -> None:
        self.objections: dict[Pair, Objection] = {}
        self.others: defaultdict[int, set[int]] = defaultdict(set)
        # Also holds forgotten pairs, which are skipped later; removing them would cost more.
        self.queue: list[tuple[Objection, Pair]] = []

    def __len__(self) -> int:
        """Number of waiting pairs."""
        return len(self.objections)

    def add(self, pair: Pair, objection: Objection) -> None:
        """Add a refused pair."""
        a, b = pair
        self.objections[pair] = objection
        self.others[a].add(b)
        self.others[b].add(a)
        heappush(self.queue, (objection, pair))

    def forget(self, slot: int) -> None:
        """Drop the pairs of a cluster that has changed."""
        for other in self.others.pop(slot, ()):
            self.others[other].discard(slot)
            self.objections.pop((min(slot, other), max(slot, other)))

    def weakest(self) -> tuple[Pair, Objection]:
        """The pair with the weakest objection; among equals the closest, then the first."""
        while self.objections.get(self.queue[0][1]) != self.queue[0][0]:
            heappop(self.queue)
        objection, pair = self.queue[0]
        return pair, objection
