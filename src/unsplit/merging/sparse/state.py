"""The state of a merge of very many clusters."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np

from unsplit._typing import Index
from unsplit.merging.decision import Pair
from unsplit.merging.limits import LARGE_TVD
from unsplit.merging.loop import N_NEAREST, MergeState
from unsplit.merging.review import Merge
from unsplit.merging.sparse.closest import ClosestStoredPairs
from unsplit.merging.sparse.evidence import GroupScores
from unsplit.merging.sparse.rankings import SparseRanking
from unsplit.merging.sparse.rows import MergedRows

# Of so many of the closest pairs, those without a common cluster are compared at once.
PAIRS_AHEAD, FEWEST_AHEAD = 8192, 64
ROWS_AHEAD = 2**20
# At most this many pairs of nearby clusters are reported as kept apart, the closest ones.
MOST_APART = 10_000


class EarlyMerge(NamedTuple):
    """A merge that was made early: its distance and slots, and its record without its place."""

    key: tuple[float, int, int]
    merge: Merge


@dataclass
class SparseMergeState(MergeState):
    """The clusters that are left, with what is known of stored pairs only.

    Parameters
    ----------
    ranking : SparseRanking
        Says which of the stored pairs is closest.
    tvd : SparsePairwiseTVD's distances in rows of slots
        Pairs that are not in it have the TVD 1.
    unknown : ndarray of shape (k,)
        Whether a cluster is too small to know its distances; of merged ones, whether any is.
    compare_all : bool
        Whether the rule needs the scores of every pair; otherwise only pairs are compared that may
        be alike or were split at random.
    """

    unknown: Any = None
    compare_all: bool = True

    def _prepare(self) -> None:
        k = len(self.sizes)
        # With path halving: the slot of a leaf is where these numbers lead.
        self.parent = list(range(k))
        self.members: list[list[int]] = [[leaf] for leaf in range(k)]
        self.removed = np.zeros(k, bool)
        self.forbidden: dict[int, set[int]] = {}
        for a, b in self.constraints.cannot:
            self.forbidden.setdefault(a, set()).add(b)
            self.forbidden.setdefault(b, set()).add(a)
        self.unknown = self.unknown.copy()
        self.search: ClosestStoredPairs | None = None
        # Merges that were made early, the next one last, how many, and how many of each slot.
        self.early: list[EarlyMerge] = []
        self.n_unrecorded = 0
        self.n_early: Counter[int] = Counter()
        self.n_ahead = PAIRS_AHEAD
        # Slots that were merged since pairs were last compared.
        self.recent: set[int] = set()
        self.completing = False
        for part in self._compared():
            part.ahead = self._ahead

    def _compared(self) -> list[GroupScores]:
        """The evidence that is computed for many pairs at once, if it is of that kind."""
        return [self.evidence] if isinstance(self.evidence, GroupScores) else []

    @property
    def ranked(self) -> SparseRanking:
        """The ranking, which has rows instead of matrices."""
        return cast(SparseRanking, self.ranking)

    def closest(self, pairs: ClosestStoredPairs) -> tuple[int, int] | None:  # type: ignore[override]
        """The pair that is judged next, after the merges that were made early have their turn."""
        found = pairs.closest()
        before = (math.inf,) if found is None else (pairs.distance(*found), *found)
        # Rounding must not bring a pair before the merges that its clusters were made of.
        while self.early and (self.early[-1].key < before or self._is_early(found)):
            self._record(self.early.pop())
        return found

    def record_later(self, early: list[EarlyMerge]) -> None:
        """Keep merges that were made early, the next one last, until they have their turn."""
        self.early = early
        self.n_early = Counter(merge.key[1] for merge in early)

    @property
    def n_made(self) -> int:
        """Number of merges so far, with those that are not in the record yet."""
        return super().n_made + self.n_unrecorded

    def _is_early(self, pair: tuple[int, int] | None) -> bool:
        return pair is not None and any(self.n_early[slot] for slot in pair)

    def _record(self, early: EarlyMerge) -> None:
        statistic, a, b = early.key
        self.n_early[a] -= 1
        self.n_unrecorded -= 1
        self.height = max(self.height, statistic)
        node = len(self.sizes) + len(self.record.merges)
        sides = {"left": int(self.node[a]), "right": int(self.node[b]), "height": self.height}
        self.record.merges.append(Merge(**{**vars(early.merge), **sides}))
        self._count(a, b, node)
        if self.neighbourhoods is not None:
            self.neighbourhoods.merge(a, b)
        self.tell()

    def merge_early(self, pairs: list[tuple[int, int]]) -> None:
        """Merge many pairs in everything that describes clusters, but do not record it yet."""
        for part in self._compared():
            part.merge_many(pairs)
        a, b = np.array(pairs).T
        self.size[a] += self.size[b]
        one, other = self.at_random[a], self.at_random[b]
        self.at_random[a] = one & other if self.both_at_random else one | other
        self.unknown[a] |= self.unknown[b]
        self.n_unrecorded += len(pairs)
        self.tell()

    def candidate(self, a: int, b: int, statistic: float) -> Pair:
        """The pair of two slots, with everything known about it that may matter."""
        pair = super().candidate(a, b, statistic)
        if self.worth_comparing(a, b):
            return pair
        return replace(pair, evidence=None)

    def worth_comparing(self, a: int, b: int) -> bool:
        """Whether the scores of a pair may matter."""
        return self.compare_all or self.split_at_random(a, b) or self.nearest_tvd(a, b) <= LARGE_TVD

    def nearest_tvd(self, a: int, b: int) -> float:
        """Smallest TVD between an initial cluster of one slot and one of the other."""
        least = cast(MergedRows, self.tvd).get(a, b, 1.0)
        if self.unknown[a] or self.unknown[b]:
            # Of a cluster that held nothing out, its side counts as a coin toss.
            least = min(least, 0.5)
        return least

    def statistic(self, a: int, b: int) -> float:
        """What ranks the pair; 1 if it is not stored."""
        return self.ranked.row(a).get(b, 1.0)

    def is_forbidden(self, a: int, b: int) -> bool:
        """Whether ``cannot_link`` keeps two slots apart."""
        return b in self.forbidden.get(a, ())

    def any_forbidden(self) -> bool:
        """Whether ``cannot_link`` keeps any of the remaining clusters apart."""
        return any(self.forbidden.values())

    def slot_of(self, leaf: int) -> int:
        """The slot in which an initial cluster is now."""
        parent = self.parent
        while parent[leaf] != leaf:
            parent[leaf] = parent[parent[leaf]]
            leaf = parent[leaf]
        return leaf

    def leaves(self, slot: int) -> Index:
        """The initial clusters in a slot."""
        return np.array(self.members[slot], np.int64)

    def _unite(self, a: int, b: int, node: int) -> Sequence[int]:
        if not self.completing:
            return super()._unite(a, b, node)
        # Nothing is judged any more, so what is known of pairs need not be merged.
        self.size[a] += self.size[b]
        self._count(a, b, node)
        return ()

    def _count(self, a: int, b: int, node: int) -> None:
        self.node[a], self.node[b] = node, -1
        self.n_left -= 1
        self._unite_slots(a, b)

    def _unite_slots(self, a: int, b: int) -> None:
        self.parent[b] = a
        shorter, longer = sorted((self.members[a], self.members[b]), key=len)
        longer += shorter
        self.members[a], self.members[b] = longer, []
        self.removed[b] = True
        for other in self.forbidden.pop(b, ()):
            self.forbidden[other].discard(b)
            self.forbidden[other].add(a)
            self.forbidden.setdefault(a, set()).add(other)

    def _unite_pairs(self, a: int, b: int) -> None:
        self._unite_slots(a, b)
        self.unknown[a] |= self.unknown[b]
        self.recent.add(a)
        self.recent.discard(b)
        cast(MergedRows, self.tvd).merge(a, b)

    def pairs(  # type: ignore[override]
        self, respect_links: bool = True, reach: int | None = None, limit: float = math.inf
    ) -> ClosestStoredPairs:
        """The stored pairs, within reach and below the limit; none is refused yet."""
        left, right, distances = self.ranked.pairs()
        if self.forbidden:
            sides = zip(left.tolist(), right.tolist(), strict=True)
            allowed = np.array([not self.is_forbidden(a, b) for a, b in sides], bool)
            left, right, distances = left[allowed], right[allowed], distances[allowed]
        self.search = ClosestStoredPairs(len(self.sizes), left, right, distances, reach, limit)
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
            row, kept = self.ranked.row(slot), self.forbidden.get(slot)
            if kept:
                row = {other: distance for other, distance in row.items() if other not in kept}
            pairs.set_row(slot, row)

    def nearby(self) -> list[tuple[int, int, float]]:
        """Pairs of each remaining cluster and its nearest stored ones, the closest of them."""
        left, right, distances = self.ranked.pairs()
        sides, others = np.concatenate([left, right]), np.concatenate([right, left])
        both = np.concatenate([distances, distances])
        order = np.lexsort((others, both, sides))
        first = np.searchsorted(sides[order], np.arange(len(self.sizes)))
        rank = np.arange(len(order)) - first[sides[order]]
        near = np.unique(order[rank < N_NEAREST] % max(len(left), 1))
        near = near[np.argsort(distances[near], kind="stable")][:MOST_APART]
        near = near[np.lexsort((right[near], left[near]))]
        columns = [column[near].tolist() for column in (left, right, distances)]
        # They are all asked for, one after another.
        self.search = None
        worth = [pair for pair in zip(*columns[:2], strict=True) if self.worth_comparing(*pair)]
        for part in self._compared():
            part.forget_asked()
            asked = [pair for pair in worth if pair not in part.known]
            if asked:
                part.compare(asked)
        return list(zip(*columns, strict=True))

    def _ahead(self) -> list[tuple[int, int]]:
        if self.search is None:
            return []
        known = [part.known for part in self._compared()]

        def wanted(a: int, b: int) -> bool:
            return not any((a, b) in one for one in known) and self.worth_comparing(a, b)

        # If nothing was merged since the last time, the next pairs will probably be refused too.
        found = self.search.soon(self.n_ahead, wanted, twice=not self.recent)
        # Where few clusters are in many pairs, looking further ahead finds nothing more.
        better = 2 * self.n_ahead if 16 * len(found) > self.n_ahead else self.n_ahead // 2
        self.n_ahead = min(max(better, FEWEST_AHEAD), PAIRS_AHEAD)
        used = {slot for pair in found for slot in pair}
        for slot in self.recent - used:
            pair = self.search.nearest(slot)
            if pair is not None and not used & {*pair} and wanted(*pair):
                found.append(pair)
                used |= {*pair}
        self.recent = set()
        return self._few_enough(found)

    def _few_enough(self, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The first of the pairs, with as many observations as can be compared at once."""
        if not pairs:
            return []
        n = np.cumsum([self.size[a] + self.size[b] for a, b in pairs])
        return pairs[: int(np.searchsorted(n, max(ROWS_AHEAD, int(self.sizes.sum()))))]
