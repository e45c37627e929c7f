"""Edges between clusters in the neighbour graph, compared with a random graph."""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from unsplit._typing import Index, Matrix
from unsplit.merging.neighbours.graph import NeighbourGraph

# Pairs without an edge have this distance or a larger one.
UNLINKED = 0.9

# In fewer dimensions than this, pairs are ranked by the ratio of edges to edges by chance, with a
# few added to both so that small numbers count little; in more, by a likelihood ratio.
FEW_DIMENSIONS = 3.0
A_FEW_EDGES = 3.0


class Connections:
    """Summed weights of the edges between clusters, which add up when clusters are merged.

    Parameters
    ----------
    graph : NeighbourGraph
    """

    def __init__(self, graph: NeighbourGraph) -> None:
        members, weights = graph.members, graph.weights
        self.edges = (members.T @ weights @ members).toarray()
        batch = sparse.csr_array(
            (np.ones(len(graph.batches)), (graph.batches, np.arange(len(graph.batches))))
        )
        degree = weights @ members.sum(axis=1)  # edges to observations in clusters
        self.degrees = (batch @ (members.multiply(degree[:, None])).tocsr()).toarray()
        self.totals = np.maximum(self.degrees.sum(axis=1), 1.0)
        known = graph.inverse_dimension > 0
        self.inverse_dimensions = members.T @ graph.inverse_dimension
        self.n_known = members.T @ known.astype(float)
        self.sizes = members.sum(axis=0)
        self.usual_weight = float(weights.sum()) / max(weights.nnz, 1)
        self.few_dimensions = bool(
            self.n_known.sum() < FEW_DIMENSIONS * self.inverse_dimensions.sum()
        )

    def merge(self, a: int, b: int) -> None:
        """Merge b into a."""
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
        """Expected edges in a random graph with the same degrees, summed over batches."""
        return (self.degrees[:, rows] / self.totals[:, None]).T @ self.degrees

    def distances(self, rows: Index | slice = slice(None)) -> Matrix:
        """Distances in [0, 1] from some clusters to all; 1/2 for as many edges as by chance.

        More edges than by chance bring the distance closer to 0, fewer closer to 0.9.  Pairs
        without an edge have larger distances.
        """
        found, chance = self.edges[rows], self.expected(rows)
        # First for pairs without an edge, which are the most.  The logarithm keeps trees readable.
        distances = 1 - (1 - UNLINKED) / (1 + np.log1p(chance))
        linked = found > 0
        found, chance = found[linked], chance[linked]
        near = self._share(found, chance) if self.few_dimensions else _doubt(found, chance)
        far = UNLINKED - (UNLINKED - 0.5) * near
        distances[linked] = np.where(found > chance, 0.5 * near, far)
        return distances

    def _share(self, found: Matrix, chance: Matrix) -> Matrix:
        """The smaller number of edges divided by the larger, after adding a few to both."""
        few = A_FEW_EDGES * self.usual_weight
        share: Matrix = (np.minimum(found, chance) + few) / (np.maximum(found, chance) + few)
        return share

    def times_chance(self, a: int, b: int) -> float:
        """Edges between two clusters divided by the edges expected by chance."""
        chance = float((self.degrees[:, a] / self.totals) @ self.degrees[:, b])
        return float(self.edges[a, b]) / chance if chance > 0 else 0.0

    def dimension(self, a: int, b: int) -> float:
        """Local dimension of the data in two clusters."""
        inverse = float(self.inverse_dimensions[[a, b]].sum())
        return float(self.n_known[[a, b]].sum()) / inverse if inverse > 0 else 1.0


def _doubt(found: Matrix, chance: Matrix) -> Matrix:
    """Close to 0 if the likelihood ratio shows more or fewer edges than by chance."""
    gain = np.maximum(found * np.log(found / chance) - (found - chance), 0.0)
    doubt: Matrix = 1 / (1 + np.log1p(gain))
    return doubt


class Connected:
    """Ranks pairs by their edges; the pair with the clearest connection comes first.

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
        """Add up the edges of the two."""
        self.connections.merge(a, b)
        return (a,)

    def row(self, a: int) -> Matrix:
        """Distances between a and all slots."""
        return self.connections.distances(np.array([a]))[0]
