"""Over-clusterings made from known categories, with any purity."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit.data.labels import encode_labels, label_array
from unsplit.devices import generator_of
from unsplit.errors import InputError, check_whole, is_number, shown


def artificial(
    categories: ArrayLike, size: int, noise: float = 0.0, random_state: object = None
) -> NDArray[np.int64]:
    """Cut every category at random into clusters of one size, and optionally add noise.

    The correct merges of such an over-clustering are known, so it shows how well a method finds
    them.

    Parameters
    ----------
    categories : array-like of shape (n,)
        Integers or strings; observations with −1 or a missing category are left out.
    size : int
        Observations in each cluster before noise is added.
    noise : float
        Share of the clustered observations, chosen at random, that are moved to a random cluster
        of another category.  The purity is then about 1 − ``noise``.
    random_state : int, Generator, RandomState or None
        The same seed gives the same clusters.

    Returns
    -------
    ndarray of shape (n,)
        Clusters 0, 1, … in the order of the sorted categories.  −1 marks observations that were
        left out, and the remainder of each category that was too small for another cluster.
        With noise, very small clusters may lose all their members.

    Examples
    --------
    >>> labels = artificial(["cat"] * 5 + ["dog"] * 4, size=2, random_state=0)
    >>> np.bincount(labels + 1)  # one cat is left over
    array([1, 2, 2, 2, 2])
    """
    encoded = encode_labels(label_array(categories, "categories"), at_least=1)
    category = encoded.clusters
    n_clusters = _clusters_of_each(category, size)
    _check_noise(noise, n_clusters, encoded.cluster_ids)
    rng = generator_of(random_state)
    labels = _cut(category, n_clusters, size, rng)
    clustered = np.flatnonzero(labels >= 0)
    moved = rng.choice(clustered, round(noise * len(clustered)), replace=False)
    labels[moved] = _elsewhere(category[moved], n_clusters, rng)
    return labels


def _cut(
    category: NDArray[np.int64],
    n_clusters: NDArray[np.int64],
    size: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Deal each category's members, in random order, to its clusters."""
    order = np.lexsort((rng.random(len(category)), category))
    order = order[category[order] >= 0]
    own = category[order]
    rank = np.arange(len(order)) - np.searchsorted(own, own)
    first = np.cumsum(n_clusters) - n_clusters
    labels = np.full(len(category), -1, np.int64)
    labels[order] = np.where(rank < size * n_clusters[own], first[own] + rank // size, -1)
    return labels


def _elsewhere(
    category: NDArray[np.int64], n_clusters: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """For each observation a random cluster among those of the other categories."""
    own = n_clusters[category]
    first = (np.cumsum(n_clusters) - n_clusters)[category]
    drawn = rng.integers(n_clusters.sum() - own)
    return drawn + np.where(drawn >= first, own, 0)  # step over the own clusters


def _clusters_of_each(category: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    check_whole("size", size, 1, "it is the number of observations per cluster")
    counts = np.bincount(category[category >= 0])
    if counts.max() < size:
        raise InputError(
            f"size must be at most {counts.max()}, the size of the largest category, got {size}; "
            "pass a smaller size."
        )
    return counts // size


def _check_noise(noise: float, n_clusters: NDArray[np.int64], names: NDArray[Any]) -> None:
    if not is_number(noise) or not 0 <= noise < 1:
        raise InputError(
            f"noise must be at least 0 and less than 1, got {shown(noise)}; it is the share of "
            "observations to move."
        )
    if noise > 0 and len(names) == 1:
        raise InputError(
            f"noise must be 0 because there is only one category ({names[0]!s}), got {noise}; "
            "pass noise=0 or at least two categories."
        )
    if noise > 0 and (n_clusters > 0).sum() == 1:
        raise InputError(
            "noise must be 0 because only one category is large enough for a cluster of this "
            f"size, got {noise}; pass noise=0 or a smaller size."
        )
