"""Many tiny clusters: the quick search finds what looking at all pairs each time finds."""

import numpy as np
import pytest

from benchmarks.tiny_clusters import LEARNED, PATHS, estimate, split_groups
from tests.merging_cases import same_merges
from unsplit import merge, neighbour_graph
from unsplit.merging import loop, pairs

K = 24


class EveryPair:
    """`ClosestPairs`, by looking at all pairs each time."""

    def __init__(self, distances, reach=None, limit=np.inf):
        self.known = np.array(distances)
        np.fill_diagonal(self.known, np.inf)
        self.distances = self.known.copy()
        self.reach, self.limit = reach, limit

    def closest(self):
        near = self.known < self.limit
        if self.reach is not None and self.reach < len(near) - 1:
            horizon = np.sort(self.known, axis=1)[:, self.reach - 1]
            near &= (self.known <= horizon[:, None]) | (self.known <= horizon)
        allowed = np.where(np.triu(near, 1), self.distances, np.inf)
        a, b = np.unravel_index(allowed.argmin(), allowed.shape)
        return None if allowed[a, b] == np.inf else (int(a), int(b))

    def distance(self, a, b):
        return float(self.distances[a, b])

    def set_row(self, a, row):
        for matrix in (self.known, self.distances):
            matrix[a] = matrix[:, a] = row
            matrix[a, a] = np.inf

    def forbid(self, a, b):
        self.distances[a, b] = self.distances[b, a] = np.inf

    def remove(self, a):
        self.set_row(a, np.full(len(self.known), np.inf))


def force_by_all_pairs(greedy, stage):
    """`GreedyMerge._force`, by asking all refused pairs each time."""
    waiting = [case for case in greedy.refused if greedy._nodes(*case[3]) == case[4]]
    if waiting:
        _, statistic, reason, sides, _ = min(waiting)
        greedy._join(greedy.state.candidate(*sides, statistic), stage, reason)
    return bool(waiting)


def by_all_pairs(monkeypatch, path, *arguments, **merge_options):
    with monkeypatch.context() as patch:
        patch.setattr(pairs, "ClosestPairs", EveryPair)
        patch.setattr(loop.GreedyMerge, "_force", force_by_all_pairs)
        return path(*arguments, **merge_options)


def tiny(learned, seed):
    X, clusters = split_groups(K, 3, seed)
    return estimate(X, clusters, learned, seed), neighbour_graph(X, clusters)


@pytest.mark.parametrize(
    ("name", "learned"),
    [
        *[("auto, graph", learned) for learned in LEARNED],
        ("auto", "trained"),
        ("number given, graph", "memorised"),
        ("number given", "untrained"),
    ],
)
def test_the_tree_is_that_of_looking_at_all_pairs(learned, name, monkeypatch):
    result, graph = tiny(learned, 0)
    tree = PATHS[name](result, graph, 5)
    twin = by_all_pairs(monkeypatch, PATHS[name], result, graph, 5)
    assert same_merges(tree, twin)
    assert repr(tree.apart) == repr(twin.apart)
    assert (tree.n_clusters, tree.stopped) == (twin.n_clusters, twin.stopped)


@pytest.mark.parametrize("learned", ["trained", "untrained"])
def test_links_and_limits_change_nothing_of_that(learned, monkeypatch):
    result, graph = tiny(learned, 0)
    links = {"cannot_link": [(0, 1, 2), (7, 9)], "must_link": [(3, 4)]}
    merge_options = {"constraints": links, "n_clusters": (None, 8)}
    for given_graph in (graph, None):
        tree = merge(result, neighbours=given_graph, **merge_options)
        twin = by_all_pairs(monkeypatch, merge, result, neighbours=given_graph, **merge_options)
        assert same_merges(tree, twin)
        assert tree.n_forbidden == twin.n_forbidden > 0
