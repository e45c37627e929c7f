"""The neighbour graph, which connects each observation to its nearest neighbours.

The share of an observation's neighbours in another cluster is the error of a nearest-neighbour
classifier that has not seen the observation.  This is the principle of the network, with a local
classifier; the only labels it uses are the over-clustering.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unsplit._typing import Index, Matrix
from unsplit.errors import InputError, numeric_array, shown

if TYPE_CHECKING:
    import torch

N_NEIGHBOURS = 15

# Number of steps along edges in which labels spread to observations outside all clusters.
SPREADING_STEPS = 60

# Common neighbours are counted for this many rows at a time: a few hundred megabytes.
ROWS_AT_ONCE = 20_000


@dataclass(frozen=True, eq=False, repr=False)
class NeighbourGraph:
    """Observations and the edges to their nearest neighbours.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n, n)
        1 if either observation is among the nearest neighbours of the other; symmetric.
    inverse_dimension : ndarray of shape (n,)
        Inverse of the local dimension at each observation: the mean log ratio of the distance to
        the farthest neighbour and the distances to the others.
    clusters : ndarray of shape (n,)
        Cluster that each observation counts for: its own, unless more than half of its neighbours
        are in another one; −1 for none.
    batches : ndarray of shape (n,)
        Batch of each observation; there are no edges between batches.
    features : ndarray of shape (n, d)
        The features in which neighbours were found.
    n_clusters : int
        Number of clusters, k; some may have no observation in the graph.
    """

    adjacency: sparse.csr_array
    inverse_dimension: NDArray[np.float64]
    clusters: Index
    batches: Index
    features: Matrix
    n_clusters: int

    def __repr__(self) -> str:
        n_edges = int(self.adjacency.sum()) // 2
        n, d = self.features.shape
        return (
            f"NeighbourGraph: {n_edges:,} edges between {n:,} observations in {d:,} dimensions, "
            f"{self.n_clusters:,} clusters"
        )

    @cached_property
    def members(self) -> sparse.csr_array:
        """1 if an observation counts for a cluster, shape (n, k)."""
        inside = np.flatnonzero(self.clusters >= 0)
        ones = np.ones(len(inside))
        shape = (len(self.clusters), self.n_clusters)
        return sparse.csr_array((ones, (inside, self.clusters[inside])), shape)

    @cached_property
    def weights(self) -> sparse.csr_array:
        """Weights of the edges: 1 plus the number of neighbours that both ends share.

        Many neighbours are shared inside a cluster and few across a gap (Jarvis and Patrick 1973).
        """
        starts = range(0, self.adjacency.shape[0], ROWS_AT_ONCE)
        parts = (self.adjacency[start : start + ROWS_AT_ONCE] for start in starts)
        return sparse.vstack(
            [part + (part @ self.adjacency).multiply(part) for part in parts], format="csr"
        )

    def renamed(self, new_index: Index) -> "NeighbourGraph":
        """The same graph with cluster c renamed to ``new_index[c]``."""
        index = numeric_array("new_index", new_index, 1).astype(np.int64)
        if not np.array_equal(np.sort(index), np.arange(self.n_clusters)):
            raise InputError(
                f"new_index must hold each of 0 to {self.n_clusters - 1} once, got "
                f"{shown(new_index)}; pass a new index for each cluster."
            )
        clusters = np.where(self.clusters < 0, -1, index[self.clusters])
        return replace(self, clusters=clusters)


def connect(
    features: Matrix,
    clusters: Index,
    batches: Index | None = None,
    device: "torch.device | None" = None,
    n_clusters: int | None = None,
) -> NeighbourGraph:
    """Connect every observation to its fifteen nearest neighbours in the same batch.

    Parameters
    ----------
    features : ndarray of shape (n, d)
    clusters : ndarray of shape (n,)
        The over-clustering, numbered from 0; −1 for noise.  If at least half is noise, every
        observation counts for the cluster that random walks from it reach most often; otherwise
        noise is left out.  An observation with more than half of its neighbours in another cluster
        counts for that one.
    batches : ndarray of shape (n,), optional
    device : torch.device, optional
        Where to search, if there are many observations.
    n_clusters : int, optional
        Required if the last clusters have no observation.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> graph = connect(X, (X[:, 0] > 0).astype(np.int64))
    >>> graph.adjacency.shape, bool(graph.adjacency.sum() >= 100 * 15)
    ((100, 100), True)
    """
    # The search needs torch; a graph that is already there does not.
    from unsplit.merging.neighbours.search import nearest

    features = np.asarray(features, np.float64)
    n_clusters = int(clusters.max()) + 1 if n_clusters is None else n_clusters
    spread = bool((clusters < 0).mean() >= 0.5)
    used = np.arange(len(clusters)) if spread else np.flatnonzero(clusters >= 0)
    batches = np.zeros(len(clusters), np.int64) if batches is None else batches
    features, clusters, batches = features[used], clusters[used], batches[used]
    n = len(used)
    adjacency = sparse.csr_array((n, n))
    inverse_dimension = np.zeros(n)
    for batch in np.unique(batches):
        rows = np.flatnonzero(batches == batch)
        if len(rows) < 2:
            continue
        width = min(N_NEIGHBOURS, len(rows) - 1)
        found, distances = nearest(features[rows], width, device)
        edges = (np.ones(found.size), (np.repeat(rows, width), rows[found].ravel()))
        adjacency = adjacency + sparse.csr_array(edges, (n, n))
        inverse_dimension[rows] = _inverse_dimension(distances)
    adjacency = adjacency.maximum(adjacency.T).tocsr()
    if spread:
        clusters = _spread(adjacency, clusters)
    clusters = _outvoted(adjacency, clusters, n_clusters)
    return NeighbourGraph(adjacency, inverse_dimension, clusters, batches, features, n_clusters)


def _inverse_dimension(distances: Matrix) -> NDArray[np.float64]:
    """Levina and Bickel's (2004) estimate for each observation.

    Neighbours at distance 0 do not count; the result is 0 if fewer than three are left.
    """
    apart = distances > 0
    n_apart = apart.sum(axis=1)
    far = distances[:, -1:]
    logs = np.log(np.divide(far, distances, out=np.ones_like(distances), where=apart))
    return np.where(n_apart >= 3, logs.sum(axis=1) / np.maximum(n_apart - 2, 1), 0.0)


def _spread(adjacency: sparse.csr_array, clusters: Index) -> Index:
    """The cluster that random walks from each observation reach most often; −1 for none."""
    inside = np.flatnonzero(clusters >= 0)
    shape = (len(clusters), int(clusters.max()) + 1)
    start = sparse.csr_array((np.ones(len(inside)), (inside, clusters[inside])), shape).toarray()
    start = start.astype(np.float32)
    share = start.copy()
    step = sparse.diags_array(1 / np.maximum(adjacency.sum(axis=1), 1)).astype(np.float32)
    walk = (step @ adjacency.astype(np.float32)).tocsr()
    for _ in range(SPREADING_STEPS):
        share = walk @ share
        share[inside] = start[inside]
    return np.where(share.max(axis=1) > 0, share.argmax(axis=1), -1)


def _outvoted(adjacency: sparse.csr_array, clusters: Index, n_clusters: int) -> Index:
    """The cluster of more than half of the neighbours, otherwise the observation's own.

    Clusters that would keep fewer than two observations keep all of them.
    """
    inside = np.flatnonzero(clusters >= 0)
    shape = (len(clusters), n_clusters)
    members = sparse.csr_array((np.ones(len(inside)), (inside, clusters[inside])), shape)
    votes = (adjacency @ members).tocoo()
    rows, candidates = votes.coords
    won = (votes.data > 0.5 * votes.sum(axis=1)[rows]) & (clusters[rows] >= 0)
    voted = clusters.copy()
    voted[rows[won]] = candidates[won]
    n_left = np.bincount(voted[inside], minlength=n_clusters)
    lost = inside[n_left[clusters[inside]] < 2]
    voted[lost] = clusters[lost]
    return voted
