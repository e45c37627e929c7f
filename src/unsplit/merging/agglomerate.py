"""The one merging loop."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from unsplit.errors import InputError
from unsplit.merging.closest import ClosestPairs
from unsplit.merging.clusters import Evidence, Matrix, Ranking
from unsplit.merging.constraints import Constraints
from unsplit.merging.rules import Candidate, Rule
from unsplit.merging.tree import MUST_LINK, Merge
from unsplit.sampling import Index

FORBIDDEN = "kept apart by cannot_link"


@dataclass
class Record:
    """What was done so far: enough to report it, and to go on from it.

    Parameters
    ----------
    merges : list of Merge
        Numbered by slot.
    n_taken : int, optional
        How many of them belong to the answer; None while the rule still allows merges.
    n_allowed : int, optional
        How many break no ``cannot_link``; None while there may be more.
    stopped : str
        Why the rule ended merging.
    """

    merges: list[Merge] = field(default_factory=list)
    n_taken: int | None = None
    n_allowed: int | None = None
    stopped: str = ""


@dataclass
class Run:
    """The state of the loop: who is left, and what was done.

    ``ranking`` says which pair comes next, ``evidence`` what is reported about it, ``seen`` where
    a valley is looked for; all change together.  A ``record`` that is not empty is replayed.
    """

    ranking: Ranking
    evidence: Evidence | None
    seen: Evidence | None
    constraints: Constraints
    sizes: Index
    on_merge: Callable[[Record], None] | None = None
    record: Record = field(default_factory=Record)

    def __post_init__(self) -> None:
        k = len(self.sizes)
        self.size = self.sizes.copy()
        self.slot = np.arange(k)
        self.node = np.arange(k)
        self.alive = np.ones(k, bool)
        self.cannot = self.constraints.cannot.copy()
        self.height = 0.0
        for step, merge in enumerate(self.record.merges):
            a, b = (int(np.flatnonzero(self.node == node)[0]) for node in (merge.left, merge.right))
            self.height = merge.height
            self._unite(a, b, k + step)

    @property
    def n_left(self) -> int:
        """Clusters left."""
        return int(self.alive.sum())

    def pairs(self, respect_links: bool = True) -> ClosestPairs:
        """All pairs that are left, none refused yet."""
        if self.n_left == 1:  # nothing to compare, so nothing to estimate
            return ClosestPairs(np.full(self.cannot.shape, np.inf))
        matrix = np.where(self.alive & self.alive[:, None], self.ranking.distances(), np.inf)
        return ClosestPairs(np.where(self.cannot, np.inf, matrix) if respect_links else matrix)

    def candidate(self, a: int, b: int, statistic: float) -> Candidate:
        """What is known about two slots."""
        # Of all the pairs there were: what is left late was selected from them.
        n_pairs = math.comb(len(self.sizes), 2)
        return Candidate(a, b, statistic, n_pairs, self.evidence, self.seen)

    def join(self, pair: Candidate, why: str, linked: bool = False) -> Sequence[int]:
        """Merge b into a; which slots have new distances?"""
        a, b = pair.a, pair.b
        if not linked:
            self.height = max(self.height, pair.statistic)
        low, high = (math.nan, math.nan) if pair.contrast is None else pair.contrast.interval
        merge = Merge(
            left=int(self.node[a]),
            right=int(self.node[b]),
            size_left=int(self.size[a]),
            size_right=int(self.size[b]),
            statistic=pair.statistic,
            height=self.height,
            tvd=math.nan if pair.contrast is None else pair.contrast.tvd,
            low=low,
            high=high,
            p_adjusted=pair.p_adjusted,
            why=why,
        )
        changed = self._unite(a, b, len(self.sizes) + len(self.record.merges))
        self.record.merges.append(merge)
        if self.on_merge is not None:
            self.on_merge(self.record)
        return changed

    def _unite(self, a: int, b: int, node: int) -> Sequence[int]:
        self.node[a] = node
        self.node[b] = -1
        self.size[a] += self.size[b]
        self.slot[self.slot == b] = a
        self.alive[b] = False
        self.cannot[a] |= self.cannot[b]
        self.cannot[:, a] |= self.cannot[:, b]
        changed = self.ranking.merge(a, b)
        told: list[object] = [self.ranking]
        for part in (self.evidence, self.seen):
            if part is not None and not any(part is other for other in told):
                part.merge(a, b)
                told.append(part)
        return changed

    def refresh(self, pairs: ClosestPairs, gone: int, changed: Sequence[int]) -> None:
        """Tell the search what a merge changed."""
        pairs.remove(gone)
        if self.n_left > 1:
            for slot in changed:
                pairs.set_row(slot, self._allowed_row(slot))

    def _allowed_row(self, a: int) -> Matrix:
        return np.where(self.alive & ~self.cannot[a], self.ranking.row(a), np.inf)


def agglomerate(run: Run, rule: Rule) -> Record:
    """Merge what must be, then what the rule allows, then the rest to complete the tree."""
    record = run.record
    if record.n_taken is None:
        _join_linked(run)
        record.stopped = _guided(run, rule)
        record.n_taken = len(record.merges)
    if record.n_allowed is None:
        _complete(run, rule, respect_links=True)
        record.n_allowed = len(record.merges)
    _complete(run, rule, respect_links=False)
    return record


def _join_linked(run: Run) -> None:
    for left, right in run.constraints.must:
        a, b = sorted((int(run.slot[left]), int(run.slot[right])))
        if a != b:
            run.join(run.candidate(a, b, float(run.ranking.row(a)[b])), MUST_LINK, linked=True)


def _guided(run: Run, rule: Rule) -> str:
    """Merge the closest pair that the rule allows until there is none; say why it ended.

    While there are still too many clusters, the closest of the refused pairs is merged.
    """
    pairs, limits = run.pairs(), run.constraints
    refused: dict[tuple[int, int], float] = {}
    while run.n_left > limits.fewest:
        closest = pairs.closest()
        if closest is not None:
            a, b = closest
            candidate = run.candidate(a, b, float(pairs.distances[a, b]))
            verdict = rule.judge(candidate)
            if not verdict.merge:
                refused[a, b] = candidate.statistic
                pairs.forbid(a, b)
                continue
            why = verdict.why
        elif run.n_left > limits.most:
            candidate = _closest_refused(run, refused)
            why = f"closest pair left, because at most {limits.most} may remain"
        else:
            linked = (run.cannot & run.alive & run.alive[:, None]).any()
            return rule.ending + (" or is kept apart by cannot_link" if linked else "")
        changed = run.join(candidate, why)
        run.refresh(pairs, candidate.b, changed)
        gone = {candidate.b, *changed}
        refused = {pair: s for pair, s in refused.items() if gone.isdisjoint(pair)}
    if run.n_left == 1:
        return "one cluster is left"
    return f"{run.n_left} clusters are left, as asked"


def _closest_refused(run: Run, refused: dict[tuple[int, int], float]) -> Candidate:
    if not refused:
        raise InputError(
            f"cannot_link leaves {run.n_left} clusters, more than the {run.constraints.most} "
            "allowed; drop some of these links or allow more clusters."
        )
    statistic, pair = min((statistic, pair) for pair, statistic in refused.items())
    return run.candidate(*pair, statistic)


def _complete(run: Run, rule: Rule, respect_links: bool) -> None:
    """Merge closest pairs whatever the rule says: they lie beyond the cut."""
    pairs = run.pairs(respect_links)
    while (closest := pairs.closest()) is not None:
        a, b = closest
        candidate = run.candidate(a, b, float(pairs.distances[a, b]))
        verdict = rule.judge(candidate)
        why = f"beyond the cut: {verdict.why}" if respect_links else FORBIDDEN
        changed = run.join(candidate, why)
        if respect_links:
            run.refresh(pairs, b, changed)
        else:
            pairs = run.pairs(respect_links)
