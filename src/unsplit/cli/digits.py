"""Handwritten digits, cut into too many clusters: data that come with scikit-learn.

The true digits judge the result and are seen by nothing else.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from unsplit._typing import Index
from unsplit.data.readers.tables_and_arrays import Observations
from unsplit.merging.tree import MergeTree

N_PIECES = 40
N_DIGITS = 10


class Score(NamedTuple):
    """A clustering, its clusters, and its adjusted Rand index with the true digits."""

    name: str
    n_clusters: int
    rand_index: float


def overclustered_digits(seed: int = 0) -> tuple[Observations, Index]:
    """1,797 digits of 8 × 8 pixels with 40 clusters by k-means, and the true digits.

    Examples
    --------
    >>> digits, truth = overclustered_digits()
    >>> digits.X.shape, digits.feature_names[9], len(np.unique(digits.labels)), truth[:3]
    ((1797, 64), 'pixel_1_1', 40, array([0, 1, 2]))
    """
    X, truth = load_digits(return_X_y=True)
    labels = KMeans(N_PIECES, n_init=10, random_state=seed).fit_predict(X)
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    return Observations(X, names, np.arange(len(X)), labels.astype(np.int64)), truth


def scores(digits: Observations, tree: MergeTree, truth: ArrayLike, seed: int = 0) -> list[Score]:
    """How near the clusterings come to the true digits: before and after merging, and two rivals.

    Examples
    --------
    >>> import unsplit
    >>> digits, truth = overclustered_digits()
    >>> centres = np.stack([digits.X[digits.labels == c].mean(axis=0) for c in range(40)])
    >>> D = np.linalg.norm(centres[:, None] - centres, axis=2)
    >>> for score in scores(digits, unsplit.merge(D, n_clusters=12), truth):
    ...     print(f"{score.name}: {score.n_clusters}")
    k-means, cut too fine: 40
    merged: 12
    merged, told there are 10: 10
    Ward, told there are 10: 10
    k-means, told there are 10: 10
    """
    initial, told = np.asarray(digits.labels), f"told there are {N_DIGITS}"
    found = {
        "k-means, cut too fine": initial,
        "merged": tree.labels(initial),
        f"merged, {told}": tree.cut(n_clusters=N_DIGITS).labels(initial),
        f"Ward, {told}": AgglomerativeClustering(N_DIGITS).fit_predict(digits.X),
        f"k-means, {told}": KMeans(N_DIGITS, n_init=10, random_state=seed).fit_predict(digits.X),
    }
    return [
        Score(name, len(np.unique(labels)), float(adjusted_rand_score(truth, labels)))
        for name, labels in found.items()
    ]
