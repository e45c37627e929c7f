"""The merging loop, which all strategies share."""

import math

import numpy as np

from unsplit.errors import InputError
from unsplit.merging.closest_pairs import Refused
from unsplit.merging.review import BEYOND, MUST_LINK, Merge
from unsplit.merging.rules import BY_NETWORK, Pair, Rule
from unsplit.merging.state import MergeRecord, MergeState

FORBIDDEN = "kept apart by cannot_link"
# How many nearest neighbours of each remaining cluster are reported as kept apart.
NEIGHBOURS = 10


def agglomerate(state: MergeState, rule: Rule) -> MergeRecord:
    """Merge must_link pairs, then what the rule allows, then the rest to complete the tree."""
    record, limits = state.record, state.constraints
    if record.n_taken is None:
        _join_linked(state)
        _bring_home(state, rule)
    greedy = GreedyMerge(state, rule)
    if record.n_taken is None:
        record.stopped = greedy.go(limits.fewest, limits.most)
        if state.n_left > limits.most:
            raise InputError(
                f"cannot_link leaves at least {state.n_left} clusters, more than the {limits.most} "
                "requested; drop some of these links or request more clusters."
            )
        record.n_taken = len(record.merges)
        # Must come now, while the evidence is about the clusters of the result.
        record.apart = _kept_apart(state, rule)
    if record.n_allowed is None:
        greedy.go(1, 1, BEYOND)
        record.n_allowed = len(record.merges)
    _join_forbidden(state)
    return record


def _kept_apart(state: MergeState, rule: Rule) -> list[Merge]:
    """Pairs of each remaining cluster and its nearest ones, and why they were not merged."""
    if state.n_left == 1:
        return []
    left = np.flatnonzero(state.alive)
    distances = state.ranking.distances()[np.ix_(left, left)]
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :NEIGHBOURS]
    near = np.zeros(distances.shape, bool)
    np.put_along_axis(near, nearest, values=True, axis=1)
    near = np.triu(near | near.T) & np.isfinite(distances)
    described = []
    for i, j in np.argwhere(near).tolist():
        a, b = int(left[i]), int(left[j])
        pair = state.candidate(a, b, float(distances[i, j]))
        decision = rule.judge(pair)
        allowed = FORBIDDEN if state.cannot[a, b] else state.record.stopped
        described.append(state.described(pair, allowed if decision.merge else decision.why))
    return described


def _join_linked(state: MergeState) -> None:
    for left, right in state.constraints.must:
        a, b = sorted((int(state.slot[left]), int(state.slot[right])))
        if a != b:
            state.join(
                state.candidate(a, b, float(state.ranking.row(a)[b])), MUST_LINK, linked=True
            )


def _bring_home(state: MergeState, rule: Rule) -> None:
    """Merge clusters without held-out observations into those the network assigns them to.

    They come first, because their distances do not rank them.
    """
    for leaf in np.flatnonzero(state.homes >= 0).tolist():
        a, b = sorted((int(state.slot[leaf]), int(state.slot[state.homes[leaf]])))
        if a == b or state.cannot[a, b] or state.n_left <= state.constraints.fewest:
            continue
        pair = state.candidate(a, b, float(state.ranking.row(a)[b]))
        if rule.judge(pair).why == BY_NETWORK:
            state.join(pair, BY_NETWORK, linked=True)


def _join_forbidden(state: MergeState) -> None:
    """Merge what ``cannot_link`` keeps apart, closest first, only to complete the tree."""
    if state.n_left == 1:
        return
    pairs = state.pairs(respect_links=False)
    while (closest := pairs.closest()) is not None:
        a, b = closest
        changed = state.join(state.candidate(a, b, float(pairs.distances[a, b])), FORBIDDEN)
        state.refresh(pairs, b, changed, respect_links=False)


class GreedyMerge:
    """Goes through the pairs, closest first, and merges those that the rule allows."""

    def __init__(self, state: MergeState, rule: Rule) -> None:
        self.state, self.rule = state, rule
        # Pairs without any connection are left until nothing else can be merged.
        self.limit = state.ranking.unlinked
        self.pairs = state.pairs(reach=rule.reach, limit=self.limit)
        self.refused = Refused()

    def go(self, fewest: int, most: int, prefix: str = "") -> str:
        """Merge until the rule allows no more or ``fewest`` clusters are left; return why.

        While more than ``most`` are left, the refused pair with the weakest objection is merged.
        ``prefix`` begins the reason of every merge.
        """
        state = self.state
        while state.n_left > fewest:
            closest = self.pairs.closest()
            if closest is not None:
                self._judge(*closest, prefix)
            elif state.n_left > most and not self.refused and self.limit < math.inf:
                self.limit = math.inf
                self.pairs = state.pairs(reach=self.rule.reach)
            elif state.n_left > most and self.refused:
                few = f"{most} cluster{'' if most == 1 else 's'}"
                self._force("" if prefix else f"; merged to leave at most {few}", prefix)
            else:
                linked = (state.cannot & state.alive & state.alive[:, None]).any()
                return self.rule.ending + (" or is kept apart by cannot_link" if linked else "")
        if state.n_left == 1:
            return "only one cluster is left"
        return f"{'' if fewest == most else 'at least '}{fewest} clusters were requested"

    def _judge(self, a: int, b: int, prefix: str) -> None:
        candidate = self.state.candidate(a, b, float(self.pairs.distances[a, b]))
        decision = self.rule.judge(candidate)
        if decision.merge:
            self._join(candidate, prefix + decision.why)
        else:
            self.refused.add((a, b), (decision.objection, candidate.statistic, decision.why))
            self.pairs.forbid(a, b)

    def _force(self, because: str, prefix: str) -> None:
        (a, b), (_, statistic, why) = self.refused.weakest()
        self._join(self.state.candidate(a, b, statistic), f"{prefix}{why}{because}")

    def _join(self, candidate: Pair, why: str) -> None:
        changed = self.state.join(candidate, why)
        self.state.refresh(self.pairs, candidate.b, changed)
        for slot in (candidate.b, *changed):
            self.refused.forget(slot)
