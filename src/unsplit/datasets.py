"""Data whose total variation distances are known exactly, to test estimates against."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.stats import norm

Data = tuple[NDArray[Any], NDArray[np.int64]]


def gaussians(means: ArrayLike, size: int, random_state: int = 0) -> Data:
    """Unit Gaussians, ``size`` observations around each of the means (k, d).

    Examples
    --------
    >>> X, labels = gaussians([[0, 0], [3, 0]], 100)
    >>> X.shape, np.bincount(labels)
    ((200, 2), array([100, 100]))
    """
    centres = np.asarray(means, float)
    rng = np.random.default_rng(random_state)
    labels = np.repeat(np.arange(len(centres)), size)
    return centres[labels] + rng.standard_normal((len(labels), centres.shape[1])), labels


def gaussians_tvd(means: ArrayLike) -> NDArray[np.float64]:
    """Exact TVD between unit Gaussians: 2Φ(δ/2) − 1 at distance δ.

    Examples
    --------
    >>> gaussians_tvd([[0.0], [2.0]])[0, 1].round(4)
    np.float64(0.6827)
    """
    centres = np.asarray(means, float)
    distance = np.linalg.norm(centres[:, None] - centres, axis=-1)
    return 2 * norm.cdf(distance / 2) - 1


def mixtures(
    weights: ArrayLike, separation: float, n_features: int, size: int, random_state: int = 0
) -> Data:
    """Clusters that mix the same two unit Gaussians, ``separation`` apart, in different shares.

    ``weights[c]`` is the share of cluster c that comes from the first.
    """
    share = np.asarray(weights, float)
    rng = np.random.default_rng(random_state)
    labels = np.repeat(np.arange(len(share)), size)
    X = rng.standard_normal((len(labels), n_features))
    X[:, 0] += separation * (rng.random(len(labels)) >= share[labels])
    return X, labels


def mixtures_tvd(weights: ArrayLike, separation: float) -> NDArray[np.float64]:
    """Exact TVD of :func:`mixtures`: the difference of shares times the components' own TVD.

    Examples
    --------
    >>> mixtures_tvd([1.0, 0.5], 2.0)[0, 1].round(4)
    np.float64(0.3413)
    """
    share = np.asarray(weights, float)
    components = 2 * norm.cdf(separation / 2) - 1
    return np.abs(share[:, None] - share) * components


def scaled_gaussians(scales: ArrayLike, size: int, random_state: int = 0) -> Data:
    """One-dimensional Gaussians around zero with different scales: no linear boundary helps."""
    scale = np.asarray(scales, float)
    rng = np.random.default_rng(random_state)
    labels = np.repeat(np.arange(len(scale)), size)
    return scale[labels, None] * rng.standard_normal((len(labels), 1)), labels


def scaled_gaussians_tvd(scales: ArrayLike) -> NDArray[np.float64]:
    """Exact TVD of :func:`scaled_gaussians`, from where the two densities cross.

    Examples
    --------
    >>> scaled_gaussians_tvd([1.0, 3.0])[0, 1].round(3)
    np.float64(0.484)
    """
    scale = np.asarray(scales, float)
    result = np.zeros((len(scale), len(scale)))
    for i, j in zip(*np.triu_indices(len(scale), 1), strict=True):
        narrow, wide = sorted((scale[i], scale[j]))
        if narrow == wide:
            continue
        ratio = lambda x, a=narrow, b=wide: norm.logpdf(x, 0, a) - norm.logpdf(x, 0, b)  # noqa: E731
        cross = brentq(ratio, 0, 10 * wide)
        inside = [2 * norm.cdf(cross / s) - 1 for s in (narrow, wide)]
        result[i, j] = result[j, i] = inside[0] - inside[1]
    return result


def discrete(probabilities: ArrayLike, size: int, random_state: int = 0) -> Data:
    """Categorical variables as one-hot vectors; ``probabilities`` has one row per cluster."""
    table = np.asarray(probabilities, float)
    rng = np.random.default_rng(random_state)
    drawn = np.concatenate([rng.choice(table.shape[1], size, p=row) for row in table])
    return np.eye(table.shape[1])[drawn], np.repeat(np.arange(len(table)), size)


def discrete_tvd(probabilities: ArrayLike) -> NDArray[np.float64]:
    """Exact TVD between discrete distributions: half the sum of absolute differences.

    Examples
    --------
    >>> discrete_tvd([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])[0, 1]
    np.float64(0.5)
    """
    table = np.asarray(probabilities, float)
    return np.abs(table[:, None] - table).sum(axis=-1) / 2
