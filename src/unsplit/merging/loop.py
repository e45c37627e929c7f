"""The merging loop."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Cluster, Index
from unsplit.errors import InputError, option
from unsplit.merging import decision
from unsplit.merging.decision import Always, Ending, Merge, Pair, Reason, Rule
from unsplit.merging.limits import LARGE_TVD
from unsplit.merging.neighbours.evidence import Neighbourhoods
from unsplit.merging.pairs import Mixtures, Pairs
from unsplit.merging.saved_merges import Answer
from unsplit.merging.sparse_pairs import SparsePairs
from unsplit.merging.tree import MergeTree


@dataclass(frozen=True)
class Constraints:
    """Links between initial clusters, and bounds on the number of clusters left.

    Parameters
    ----------
    must : list of (int, int)
        Pairs that are merged first.
    cannot : list of (int, int)
        Pairs that must not be merged.
    fewest, most : int
        Bounds on the number of clusters left.
    """

    must: list[tuple[Cluster, Cluster]] = field(default_factory=list)
    cannot: list[tuple[Cluster, Cluster]] = field(default_factory=list)
    fewest: int = 1
    most: int = sys.maxsize


@dataclass
class MergeState:
    """The clusters that are left, everything known about them, and what was done.

    A merged cluster is called by the first of its members.

    Parameters
    ----------
    pairs : Pairs or SparsePairs
        Say which pair is closest.
    sizes : ndarray of shape (k,)
        Observations in each initial cluster.
    constraints : Constraints
    evidence : Mixtures, optional
        The held-out scores; None for a plain matrix.
    neighbourhoods : Neighbourhoods, optional
        Evidence from the neighbour graph.
    at_random : set of int
        Clusters that were split at random.
    both_at_random : bool
        Whether tests judge a pair only if both clusters were split at random.
    small : set of int
        Clusters too small to hold out observations; merged ones if all of their members are.
    assigned : dict of int to int
        The clusters to which the networks assign small ones.
    n_pairs : int
        Number of pairs of initial clusters that may be equal.
    p_values : matrix, optional
        p-values of initial clusters, if most pairs are compared by them.
    compare_all : bool
        Whether the rule needs the scores of every pair; otherwise only pairs are compared that may
        be alike or were split at random.
    order : ndarray of shape (k,), optional
        The number of each initial cluster in the tree; here they are ordered by content.
    merges : list of Merge
        The merges to begin with; usually none.
    is_recorded : bool
        Whether merges are recorded, and not only made.
    on_merge : callable, optional
        Called after every merge with the number of merges so far.
    """

    pairs: Pairs | SparsePairs
    sizes: Index
    constraints: Constraints = field(default_factory=Constraints)
    evidence: Mixtures | None = None
    neighbourhoods: Neighbourhoods | None = None
    at_random: set[Cluster] = field(default_factory=set)
    both_at_random: bool = False
    small: set[Cluster] = field(default_factory=set)
    assigned: dict[Cluster, Cluster] = field(default_factory=dict)
    n_pairs: int = 1
    p_values: Any = None
    compare_all: bool = True
    order: Index | None = None
    merges: list[Merge] = field(default_factory=list)
    is_recorded: bool = True
    on_merge: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        k = len(self.sizes)
        self.size = self.sizes.copy()
        self.node = np.arange(k) if self.order is None else self.order.copy()
        self.n_left = k
        self.height = 0.0
        self.alive = np.ones(k, bool)
        self.members = [[cluster] for cluster in range(k)]
        # The first member of the merged cluster in which each initial one is now.
        self.firsts = np.arange(k)
        self.forbidden: dict[Cluster, set[Cluster]] = {}
        for a, b in self.constraints.cannot:
            self.forbidden.setdefault(a, set()).add(b)
            self.forbidden.setdefault(b, set()).add(a)
        # How many of the merges are part of the result, and how many break no ``cannot_link``.
        self.n_taken = self.n_allowed = 0
        self.ending = Ending(decision.ONE_LEFT)
        # Pairs of nearby clusters that were left when merging stopped.
        self.apart: list[Merge] = []
        # Whether no pair is judged any more, so that nothing need be known of pairs.
        self.is_settled = False
        cluster_of = {int(node): cluster for cluster, node in enumerate(self.node)}
        for step, merge in enumerate(self.merges):
            a, b = cluster_of.pop(merge.left), cluster_of.pop(merge.right)
            cluster_of[k + step] = a
            self.height = merge.height
            self._unite(a, b)

    def tree(self, cluster_ids: NDArray[Any], answers: tuple[Answer, ...] = ()) -> MergeTree:
        """The tree of all merges; ``cluster_ids`` are in the user's order."""
        statistic = self.pairs.ranking.statistic
        return MergeTree(
            cluster_ids=cluster_ids,
            sizes=self.sizes if self.order is None else self.sizes[np.argsort(self.order)],
            merges=tuple(self.merges),
            taken=np.arange(len(cluster_ids) - 1) < self.n_taken,
            statistic=statistic,
            strategy="neighbours" if statistic == "edges" else "average linkage",
            ending=self.ending,
            n_forbidden=len(self.merges) - self.n_allowed,
            apart=tuple(self.apart),
            answers=answers,
        )

    def candidate(self, a: Cluster, b: Cluster, statistic: float) -> Pair:
        """The pair of two clusters, with everything known about it that may matter."""
        nearest_tvd, at_random = self.pairs.nearest_tvd(a, b), self.split_at_random(a, b)
        compared = self.compare_all or at_random or nearest_tvd <= LARGE_TVD
        known = self.p_values is not None and max(self.node[a], self.node[b]) < len(self.sizes)
        return Pair(
            a,
            b,
            statistic,
            self.n_pairs,  # until the end, because the last pairs were selected from all
            self.evidence if compared else None,
            self.neighbourhoods,
            at_random,
            nearest_tvd,
            int(min(self.size[a], self.size[b])),
            int(max(self.size[a], self.size[b])),
            self._size(a, b),
            float(self.p_values[a, b]) if known else None,
        )

    def split_at_random(self, a: Cluster, b: Cluster) -> bool:
        """Whether tests judge two clusters: one that was split at random is enough, or not.

        Two pieces of a cut may look alike by chance, and the tests would keep all others apart
        from them; so where clusters were cut it takes both.
        """
        one, other = a in self.at_random, b in self.at_random
        return one and other if self.both_at_random else one or other

    def is_forbidden(self, a: Cluster, b: Cluster) -> bool:
        """Whether ``cannot_link`` keeps two clusters apart."""
        return b in self.forbidden.get(a, ())

    def first_of(self, cluster: Cluster) -> Cluster:
        """The first member of the merged cluster in which an initial one is now."""
        return int(self.firsts[cluster])

    def _size(self, a: Cluster, b: Cluster) -> str | None:
        both = [cluster for cluster in (a, b) if cluster in self.small]
        if len(both) != 1:
            return decision.BOTH_SMALL if both else None
        small, other = (a, b) if a in self.small else (b, a)
        larger = [self.assigned.get(member) for member in self.members[small]]
        assigned = all(one is not None and self.first_of(one) == other for one in larger)
        return decision.ASSIGNED if assigned else decision.ONE_SMALL

    def join(
        self, pair: Pair, stage: str, reason: Reason, linked: bool = False
    ) -> Sequence[Cluster]:
        """Merge b into a and return the clusters whose distances have changed."""
        if not self.is_recorded:
            return self._unite(pair.a, pair.b)
        if not linked:
            self.height = max(self.height, pair.statistic)
        merge = self.described(pair, stage, reason)
        changed = self._unite(pair.a, pair.b)
        self.merges.append(merge)
        if self.on_merge is not None:
            self.on_merge(len(self.merges))
        return changed

    def described(self, pair: Pair, stage: str, reason: Reason) -> Merge:
        """A record of the pair, with the numbers of the tree."""
        a, b, found = pair.a, pair.b, pair.contrast
        low, high = (math.nan, math.nan) if found is None else found.interval
        of_link = ("edges", "times_chance", "neck", "strength")
        return Merge(
            left=int(self.node[a]),
            right=int(self.node[b]),
            size_left=int(self.size[a]),
            size_right=int(self.size[b]),
            statistic=pair.statistic,
            height=self.height,
            tvd=math.nan if found is None else found.tvd,
            low=low,
            high=high,
            p_adjusted=pair.p_adjusted,
            **{name: getattr(pair.connection, name, math.nan) for name in of_link},
            stage=stage,
            reason=reason.kind,
            limit=reason.limit,
            note=reason.note,
        )

    def _unite(self, a: Cluster, b: Cluster) -> Sequence[Cluster]:
        self.node[a] = 2 * len(self.sizes) - self.n_left
        self.node[b] = -1
        self.n_left -= 1
        self.size[a] += self.size[b]
        if self.split_at_random(a, b):
            self.at_random.add(a)
        else:
            self.at_random.discard(a)
        if b not in self.small:
            self.small.discard(a)
        self.alive[b] = False
        self.firsts[self.members[b]] = a
        self.members[a] += self.members[b]
        self.members[b] = []
        for other in self.forbidden.pop(b, ()):
            self.forbidden[other].discard(b)
            if other != a:
                self.forbidden[other].add(a)
                self.forbidden.setdefault(a, set()).add(other)
        if self.is_settled:
            return ()
        if self.neighbourhoods is not None:
            self.neighbourhoods.merge(a, b)
        if self.evidence is not None:
            self.evidence.merge(a, b)
        return self.pairs.merge(a, b)


def agglomerate(state: MergeState, rule: Rule) -> None:
    """Merge must_link pairs, then what the rule allows, then the rest to complete the tree.

    Where only some pairs are stored, the rest is not judged: the closest of the stored pairs are
    joined (single linkage of the distances at the cut), then what no stored pair connects, with
    the largest, then what ``cannot_link`` keeps apart.
    """
    limits, pairs = state.constraints, state.pairs
    greedy = merge_allowed(state, rule)
    if state.n_left > limits.most and isinstance(pairs, SparsePairs):
        _join_unjudged(
            state, _with_largest(state), decision.NUMBER, decision.UNCONNECTED, limits.most
        )
        state.ending = Ending(decision.REQUESTED, limits.most)
    if state.n_left > limits.most:
        raise InputError(
            f"merging the closest pairs first, {option('cannot_link')} leaves {state.n_left} "
            f"clusters, more than the {limits.most} requested; drop some of these links, add "
            f"{option('must_link')} for clusters that belong together, or request more clusters."
        )
    _end_of_result(state, rule)
    if isinstance(pairs, SparsePairs):
        stored, state.is_settled = pairs.closest_first(state.alive), True
        _join_unjudged(state, stored, decision.BEYOND, decision.CLOSEST)
        _join_unjudged(state, _with_largest(state), decision.BEYOND, decision.UNCONNECTED)
    else:
        greedy.go(1, 1, decision.BEYOND)
    state.n_allowed = len(state.merges)
    state.forbidden.clear()
    if isinstance(pairs, SparsePairs):
        _join_unjudged(state, _with_largest(state), decision.CANNOT_LINK, decision.NOT_ASKED)
    else:
        GreedyMerge(state, Always(decision.NOT_ASKED)).go(1, 1, decision.CANNOT_LINK)


def merge_allowed(state: MergeState, rule: Rule) -> "GreedyMerge":
    """Merge must_link pairs, then what the rule allows."""
    _join_linked(state)
    _join_assigned(state, rule)
    greedy = GreedyMerge(state, rule)
    state.ending = greedy.go(state.constraints.fewest, state.constraints.most)
    return greedy


def _end_of_result(state: MergeState, rule: Rule) -> None:
    """Record pairs of each remaining cluster and its nearest ones, and why they were not merged."""
    state.n_taken = len(state.merges)
    nearby = state.pairs.nearby(state.alive) if state.n_left > 1 else []
    for a, b, statistic in nearby:
        pair = state.candidate(a, b, statistic)
        said = rule.judge(pair)
        stage = _kept_by(state, a, b) if said.merge else decision.BY_RULE
        state.apart.append(state.described(pair, stage, said.reason))
    if state.ending.kind == rule.ending.kind:
        too_few = any(pair.reason in decision.TOO_FEW for pair in state.apart)
        state.ending = state.ending._replace(too_few=too_few)


def _kept_by(state: MergeState, a: Cluster, b: Cluster) -> str:
    """What keeps two clusters apart that the rule would merge."""
    if state.is_forbidden(a, b):
        return decision.CANNOT_LINK
    by_number = state.ending.kind in (decision.REQUESTED, decision.AT_LEAST)
    return decision.REACHED if by_number else decision.OUT_OF_REACH


def _join_linked(state: MergeState) -> None:
    """Merge the pairs of ``must_link``."""
    for left, right in state.constraints.must:
        a, b = sorted((state.first_of(left), state.first_of(right)))
        if a != b:
            pair = state.candidate(a, b, state.pairs.distance(a, b))
            state.join(pair, decision.MUST_LINK, Reason(decision.NOT_ASKED), linked=True)


def _join_assigned(state: MergeState, rule: Rule) -> None:
    """Merge clusters without held-out observations into those the network assigns them to.

    They come first, because their distances do not rank them.
    """
    for small, larger in sorted(state.assigned.items()):
        a, b = sorted((state.first_of(small), state.first_of(larger)))
        if a == b or state.is_forbidden(a, b) or state.n_left <= state.constraints.fewest:
            continue
        pair = state.candidate(a, b, state.pairs.distance(a, b))
        reason = rule.judge(pair).reason
        if reason.kind == decision.ASSIGNED:
            state.join(pair, decision.BY_RULE, reason, linked=True)


def _join_unjudged(
    state: MergeState,
    pairs: Iterable[tuple[float, Cluster, Cluster]],
    stage: str,
    kind: str,
    most: int = 1,
) -> None:
    """Join pairs in this order, as far as links allow, until at most ``most`` clusters are left."""
    for distance, *sides in pairs:
        a, b = sorted(map(state.first_of, sides))
        if a != b and state.n_left > most and not state.is_forbidden(a, b):
            state.join(Pair(a, b, distance, state.n_pairs, None), stage, Reason(kind))


def _with_largest(state: MergeState) -> Iterator[tuple[float, Cluster, Cluster]]:
    """Pairs of the largest cluster and each other one, then of what was not joined with it."""
    alive = np.flatnonzero(state.alive)
    left = alive[np.argsort(-state.size[alive], kind="stable")].tolist()
    while left:
        largest, *others = left
        yield from ((1.0, largest, other) for other in others)
        left = [one for one in others if state.first_of(one) != state.first_of(largest)]


Sides = tuple[int, int]


class GreedyMerge:
    """Goes through the pairs, closest first, and merges those that the rule allows."""

    def __init__(self, state: MergeState, rule: Rule) -> None:
        self.state, self.rule = state, rule
        # Pairs without any connection are left until nothing else can be merged.
        self.limit = state.pairs.ranking.unlinked
        self._look_again()

    def _look_again(self) -> None:
        """Take up every remaining pair, whether it was refused or not."""
        state = self.state
        self.search = state.pairs.search(state.alive, state.forbidden, self.rule.reach, self.limit)
        # A queue with the weakest objection first; among equals the closest pair, then the first.
        self.refused: list[tuple[float, float, Reason, Sides, Sides]] = []
        self.looked_at = state.n_left

    def go(self, fewest: int, most: int, stage: str = decision.BY_RULE) -> Ending:
        """Merge until the rule allows no more or ``fewest`` clusters are left; return why.

        While more than ``most`` are left, the refused pair with the weakest objection is merged.
        ``stage`` is that of every merge which the rule allows.
        """
        state = self.state
        # Limits fall with the clusters that are left, so a refused pair may be merged later.
        falling = state.neighbourhoods
        while state.n_left > fewest:
            closest = self.search.closest()
            if closest is not None:
                self._judge(*closest, stage)
            elif falling and falling.limits_fall and state.n_left < self.looked_at:
                self._look_again()
            elif state.n_left > most and self._force(
                decision.NUMBER if stage == decision.BY_RULE else stage
            ):
                self.looked_at = state.n_left  # all pairs again after each would take long
            elif state.n_left > most and self.limit < math.inf:
                self.limit = math.inf
                self._look_again()
            else:
                return self.rule.ending._replace(links=any(state.forbidden.values()))
        if state.n_left == 1:
            return Ending(decision.ONE_LEFT)
        return Ending(decision.REQUESTED if fewest == most else decision.AT_LEAST, fewest)

    def _judge(self, a: Cluster, b: Cluster, stage: str) -> None:
        pair = self.state.candidate(a, b, self.search.distance(a, b))
        said = self.rule.judge(pair)
        if said.merge:
            self._join(pair, stage, said.reason)
        else:
            case = (said.objection, pair.statistic, said.reason, (a, b), self._nodes(a, b))
            heappush(self.refused, case)
            self.search.forbid(a, b)

    def _force(self, stage: str) -> bool:
        """Merge the refused pair with the weakest objection, if any pair was refused."""
        while self.refused:
            _, statistic, reason, sides, nodes = heappop(self.refused)
            if self._nodes(*sides) == nodes:  # neither of the two has changed since
                self._join(self.state.candidate(*sides, statistic), stage, reason)
                return True
        return False

    def _nodes(self, a: Cluster, b: Cluster) -> Sides:
        return int(self.state.node[a]), int(self.state.node[b])

    def _join(self, pair: Pair, stage: str, reason: Reason) -> None:
        state = self.state
        changed = state.join(pair, stage, reason)
        self.search.remove(pair.b)
        for cluster in changed:
            apart = state.forbidden.get(cluster, ())
            row: Any = state.pairs.row(cluster, state.alive, apart)
            self.search.set_row(cluster, row)
