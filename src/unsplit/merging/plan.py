"""How a merge is to be done: how the clusters were made, and which rule and ranking that asks for.

Clusters that were split at random cannot be told apart from each other, so tests decide.  Clusters
that were cut out of the features that are now compared all differ, so neighbours decide.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from unsplit._typing import Index
from unsplit.devices import generator_of
from unsplit.errors import PartitionWarning, option, warn
from unsplit.merging import limits
from unsplit.merging.decision import (
    NEIGHBOURS,
    NO_SHARED_BATCH,
    ONE_GROUP,
    TESTS,
    Alpha,
    Always,
    Auto,
    MaxTVD,
    Pair,
    Rule,
    UsersRule,
    WithinBatches,
)
from unsplit.merging.evidence import CONFIDENCE, Mixtures, evidence_of
from unsplit.merging.loop import MergeState
from unsplit.merging.neighbours.evidence import Neighbourhoods
from unsplit.merging.neighbours.graph import (
    OBSERVATIONS,
    OTHER_FEATURES,
    SCORES,
    Connections,
    NeighbourGraph,
)
from unsplit.merging.options import (
    CLUSTERING,
    ELSEWHERE,
    NEED_NEIGHBOURS,
    OVERLAP_AND_EDGES,
    MergeOptions,
)
from unsplit.merging.pairs import Linked, Pairs, Ranking, mean_rank
from unsplit.merging.sparse_pairs import SparseConnections, SparsePairs, pairs_of
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.statistics import adjust_for_pairs

State = TypeVar("State", bound=MergeState)


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


@dataclass(frozen=True, eq=False)
class Plan:
    """What a merge and its re-merges have in common.

    ``at_random`` are the clusters that were split at random, ``by`` is what decides about most
    pairs, ``statistic`` what ranks them; ``assigned`` as :func:`assigned_slots` returns it.
    """

    inputs: MergeInputs
    options: MergeOptions
    assigned: Index
    at_random: NDArray[np.bool_]
    by: str = ""
    statistic: str = "distance"

    @classmethod
    def of(cls, inputs: MergeInputs, options: MergeOptions, assigned: Index) -> "Plan":
        """Find out how the clusters were made, and what to do about it."""
        result, graph = inputs.result, inputs.graph
        if result is None:
            return cls(inputs, options, assigned, np.zeros(len(inputs.ids), bool))
        at_random, by = origin(result, graph, split_at_random(result), options)
        source = None if graph is None else graph.source
        statistic = ranking_statistic(options, result, by, source)
        return cls(inputs, options, assigned, at_random, by, statistic)

    def rule(self) -> Rule:
        """The stopping rule, which keeps pairs apart that cannot be compared."""
        result = self.inputs.result
        rule = stopping_rule(result, self.options, self.by)
        if result is None or result.is_sparse or result.comparable.all():
            return rule
        return WithinBatches(rule, NO_SHARED_BATCH if result.n_groups is None else ONE_GROUP)

    def pairs(self, inputs: MergeInputs) -> Pairs | SparsePairs:
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
        known: tuple[MergeInputs, Pairs | SparsePairs, Neighbourhoods | None],
        **more: Any,
    ) -> State:
        """The state with which a merge of these inputs begins."""
        inputs, pairs, neighbourhoods = known
        result, options = inputs.result, self.options
        return kind(
            pairs=pairs,
            evidence=None if result is None else evidence_of(result),
            p_values=None if result is None or options.alpha is None else result.p_value,
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


def _ranking(result: PairwiseTVD, graph: NeighbourGraph | None, statistic: str) -> Ranking:
    """What ranks all pairs."""
    if statistic not in NEED_NEIGHBOURS:
        return Linked(result.divergence(statistic), statistic, result.comparable)
    assert graph is not None
    if statistic != OVERLAP_AND_EDGES:
        return Connections(graph)
    both = mean_rank(result.divergence("overlap"), Connections(graph).distances())
    return Linked(both, statistic, result.comparable)


def neighbourhoods_of(
    inputs: MergeInputs, pairs: Pairs | SparsePairs, random_state: object
) -> Neighbourhoods | None:
    """The evidence from the neighbour graph, if there is one."""
    if inputs.graph is None:
        return None
    # Without a seed the same graph still gives the same result.
    rng = generator_of(0 if random_state is None else random_state)
    if isinstance(pairs, SparsePairs):
        if isinstance(pairs.ranking, SparseConnections):
            return Neighbourhoods(inputs.graph, rng, pairs.ranking, is_shared=True)
        return Neighbourhoods(inputs.graph, rng, SparseConnections(inputs.graph))
    return Neighbourhoods(inputs.graph, rng)


def stopping_rule(result: PairwiseTVD | None, options: MergeOptions, by: str) -> Rule:
    """The rule that the options ask for; *auto* if they name none.

    Parameters
    ----------
    result : PairwiseTVD, optional
        None for a plain matrix.
    options : MergeOptions
    by : str
        What decides about most pairs, as :func:`origin` says.
    """
    if options.rule is not None:
        return UsersRule(options.rule)
    if options.number is not None:
        # Merge first what auto would merge, so that the tree is the same as that of auto.
        plain = result is None or by == TESTS
        return Always() if plain else Auto(by)
    if options.max_tvd is None and options.alpha is None:
        return Auto(by)
    if result is not None:
        _warn_of_partition(result)
    if options.alpha is not None:
        return Alpha(options.alpha)
    assert options.max_tvd is not None
    return MaxTVD(options.max_tvd)


def needs_both_at_random(by: str, graph: NeighbourGraph | None) -> bool:
    """Whether tests judge a pair only if both clusters were split at random.

    They do where clusters were cut out of the features that neighbours were found in.  Scores are
    the network's own, and say nothing about how clusters were made.
    """
    return by == NEIGHBOURS and graph is not None and graph.source != SCORES


def ranking_statistic(
    options: MergeOptions, result: PairwiseTVD, by: str, source: str | None
) -> str:
    """The statistic that ranks pairs, where "auto" leaves the choice to us.

    Clusters cut out of the same features are ranked by their neighbours, clusters split at random
    by the network.  Cores can nearly all be told apart; what the scores of other observations say
    of them ("overlap") ranks better.  A graph of features that the network does not see knows
    something else again, so both rank together.  ``source`` is that of the graph, if there is one.
    """
    if options.rank_by != "auto":
        return options.rank_by
    cores = are_cores(result)
    if by == NEIGHBOURS:
        return BY_SOURCE_OF_CORES[source] if cores and source is not None else "edges"
    return "overlap" if options.number is not None and cores else "lecam"


# How cores are ranked, by what the neighbours of the graph were found in.
BY_SOURCE_OF_CORES = {
    OBSERVATIONS: "edges",
    OTHER_FEATURES: OVERLAP_AND_EDGES,
    SCORES: "overlap",
}


def split_at_random(result: PairwiseTVD, level: float = limits.LEVEL) -> NDArray[np.bool_]:
    """Which clusters have a twin that they cannot be told apart from, shape (k,).

    Such a cluster is one of several random parts of a larger group: tests find no difference
    between these parts, and a difference to everything else.  Clusters too small to tell are
    treated like the majority.  If almost all observations are in clusters with a twin, a cluster
    without one is a group that was not split, and is treated like the others.
    """
    large = result.n_heldout >= limits.FEWEST_TO_BE_ALIKE
    nearest, distances = result.nearest(large)
    near = np.flatnonzero(distances <= limits.LARGE_TVD)
    pairs = np.unique(np.sort(np.stack([near, nearest[near]], axis=1), axis=1), axis=0)
    found = np.zeros(result.n_clusters, bool)
    found[pairs[_are_alike(result, pairs, level)]] = True
    return at_random_like_most(found, large, result.sizes, lambda: not looks_like_partition(result))


def at_random_like_most(
    found: NDArray[np.bool_],
    large: NDArray[np.bool_],
    sizes: Index,
    otherwise: Callable[[], bool],
) -> NDArray[np.bool_]:
    """Which clusters were split at random, given those that have a twin.

    Parameters
    ----------
    found, large : ndarrays of shape (k,)
        Whether a cluster has a twin, and whether it is large enough to tell.
    sizes : ndarray of shape (k,)
    otherwise : callable
        Says what the other clusters are if most are too small to tell.
    """
    if 2 * large.sum() >= len(large):
        usual = bool(2 * found[large].sum() >= large.sum())
    else:
        usual = otherwise()
    found = np.where(large, found, usual)
    almost_all = sizes[found].sum() >= limits.ALMOST_ALL * sizes.sum()
    return found | almost_all


def _are_alike(result: PairwiseTVD, pairs: Index, level: float) -> NDArray[np.bool_]:
    """Whether no difference is significant and the TVD cannot be large, for each pair."""
    n_pairs = math.comb(result.n_clusters, 2)
    if not result.is_sparse:
        evidence = Mixtures(result)
        alike = [Pair(a, b, 0.0, n_pairs, evidence).alike(level) for a, b in pairs.tolist()]
        return np.array(alike, bool)
    left, right = pairs.T
    p = adjust_for_pairs(result.p_value[left, right], n_pairs)
    high = result.confidence_interval(CONFIDENCE)[1][left, right]
    return (p > level) & (high <= limits.LARGE_TVD)


def origin(
    result: PairwiseTVD,
    graph: NeighbourGraph | None,
    at_random: NDArray[np.bool_],
    options: MergeOptions,
) -> tuple[NDArray[np.bool_], str]:
    """Which clusters tests judge, and what decides about most: tests or neighbours.

    Parameters
    ----------
    result : PairwiseTVD
    graph : NeighbourGraph, optional
    at_random : ndarray of shape (k,)
        Which clusters were split at random, as far as tests can tell.
    options : MergeOptions
    """
    if options.labels_from == ELSEWHERE:
        return np.ones_like(at_random), TESTS
    if options.labels_from == CLUSTERING:
        at_random = np.zeros_like(at_random)
    elif 2 * result.sizes[at_random].sum() >= result.sizes.sum():
        return at_random, TESTS
    if graph is None:
        return at_random, TESTS
    if (
        options.labels_from == "auto"
        and options.asks_neighbours
        and _from_elsewhere(result, graph, at_random)
    ):
        warn(
            "the clusters do not follow the features they are compared by, so they seem to come "
            "from elsewhere, and tests decide; if they were computed from these features, pass "
            f"{option('labels_from', 'clustering')}, and if not, "
            f"{option('labels_from', 'elsewhere')}.",
            PartitionWarning,
        )
        return np.ones_like(at_random), TESTS
    return at_random, NEIGHBOURS


# Clusters and observations that are looked at; many clusters are hardly ever given by hand.
MOST_GIVEN, MOST_LOOKED_AT = 100, 5_000


def _from_elsewhere(
    result: PairwiseTVD, graph: NeighbourGraph, at_random: NDArray[np.bool_]
) -> bool:
    """Whether far more neighbours are in different clusters than after k-means of the features.

    Clusters that were split at random have such neighbours anyway, and do not count.
    """
    k, n = graph.n_clusters, len(graph.rows)
    comparable = graph.source == OBSERVATIONS and not graph.batches.any() and not are_cores(result)
    if not comparable or k > MOST_GIVEN or n <= k:
        return False
    label = np.full(int(max(graph.rows.max(), result.scores.rows.max(initial=0))) + 1, -1)
    label[result.scores.rows] = np.where(at_random, -1, np.arange(k))[result.scores.clusters]
    some = np.random.default_rng(0).permutation(n)[:MOST_LOOKED_AT]
    model = KMeans(min(k, len(some)), n_init=1, random_state=0).fit(graph.features[some])
    left, right = graph.adjacency[some].nonzero()
    ends = some[left], right
    label = label[graph.rows]
    known = (label[ends[0]] >= 0) & (label[ends[1]] >= 0)
    near = model.predict(graph.features)
    outside, usual = (
        np.count_nonzero((of[ends[0]] != of[ends[1]]) & known) for of in (label, near)
    )
    return bool(outside > limits.FROM_ELSEWHERE * max(usual, limits.LEAST_OUTSIDE * known.sum()))


def are_cores(result: PairwiseTVD) -> bool:
    """Whether at least half of the observations are in no cluster."""
    n_clustered = int(result.sizes.sum())
    return n_clustered <= limits.CORES * (n_clustered + result.n_noise)


def looks_like_partition(result: PairwiseTVD) -> bool:
    """Whether most clusters can be told apart even from their nearest neighbour.

    This is the case after k-means, Leiden and the like: they cut up the features that are now
    compared, so every pair is separable by construction and every two-sample test is significant.
    """
    return _median_nearest(result) > limits.LARGE_TVD


def _median_nearest(result: PairwiseTVD) -> float:
    # A tiny cluster looks close to all others, because a few held-out observations say little.
    large = result.n_heldout >= min(limits.FEW, np.sort(result.n_heldout)[-2])
    nearest = result.nearest(large)[1]
    nearest = nearest[np.isfinite(nearest)]
    return float(np.median(nearest)) if len(nearest) else 0.0


def _warn_of_partition(result: PairwiseTVD) -> None:
    if not looks_like_partition(result):
        return
    warn(
        "the clusters look like a partition of the features they are compared by (median TVD to "
        f"the nearest neighbour {_median_nearest(result):.2f}), so nearly all pairs differ by "
        "construction and max_tvd or alpha will merge little; leave both out to merge by density "
        "instead.",
        PartitionWarning,
    )
