"""How good are distances and merges, when the true categories are known?

For evaluation only: nothing that estimates or merges imports this module.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_auc_score

from unsplit.data.labels import encode_labels
from unsplit.errors import InputError


def majority_categories(labels: ArrayLike, categories: ArrayLike) -> NDArray[Any]:
    """M(S): the most frequent category of each cluster, in the order of the sorted labels.

    Ties go to the category that sorts first.  Noise is left out.

    Examples
    --------
    >>> majority_categories([0, 0, 0, 1, 1], ["cat", "cat", "dog", "dog", "dog"])
    array(['cat', 'dog'], dtype='<U3')
    """
    names, table = _contingency(labels, categories)
    return names[table.argmax(axis=1)]


def purity(labels: ArrayLike, categories: ArrayLike) -> float:
    """Share of clustered observations that belong to their cluster's majority category.

    Examples
    --------
    >>> purity([0, 0, 0, 1, 1], ["cat", "cat", "dog", "dog", "dog"])
    0.8
    """
    _, table = _contingency(labels, categories)
    return float(table.max(axis=1).sum() / table.sum())


def n_unique_majorities(labels: ArrayLike, categories: ArrayLike) -> int:
    """Number of categories that are some cluster's majority.

    Examples
    --------
    >>> n_unique_majorities([0, 0, 1, 2], ["cat", "cat", "cat", "dog"])
    2
    """
    return len(np.unique(majority_categories(labels, categories)))


def quality(distances: ArrayLike, majorities: ArrayLike) -> float:
    """Q(D): chance that a pair of one category is closer than a pair of two; ties count half.

    Parameters
    ----------
    distances : array-like of shape (k, k)
    majorities : array-like of shape (k,)
        Majority category of each cluster.

    Examples
    --------
    >>> quality([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], ["cat", "cat", "dog"])
    1.0
    """
    matrix, category = np.asarray(distances), np.asarray(majorities)
    upper = np.triu_indices(len(category), 1)
    different = (category[:, None] != category)[upper]
    if different.all() or not different.any():
        raise InputError(
            "Q needs pairs of clusters of one category and pairs of two; here all pairs are alike."
        )
    return float(roc_auc_score(different, matrix[upper]))


def mean_accuracy(balanced_accuracy: ArrayLike) -> float:
    """A(D): mean over the upper triangle; no categories needed.

    Examples
    --------
    >>> mean_accuracy([[0.5, 1.0, 0.75], [1.0, 0.5, 0.5], [0.75, 0.5, 0.5]])
    0.75
    """
    matrix = np.asarray(balanced_accuracy)
    return float(matrix[np.triu_indices(len(matrix), 1)].mean())


def correct_merges(merges: ArrayLike, cluster_categories: ArrayLike) -> NDArray[np.int64]:
    """CM(1), CM(2), …: how many of the first merges joined clusters of one majority category.

    Parameters
    ----------
    merges : array-like of shape (m, 2)
        As in a SciPy linkage: clusters 0 … k−1 are the initial ones, merge t makes cluster k+t.
    cluster_categories : array-like of shape (k, n_categories)
        Observations of each category in each initial cluster (:func:`category_counts`).

    Examples
    --------
    >>> correct_merges([(0, 1), (3, 2)], [[5, 0], [4, 1], [0, 5]])
    array([1, 1])
    """
    tables = list(np.asarray(cluster_categories))
    right = []
    for a, b in np.asarray(merges, np.int64):
        right.append(tables[a].argmax() == tables[b].argmax())
        tables.append(tables[a] + tables[b])
    return np.cumsum(right).astype(np.int64)


def category_counts(labels: ArrayLike, categories: ArrayLike) -> NDArray[np.int64]:
    """Observations of each category in each cluster, shape (k, n_categories).

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
    category = np.asarray(categories)
    encoded = encode_labels(labels, len(category))
    used = encoded.clusters >= 0
    names, index = np.unique(category[used], return_inverse=True)
    table = np.zeros((len(encoded.cluster_ids), len(names)), np.int64)
    np.add.at(table, (encoded.clusters[used], index), 1)
    return names, table
