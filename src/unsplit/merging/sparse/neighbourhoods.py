"""Evidence from the neighbour graph about very many clusters."""

import math

import numpy as np

from unsplit._typing import Index
from unsplit.merging.neighbours.evidence import Connection, Neighbourhoods, most_judged
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.sparse.rankings import (
    ConnectedPairs,
    MergedRows,
    SparseConnections,
    SparseRanking,
)


class SparseNeighbourhoods(Neighbourhoods):
    """Judges pairs by all edges of the graph, because a sample would leave too few of a cluster.

    Of so many observations that the dense form would take a sample, necks are only measured in few
    dimensions and saddles not at all: all necks would take too long, all densities too much memory.
    Nothing is counted before a pair is asked about: if all clusters were split at random, none
    ever is.

    Parameters
    ----------
    graph : NeighbourGraph
    rng : numpy.random.Generator
    ranking : SparseRanking
        If it ranks by edges, it counts and merges them.
    """

    def __init__(
        self, graph: NeighbourGraph, rng: np.random.Generator, ranking: SparseRanking | None = None
    ) -> None:
        self.graph, self.rng = graph, rng
        self.shared = ranking.connections if isinstance(ranking, ConnectedPairs) else None
        # Merges before anything was counted; None if it was.
        self.waiting: list[tuple[int, int]] | None = []
        if self.shared is not None:
            self._count()

    def _count(self) -> None:
        """Count edges between the initial clusters, then merge what was merged so far."""
        graph, waiting = self.graph, self.waiting or []
        self.waiting = None
        self.counts = MergedRows.sums(graph.edges_between())
        self.adjacency, self.is_sample = graph.adjacency, False
        self.judged = self.shared or SparseConnections(graph)
        self._prepare(graph, self.rng)
        self.all_necks = len(graph.clusters) <= most_judged(graph.n_clusters)
        self.saddles = self._saddles(graph) if self.all_necks else None
        has_necks = self.all_necks or self._few_dimensions()
        self.rows = _rows_of_clusters(graph) if has_necks else None
        for pair in waiting:
            self.merge(*pair)

    @property
    def limits_fall(self) -> bool:
        """As of :class:`Neighbourhoods`; what was never asked has refused nothing."""
        return self.waiting is None and super().limits_fall

    def merge(self, a: int, b: int) -> None:
        """Put b into a."""
        if self.waiting is not None:
            self.waiting.append((a, b))
            return
        self.counts.merge(a, b)
        if self.shared is None:
            self.judged.merge(a, b)
        if self.rows is not None:
            self.rows[a] = np.concatenate([self.rows[a], self.rows[b]])
            self.rows[b] = self.rows[b][:0]
        self._count_merge(a, b)

    def connection(self, a: int, b: int) -> Connection:
        """How the graph connects two slots."""
        if self.waiting is not None:
            self._count()
        return super().connection(a, b)

    def edges(self, a: int, b: int) -> int:
        """Number of edges between two slots."""
        return int(self.counts.get(a, b, 0.0))

    def _rows(self, slot: int) -> Index:
        assert self.rows is not None
        return np.sort(self.rows[slot])

    def _neck(self, a: int, b: int, many: float) -> float:
        return super()._neck(a, b, many) if self.all_necks or many < 1 else math.nan


def _rows_of_clusters(graph: NeighbourGraph) -> list[Index]:
    """The observations that count for each cluster."""
    order = np.argsort(graph.clusters, kind="stable")
    starts = np.searchsorted(graph.clusters[order], np.arange(graph.n_clusters + 1))
    return np.split(order[: starts[-1]], starts[:-1])[1:]
