"""A head start: clusters that are each other's nearest are judged and merged many at a time.

Under average and complete linkage the loop would merge two clusters that are each other's nearest,
if the rule allows it, whatever it does elsewhere before: no other cluster, and no other two merged,
can come nearer to one of them.  So such pairs are judged at once, in rounds.  A cluster of which a
pair was refused waits for the loop; it still counts as a neighbour, so that nothing is merged that
is nearer to it than to others.  The loop then finds fewer clusters, and gives the early merges
their places in the order of the distances.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.merging.decision import BY_RULE, Always, Rule
from unsplit.merging.sparse.evidence import GroupScores
from unsplit.merging.sparse.foresight import foreseen_merges
from unsplit.merging.sparse.rankings import LinkedPairs
from unsplit.merging.sparse.rounds import PairTable
from unsplit.merging.sparse.rows import MergedRows
from unsplit.merging.sparse.state import EarlyMerge, SparseMergeState
from unsplit.pairwise.sparse.pair_scores import parts

# Clusters nearer than this will probably be merged, so their evidence is computed in advance.
NEAR = 0.5
# Pairs that are not stored have this distance.
FARTHEST = 1.0
# Distances of other statistics are often equal, and which of equal ones is first depends on
# rounding.
RARELY_EQUAL = ("lecam", "js", "hellinger")
# Observations of pairs that are judged at a time.
MOST_ROWS = 2**20


def take_head_start(state: SparseMergeState, rule: Rule) -> None:
    """Merge pairs early if that cannot change the result, and foresee the merges after that."""
    ranking, evidence = state.ranked, state.evidence
    if not isinstance(ranking, LinkedPairs) or not isinstance(evidence, GroupScores):
        return
    table = ranking.table().copy()
    limit = _limit(state, rule, ranking, table)
    if limit > 0:
        table.tvd = _tvd_of(table, state.tvd)
        state.record_later(_in_order(HeadStart(state, rule, table, evidence).merges(limit)))
        ranking.restore(table)
        sides = table.left, table.right
        state.tvd = MergedRows(len(state.sizes), *sides, table.tvd, min)
    evidence.foresee(foreseen_merges(table, NEAR))


def _limit(state: SparseMergeState, rule: Rule, ranking: LinkedPairs, table: PairTable) -> float:
    """Up to which distance pairs can be merged early."""
    if ranking.method == "single" or ranking.statistic not in RARELY_EQUAL:
        return 0.0
    fewest = state.constraints.fewest
    if fewest == 1:
        return FARTHEST
    # The loop may stop at a number of clusters, and no early merge may come after that.
    if not isinstance(rule, Always) or state.forbidden:
        return 0.0
    heights = foreseen_merges(table, FARTHEST).heights
    n_merges = state.n_left - fewest
    return FARTHEST if len(heights) <= n_merges else float(heights[n_merges])


def _tvd_of(table: PairTable, tvd: MergedRows) -> NDArray[np.float64]:
    """The TVDs of the pairs in a table."""
    k, (left, right, values) = len(table.n_members), tvd.columns()
    keys, wanted = left * k + right, table.left * k + table.right
    place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    if len(keys) == 0:
        return np.ones(len(wanted))
    return np.where(keys[place] == wanted, values[place], 1.0)


class HeadStart:
    """Judges pairs of nearest clusters, and merges them if the rule allows it.

    Parameters
    ----------
    state : SparseMergeState
    rule : Rule
    table : PairTable
        The stored pairs of the state; they are merged as well.
    evidence : GroupScores
        The evidence of the state.
    """

    def __init__(
        self, state: SparseMergeState, rule: Rule, table: PairTable, evidence: GroupScores
    ) -> None:
        self.state, self.rule, self.table, self.evidence = state, rule, table, evidence
        # Clusters whose pairs the loop must judge.
        self.waits = state.small.copy()
        self.waits[list(state.forbidden)] = True
        self.only_random = state.neighbourhoods is not None

    def merges(self, limit: float) -> list[EarlyMerge]:
        """Merge what can be merged early below a distance."""
        done: list[EarlyMerge] = []
        while True:
            pairs = self.table.mutual(limit)
            a, b = self.table.left[pairs], self.table.right[pairs]
            pairs = pairs[~(self.waits[a] | self.waits[b])]
            if len(pairs) == 0:
                return done
            early = list(self._judged(pairs))
            done += early
            if early:
                a, b = np.array([merge.key[1:] for merge in early]).T
                self.table.merge(a, b)

    def _judged(self, pairs: Index) -> Iterator[EarlyMerge]:
        """Judge pairs of the table; yield those that were merged."""
        groups = self.evidence.groups
        sides = zip(self.table.left[pairs].tolist(), self.table.right[pairs].tolist(), strict=True)
        n_rows = np.array([len(groups[a].rows) + len(groups[b].rows) for a, b in sides])
        for some in parts(n_rows, MOST_ROWS):
            yield from self._judged_at_once(pairs[some])

    def _judged_at_once(self, pairs: Index) -> Iterator[EarlyMerge]:
        state, table = self.state, self.table
        left, right = table.left[pairs].tolist(), table.right[pairs].tolist()
        distances = table.distances[pairs].tolist()
        keys = list(zip(distances, left, right, strict=True))
        state.tvd = TvdOfPairs(zip(left, right, strict=True), table.tvd[pairs].tolist())
        self._compare(keys)
        merged: list[tuple[int, int]] = []
        for distance, a, b in keys:
            if not self.only_random or state.split_at_random(a, b):
                pair = state.candidate(a, b, distance)
                decision = self.rule.judge(pair)
                if decision.merge:
                    merge = state.described(pair, BY_RULE, decision.reason)
                    yield EarlyMerge((distance, a, b), merge)
                    merged.append((a, b))
                    continue
            self.waits[a] = self.waits[b] = True
        if merged:
            state.merge_early(merged)

    def _compare(self, keys: list[tuple[float, int, int]]) -> None:
        """Compute the evidence about pairs that will be asked for."""
        worth = [key for key in keys if self.state.worth_comparing(*key[1:])]
        self.evidence.compare_foreseen([key[1:] for key in worth if key[0] < NEAR])
        others = [key[1:] for key in worth if key[0] >= NEAR]
        if others:
            self.evidence.compare(others)


class TvdOfPairs:
    """The TVDs of the pairs that are judged at the moment."""

    def __init__(self, pairs: Iterable[tuple[int, int]], values: list[float]) -> None:
        self.values = dict(zip(pairs, values, strict=True))

    def get(self, a: int, b: int, absent: float) -> float:
        """The value of a pair."""
        return self.values.get((a, b), absent)


def _in_order(merges: list[EarlyMerge]) -> list[EarlyMerge]:
    """The merges in the order in which the loop would make them, the first one last.

    It is that of the distances; but a merge that equal or rounded distances put before those it
    builds on comes right after them.
    """
    made: dict[int, tuple[float, int, int]] = {}
    turns: list[tuple[tuple[float, int, int], int]] = []
    for n, merge in enumerate(merges):
        _, a, b = merge.key
        made[a] = max(merge.key, made.get(a, merge.key), made.get(b, merge.key))
        turns.append((made[a], n))
    return [merges[n] for _, n in sorted(turns, reverse=True)]
