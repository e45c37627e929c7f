"""Edges between clusters of simulated data without structure.

As clusters are merged, the closest two have fewer and fewer edges relative to chance, even if they
are pieces of a single Gaussian.  How fast this happens depends on the variances of the data, so
Gaussians with the same variances are simulated, cut into pieces and merged in the same way.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.utils.extmath import randomized_svd

from unsplit.merging.neighbours.edges import Connections
from unsplit.merging.neighbours.graph import connect

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
