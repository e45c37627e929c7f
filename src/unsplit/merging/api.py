"""Merging: distances and options in, a merge tree out."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit.data.labels import refuse_annotated
from unsplit.devices import available_memory, check_seed, memory_errors, require_memory
from unsplit.errors import InputError, option
from unsplit.merging.decision import NEIGHBOURS, Always, Auto, Rule
from unsplit.merging.loop import MergeState, agglomerate, assigned_slots
from unsplit.merging.neighbours.graph import NeighbourGraph, graph_of_scores, renumbered
from unsplit.merging.options import MergeOptions, check_same_clusters
from unsplit.merging.plan import MergeInputs, Plan, are_cores, neighbourhoods_of
from unsplit.merging.remerge import can_be_repeated, stability_of
from unsplit.merging.tree import MergeTree, with_stability
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.wasserstein import PairwiseWasserstein

# Matrices of all pairs that merging holds at the same time, measured at 3,500 clusters: distances,
# their copies, links, evidence, edges between neighbours and working space.
MATRICES = 8
MATRICES_OF_SCORES = 20

FEWER_CLUSTERS = (
    "merge the smallest clusters first, check that labels are clusters and not row ids, or compare "
    'them with unsplit.pairwise_tvd(form="sparse"), which needs no matrix of all pairs'
)


def merge(
    distances: PairwiseTVD | PairwiseWasserstein | ArrayLike,
    n_clusters: int | Sequence[int | None] | None = None,
    *,
    max_tvd: float | None = None,
    alpha: float | None = None,
    rank_by: str = "auto",
    constraints: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    rule: Rule | None = None,
    labels_from: str = "auto",
    neighbours: NeighbourGraph | None = None,
    random_state: object = None,
) -> MergeTree:
    """Merge clusters, closest first, and choose where to stop.

    Parameters
    ----------
    distances : PairwiseTVD, PairwiseWasserstein or array-like of shape (k, k)
        Estimates with scores, made by :func:`unsplit.pairwise_tvd`, or any symmetric matrix of
        distances, taken as TVD.  A PairwiseWasserstein keeps its cluster names and sizes, and needs
        ``n_clusters``.
    n_clusters, max_tvd, alpha : optional
        Pass at most one.  ``n_clusters`` stops at this many clusters; a pair (fewest, most), of
        which one may be None, bounds their number whichever rule applies.  ``max_tvd`` merges pairs
        with a TVD up to this value.  ``alpha`` merges pairs that do not differ significantly at
        this level, adjusted for all pairs.  Without any of them merging stops by itself (*auto*),
        which needs a PairwiseTVD.
    rank_by : str
        What says which pair is closest: "tv", "lecam", "js", "hellinger", "overlap" or "auc",
        averaged over the pairs of initial clusters in two merged ones (average linkage); "edges",
        the edges between clusters in the graph of ``neighbours``, which add up; or "overlap and
        edges", the mean rank by both.  "auto" is "edges" if there are ``neighbours`` and most
        clusters were not split at random; otherwise "lecam", or "overlap" if ``n_clusters`` is
        given and at least half of the observations are in no cluster, as after the paper's
        Algorithm 1.  :class:`unsplit.ClusterMerger` ranks such cores by "overlap and edges" if
        ``features`` are passed that the network does not see.  A plain matrix is ranked by its own
        values.
    constraints : path or mapping, optional
        Clusters known to belong together, or known to be different, by name:
        ``{"must_link": [("a", "b")], "cannot_link": [(3, 7)]}``.  Or the answers that the page of
        an earlier result exported, as a JSON file or its content.
    rule : object with a method judge, optional
        A stopping rule of your own, instead of ``n_clusters``, ``max_tvd`` and ``alpha``: a
        :class:`unsplit.merging.decision.Rule`.
    labels_from : {"auto", "clustering", "elsewhere"}
        Pass "elsewhere" if the clusters were not computed from the features that are compared, such
        as classes given by hand or clusters of other measurements: then tests decide, and clusters
        that differ significantly stay apart.  "clustering" says that they were.  "auto" assumes
        it, unless clusters were split at random or do not follow the features at all.
    neighbours : NeighbourGraph, optional
        The neighbour graph of the observations, made by :func:`unsplit.neighbour_graph`.  If
        clusters were cut out of the same features, *auto* decides by it.  Without one, *auto* makes
        the graph of the network's scores, unless there are too many of them.
    random_state : int, Generator, RandomState or None
        For the simulated data that neighbours are compared with.

    Returns
    -------
    MergeTree

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
    >>> tree = unsplit.merge(unsplit.pairwise_tvd(X, labels, random_state=0))
    >>> tree.mapping
    {0: 0, 1: 0, 2: 1}
    """
    check_seed(random_state)
    options = MergeOptions(n_clusters, max_tvd, alpha, rank_by, rule=rule, labels_from=labels_from)
    check_wasserstein(distances, options)
    options = options.with_constraints(constraints)
    with memory_errors("merging the clusters", FEWER_CLUSTERS):
        if neighbours is None and isinstance(distances, PairwiseTVD):
            neighbours = _own_graph(distances, options)
        return merge_with(distances, options, neighbours, random_state)


def _own_graph(result: PairwiseTVD, options: MergeOptions) -> NeighbourGraph | None:
    """The neighbour graph of the network's scores, if *auto* would ask one."""
    if result.is_sparse:
        return None
    # Between cores observations were left out, so a number of them is reached closest first.
    closest_first = options.number is not None and are_cores(result)
    return graph_of_scores(result) if options.asks_neighbours and not closest_first else None


def merge_with(
    distances: PairwiseTVD | PairwiseWasserstein | ArrayLike,
    options: MergeOptions,
    neighbours: NeighbourGraph | None = None,
    random_state: object = None,
    *,
    assigned: ArrayLike | None = None,
    on_merge: Callable[[int], None] | None = None,
) -> MergeTree:
    """Do what :func:`merge` does, with what only a run from observations can add.

    Parameters
    ----------
    distances, options, neighbours, random_state
        As for :func:`merge`.
    assigned : array-like of shape (k,), optional
        For each cluster without held-out observations, the index in ``cluster_ids`` of the cluster
        to which the networks assign it; −1 if there is none, and for all other clusters.
    on_merge : callable, optional
        Called after every merge with the number of merges so far.
    """
    inputs = merge_inputs(distances, neighbours)
    _check(inputs, options)
    plan = Plan.of(inputs, options, assigned_slots(assigned, inputs.order))
    rule, pairs = plan.rule(), plan.pairs(inputs)
    judged = neighbourhoods_of(inputs, pairs, random_state)
    state = plan.state(
        MergeState,
        (inputs, pairs, judged),
        on_merge=on_merge,
        compare_all=not inputs.is_sparse or rule not in (Always(), Auto(NEIGHBOURS)),
    )
    record = agglomerate(state, rule)
    sizes = inputs.sizes[np.argsort(inputs.order)]
    tree = record.tree(inputs.ids, sizes, inputs.order, pairs.ranking.statistic, options)
    if not can_be_repeated(inputs.result, options):
        return tree
    return with_stability(tree, stability_of(plan, record, judged))


def _check(inputs: MergeInputs, options: MergeOptions) -> None:
    """Refuse options that need more than there is, and more clusters than fit into memory."""
    result = inputs.result
    if inputs.is_sparse:
        options.check_sparse()
    else:
        check_memory(len(inputs.ids), MATRICES if result is None else MATRICES_OF_SCORES)
    options.check_input(result is not None, inputs.graph is not None)


def check_memory(n_clusters: int, matrices: int) -> None:
    """Raise an error if so many matrices of all pairs would not fit into memory.

    Parameters
    ----------
    n_clusters : int
    matrices : int
        Number of matrices that are in memory at the same time.

    Examples
    --------
    >>> check_memory(10**7, MATRICES)
    Traceback (most recent call last):
    unsplit.errors.InputError: merging 10,000,000 clusters would need about 5,960,464.5 GiB ...
    """
    needed, available = 8 * matrices * n_clusters**2, available_memory()
    fitting = math.isqrt(available // (8 * matrices))
    advice = f"at most {fitting:,} would fit: {FEWER_CLUSTERS}"
    require_memory(needed, available, f"merging {n_clusters:,} clusters", advice)


def merge_inputs(
    distances: PairwiseTVD | PairwiseWasserstein | ArrayLike,
    graph: NeighbourGraph | None = None,
) -> MergeInputs:
    """Check the input and put its clusters in order."""
    if not isinstance(distances, PairwiseTVD) and graph is not None:
        raise InputError(
            "neighbours has no effect without scores; pass a PairwiseTVD as distances, or leave "
            "neighbours out."
        )
    if isinstance(distances, PairwiseWasserstein):
        k = distances.n_clusters
        matrix = _known(distances)
        return MergeInputs(distances.cluster_ids, np.arange(k), distances.sizes, matrix)
    if not isinstance(distances, PairwiseTVD):
        matrix = _square(distances)
        k = len(matrix)
        return MergeInputs(np.arange(k), np.arange(k), np.ones(k, np.int64), matrix)
    ids = distances.cluster_ids
    check_same_clusters(ids, graph)
    order = distances.scores.order_of_appearance()
    result = distances.reordered(order)
    if graph is not None:
        graph = renumbered(graph, np.argsort(order))
    return MergeInputs(ids, order, result.sizes, result=result, graph=graph)


def check_wasserstein(distances: object, options: MergeOptions) -> None:
    """Refuse options that take distances for TVDs, if they are Wasserstein distances."""
    if not isinstance(distances, PairwiseWasserstein):
        return
    if options.number is None or options.rank_by != "auto":
        raise InputError(
            "distances is a PairwiseWasserstein, which is in the unit of X, so it can only be "
            f"merged to a given number of clusters, without {option('rank_by')}; pass "
            f"{option('n_clusters')}, or pass {option('n_clusters', 1)} and cut the tree with "
            "tree.cut(height=...)."
        )


def _known(distances: PairwiseWasserstein) -> NDArray[np.float64]:
    """The distances, if all pairs could be compared."""
    missing = (~distances.comparable).sum(axis=1)
    if missing.any():
        name = distances.cluster_ids[missing.argmax()]
        raise InputError(
            f"distances has no value for {int(missing.sum()) // 2} pairs of clusters, most of them "
            f"of cluster {name}, because too few observations were held out; label such small "
            "clusters -1 before estimating distances."
        )
    return np.array(distances.distance)


def _square(distances: ArrayLike) -> NDArray[np.float64]:
    refuse_annotated(distances, "distances")
    try:
        matrix = np.asarray(distances, np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "distances must be a PairwiseTVD, a PairwiseWasserstein or a matrix of numbers; make "
            "one with unsplit.pairwise_tvd."
        ) from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise InputError(
            "distances must be a square matrix for at least two clusters, got shape "
            f"{matrix.shape}; pass all pairs, not a condensed vector."
        )
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        raise InputError("distances must be finite and not negative; fill in missing pairs first.")
    if not np.allclose(matrix, matrix.T):
        raise InputError("distances must be symmetric; average the matrix with its transpose.")
    return (matrix + matrix.T) / 2
