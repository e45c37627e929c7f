"""Initial clusters that lie across a gap are cut there, and their parts are merged anew.

In few dimensions groups are told apart by gaps, and a piece of k-means may lie across one: it holds
parts of two groups, and merging it with its neighbours connects them.  HDBSCAN says where gaps may
be; the neck says whether there is one, as it does for whole clusters.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra
from sklearn.cluster import HDBSCAN

from unsplit._typing import Index
from unsplit.merging.decision import NEIGHBOURS, Auto
from unsplit.merging.loop import GreedyMerge, MergeState
from unsplit.merging.neighbours.evidence import MOST_JUDGED, Neighbourhoods
from unsplit.merging.neighbours.graph import (
    SCORES,
    Connected,
    NeighbourGraph,
    graph_of_some,
)
from unsplit.merging.options import Constraints
from unsplit.merging.pairs import Pairs

# With more initial clusters, merging again would take minutes; pieces so small rarely cross a gap.
MOST_CLUSTERS = 2_000

# Smallest lump, as a share and as a number of observations.
SMALLEST_SHARE = 0.01
SMALLEST = 5


def can_be_cut(graph: NeighbourGraph) -> bool:
    """Whether gaps tell groups apart: few dimensions, one batch, and features of observations."""
    one_batch = int(graph.batches.max(initial=0)) == 0
    some = 2 <= graph.n_clusters <= MOST_CLUSTERS
    return graph.few_dimensions and one_batch and some and graph.source != SCORES


def parts_of(graph: NeighbourGraph) -> Index:
    """The part of an initial cluster that each observation is in, shape (n,); −1 for none.

    An initial cluster without a gap is one part.  Parts are numbered by initial cluster.
    """
    pieces = _by_lump(graph.clusters, nearest_lumps(graph))
    mixed = pieces >= 0
    within = graph.clusters.copy()
    if mixed.any():
        within[mixed] = graph.n_clusters + _joined_within(graph, pieces, mixed)
    inside = graph.clusters >= 0
    order = np.stack([graph.clusters[inside], within[inside]])
    parts = np.full(len(within), -1)
    parts[inside] = np.unique(order, axis=1, return_inverse=True)[1].ravel()
    return parts


def lumps_in(X: NDArray[np.float64]) -> Index:
    """The lump that HDBSCAN puts each observation into; −1 for none."""
    size = max(SMALLEST, int(SMALLEST_SHARE * len(X)))
    if len(X) < 2 * size:
        return np.full(len(X), -1)
    found: Index = HDBSCAN(min_cluster_size=size, copy=True).fit_predict(X).astype(np.int64)
    return found


def nearest_lumps(graph: NeighbourGraph) -> Index:
    """The lump that each observation is in or, along the graph, closest to."""
    n = len(graph.clusters)
    sample = np.arange(n)
    if n > MOST_JUDGED:  # HDBSCAN compares all with all
        sample = np.sort(np.random.default_rng(0).choice(n, MOST_JUDGED, replace=False))
    lump = np.full(n, -1)
    lump[sample] = lumps_in(graph.features[sample])
    known = np.flatnonzero(lump >= 0)
    if len(known) == 0:
        return np.zeros(n, np.int64)
    left, right = graph.adjacency.nonzero()
    length = np.linalg.norm(graph.features[left] - graph.features[right], axis=1)
    length = np.maximum(length, np.finfo(float).tiny)  # an edge of length 0 would be none
    edges = sparse.csr_array((length, (left, right)), (n, n))
    source = dijkstra(edges, indices=known, min_only=True, return_predecessors=True)[2]
    # What no way leads to is a lump of its own.
    return np.where(source >= 0, lump[np.maximum(source, 0)], lump.max() + 1)


def _by_lump(clusters: Index, lump: Index) -> Index:
    """Pieces of the initial clusters that lie in several lumps; −1 in all others.

    Fewer than SMALLEST observations of a cluster in a lump count for the cluster's largest piece.
    """
    counts = np.zeros((int(clusters.max()) + 2, int(lump.max()) + 1), np.int64)
    np.add.at(counts, (clusters, lump), 1)  # the last row counts what is in no cluster
    large = counts >= SMALLEST
    lump = np.where(large[clusters, lump], lump, counts.argmax(axis=1)[clusters])
    mixed = (clusters >= 0) & (large.sum(axis=1) > 1)[clusters]
    pieces = np.full(len(clusters), -1)
    pieces[mixed] = np.unique(
        np.stack([clusters[mixed], lump[mixed]]), axis=1, return_inverse=True
    )[1].ravel()
    return pieces


def _joined_within(graph: NeighbourGraph, pieces: Index, mixed: NDArray[np.bool_]) -> Index:
    """Join pieces of one initial cluster that are connected as parts of one cluster are."""
    some = _regrouped(graph, np.flatnonzero(mixed), pieces[mixed])
    initial = np.zeros(some.n_clusters, np.int64)
    initial[some.clusters] = graph.clusters[mixed]
    state = _state(some)
    apart = initial[:, None] != initial
    state.forbidden = {a: set(np.flatnonzero(row).tolist()) for a, row in enumerate(apart)}
    GreedyMerge(state, Auto(NEIGHBOURS)).go(1, some.n_clusters)
    return state.slot[some.clusters]


def merge_units(graph: NeighbourGraph, units: Index, n_clusters: int | None) -> Index:
    """Merge units, numbered from 0, as *auto* merges initial clusters; shape (n,).

    Parameters
    ----------
    graph : NeighbourGraph
    units : ndarray of shape (n,)
        Unit of each observation; −1 for none.
    n_clusters : int, optional
        How many to leave; None to stop where *auto* does.
    """
    state = _state(_regrouped(graph, np.arange(len(units)), units))
    fewest, most = (1, state.n_left) if n_clusters is None else (n_clusters, n_clusters)
    GreedyMerge(state, Auto(NEIGHBOURS)).go(fewest, most)
    return np.where(units < 0, -1, state.slot[units])


def n_left_apart(graph: NeighbourGraph, clusters: Index) -> int:
    """How many of these clusters (−1 for noise) *auto* would leave if it went on merging them."""
    inside = clusters >= 0
    units = clusters.copy()
    units[inside] = np.unique(clusters[inside], return_inverse=True)[1]
    return len(np.unique(merge_units(graph, units, None)[inside]))


def _regrouped(graph: NeighbourGraph, rows: Index, clusters: Index) -> NeighbourGraph:
    """Some observations of a graph in other clusters, numbered from 0."""
    n_clusters = int(clusters.max()) + 1
    return replace(graph_of_some(graph, rows), clusters=clusters, n_clusters=n_clusters)


def _state(graph: NeighbourGraph) -> MergeState:
    """Clusters that are merged by the graph alone, without a network."""
    k = graph.n_clusters
    return MergeState(
        pairs=Pairs(Connected(graph)),
        evidence=None,
        neighbourhoods=Neighbourhoods(graph, np.random.default_rng(0)),
        at_random=np.zeros(k, bool),
        both_at_random=True,
        small=np.zeros(k, bool),
        assigned=np.full(k, -1),
        n_pairs=1,
        constraints=Constraints([], [], 1, k),
        sizes=np.bincount(graph.clusters[graph.clusters >= 0], minlength=k),
    )
