"""The state of a merge of very many clusters, and how its tree is completed."""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unsplit.merging.decision import (
    BEYOND,
    CANNOT_LINK,
    CLOSEST,
    NOT_ASKED,
    NUMBER,
    REQUESTED,
    UNCONNECTED,
    Ending,
    Pair,
    Reason,
    Rule,
)
from unsplit.merging.limits import LARGE_TVD
from unsplit.merging.loop import (
    N_NEAREST,
    GreedyMerge,
    MergeRecord,
    MergeState,
    cannot_reach,
    end_of_result,
    join_assigned,
    join_linked,
)
from unsplit.merging.sparse.closest import ClosestStoredPairs
from unsplit.merging.sparse.evidence import Group, GroupPairs, GroupScores
from unsplit.merging.sparse.rankings import LinkedPairs
from unsplit.pairwise.stored_pairs import MOST_ENTRIES

# Clusters nearer than this will probably be merged.
NEAR = 0.5
# At most this many pairs of nearby clusters are reported as kept apart, the closest ones.
MOST_APART = 10_000


@dataclass
class SparseMergeState(MergeState):
    """The clusters that are left, with what is known of stored pairs only.

    Parameters
    ----------
    ranking : SparseRanking
        Says which of the stored pairs is closest.
    evidence : GroupScores
    tvd : MergedRows
        Pairs that are not in it have the TVD 1.
    compare_all : bool
        Whether the rule needs the scores of every pair; otherwise only pairs are compared that may
        be alike or were split at random.
    """

    compare_all: bool = True

    def _prepare(self) -> None:
        super()._prepare()
        # Whether any initial cluster of a slot is too small to know its distances.
        self.unknown = self.small.copy()
        self.search: ClosestStoredPairs | None = None
        self.scores.ahead = self._ahead
        self.foreseen = self._foreseen()

    @property
    def scores(self) -> GroupScores:
        """The evidence, which compares many pairs at once."""
        assert isinstance(self.evidence, GroupScores)
        return self.evidence

    def candidate(self, a: int, b: int, statistic: float) -> Pair:
        """The pair of two slots, with everything known about it that may matter."""
        pair = super().candidate(a, b, statistic)
        return pair if self._worth_comparing(a, b) else replace(pair, evidence=None)

    def _worth_comparing(self, a: int, b: int) -> bool:
        """Whether the scores of a pair may matter."""
        return self.compare_all or self.split_at_random(a, b) or self.nearest_tvd(a, b) <= LARGE_TVD

    def nearest_tvd(self, a: int, b: int) -> float:
        """Smallest TVD between an initial cluster of one slot and one of the other."""
        least: float = self.tvd.get(a, b, 1.0)
        # Of a cluster that held nothing out, its side counts as a coin toss.
        return min(least, 0.5) if self.unknown[a] or self.unknown[b] else least

    def statistic(self, a: int, b: int) -> float:
        """What ranks the pair; 1 if it is not stored."""
        return self._row(a).get(b, 1.0)

    def _row(self, slot: int) -> dict[int, float]:
        row: Any = self.ranking.row(slot)
        return row

    def _unite_pairs(self, a: int, b: int) -> Sequence[int]:
        # After the cut nothing is judged, and the tree is completed by what was known there.
        return super()._unite_pairs(a, b) if self.record.n_taken is None else ()

    def _unite_tvd(self, a: int, b: int) -> None:
        self.unknown[a] |= self.unknown[b]
        self.tvd.merge(a, b)

    def pairs(  # type: ignore[override]
        self, respect_links: bool = True, reach: int | None = None, limit: float = math.inf
    ) -> ClosestStoredPairs:
        """The stored pairs, within reach and below the limit; none is refused yet."""
        slots = enumerate(self.alive.tolist())
        rows = [self._allowed(slot, respect_links) if alive else {} for slot, alive in slots]
        self.search = ClosestStoredPairs(rows, reach, limit)
        return self.search

    def refresh(  # type: ignore[override]
        self,
        pairs: ClosestStoredPairs,
        gone: int,
        changed: Sequence[int],
        respect_links: bool = True,
    ) -> None:
        """Update the search for the closest pair after a merge."""
        pairs.remove(gone)
        for slot in changed:
            pairs.set_row(slot, self._allowed(slot, respect_links))

    def _allowed(self, slot: int, respect_links: bool) -> dict[int, float]:
        """The row of a slot, without those that ``cannot_link`` keeps apart from it."""
        row, kept = self._row(slot), self.forbidden.get(slot)
        if kept and respect_links:
            return {other: distance for other, distance in row.items() if other not in kept}
        return row

    def nearby(self) -> list[tuple[int, int, float]]:
        """Pairs of each remaining cluster and its nearest stored ones, the closest of them."""
        found = set[tuple[float, int, int]]()
        for a, row in enumerate(self.pairs(respect_links=False).near):
            nearest = sorted((distance, b) for b, distance in row.items())[:N_NEAREST]
            found |= {(distance, min(a, b), max(a, b)) for distance, b in nearest}
        near = sorted((a, b, distance) for distance, a, b in sorted(found)[:MOST_APART])
        # They are all asked for, one after another.
        self.search = None
        groups = self.scores.groups
        asked = [(groups[a], groups[b]) for a, b, _ in near if self._worth_comparing(a, b)]
        self.scores.compare(asked)
        return near

    def _ahead(self) -> GroupPairs:
        """Pairs that will be judged soon, as many as can be compared at once.

        First those that follow if the rule allows all merges; later what is nearest to a slot that
        was merged or refused.
        """
        found: GroupPairs = []
        n_entries = 0
        for one, other, whole in self.foreseen:
            self.scores.wholes[one, other] = whole
            found.append((one, other))
            n_entries += len(whole.rows) * len(whole.members)
            if n_entries > MOST_ENTRIES:
                break
        if found or self.search is None:
            return found
        groups, known = self.scores.groups, self.scores.known
        for _, a, b in self.search.soon():
            if groups[b] not in known[groups[a]] and self._worth_comparing(a, b):
                found.append((groups[a], groups[b]))
                n_entries += len(groups[a].rows) + len(groups[b].rows)
                if n_entries > MOST_ENTRIES:
                    break
        return found

    def _foreseen(self) -> Iterator[tuple[Group, Group, Group]]:
        """The groups of the merges that follow if the rule allows all, and both together."""
        initial: Any = self.ranking
        if not isinstance(initial, LinkedPairs):
            return
        groups, ranking = self.scores.groups.copy(), initial.copy()

        def near(slot: int) -> dict[int, float]:
            return {b: distance for b, distance in ranking.row(slot).items() if distance < NEAR}

        search = ClosestStoredPairs([near(slot) for slot in range(len(groups))])
        while (pair := search.closest()) is not None:
            a, b = pair
            whole = groups[a].with_(groups[b])
            yield groups[a], groups[b], whole
            groups[a] = whole
            ranking.merge(a, b)
            search.remove(b)
            search.set_row(a, near(a))


def agglomerate_sparse(state: SparseMergeState, rule: Rule) -> MergeRecord:
    """Merge must_link pairs, then what the rule allows; then complete the tree without judging.

    It is :func:`unsplit.merging.loop.agglomerate` with another end.  The rest of the tree joins
    the closest of the stored pairs (single linkage of the distances at the cut), then what no
    stored pair connects, largest first, then what ``cannot_link`` keeps apart.
    """
    record, limits = state.record, state.constraints
    join_linked(state)
    join_assigned(state, rule)
    record.ending = GreedyMerge(state, rule).go(limits.fewest, limits.most)
    if state.n_left > limits.most:
        _join_unconnected(state, limits.most, NUMBER)
        if state.n_left > limits.most:
            raise cannot_reach(state.n_left, limits.most)
        record.ending = Ending(REQUESTED, limits.most)
    end_of_result(state, rule)
    _complete(state)
    record.n_allowed = len(record.merges)
    slots = np.flatnonzero(state.alive).tolist()
    for slot in slots[1:]:
        _join(state, slots[0], slot, 1.0, CANNOT_LINK, NOT_ASKED)
    return record


def _complete(state: SparseMergeState) -> None:
    """Join what is left and may be joined, without evidence."""
    rows = enumerate(state.pairs(respect_links=False).near)
    stored = sorted((d, left, right) for left, row in rows for right, d in row.items())
    for distance, *sides in stored:
        a, b = sorted(map(state.slot_of, sides))
        if a != b and not state.is_forbidden(a, b):
            _join(state, a, b, distance, BEYOND, CLOSEST)
    _join_unconnected(state, 1, BEYOND)


def _join_unconnected(state: SparseMergeState, most: int, stage: str) -> None:
    """Join clusters without a stored pair, largest first, until at most so many are left.

    Each joins the largest one that it may be joined with.
    """
    size = [(-int(state.size[slot]), slot) for slot in np.flatnonzero(state.alive).tolist()]
    heapq.heapify(size)
    joined: list[int] = []
    while size and state.n_left > most:
        slot = heapq.heappop(size)[1]
        target = next((other for other in joined if not state.is_forbidden(slot, other)), None)
        if target is None:
            joined.append(slot)
            continue
        a, b = sorted((target, slot))
        _join(state, a, b, 1.0, stage, UNCONNECTED)
        joined[joined.index(target)] = a


def _join(state: SparseMergeState, a: int, b: int, statistic: float, stage: str, kind: str) -> None:
    """Merge two slots whatever is known about them, and without updating the ranking."""
    pair = Pair(a, b, statistic, state.n_pairs, None)
    state.join(pair, stage, Reason(kind))
