"""Putting observations into the merged cluster that their neighbours are in.

Merging keeps every initial cluster whole.  Where an initial cluster holds parts of two groups, its
observations can still be told apart by their neighbours once the groups are known, or by the gap
between the parts.
"""

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from unsplit._typing import Index
from unsplit.data.labels import EncodedLabels, encode_labels, label_array
from unsplit.errors import InputError, check_choice, check_type
from unsplit.merging.neighbours.graph import SCORES, NeighbourGraph
from unsplit.merging.neighbours.mistakes import corrected
from unsplit.merging.neighbours.moving import Moving
from unsplit.merging.neighbours.parts import (
    MOST_CLUSTERS,
    can_be_cut,
    merge_units,
    n_left_apart,
    parts_of,
)
from unsplit.merging.options import GAPS, IGNORE, KEEP_NUMBER
from unsplit.pairwise.result import PairwiseTVD

# How often parts of initial clusters are formed and moved.
TIMES = 3

# All move in random order and end up in different places; of so many attempts the one with the most
# edges within clusters, beyond chance, is taken.  With more observations the places differ less.
ATTEMPTS, MOST_FOR_ATTEMPTS = 5, 20_000

# Edges by chance count so much less in careful moves.  With 1, unequal clusters are taken apart;
# with 0.5, few of them still; with 0, small clusters lose to large ones.
CAREFUL_CHANCE = 0.25


def refine(
    labels: ArrayLike,
    neighbours: NeighbourGraph,
    *,
    gaps: str = IGNORE,
    distances: PairwiseTVD | None = None,
) -> NDArray[Any]:
    """Move observations to the cluster that most of their neighbours are in, given its size.

    An observation moves if the cluster it moves to has more of its neighbours, beyond those
    expected by chance, than its own (the gain in modularity, as in the Leiden and Louvain methods).
    This goes on until no observation moves.  No cluster is added and none is lost.

    In three or more dimensions parts of an initial cluster also move together: each observation
    of them alone would stay, because the others do.  In fewer dimensions they do not, because long
    and small clusters would be taken apart there.

    Nothing moves if the graph is that of a network's scores, as for images without ``features``,
    unless ``distances`` are passed: it knows nothing that the merge did not know.

    Such moves favour clusters of similar sizes and may divide a large one.  So the rule of *auto*
    is asked about the clusters after the moves: if it would merge any, the moves are undone, and
    single observations move with a quarter of the edges by chance.

    Instead, in fewer than three dimensions, initial clusters that lie across a gap can be cut there
    before observations move (``gaps``).  The clusters that hold them fall into the initial clusters
    and parts they were merged from; these and the other clusters are merged by the neighbour graph,
    as *auto* does.  So a cluster may become two, and two may become one.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Cluster of every observation, after merging; −1 and missing values mean noise, which stays
        noise.
    neighbours : NeighbourGraph
        The neighbour graph of the same observations and their initial clusters, made by
        :func:`unsplit.neighbour_graph`.
    gaps : {"ignore", "cut", "keep number"}
        What to do about initial clusters that lie across a gap: leave them whole; cut them; or cut
        them and leave as many clusters as ``labels`` has.  :class:`unsplit.ClusterMerger` cuts them
        if the neighbour graph merged them and you set no limit, rule or link, and keeps the number
        if you gave it.  Nothing is cut if there are several batches or more than 2,000 clusters.
    distances : PairwiseTVD, optional
        For labels that know more than the features, such as labels given by hand and then split at
        random: the network's distances between the initial clusters, with their scores.  Then an
        observation moves only if neighbours and network agree that its label is mistaken, and
        none does if few labels seem to be; nothing else happens.
        :class:`unsplit.ClusterMerger` passes them if clusters were merged by tests.

    Returns
    -------
    ndarray of shape (n,)
        The labels, some of them changed.  Names are kept where most observations keep them; further
        clusters get the next numbers or, if names are words, a number in brackets.

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
    check_choice("gaps", gaps, GAPS)
    check_type("neighbours", neighbours, NeighbourGraph, "make it with unsplit.neighbour_graph")
    if distances is not None:
        check_type("distances", distances, PairwiseTVD, "make it with unsplit.pairwise_tvd")
    if neighbours.sampled_from is not None:
        raise InputError(
            f"neighbours is a graph of {neighbours.counted} observations, and the others have no "
            "neighbours in it; make one with unsplit.neighbour_graph(X, labels, everything=True)."
        )
    encoded = encode_labels(labels, at_least=1)
    refined = label_array(labels).copy()
    rows, names = neighbours.rows, _names(refined, encoded)
    if len(encoded.clusters) <= rows.max(initial=-1):
        raise InputError(
            f"labels has {len(encoded.clusters)} entries, but neighbours is a graph of at least "
            f"{rows.max() + 1} observations; pass the labels of the same observations."
        )
    before = encoded.clusters[rows]
    after = before
    if distances is not None:
        after = corrected(neighbours, distances, before, len(names))
    elif neighbours.source != SCORES:
        if gaps != IGNORE and can_be_cut(neighbours):
            after, names = _merged_anew(neighbours, before, names, keep_number=gaps == KEEP_NUMBER)
        after = _moved(neighbours, after, len(names))
    moved = after != before
    if len(names) > len(encoded.cluster_ids):  # new names may be longer than the old ones
        refined = refined.astype(np.result_type(refined, names))
    refined[rows[moved]] = names[after[moved]]
    return refined


def _names(labels: NDArray[Any], encoded: EncodedLabels) -> NDArray[Any]:
    """The clusters as ``labels`` calls them, which may mix words and numbers."""
    if labels.dtype != object or encoded.cluster_ids.dtype.kind != "U":
        return encoded.cluster_ids
    found, first = np.unique(encoded.clusters, return_index=True)
    return labels[first[found >= 0]]


def _merged_anew(
    graph: NeighbourGraph, clusters: Index, names: NDArray[Any], keep_number: bool
) -> tuple[Index, NDArray[Any]]:
    """Cut initial clusters that lie across a gap, and merge their parts and all else again.

    Returns the new clusters and all names, those of new clusters last.
    """
    k = len(names)
    units = _units(parts_of(graph), graph.clusters, clusters, k)
    if len(np.unique(units[units >= 0])) <= k:
        return clusters, names
    found = merge_units(graph, units, k if keep_number else None)
    return _named(np.where(clusters < 0, -1, found), clusters, names)


def _units(parts: Index, initial: Index, clusters: Index, k: int) -> Index:
    """What is merged: parts of the clusters through which a gap goes, and the other clusters.

    A part belongs to the cluster that most of its observations are in.
    """
    inside = parts >= 0
    counts = np.zeros((int(parts.max()) + 1, k + 1), np.int64)
    np.add.at(counts, (parts[inside], clusters[inside]), 1)  # the last column counts noise
    owner = np.where(counts[:, :k].any(axis=1), counts[:, :k].argmax(axis=1), -1)
    initial_of = np.zeros(len(owner), np.int64)
    initial_of[parts[inside]] = initial[inside]
    is_cut = (np.bincount(initial_of) > 1)[initial_of] & (owner >= 0)
    with_gap = np.isin(owner, owner[is_cut])
    unit = np.where(with_gap, k + np.arange(len(owner)), owner)
    units = np.where(inside, unit[parts], clusters)
    units[units >= 0] = np.unique(units[units >= 0], return_inverse=True)[1]
    return units


def _named(found: Index, clusters: Index, names: NDArray[Any]) -> tuple[Index, NDArray[Any]]:
    """New clusters as indices of names; those that get no old name have new ones at the end.

    A name that none of its observations had is given only if it is a number.
    """
    inside = found >= 0
    numbers, new = np.unique(found[inside], return_inverse=True)
    shared = np.zeros((len(numbers), len(names)), np.int64)
    np.add.at(shared, (new, clusters[inside]), 1)
    name_of = np.full(len(numbers), -1)
    kept, old = linear_sum_assignment(shared, maximize=True)
    fits = (shared[kept, old] > 0) | (names.dtype.kind in "iuf")
    name_of[kept[fits]] = old[fits]
    unnamed = np.flatnonzero(name_of < 0)
    name_of[unnamed] = len(names) + np.arange(len(unnamed))
    after = np.full(len(found), -1)
    after[inside] = name_of[new]
    more = _further_names(names, names[shared[unnamed].argmax(axis=1)])
    return after, np.concatenate([names, more]) if len(more) else names


def _further_names(names: NDArray[Any], likes: NDArray[Any]) -> NDArray[Any]:
    """A name for each further cluster, given the name that most of its observations had.

    Examples
    --------
    >>> _further_names(np.array([0, 3]), np.array([0, 0]))
    array([4, 5])
    >>> _further_names(np.array(["a", "b"]), np.array(["b", "b"])).tolist()
    ['b (2)', 'b (3)']
    """
    if names.dtype.kind in "iuf":
        further: NDArray[Any] = names.max().item() + 1 + np.arange(len(likes))
        return further
    taken = [str(name) for name in names]
    for like in likes:
        taken.append(next(t for t in (f"{like} ({i})" for i in count(2)) if t not in taken))
    return np.array(taken[len(names) :], dtype=str)


def _moved(graph: NeighbourGraph, clusters: Index, k: int) -> Index:
    """Clusters after all moves, or after few if the others contradict the rule of *auto*."""
    single = Moving.of(graph, clusters, k)
    if k <= MOST_CLUSTERS:
        after = _moved_by_modularity(single, graph)
        if np.array_equal(after, clusters) or n_left_apart(graph, after) == k:
            return after
    careful = replace(single, chance=CAREFUL_CHANCE)
    careful.move_all(np.random.default_rng(0))
    return careful.clusters


def _moved_by_modularity(start: Moving, graph: NeighbourGraph) -> Index:
    """Clusters after moves of observations and, unless dimensions are few, of parts."""
    if graph.few_dimensions:
        single = replace(start)
        single.move_all(np.random.default_rng(0))
        return single.clusters
    n_attempts = ATTEMPTS if len(start.clusters) <= MOST_FOR_ATTEMPTS else 1
    attempts = [
        _move_parts(start, graph.clusters, np.random.default_rng(seed))
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
