"""Simulated data whose total variation distances are known exactly, to test estimates."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from scipy.stats import norm

from unsplit.devices import generator_of
from unsplit.errors import InputError, check_whole, is_number, numeric_array, shown

Data = tuple[NDArray[Any], NDArray[np.int64]]


def gaussians(means: ArrayLike, size: int, random_state: int = 0) -> Data:
    """Draw clusters from Gaussians with unit variance.

    Parameters
    ----------
    means : array-like of shape (k, d)
        Mean of each cluster.
    size : int
        Observations of each cluster.
    random_state : int
        The same seed gives the same data.

    Returns
    -------
    X : ndarray of shape (k · size, d)
    labels : ndarray of shape (k · size,)
        Clusters 0, 1, …, k − 1.

    Examples
    --------
    >>> X, labels = gaussians([[0, 0], [3, 0]], 100)
    >>> X.shape, np.bincount(labels)
    ((200, 2), array([100, 100]))
    """
    centres = numeric_array("means", means, 2)
    labels, rng = _clusters(len(centres), size, random_state)
    return centres[labels] + rng.standard_normal((len(labels), centres.shape[1])), labels


def gaussians_tvd(means: ArrayLike) -> NDArray[np.float64]:
    """Exact TVD between the clusters of :func:`gaussians`: 2Φ(δ/2) − 1 at distance δ.

    Parameters
    ----------
    means : array-like of shape (k, d)

    Returns
    -------
    ndarray of shape (k, k)

    Examples
    --------
    >>> gaussians_tvd([[0.0], [2.0]])[0, 1].round(4)
    np.float64(0.6827)
    """
    centres = numeric_array("means", means, 2)
    return 2 * norm.cdf(cdist(centres, centres) / 2) - 1


def mixtures(
    weights: ArrayLike, separation: float, n_features: int, size: int, random_state: int = 0
) -> Data:
    """Draw clusters that mix the same two unit Gaussians in different shares.

    Parameters
    ----------
    weights : array-like of shape (k,)
        Share of each cluster that comes from the first Gaussian.
    separation : float
        Distance between the means of the two Gaussians.
    n_features : int
        Number of features; only the first one differs.
    size : int
        Observations of each cluster.
    random_state : int
        The same seed gives the same data.

    Returns
    -------
    X : ndarray of shape (k · size, n_features)
    labels : ndarray of shape (k · size,)
        Clusters 0, 1, …, k − 1.

    Examples
    --------
    >>> X, labels = mixtures([1.0, 0.5], separation=4.0, n_features=3, size=100)
    >>> X.shape, np.bincount(labels)
    ((200, 3), array([100, 100]))
    """
    share = _shares(weights, separation)
    check_whole("n_features", n_features, 1)
    labels, rng = _clusters(len(share), size, random_state)
    X = rng.standard_normal((len(labels), n_features))
    X[:, 0] += separation * (rng.random(len(labels)) >= share[labels])
    return X, labels


def mixtures_tvd(weights: ArrayLike, separation: float) -> NDArray[np.float64]:
    """Exact TVD between the clusters of :func:`mixtures`.

    It is the difference of the shares times the TVD between the two Gaussians.

    Parameters
    ----------
    weights : array-like of shape (k,)
    separation : float

    Returns
    -------
    ndarray of shape (k, k)

    Examples
    --------
    >>> mixtures_tvd([1.0, 0.5], 2.0)[0, 1].round(4)
    np.float64(0.3413)
    """
    share = _shares(weights, separation)
    components = 2 * norm.cdf(separation / 2) - 1
    return np.abs(share[:, None] - share) * components


def scaled_gaussians(scales: ArrayLike, size: int, random_state: int = 0) -> Data:
    """Draw clusters from one-dimensional Gaussians around zero with different scales.

    No linear boundary tells them apart.

    Parameters
    ----------
    scales : array-like of shape (k,)
        Standard deviation of each cluster.
    size : int
        Observations of each cluster.
    random_state : int
        The same seed gives the same data.

    Returns
    -------
    X : ndarray of shape (k · size, 1)
    labels : ndarray of shape (k · size,)
        Clusters 0, 1, …, k − 1.

    Examples
    --------
    >>> X, labels = scaled_gaussians([1.0, 5.0], 100)
    >>> X.shape, bool(X[labels == 1].std() > 3 * X[labels == 0].std())
    ((200, 1), True)
    """
    scale = _scales(scales)
    labels, rng = _clusters(len(scale), size, random_state)
    return scale[labels, None] * rng.standard_normal((len(labels), 1)), labels


def scaled_gaussians_tvd(scales: ArrayLike) -> NDArray[np.float64]:
    """Exact TVD between the clusters of :func:`scaled_gaussians`.

    Parameters
    ----------
    scales : array-like of shape (k,)

    Returns
    -------
    ndarray of shape (k, k)

    Examples
    --------
    >>> scaled_gaussians_tvd([1.0, 3.0])[0, 1].round(3)
    np.float64(0.484)
    """
    scale = _scales(scales)
    narrow, wide = np.minimum.outer(scale, scale), np.maximum.outer(scale, scale)
    # The narrow density is larger between −cross and cross.
    with np.errstate(invalid="ignore"):  # 0 / 0 for equal scales
        cross = narrow * wide * np.sqrt(2 * np.log(wide / narrow) / (wide**2 - narrow**2))
    return np.nan_to_num(2 * (norm.cdf(cross / narrow) - norm.cdf(cross / wide)))


def discrete(probabilities: ArrayLike, size: int, random_state: int = 0) -> Data:
    """Draw clusters from discrete distributions, as one-hot vectors.

    Parameters
    ----------
    probabilities : array-like of shape (k, m)
        Probability of each of m values in each cluster; rows sum to 1.
    size : int
        Observations of each cluster.
    random_state : int
        The same seed gives the same data.

    Returns
    -------
    X : ndarray of shape (k · size, m)
    labels : ndarray of shape (k · size,)
        Clusters 0, 1, …, k − 1.

    Examples
    --------
    >>> X, labels = discrete([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], 100)
    >>> X.shape, bool(X[labels == 0, 2].any())
    ((200, 3), False)
    """
    table = _probabilities(probabilities)
    labels, rng = _clusters(len(table), size, random_state)
    drawn = np.concatenate([rng.choice(table.shape[1], size, p=row) for row in table])
    return np.eye(table.shape[1])[drawn], labels


def discrete_tvd(probabilities: ArrayLike) -> NDArray[np.float64]:
    """Exact TVD between the clusters of :func:`discrete`: half the sum of absolute differences.

    Parameters
    ----------
    probabilities : array-like of shape (k, m)

    Returns
    -------
    ndarray of shape (k, k)

    Examples
    --------
    >>> discrete_tvd([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])[0, 1]
    np.float64(0.5)
    """
    table = _probabilities(probabilities)
    return cdist(table, table, "cityblock") / 2


def _clusters(
    k: int, size: int, random_state: int
) -> tuple[NDArray[np.int64], np.random.Generator]:
    """Labels of k clusters of one size, and what their observations are drawn by."""
    check_whole("size", size, 1)
    return np.repeat(np.arange(k), size), generator_of(random_state)


def _shares(weights: ArrayLike, separation: float) -> NDArray[np.float64]:
    """The checked weights of mixtures with this separation."""
    found = numeric_array("weights", weights, 1)
    if found.min() < 0 or found.max() > 1:
        raise InputError(f"weights must be shares from 0 to 1, got {shown(weights)}; correct them.")
    if not is_number(separation) or not 0 <= separation < np.inf:
        raise InputError(
            f"separation must be a distance of at least 0, got {shown(separation)}; 4 is usual."
        )
    return found


def _scales(scales: ArrayLike) -> NDArray[np.float64]:
    found = numeric_array("scales", scales, 1)
    if found.min() <= 0:
        raise InputError(f"scales must be greater than 0, got {shown(scales)}; correct them.")
    return found


def _probabilities(probabilities: ArrayLike) -> NDArray[np.float64]:
    found = numeric_array("probabilities", probabilities, 2)
    if found.min() < 0 or not np.allclose(found.sum(axis=1), 1):
        raise InputError(
            f"probabilities must be at least 0 and sum to 1 in each row, got "
            f"{shown(probabilities)}; divide each row by its sum."
        )
    return found
