"""What merging remembers about unions of clusters, against a slow twin."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from tests.merging_cases import gaussian_estimate
from unsplit import merge, neighbour_graph
from unsplit.errors import SmallClusterWarning
from unsplit.merging.loop import MergeState
from unsplit.merging.plan import needs_both_at_random, split_at_random


@pytest.fixture
def checked(monkeypatch):
    """Compare the state after every merge with what its initial clusters say; count the merges."""
    initial, n_checked = {}, []
    join = MergeState.join

    def joined(state, *arguments, **options):
        if not state.is_recorded:  # on resampled data
            return join(state, *arguments, **options)
        if not initial:
            initial["sizes"] = state.sizes.copy()
            for name in ("small", "at_random"):
                initial[name] = np.isin(np.arange(len(state.sizes)), list(getattr(state, name)))
            initial["cannot"] = state.constraints.cannot
            initial["tvd"] = state.pairs.tvd.copy()
        changed = join(state, *arguments, **options)
        check(state, initial)
        n_checked.append(1)
        return changed

    monkeypatch.setattr(MergeState, "join", joined)
    return n_checked


def check(state, initial):
    alive = np.flatnonzero(state.alive)
    members = {a: np.flatnonzero(state.firsts == a) for a in alive}
    for a in alive:
        assert state.size[a] == initial["sizes"][members[a]].sum()
        # One large enough to hold something out is enough; one split at random is enough.
        assert (a in state.small) == initial["small"][members[a]].all()
        assert (a in state.at_random) == initial["at_random"][members[a]].any()
        for b in alive[alive != a]:
            between = np.ix_(members[a], members[b])
            assert state.pairs.tvd[a, b] == initial["tvd"][between].min()
            pairs = {(i, j) for i in members[a] for j in members[b]}
            links = {link for pair in initial["cannot"] for link in (pair, pair[::-1])}
            assert state.is_forbidden(a, b) == bool(links & pairs)


def merged(means, sizes, **options):
    result, _ = gaussian_estimate(means, sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallClusterWarning)
        return merge(result, **options)


OPTIONS = {
    "auto": {},
    "to one": {"n_clusters": 1},
    "by TVD": {"rank_by": "tv"},
    "linked": {
        "constraints": {"must_link": [(0, 6), (3, 7), (5, 6)], "cannot_link": [(0, 3), (1, 8)]}
    },
}


@pytest.mark.parametrize("case", OPTIONS)
def test_unions_are_what_their_members_say(case, checked):
    # Pieces split at random, a whole, and clusters of one.
    merged([0, 0, 0.2, 3, 3, 20, 0, 3, 20], [60, 60, 60, 60, 60, 60, 1, 1, 1], **OPTIONS[case])
    assert len(checked) == 8


@pytest.mark.parametrize("n_clusters", [1, 3])
def test_a_union_with_a_part_split_at_random_counts_as_split_at_random(n_clusters, checked):
    result, _ = gaussian_estimate([0, 0, 10, 20, 30, 40], [60, 60, 200, 200, 200, 200])
    assert split_at_random(result).tolist() == [True, True, False, False, False, False]
    merge(result, n_clusters=n_clusters)
    assert len(checked) == 5


def test_a_large_cluster_with_a_single_one_is_still_compared():
    tree = merged([0, 0, 5], [60, 60, 1], constraints={"must_link": [(0, 2)]})
    assert tree.n_clusters == 1


def test_single_clusters_put_together_are_still_too_small():
    tree = merged([0, 0, 5, 5], [60, 60, 1, 1], constraints={"must_link": [(2, 3)]})
    assert tree.groups.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("by", "source", "one"),
    [
        ("neighbours", "observations", False),
        ("neighbours", "other features", False),
        ("neighbours", "scores", True),
        ("tests", "observations", True),
        ("", None, True),
    ],
)
def test_tests_judge_pieces_of_a_cut_only_if_both_were_split_at_random(by, source, one):
    graph = None
    if source is not None:
        X = np.arange(8.0)[:, None]
        graph = replace(neighbour_graph(X, [0, 1] * 4), source=source)
    state = MergeState.__new__(MergeState)
    state.both_at_random = needs_both_at_random(by, graph)
    state.at_random = {0, 1}
    assert state.split_at_random(0, 1) is True
    assert state.split_at_random(1, 2) is one
    assert state.split_at_random(2, 1) is one
    assert state.split_at_random(2, 3) is False
