"""The closest pair of a changing set of clusters, without looking at all pairs each time."""

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index


class ClosestPairs:
    """Distances between clusters, some of which may not be joined.

    Every cluster remembers its nearest neighbour, so that finding the closest pair and merging
    cost O(k) and not O(k²).

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
        self.reach = None if reach is None or reach >= k - 1 else reach
        self.limit = float(np.nextafter(limit, 0.0)) if np.isfinite(limit) else np.inf
        # Refused pairs still count as neighbours.
        self.known = self.distances if self.reach is None else self.distances.copy()
        self.horizon = np.full(k, self.limit)
        self.nearest: Index = np.zeros(k, np.int64)
        self.least = np.full(k, np.inf)
        self._look_around(np.arange(k))

    def closest(self) -> tuple[int, int] | None:
        """The closest pair (a, b) with a < b; None if there is none.  Ties go to the first."""
        least = self.least.min()
        if least == np.inf:
            return None
        rows = np.flatnonzero(self.least == least)
        # A pair may be in reach of its second cluster only, so the first row need not be the first.
        pairs = np.sort(np.column_stack([rows, self.nearest[rows]]), axis=1).tolist()
        a, b = min(pairs)
        return a, b

    def set_row(self, a: int, row: NDArray[np.float64]) -> None:
        """New distances from a to all clusters; infinite where they may not be joined."""
        row = row.copy()
        row[a] = np.inf
        # Whose surroundings change: whoever saw a, or sees it now.
        seen = np.minimum(self.known[a], row) <= self.horizon
        self.known[a] = self.known[:, a] = row
        self.distances[a] = self.distances[:, a] = row
        if self.reach is None:
            # Whoever had a as nearest neighbour must look again; for the others a can only win.
            lost = np.flatnonzero(self.nearest == a)
            closer = (row < self.least) | ((row == self.least) & (a < self.nearest))
            closer &= row <= self.limit
            self.nearest[closer], self.least[closer] = a, row[closer]
            self._look_again(np.append(lost, a))
        else:
            seen[a] = True
            self._look_around(np.flatnonzero(seen))

    def forbid(self, a: int, b: int) -> None:
        """Keep a and b apart until one of them gets a new row."""
        self.distances[a, b] = self.distances[b, a] = np.inf
        pair = np.array([a, b])
        self._look_again(pair[self.nearest[pair] == pair[::-1]])

    def remove(self, a: int) -> None:
        """Cluster a no longer exists."""
        self.set_row(a, np.full(len(self.nearest), np.inf))

    def _look_around(self, rows: Index) -> None:
        if self.reach is not None:
            at = self.reach - 1
            farthest = np.partition(self.known[rows], at, axis=1)[:, at]
            self.horizon[rows] = np.minimum(farthest, self.limit)
        self._look_again(rows)

    def _look_again(self, rows: Index) -> None:
        self.nearest[rows] = self.distances[rows].argmin(axis=1)
        least = self.distances[rows, self.nearest[rows]]
        self.least[rows] = np.where(least <= self.horizon[rows], least, np.inf)
