"""Merging: distances and options in, a merge tree out; and how stable it is."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index, Node
from unsplit.data.labels import refuse_annotated
from unsplit.devices import available_memory, check_seed, memory_errors, one_thread, require_memory
from unsplit.errors import InputError, check_type, numeric_array, option, refuses_old_options
from unsplit.merging import limits
from unsplit.merging.decision import BY_RULE, NEIGHBOURS, Always, Auto, Merge, Rule, Stability
from unsplit.merging.loop import agglomerate, merge_allowed
from unsplit.merging.neighbours.evidence import Neighbourhoods
from unsplit.merging.neighbours.graph import (
    NeighbourGraph,
    graph_of_scores,
    graph_of_some,
    renumbered,
)
from unsplit.merging.plan import (
    MergeInputs,
    MergeOptions,
    Plan,
    are_cores,
    neighbourhoods_of,
    warn_of_partition,
)
from unsplit.merging.tree import MergeTree, with_stability
from unsplit.pairwise.divergences import nothing_held_out
from unsplit.pairwise.result import PairwiseTVD, estimate_of_some
from unsplit.pairwise.wasserstein import PairwiseWasserstein

# Matrices of all pairs that merging holds at the same time, measured at 3,500 clusters: distances,
# their copies, links, evidence, edges between neighbours and working space.
MATRICES = 8
MATRICES_OF_SCORES = 20

FEWER_CLUSTERS = (
    "merge the smallest clusters first, check that labels are clusters and not row ids, or compare "
    'them with unsplit.pairwise_tvd(form="sparse"), which needs no matrix of all pairs'
)


@refuses_old_options
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
    options = options.with_constraints(constraints)
    with memory_errors("merging the clusters", FEWER_CLUSTERS):
        if neighbours is None and isinstance(distances, PairwiseTVD) and not distances.is_sparse:
            # Between cores observations were left out, so a number is reached closest first.
            closest_first = options.number is not None and are_cores(distances)
            if options.asks_neighbours and not closest_first:
                neighbours = graph_of_scores(distances)
        return merge_with(distances, options, neighbours, random_state)


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
    inputs = merge_inputs(distances, options, neighbours)
    result = inputs.result
    if inputs.is_sparse:
        options.check_sparse()
    else:
        check_memory(len(inputs.ids), MATRICES if result is None else MATRICES_OF_SCORES)
    options.check_input(result is not None, inputs.graph is not None)
    with one_thread(result is not None and result.has_scores and result.scores.are_few):
        plan = Plan.of(inputs, options, assigned)
        warn_of_partition(result, options)
        rule, pairs = plan.rule(), plan.pairs(inputs)
        judged = neighbourhoods_of(inputs, pairs, random_state)
        everything = not inputs.is_sparse or rule not in (Always(), Auto(NEIGHBOURS))
        state = plan.state(inputs, pairs, judged, on_merge=on_merge, compare_all=everything)
        agglomerate(state, rule)
        tree = state.tree(inputs.ids, options.answers)
        if not can_be_repeated(result, options):
            return tree
        return with_stability(tree, stability_of(plan, state.merges[: state.n_taken], judged))


def check_memory(n_clusters: int, matrices: int) -> None:
    """Raise an error if matrices of all pairs would not fit into memory.

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
    options: MergeOptions,
    graph: NeighbourGraph | None,
) -> MergeInputs:
    """Check the input, and order its clusters by content."""
    if not isinstance(distances, PairwiseTVD) and graph is not None:
        raise InputError(
            "neighbours has no effect without scores; pass a PairwiseTVD as distances, or leave "
            "neighbours out."
        )
    if isinstance(distances, PairwiseWasserstein):
        if options.number is None or options.rank_by != "auto":
            raise InputError(
                "distances is a PairwiseWasserstein, which is in the unit of X, so it can only be "
                f"merged to a given number of clusters, without {option('rank_by')}; pass "
                f"{option('n_clusters')}, or pass {option('n_clusters', 1)} and cut the tree with "
                "tree.cut(height=...)."
            )
        ids, sizes, matrix = distances.cluster_ids, distances.sizes, _known(distances)
        return MergeInputs(ids, np.arange(len(ids)), sizes, matrix)
    if not isinstance(distances, PairwiseTVD):
        matrix = _square(distances)
        ids = np.arange(len(matrix))
        return MergeInputs(ids, ids, np.ones_like(ids), matrix)
    ids = distances.cluster_ids
    if len(distances.scores.rows) == 0:
        raise nothing_held_out()
    order = distances.scores.clusters_by_content()
    result = distances.reordered(order)
    if graph is not None:
        check_type("neighbours", graph, NeighbourGraph, "make it with unsplit.neighbour_graph")
        if graph.n_clusters != len(ids):
            raise InputError(
                f"neighbours has {graph.n_clusters} clusters but distances has {len(ids)}; make "
                "both from the same labels."
            )
        graph = renumbered(graph, np.argsort(order))
    return MergeInputs(ids, order, result.sizes, result=result, graph=graph)


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
    matrix = numeric_array("distances", distances, 2)
    is_square = matrix.shape[0] == matrix.shape[1] >= 2
    if not is_square or (matrix < 0).any() or not np.allclose(matrix, matrix.T):
        raise InputError(
            "distances must be a square matrix for at least two clusters, symmetric and not "
            f"negative, got one of shape {matrix.shape}; pass all pairs, not a condensed vector, "
            "or merge observations with unsplit.ClusterMerger().fit(X, initial_labels=labels)."
        )
    return (matrix + matrix.T) / 2


# --- stability ------------------------------------------------------------------------------------

# Every re-merge draws four fifths of the observations, in the graph and among the held-out scores,
# and merges by the same ranking and the same rule, beginning with what no draw would change.
# Networks are not trained again, no neighbours are searched for, and edges are compared with the
# same structureless data.
N_REMERGES = 20
DRAWN = 0.8  # share of the observations that a re-merge draws
# Where neighbours decide, no more held-out observations are needed; tests need as many as they had.
MOST_HELD_OUT = 5_000
# More clusters would take too long.
MOST_CLUSTERS = 1_000


def can_be_repeated(result: PairwiseTVD | None, options: MergeOptions) -> bool:
    """Whether re-merges are cheap and mean something: by *auto* or to a number of clusters."""
    if result is None or result.is_sparse or not result.has_scores:
        return False
    return result.n_clusters <= MOST_CLUSTERS and not options.names_rule


def sure_merges(merges: Sequence[Merge], k: int) -> list[Merge]:
    """The merges of k clusters that are so strong that every re-merge would make them."""
    found: list[Merge] = []
    number: dict[Node, Node] = dict(zip(range(k), range(k), strict=True))
    for step, merge in enumerate(merges):
        left, right = number.get(merge.left), number.get(merge.right)
        sure = merge.stage == BY_RULE and merge.strength >= limits.SURE
        if sure and left is not None and right is not None:
            number[k + step] = k + len(found)
            found.append(replace(merge, left=left, right=right))
    return found


def stability_of(plan: Plan, taken: Sequence[Merge], judged: Neighbourhoods | None) -> Stability:
    """Merge again and again, judging by the same structureless data as ``judged``.

    Whatever number was requested, re-merges stop by themselves: only that says how sure it is.
    """
    inputs = plan.inputs
    plan = replace(plan, options=replace(plan.options, n_clusters=None))
    rule, sure = plan.rule(), sure_merges(taken, len(inputs.ids))
    found = []
    for part, evidence in _redrawn(inputs, judged, plan.by):
        state = plan.state(part, plan.pairs(part), evidence, merges=sure, is_recorded=False)
        merge_allowed(state, rule)
        found.append(np.unique(state.firsts, return_inverse=True)[1])
    return Stability(np.stack(found)[:, np.argsort(inputs.order)])


def _redrawn(
    inputs: MergeInputs, judged: Neighbourhoods | None, by: str
) -> Iterator[tuple[MergeInputs, Neighbourhoods | None]]:
    """Resampled estimates and graphs, and the evidence from these graphs."""
    result, graph = inputs.result, inputs.graph
    assert result is not None
    # Always the same draws, and from no generator that anything else draws from.
    rng = np.random.default_rng(0)
    by_content = result.scores.by_content
    clusters = result.scores.clusters[by_content]
    groups = None if result.scores.groups is None else result.scores.groups[by_content]
    n_edges = None if graph is None else graph.edges_between()
    most = MOST_HELD_OUT if by == NEIGHBOURS else len(clusters)
    for _ in range(N_REMERGES):
        part = estimate_of_some(result, np.sort(by_content[_drawn(clusters, most, rng, groups)]))
        drawn, evidence = None, None
        if judged is not None and n_edges is not None:
            some = judged.sample
            drawn = graph_of_some(some, _drawn(some.clusters, len(some.clusters), rng, some.groups))
            evidence = Neighbourhoods(drawn, rng)
            # What was too rare in the sample is still judged by all edges.
            evidence.count(n_edges)
            evidence.is_sample = judged.is_sample
            evidence.curve, evidence.only_decides = judged.curve, True
        yield replace(inputs, result=part, graph=drawn), evidence


def _drawn(
    clusters: Index, most: int, rng: np.random.Generator, groups: Index | None = None
) -> Index:
    """Positions of a random part in which every cluster keeps one observation at least.

    It consists of whole groups, if there are any.
    """
    n = len(clusters)
    if groups is not None:
        units = np.unique(groups)
        drawn = rng.choice(units, max(1, round(DRAWN * len(units))), replace=False)
        positions = np.flatnonzero(np.isin(groups, drawn) | (groups < 0))
        if len(positions) > most:
            positions = rng.choice(positions, most, replace=False)
    else:
        positions = rng.choice(n, min(most, round(DRAWN * n)), replace=False)
    first = np.unique(clusters, return_index=True)[1]
    return np.union1d(positions, first[clusters[first] >= 0])
