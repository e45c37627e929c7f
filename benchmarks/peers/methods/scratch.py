"""Clustering anew: k-means, Genie, Lumbermark and spectral given the number; HDBSCAN and PLSCAN,
which find it.
"""

import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, KMeans, SpectralClustering
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.peers.task import Outcome, Task


def kmeans(task: Task) -> Outcome:
    """k-means with ten starts."""

    def at(n: int) -> NDArray[np.int64]:
        model = KMeans(n, n_init=10, random_state=task.seed)
        return model.fit_predict(task.X).astype(np.int64)

    return Outcome(at=at)


def genie(task: Task) -> Outcome:
    """Genie (Gagolewski et al. 2016) as it comes: single linkage that keeps sizes from diverging.

    The package is under the AGPL; it is only ever compared with, never used by the library.
    """
    Genie = _genie()

    def at(n: int) -> NDArray[np.int64]:
        return np.asarray(Genie(n_clusters=n).fit_predict(task.X), np.int64)

    return Outcome(at=at)


def _genie() -> Any:
    try:
        from genieclust import Genie
    except ImportError:
        raise ImportError("Genie needs genieclust: pip install unsplit[peers]") from None
    return Genie


def lumbermark(task: Task) -> Outcome:
    """Lumbermark (Gagolewski 2026) as it comes: it chops limbs off a minimum spanning tree.

    It may find fewer than it was asked for.  Under the AGPL, like Genie.
    """
    try:
        from lumbermark import Lumbermark
    except ImportError:
        raise ImportError("Lumbermark needs lumbermark: pip install unsplit[peers]") from None

    def at(n: int) -> NDArray[np.int64]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fewer clusters
            return np.asarray(Lumbermark(n).fit_predict(task.X), np.int64)

    return Outcome(at=at)


def spectral(task: Task) -> Outcome:
    """Spectral clustering of the graph of 15 nearest neighbours."""

    def at(n: int) -> NDArray[np.int64]:
        if n == 1:
            return np.zeros(len(task.X), np.int64)
        model = SpectralClustering(
            n,
            affinity="nearest_neighbors",
            n_neighbors=15,
            assign_labels="cluster_qr",
            random_state=task.seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of graphs in several pieces
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


def plscan(task: Task) -> Outcome:
    """PLSCAN (Bot, McInnes and Aerts 2025) of fast_hdbscan as it comes; noise as for HDBSCAN."""
    try:
        from fast_hdbscan import PLSCAN
    except ImportError:
        raise ImportError("PLSCAN needs fast_hdbscan: pip install unsplit[peers]") from None
    PLSCAN().fit(task.X)  # Numba may compile for a minute, which is not counted
    start = time.process_time()
    labels = without_noise(task.X, PLSCAN().fit(task.X).labels_.astype(np.int64))
    return Outcome(automatic=labels, seconds=time.process_time() - start)


def without_noise(X: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels where noise (−1) took those of the nearest clustered observation."""
    noise = labels < 0
    if noise.all() or not noise.any():
        return np.maximum(labels, 0)
    nearest = KNeighborsClassifier(1).fit(X[~noise], labels[~noise])
    filled = labels.copy()
    filled[noise] = nearest.predict(X[noise])
    return filled
