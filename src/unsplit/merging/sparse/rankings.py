"""Rankings of stored pairs, kept up to date when clusters are merged.

They are the counterparts of :mod:`unsplit.merging.ranking` and of
:class:`unsplit.merging.neighbours.graph.Connected` without any matrix of all pairs.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from scipy import sparse

from unsplit._typing import Index, Matrix
from unsplit.merging.neighbours.graph import UNLINKED, Connections, NeighbourGraph
from unsplit.merging.sparse.rounds import PairTable, pair_table
from unsplit.merging.sparse.rows import MergedRows


class Ranked(NamedTuple):
    """Pairs of slots with left < right and their distances, each of shape (p,)."""

    left: Index
    right: Index
    distances: Matrix


class SparseRanking(Protocol):
    """How close some pairs of clusters are; all other pairs are farther apart."""

    statistic: str
    unlinked: float
    """Clusters at this distance or beyond have no connection."""

    def pairs(self) -> Ranked:
        """The pairs that are stored now."""

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Merge b into a and return the slots whose distances have changed."""

    def row(self, a: int) -> dict[int, float]:
        """Distances between a and the slots with which it has a stored pair."""


COMBINE: dict[str, Callable[[float, float], float]] = {
    "average": float.__add__,
    "single": min,
    "complete": max,
}


class LinkedPairs:
    """Average, single or complete linkage; pairs that are not stored have the distance 1.

    Parameters
    ----------
    n_clusters : int
    pairs : Ranked
        Distances of pairs of initial clusters.
    method : {"average", "single", "complete"}
    statistic : str
        Name of the distance.
    """

    unlinked = math.inf

    def __init__(self, n_clusters: int, pairs: Ranked, method: str, statistic: str) -> None:
        self.method, self.statistic = method, statistic
        self.restore(pair_table(n_clusters, *pairs, method))

    def restore(self, table: PairTable) -> None:
        """Go on from these pairs, of which many were merged at once."""
        k, sides = len(table.n_members), (table.left, table.right)
        self.values = MergedRows(k, *sides, table.values, COMBINE[self.method])
        self.counts = MergedRows(k, *sides, table.counts, float.__add__)
        self.n_members: list[int] = table.n_members.tolist()
        # The pairs in columns, until the next merge.
        self.stored: PairTable | None = table

    def table(self) -> PairTable:
        """All stored pairs in columns."""
        if self.stored is None:
            left, right, values = self.values.columns()
            ones = np.ones(len(left))
            counts = self.counts.columns()[2] if self.method == "complete" else ones
            members = np.array(self.n_members)
            self.stored = PairTable(left, right, values, counts, ones, members, self.method)
        return self.stored

    def pairs(self) -> Ranked:
        """All stored pairs."""
        table = self.table()
        return Ranked(table.left, table.right, table.distances)

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Every pair of initial clusters counts once, as in SciPy."""
        self.stored = None
        self.values.merge(a, b)
        if self.method == "complete":
            self.counts.merge(a, b)
        self.n_members[a] += self.n_members[b]
        self.n_members[b] = 0
        return (a,)

    def row(self, a: int) -> dict[int, float]:
        """Linkage distances between a and others."""
        row, n, mine = self.values.rows[a], self.n_members, self.n_members[a]
        if self.method == "average":
            return {other: 1 - value / (mine * n[other]) for other, value in row.items()}
        if self.method == "single":
            return dict(row)
        count = self.counts.rows[a]
        return {
            other: value if count[other] == mine * n[other] else 1.0 for other, value in row.items()
        }


class SparseConnections(Connections):
    """Edges between clusters, of which most have none.

    Parameters
    ----------
    graph : NeighbourGraph
    """

    def _store(self, edges: sparse.csr_array) -> None:
        half = sparse.triu(edges, 1, format="coo")
        left, right = (side.astype(np.int64) for side in half.coords)
        self.rows = MergedRows(edges.shape[0], left, right, half.data, float.__add__)

    def weight(self, a: int, b: int) -> float:
        """Summed weight of the edges between two clusters."""
        return self.rows.get(a, b, 0.0)

    def _add_up(self, a: int, b: int) -> None:
        self.rows.merge(a, b)

    def row(self, a: int) -> dict[int, float]:
        """Distances between a and the clusters that have edges with it."""
        row = self.rows.rows[a]
        if not row:
            return {}
        others = np.fromiter(row.keys(), np.int64, len(row))
        found = np.fromiter(row.values(), np.float64, len(row))
        chance = (self.degrees[:, a] / self.totals) @ self.degrees[:, others]
        return dict(zip(row, self.linked_distances(found, chance).tolist(), strict=True))


class ConnectedPairs:
    """Ranks pairs by their edges; the pair with the clearest connection comes first.

    Parameters
    ----------
    graph : NeighbourGraph
    """

    statistic = "edges"
    unlinked = UNLINKED

    def __init__(self, graph: NeighbourGraph) -> None:
        self.connections = SparseConnections(graph)

    def pairs(self) -> Ranked:
        """All pairs with edges."""
        return ranked(self.row(a) for a in range(len(self.connections.sizes)))

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Add up the edges of the two."""
        self.connections.merge(a, b)
        return (a,)

    def row(self, a: int) -> dict[int, float]:
        """Distances between a and the slots that have edges with it."""
        return self.connections.row(a)


def ranked(rows: Iterable[dict[int, float]]) -> Ranked:
    """The pairs in rows of distances, each once.

    Examples
    --------
    >>> ranked([{1: 0.5}, {0: 0.5}])
    Ranked(left=array([0]), right=array([1]), distances=array([0.5]))
    """
    left: list[int] = []
    right: list[int] = []
    distances: list[float] = []
    for a, row in enumerate(rows):
        later = [(b, distance) for b, distance in row.items() if a < b]
        left += [a] * len(later)
        right += [b for b, _ in later]
        distances += [distance for _, distance in later]
    return Ranked(np.array(left, np.int64), np.array(right, np.int64), np.array(distances))
