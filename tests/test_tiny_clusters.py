"""Many tiny clusters: the quick search finds what looking at all pairs each time finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.tiny_clusters import LEARNED, PATHS, estimate, split_groups
from tests.merging_cases import same_merges
from unsplit import merge, neighbour_graph
from unsplit.merging import loop, pairs
from unsplit.merging.decision import Reason
from unsplit.merging.pairs import Refused

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


class PlainRefused(dict):
    """`Refused`, by asking all of them each time."""

    def add(self, pair, case):
        self[pair] = case

    def forget(self, slot):
        for pair in [pair for pair in self if slot in pair]:
            del self[pair]

    def weakest(self):
        case, pair = min((case, pair) for pair, case in self.items())
        return pair, case


def by_all_pairs(monkeypatch, path, *arguments, **merge_options):
    with monkeypatch.context() as patch:
        patch.setattr(pairs, "ClosestPairs", EveryPair)
        patch.setattr(loop, "Refused", PlainRefused)
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
    merge_options = {"cannot_link": [(0, 1, 2), (7, 9)], "must_link": [(3, 4)], "max_clusters": 8}
    for given_graph in (graph, None):
        tree = merge(result, neighbours=given_graph, **merge_options)
        twin = by_all_pairs(monkeypatch, merge, result, neighbours=given_graph, **merge_options)
        assert same_merges(tree, twin)
        assert tree.n_forbidden == twin.n_forbidden > 0


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2)), max_size=40))
def test_refused_pairs_wait_until_one_of_the_two_has_changed(steps):
    quick, plain = Refused(), PlainRefused()
    for a, b, case in steps:
        for refused in (quick, plain):
            if a == b:
                refused.forget(a)
            else:
                refused.add((min(a, b), max(a, b)), (float(case), 0.0, Reason("rule")))
        assert len(quick) == len(plain)
        if plain:
            assert quick.weakest() == plain.weakest()
