"""Moving single observations to the merged cluster that their neighbours are in.

Merging keeps every initial cluster whole.  Where an initial cluster holds parts of two groups, its
observations can still be told apart by their neighbours once the groups are known.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unsplit._typing import Index
from unsplit.data.labels import encode_labels, label_array
from unsplit.errors import InputError, check_type
from unsplit.merging.neighbours.graph import NeighbourGraph

# Usually nothing moves any more after twenty rounds.
MOST_ROUNDS = 100

# A smaller gain is rounding.
LEAST_GAIN = 1e-9


def refine(labels: ArrayLike, neighbours: NeighbourGraph) -> NDArray[Any]:
    """Move observations to the cluster that most of their neighbours are in, given its size.

    An observation moves if the cluster it moves to has more of its neighbours, beyond those
    expected by chance, than its own (the gain in modularity, as in the Leiden and Louvain methods).
    This goes on until no observation moves.  No cluster is added and none is lost.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Cluster of every observation, after merging; −1 and missing values mean noise, which stays
        noise.
    neighbours : NeighbourGraph
        The neighbour graph of the same observations, made by :func:`unsplit.neighbour_graph`.

    Returns
    -------
    ndarray of shape (n,)
        The labels, some of them changed.

    Examples
    --------
    >>> import numpy as np
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
    >>> mistaken = np.where(np.arange(100) % 10 == 0, 1 - labels, labels)
    >>> graph = unsplit.neighbour_graph(X, mistaken)
    >>> bool((unsplit.refine(mistaken, graph) == labels).all())
    True
    """
    check_type("neighbours", neighbours, NeighbourGraph, "make it with unsplit.neighbour_graph")
    if neighbours.sampled_from is not None:
        raise InputError(
            f"neighbours is a graph of {neighbours.counted} observations, and the others have no "
            "neighbours in it; make one with unsplit.neighbour_graph(X, labels, everything=True)."
        )
    encoded = encode_labels(labels, at_least=1)
    rows = neighbours.rows
    if len(encoded.clusters) <= rows.max(initial=-1):
        raise InputError(
            f"labels has {len(encoded.clusters)} entries, but neighbours is a graph of at least "
            f"{rows.max() + 1} observations; pass the labels of the same observations."
        )
    before = encoded.clusters[rows]
    state = Moving(neighbours, before, len(encoded.cluster_ids))
    state.move_all(np.random.default_rng(0))
    lost = ~np.isin(before, state.clusters)
    after = np.where(lost, before, state.clusters)
    refined = label_array(labels).copy()
    moved = after != before
    refined[rows[moved]] = encoded.cluster_ids[after[moved]]
    return refined


@dataclass
class Moving:
    """Observations of a graph while they move between clusters.

    Parameters
    ----------
    graph : NeighbourGraph
    clusters : ndarray of shape (n,)
        Present cluster of each observation in the graph; −1 for noise, which does not move.
    k : int
        Number of clusters.
    """

    graph: NeighbourGraph
    clusters: Index
    k: int

    def __post_init__(self) -> None:
        inside = self.clusters >= 0
        self.degree = self.graph.adjacency @ inside.astype(np.float64)
        self.degree[~inside] = 0.0
        self.totals = np.maximum(np.bincount(self.graph.batches, self.degree), 1.0)

    def move_all(self, rng: np.random.Generator) -> None:
        """Move observations until none gains by it."""
        everyone = active = np.flatnonzero(self.clusters >= 0)
        for _ in range(MOST_ROUNDS):
            willing, targets = self.better(active)
            if len(willing) == 0:
                if active is everyone:
                    return
                active = everyone  # clusters have other sizes now, which matters to all a little
                continue
            # Two neighbours that move at the same time may only change places, so half waits.
            now = rng.random(len(willing)) < 0.5
            now[rng.integers(len(willing))] = True
            self.clusters = self.clusters.copy()
            self.clusters[willing[now]] = targets[now]
            around = np.unique(self.graph.adjacency[willing[now]].indices)
            active = np.union1d(willing, around[self.clusters[around] >= 0])

    def better(self, rows: Index) -> tuple[Index, Index]:
        """Those of the rows that gain by moving, and the cluster to which each moves."""
        votes = (self.graph.adjacency[rows] @ self._members()).tocoo()
        place, cluster = votes.coords
        degrees = self._degrees()
        gain = votes.data - self._by_chance(rows[place], cluster, degrees)
        # The last entry of each row is its best; the first best one if several are.
        order = np.lexsort((-cluster, gain, place))
        last = order[np.flatnonzero(np.diff(place[order], append=-1))]
        best = rows[place[last]]
        stay = cluster == self.clusters[rows[place]]
        edges_inside = np.bincount(place[stay], votes.data[stay], minlength=len(rows))
        staying = edges_inside[place[last]] - self._by_chance(best, self.clusters[best], degrees)
        gains = gain[last] > staying + LEAST_GAIN
        return best[gains], cluster[last][gains]

    def _members(self) -> sparse.csr_array:
        inside = np.flatnonzero(self.clusters >= 0)
        entries = np.ones(len(inside)), (inside, self.clusters[inside])
        return sparse.csr_array(entries, (len(self.clusters), self.k))

    def _degrees(self) -> NDArray[np.float64]:
        """Summed degrees by batch and cluster, shape (batches, k)."""
        inside = self.clusters >= 0
        place = self.graph.batches[inside] * self.k + self.clusters[inside]
        n_batches = len(self.totals)
        sums = np.zeros(n_batches * self.k)
        sums += np.bincount(place, self.degree[inside], minlength=len(sums))
        return sums.reshape(n_batches, self.k)

    def _by_chance(
        self, rows: Index, clusters: Index, degrees: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Edges from rows to other observations in clusters, in a random graph."""
        batches = self.graph.batches[rows]
        others = degrees[batches, clusters]
        others -= np.where(self.clusters[rows] == clusters, self.degree[rows], 0.0)
        expected: NDArray[np.float64] = self.degree[rows] * others / self.totals[batches]
        return expected
