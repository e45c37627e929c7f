"""What a merge is to do: the options of the user, and the rule and the ranking that they ask for.

Clusters that were split at random cannot be told apart from each other, so tests decide.  Clusters
that were cut out of the features that are now compared all differ, so neighbours decide.
"""

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, pairwise, product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import KMeans

from unsplit._typing import Cluster, Index
from unsplit.devices import generator_of
from unsplit.errors import (
    InputError,
    PartitionWarning,
    check_choice,
    is_number,
    is_whole,
    option,
    shown,
    warn,
)
from unsplit.merging import decision, limits
from unsplit.merging.decision import NEIGHBOURS, TESTS, Auto, Pair, Rule
from unsplit.merging.loop import Constraints, MergeState
from unsplit.merging.neighbours.evidence import Neighbourhoods
from unsplit.merging.neighbours.graph import (
    OBSERVATIONS,
    OTHER_FEATURES,
    SCORES,
    Connections,
    NeighbourGraph,
)
from unsplit.merging.pairs import CONFIDENCE, Linked, Mixtures, Pairs, mean_rank
from unsplit.merging.saved_merges import DIFFERENT, SAME, Answer, read_answers
from unsplit.merging.sparse_pairs import SparseConnections, SparsePairs, pairs_of
from unsplit.pairwise.divergences import DIVERGENCES
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.statistics import adjust_for_pairs

# --- what the user asks for -----------------------------------------------------------------------

# The mean rank of a pair by overlap and by edges.
OVERLAP_AND_EDGES = "overlap and edges"
NEED_NEIGHBOURS = ("edges", OVERLAP_AND_EDGES)
RANKINGS = ("auto", *NEED_NEIGHBOURS, *DIVERGENCES)
# Where the labels come from: computed from the features that are compared, or not.
CLUSTERING, ELSEWHERE = "clustering", "elsewhere"
LABELS_FROM = ("auto", CLUSTERING, ELSEWHERE)
# Overlap needs all pairs.  What ranks pairs of a sparse estimate instead.
WITHOUT_OVERLAP = {"overlap": "lecam", OVERLAP_AND_EDGES: "edges"}

Link = Sequence[Any]
LINKS = ("must_link", "cannot_link")


# What refined labels do about initial clusters that lie across a gap.
IGNORE, CUT, KEEP_NUMBER = GAPS = ("ignore", "cut", "keep number")


@dataclass(frozen=True)
class MergeOptions:
    """The options of :func:`unsplit.merge`, under the same names, checked when they are made."""

    n_clusters: int | Sequence[int | None] | None = None
    max_tvd: float | None = None
    alpha: float | None = None
    rank_by: str = "auto"
    must_link: Sequence[Link] = ()
    cannot_link: Sequence[Link] = ()
    rule: Rule | None = None
    labels_from: str = "auto"
    # Of a review; the tree remembers them.
    answers: tuple[Answer, ...] = ()

    def __post_init__(self) -> None:
        check_choice("rank_by", self.rank_by, RANKINGS)
        check_choice("labels_from", self.labels_from, LABELS_FROM)
        names = ("n_clusters", "max_tvd", "alpha", "rule")
        chosen = [name for name in names if getattr(self, name) is not None]
        if self.is_pair:
            chosen.remove("n_clusters")
        if len(chosen) > 1:
            two = " and ".join(map(option, chosen))
            raise InputError(f"{two} are two stopping rules; choose one.")
        for name in ("max_tvd", "alpha"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and 0 <= value <= 1):
                raise InputError(f"{option(name)} must lie between 0 and 1, got {shown(value)}.")
        if self.rule is not None and not callable(getattr(self.rule, "judge", None)):
            raise InputError(
                f"rule must be an object with a method judge(pair), got {shown(self.rule)}; see "
                "unsplit.merging.decision for examples."
            )
        if self.labels_from != "auto" and not self.asks_neighbours:
            raise InputError(
                f"{option('labels_from', self.labels_from)} has no effect with "
                f"{option('max_tvd')}, {option('alpha')}, a rule of yours or a ranking by edges, "
                "which do not ask where labels come from; leave it out."
            )

    def gaps(self, strategy: str) -> str:
        """What :func:`unsplit.refine` does about gaps after a merge by this strategy of the tree.

        Clusters are cut only where the neighbour graph has merged them and nothing else was asked
        for: a limit, a rule or links of the user would not hold for parts.
        """
        linked = self.must_link or self.cannot_link or self.answers
        if strategy != "neighbours" or linked or self.names_rule or self.is_pair:
            return IGNORE
        return CUT if self.n_clusters is None else KEEP_NUMBER

    @property
    def names_rule(self) -> bool:
        """Whether a limit or a rule is named, so that *auto* does not decide."""
        return any(choice is not None for choice in (self.max_tvd, self.alpha, self.rule))

    @property
    def is_pair(self) -> bool:
        """Whether ``n_clusters`` are bounds (fewest, most), and no number that is requested."""
        n = self.n_clusters
        return isinstance(n, Sequence) and not isinstance(n, str | bytes) and len(n) == 2

    @property
    def number(self) -> int | None:
        """The requested number of clusters, if there is one."""
        return None if self.is_pair else self.n_clusters  # type: ignore[return-value]

    def constraints(self, cluster_ids: NDArray[Any]) -> Constraints:
        """Links and bounds for these clusters, or an error that says why there can be none."""
        k = len(cluster_ids)
        fewest, most = self._bounds(k)
        same = [(*a.left, *a.right) for a in self.answers if a.answer == SAME]
        different = [product(a.left, a.right) for a in self.answers if a.answer == DIFFERENT]
        known = {str(name): index for index, name in enumerate(cluster_ids.tolist())}
        must = _indices("must_link", self.must_link, known)
        must += _indices("constraints", same, known)
        cannot = _indices("cannot_link", self.cannot_link, known)
        cannot += _indices("constraints", chain.from_iterable(different), known)
        joined = [pair for link in must for pair in pairwise(link)]
        apart = [pair for link in cannot for pair in combinations(link, 2)]
        n_left = self._without_contradiction(joined, apart, cluster_ids)
        if n_left < fewest:
            raise InputError(
                f"{option('must_link')} leaves {n_left} clusters, fewer than the {fewest} "
                "requested; drop a link or request fewer clusters."
            )
        return Constraints(joined, apart, fewest, most)

    def _bounds(self, k: int) -> tuple[int, int]:
        """The fewest and the most of k clusters to leave."""
        n: Any = self.n_clusters
        fewest, most = n if self.is_pair else (n, n)
        for bound in (fewest, most):
            if bound is not None and not (is_whole(bound) and 1 <= bound <= k):
                raise InputError(
                    f"{option('n_clusters')} must be a whole number from 1 to {k}, the number of "
                    f"initial clusters, or a pair (fewest, most), got {shown(n)}."
                )
        fewest, most = 1 if fewest is None else int(fewest), k if most is None else int(most)
        if fewest > most:
            raise InputError(
                f"{option('n_clusters')} asks for at least {fewest} and at most {most} clusters; "
                "swap the two numbers."
            )
        return fewest, most

    def _without_contradiction(
        self, joined: list[tuple[int, int]], apart: list[tuple[int, int]], ids: NDArray[Any]
    ) -> int:
        """How many clusters the links leave, unless they both join a pair and keep it apart."""
        ends = np.array(joined, np.int64).reshape(-1, 2).T
        linked = csr_array((np.ones(len(joined)), ends), (len(ids), len(ids)))
        n_left, group = connected_components(linked, directed=False)
        for a, b in apart:
            if group[a] == group[b]:
                raise InputError(
                    f"{ids[a]} and {ids[b]} are to be kept apart ({option('cannot_link')}, or an "
                    f"answer), but {option('must_link')} or other answers join them; drop one of "
                    "these links."
                )
        return int(n_left)

    def with_constraints(
        self, constraints: "str | os.PathLike[str] | Mapping[str, Any] | None"
    ) -> "MergeOptions":
        """The same options with links, or with the answers of a review, or with both."""
        if constraints is None:
            return self
        known: Any = constraints
        if not isinstance(constraints, Mapping) or "format" in constraints:
            known = {"answers": constraints}
        if not known or known.keys() - {*LINKS, "answers"}:
            raise InputError(
                "constraints must be a file of answers, or a mapping with must_link and "
                f"cannot_link, got {shown(constraints)}; pass for example "
                '{"must_link": [(3, 7)]}.'
            )
        answers = read_answers(known["answers"]) if "answers" in known else ()
        given = [known.get(name, ()) for name in LINKS]
        joined, apart = (tuple(x) if isinstance(x, Iterable) else (x,) for x in given)
        return replace(self, answers=answers, must_link=joined, cannot_link=apart)

    @property
    def asks_neighbours(self) -> bool:
        """Whether *auto* may decide, so that a neighbour graph is made if none was passed."""
        return not self.names_rule and self.rank_by not in NEED_NEIGHBOURS

    def check_sparse(self) -> None:
        """Refuse options that need all pairs, if only confused pairs are stored."""
        if self.rank_by not in WITHOUT_OVERLAP:
            return
        raise InputError(
            f"{option('rank_by', self.rank_by)} needs the distances of all pairs, and of very many "
            "clusters only those are stored that are ever confused (a sparse estimate); use "
            f"{option('rank_by', WITHOUT_OVERLAP[self.rank_by])}, or unsplit.pairwise_tvd with "
            'form="dense" if its matrices fit into memory.'
        )

    def check_input(self, has_scores: bool, has_neighbours: bool) -> None:
        """Refuse options that need more than there is."""
        knows_when = any(choice is not None for choice in (self.number, self.max_tvd, self.rule))
        if not knows_when and not has_scores:
            raise InputError(
                f"{option('n_clusters')} or {option('max_tvd')} is required for a plain matrix, "
                "which has no scores to test; pass one of them, or a PairwiseTVD."
            )
        if self.rank_by in NEED_NEIGHBOURS and not has_neighbours:
            raise InputError(
                f"{option('rank_by', self.rank_by)} needs neighbours; pass "
                "neighbours=unsplit.neighbour_graph(X, labels) with a PairwiseTVD."
            )


def _indices(name: str, links: Iterable[Link], known: Mapping[str, int]) -> list[list[int]]:
    """Links of two clusters or more by their indices; ``name`` is the option that they are from."""
    found = []
    for link in links:
        several = isinstance(link, Collection) and not isinstance(link, str | bytes)
        if not several or len({str(cluster) for cluster in link}) < max(2, len(link)):
            raise InputError(
                f"{option(name)} must hold pairs of cluster names, got {shown(link)}; pass a list "
                "such as [(3, 7)]."
            )
        for cluster in link:
            if str(cluster) not in known:
                raise InputError(
                    f"{option(name)} names {shown(cluster)}, which is not a cluster; the clusters "
                    f"are {', '.join(list(known)[:8])}{', …' if len(known) > 8 else ''}."
                )
        found.append([known[str(cluster)] for cluster in link])
    return found


# --- how it is done -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MergeInputs:
    """The input with its clusters ordered by content.

    Among equally close pairs the first is merged first; so that depends neither on the order of the
    rows nor on names.  ``ids`` are in the user's order, ``ids[order]`` in this one.
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
    pairs, ``statistic`` what ranks them.
    """

    inputs: MergeInputs
    options: MergeOptions
    assigned: dict[Cluster, Cluster]
    at_random: NDArray[np.bool_]
    by: str = ""
    statistic: str = "distance"

    @classmethod
    def of(
        cls, inputs: MergeInputs, options: MergeOptions, assigned_to: ArrayLike | None
    ) -> "Plan":
        """Find out how the clusters were made, and what to do about it."""
        result, graph, assigned = inputs.result, inputs.graph, {}
        if assigned_to is not None:
            place, targets = np.argsort(inputs.order), np.asarray(assigned_to)
            small = np.flatnonzero(targets >= 0)
            assigned = dict(zip(place[small].tolist(), place[targets[small]].tolist(), strict=True))
        if result is None:
            return cls(inputs, options, assigned, np.zeros(len(inputs.ids), bool))
        at_random, by = origin(result, graph, split_at_random(result), options)
        statistic = _ranking_statistic(options, result, by, graph)
        return cls(inputs, options, assigned, at_random, by, statistic)

    def rule(self) -> Rule:
        """The stopping rule that the options ask for; *auto* if they name none.

        It keeps pairs apart that cannot be compared.
        """
        result, options = self.inputs.result, self.options
        rule: Rule = Auto(self.by)
        if options.rule is not None:
            rule = decision.UsersRule(options.rule)
        elif options.number is not None:
            # Merge first what auto would merge, so that the tree is the same as that of auto.
            rule = decision.Always() if result is None or self.by == TESTS else rule
        elif options.alpha is not None:
            rule = decision.Alpha(options.alpha)
        elif options.max_tvd is not None:
            rule = decision.MaxTVD(options.max_tvd)
        if result is None or result.is_sparse or result.comparable.all():
            return rule
        why = decision.NO_SHARED_BATCH if result.n_groups is None else decision.ONE_GROUP
        return decision.WithinBatches(rule, why)

    def pairs(self, inputs: MergeInputs) -> Pairs | SparsePairs:
        """What ranks the pairs of a merge, or of a re-merge of other inputs."""
        result, graph, statistic = inputs.result, inputs.graph, self.statistic
        if result is None:
            assert inputs.matrix is not None
            return Pairs(Linked(inputs.matrix, statistic))
        if result.is_sparse:
            return pairs_of(result, graph, statistic)
        if statistic not in NEED_NEIGHBOURS:
            matrix = result.divergence(statistic)
            return Pairs(Linked(matrix, statistic, result.comparable), result.tvd)
        assert graph is not None
        edges = Connections(graph)
        if statistic != OVERLAP_AND_EDGES:
            return Pairs(edges, result.tvd)
        both = mean_rank(result.divergence("overlap"), edges.distances())
        return Pairs(Linked(both, statistic, result.comparable), result.tvd)

    def state(
        self,
        inputs: MergeInputs,
        pairs: Pairs | SparsePairs,
        neighbourhoods: Neighbourhoods | None,
        **more: Any,
    ) -> MergeState:
        """The state with which a merge of these inputs begins."""
        result, options = inputs.result, self.options
        if result is not None:
            more["evidence"] = Mixtures.of(result)
            more["small"] = set(np.flatnonzero(result.too_small).tolist())
            more["n_pairs"] = result.n_possibly_equal
            more["p_values"] = None if options.alpha is None else result.p_value
        return MergeState(
            pairs,
            inputs.sizes,
            options.constraints(inputs.ids[inputs.order]),
            neighbourhoods=neighbourhoods,
            at_random=set(np.flatnonzero(self.at_random).tolist()),
            both_at_random=needs_both_at_random(self.by, inputs.graph),
            assigned=self.assigned,
            order=inputs.order,
            **more,
        )


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


def needs_both_at_random(by: str, graph: NeighbourGraph | None) -> bool:
    """Whether tests judge a pair only if both clusters were split at random.

    They do where clusters were cut out of the features that neighbours were found in.  Scores are
    the network's own, and say nothing about how clusters were made.
    """
    return by == NEIGHBOURS and graph is not None and graph.source != SCORES


def _ranking_statistic(
    options: MergeOptions, result: PairwiseTVD, by: str, graph: NeighbourGraph | None
) -> str:
    """The statistic that ranks pairs, where "auto" leaves the choice to us.

    Clusters cut out of the same features are ranked by their neighbours, clusters split at random
    by the network.  Cores can nearly all be told apart; what the scores of other observations say
    of them ("overlap") ranks better.  A graph of features that the network does not see knows
    something else again, so both rank together.
    """
    statistic, cores = options.rank_by, are_cores(result)
    if statistic == "auto" and by == NEIGHBOURS:
        statistic = BY_SOURCE_OF_CORES[graph.source] if cores and graph is not None else "edges"
    elif statistic == "auto":
        statistic = "overlap" if options.number is not None and cores else "lecam"
    return WITHOUT_OVERLAP.get(statistic, statistic) if result.is_sparse else statistic


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


def warn_of_partition(result: PairwiseTVD | None, options: MergeOptions) -> None:
    """Warn if ``max_tvd`` or ``alpha`` can merge little, because all clusters differ."""
    asked = options.max_tvd is not None or options.alpha is not None
    if result is None or not asked or not looks_like_partition(result):
        return
    warn(
        "the clusters look like a partition of the features they are compared by (median TVD to "
        f"the nearest neighbour {_median_nearest(result):.2f}), so nearly all pairs differ by "
        "construction and max_tvd or alpha will merge little; leave both out to merge by density "
        "instead.",
        PartitionWarning,
    )
