"""The closest pair of clusters that are still apart, and the pairs that were refused."""

from collections import defaultdict
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.merging.decision import Reason

# If many clusters are equally near, this many are searched for the next one before all are.
NEXT = 64


class ClosestPairs:
    """Distances between clusters, some of which may not be merged.

    Every cluster keeps its nearest neighbour, so that finding the closest pair and merging it cost
    O(k) instead of O(k²).

    Parameters
    ----------
    distances : ndarray of shape (k, k)
        Symmetric; copied.  The diagonal is ignored.
    reach : int, optional
        Only pairs are considered in which one is among the ``reach`` nearest clusters of the other,
        including those that were refused.  None for all pairs.
    limit : float
        Pairs at this distance or beyond are not considered.
    """

    def __init__(
        self, distances: NDArray[np.float64], reach: int | None = None, limit: float = np.inf
    ) -> None:
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

    def set_row(self, a: int, row: NDArray[np.float64]) -> None:
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

    Parameters
    ----------
    distances : ndarray of shape (k, k)
        Symmetric and infinite on the diagonal; copied.
    reach : int
    """

    def __init__(self, distances: NDArray[np.float64], reach: int) -> None:
        self.distances = distances.copy()
        self.reach = reach
        self.farthest = np.partition(self.distances, reach - 1, axis=1)[:, reach - 1].copy()
        self.n_nearer: Index = (self.distances < self.farthest[:, None]).sum(axis=1)
        self.n_within: Index = (self.distances <= self.farthest[:, None]).sum(axis=1)

    def set_row(self, a: int, row: NDArray[np.float64]) -> None:
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

    def _move(
        self, rows: Index, distances: NDArray[np.float64], farthest: NDArray[np.float64]
    ) -> None:
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
