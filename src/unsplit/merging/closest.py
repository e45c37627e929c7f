"""The closest pair of a changing set of clusters, without looking at all pairs each time."""

import numpy as np
from numpy.typing import NDArray

from unsplit.sampling import Index


class ClosestPairs:
    """Distances between clusters, some of which may not be joined.

    Every cluster remembers its nearest neighbour, so that finding the closest pair and merging
    cost O(k) and not O(k²).

    Parameters
    ----------
    distances : ndarray of shape (k, k)
        Symmetric; copied.  The diagonal is ignored.
    """

    def __init__(self, distances: NDArray[np.float64]) -> None:
        self.distances = np.array(distances, np.float64)
        np.fill_diagonal(self.distances, np.inf)
        self.nearest: Index = self.distances.argmin(axis=1)
        self.least = self.distances[np.arange(len(self.nearest)), self.nearest]

    def closest(self) -> tuple[int, int] | None:
        """The closest pair (a, b) with a < b; None if there is none.  Ties go to the first."""
        a = int(self.least.argmin())
        if self.least[a] == np.inf:
            return None
        b = int(self.nearest[a])
        return min(a, b), max(a, b)

    def set_row(self, a: int, row: NDArray[np.float64]) -> None:
        """New distances from a to all clusters; infinite where they may not be joined."""
        row = row.copy()
        row[a] = np.inf
        self.distances[a] = self.distances[:, a] = row
        # Whoever had a as nearest neighbour must look again; for the others a can only win.
        lost = np.flatnonzero(self.nearest == a)
        closer = (row < self.least) | ((row == self.least) & (a < self.nearest))
        self.nearest[closer], self.least[closer] = a, row[closer]
        self._look_again(np.append(lost, a))

    def forbid(self, a: int, b: int) -> None:
        """Keep a and b apart until one of them gets a new row."""
        self.distances[a, b] = self.distances[b, a] = np.inf
        pair = np.array([a, b])
        self._look_again(pair[self.nearest[pair] == pair[::-1]])

    def remove(self, a: int) -> None:
        """Cluster a no longer exists."""
        self.set_row(a, np.full(len(self.nearest), np.inf))

    def _look_again(self, rows: Index) -> None:
        self.nearest[rows] = self.distances[rows].argmin(axis=1)
        self.least[rows] = self.distances[rows, self.nearest[rows]]
