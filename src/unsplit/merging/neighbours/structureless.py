"""Data without groups that look like the given data otherwise, and how the graph connects them.

A group shows as a gap that data of this kind would not have without it.  So the surrogate keeps
the distribution of every feature, as far as it has one mode, and the correlations between features
(a Gaussian copula): skewed, heavy-tailed and discrete features stay so, and gaps are filled.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata
from sklearn.cluster import KMeans
from sklearn.utils.extmath import randomized_svd

from unsplit._typing import Index, Matrix
from unsplit.merging.neighbours.graph import N_NEIGHBOURS, Connections, connect, dithered

Vector = NDArray[np.float64]

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


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Draws observations without groups."""

    # Of every feature the cumulative shares and the values at which they are reached.
    steps: list[tuple[Vector, Vector]]
    # Square root of the correlations between the features as normal scores.
    root: Matrix
    # Number and standard deviation of further features, which are normal and independent.
    n_rest: int = 0
    deviation: float = 0.0

    @classmethod
    def of(cls, X: Matrix) -> "Surrogate":
        """The surrogate of observations (n, d)."""
        X = X[:: -(-len(X) // MOST_ROWS)]
        n_rest, deviation = 0, 0.0
        if X.shape[1] > MOST_FEATURES:
            X, n_rest, deviation = _leading(X)
        X = X[:, X.min(axis=0) < X.max(axis=0)]
        scores = ndtri((rankdata(X, axis=0) - 0.5) / len(X))
        correlations = np.atleast_2d(np.corrcoef(scores.T)) if X.shape[1] else np.zeros((0, 0))
        values, vectors = np.linalg.eigh(correlations)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return cls([one_mode(values) for values in X.T], root, n_rest, deviation)

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
        pieces = _pieces(X, k, int(rng.integers(2**31)))
        _merge_all(Connections(connect(X, pieces, n_neighbors=n_neighbors)), curve)
    middle = np.full(k + 1, np.inf)
    middle[2:] = np.minimum.accumulate(np.nanmedian(curves[:, 2:], axis=0)[::-1])[::-1]
    return middle


def _pieces(X: Matrix, k: int, seed: int) -> Index:
    pieces = KMeans(k, n_init=1, random_state=seed).fit_predict(X)
    return np.unique(pieces, return_inverse=True)[1].astype(np.int64)


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
