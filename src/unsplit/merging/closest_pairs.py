"""The closest pair of a changing set of clusters, without looking at all pairs each time."""

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index

# Where many are equally near, the next nearest is looked for among so many before all.
NEXT = 64


class ClosestPairs:
    """Distances between clusters, some of which may not be joined.

    Every cluster remembers its nearest neighbour and how far it looks, so that finding the closest
    pair and merging cost O(k) and not O(k²).

    Parameters
    ----------
    distances : ndarray of shape (k, k)
        Symmetric; copied.  The diagonal is ignored.
    reach : int, optional
        Only pairs are looked at of which one is among the ``reach`` nearest clusters of the other,
        refused ones counted.  None: all pairs.
    limit : float
        Pairs at this distance or beyond are not looked at.
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
        """The closest pair (a, b) with a < b; None if there is none.  Ties go to the first."""
        within = self.least <= self.limit
        if self.horizons is not None:
            within &= self.least <= self.horizons.farthest
        least = self.least.min(initial=np.inf, where=within)
        if least == np.inf:
            return None
        rows = np.flatnonzero(within & (self.least == least))
        # A pair may be in reach of its second cluster only, so the first row need not be the first.
        pairs = np.sort(np.column_stack([rows, self.nearest[rows]]), axis=1)
        a, b = pairs[np.lexsort(pairs.T[::-1])[0]].tolist()
        return a, b

    def set_row(self, a: int, row: NDArray[np.float64]) -> None:
        """New distances from a to all clusters; infinite where they may not be joined."""
        row = row.copy()
        row[a] = np.inf
        if self.horizons is not None:
            self.horizons.set_row(a, row)
        self.distances[a] = self.distances[:, a] = row
        # Whoever loses a as nearest neighbour must look again; for the others a can only win.
        lost = np.flatnonzero((self.nearest == a) & (row > self.least))
        closer = (row < self.least) | ((row == self.least) & (a < self.nearest))
        self.nearest[closer], self.least[closer] = a, row[closer]
        self._look_again(self._without_next(lost))
        self._look_again(np.array([a]))

    def forbid(self, a: int, b: int) -> None:
        """Keep a and b apart until one of them gets a new row."""
        self.distances[a, b] = self.distances[b, a] = np.inf
        pair = np.array([a, b])
        self._look_again(self._without_next(pair[self.nearest[pair] == pair[::-1]]))

    def remove(self, a: int) -> None:
        """Cluster a no longer exists."""
        self.set_row(a, np.full(len(self.nearest), np.inf))

    def _without_next(self, rows: Index) -> Index:
        """Give rows that lost their nearest the next one that is as near; which have none?

        None before it is, or it would have been the nearest.
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
    """How far the ``reach`` nearest clusters of each are, refused ones counted.

    Counts say whether a new distance moves a cluster's horizon, which few do.

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
        """New distances from a to all clusters."""
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
