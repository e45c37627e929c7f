"""Fit models with ever more groups, and keep the one with the best criterion."""

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances, silhouette_score
from sklearn.mixture import GaussianMixture

from benchmarks.peers.mixtures import mixture_of
from benchmarks.peers.task import Outcome, Task

MOST = 30
# All numbers up to ten, then fewer and fewer.
NUMBERS_OF_COMPONENTS = (*range(1, 11), 12, 14, 16, 18, 20, 22, 25, 28, MOST)
# A criterion that has become worse so often in a row is not waited for.
RISES = 3
STARTS = 3
MOST_COMPARED = 2000


def mixture_by_bic(task: Task) -> Outcome:
    """The Gaussian mixture with the least BIC."""
    best: GaussianMixture | None = None
    least = last = np.inf
    rises = 0
    for k in NUMBERS_OF_COMPONENTS:
        model = _fitted(task, k)
        bic = float(model.bic(task.X))
        rises = rises + 1 if bic > last else 0
        last = bic
        if bic < least:
            best, least = model, bic
        if rises == RISES:
            break
    assert best is not None
    return Outcome(automatic=best.predict(task.X).astype(np.int64))


def _fitted(task: Task, k: int) -> GaussianMixture:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return mixture_of(task.X, k, task.seed).fit(task.X)


def kmeans_by_silhouette(task: Task) -> Outcome:
    """k-means with the number from 2 to 30 that has the highest mean silhouette.

    The silhouette is that of at most 2,000 observations, the same ones for every number.
    """
    n = len(task.X)
    rows = np.random.default_rng(task.seed).permutation(n)[:MOST_COMPARED]
    distances = pairwise_distances(task.X[rows])
    answers = [_k_means(task, k) for k in range(2, min(MOST, n - 1) + 1)]

    def quality(labels: NDArray[np.int64]) -> float:
        if len(np.unique(labels[rows])) in (1, len(rows)):
            return -1.0  # a silhouette needs neighbours inside and outside
        return float(silhouette_score(distances, labels[rows], metric="precomputed"))

    return Outcome(automatic=max(answers, key=quality))


def _k_means(task: Task, k: int) -> NDArray[np.int64]:
    model = KMeans(k, n_init=STARTS, random_state=task.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct observations than k
        return model.fit_predict(task.X).astype(np.int64)
