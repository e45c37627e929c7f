"""A second opinion on clusters in few dimensions: whether HDBSCAN puts two into the same lump.

HDBSCAN finds lumps, regions of high density.  It also splits structureless data in two dimensions,
so it does not decide alone; if it puts two clusters into different lumps, a wider neck is required.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN

from unsplit._typing import Index

# Smallest lump, as a share and as a number of observations.
SMALLEST_SHARE = 0.01
SMALLEST = 5

# Two clusters lie in the same lumps if the cosine between their counts is at least this.
SHARED = 0.5


class Lumps:
    """Counts of the observations of every cluster in every lump.

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
        """Merge b into a."""
        self.counts[a] += self.counts[b]
        self.counts[b] = 0

    def shared(self, a: int, b: int) -> bool:
        """Whether two clusters lie in the same lumps; True if one lies in none."""
        left, right = self.counts[[a, b]]
        lengths = float(np.linalg.norm(left) * np.linalg.norm(right))
        return lengths == 0 or float(left @ right) >= SHARED * lengths
