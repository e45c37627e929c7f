"""The merging loop."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index
from unsplit.errors import InputError, option
from unsplit.merging import decision
from unsplit.merging.decision import Ending, Pair, Reason, Rule
from unsplit.merging.evidence import Evidence
from unsplit.merging.limits import LARGE_TVD
from unsplit.merging.neighbours.evidence import Neighbourhoods
from unsplit.merging.options import Constraints, MergeOptions
from unsplit.merging.pairs import Pairs, Refused
from unsplit.merging.review import Merge
from unsplit.merging.sparse_pairs import SparsePairs
from unsplit.merging.tree import MergeTree, renumbered


@dataclass
class MergeRecord:
    """The merges made so far.

    Parameters
    ----------
    merges : list of Merge
        Clusters are numbered in the order of the loop.
    n_taken : int, optional
        How many of the merges are part of the result; None until merging has stopped.
    n_allowed : int
        How many of the merges break no ``cannot_link``.
    ending : Ending
        Why merging stopped.
    apart : list of Merge
        Pairs of nearby clusters that were left when merging stopped.
    """

    merges: list[Merge] = field(default_factory=list)
    n_taken: int | None = None
    n_allowed: int = 0
    ending: Ending = field(default_factory=lambda: Ending(decision.ONE_LEFT))
    apart: list[Merge] = field(default_factory=list)

    def tree(
        self,
        cluster_ids: NDArray[Any],
        sizes: Index,
        order: Index,
        statistic: str,
        options: MergeOptions,
    ) -> MergeTree:
        """The tree of all these merges.

        Parameters
        ----------
        cluster_ids, sizes : ndarrays of shape (k,)
            The initial clusters, in the user's order.
        order : ndarray of shape (k,)
            The cluster that each slot of the loop began with.
        statistic : str
            What ranked pairs.
        options : MergeOptions
        """
        return MergeTree(
            cluster_ids=cluster_ids,
            sizes=sizes,
            merges=tuple(renumbered(merge, order) for merge in self.merges),
            taken=np.arange(len(cluster_ids) - 1) < (self.n_taken or 0),
            statistic=statistic,
            strategy="neighbours" if statistic == "edges" else "average linkage",
            ending=self.ending,
            n_forbidden=len(self.merges) - self.n_allowed,
            apart=tuple(renumbered(pair, order) for pair in self.apart),
            answers=options.answers,
        )


def assigned_slots(assigned: ArrayLike | None, order: Index) -> Index:
    """``assigned`` of :func:`unsplit.merging.api.merge_with` for the slots of the loop.

    Examples
    --------
    >>> assigned_slots([-1, 2, -1], np.array([2, 0, 1]))
    array([-1, -1,  0])
    """
    if assigned is None:
        return np.full(len(order), -1)
    old = np.asarray(assigned, np.int64)[order]
    return np.where(old < 0, -1, np.argsort(order)[old])


@dataclass
class MergeState:
    """The clusters that are left, everything known about them, and what was done.

    Parameters
    ----------
    pairs : Pairs or SparsePairs
        Say which pair is closest.
    evidence : Evidence or None
        The held-out scores; None for a plain matrix.
    neighbourhoods : Neighbourhoods or None
        Evidence from the neighbour graph.
    at_random : ndarray of shape (k,)
        Whether a cluster was split at random.
    both_at_random : bool
        Whether tests judge a pair only if both clusters were split at random.
    small : ndarray of shape (k,)
        Whether a cluster is too small to hold out observations; of merged ones, whether all are.
    assigned : ndarray of shape (k,)
        The cluster to which the networks assign a small cluster; −1 for none.
    n_pairs : int
        Number of pairs of initial clusters that may be equal.
    constraints : Constraints
    sizes : ndarray of shape (k,)
        Observations in each initial cluster.
    on_merge : callable, optional
        Called after every merge with the number of merges so far.
    p_values : matrix, optional
        p-values of initial clusters, if most pairs are compared by them.
    record : MergeRecord
        The merges to begin with; usually none.
    compare_all : bool
        Whether the rule needs the scores of every pair; otherwise only pairs are compared that may
        be alike or were split at random.
    """

    pairs: Pairs | SparsePairs
    evidence: Evidence | None
    neighbourhoods: Neighbourhoods | None
    at_random: NDArray[np.bool_]
    both_at_random: bool
    small: NDArray[np.bool_]
    assigned: Index
    n_pairs: int
    constraints: Constraints
    sizes: Index
    on_merge: Callable[[int], None] | None = None
    p_values: Any = None
    record: MergeRecord = field(default_factory=MergeRecord)
    compare_all: bool = True

    def __post_init__(self) -> None:
        k = len(self.sizes)
        self.size = self.sizes.copy()
        self.node = np.arange(k)
        self.n_left = k
        self.at_random = self.at_random.copy()
        self.small = self.small.copy()
        self.height = 0.0
        self.alive = np.ones(k, bool)
        self.members = [[leaf] for leaf in range(k)]
        # With path halving: the slot of a leaf is where these numbers lead.
        self.parent = list(range(k))
        self.forbidden: dict[int, set[int]] = {}
        for a, b in self.constraints.cannot:
            self.forbidden.setdefault(a, set()).add(b)
            self.forbidden.setdefault(b, set()).add(a)
        slot_of = dict(enumerate(range(k)))
        for step, merge in enumerate(self.record.merges):
            a, b = slot_of.pop(merge.left), slot_of.pop(merge.right)
            slot_of[k + step] = a
            self.height = merge.height
            self._unite(a, b, k + step)

    def candidate(self, a: int, b: int, statistic: float) -> Pair:
        """The pair of two slots, with everything known about it that may matter."""
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
            self._size(a, b),
            float(self.p_values[a, b]) if known else None,
        )

    def split_at_random(self, a: int, b: int) -> bool:
        """Whether tests judge two slots: one that was split at random is enough, or not.

        Two pieces of a cut may look alike by chance, and the tests would keep all others apart
        from them; so where clusters were cut it takes both.
        """
        one, other = bool(self.at_random[a]), bool(self.at_random[b])
        return one and other if self.both_at_random else one or other

    def is_forbidden(self, a: int, b: int) -> bool:
        """Whether ``cannot_link`` keeps two slots apart."""
        return b in self.forbidden.get(a, ())

    def slot_of(self, leaf: int) -> int:
        """The slot in which an initial cluster is now."""
        parent = self.parent
        while parent[leaf] != leaf:
            parent[leaf] = parent[parent[leaf]]
            leaf = parent[leaf]
        return leaf

    @property
    def slot(self) -> Index:
        """The slot in which each initial cluster is now."""
        return np.array([self.slot_of(leaf) for leaf in range(len(self.sizes))])

    def _size(self, a: int, b: int) -> str | None:
        if not self.small[a] and not self.small[b]:
            return None
        if self.small[a] and self.small[b]:
            return decision.BOTH_SMALL
        small, other = (a, b) if self.small[a] else (b, a)
        larger = self.assigned[self.members[small]].tolist()
        assigned = all(leaf >= 0 and self.slot_of(leaf) == other for leaf in larger)
        return decision.ASSIGNED if assigned else decision.ONE_SMALL

    def join(self, pair: Pair, stage: str, reason: Reason, linked: bool = False) -> Sequence[int]:
        """Merge b into a and return the slots whose distances have changed."""
        a, b = pair.a, pair.b
        if not linked:
            self.height = max(self.height, pair.statistic)
        merge = self.described(pair, stage, reason)
        changed = self._unite(a, b, len(self.sizes) + len(self.record.merges))
        self.record.merges.append(merge)
        if self.on_merge is not None:
            self.on_merge(len(self.record.merges))
        return changed

    def described(self, pair: Pair, stage: str, reason: Reason) -> Merge:
        """A record of the pair, with the cluster numbers of the tree."""
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

    def _unite(self, a: int, b: int, node: int) -> Sequence[int]:
        self.node[a] = node
        self.node[b] = -1
        self.n_left -= 1
        self.size[a] += self.size[b]
        self.at_random[a] = self.split_at_random(a, b)
        self.small[a] &= self.small[b]
        self.alive[b] = False
        self.parent[b] = a
        shorter, longer = sorted((self.members[a], self.members[b]), key=len)
        longer += shorter
        self.members[a], self.members[b] = longer, []
        for other in self.forbidden.pop(b, ()):
            self.forbidden[other].discard(b)
            if other != a:
                self.forbidden[other].add(a)
                self.forbidden.setdefault(a, set()).add(other)
        return self._unite_pairs(a, b)

    def _unite_pairs(self, a: int, b: int) -> Sequence[int]:
        """Update what is known of pairs and return the slots whose distances have changed."""
        if self.record.n_taken is not None and isinstance(self.pairs, SparsePairs):
            return ()  # nothing is judged any more
        if self.neighbourhoods is not None:
            self.neighbourhoods.merge(a, b)
        if self.evidence is not None:
            self.evidence.merge(a, b)
        return self.pairs.merge(a, b)

    def refresh(
        self, search: Any, gone: int, changed: Sequence[int], respect_links: bool = True
    ) -> None:
        """Update the search for the closest pair after a merge."""
        search.remove(gone)
        for slot in changed:
            kept = self.forbidden.get(slot, ()) if respect_links else ()
            search.set_row(slot, self.pairs.row(slot, self.alive, kept))


def agglomerate(state: MergeState, rule: Rule) -> MergeRecord:
    """Merge must_link pairs, then what the rule allows, then the rest to complete the tree.

    Where only some pairs are stored, the rest is not judged: the closest of the stored pairs are
    joined (single linkage of the distances at the cut), then what no stored pair connects, largest
    first, then what ``cannot_link`` keeps apart.
    """
    record, limits = state.record, state.constraints
    join_linked(state)
    join_assigned(state, rule)
    greedy = GreedyMerge(state, rule)
    record.ending = greedy.go(limits.fewest, limits.most)
    if state.n_left > limits.most and isinstance(state.pairs, SparsePairs):
        _join_unconnected(state, limits.most, decision.NUMBER)
        record.ending = Ending(decision.REQUESTED, limits.most)
    if state.n_left > limits.most:
        raise InputError(
            f"merging the closest pairs first, {option('cannot_link')} leaves {state.n_left} "
            f"clusters, more than the {limits.most} requested; drop some of these links, add "
            f"{option('must_link')} for clusters that belong together, or request more clusters."
        )
    _end_of_result(state, rule)
    if isinstance(state.pairs, SparsePairs):
        _join_stored(state, state.pairs)
    else:
        greedy.go(1, 1, decision.BEYOND)
    record.n_allowed = len(record.merges)
    _join_forbidden(state)
    return record


def _end_of_result(state: MergeState, rule: Rule) -> None:
    """Record what is known of the clusters of the result, before the tree is completed."""
    record = state.record
    record.n_taken = len(record.merges)
    record.apart = _kept_apart(state, rule)
    if record.ending.kind == rule.ending.kind:
        too_few = any(pair.reason in decision.TOO_FEW for pair in record.apart)
        record.ending = record.ending._replace(too_few=too_few)


def _kept_apart(state: MergeState, rule: Rule) -> list[Merge]:
    """Pairs of each remaining cluster and its nearest ones, and why they were not merged."""
    if state.n_left == 1:
        return []
    described = []
    for a, b, statistic in state.pairs.nearby(state.alive):
        pair = state.candidate(a, b, statistic)
        said = rule.judge(pair)
        stage = _kept_by(state, a, b) if said.merge else decision.BY_RULE
        described.append(state.described(pair, stage, said.reason))
    return described


def _kept_by(state: MergeState, a: int, b: int) -> str:
    """What keeps two slots apart that the rule would merge."""
    if state.is_forbidden(a, b):
        return decision.CANNOT_LINK
    by_number = state.record.ending.kind in (decision.REQUESTED, decision.AT_LEAST)
    return decision.REACHED if by_number else decision.OUT_OF_REACH


def join_linked(state: MergeState) -> None:
    """Merge the pairs of ``must_link``."""
    for left, right in state.constraints.must:
        a, b = sorted((state.slot_of(left), state.slot_of(right)))
        if a != b:
            pair = state.candidate(a, b, state.pairs.distance(a, b))
            state.join(pair, decision.MUST_LINK, Reason(decision.NOT_ASKED), linked=True)


def join_assigned(state: MergeState, rule: Rule) -> None:
    """Merge clusters without held-out observations into those the network assigns them to.

    They come first, because their distances do not rank them.
    """
    for leaf in np.flatnonzero(state.assigned >= 0).tolist():
        a, b = sorted((state.slot_of(leaf), state.slot_of(int(state.assigned[leaf]))))
        if a == b or state.is_forbidden(a, b) or state.n_left <= state.constraints.fewest:
            continue
        pair = state.candidate(a, b, state.pairs.distance(a, b))
        reason = rule.judge(pair).reason
        if reason.kind == decision.ASSIGNED:
            state.join(pair, decision.BY_RULE, reason, linked=True)


def _join_forbidden(state: MergeState) -> None:
    """Merge what ``cannot_link`` keeps apart, closest first, only to complete the tree."""
    if isinstance(state.pairs, SparsePairs):
        slots = np.flatnonzero(state.alive).tolist()
        for slot in slots[1:]:
            _join_unjudged(state, slots[0], slot, 1.0, decision.CANNOT_LINK, decision.NOT_ASKED)
        return
    search = state.pairs.search(state.alive, {})
    while (closest := search.closest()) is not None:
        a, b = closest
        pair = state.candidate(a, b, search.distance(a, b))
        changed = state.join(pair, decision.CANNOT_LINK, Reason(decision.NOT_ASKED))
        state.refresh(search, b, changed, respect_links=False)


def _join_stored(state: MergeState, pairs: SparsePairs) -> None:
    """Join what is left and may be joined, by what was known of pairs at the cut."""
    for distance, *sides in pairs.closest_first(state.alive):
        a, b = sorted(map(state.slot_of, sides))
        if a != b and not state.is_forbidden(a, b):
            _join_unjudged(state, a, b, distance, decision.BEYOND, decision.CLOSEST)
    _join_unconnected(state, 1, decision.BEYOND)


def _join_unconnected(state: MergeState, most: int, stage: str) -> None:
    """Join clusters without a stored pair, largest first, until at most so many are left.

    Each joins the largest one that it may be joined with.
    """
    slots = np.flatnonzero(state.alive)
    joined: list[int] = []
    for slot in slots[np.argsort(-state.size[slots], kind="stable")].tolist():
        if state.n_left <= most:
            return
        target = next((other for other in joined if not state.is_forbidden(slot, other)), None)
        if target is None:
            joined.append(slot)
            continue
        a, b = sorted((target, slot))
        _join_unjudged(state, a, b, 1.0, stage, decision.UNCONNECTED)
        joined[joined.index(target)] = a


def _join_unjudged(
    state: MergeState, a: int, b: int, statistic: float, stage: str, kind: str
) -> None:
    state.join(Pair(a, b, statistic, state.n_pairs, None), stage, Reason(kind))


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
        reach = self.rule.reach
        self.search = state.pairs.search(state.alive, state.forbidden, reach, self.limit)
        self.refused = Refused()
        self.looked_at = self.state.n_left

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
            elif state.n_left > most and not self.refused and self.limit < math.inf:
                self.limit = math.inf
                self._look_again()
            elif state.n_left > most and self.refused:
                self._force(decision.NUMBER if stage == decision.BY_RULE else stage)
            else:
                return self.rule.ending._replace(links=any(state.forbidden.values()))
        if state.n_left == 1:
            return Ending(decision.ONE_LEFT)
        return Ending(decision.REQUESTED if fewest == most else decision.AT_LEAST, fewest)

    def _judge(self, a: int, b: int, stage: str) -> None:
        candidate = self.state.candidate(a, b, self.search.distance(a, b))
        said = self.rule.judge(candidate)
        if said.merge:
            self._join(candidate, stage, said.reason)
        else:
            self.refused.add((a, b), (said.objection, candidate.statistic, said.reason))
            self.search.forbid(a, b)

    def _force(self, stage: str) -> None:
        (a, b), (_, statistic, reason) = self.refused.weakest()
        self._join(self.state.candidate(a, b, statistic), stage, reason)
        self.looked_at = self.state.n_left  # all pairs again after each would take long

    def _join(self, candidate: Pair, stage: str, reason: Reason) -> None:
        changed = self.state.join(candidate, stage, reason)
        self.state.refresh(self.search, candidate.b, changed)
        for slot in (candidate.b, *changed):
            self.refused.forget(slot)
