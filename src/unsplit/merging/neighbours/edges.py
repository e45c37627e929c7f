"""Edges between clusters: how many there are, by chance, and in data without any structure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.utils.extmath import randomized_svd

from unsplit._typing import Index, Matrix
from unsplit.merging.neighbours.graph import NeighbourGraph, connect

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
        # In edges of usual weight, so that the distance of a pair does not depend on the density.
        found, chance = found[linked] / self.usual_weight, chance[linked] / self.usual_weight
        near = _share(found, chance) if self.few_dimensions else _doubt(found, chance)
        far = UNLINKED - (UNLINKED - 0.5) * near
        distances[linked] = np.where(found > chance, 0.5 * near, far)
        return distances

    def times_chance(self, a: int, b: int) -> float:
        """Edges between two clusters divided by the edges expected by chance."""
        chance = float((self.degrees[:, a] / self.totals) @ self.degrees[:, b])
        return float(self.edges[a, b]) / chance if chance > 0 else 0.0

    def dimension(self, a: int, b: int) -> float:
        """Local dimension of the data in two clusters."""
        inverse = float(self.inverse_dimensions[[a, b]].sum())
        return float(self.n_known[[a, b]].sum()) / inverse if inverse > 0 else 1.0


def _share(found: Matrix, chance: Matrix) -> Matrix:
    """The smaller of two numbers of edges over the larger, with a few added to both."""
    smaller, larger = np.minimum(found, chance), np.maximum(found, chance)
    share: Matrix = (smaller + A_FEW_EDGES) / (larger + A_FEW_EDGES)
    return share


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
