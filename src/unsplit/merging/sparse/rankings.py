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
        # Of merged clusters: how much nearer than 1 their stored pairs are, added up; or the
        # smallest or largest distance, and how many pairs of initial clusters are stored.
        values = 1 - pairs.distances if method == "average" else pairs.distances
        combine = COMBINE[method]
        sides = pairs.left, pairs.right
        self.values = MergedRows(n_clusters, *sides, values, combine)
        self.counts = (
            MergedRows(n_clusters, *sides, np.ones(len(values)), float.__add__)
            if method == "complete"
            else None
        )
        self.n_members = [1] * n_clusters
        # They are asked for several times before the first merge and after the last.
        self.stored: Ranked | None = None

    def pairs(self) -> Ranked:
        """All stored pairs."""
        if self.stored is None:
            self.stored = ranked(self.row(a) for a in range(len(self.n_members)))
        return self.stored

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Every pair of initial clusters counts once, as in SciPy."""
        self.stored = None
        self.values.merge(a, b)
        if self.counts is not None:
            self.counts.merge(a, b)
        self.n_members[a] += self.n_members[b]
        return (a,)

    def row(self, a: int) -> dict[int, float]:
        """Linkage distances between a and others."""
        row, n, mine = self.values.rows[a], self.n_members, self.n_members[a]
        if self.method == "average":
            return {other: 1 - value / (mine * n[other]) for other, value in row.items()}
        if self.counts is None:
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
