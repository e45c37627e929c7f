"""Families of distributions between which the 1-Wasserstein distance is known."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import trapezoid
from scipy.special import gammaln, hyp1f1, ndtr

Array = NDArray[np.float64]


COMPONENTS = 3
GRID = np.linspace(-8.0, 8.0, 4001)


class Sample(NamedTuple):
    """Observations, their clusters, and the distances between these."""

    X: Array
    clusters: NDArray[np.int64]
    truth: Array


class Family(NamedTuple):
    """Features; parameters of a cluster, observations of it, and the distance of two of them."""

    n_features: int
    parameters: Callable[[np.random.Generator, int], Any]
    observations: Callable[[np.random.Generator, int, int, Any], Array]
    distance: Callable[[int, Any, Any], float]


def drawn(family: str, k: int, size: int, seed: int) -> Sample:
    """The first k clusters of a family, ``size`` observations of each.

    The same cluster has the same observations, whatever k.
    """
    d, parameters, observations, distance = FAMILIES[family]
    ours, parts = [], []
    for c in range(k):
        rng = np.random.default_rng([seed, c])
        ours.append(parameters(rng, d))
        parts.append(observations(rng, size, d, ours[-1]))
    truth = np.array([[0.0 if p is q else distance(d, p, q) for q in ours] for p in ours])
    return Sample(np.concatenate(parts), np.repeat(np.arange(k), size), truth)


def mean_length(d: int, shift: float, scale: float) -> float:
    """E|v + s·Z| for a vector v of length ``shift``, Z standard normal in d dimensions.

    Examples
    --------
    >>> round(mean_length(1, 0.0, 1.0) ** 2 * np.pi / 2, 9)
    1.0
    >>> mean_length(5, 3.0, 0.0)
    3.0
    """
    if scale == 0:
        return shift
    ratio = (shift / scale) ** 2 / 2
    at_zero = scale * np.sqrt(2) * np.exp(gammaln((d + 1) / 2) - gammaln(d / 2))
    return float(at_zero * hyp1f1(-0.5, d / 2, -ratio))


def _centre(rng: np.random.Generator, d: int) -> Array:
    return rng.standard_normal(d) * 2 / np.sqrt(d)


def _scale(rng: np.random.Generator, d: int) -> float:
    return float(rng.uniform(0.5, 2.5))


def _mixture(rng: np.random.Generator, d: int) -> tuple[Array, Array]:
    """Centres and standard deviations of equally likely components; all mixtures have mean 0."""
    centres = rng.uniform(-3, 3, COMPONENTS)
    return centres - centres.mean(), rng.uniform(0.2, 0.5, COMPONENTS)


def _gaussian(rng: np.random.Generator, n: int, d: int, centre: Array) -> Array:
    return centre + rng.standard_normal((n, d))


def _cube(rng: np.random.Generator, n: int, d: int, centre: Array) -> Array:
    return centre + rng.uniform(-1, 1, (n, d))


def _scaled(rng: np.random.Generator, n: int, d: int, scale: float) -> Array:
    return scale * rng.standard_normal((n, d))


def _shell(rng: np.random.Generator, n: int, d: int, radius: float) -> Array:
    directions = rng.standard_normal((n, d))
    return radius * directions / np.linalg.norm(directions, axis=1, keepdims=True)


def _stretched(rng: np.random.Generator, n: int, d: int, at: tuple[Array, float]) -> Array:
    return at[0] + at[1] * rng.standard_normal((n, d))


def _mixed(rng: np.random.Generator, n: int, d: int, mixture: tuple[Array, Array]) -> Array:
    """The mixture along the first axis, standard normal along all others."""
    which = rng.integers(COMPONENTS, size=n)
    X = rng.standard_normal((n, d))
    X[:, 0] = mixture[0][which] + mixture[1][which] * X[:, 0]
    return X


def _between_centres(d: int, a: Array, b: Array) -> float:
    """Of translations of one distribution: all move the same way."""
    return float(np.linalg.norm(a - b))


def _between_scales(d: int, a: float, b: float) -> float:
    """Of Gaussians around one centre: all move straight away from it."""
    return mean_length(d, 0.0, abs(a - b))


def _between_radii(d: int, a: float, b: float) -> float:
    return abs(a - b)


def _between_stretched(d: int, a: tuple[Array, float], b: tuple[Array, float]) -> float:
    """One point stays where it is, all others move straight away from it."""
    return mean_length(d, float(np.linalg.norm(a[0] - b[0])), abs(a[1] - b[1]))


def _between_mixtures(d: int, a: tuple[Array, Array], b: tuple[Array, Array]) -> float:
    """On a line: what lies between the distribution functions.

    Further features that all clusters have alike and independently change nothing: they can stay
    as they are, and the distance is no less than along the line.
    """
    return float(trapezoid(np.abs(_cdf(a) - _cdf(b)), GRID))


def _cdf(mixture: tuple[Array, Array]) -> Array:
    centres, scales = mixture
    return ndtr((GRID[:, None] - centres) / scales).mean(axis=1)


def _stretch(rng: np.random.Generator, d: int) -> tuple[Array, float]:
    return _centre(rng, d), _scale(rng, d)


FAMILIES = {
    "shifted Gaussians": Family(10, _centre, _gaussian, _between_centres),
    "shifted cubes": Family(10, _centre, _cube, _between_centres),
    "scaled Gaussians": Family(1, _scale, _scaled, _between_scales),
    "shells": Family(20, _scale, _shell, _between_radii),
    "stretched Gaussians": Family(10, _stretch, _stretched, _between_stretched),
    "mixtures": Family(1, _mixture, _mixed, _between_mixtures),
    "mixtures in noise": Family(10, _mixture, _mixed, _between_mixtures),
}
