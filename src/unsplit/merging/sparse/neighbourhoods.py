"""Evidence from the neighbour graph about very many clusters."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unsplit._typing import Index
from unsplit.merging.neighbours.evidence import Connection, Neighbourhoods, most_judged
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.sparse.rankings import SparseConnections
from unsplit.merging.sparse.rows import MergedRows


class NeighbourhoodsWhenAsked:
    """Neighbourhoods that are made when a pair is first asked about.

    If all clusters were split at random, none ever is, and weights of edges take long.

    Parameters
    ----------
    make : callable
        Makes the neighbourhoods of the initial clusters.
    """

    def __init__(self, make: Callable[[], "SparseNeighbourhoods"]) -> None:
        self.make = make
        self.made: SparseNeighbourhoods | None = None
        self.merges: list[tuple[int, int]] = []

    @property
    def limits_fall(self) -> bool:
        """As of :class:`Neighbourhoods`; what was never asked has refused nothing."""
        return self.made is not None and self.made.limits_fall

    def merge(self, a: int, b: int) -> None:
        """Put b into a."""
        if self.made is None:
            self.merges.append((a, b))
        else:
            self.made.merge(a, b)

    def connection(self, a: int, b: int) -> Connection:
        """How the graph connects two slots."""
        if self.made is None:
            self.made = self.make()
            for pair in self.merges:
                self.made.merge(*pair)
        return self.made.connection(a, b)


class SparseNeighbourhoods(Neighbourhoods):
    """Judges pairs by all edges of the graph, because a sample would leave too few of a cluster.

    Of so many observations that the dense form would take a sample, necks are only measured in few
    dimensions and saddles not at all: all necks would take too long, all densities too much memory.

    Parameters
    ----------
    graph : NeighbourGraph
    rng : numpy.random.Generator
    connections : SparseConnections
        The edges between clusters.
    shared : bool
        Whether someone else merges these connections.
    """

    def __init__(
        self,
        graph: NeighbourGraph,
        rng: np.random.Generator,
        connections: SparseConnections,
        shared: bool,
    ) -> None:
        self.counts = _edges_between(graph)
        self.adjacency = graph.adjacency
        self.is_sample = False
        self.judged, self.shared = connections, shared
        self._prepare(graph, rng)
        few = len(graph.clusters) <= most_judged(graph.n_clusters)
        self.all_necks = few
        self.saddles = self._saddles(graph) if few else None
        self.rows = _rows_of_clusters(graph) if few or self._few_dimensions() else None

    def merge(self, a: int, b: int) -> None:
        """Put b into a."""
        self.counts.merge(a, b)
        if not self.shared:
            self.judged.merge(a, b)
        if self.rows is not None:
            self.rows[a] = np.concatenate([self.rows[a], self.rows[b]])
            self.rows[b] = self.rows[b][:0]
        self._count_merge(a, b)

    def edges(self, a: int, b: int) -> int:
        """Number of edges between two slots."""
        return int(self.counts.get(a, b, 0.0))

    def _rows(self, slot: int) -> Index:
        assert self.rows is not None
        return np.sort(self.rows[slot])

    def _neck(self, a: int, b: int, many: float) -> float:
        return super()._neck(a, b, many) if self.all_necks or many < 1 else math.nan


def _edges_between(graph: NeighbourGraph) -> MergedRows:
    half = sparse.triu(graph.edges_between(), 1, format="coo")
    left, right = (side.astype(np.int64) for side in half.coords)
    return MergedRows(graph.n_clusters, left, right, half.data, float.__add__)


def _rows_of_clusters(graph: NeighbourGraph) -> list[NDArray[np.int64]]:
    """The observations that count for each cluster."""
    order = np.argsort(graph.clusters, kind="stable")
    starts = np.searchsorted(graph.clusters[order], np.arange(graph.n_clusters + 1))
    return [order[i:j] for i, j in pairwise(starts)]
