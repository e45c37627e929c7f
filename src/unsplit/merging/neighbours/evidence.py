"""Whether the graph of neighbours connects two clusters as it connects parts of one."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsplit.merging.neighbours.edges import Connections
from unsplit.merging.neighbours.graph import NeighbourGraph, connect
from unsplit.merging.neighbours.lumps import Lumps
from unsplit.merging.neighbours.neck import narrowest_usual, neck
from unsplit.merging.neighbours.structureless import Spectrum, chance_curve

# In few dimensions a neck tells two wholes from parts of one, in many the number of edges does:
# there, borders are everywhere and wide.  Between these two numbers both count in part.
FEW_DIMENSIONS = 2.5
MANY_DIMENSIONS = 4.0

# Shares of what structureless data have; docs/stopping.md says what they were chosen on.
NECK_SHARE = 0.4
NECK_SHARE_OF_TWO_LUMPS = 1.4
EDGES_SHARE = 0.6

# More says no more.
MOST_STRENGTH = 1000.0

# Clusters are judged by at most so many observations, or so many a cluster up to a second limit.
MOST_JUDGED = 5_000
JUDGED_A_CLUSTER = 20
MOST_JUDGED_AT_ALL = 20_000


@dataclass(frozen=True)
class Connection:
    """What the graph of neighbours says about two clusters.

    Parameters
    ----------
    edges : int
        Edges from the one to the other.
    times_chance : float
        Their weight over that in a random graph with the same degrees.
    least_times : float
        What parts of one cluster have at least; NaN where there are too few dimensions to ask.
    neck : float
        How narrow the graph is where the two meet, 0 to 1; NaN where there are too many
        dimensions to ask.
    least_neck : float
        What parts of one cluster have at least; NaN likewise.
    dimension : float
        How many dimensions the data have there.
    """

    edges: int
    times_chance: float
    least_times: float
    neck: float
    least_neck: float
    dimension: float

    @property
    def strength(self) -> float:
        """How strongly the two are connected: 1 is the least that parts of one cluster have.

        The number of edges and the neck, each over its limit; between few and many dimensions
        their mean on a scale of logarithms.
        """
        if self.edges == 0:
            return 0.0
        many = weight_of_edges(self.dimension)
        times = (self.times_chance / self.least_times) ** many if many > 0 else 1.0
        width = (self.neck / self.least_neck) ** (1 - many) if many < 1 else 1.0
        return min(times * width, MOST_STRENGTH)

    @property
    def why(self) -> str:
        """The strength in words."""
        if self.edges == 0:
            return "no neighbours in common"
        connected = self.strength >= 1
        if weight_of_edges(self.dimension) < 0.5:
            kind = "no neck" if connected else "a neck"
            return f"{kind} between: {self.neck:.2f} as wide as inside, limit {self.least_neck:.2f}"
        edges = f"{self.edges} edge{'' if self.edges == 1 else 's'}"
        return (
            f"{'many' if connected else 'few'} neighbours in common: {edges}, "
            f"{self.times_chance:.2g} times as many as by chance, limit {self.least_times:.2g}"
        )


def weight_of_edges(dimension: float) -> float:
    """How much the number of edges counts; the rest is the neck's.

    Examples
    --------
    >>> weight_of_edges(2.0), weight_of_edges(3.25), weight_of_edges(10.0)
    (0.0, 0.5, 1.0)
    """
    share = (dimension - FEW_DIMENSIONS) / (MANY_DIMENSIONS - FEW_DIMENSIONS)
    return min(1.0, max(0.0, share))


class Neighbourhoods:
    """Evidence from the graph of neighbours, also after merges.

    Parameters
    ----------
    graph : NeighbourGraph
    rng : numpy.random.Generator
        Draws the observations that are judged by, if there are many, and structureless data.
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
        """What the graph says about two slots."""
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
        """The neck between two slots; with batches, the mean over those they share."""
        necks, weights = [0.0], [0.0]
        for batch in range(self.n_batches):
            here = self.batches == batch
            left, right = (np.flatnonzero(here & (self.slot == slot)) for slot in (a, b))
            if len(left) and len(right):
                necks.append(neck(self.adjacency, left, right))
                weights.append(min(len(left), len(right)))
        return float(np.average(necks, weights=weights)) if any(weights) else 0.0

    def _few_dimensions(self) -> bool:
        """Whether there is a pair whose neck is asked for, and one batch only."""
        inverse = self.judged.inverse_dimensions
        many = self.judged.n_known > MANY_DIMENSIONS * inverse
        return self.n_batches == 1 and not bool(many.all())

    def _structureless(self) -> float:
        """Times by chance of the closest pair of as many pieces of structureless data."""
        if self.curve is None:
            self.curve = chance_curve(
                self.spectrum, len(self.slot), len(self.judged.sizes), self.rng
            )
        return float(self.curve[self.n_left]) if self.n_left < len(self.curve) else math.inf


def thinned(graph: NeighbourGraph, rng: np.random.Generator) -> NeighbourGraph:
    """The graph of some of the observations, if there are more than clusters are judged by."""
    n, k = len(graph.clusters), graph.n_clusters
    most = max(MOST_JUDGED, min(JUDGED_A_CLUSTER * k, MOST_JUDGED_AT_ALL))
    if n <= most:
        return graph
    rows = np.sort(rng.choice(n, most, replace=False))
    # One of each cluster at least.
    first = np.unique(graph.clusters, return_index=True)[1]
    rows = np.union1d(rows, first[graph.clusters[first] >= 0])
    rows = rows[graph.clusters[rows] >= 0]
    parts = graph.features[rows], graph.clusters[rows], graph.batches[rows]
    return connect(*parts, n_clusters=k)
