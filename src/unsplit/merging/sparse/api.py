"""Merging from a sparse estimate: no matrix of all pairs is ever made."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from unsplit._typing import Index
from unsplit.devices import generator_of
from unsplit.merging.decision import NEIGHBOURS, Always
from unsplit.merging.evidence import Evidence
from unsplit.merging.loop import MergeRecord, assigned_slots
from unsplit.merging.neighbours.evidence import Neighbourhoods
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.options import WITHOUT_OVERLAP, MergeOptions, check_same_clusters
from unsplit.merging.origin import (
    needs_both_at_random,
    origin,
    ranking_statistic,
    stopping_rule,
)
from unsplit.merging.ranking import Ranking
from unsplit.merging.sparse.agglomerate import agglomerate_sparse
from unsplit.merging.sparse.evidence import ComposedPairs, GroupScores
from unsplit.merging.sparse.neighbourhoods import NeighbourhoodsWhenAsked, SparseNeighbourhoods
from unsplit.merging.sparse.rankings import (
    ConnectedPairs,
    LinkedPairs,
    Ranked,
    SparseConnections,
    SparseRanking,
)
from unsplit.merging.sparse.rows import MergedRows
from unsplit.merging.sparse.state import SparseMergeState
from unsplit.merging.sparse.twins import split_at_random
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.sparse.result import SparsePairwiseTVD


def merge_sparse(
    result: SparsePairwiseTVD,
    options: MergeOptions,
    neighbours: NeighbourGraph | None = None,
    random_state: object = None,
    *,
    assigned: ArrayLike | None = None,
    on_merge: Callable[[MergeRecord, int], None] | None = None,
    done: MergeRecord | None = None,
) -> MergeTree:
    """Do what :func:`unsplit.merging.api.merge_with` does, from a sparse estimate.

    Parameters are those of that function.
    """
    options.check_sparse()
    options.check_input(has_scores=True, has_neighbours=neighbours is not None, can_retrain=False)
    check_same_clusters(result.cluster_ids, neighbours)
    k = result.n_clusters
    order = result.scores.order_of_appearance()
    slot_of = np.argsort(order)
    graph = None if neighbours is None else neighbours.renamed(slot_of)
    at_random, by = origin(result, graph, split_at_random(result), options)
    source = None if graph is None else graph.source
    statistic = ranking_statistic(options, result, by, source)
    statistic = WITHOUT_OVERLAP.get(statistic, statistic)
    rule = stopping_rule(result, options, by)
    ranking, connections = _ranking(result, options, statistic, graph, order)
    evidence: Evidence = GroupScores(result, order)
    if isinstance(ranking, ComposedPairs):
        evidence = ranking
    judged = None if graph is None else _neighbourhoods(graph, connections, random_state)
    pairs = result.pairs
    state = SparseMergeState(
        cast(Ranking, ranking),
        evidence,
        cast(Neighbourhoods | None, judged),
        at_random[order],
        needs_both_at_random(by, graph),
        result.too_small[order],
        assigned_slots(assigned, order),
        MergedRows(k, slot_of[pairs.left], slot_of[pairs.right], result.tvd.values, min),
        result.n_possibly_equal,
        options.constraints(result.cluster_ids[order]),
        result.sizes[order],
        on_merge,
        MergeRecord() if done is None else replace(done, merges=list(done.merges)),
        unknown=result.too_small[order],
        compare_all=not (
            isinstance(rule, Always)
            or (
                by == NEIGHBOURS
                and options.rule is None
                and options.max_tvd is None
                and options.alpha is None
            )
        ),
    )
    record = agglomerate_sparse(state, rule)
    return record.tree(result.cluster_ids, result.sizes, order, ranking.statistic, options)


def _ranking(
    result: SparsePairwiseTVD,
    options: MergeOptions,
    statistic: str,
    graph: NeighbourGraph | None,
    order: Index,
) -> tuple[SparseRanking, SparseConnections | None]:
    """What ranks pairs, and the edges between clusters if these do."""
    if statistic == "edges" and options.strategy == "linkage":
        assert graph is not None
        connected = ConnectedPairs(graph)
        return connected, connected.connections
    left, right = _candidates(result, graph, np.argsort(order))
    if options.strategy == "compose":
        return ComposedPairs(result, order, left, right), None
    if statistic == "tv":
        distances = np.asarray(result.tvd[order[left], order[right]])
    else:
        distances = result.divergence_of(statistic, order[left], order[right])
    pairs = Ranked(left, right, distances)
    return LinkedPairs(len(order), pairs, options.linkage, statistic), None


def _candidates(
    result: SparsePairwiseTVD, graph: NeighbourGraph | None, slot_of: Index
) -> tuple[Index, Index]:
    """Pairs of slots that are confused or have edges."""
    k, pairs = len(slot_of), result.pairs
    sides = slot_of[pairs.left], slot_of[pairs.right]
    keys = np.minimum(*sides) * k + np.maximum(*sides)
    if graph is not None:
        edges = graph.edges_between().tocoo()
        left, right = (side.astype(np.int64) for side in edges.coords)
        keys = np.concatenate([keys, (left * k + right)[left < right]])
    left, right = np.divmod(np.unique(keys), k)
    return left, right


def _neighbourhoods(
    graph: NeighbourGraph, connections: SparseConnections | None, random_state: object
) -> SparseNeighbourhoods | NeighbourhoodsWhenAsked:
    """Evidence from the graph; ``connections`` are those of the ranking, if they rank pairs."""
    # Without a seed the same graph still gives the same result.
    rng = generator_of(0 if random_state is None else random_state)
    if connections is not None:
        return SparseNeighbourhoods(graph, rng, connections, shared=True)
    return NeighbourhoodsWhenAsked(
        lambda: SparseNeighbourhoods(graph, rng, SparseConnections(graph), shared=False)
    )
