"""Whether the neighbour graph connects two clusters as it connects parts of one cluster.

Three things are compared with what parts of one cluster have:

- the **edges** between the two, with those between pieces of a surrogate of the data that has no
  groups.  A group shows as a gap that data of this kind would not have without it.  So the
  surrogate keeps the distribution of every feature, as far as it has one mode, and the
  correlations between features (a Gaussian copula): skewed, heavy-tailed and discrete features stay
  so, and gaps are filled;
- the **neck**, how wide the graph is where the two meet.  Two parts of one cluster meet along a
  border as wide as the parts themselves; two clusters that only touch meet in a narrow neck.  To
  measure it, the observations of both are ordered from deep inside one to deep inside the other,
  and the edges across each place in this order are counted.  At a neck few edges cross, although
  many do on either side;
- the **saddle**, how deep the density falls between them.  Two parts of one cluster meet where the
  density is about that of the lower of their peaks; two clusters that touch meet in a saddle below
  both (Chaudhuri et al. 2014; Chazal et al. 2013).  The density is counted: how many observations
  lie within the distance in which the lower peak has a given number.  So no dimension has to be
  estimated, and the error of a count is known.
"""

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import isotonic_regression
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata
from sklearn.cluster import KMeans
from sklearn.utils.extmath import randomized_svd

from unsplit._typing import Cluster, Index, Matrix
from unsplit.merging import limits
from unsplit.merging.neighbours.graph import (
    N_NEIGHBOURS,
    SCORES,
    Connections,
    MergedRows,
    NeighbourGraph,
    connect,
    dithered,
    nearest,
)

Vector = NDArray[np.float64]

# Larger values mean nothing more.
MOST_STRENGTH = 1000.0

# Sample size: MOST_JUDGED, or JUDGED_A_CLUSTER for each cluster if that is more, within a limit.
MOST_JUDGED = 5_000
JUDGED_A_CLUSTER = 20
MOST_JUDGED_AT_ALL = 20_000
# If fewer observations of a cluster are in the sample, all edges are counted.
FEWEST_JUDGED = 10

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
_LOG_DIMENSIONS, _LOG_SIZES = np.log(DIMENSIONS), np.log(SIZES)

# Observations around a peak: the root of their number, but at least this many.
FEWEST_AROUND = 15
# With fewer, a count says nothing.
FEWEST = 5
# Peaks and saddles are those of the densest tenth, because single observations scatter.
DENSEST = 0.1

# With more features than this, only the leading components have a distribution of their own, and
# the others share what is left of the variance.
MOST_FEATURES = 300
COMPONENTS_OF_MANY = 100

# A distribution is read off at most this many observations, in this many steps of equal mass.
MOST_ROWS = 2_000
MOST_STEPS = 32
# Steps in the tails are halved twice, because a tail of one step would be even.
TAIL = np.array([0.25, 0.5])

DRAWS = 4
# With more clusters left, the limit is 1 anyway.
MOST_PIECES = 50


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
        Smallest ``times_chance`` of parts of one cluster; NaN in few dimensions, where edges do not
        count.
    neck : float
        Width of the graph where the two meet relative to its width inside them, from 0 to 1; NaN if
        it does not count.
    usual_neck : float
        The neck that 99 of 100 borders within one cluster exceed.
    saddle : float
        How deep the density falls between the two: log density of the lower peak minus that of the
        saddle.  NaN in many dimensions, where it does not count.
    deepest_saddle : float
        Largest ``saddle`` within one cluster.
    dimension : float
        Local dimension of the data.
    of_scores : bool
        Whether neighbours were found in the network's own scores.
    """

    edges: int
    times_chance: float
    least_times: float
    neck: float = math.nan
    usual_neck: float = math.nan
    saddle: float = math.nan
    deepest_saddle: float = math.nan
    dimension: float = math.inf
    of_scores: bool = False

    @property
    def strength(self) -> float:
        """How strongly the two are connected; parts of one cluster have at least 1.

        In few dimensions, the smaller of neck and saddle, each relative to its limit, where a neck
        may be the narrower the less the density falls; in many, the geometric mean of edges and
        neck relative to theirs; in between, the weighted geometric mean of both.
        """
        if self.edges == 0:
            return 0.0
        many = weight_of_edges(self.dimension)
        in_few = self._in_few_dimensions ** (1 - many) if many < 1 else 1.0
        in_many = self._in_many_dimensions**many if many > 0 else 1.0
        return min(in_few * in_many, MOST_STRENGTH)

    @property
    def _in_few_dimensions(self) -> float:
        width = self.neck / (limits.NECK_SHARE * self.usual_neck)
        if math.isnan(self.saddle):
            return width
        depth = math.exp(self.deepest_saddle - self.saddle)
        return min(width * max(1.0, depth), depth)

    @property
    def _in_many_dimensions(self) -> float:
        # Without structure there may be no edges at all; then any are enough.
        times = self.times_chance / self.least_times if self.least_times else MOST_STRENGTH
        if math.isnan(self.neck):
            return times
        wide = self.neck / self.usual_neck
        return math.sqrt(times * min(wide, limits.WIDEST_NECK))


def weight_of_edges(dimension: float) -> float:
    """Weight of what counts in many dimensions, from 0 to 1; the rest is for few dimensions.

    Examples
    --------
    >>> weight_of_edges(2.0), weight_of_edges(2.95), weight_of_edges(10.0)
    (0.0, 0.5, 1.0)
    """
    share = (dimension - limits.FEW_DIMENSIONS) / (limits.MANY_DIMENSIONS - limits.FEW_DIMENSIONS)
    return min(1.0, max(0.0, share))


def neck(adjacency: sparse.csr_array, left: Index, right: Index) -> float:
    """Edges across the border of two clusters (rows) divided by the most edges on either side.

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
    """The 1 % quantile of the neck within structureless data, by dimension and smaller size.

    Examples
    --------
    >>> narrowest_usual(2.0, 70)
    0.31
    """
    size = math.log(max(smaller, 1))
    by_dimension = [np.interp(size, _LOG_SIZES, row) for row in NARROWEST]
    found = np.interp(math.log(dimension), _LOG_DIMENSIONS, by_dimension)
    return round(float(found), 12)


def potential(adjacency: sparse.csr_array, n_left: int) -> Vector:
    """Voltage of each observation if a current flows from the first ``n_left`` to the others.

    It falls steadily from one cluster to the other, whatever their shapes are.
    """
    n = adjacency.shape[0]
    current = np.full(n, -1 / (n - n_left))
    current[:n_left] = 1 / n_left
    degree = adjacency.sum(axis=1) + LEAK
    # As operators, which takes half as long as matrices if these are small.
    laplacian = LinearOperator((n, n), lambda v: degree * v - adjacency @ v, dtype=float)
    scaling = LinearOperator((n, n), lambda v: v / degree, dtype=float)
    return cg(laplacian, current, rtol=TOLERANCE, maxiter=MOST_ITERATIONS, M=scaling)[0]


def edges_across(adjacency: sparse.csr_array, position: Vector) -> Vector:
    """Number of edges across each of the n − 1 places between consecutive observations."""
    rank = np.empty(len(position), np.int64)
    rank[np.argsort(position, kind="stable")] = np.arange(len(position))
    edges = adjacency.tocoo()
    first, last = rank[edges.coords[0]], rank[edges.coords[1]]
    once = first < last
    begun, ended = (np.bincount(end[once], minlength=len(position)) for end in (first, last))
    return np.cumsum(begun - ended)[:-1].astype(np.float64)


class Saddles:
    """Depths of the saddles between clusters of observations X (n, d) in a neighbour graph."""

    def __init__(self, X: Matrix, adjacency: sparse.csr_array) -> None:
        self.X, self.adjacency = X, adjacency
        self.around = min(max(FEWEST_AROUND, math.isqrt(len(X))), len(X) // 3)

    @cached_property
    def distances(self) -> Matrix:
        """Distances to the nearest observations; searched for when a pair has few dimensions."""
        return nearest(self.X, self.around)[1]

    def depth(self, left: Index, right: Index) -> tuple[float, float]:
        """Log density of the lower peak minus that of the saddle, and the limit for one cluster.

        The two clusters (rows) have an edge between them.  The depth is 0 if the density does not
        fall.
        """
        edges = self.adjacency[left][:, right].tocoo()
        i, j = left[edges.coords[0]], right[edges.coords[1]]
        at_peak = self.distances[:, self.around - 1]
        radius = max(float(np.quantile(at_peak[side], DENSEST)) for side in (left, right))
        lower = np.minimum(*((self.distances[end] <= radius).sum(axis=1) for end in (i, j)))
        saddle = max(float(np.quantile(lower, 1 - DENSEST)), 0.5)
        at_border = len(np.unique(i)) + len(np.unique(j))
        return math.log(self.around / saddle), self.limit(at_border)

    def limit(self, at_border: int) -> float:
        """The deepest saddle within one cluster, given the observations at the border.

        Examples
        --------
        >>> X = np.random.default_rng(0).random((900, 2))
        >>> saddles = Saddles(X, sparse.csr_array((900, 900)))
        >>> saddles.around, round(saddles.limit(300), 2), round(saddles.limit(20), 2)
        (30, 0.38, 0.79)
        """
        narrow = min(1.0, self.around / max(at_border, 1))
        errors = limits.ERRORS + limits.ERRORS_OF_A_NARROW_BORDER * narrow
        return limits.LEAST_DEPTH + errors / math.sqrt(self.around)


# --- data without structure -----------------------------------------------------------------------


class Surrogate:
    """Draws observations without groups, like the observations X (n, d)."""

    def __init__(self, X: Matrix) -> None:
        X = X[:: -(-len(X) // MOST_ROWS)]
        # Number and standard deviation of further features, which are normal and independent.
        self.n_rest, self.deviation = 0, 0.0
        if X.shape[1] > MOST_FEATURES:
            X, self.n_rest, self.deviation = _leading(X)
        X = X[:, X.min(axis=0) < X.max(axis=0)]
        scores = ndtri((rankdata(X, axis=0) - 0.5) / len(X))
        correlations = np.atleast_2d(np.corrcoef(scores.T)) if X.shape[1] else np.zeros((0, 0))
        values, vectors = np.linalg.eigh(correlations)
        # Square root of the correlations between the features as normal scores.
        self.root = vectors * np.sqrt(np.maximum(values, 0.0))
        # Of every feature the cumulative shares and the values at which they are reached.
        self.steps = [one_mode(values) for values in X.T]

    @property
    def is_constant(self) -> bool:
        """Whether all observations would be the same."""
        return not self.steps and not self.deviation

    def draw(self, n: int, rng: np.random.Generator) -> Matrix:
        """Observations, shape (n, features that vary)."""
        shares = ndtr(rng.standard_normal((n, len(self.steps))) @ self.root.T)
        drawn = [np.interp(u, *steps) for u, steps in zip(shares.T, self.steps, strict=True)]
        rest = self.deviation * rng.standard_normal((n, self.n_rest))
        return np.column_stack([*drawn, rest]) if drawn else rest


def _leading(X: Matrix) -> tuple[Matrix, int, float]:
    """The leading components, and number and deviation of the others if they were all alike."""
    X = X - X.mean(axis=0)
    left, values, _ = randomized_svd(X, min(COMPONENTS_OF_MANY, len(X)), random_state=0)
    n_rest = MOST_FEATURES - len(values)
    rest = max(0.0, float((X**2).sum() - (values**2).sum()))
    return left * values, n_rest, float(np.sqrt(rest / len(X) / n_rest))


def one_mode(values: Vector) -> tuple[Vector, Vector]:
    """The distribution with one mode that is closest to that of the values.

    It is a distribution function: rising shares from 0 to 1, and where they are reached.

    Examples
    --------
    >>> gap = np.concatenate([np.linspace(0, 1, 200), np.linspace(9, 10, 200)])
    >>> shares, at = one_mode(gap)
    >>> bool(np.interp(6, at, shares) - np.interp(4, at, shares) > 0.1)
    True
    """
    values = np.sort(dithered(values[:, None])[:, 0])
    n_steps = max(2, min(MOST_STEPS, len(values) // 10))
    inner = np.arange(1, n_steps) / n_steps
    shares = np.concatenate([[0], TAIL / n_steps, inner, 1 - TAIL[::-1] / n_steps, [1]])
    at = np.quantile(values, shares)
    width = np.diff(at)
    width = np.maximum(width, 1e-3 * np.median(width[width > 0]))
    mass = width * _unimodal(np.diff(shares) / width, width)
    return (
        np.concatenate([[0.0], np.cumsum(mass) / mass.sum()]),
        at[0] + np.concatenate([[0.0], np.cumsum(width)]),
    )


def _unimodal(density: Vector, width: Vector) -> Vector:
    """The steps that rise and then fall and are closest to the given ones."""
    best, least = density, np.inf
    # The mode is near the highest of three steps together.
    together = np.convolve(density * width, np.ones(3), "same") / np.convolve(
        width, np.ones(3), "same"
    )
    middle = int(together.argmax())
    for mode in range(max(0, middle - 2), min(len(density), middle + 3)):
        rising = isotonic_regression(density[: mode + 1], weights=width[: mode + 1]).x
        falling = isotonic_regression(density[mode:], weights=width[mode:], increasing=False).x
        found = np.concatenate([rising[:-1], [max(rising[-1], falling[0])], falling[1:]])
        cost = float((width * (found - density) ** 2 / np.maximum(density, 1e-300)).sum())
        if cost < least:
            best, least = found, cost
    return best


def chance_curve(
    surrogate: Surrogate, n: int, k: int, rng: np.random.Generator, n_neighbors: int = N_NEIGHBOURS
) -> Vector:
    """Edges of the closest pair relative to chance, by the number of pieces left.

    The surrogate draws ``n`` observations, which are cut into ``k`` pieces, at most
    :data:`MOST_PIECES`, and merged again.  The values do not decrease; the first two are infinite,
    because nothing can be merged.
    """
    k = min(k, MOST_PIECES, n // 2)
    if surrogate.is_constant or k < 2:
        return np.full(2, np.inf)
    curves = np.full((DRAWS, k + 1), np.nan)
    for curve in curves:
        X = surrogate.draw(n, rng)
        pieces = KMeans(k, n_init=1, random_state=int(rng.integers(2**31))).fit_predict(X)
        pieces = np.unique(pieces, return_inverse=True)[1]
        _merge_all(Connections(connect(X, pieces, n_neighbors=n_neighbors)), curve)
    middle = np.full(k + 1, np.inf)
    middle[2:] = np.minimum.accumulate(np.nanmedian(curves[:, 2:], axis=0)[::-1])[::-1]
    return middle


def _merge_all(connections: Connections, curve: Vector) -> None:
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


# --- all pairs ------------------------------------------------------------------------------------


class Neighbourhoods:
    """Evidence from the neighbour graph, kept up to date when clusters are merged.

    Parameters
    ----------
    graph : NeighbourGraph
    rng : numpy.random.Generator
        Draws a sample of observations if there are many, and simulates data without structure.
    judged : Connections, optional
        Those of all observations, if a sample would leave too few of each of many clusters.
        Of very many observations necks are then only measured in few dimensions and saddles not at
        all: all necks would take too long, all densities too much memory.
    is_shared : bool
        Whether ``judged`` also ranks pairs and is merged there.
    """

    def __init__(
        self,
        graph: NeighbourGraph,
        rng: np.random.Generator,
        judged: Connections | None = None,
        is_shared: bool = False,
    ) -> None:
        sample = thinned(graph, rng) if judged is None else graph
        self.sample, self.is_sample, self.rng = sample, sample is not graph, rng
        self.judged = Connections(sample) if judged is None else judged
        self.is_shared, self.n_left = is_shared, graph.n_clusters
        self.all_necks = len(sample.clusters) <= most_judged(graph.n_clusters)
        self.n_batches, self.of_scores = int(graph.batches.max()) + 1, graph.source == SCORES
        self.count(graph.edges_between())
        members = sample.members.tocsc()
        # By first member the observations of a merged cluster, in parts.
        self.members = [[rows] for rows in np.split(members.indices, members.indptr[1:-1])]
        # Necks take longest, so a re-merge leaves them out where they cannot change a decision.
        self.only_decides = False
        # Made when first needed, and once for all re-merges.
        self.curve = cache(self._simulated_curve)
        # A saddle would say more of the batches if there are several, and more of the network if
        # the features are its scores: it is sure of most, so few lie between any two clusters.
        useful = self.n_batches == 1 and self._judges_by_necks() and not self.of_scores
        saddles = Saddles(sample.features, sample.adjacency)
        enough = self.all_necks and saddles.around >= FEWEST
        self.saddles = saddles if useful and enough else None

    def count(self, edges: sparse.csr_array) -> None:
        """Take these for the numbers of edges between clusters."""
        self.n_edges, self.degrees = MergedRows(edges), edges.sum(axis=1)
        self.total = max(float(self.degrees.sum()), 1.0)

    @property
    def limits_fall(self) -> bool:
        """Whether data without structure have fewer edges the fewer clusters are left."""
        return self.n_left <= MOST_PIECES

    def merge(self, a: Cluster, b: Cluster) -> None:
        """Put b into a."""
        self.n_edges.merge(a, b)
        self.degrees[a] += self.degrees[b]
        if not self.is_shared:
            self.judged.merge(a, b)
        self.members[a] += self.members[b]
        self.n_left -= 1

    def connection(self, a: Cluster, b: Cluster) -> Connection:
        """How the graph connects two clusters."""
        edges = int(self.n_edges[a, b])
        smaller = float(self.judged.sizes[[a, b]].min())
        if self.is_sample and smaller < FEWEST_JUDGED:
            # The sample has too few: are there as many edges as by chance among all?
            chance = float(self.degrees[a] * self.degrees[b]) / self.total
            times = edges / chance if chance > 0 else 0.0
            return Connection(edges, times, 1.0, of_scores=self.of_scores)
        dimension = self.judged.dimension(a, b)
        many = weight_of_edges(dimension)
        saddle, deepest = self._saddle(a, b) if many < 1 else (math.nan, math.nan)
        found = Connection(
            edges=edges,
            times_chance=self.judged.times_chance(a, b),
            least_times=self._least_times(a, b) if many > 0 else math.nan,
            neck=1.0,
            usual_neck=narrowest_usual(dimension, smaller),
            saddle=saddle,
            deepest_saddle=deepest,
            dimension=dimension,
            of_scores=self.of_scores,
        )
        if self.only_decides and found.strength < 1:  # too weak even with the widest neck
            return found
        width = self._neck(a, b, many)
        usual = math.nan if math.isnan(width) else found.usual_neck
        return replace(found, neck=width, usual_neck=usual)

    def _least_times(self, a: Cluster, b: Cluster) -> float:
        limit = min(1.0, limits.EDGES_SHARE * self._structureless())
        # Less by one standard error of the number of edges, which matters if there are few.
        return limit / (1 + 1 / math.sqrt(max(self.judged.usual_edges(a, b), 1.0)))

    def _rows(self, cluster: Cluster) -> Index:
        return np.sort(np.concatenate(self.members[cluster]))

    def _saddle(self, a: Cluster, b: Cluster) -> tuple[float, float]:
        """Depth of the saddle between two clusters, and the limit for one cluster."""
        if self.saddles is None or self.judged.weight(a, b) == 0:
            return math.nan, math.nan
        return self.saddles.depth(self._rows(a), self._rows(b))

    def _neck(self, a: Cluster, b: Cluster, many: float) -> float:
        """The neck between two clusters; with batches, the mean over the batches they share."""
        # In many dimensions, few observations or few of a batch say little of a neck.
        few = self.n_batches > 1 or self.judged.sizes[[a, b]].min() < SIZES[0]
        if many == 1 and (few or not self.all_necks):
            return math.nan
        rows, batches = (self._rows(a), self._rows(b)), self.sample.batches
        necks, weights = [0.0], [0.0]
        for batch in range(self.n_batches):
            left, right = (side[batches[side] == batch] for side in rows)
            if len(left) and len(right):
                necks.append(neck(self.sample.adjacency, left, right))
                weights.append(min(len(left), len(right)))
        return float(np.average(necks, weights=weights)) if any(weights) else 0.0

    def _judges_by_necks(self) -> bool:
        """Whether any pair may have so few dimensions that neck and saddle alone count."""
        inverse = self.judged.inverse_dimensions
        return not bool((self.judged.n_known > limits.MANY_DIMENSIONS * inverse).all())

    def _structureless(self) -> float:
        """``times_chance`` of the closest pair in structureless data with as many clusters left."""
        if not self.limits_fall:
            return math.inf
        curve = self.curve()
        return float(curve[self.n_left]) if self.n_left < len(curve) else math.inf

    def _simulated_curve(self) -> Vector:
        sample = self.sample
        n, k = min(len(sample.clusters), MOST_JUDGED_AT_ALL), len(self.judged.sizes)
        return chance_curve(Surrogate(sample.features), n, k, self.rng, sample.n_neighbors)


def most_judged(k: int) -> int:
    """How many observations at most k clusters are judged by.

    Examples
    --------
    >>> most_judged(10), most_judged(400), most_judged(5_000)
    (5000, 8000, 20000)
    """
    return max(MOST_JUDGED, min(JUDGED_A_CLUSTER * k, MOST_JUDGED_AT_ALL))


def thinned(graph: NeighbourGraph, rng: np.random.Generator) -> NeighbourGraph:
    """The graph of a sample of the observations, if there are very many."""
    n, k = len(graph.clusters), graph.n_clusters
    most = most_judged(k)
    if n <= most:
        return graph
    rows = np.sort(rng.choice(n, most, replace=False))
    # At least one observation of each cluster.
    first = np.unique(graph.clusters, return_index=True)[1]
    rows = np.union1d(rows, first[graph.clusters[first] >= 0])
    rows = rows[graph.clusters[rows] >= 0]
    parts = graph.features[rows], graph.clusters[rows], graph.batches[rows]
    groups = None if graph.groups is None else graph.groups[rows]
    found = connect(*parts, n_clusters=k, groups=groups, n_neighbors=graph.n_neighbors)
    return replace(found, source=graph.source, metric=graph.metric)
