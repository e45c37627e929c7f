"""Moving observations to the merged cluster that their neighbours are in.

Merging keeps every initial cluster whole.  Where an initial cluster holds parts of two groups, its
observations can still be told apart by their neighbours once the groups are known.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index
from unsplit.data.labels import encode_labels, label_array
from unsplit.errors import InputError, check_type
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.neighbours.moving import Moving

# How often parts of initial clusters are formed and moved.
TIMES = 3

# All move in random order and end up in different places; of so many attempts the one with the most
# edges within clusters, beyond chance, is taken.  With more observations the places differ less.
ATTEMPTS, MOST_FOR_ATTEMPTS = 5, 20_000


def refine(labels: ArrayLike, neighbours: NeighbourGraph) -> NDArray[Any]:
    """Move observations to the cluster that most of their neighbours are in, given its size.

    An observation moves if the cluster it moves to has more of its neighbours, beyond those
    expected by chance, than its own (the gain in modularity, as in the Leiden and Louvain methods).
    This goes on until no observation moves.  No cluster is added and none is lost.

    In three or more dimensions parts of an initial cluster also move together: each observation
    of them alone would stay, because the others do.  In fewer dimensions they do not, because long
    and small clusters would be taken apart there.

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
    after = _moved(neighbours, before, len(encoded.cluster_ids))
    refined = label_array(labels).copy()
    moved = after != before
    refined[rows[moved]] = encoded.cluster_ids[after[moved]]
    return refined


def _moved(graph: NeighbourGraph, clusters: Index, k: int) -> Index:
    """Clusters after all moves."""
    single = Moving.of(graph, clusters, k)
    if graph.few_dimensions:
        single.move_all(np.random.default_rng(0))
        return single.clusters
    n_attempts = ATTEMPTS if len(clusters) <= MOST_FOR_ATTEMPTS else 1
    attempts = [
        _move_parts(single, graph.clusters, np.random.default_rng(seed))
        for seed in range(n_attempts)
    ]
    return max(attempts, key=Moving.modularity).clusters


def _move_parts(start: Moving, initial: Index, rng: np.random.Generator) -> Moving:
    """Move single observations, then parts of the initial clusters, and so on."""
    single = replace(start)
    single.move_all(rng)
    for _ in range(TIMES):
        before = single.clusters
        parts = single.apart(initial)
        parts.move_all(rng, keep=False)
        together = single.together(parts.clusters)
        together.move_all(rng)
        single.follow(together, parts.clusters)
        single.move_all(rng)
        if np.array_equal(single.clusters, before):
            break
    return single
