"""Whether the neighbour graph connects two clusters as it connects parts of one cluster.

**Edges.**  Their number is compared with that between parts of a Gaussian with the same variances,
which is cut into as many pieces and merged in the same way (:func:`chance_curve`).

**Necks.**  Two parts of one cluster meet along a border as wide as the parts themselves; two
clusters that only touch meet in a narrow neck.  To measure it, the observations of both are ordered
from deep inside one to deep inside the other, and the edges across each place in this order are
counted.  At a neck few edges cross, although many do on either side (:func:`neck`).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.interpolate import RegularGridInterpolator
from scipy.sparse.linalg import cg
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.utils.extmath import randomized_svd

from unsplit._typing import Index
from unsplit.merging.neighbours.graph import Connections, NeighbourGraph, connect

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
    second_opinion : bool
        Whether clusters in different lumps need a wider contact, where dimensions are few.
    """

    def __init__(
        self, graph: NeighbourGraph, rng: np.random.Generator, second_opinion: bool = True
    ) -> None:
        self.n_edges = graph.edges_between().toarray()
        graph = thinned(graph, rng)
        self.adjacency = graph.adjacency
        self.slot = graph.clusters.copy()
        self.batches, self.n_batches = graph.batches, int(graph.batches.max()) + 1
        self.judged = Connections(graph)
        self.n_left = graph.n_clusters
        self.rng = rng
        self.spectrum = Spectrum.of(graph.features)
        # Lumps of several batches in one picture would say more of the batches.
        wanted = second_opinion and self._few_dimensions()
        self.lumps = Lumps(graph.features, self.slot, self.n_left) if wanted else None
        self.curve: NDArray[np.float64] | None = None
        self.n_simulated = len(self.slot)

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
            edges=self.edges(a, b),
            times_chance=self.judged.times_chance(a, b),
            least_times=self._least_times(a, b) if many > 0 else math.nan,
            neck=self._neck(a, b) if many < 1 else math.nan,
            least_neck=self._least_neck(a, b, dimension) if many < 1 else math.nan,
            dimension=dimension,
        )

    def edges(self, a: int, b: int) -> int:
        """Number of edges between two slots."""
        return int(self.n_edges[a, b])

    def _least_times(self, a: int, b: int) -> float:
        limit = min(1.0, EDGES_SHARE * self._structureless())
        # Less by one standard error of the number of edges, which matters if there are few.
        return limit / (1 + 1 / math.sqrt(max(self.judged.usual_edges(a, b), 1.0)))

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
        if self.n_left > MOST_PIECES:
            return math.inf
        if self.curve is None:
            self.curve = chance_curve(
                self.spectrum, self.n_simulated, len(self.judged.sizes), self.rng
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


# The border is searched for this far from where the sizes of the clusters put it, as a share of the
# smaller size, because some observations may lie on the other side.
SLACK = 0.2

# Keeps the equations from being singular if some observations are not connected to the others.
LEAK = 1e-3
TOLERANCE = 1e-4
MOST_ITERATIONS = 200

# The 1 % quantile of the neck at borders within structureless data, by dimension and size of the
# smaller cluster: python -m benchmarks.neck_table
DIMENSIONS = (1.1, 1.5, 2.0, 2.6, 3.5, 5.0)
SIZES = (12, 32, 70, 170, 600)
NARROWEST = (
    (0.37, 0.20, 0.19, 0.10, 0.04),
    (0.39, 0.33, 0.31, 0.33, 0.04),
    (0.53, 0.33, 0.31, 0.33, 0.36),
    (0.53, 0.35, 0.35, 0.35, 0.41),
    (0.54, 0.40, 0.37, 0.37, 0.41),
    (0.54, 0.41, 0.38, 0.37, 0.41),
)


def neck(adjacency: sparse.csr_array, left: NDArray[np.int64], right: NDArray[np.int64]) -> float:
    """Edges across the border divided by the largest number of edges on either side.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n, n)
    left, right : ndarrays of row indices
        The two clusters.

    Returns
    -------
    float
        1 if the graph is no narrower at the border; 0 if no edge connects the two.

    Examples
    --------
    >>> line = sparse.csr_array(np.eye(8, k=1) + np.eye(8, k=-1))
    >>> neck(line, np.arange(4), np.arange(4, 8))
    1.0
    """
    rows = np.concatenate([left, right])
    within = adjacency[rows][:, rows]
    crossing = edges_across(within, -potential(within, len(left)))
    border, slack = len(left) - 1, max(1, int(SLACK * min(len(left), len(right))))
    first = max(0, border - slack)
    place = first + int(np.argmin(crossing[first : border + slack + 1]))
    widest = min(crossing[: place + 1].max(), crossing[place:].max())
    return float(crossing[place] / widest) if widest else 0.0


def narrowest_usual(dimension: float, smaller: float) -> float:
    """The 1 % quantile of the neck at borders within structureless data.

    Parameters
    ----------
    dimension : float
        Local dimension of the two clusters.
    smaller : float
        Number of observations in the smaller one.

    Examples
    --------
    >>> narrowest_usual(2.0, 70)
    0.31
    """
    at = (
        np.clip(np.log(dimension), np.log(DIMENSIONS[0]), np.log(DIMENSIONS[-1])),
        np.clip(np.log(max(smaller, 1)), np.log(SIZES[0]), np.log(SIZES[-1])),
    )
    return round(float(_TABLE(at)), 12)


def potential(adjacency: sparse.csr_array, n_left: int) -> NDArray[np.float64]:
    """Voltage of each observation if a current flows from the first ``n_left`` to the others.

    It falls steadily from one cluster to the other, whatever their shapes are.
    """
    n = adjacency.shape[0]
    current = np.full(n, -1 / (n - n_left))
    current[:n_left] = 1 / n_left
    degree = adjacency.sum(axis=1) + LEAK
    conductance = sparse.diags_array(degree) - adjacency
    scaled = sparse.diags_array(1 / degree)
    voltage, _ = cg(conductance, current, rtol=TOLERANCE, maxiter=MOST_ITERATIONS, M=scaled)
    return voltage


def edges_across(adjacency: sparse.csr_array, position: NDArray[np.float64]) -> NDArray[np.float64]:
    """Number of edges across each of the n − 1 places between consecutive observations."""
    rank = np.empty(len(position), np.int64)
    rank[np.argsort(position, kind="stable")] = np.arange(len(position))
    edges = sparse.triu(adjacency, 1, format="coo")
    ends = np.sort(np.stack([rank[edges.coords[0]], rank[edges.coords[1]]]), axis=0)
    begun, ended = (np.bincount(end, minlength=len(position)) for end in ends)
    return np.cumsum(begun - ended)[:-1].astype(np.float64)


_TABLE = RegularGridInterpolator((np.log(DIMENSIONS), np.log(SIZES)), np.array(NARROWEST))


# Smallest lump, as a share and as a number of observations.
SMALLEST_SHARE = 0.01
SMALLEST = 5

# Two clusters lie in the same lumps if the cosine between their counts is at least this.
SHARED = 0.5


class Lumps:
    """Counts of the observations of every cluster in every lump.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    clusters : ndarray of shape (n,)
        Numbered from 0.
    n_clusters : int
    """

    def __init__(self, X: NDArray[np.float64], clusters: Index, n_clusters: int) -> None:
        lump = lumps_in(X)
        self.counts = np.zeros((n_clusters, max(int(lump.max()) + 1, 1)))
        inside = (lump >= 0) & (clusters >= 0)
        np.add.at(self.counts, (clusters[inside], lump[inside]), 1)

    def merge(self, a: int, b: int) -> None:
        """Merge b into a."""
        self.counts[a] += self.counts[b]
        self.counts[b] = 0

    def shared(self, a: int, b: int) -> bool:
        """Whether two clusters lie in the same lumps; True if one lies in none."""
        left, right = self.counts[[a, b]]
        lengths = float(np.linalg.norm(left) * np.linalg.norm(right))
        return lengths == 0 or float(left @ right) >= SHARED * lengths


def lumps_in(X: NDArray[np.float64]) -> Index:
    """The lump that HDBSCAN puts each observation into; −1 for none."""
    size = max(SMALLEST, int(SMALLEST_SHARE * len(X)))
    if len(X) < 2 * size:
        return np.full(len(X), -1)
    found: Index = HDBSCAN(min_cluster_size=size, copy=True).fit_predict(X).astype(np.int64)
    return found


# With more features than this, only the leading components are computed one by one.
MOST_COMPONENTS = 300
COMPONENTS_OF_MANY = 100

DRAWS = 4
# With more clusters left, the limit is 1 anyway.
MOST_PIECES = 50


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Standard deviations along the principal components, largest first."""

    deviations: NDArray[np.float64]

    @classmethod
    def of(cls, X: NDArray[np.float64]) -> "Spectrum":
        """The spectrum of observations (n, d)."""
        X = X - X.mean(axis=0)
        n, d = X.shape
        if d <= MOST_COMPONENTS:
            variances = np.linalg.eigvalsh(X.T @ X / n)[::-1]
        else:
            values = randomized_svd(X, min(COMPONENTS_OF_MANY, n), random_state=0)[1]
            variances = values**2 / n
            rest = max(0.0, float((X**2).sum() / n - variances.sum()))
            n_rest = MOST_COMPONENTS - len(variances)
            variances = np.append(variances, np.full(n_rest, rest / n_rest))
        return cls(np.sqrt(np.maximum(variances, 0.0)))


def chance_curve(
    spectrum: Spectrum, n: int, k: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Edges of the closest pair relative to chance, by the number of pieces of a Gaussian left.

    Parameters
    ----------
    spectrum : Spectrum
        The variances of the Gaussian.
    n, k : int
        Number of observations, and of pieces at the start, at most :data:`MOST_PIECES`.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (pieces + 1,)
        The value for each number of pieces left, not decreasing; the first two are infinite,
        because nothing can be merged.
    """
    k = min(k, MOST_PIECES, n // 2)
    if not spectrum.deviations.any() or k < 2:
        return np.full(2, np.inf)
    curves = np.full((DRAWS, k + 1), np.nan)
    for curve in curves:
        X = rng.standard_normal((n, len(spectrum.deviations))) * spectrum.deviations
        pieces = _pieces(X, k, int(rng.integers(2**31)))
        _merge_all(Connections(connect(X, pieces)), curve)
    middle = np.full(k + 1, np.inf)
    middle[2:] = np.minimum.accumulate(np.nanmedian(curves[:, 2:], axis=0)[::-1])[::-1]
    return middle


def _pieces(X: NDArray[np.float64], k: int, seed: int) -> NDArray[np.int64]:
    pieces = KMeans(k, n_init=1, random_state=seed).fit_predict(X)
    return np.unique(pieces, return_inverse=True)[1].astype(np.int64)


def _merge_all(connections: Connections, curve: NDArray[np.float64]) -> None:
    """Merge the closest pair until one piece is left, and record its edges relative to chance."""
    n_left = len(connections.sizes)
    distances = connections.distances()
    np.fill_diagonal(distances, np.inf)
    while n_left > 1:
        a, b = sorted(int(i) for i in np.unravel_index(distances.argmin(), distances.shape))
        curve[n_left] = connections.times_chance(a, b)
        connections.merge(a, b)
        row = connections.distances(np.array([a]))[0]
        row[distances[a] == np.inf] = np.inf
        distances[a] = distances[:, a] = row
        distances[b] = distances[:, b] = np.inf
        n_left -= 1
