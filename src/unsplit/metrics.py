"""How good are distances and merges, when the true categories are known?

For evaluation only: nothing that estimates or merges imports this module.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_auc_score
from sklearn.metrics.cluster import contingency_matrix

from unsplit.data.labels import encode_labels, label_array
from unsplit.errors import InputError, numeric_array, shown


def majority_categories(labels: ArrayLike, categories: ArrayLike) -> NDArray[Any]:
    """M(S): the most frequent category of each cluster.

    Ties go to the category that sorts first.

    Parameters
    ----------
    labels : array-like of shape (n,)
        The clusters: integers or strings; −1 and missing values mean noise and are left out.
    categories : array-like of shape (n,)
        The true category of each observation.

    Returns
    -------
    ndarray of shape (k,)
        In the order of the sorted labels.

    Examples
    --------
    >>> majority_categories([0, 0, 0, 1, 1], ["cat", "cat", "dog", "dog", "dog"])
    array(['cat', 'dog'], dtype='<U3')
    """
    names, table = _contingency(labels, categories)
    return names[table.argmax(axis=1)]


def purity(labels: ArrayLike, categories: ArrayLike) -> float:
    """Share of clustered observations that belong to the majority category of their cluster.

    Parameters
    ----------
    labels, categories
        As for :func:`majority_categories`.

    Returns
    -------
    float

    Examples
    --------
    >>> purity([0, 0, 0, 1, 1], ["cat", "cat", "dog", "dog", "dog"])
    0.8
    """
    _, table = _contingency(labels, categories)
    return float(table.max(axis=1).sum() / table.sum())


def n_unique_majorities(labels: ArrayLike, categories: ArrayLike) -> int:
    """Number of categories that are the majority of at least one cluster.

    Parameters
    ----------
    labels, categories
        As for :func:`majority_categories`.

    Returns
    -------
    int

    Examples
    --------
    >>> n_unique_majorities([0, 0, 1, 2], ["cat", "cat", "cat", "dog"])
    2
    """
    return len(np.unique(majority_categories(labels, categories)))


def quality(distances: ArrayLike, majorities: ArrayLike) -> float:
    """Q(D): how well distances separate pairs of one category from pairs of two.

    Q is the chance that two clusters of the same category are closer than two clusters of
    different categories; ties count half.

    Parameters
    ----------
    distances : array-like of shape (k, k)
    majorities : array-like of shape (k,)
        Majority category of each cluster (:func:`majority_categories`).

    Returns
    -------
    float
        From 0 to 1; 0.5 for random distances.

    Examples
    --------
    >>> quality([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], ["cat", "cat", "dog"])
    1.0
    """
    category = label_array(majorities, "majorities")
    matrix = numeric_array("distances", distances, 2)
    if category.ndim != 1 or matrix.shape != (len(category),) * 2:
        raise InputError(
            f"distances must have one row and one column for each entry of majorities, got shapes "
            f"{matrix.shape} and {category.shape}; pass both for the same clusters."
        )
    upper = np.triu_indices(len(category), 1)
    different = (category[:, None] != category)[upper]
    if different.all() or not different.any():
        raise InputError(
            "majorities must give both pairs of clusters of the same category and pairs of "
            f"different categories, got only pairs of "
            f"{'different categories' if different.all() else 'the same category'}; pass more "
            "clusters."
        )
    return float(roc_auc_score(different, matrix[upper]))


def correct_merges(merges: ArrayLike, cluster_categories: ArrayLike) -> NDArray[np.int64]:
    """CM(1), CM(2), …: how many of the first merges joined clusters of the same majority category.

    Parameters
    ----------
    merges : array-like of shape (m, 2)
        As in a SciPy linkage: clusters 0 … k−1 are the initial ones, merge t makes cluster k+t.
    cluster_categories : array-like of shape (k, n_categories)
        Observations of each category in each initial cluster (:func:`category_counts`).

    Returns
    -------
    ndarray of shape (m,)
        Number of correct merges among the first 1, 2, …, m.

    Examples
    --------
    >>> correct_merges([(0, 1), (3, 2)], [[5, 0], [4, 1], [0, 5]])
    array([1, 1])
    """
    tables = list(numeric_array("cluster_categories", cluster_categories, 2))
    nothing = isinstance(merges, (list, tuple, np.ndarray)) and len(merges) == 0
    pairs = np.empty((0, 2)) if nothing else numeric_array("merges", merges, 2)
    made = len(tables) + np.arange(len(pairs))
    if pairs.shape[1] != 2 or (pairs < 0).any() or (pairs >= made[:, None]).any():
        raise InputError(
            f"merges must be pairs of clusters from 0 that exist when they are merged, got "
            f"{shown(merges)}; pass the first two columns of a linkage."
        )
    right = []
    for a, b in pairs.astype(np.int64):
        right.append(tables[a].argmax() == tables[b].argmax())
        tables.append(tables[a] + tables[b])
    return np.cumsum(right).astype(np.int64)


def category_counts(labels: ArrayLike, categories: ArrayLike) -> NDArray[np.int64]:
    """Number of observations of each category in each cluster.

    Parameters
    ----------
    labels, categories
        As for :func:`majority_categories`.

    Returns
    -------
    ndarray of shape (k, n_categories)
        Clusters and categories are sorted.

    Examples
    --------
    >>> category_counts([0, 0, 0, 1, 1], ["cat", "cat", "dog", "dog", "dog"])
    array([[2, 1],
           [0, 2]])
    """
    return _contingency(labels, categories)[1]


def _contingency(
    labels: ArrayLike, categories: ArrayLike
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    category = label_array(categories, "categories")
    if category.ndim != 1:
        raise InputError(
            f"categories must be one category per observation, got shape {category.shape}; pass a "
            "one-dimensional array."
        )
    encoded = encode_labels(labels, len(category))
    used = encoded.clusters >= 0
    names, index = np.unique(category[used], return_inverse=True)
    return names, contingency_matrix(encoded.clusters[used], index, dtype=np.int64)
