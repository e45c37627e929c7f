"""Handwritten digits from scikit-learn, cut into too many clusters.

The true digits are used only to score the result.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from unsplit._typing import Index
from unsplit.data.readers.observations import Observations
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.neighbours.refine import refine
from unsplit.merging.tree import MergeTree

N_PIECES = 40
N_DIGITS = 10


class Score(NamedTuple):
    """The name of a clustering, its number of clusters and its adjusted Rand index."""

    name: str
    n_clusters: int
    rand_index: float


def overclustered_digits(seed: int = 0) -> tuple[Observations, Index]:
    """Return 1,797 digits of 8 × 8 pixels in 40 clusters by k-means, and the true digits.

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


def scores(
    digits: Observations, tree: MergeTree, graph: NeighbourGraph, truth: ArrayLike, seed: int = 0
) -> list[Score]:
    """Score the clusters before and after merging, Ward and k-means against the true digits.

    Single digits of the merged clusters also move to the cluster of their neighbours ("refined").

    Examples
    --------
    >>> import unsplit
    >>> digits, truth = overclustered_digits()
    >>> centres = np.stack([digits.X[digits.labels == c].mean(axis=0) for c in range(40)])
    >>> D = np.linalg.norm(centres[:, None] - centres, axis=2)
    >>> graph = unsplit.neighbour_graph(digits.X, digits.labels)
    >>> for score in scores(digits, unsplit.merge(D, n_clusters=12), graph, truth):
    ...     print(f"{score.name}: {score.n_clusters}")
    k-means, before merging: 40
    merged: 12
    merged and refined: 12
    merged, given the number 10: 10
    merged and refined, given the number 10: 10
    Ward, given the number 10: 10
    k-means, given the number 10: 10
    """
    initial, given = np.asarray(digits.labels), f"given the number {N_DIGITS}"
    merged, ten = tree.labels(initial), tree.cut(n_clusters=N_DIGITS).labels(initial)
    clusterings = {
        "k-means, before merging": initial,
        "merged": merged,
        "merged and refined": refine(merged, graph),
        f"merged, {given}": ten,
        f"merged and refined, {given}": refine(ten, graph),
        f"Ward, {given}": AgglomerativeClustering(N_DIGITS).fit_predict(digits.X),
        f"k-means, {given}": KMeans(N_DIGITS, n_init=10, random_state=seed).fit_predict(digits.X),
    }
    return [
        Score(name, len(np.unique(labels)), float(adjusted_rand_score(truth, labels)))
        for name, labels in clusterings.items()
    ]
