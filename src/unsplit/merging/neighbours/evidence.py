"""Whether the neighbour graph connects two clusters the way it connects parts of one cluster."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsplit.merging.neighbours.edges import Connections, Spectrum, chance_curve
from unsplit.merging.neighbours.graph import NeighbourGraph, connect
from unsplit.merging.neighbours.neck import Lumps, narrowest_usual, neck

# In few dimensions a neck separates two clusters; in many dimensions borders are wide everywhere,
# and the number of edges is what differs.  Between these two limits both count.
FEW_DIMENSIONS = 2.5
MANY_DIMENSIONS = 4.0

# Limits, as shares of the values of structureless data; docs/stopping.md says how they were chosen.
NECK_SHARE = 0.4
NECK_SHARE_OF_TWO_LUMPS = 1.4
EDGES_SHARE = 0.6

# Larger values mean nothing more.
MOST_STRENGTH = 1000.0

# Sample size: MOST_JUDGED, or JUDGED_A_CLUSTER for each cluster if that is more, within a limit.
MOST_JUDGED = 5_000
JUDGED_A_CLUSTER = 20
MOST_JUDGED_AT_ALL = 20_000


@dataclass(frozen=True)
class Connection:
    """How the neighbour graph connects two clusters.

    Parameters
    ----------
    edges : int
        Number of edges between the two.
    times_chance : float
        Weight of these edges, divided by their expected weight in a random graph with the same
        degrees.
    least_times : float
        Smallest ``times_chance`` of parts of one cluster; NaN in few dimensions, where only the
        neck counts.
    neck : float
        Width of the graph where the two meet relative to its width inside them, from 0 to 1; NaN
        in many dimensions, where only the edges count.
    least_neck : float
        Smallest ``neck`` of parts of one cluster; NaN in many dimensions.
    dimension : float
        Local dimension of the data.
    """

    edges: int
    times_chance: float
    least_times: float
    neck: float
    least_neck: float
    dimension: float

    @property
    def strength(self) -> float:
        """How strongly the two are connected; parts of one cluster have at least 1.

        ``times_chance`` or ``neck`` divided by its limit; between few and many dimensions, the
        weighted geometric mean of both.
        """
        if self.edges == 0:
            return 0.0
        many = weight_of_edges(self.dimension)
        times = (self.times_chance / self.least_times) ** many if many > 0 else 1.0
        width = (self.neck / self.least_neck) ** (1 - many) if many < 1 else 1.0
        return min(times * width, MOST_STRENGTH)

    @property
    def why(self) -> str:
        """Why the two are or are not merged, as a phrase."""
        if self.edges == 0:
            return "no edge between them in the neighbour graph"
        connected, many = self.strength >= 1, weight_of_edges(self.dimension)
        if many == 0:
            kind = "wide contact" if connected else "narrow neck"
            return (
                f"{kind} between them in the neighbour graph: {self.neck:.2f} of the width inside, "
                f"limit {self.least_neck:.2f}"
            )
        if many == 1:
            return (
                f"{'many' if connected else 'few'} edges between them in the neighbour graph: "
                f"{self.times_chance:.2g} times as many as by chance, limit {self.least_times:.2g}"
            )
        # Both count, so only their mean can be compared with a limit.
        kind = "strong" if connected else "weak"
        return f"{kind} connection in the neighbour graph: strength {self.strength:.2g}, limit 1"


def weight_of_edges(dimension: float) -> float:
    """Weight of the number of edges, from 0 to 1; the neck has the rest.

    Examples
    --------
    >>> weight_of_edges(2.0), weight_of_edges(3.25), weight_of_edges(10.0)
    (0.0, 0.5, 1.0)
    """
    share = (dimension - FEW_DIMENSIONS) / (MANY_DIMENSIONS - FEW_DIMENSIONS)
    return min(1.0, max(0.0, share))


class Neighbourhoods:
    """Evidence from the neighbour graph, kept up to date when clusters are merged.

    Parameters
    ----------
    graph : NeighbourGraph
    rng : numpy.random.Generator
        Draws a sample of observations if there are many, and simulates data without structure.
    """

    def __init__(self, graph: NeighbourGraph, rng: np.random.Generator) -> None:
        self.n_edges = (graph.members.T @ graph.adjacency @ graph.members).toarray()
        graph = thinned(graph, rng)
        self.adjacency = graph.adjacency
        self.slot = graph.clusters.copy()
        self.batches, self.n_batches = graph.batches, int(graph.batches.max()) + 1
        self.judged = Connections(graph)
        self.n_left = graph.n_clusters
        self.rng = rng
        self.spectrum = Spectrum.of(graph.features)
        # Lumps of several batches in one picture would say more of the batches.
        self.lumps = (
            Lumps(graph.features, self.slot, self.n_left) if self._few_dimensions() else None
        )
        self.curve: NDArray[np.float64] | None = None

    def merge(self, a: int, b: int) -> None:
        """Put b into a."""
        self.n_edges[a] += self.n_edges[b]
        self.n_edges[a, a] += self.n_edges[a, b]
        self.n_edges[:, a] = self.n_edges[a]
        self.n_edges[b] = self.n_edges[:, b] = 0
        self.judged.merge(a, b)
        if self.lumps is not None:
            self.lumps.merge(a, b)
        self.slot[self.slot == b] = a
        self.n_left -= 1

    def connection(self, a: int, b: int) -> Connection:
        """How the graph connects two slots."""
        dimension = self.judged.dimension(a, b)
        many = weight_of_edges(dimension)
        return Connection(
            edges=int(self.n_edges[a, b]),
            times_chance=self.judged.times_chance(a, b),
            least_times=min(1.0, EDGES_SHARE * self._structureless()) if many > 0 else math.nan,
            neck=self._neck(a, b) if many < 1 else math.nan,
            least_neck=self._least_neck(a, b, dimension) if many < 1 else math.nan,
            dimension=dimension,
        )

    def _least_neck(self, a: int, b: int, dimension: float) -> float:
        one_lump = self.lumps is None or self.lumps.shared(a, b)
        share = NECK_SHARE if one_lump else NECK_SHARE_OF_TWO_LUMPS
        return share * narrowest_usual(dimension, float(self.judged.sizes[[a, b]].min()))

    def _neck(self, a: int, b: int) -> float:
        """The neck between two slots; with batches, the mean over the batches they share."""
        necks, weights = [0.0], [0.0]
        for batch in range(self.n_batches):
            here = self.batches == batch
            left, right = (np.flatnonzero(here & (self.slot == slot)) for slot in (a, b))
            if len(left) and len(right):
                necks.append(neck(self.adjacency, left, right))
                weights.append(min(len(left), len(right)))
        return float(np.average(necks, weights=weights)) if any(weights) else 0.0

    def _few_dimensions(self) -> bool:
        """Whether the neck counts for any pair; never with several batches."""
        inverse = self.judged.inverse_dimensions
        many = self.judged.n_known > MANY_DIMENSIONS * inverse
        return self.n_batches == 1 and not bool(many.all())

    def _structureless(self) -> float:
        """``times_chance`` of the closest pair in structureless data with as many clusters left."""
        if self.curve is None:
            self.curve = chance_curve(
                self.spectrum, len(self.slot), len(self.judged.sizes), self.rng
            )
        return float(self.curve[self.n_left]) if self.n_left < len(self.curve) else math.inf


def thinned(graph: NeighbourGraph, rng: np.random.Generator) -> NeighbourGraph:
    """The graph of a sample of the observations, if there are very many."""
    n, k = len(graph.clusters), graph.n_clusters
    most = max(MOST_JUDGED, min(JUDGED_A_CLUSTER * k, MOST_JUDGED_AT_ALL))
    if n <= most:
        return graph
    rows = np.sort(rng.choice(n, most, replace=False))
    # At least one observation of each cluster.
    first = np.unique(graph.clusters, return_index=True)[1]
    rows = np.union1d(rows, first[graph.clusters[first] >= 0])
    rows = rows[graph.clusters[rows] >= 0]
    parts = graph.features[rows], graph.clusters[rows], graph.batches[rows]
    return connect(*parts, n_clusters=k)
