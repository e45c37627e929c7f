"""The merging loop of very many clusters, and how its tree is completed."""

import gc
import heapq
from collections.abc import Iterator
from contextlib import contextmanager

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
from unsplit.merging.loop import (
    GreedyMerge,
    MergeRecord,
    cannot_reach,
    end_of_result,
    join_assigned,
    join_linked,
)
from unsplit.merging.sparse.head_start import take_head_start
from unsplit.merging.sparse.state import SparseMergeState


def agglomerate_sparse(state: SparseMergeState, rule: Rule) -> MergeRecord:
    """Merge must_link pairs, then what the rule allows; then complete the tree without judging.

    It is :func:`unsplit.merging.loop.agglomerate` with another end.  The rest of the tree joins
    the closest of the stored pairs (single linkage of the distances at the cut), then what no
    stored pair connects, largest first, then what ``cannot_link`` keeps apart.
    """
    with _collector_off():
        return _agglomerated(state, rule)


@contextmanager
def _collector_off() -> Iterator[None]:
    """Turn off Python's garbage collector during the merge.

    It would look at millions of merges again and again, and find nothing to free.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _agglomerated(state: SparseMergeState, rule: Rule) -> MergeRecord:
    record, limits = state.record, state.constraints
    if record.n_taken is None:
        join_linked(state)
        join_assigned(state, rule)
        take_head_start(state, rule)
        greedy = GreedyMerge(state, rule)
        record.ending = greedy.go(limits.fewest, limits.most)
        if state.n_left > limits.most:
            _join_unconnected(state, limits.most, NUMBER)
            if state.n_left > limits.most:
                raise cannot_reach(state.n_left, limits.most)
            record.ending = Ending(REQUESTED, limits.most)
        end_of_result(state, rule)
    state.completing = True
    if record.n_allowed is None:
        _complete(state)
        record.n_allowed = len(record.merges)
    slots = np.flatnonzero(~state.removed).tolist()
    for slot in slots[1:]:
        _join(state, slots[0], slot, 1.0, CANNOT_LINK, NOT_ASKED)
    return record


def _complete(state: SparseMergeState) -> None:
    """Join what is left and may be joined, without evidence."""
    left, right, distances = state.ranked.pairs()
    order = np.lexsort((right, left, distances))
    for n in order.tolist():
        a, b = sorted((state.slot_of(int(left[n])), state.slot_of(int(right[n]))))
        if a != b and not state.is_forbidden(a, b):
            _join(state, a, b, float(distances[n]), BEYOND, CLOSEST)
    _join_unconnected(state, 1, BEYOND)


def _join_unconnected(state: SparseMergeState, most: int, stage: str) -> None:
    """Join clusters without a stored pair, largest first, until at most so many are left.

    Each joins the largest one that it may be joined with.
    """
    size = [(-int(state.size[slot]), slot) for slot in np.flatnonzero(~state.removed).tolist()]
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
