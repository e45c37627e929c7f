"""Evidence from the neighbour graph about very many clusters."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unsplit.merging.neighbours.evidence import (
    MOST_JUDGED_AT_ALL,
    Connection,
    Lumps,
    Neighbourhoods,
    Spectrum,
    neck,
)
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
        self.batches, self.n_batches = graph.batches, int(graph.batches.max()) + 1
        self.judged, self.shared = connections, shared
        self.n_left = graph.n_clusters
        self.rng = rng
        self.curve: NDArray[np.float64] | None = None
        self.n_simulated = min(len(graph.clusters), MOST_JUDGED_AT_ALL)
        self.spectrum = Spectrum.of(graph.features)
        self.lumps, self.rows = None, None
        if self._few_dimensions():
            self.rows = _rows_of_clusters(graph)
            step = -(-len(graph.clusters) // MOST_JUDGED_AT_ALL)
            sample = graph.features[::step], graph.clusters[::step]
            self.lumps = Lumps(*sample, graph.n_clusters)

    def merge(self, a: int, b: int) -> None:
        """Put b into a."""
        self.counts.merge(a, b)
        if not self.shared:
            self.judged.merge(a, b)
        if self.lumps is not None:
            self.lumps.merge(a, b)
        if self.rows is not None:
            self.rows[a] = np.concatenate([self.rows[a], self.rows[b]])
            self.rows[b] = self.rows[b][:0]
        self.n_left -= 1

    def edges(self, a: int, b: int) -> int:
        """Number of edges between two slots."""
        return int(self.counts.get(a, b, 0.0))

    def _neck(self, a: int, b: int) -> float:
        if self.rows is None:  # several batches in few dimensions
            return 0.0
        left, right = np.sort(self.rows[a]), np.sort(self.rows[b])
        return neck(self.adjacency, left, right) if len(left) and len(right) else 0.0


def _edges_between(graph: NeighbourGraph) -> MergedRows:
    half = sparse.triu(graph.edges_between(), 1, format="coo")
    left, right = (side.astype(np.int64) for side in half.coords)
    return MergedRows(graph.n_clusters, left, right, half.data, float.__add__)


def _rows_of_clusters(graph: NeighbourGraph) -> list[NDArray[np.int64]]:
    """The observations that count for each cluster."""
    order = np.argsort(graph.clusters, kind="stable")
    starts = np.searchsorted(graph.clusters[order], np.arange(graph.n_clusters + 1))
    return [order[i:j] for i, j in pairwise(starts)]
