"""A second opinion on two clusters in few dimensions: do they lie in one lump or in two?

HDBSCAN finds lumps of observations with thinner ground between.  It takes structureless data in two
dimensions apart, so it does not decide; where it sees two lumps, a wider neck is asked for.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN

from unsplit._typing import Index

# A lump has at least this share of the observations, and this many.
SMALLEST_SHARE = 0.01
SMALLEST = 5

# Clusters share their lumps if the cosine between their counts is at least this.
SHARED = 0.5


class Lumps:
    """In which lumps the observations of every cluster lie.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    clusters : ndarray of shape (n,)
        Numbered from 0.
    n_clusters : int
    """

    def __init__(self, X: NDArray[np.float64], clusters: Index, n_clusters: int) -> None:
        size = max(SMALLEST, int(SMALLEST_SHARE * len(X)))
        lump = np.full(len(X), -1)
        if len(X) >= 2 * size:
            lump = HDBSCAN(min_cluster_size=size, copy=True).fit_predict(X)
        self.counts = np.zeros((n_clusters, max(int(lump.max()) + 1, 1)))
        inside = (lump >= 0) & (clusters >= 0)
        np.add.at(self.counts, (clusters[inside], lump[inside]), 1)

    def merge(self, a: int, b: int) -> None:
        """Put b into a."""
        self.counts[a] += self.counts[b]
        self.counts[b] = 0

    def shared(self, a: int, b: int) -> bool:
        """Whether two clusters lie in the same lumps; also if nothing is known."""
        left, right = self.counts[[a, b]]
        lengths = float(np.linalg.norm(left) * np.linalg.norm(right))
        return lengths == 0 or float(left @ right) >= SHARED * lengths
