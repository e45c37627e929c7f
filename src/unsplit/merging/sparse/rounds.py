"""Stored pairs in columns, so that very many clusters can be merged in a few rounds of NumPy.

Under average, single and complete linkage, two clusters that are each other's nearest will be
merged, whatever is merged elsewhere before.  So all such pairs can be merged at once.
"""

from dataclasses import dataclass

import numpy as np

from unsplit._typing import Index, Matrix

COMBINE = {"average": np.add, "single": np.minimum, "complete": np.maximum}


@dataclass
class PairTable:
    """Pairs of slots, in the order of their slots, with left < right; each array of shape (p,).

    Parameters
    ----------
    left, right : ndarrays
    values : ndarray
        For average linkage how much nearer than 1 the pairs of initial clusters are, added up;
        otherwise the smallest or largest distance.
    counts : ndarray
        How many pairs of initial clusters are stored.
    tvd : ndarray
        Smallest TVD of two initial clusters.
    n_members : ndarray of shape (k,)
        Number of initial clusters in each slot.
    method : {"average", "single", "complete"}
    """

    left: Index
    right: Index
    values: Matrix
    counts: Matrix
    tvd: Matrix
    n_members: Index
    method: str

    def __post_init__(self) -> None:
        self.distances = self._distances()

    def _distances(self) -> Matrix:
        if self.method == "single":
            return self.values
        n_pairs = self.n_members[self.left] * self.n_members[self.right]
        if self.method == "average":
            return 1 - self.values / n_pairs
        return np.where(self.counts == n_pairs, self.values, 1.0)

    def mutual(self, limit: float) -> Index:
        """Places of the pairs below the limit that are each other's nearest.

        Among equals the pair that comes first is nearest, as in the search for the closest pair.
        """
        near = np.flatnonzero(self.distances < limit)
        near = near[np.argsort(self.distances[near], kind="stable")]
        rank = np.arange(len(near))
        first = np.full(len(self.n_members), len(near))
        # The last one that is written stays, so the nearest is written last.
        for side in (self.left, self.right):
            nearest = np.full(len(first), len(near))
            nearest[side[near[::-1]]] = rank[::-1]
            first = np.minimum(first, nearest)
        is_first = (first[self.left[near]] == rank) & (first[self.right[near]] == rank)
        return np.sort(near[is_first])

    def merge(self, a: Index, b: Index) -> None:
        """Merge each slot of b into the slot of a at the same place; no slot is in two places."""
        self.n_members[a] += self.n_members[b]
        self.n_members[b] = 0
        slot = np.arange(len(self.n_members))
        slot[b] = a
        left, right = slot[self.left], slot[self.right]
        left, right = np.minimum(left, right), np.maximum(left, right)
        order = np.argsort(left * len(slot) + right, kind="stable")
        order = order[left[order] != right[order]]
        self.left, self.right = left[order], right[order]
        changed = (np.diff(self.left) != 0) | (np.diff(self.right) != 0)
        first = np.flatnonzero(np.concatenate([[True], changed])[: len(order)])
        self.left, self.right = self.left[first], self.right[first]
        if len(first):
            self.values = COMBINE[self.method].reduceat(self.values[order], first)
            self.counts = np.add.reduceat(self.counts[order], first)
            self.tvd = np.minimum.reduceat(self.tvd[order], first)
        else:
            self.values = self.counts = self.tvd = np.zeros(0)
        self.distances = self._distances()

    def copy(self) -> "PairTable":
        """A table that can be merged without changing this one."""
        columns = self.left, self.right, self.values, self.counts, self.tvd
        return PairTable(*columns, self.n_members.copy(), self.method)


def pair_table(
    n_clusters: int, left: Index, right: Index, distances: Matrix, method: str
) -> PairTable:
    """The table of initial clusters; their TVDs count as 1 until they are set.

    Examples
    --------
    >>> table = pair_table(3, np.array([0, 0]), np.array([1, 2]), np.array([0.1, 0.6]), "average")
    >>> table.mutual(0.5)
    array([0])
    >>> table.merge(np.array([0]), np.array([1]))
    >>> table.left, table.right, table.distances
    (array([0]), array([2]), array([0.8]))
    """
    order = np.argsort(left * n_clusters + right, kind="stable")
    values = (1 - distances if method == "average" else distances)[order]
    ones, n_members = np.ones(len(order)), np.ones(n_clusters, np.int64)
    return PairTable(left[order], right[order], values, ones, ones, n_members, method)
