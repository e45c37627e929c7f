"""The nearest neighbours of every observation: exact where that is quick, else by clusters."""

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from unsplit._typing import Index, Matrix

# A tree finds neighbours quickly in few dimensions only; comparing everything with everything
# takes seconds for so many observations.
DIMENSIONS_FOR_TREES = 8
MOST_FOR_EXACT = 20_000

# Each cluster's observations are compared with those of this many nearest clusters, itself
# included, and with at least this many observations for each neighbour that is wanted.
CLUSTERS_SEARCHED = 8
COMPARED_FOR_EACH = 100
# Distances in memory at a time.
MOST_AT_ONCE = 2**26


def nearest(
    X: Matrix, n_neighbours: int, clusters: Index, device: torch.device | None = None
) -> tuple[Index, Matrix]:
    """The nearest neighbours of every observation, itself left out, and their distances.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    n_neighbours : int
        Fewer than n.
    clusters : ndarray of shape (n,)
        The over-clustering, −1 for noise.  Where comparing all with all would take long, only the
        nearest clusters of each cluster are searched: the over-clustering is an inverted file.
    device : torch.device, optional
        Where to search by clusters.

    Returns
    -------
    ndarrays of shape (n, n_neighbours)
        Rows, and Euclidean distances; nearest first.

    Examples
    --------
    >>> rows, distances = nearest(np.array([[0.0], [1.0], [3.0]]), 1, np.zeros(3, np.int64))
    >>> rows.ravel(), distances.ravel()
    (array([1, 0, 1]), array([1., 1., 2.]))
    """
    if X.shape[1] <= DIMENSIONS_FOR_TREES or len(X) <= MOST_FOR_EXACT:
        method = "kd_tree" if X.shape[1] <= DIMENSIONS_FOR_TREES else "brute"
        model = NearestNeighbors(n_neighbors=n_neighbours, algorithm=method).fit(X)
        distances, rows = model.kneighbors()
        return rows.astype(np.int64), distances
    return by_clusters(X, n_neighbours, clusters, device or torch.device("cpu"))


def by_clusters(
    X: Matrix, n_neighbours: int, clusters: Index, device: torch.device
) -> tuple[Index, Matrix]:
    """Neighbours among the observations of the nearest clusters only.

    Noise is searched, and searches, as if every observation belonged to the nearest mean.
    """
    clusters = np.zeros(len(X), np.int64) if clusters.max() < 0 else clusters
    means = _means(X, clusters)
    cells = _nearest_mean(X, means) if (clusters < 0).any() else clusters
    order = np.argsort(cells, kind="stable")
    ends = np.searchsorted(cells[order], np.arange(len(means) + 1))
    near = np.argsort(_squares(means, means), axis=1, kind="stable")
    found = np.empty((len(X), n_neighbours), np.int64)
    for cell in range(len(means)):
        mine = order[ends[cell] : ends[cell + 1]]
        if len(mine) == 0:
            continue
        others = _searched(near[cell], ends, n_neighbours)
        compared = np.concatenate([order[ends[c] : ends[c + 1]] for c in others])
        step = max(1, MOST_AT_ONCE // len(compared))
        for start in range(0, len(mine), step):
            some = mine[start : start + step]
            # Measured from the middle of the cluster, or float32 would lose digits.
            found[some] = _closest(X, some, compared, means[cell], n_neighbours, device)
    distances = np.sqrt(
        np.stack([((X[found[:, j]] - X) ** 2).sum(axis=1) for j in range(n_neighbours)], axis=1)
    )
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(found, order, 1), np.take_along_axis(distances, order, 1)


def _searched(near: Index, ends: Index, n_neighbours: int) -> Index:
    """Of clusters in order of distance those that are searched."""
    sizes = (ends[1:] - ends[:-1])[near].cumsum()
    enough = int(np.searchsorted(sizes, COMPARED_FOR_EACH * n_neighbours)) + 1
    return near[: max(enough, CLUSTERS_SEARCHED)]


def _closest(
    X: Matrix,
    mine: Index,
    compared: Index,
    middle: NDArray[np.float64],
    n_neighbours: int,
    device: torch.device,
) -> Index:
    left, right = (
        torch.from_numpy((X[rows] - middle).astype(np.float32)).to(device)
        for rows in (mine, compared)
    )
    # The square of the own length is the same for all that are compared.
    distances = torch.addmm((right**2).sum(dim=1), left, right.T, alpha=-2)
    order = np.argsort(compared, kind="stable")
    own = order[np.searchsorted(compared, mine, sorter=order)]
    distances[torch.arange(len(mine)).to(device), torch.from_numpy(own).to(device)] = torch.inf
    best = distances.topk(n_neighbours, dim=1, largest=False, sorted=False).indices
    return compared[best.cpu().numpy()]


def _means(X: Matrix, clusters: Index) -> Matrix:
    inside = clusters >= 0
    k = int(clusters.max()) + 1
    counts = np.bincount(clusters[inside], minlength=k)
    sums = np.stack([np.bincount(clusters[inside], column, k) for column in X[inside].T], axis=1)
    return sums / counts[:, None]


def _nearest_mean(X: Matrix, means: Matrix) -> Index:
    step = max(1, 2**24 // len(means))
    parts = [_squares(X[i : i + step], means).argmin(axis=1) for i in range(0, len(X), step)]
    return np.concatenate(parts)


def _squares(left: Matrix, right: Matrix) -> Matrix:
    """Squared distances, less the squared length of what is on the left."""
    return (right**2).sum(axis=1) - 2 * left @ right.T
