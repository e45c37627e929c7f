"""How many neighbours of each cluster the rules look at."""

import numpy as np
import pytest

from tests.merging_cases import gaussian_estimate
from unsplit import merge
from unsplit.merging.loop import MergeState
from unsplit.merging.rules import (
    NEIGHBOURS,
    TESTS,
    VALLEYS,
    Alpha,
    Always,
    Auto,
    Decision,
    MaxTVD,
    WithinBatches,
)


def test_auto_looks_at_ten_neighbours_unless_the_graph_says_which_there_are():
    assert Auto(TESTS).reach == Auto(VALLEYS).reach == 10
    assert Auto(NEIGHBOURS).reach is None


def test_the_other_rules_look_at_all_pairs():
    assert Always().reach is MaxTVD(0.5).reach is Alpha(0.05).reach is None
    assert WithinBatches(Auto(TESTS)).reach == 10
    assert WithinBatches(Alpha(0.05)).reach is None


@pytest.fixture
def asked(monkeypatch):
    """Pairs about which *auto* was asked, and None for every merge; it refuses all."""
    found = []
    join = MergeState.join

    def refuse(rule, pair):
        found.append(tuple(sorted((int(pair.a), int(pair.b)))))
        return Decision(False, "refused by this test")

    def joined(state, *arguments, **options):
        found.append(None)
        return join(state, *arguments, **options)

    monkeypatch.setattr(Auto, "judge", refuse)
    monkeypatch.setattr(MergeState, "join", joined)
    return found


def test_auto_asks_about_the_ten_nearest_of_each_and_no_others(asked):
    means = np.random.default_rng(0).standard_normal((30, 2))
    result, _ = gaussian_estimate(means, 40)
    merge(result)
    distances = result.divergence("lecam") + np.diag(np.full(30, np.inf))
    horizon = np.sort(distances, axis=1)[:, [9]]
    near = (distances <= horizon) | (distances <= horizon.T)
    expected = set(zip(*np.triu(near).nonzero(), strict=True))
    before_any_merge = asked[: asked.index(None)]
    assert len(expected) < 30 * 29 / 2
    assert set(before_any_merge) == expected
