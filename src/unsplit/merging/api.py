"""Merging: distances and options in, a merge tree out."""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index
from unsplit.data.frames import refuse_annotated
from unsplit.data.memory import available_memory, memory_errors, require_memory
from unsplit.devices import check_seed, generator_of
from unsplit.errors import InputError, option
from unsplit.merging.decision import (
    NEIGHBOURS,
    NO_SHARED_BATCH,
    ONE_GROUP,
    Always,
    Auto,
    Rule,
    WithinBatches,
)
from unsplit.merging.evidence import evidence_of
from unsplit.merging.loop import MergeRecord, MergeState, agglomerate, assigned_slots
from unsplit.merging.neighbours.evidence import Neighbourhoods
from unsplit.merging.neighbours.graph import (
    Connected,
    NeighbourGraph,
    graph_of_scores,
    renumbered,
)
from unsplit.merging.options import (
    NEED_NEIGHBOURS,
    OVERLAP_AND_EDGES,
    Link,
    MergeOptions,
    check_links,
    check_same_clusters,
)
from unsplit.merging.origin import (
    are_cores,
    needs_both_at_random,
    origin,
    ranking_statistic,
    split_at_random,
    stopping_rule,
)
from unsplit.merging.pairs import Linked, Pairs, Ranking, mean_rank
from unsplit.merging.remerge import Remerge, can_be_repeated, remerged, sure_merges
from unsplit.merging.review import Stability
from unsplit.merging.sparse_pairs import SparseNeighbourhoods, SparsePairs, pairs_of
from unsplit.merging.tree import MergeTree, with_stability
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.wasserstein.result import PairwiseWasserstein

State = TypeVar("State", bound=MergeState)

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
    *,
    n_clusters: int | None = None,
    max_tvd: float | None = None,
    alpha: float | None = None,
    rank_by: str = "auto",
    must_link: Iterable[Link] = (),
    cannot_link: Iterable[Link] = (),
    constraints: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    min_clusters: int | None = None,
    max_clusters: int | None = None,
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
        Pass at most one.  ``n_clusters`` stops at this many clusters.  ``max_tvd`` merges pairs
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
    must_link, cannot_link : iterables of pairs of cluster names
        Clusters known to belong together, or known to be different.
    constraints : path or mapping, optional
        The answers that the page of an earlier result exported, as a JSON file or its content;
        they are added to ``must_link`` and ``cannot_link``.
    min_clusters, max_clusters : int, optional
        Bounds on the number of clusters, whichever rule applies.
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
    for name, links in (("must_link", must_link), ("cannot_link", cannot_link)):
        check_links(name, links)
    check_seed(random_state)
    check_wasserstein(distances, n_clusters, max_tvd, rank_by)
    links = tuple(must_link), tuple(cannot_link)
    options = MergeOptions(
        n_clusters, max_tvd, alpha, rank_by, *links, min_clusters, max_clusters, rule, labels_from
    )
    if constraints is not None:
        options = options.with_answers(constraints, merge_inputs(distances).ids)
    with memory_errors("merging the clusters", FEWER_CLUSTERS):
        if neighbours is None and isinstance(distances, PairwiseTVD):
            neighbours = _own_graph(distances, options)
        return merge_with(distances, options, neighbours, random_state)


def _own_graph(result: PairwiseTVD, options: MergeOptions) -> NeighbourGraph | None:
    """The neighbour graph of the network's scores, if *auto* would ask one."""
    if result.is_sparse:
        return None
    # Between cores observations were left out, so a number of them is reached closest first.
    closest_first = options.n_clusters is not None and are_cores(result)
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
    rule, pairs = plan.rule(options), plan.pairs(inputs)
    judged = _neighbourhoods(inputs, pairs, random_state)
    state = plan.state(
        MergeState,
        (inputs, pairs, judged),
        options,
        on_merge=on_merge,
        compare_all=not inputs.is_sparse or rule not in (Always(), Auto(NEIGHBOURS)),
    )
    record = agglomerate(state, rule)
    sizes = inputs.sizes[np.argsort(inputs.order)]
    tree = record.tree(inputs.ids, sizes, inputs.order, pairs.ranking.statistic, options)
    if inputs.result is not None and can_be_repeated(inputs.result, options):
        return with_stability(tree, _repeated(plan, inputs.result, record, judged))
    return tree


def _check(inputs: "MergeInputs", options: MergeOptions) -> None:
    """Refuse options that need more than there is, and more clusters than fit into memory."""
    result = inputs.result
    if inputs.is_sparse:
        options.check_sparse()
    else:
        check_memory(len(inputs.ids), MATRICES if result is None else MATRICES_OF_SCORES)
    options.check_input(result is not None, inputs.graph is not None)


@dataclass(frozen=True, eq=False)
class Plan:
    """What a merge and its re-merges have in common.

    ``at_random`` are the clusters that were split at random, ``by`` is what decides about most
    pairs, ``statistic`` what ranks them; ``assigned`` as :func:`assigned_slots` returns it.
    """

    inputs: "MergeInputs"
    options: MergeOptions
    assigned: Index
    at_random: NDArray[np.bool_]
    by: str = ""
    statistic: str = "distance"

    @classmethod
    def of(cls, inputs: "MergeInputs", options: MergeOptions, assigned: Index) -> "Plan":
        """Find out how the clusters were made, and what to do about it."""
        result, graph = inputs.result, inputs.graph
        if result is None:
            return cls(inputs, options, assigned, np.zeros(len(inputs.ids), bool))
        at_random, by = origin(result, graph, split_at_random(result), options)
        source = None if graph is None else graph.source
        statistic = ranking_statistic(options, result, by, source)
        return cls(inputs, options, assigned, at_random, by, statistic)

    def rule(self, options: MergeOptions) -> Rule:
        """The stopping rule, which keeps pairs apart that cannot be compared."""
        result = self.inputs.result
        rule = stopping_rule(result, options, self.by)
        if result is None or result.is_sparse or result.comparable.all():
            return rule
        return WithinBatches(rule, NO_SHARED_BATCH if result.n_groups is None else ONE_GROUP)

    def pairs(self, inputs: "MergeInputs") -> Pairs | SparsePairs:
        """What ranks the pairs of a merge, or of a re-merge of other inputs."""
        result = inputs.result
        if result is None:
            assert inputs.matrix is not None
            return Pairs(Linked(inputs.matrix, self.statistic))
        if result.is_sparse:
            return pairs_of(result, inputs.graph, self.statistic)
        return Pairs(_ranking(result, inputs.graph, self.statistic), result.tvd)

    def state(
        self,
        kind: type[State],
        known: tuple["MergeInputs", Pairs | SparsePairs, Neighbourhoods | None],
        options: MergeOptions,
        **more: Any,
    ) -> State:
        """The state with which a merge of these inputs begins."""
        inputs, pairs, neighbourhoods = known
        result = inputs.result
        return kind(
            pairs=pairs,
            evidence=None if result is None else evidence_of(result, options.alpha is not None),
            neighbourhoods=neighbourhoods,
            at_random=self.at_random,
            both_at_random=needs_both_at_random(self.by, inputs.graph),
            small=np.zeros(len(inputs.ids), bool) if result is None else result.too_small,
            assigned=self.assigned,
            n_pairs=1 if result is None else result.n_possibly_equal,
            constraints=options.constraints(inputs.ids[inputs.order]),
            sizes=inputs.sizes,
            **more,
        )


def _repeated(
    plan: Plan, result: PairwiseTVD, record: MergeRecord, judged: Neighbourhoods | None
) -> Stability:
    """Merge again and again.

    Whatever number was requested, re-merges stop by themselves: only that says how sure it is.
    """
    inputs = plan.inputs
    free = replace(plan.options, n_clusters=None, min_clusters=None, max_clusters=None)
    sure = sure_merges(record.merges[: record.n_taken], len(inputs.ids))

    def again(
        part: PairwiseTVD, graph: NeighbourGraph | None, judged: Neighbourhoods | None
    ) -> Remerge:
        parts = replace(inputs, result=part, graph=graph)
        known = parts, plan.pairs(parts), judged
        return plan.state(Remerge, known, free, record=MergeRecord(sure))

    groups = remerged(result, inputs.graph, judged, again, plan.rule(free), plan.by)
    return Stability(groups[:, np.argsort(inputs.order)])


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


@dataclass(frozen=True, eq=False)
class MergeInputs:
    """The input with its clusters in the order in which they first appear in the data.

    Among equally close pairs the first is merged first; in this order that does not depend on the
    names of the clusters.  ``ids`` are in the user's order, ``ids[order]`` in the new one.
    """

    ids: NDArray[Any]
    order: Index
    sizes: Index
    matrix: NDArray[np.float64] | None = None
    result: PairwiseTVD | None = None
    graph: NeighbourGraph | None = None

    @property
    def is_sparse(self) -> bool:
        """Whether only some pairs are stored."""
        return self.result is not None and self.result.is_sparse


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


def check_wasserstein(
    distances: object, n_clusters: int | None, max_tvd: float | None, rank_by: str
) -> None:
    """Refuse options that take distances for TVDs, if they are Wasserstein distances."""
    if not isinstance(distances, PairwiseWasserstein):
        return
    if n_clusters is None or max_tvd is not None or rank_by != "auto":
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


def _ranking(result: PairwiseTVD, graph: NeighbourGraph | None, statistic: str) -> Ranking:
    """What ranks all pairs."""
    if statistic not in NEED_NEIGHBOURS:
        return Linked(result.divergence(statistic), statistic, result.comparable)
    assert graph is not None
    if statistic != OVERLAP_AND_EDGES:
        return Connected(graph)
    both = mean_rank(result.divergence("overlap"), Connected(graph).distances())
    return Linked(both, statistic, result.comparable)


def _neighbourhoods(
    inputs: MergeInputs, pairs: Pairs | SparsePairs, random_state: object
) -> Neighbourhoods | None:
    if inputs.graph is None:
        return None
    # Without a seed the same graph still gives the same result.
    rng = generator_of(0 if random_state is None else random_state)
    if isinstance(pairs, SparsePairs):
        return SparseNeighbourhoods(inputs.graph, rng, pairs.ranking)
    return Neighbourhoods(inputs.graph, rng)
