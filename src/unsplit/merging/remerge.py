"""Merging again on resampled data, to see how stable the result is.

Every re-merge draws four fifths of the observations, in the graph and among the held-out scores,
and merges by the same ranking and the same rule.  Networks are not trained again, no neighbours are
searched for, and the simulated data that edges are compared with are those of the merge itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unsplit._typing import Index
from unsplit.merging.decision import BEYOND, Pair, Reason, Rule
from unsplit.merging.loop import GreedyMerge, MergeState, join_assigned, join_linked
from unsplit.merging.neighbours.evidence import Neighbourhoods
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.options import MergeOptions
from unsplit.merging.stability import Stability
from unsplit.pairwise.result import PairwiseTVD

N_REMERGES = 20
# Share of the observations that a re-merge draws, and how many held-out ones at most.
DRAWN = 0.8
MOST_HELD_OUT = 20_000
# More clusters would take too long.
MOST_CLUSTERS = 1_000


@dataclass
class Remerge(MergeState):
    """A merge of which only the order is recorded, without the evidence about every pair."""

    def __post_init__(self) -> None:
        self.made: list[tuple[int, int]] = []
        super().__post_init__()

    def join(self, pair: Pair, stage: str, reason: Reason, linked: bool = False) -> Sequence[int]:
        """Merge b into a and return the slots whose distances have changed."""
        self.made.append((int(self.node[pair.a]), int(self.node[pair.b])))
        return self._unite(pair.a, pair.b, len(self.sizes) + len(self.made) - 1)


State = Callable[[PairwiseTVD, NeighbourGraph | None, Neighbourhoods | None], Remerge]


def remerged(
    result: PairwiseTVD,
    judged: Neighbourhoods | None,
    state_of: State,
    rule: Rule,
    order: Index,
    rng: np.random.Generator,
) -> Stability:
    """Merge again and again.

    Parameters
    ----------
    result : PairwiseTVD
    judged : Neighbourhoods, optional
        The evidence from the graph that the merge itself was judged by.
    state_of : callable
        Makes the state of a merge from a resampled estimate, graph, and evidence from the graph.
    rule : Rule
    order : ndarray of shape (k,)
        The cluster of ``MergeTree.cluster_ids`` that each slot begins with.
    rng : numpy.random.Generator
    """
    k, groups, merges = len(order), [], []
    curve = None if judged is None else judged.curve
    # By content, so that a draw does not depend on the order of the data.
    scores = result.scores
    by_content = np.argsort(scores.features[:, 0], kind="stable")
    for _ in range(N_REMERGES):
        held_out = by_content[_drawn(scores.clusters[by_content], MOST_HELD_OUT, rng)]
        part, graph, hoods = result.of_some(np.sort(held_out)), None, None
        if judged is not None:
            graph = _some_of(judged.sample, rng)
            hoods = Neighbourhoods(graph, rng)
            hoods.curve = curve
        state = state_of(part, graph, hoods)
        join_linked(state)
        join_assigned(state, rule)
        greedy = GreedyMerge(state, rule)
        greedy.go(state.constraints.fewest, state.constraints.most)
        stopped_at = np.empty(k, np.int64)
        stopped_at[order] = np.unique(state.slot, return_inverse=True)[1]
        greedy.go(1, 1, BEYOND)
        curve = curve if hoods is None else hoods.curve
        nodes = np.full((k - 1, 2), -1)
        made = np.array(state.made, np.int64).reshape(-1, 2)
        nodes[: len(made)] = np.where(made < k, order[np.minimum(made, k - 1)], made)
        groups.append(stopped_at)
        merges.append(nodes)
    return Stability(np.stack(groups), np.stack(merges))


def can_be_repeated(result: PairwiseTVD, options: MergeOptions) -> bool:
    """Whether re-merges are cheap and mean something: by *auto* or to a number of clusters."""
    told = any(choice is not None for choice in (options.max_tvd, options.alpha, options.rule))
    repeatable = options.strategy in ("linkage", "compose") and not told
    return repeatable and result.has_scores and 2 < result.n_clusters <= MOST_CLUSTERS


def _drawn(clusters: Index, most: int, rng: np.random.Generator) -> Index:
    """Rows of a random part in which every cluster keeps one observation at least."""
    n = len(clusters)
    rows = rng.choice(n, min(most, round(DRAWN * n)), replace=False)
    first = np.unique(clusters, return_index=True)[1]
    return np.union1d(rows, first[clusters[first] >= 0])


def _some_of(graph: NeighbourGraph, rng: np.random.Generator) -> NeighbourGraph:
    """The graph between some of its observations."""
    rows = _drawn(graph.clusters, len(graph.clusters), rng)
    return replace(
        graph,
        adjacency=graph.adjacency[rows][:, rows],
        inverse_dimension=graph.inverse_dimension[rows],
        clusters=graph.clusters[rows],
        batches=graph.batches[rows],
        features=graph.features[rows],
        rows=graph.rows[rows],
    )
