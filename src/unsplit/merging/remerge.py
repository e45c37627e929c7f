"""Merging again on resampled data, to see how stable the result is.

Every re-merge draws four fifths of the observations, in the graph and among the held-out scores,
and merges by the same ranking and the same rule, beginning with what no draw would change.
Networks are not trained again, no neighbours are searched for, and edges are compared with the same
structureless data.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from unsplit._typing import Index
from unsplit.merging import limits
from unsplit.merging.decision import BY_RULE, NEIGHBOURS, Pair, Reason
from unsplit.merging.loop import GreedyMerge, MergeRecord, MergeState, join_assigned, join_linked
from unsplit.merging.neighbours.evidence import Neighbourhoods
from unsplit.merging.neighbours.graph import NeighbourGraph, graph_of_some
from unsplit.merging.options import MergeOptions
from unsplit.merging.plan import MergeInputs, Plan
from unsplit.merging.review import Merge, Stability
from unsplit.pairwise.result import PairwiseTVD, estimate_of_some

N_REMERGES = 20
DRAWN = 0.8  # share of the observations that a re-merge draws
# Where neighbours decide, no more held-out observations are needed; tests need as many as they had.
MOST_HELD_OUT = 5_000
# More clusters would take too long.
MOST_CLUSTERS = 1_000


class Remerge(MergeState):
    """A merge that describes no pair: only what is together at the end counts."""

    def join(self, pair: Pair, stage: str, reason: Reason, linked: bool = False) -> Sequence[int]:
        """Merge b into a and return the slots whose distances have changed."""
        return self._unite(pair.a, pair.b, -1)


def can_be_repeated(result: PairwiseTVD | None, options: MergeOptions) -> bool:
    """Whether re-merges are cheap and mean something: by *auto* or to a number of clusters."""
    if (
        result is None
        or result.is_sparse
        or not result.has_scores
        or result.n_clusters > MOST_CLUSTERS
    ):
        return False
    return all(limit is None for limit in (options.max_tvd, options.alpha, options.rule))


def sure_merges(merges: Sequence[Merge], k: int) -> list[Merge]:
    """The merges of k clusters that are so strong that every re-merge would make them."""
    found: list[Merge] = []
    number = {leaf: leaf for leaf in range(k)}
    for step, merge in enumerate(merges):
        left, right = number.get(merge.left), number.get(merge.right)
        sure = merge.stage == BY_RULE and merge.strength >= limits.SURE
        if sure and left is not None and right is not None:
            number[k + step] = k + len(found)
            found.append(replace(merge, left=left, right=right))
    return found


def stability_of(plan: Plan, record: MergeRecord, judged: Neighbourhoods | None) -> Stability:
    """Merge again and again, judging by the same structureless data as ``judged``.

    Whatever number was requested, re-merges stop by themselves: only that says how sure it is.
    """
    inputs = plan.inputs
    free = replace(plan.options, n_clusters=None)
    plan = replace(plan, options=free)
    rule = plan.rule()
    sure = sure_merges(record.merges[: record.n_taken], len(inputs.ids))
    found = []
    for part, evidence in _redrawn(inputs, judged, plan.by):
        known = part, plan.pairs(part), evidence
        state = plan.state(Remerge, known, record=MergeRecord(sure))
        join_linked(state)
        join_assigned(state, rule)
        GreedyMerge(state, rule).go(state.constraints.fewest, state.constraints.most)
        found.append(np.unique(state.slot, return_inverse=True)[1])
    return Stability(np.stack(found)[:, np.argsort(inputs.order)])


def _redrawn(
    inputs: MergeInputs, judged: Neighbourhoods | None, by: str
) -> Iterator[tuple[MergeInputs, Neighbourhoods | None]]:
    """Resampled estimates and graphs, and the evidence from these graphs."""
    result, graph = inputs.result, inputs.graph
    assert result is not None
    # Always the same draws, and from no generator that anything else draws from.
    rng = np.random.default_rng(0)
    by_content = result.scores.by_content
    clusters = result.scores.clusters[by_content]
    groups = None if result.scores.groups is None else result.scores.groups[by_content]
    n_edges = None if graph is None else graph.edges_between()
    most = MOST_HELD_OUT if by == NEIGHBOURS else len(clusters)
    for _ in range(N_REMERGES):
        part = estimate_of_some(result, np.sort(by_content[_drawn(clusters, most, rng, groups)]))
        drawn, evidence = None, None
        if judged is not None and n_edges is not None:
            drawn = _some_of(judged.sample, rng)
            evidence = Neighbourhoods(drawn, rng)
            # What was too rare in the sample is still judged by all edges.
            evidence.count(n_edges)
            evidence.is_sample = judged.is_sample
            evidence.curve, evidence.only_decides = judged.curve, True
        yield replace(inputs, result=part, graph=drawn), evidence


def _drawn(
    clusters: Index, most: int, rng: np.random.Generator, groups: Index | None = None
) -> Index:
    """Positions of a random part in which every cluster keeps one observation at least.

    It consists of whole groups, if there are any.
    """
    n = len(clusters)
    if groups is not None:
        units = np.unique(groups)
        drawn = rng.choice(units, max(1, round(DRAWN * len(units))), replace=False)
        positions = np.flatnonzero(np.isin(groups, drawn) | (groups < 0))
        if len(positions) > most:
            positions = rng.choice(positions, most, replace=False)
    else:
        positions = rng.choice(n, min(most, round(DRAWN * n)), replace=False)
    first = np.unique(clusters, return_index=True)[1]
    return np.union1d(positions, first[clusters[first] >= 0])


def _some_of(graph: NeighbourGraph, rng: np.random.Generator) -> NeighbourGraph:
    """The graph between some of its observations."""
    return graph_of_some(graph, _drawn(graph.clusters, len(graph.clusters), rng, graph.groups))
