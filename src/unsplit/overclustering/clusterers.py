"""Any scikit-learn clusterer as the maker of an over-clustering."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans

from unsplit.errors import InputError
from unsplit.randomness import generator_of


def overcluster(X: Any, clusterer: Any = None, random_state: object = None) -> NDArray[np.int64]:
    """Labels from a copy of the clusterer; the one passed in stays as it is.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Whatever the clusterer takes.
    clusterer : scikit-learn clusterer or pipeline, optional
        With ``fit_predict``; :func:`default_clusterer` if left out.
    random_state : int, Generator, RandomState or None
        Seeds every ``random_state`` of the clusterer that is None, in a pipeline too.

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
    if clusterer is None:
        clusterer = default_clusterer(X.shape[0] if hasattr(X, "shape") else len(X))
    if isinstance(clusterer, type) or not hasattr(clusterer, "fit_predict"):
        raise InputError(
            f"the clusterer must be a scikit-learn object with fit_predict, got {clusterer!r}; "
            "pass for example sklearn.cluster.KMeans(40)."
        )
    labels = np.asarray(_seeded(clone(clusterer), random_state).fit_predict(X), np.int64)
    n_found = len(np.unique(labels[labels >= 0]))
    if n_found < 2:
        raise InputError(
            f"{clusterer!r} found {'only one' if n_found else 'no'} cluster, so there is "
            "no pair to compare; let it make more and smaller ones."
        )
    return labels


def default_clusterer(n_observations: int, at_least: int = 2) -> KMeans:
    """k-means with √n clusters: for those who have no over-clustering yet.

    Two categories in one cluster are never parted again, while a category in many clusters only
    costs time, so there should be several times more clusters than categories.  On the other side,
    a cluster needs about ten observations to be compared.  √n clusters of √n observations grow
    in number and in size alike; below n = 100, where √n is less than ten, there are n/10.  There
    are ``at_least`` as many as asked for, if there are as many observations.

    Examples
    --------
    >>> [default_clusterer(n).n_clusters for n in (30, 100, 1797, 100_000)]
    [3, 10, 42, 316]
    """
    n_clusters = min(round(math.sqrt(n_observations)), n_observations // 10)
    return KMeans(min(max(2, at_least, n_clusters), n_observations))


def _seeded(clusterer: Any, random_state: object) -> Any:
    """Our own seed wherever scikit-learn would turn to NumPy's global one."""
    rng = generator_of(random_state)
    unset = [
        name
        for name, value in sorted(clusterer.get_params(deep=True).items())
        if name.split("__")[-1] == "random_state" and value is None
    ]
    return clusterer.set_params(**{name: int(rng.integers(2**31)) for name in unset})
