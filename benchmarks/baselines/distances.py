"""Distances between clusters, computed from the observations themselves.

They are float64 (k, k), symmetric, with a zero diagonal, in the order of the sorted cluster names.
"""

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from sklearn.metrics import euclidean_distances

from unsplit._typing import Index, Matrix
from unsplit.data.labels import encode_labels
from unsplit.data.rows.kinds import numeric_matrix
from unsplit.original import mean_distances


def euclidean(X: ArrayLike, labels: ArrayLike) -> Matrix:
    """Mean Euclidean distance over all pairs (a of cluster i, b of cluster j).

    The baseline of Reiser et al. (2019).  Time grows with n², memory does not.  Distances come
    from inner products, so those below about 1e-8 of the spread of X are lost in rounding.

    Parameters
    ----------
    X : array-like or SciPy sparse matrix of shape (n, d)
    labels : array-like of shape (n,)
        Integers or strings; −1 and missing values mean noise, left out.

    Returns
    -------
    ndarray of shape (k, k)

    Examples
    --------
    >>> euclidean([[0.0], [2.0], [5.0]], ["a", "a", "b"])
    array([[0., 4.],
           [4., 0.]])
    """
    return _as_distance(mean_distances(*_grouped(X, labels)))


def energy(X: ArrayLike, labels: ArrayLike) -> Matrix:
    """Energy distance 2 E|A − B| − E|A − A'| − E|B − B'|, with no root taken.

    Expectations are over the observations as they are, each paired with itself too (the
    V-statistic).  So the distance is never negative, zero only for clusters of the same points,
    and defined for a cluster of one; but the smaller the clusters, the more it exceeds that of
    the distributions they came from.

    Parameters
    ----------
    X, labels
        As for :func:`euclidean`, whose pairs it shares.

    Returns
    -------
    ndarray of shape (k, k)

    Examples
    --------
    >>> energy([[0.0], [2.0], [5.0]], ["a", "a", "b"])  # 2·4 − 1 − 0
    array([[0., 7.],
           [7., 0.]])
    """
    mean = mean_distances(*_grouped(X, labels))
    within = np.diag(mean)
    # Rounding alone could make it negative.
    return _as_distance(np.maximum(2 * mean - within - within[:, None], 0.0))


def centroid(X: ArrayLike, labels: ArrayLike) -> Matrix:
    """Euclidean distance between cluster means.

    Parameters
    ----------
    X, labels
        As for :func:`euclidean`.

    Returns
    -------
    ndarray of shape (k, k)

    Examples
    --------
    >>> centroid([[0.0], [2.0], [5.0]], ["a", "a", "b"])
    array([[0., 4.],
           [4., 0.]])
    """
    values, sizes = _grouped(X, labels)
    ends = np.append(0, np.cumsum(sizes))
    averaging = scipy.sparse.csr_array(
        (np.repeat(1 / sizes, sizes), np.arange(ends[-1]), ends), shape=(len(sizes), ends[-1])
    )
    return _as_distance(euclidean_distances(averaging @ values))


def _grouped(X: ArrayLike, labels: ArrayLike) -> tuple[Any, Index]:
    """The clustered rows in float64, cluster after cluster, and the sizes of the clusters."""
    values = numeric_matrix(X)
    encoded = encode_labels(labels, values.shape[0])
    order = np.argsort(encoded.clusters, kind="stable")[encoded.n_noise :]
    sizes = np.bincount(encoded.clusters[order])
    rows = values[order].astype(np.float64)
    if not scipy.sparse.issparse(rows):
        # Inner products lose the digits that a large common offset takes up.
        rows -= np.median(rows, axis=0)
    return rows, sizes


def _as_distance(values: Matrix) -> Matrix:
    values = (values + values.T) / 2
    np.fill_diagonal(values, 0.0)
    return values
