"""Rankings of stored pairs, kept up to date when clusters are merged.

They are the counterparts of :mod:`unsplit.merging.ranking` and of
:class:`unsplit.merging.neighbours.graph.Connected` without any matrix of all pairs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from itertools import pairwise

import numpy as np
from scipy import sparse

from unsplit._typing import Index, Matrix
from unsplit.merging.neighbours.graph import UNLINKED, Connections, NeighbourGraph

Combine = Callable[[float, float], float]


class MergedRows:
    """For each slot, its values with other slots; two values become one when slots are merged.

    Parameters
    ----------
    n_clusters : int
    left, right, values : ndarrays of shape (p,)
        The values of pairs, each pair once.
    combine : callable
        Makes one value of two, such as their sum.

    Examples
    --------
    >>> rows = MergedRows(3, np.array([0, 1]), np.array([2, 2]), np.array([5.0, 1.0]), min)
    >>> rows.merge(0, 1)
    >>> rows.rows
    [{2: 1.0}, {}, {0: 1.0}]
    """

    def __init__(
        self,
        n_clusters: int,
        left: Index,
        right: Index,
        values: Matrix,
        combine: Combine = float.__add__,
    ) -> None:
        self.combine = combine
        # Both directions of each pair, ordered by slot.
        ends = np.concatenate([left, right]), np.concatenate([right, left])
        order = np.argsort(ends[0], kind="stable")
        others, data = ends[1][order].tolist(), np.tile(values, 2)[order].tolist()
        starts = np.searchsorted(ends[0][order], np.arange(n_clusters + 1)).tolist()
        parts = pairwise(starts)
        self.rows = [dict(zip(others[i:j], data[i:j], strict=True)) for i, j in parts]

    @classmethod
    def sums(cls, matrix: sparse.csr_array) -> "MergedRows":
        """The values above the diagonal of a symmetric matrix, which add up."""
        half = sparse.triu(matrix, 1, format="coo")
        left, right = (side.astype(np.int64) for side in half.coords)
        return cls(matrix.shape[0], left, right, half.data)

    def copy(self) -> "MergedRows":
        """Rows that can be merged without changing these."""
        other = copy(self)
        other.rows = [row.copy() for row in self.rows]
        return other

    def get(self, a: int, b: int, absent: float) -> float:
        """The value of a pair."""
        return self.rows[a].get(b, absent)

    def merge(self, a: int, b: int) -> None:
        """Merge slot b into slot a."""
        rows, combine = self.rows, self.combine
        mine, theirs = rows[a], rows[b]
        mine.pop(b, None)
        theirs.pop(a, None)
        for other, value in theirs.items():
            row = rows[other]
            del row[b]
            if other in mine:
                value = combine(mine[other], value)
            mine[other] = row[a] = value
        rows[b] = {}


class SparseRanking(ABC):
    """How close some pairs of clusters are; all other pairs are farther apart."""

    statistic: str
    unlinked = math.inf
    """Clusters at this distance or beyond have no connection."""

    @abstractmethod
    def merge(self, a: int, b: int) -> Sequence[int]:
        """Merge b into a and return the slots whose distances have changed."""

    @abstractmethod
    def row(self, a: int) -> dict[int, float]:
        """Distances between a and the slots with which it has a stored pair."""


class LinkedPairs(SparseRanking):
    """Average linkage; pairs that are not stored have the distance 1.

    Parameters
    ----------
    n_clusters : int
    left, right, distances : ndarrays of shape (p,)
        Distances of pairs of initial clusters.
    statistic : str
        Name of the distance.
    """

    def __init__(
        self,
        n_clusters: int,
        left: Index,
        right: Index,
        distances: Matrix,
        statistic: str,
    ) -> None:
        self.statistic = statistic
        # How much nearer than 1 the pairs of initial clusters are, added up.
        self.values = MergedRows(n_clusters, left, right, 1 - distances)
        self.n_members = [1] * n_clusters

    def copy(self) -> "LinkedPairs":
        """A ranking that can be merged without changing this one."""
        other = copy(self)
        other.values = self.values.copy()
        other.n_members = self.n_members.copy()
        return other

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Every pair of initial clusters counts once, as in SciPy."""
        self.values.merge(a, b)
        self.n_members[a] += self.n_members[b]
        return (a,)

    def row(self, a: int) -> dict[int, float]:
        """Linkage distances between a and others."""
        row, n, mine = self.values.rows[a], self.n_members, self.n_members[a]
        return {other: 1 - value / (mine * n[other]) for other, value in row.items()}


class SparseConnections(Connections):
    """Edges between clusters, of which most have none.

    Parameters
    ----------
    graph : NeighbourGraph
    """

    def _store(self, edges: sparse.csr_array) -> None:
        self.stored = MergedRows.sums(edges)

    def weight(self, a: int, b: int) -> float:
        """Summed weight of the edges between two clusters."""
        return self.stored.get(a, b, 0.0)

    def _add_up(self, a: int, b: int) -> None:
        self.stored.merge(a, b)


class ConnectedPairs(SparseRanking):
    """Ranks pairs by their edges; the pair with the clearest connection comes first.

    Parameters
    ----------
    graph : NeighbourGraph
    """

    statistic = "edges"
    unlinked = UNLINKED

    def __init__(self, graph: NeighbourGraph) -> None:
        self.connections = SparseConnections(graph)

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Add up the edges of the two."""
        self.connections.merge(a, b)
        return (a,)

    def row(self, a: int) -> dict[int, float]:
        """Distances between a and the slots that have edges with it."""
        edges, row = self.connections, self.connections.stored.rows[a]
        others = np.fromiter(row.keys(), np.int64, len(row))
        found = np.fromiter(row.values(), np.float64, len(row))
        chance = (edges.degrees[:, a] / edges.totals) @ edges.degrees[:, others]
        return dict(zip(row, edges.linked_distances(found, chance).tolist(), strict=True))
