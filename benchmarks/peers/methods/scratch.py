"""Clustering anew: k-means given the number, and HDBSCAN, which finds it."""

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.peers.task import Outcome, Task


def kmeans(task: Task) -> Outcome:
    """k-means with ten starts."""

    def at(n: int) -> NDArray[np.int64]:
        model = KMeans(n, n_init=10, random_state=task.seed)
        return model.fit_predict(task.X).astype(np.int64)

    return Outcome(at=at)


def hdbscan(task: Task) -> Outcome:
    """HDBSCAN as it comes; noise goes to its nearest neighbour's cluster, which is kindest."""
    labels = HDBSCAN(copy=True).fit_predict(task.X)
    return Outcome(automatic=without_noise(task.X, labels.astype(np.int64)))


def hdbscan_of_hundredths(task: Task) -> Outcome:
    """HDBSCAN told that a cluster has at least a hundredth of the observations."""
    model = HDBSCAN(min_cluster_size=max(5, len(task.X) // 100), copy=True)
    return Outcome(automatic=without_noise(task.X, model.fit_predict(task.X).astype(np.int64)))


def without_noise(X: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels where noise (−1) took those of the nearest clustered observation."""
    noise = labels < 0
    if noise.all() or not noise.any():
        return np.maximum(labels, 0)
    nearest = KNeighborsClassifier(1).fit(X[~noise], labels[~noise])
    filled = labels.copy()
    filled[noise] = nearest.predict(X[noise])
    return filled
