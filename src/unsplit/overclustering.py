"""Ways to get more clusters than there are categories.

Any scikit-learn clusterer, dense clusters of one size (the paper's Algorithm 1), and known
categories cut at random.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.cluster import KMeans

from unsplit._typing import Index, Matrix
from unsplit.data.labels import encode_labels, label_array, refuse_annotated
from unsplit.devices import generator_of, seeded
from unsplit.errors import InputError, check_whole, is_number, numeric_array, option, shown

__all__ = ["artificial", "default_clusterer", "greedy_dense", "overcluster"]

# Observations whose distances to all others are computed at once.
AT_ONCE = 32


def overcluster(X: Any, clusterer: Any = None, random_state: object = None) -> NDArray[np.int64]:
    """Over-cluster X with a scikit-learn clusterer.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Anything that the clusterer accepts.
    clusterer : scikit-learn clusterer or pipeline, optional
        Must have ``fit_predict``.  A copy is fitted, so the object you pass is not changed.  By
        default :func:`default_clusterer`.
    random_state : int, Generator, RandomState or None
        Replaces every ``random_state`` of the clusterer that is None, also within a pipeline.

    Returns
    -------
    ndarray of shape (n,)
        At least two clusters; −1 for noise.

    Examples
    --------
    >>> from sklearn.cluster import DBSCAN
    >>> overcluster([[0.0], [0.1], [5.0], [5.1], [9.0]], DBSCAN(eps=1, min_samples=2))
    array([ 0,  0,  1,  1, -1])
    """
    refuse_annotated(X)
    if not hasattr(X, "shape"):
        X = numeric_array("X", X, 2)
    elif len(X.shape) < 2:
        raise InputError(
            f"X must be a table of vectors, got shape {tuple(X.shape)}; pass one row per "
            "observation."
        )
    if clusterer is None:
        clusterer = default_clusterer(X.shape[0])
    check_clusterer("clusterer", clusterer)
    labels = np.asarray(seeded(clone(clusterer), random_state).fit_predict(X), np.int64)
    n_found = len(np.unique(labels[labels >= 0]))
    if n_found < 2:
        raise InputError(
            f"clusterer must find at least 2 clusters, but {clusterer!r} found {n_found}; change "
            "its parameters so that it finds more and smaller clusters."
        )
    return labels


def check_clusterer(name: str, clusterer: object) -> None:
    """Raise an error unless an object is a clusterer as scikit-learn defines it.

    Examples
    --------
    >>> check_clusterer("clusterer", KMeans(40))
    """
    if isinstance(clusterer, type) or not hasattr(clusterer, "fit_predict"):
        raise InputError(
            f"{name} must be a scikit-learn object with fit_predict, got {shown(clusterer)}; pass "
            "for example sklearn.cluster.KMeans(40)."
        )


def default_clusterer(n_observations: int, at_least: int = 2) -> KMeans:
    """k-means with about √n clusters, for data without an over-clustering.

    Parameters
    ----------
    n_observations : int
        Number of observations, n.
    at_least : int
        The fewest clusters, as long as there are as many observations.

    Returns
    -------
    sklearn.cluster.KMeans
        Not fitted.

    Notes
    -----
    Two categories that share a cluster can never be separated again, while a category in many
    clusters only costs time, so there should be several times more clusters than categories.  On
    the other hand, a cluster needs about ten observations to be compared.  With √n clusters of
    about √n observations, both number and size grow with n.  Below n = 100, where √n is less than
    ten, there are n/10 clusters.

    Examples
    --------
    >>> [default_clusterer(n).n_clusters for n in (30, 100, 1797, 100_000)]
    [3, 10, 42, 316]
    """
    check_whole("n_observations", n_observations, 1)
    check_whole("at_least", at_least, 1)
    n_clusters = min(round(math.sqrt(n_observations)), n_observations // 10)
    return KMeans(min(max(2, at_least, n_clusters), n_observations))


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
    check_whole("size", size, 1, "it is the number of observations per cluster")
    counts = np.bincount(category[category >= 0])
    if counts.max() < size:
        raise InputError(
            f"size must be at most {counts.max()}, the size of the largest category, got {size}; "
            "pass a smaller size."
        )
    n_clusters = counts // size
    if not is_number(noise) or not 0 <= noise < 1 or (noise and (n_clusters > 0).sum() == 1):
        raise InputError(
            "noise must be at least 0 and less than 1, and 0 if only one category is large enough "
            f"for a cluster, got {shown(noise)}; it is the share of observations to move."
        )
    rng = generator_of(random_state)
    order = np.lexsort((rng.random(len(category)), category))
    order = order[category[order] >= 0]
    own, first = category[order], np.cumsum(n_clusters) - n_clusters
    rank = np.arange(len(order)) - np.searchsorted(own, own)
    labels = np.full(len(category), -1, np.int64)
    labels[order] = np.where(rank < size * n_clusters[own], first[own] + rank // size, -1)
    clustered = np.flatnonzero(labels >= 0)
    moved = rng.choice(clustered, round(noise * len(clustered)), replace=False)
    # To a random cluster among those of the other categories, stepping over its own.
    own = category[moved]
    drawn = rng.integers(n_clusters.sum() - n_clusters[own])
    labels[moved] = drawn + np.where(drawn >= first[own], n_clusters[own], 0)
    return labels


def greedy_dense(R: ArrayLike, n_clusters: int, size: int) -> NDArray[np.int64]:
    """Find the densest clusters of exactly ``size`` observations, one after the other.

    Every free observation and its ``size`` − 1 nearest free observations form a candidate.  Its
    density is measured by the mean Euclidean distance from that observation to the others.  The
    densest candidate becomes a cluster, and its members are no longer free.  The remaining
    observations are noise: a partial clustering of the dense regions is purer than a full one.

    Parameters
    ----------
    R : array-like of shape (n, d)
        Representations of the observations.
    n_clusters : int
        How many clusters to find.
    size : int
        Members of each cluster, at least 2.

    Returns
    -------
    ndarray of shape (n,)
        Clusters 0, 1, … in the order in which they were found, densest first; −1 for noise.  Ties
        go to the observation that comes first.

    Notes
    -----
    The cost is somewhat more than all n² distances once.  Memory holds the distances of 32
    observations, never an (n, n) array.

    Examples
    --------
    >>> greedy_dense([[0.0], [0.1], [5.0], [5.3], [9.0]], n_clusters=2, size=2)
    array([ 0,  0,  1,  1, -1])
    """
    refuse_annotated(R, "R")
    points = numeric_array("R", R, 2)
    check_whole("size", size, 2, "density is measured between neighbours")
    check_whole("n_clusters", n_clusters, 1)
    if n_clusters * size > len(points):
        raise InputError(
            f"{option('n_clusters', n_clusters)} clusters of {option('size', size)} need "
            f"{n_clusters * size} observations, but R has {len(points)}; pass at most "
            f"{option('n_clusters', len(points) // size)} or a smaller size."
        )
    labels = np.full(len(points), -1, np.int64)
    sums = np.zeros(len(points))
    for cluster in range(n_clusters):
        free = np.flatnonzero(labels < 0)
        seed = _densest(points, free, sums, size)
        distances = cdist(points[[seed]], points[free])[0]
        labels[free[np.argsort(distances, kind="stable")[:size]]] = cluster
    return labels


def _densest(points: Matrix, free: Index, sums: Matrix, size: int) -> int:
    """The free observation whose nearest free observations have the smallest sum of distances.

    ``sums`` holds these sums from earlier searches.  Since then they can only have grown, so only
    candidates are computed again whose old sum is not above the smallest new one.
    """
    candidates = free[np.argsort(sums[free], kind="stable")]
    smallest = np.inf
    for start in range(0, len(candidates), AT_ONCE):
        some = candidates[start : start + AT_ONCE]
        if sums[some[0]] > smallest:
            break
        # Computed from differences, distances are exact to the last digits.
        nearest = np.partition(cdist(points[some], points[free]), size - 1, axis=1)[:, :size]
        # In order, so that sums of the same distances are the same and ties are found.
        sums[some] = np.sort(nearest, axis=1).sum(axis=1)
        smallest = min(smallest, sums[some].min())
    return int(free[sums[free].argmin()])
