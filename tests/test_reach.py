"""How many neighbours of each cluster the rules look at."""

import numpy as np

from tests.merging_cases import gaussian_estimate
from unsplit import merge
from unsplit.merging.decision import (
    BY_RULE,
    NEIGHBOURS,
    TESTS,
    Alpha,
    Always,
    Auto,
    Decision,
    MaxTVD,
    WithinBatches,
)
from unsplit.merging.loop import GreedyMerge


def test_auto_looks_at_ten_neighbours_unless_the_graph_says_which_there_are():
    assert Auto(TESTS).reach == 10
    assert Auto(NEIGHBOURS).reach is None


def test_the_other_rules_look_at_all_pairs():
    assert Always().reach is MaxTVD(0.5).reach is Alpha(0.05).reach is None
    assert WithinBatches(Auto(TESTS)).reach == 10
    assert WithinBatches(Alpha(0.05)).reach is None


def test_auto_asks_about_the_ten_nearest_of_each_and_no_others(monkeypatch):
    asked, distances = set(), np.zeros((30, 30))
    judge = GreedyMerge._judge

    def noted(greedy, a, b, stage):
        if not asked:
            distances[:] = greedy.state.pairs.ranking.distances()
        # Before the cut, and not on resampled data.
        if stage == BY_RULE and greedy.state.is_recorded:
            asked.add((a, b))
        judge(greedy, a, b, stage)

    monkeypatch.setattr(GreedyMerge, "_judge", noted)
    monkeypatch.setattr(Auto, "judge", lambda rule, pair: Decision(False, "refused by this test"))
    means = np.random.default_rng(0).standard_normal((30, 2))
    result, _ = gaussian_estimate(means, 40)
    assert merge(result).n_clusters == 30
    np.fill_diagonal(distances, np.inf)
    horizon = np.sort(distances, axis=1)[:, [9]]
    near = (distances <= horizon) | (distances <= horizon.T)
    expected = {(a, b) for a, b in np.argwhere(near).tolist() if a < b}
    assert len(expected) < 30 * 29 / 2
    assert asked == expected
