"""Edges between clusters: how many there are, and how many there would be by chance."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unsplit.merging.neighbours import NeighbourGraph
from unsplit.sampling import Index

Matrix = NDArray[np.float64]

# Pairs without an edge are at this distance or beyond.
UNLINKED = 0.9


class Connections:
    """Edges between clusters, which add up when clusters are merged.

    Parameters
    ----------
    graph : NeighbourGraph
    """

    def __init__(self, graph: NeighbourGraph) -> None:
        members = graph.members
        self.edges = (members.T @ graph.adjacency @ members).toarray()
        batch = sparse.csr_array(
            (np.ones(len(graph.batches)), (graph.batches, np.arange(len(graph.batches))))
        )
        degree = graph.adjacency @ members.sum(axis=1)  # edges to observations that count
        self.degrees = (batch @ (members.multiply(degree[:, None])).tocsr()).toarray()
        self.totals = np.maximum(self.degrees.sum(axis=1), 1.0)
        known = graph.inverse_dimension > 0
        self.inverse_dimensions = members.T @ graph.inverse_dimension
        self.n_known = members.T @ known.astype(float)
        self.sizes = members.sum(axis=0)

    def merge(self, a: int, b: int) -> None:
        """Put b into a."""
        row = self.edges[a] + self.edges[b]
        row[a] += row[b]
        self.edges[a] = self.edges[:, a] = row
        self.edges[b] = self.edges[:, b] = 0
        self.degrees[:, a] += self.degrees[:, b]
        self.degrees[:, b] = 0
        for sums in (self.inverse_dimensions, self.n_known, self.sizes):
            sums[a] += sums[b]
            sums[b] = 0

    def expected(self, rows: Index | slice) -> Matrix:
        """Edges that a random graph with the same degrees would have, in every batch."""
        return (self.degrees[:, rows] / self.totals[:, None]).T @ self.degrees

    def distances(self, rows: Index | slice = slice(None)) -> Matrix:
        """A distance in [0, 1] from some clusters to all: 1/2 if there are as many as by chance.

        The larger the ratio of likelihoods between the number of edges there is and the one by
        chance, the closer to 0 or to 0.9; beyond that are pairs without an edge.
        """
        found, chance = self.edges[rows], self.expected(rows)
        # Of pairs without an edge, which most are.  Logarithms, so that a tree can be looked at.
        distances = 1 - (1 - UNLINKED) / (1 + np.log1p(chance))
        linked = found > 0
        found, chance = found[linked], chance[linked]
        gain = np.maximum(found * np.log(found / chance) - (found - chance), 0.0)
        near = 1 / (1 + np.log1p(gain))
        far = UNLINKED - (UNLINKED - 0.5) * near
        distances[linked] = np.where(found > chance, 0.5 * near, far)
        return distances

    def times_chance(self, a: int, b: int) -> float:
        """Edges between two clusters over those by chance."""
        chance = float((self.degrees[:, a] / self.totals) @ self.degrees[:, b])
        return float(self.edges[a, b]) / chance if chance > 0 else 0.0

    def dimension(self, a: int, b: int) -> float:
        """How many dimensions the data have in two clusters."""
        inverse = float(self.inverse_dimensions[[a, b]].sum())
        return float(self.n_known[[a, b]].sum()) / inverse if inverse > 0 else 1.0


class Connected:
    """Ranking by edges: the pair that is most surely connected comes first.

    Parameters
    ----------
    graph : NeighbourGraph
    """

    statistic = "edges"
    unlinked = UNLINKED

    def __init__(self, graph: NeighbourGraph) -> None:
        self.connections = Connections(graph)

    def distances(self) -> Matrix:
        """Distances of all pairs, shape (k, k); infinite for empty slots."""
        matrix = np.full(self.connections.edges.shape, np.inf)
        left = np.flatnonzero(self.connections.sizes)
        matrix[left] = self.connections.distances(left)
        return matrix

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Add up the edges."""
        self.connections.merge(a, b)
        return (a,)

    def row(self, a: int) -> Matrix:
        """Distances between a and all slots."""
        return self.connections.distances(np.array([a]))[0]
