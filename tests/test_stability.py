"""Re-merges of resampled data, and where a user sees them."""

import math
from dataclasses import replace

import numpy as np
import pytest

import unsplit
from tests.merging_cases import gaussian_estimate, same_merges
from unsplit import MergeTree, merge
from unsplit.cli.outputs import described_tree
from unsplit.errors import InputError, PartitionWarning
from unsplit.merging import api, loop
from unsplit.merging.decision import Stability
from unsplit.merging.neighbours.graph import renumbered
from unsplit.merging.tree import with_stability
from unsplit.report import summary
from unsplit.report.sections import answer, merge_entry


@pytest.fixture(autouse=True, scope="module")
def few_remerges():
    """Merge again as often as users do."""


def pieces(means, n, seed=0):
    """An estimate of clusters on a line, and the neighbour graph of their observations."""
    result, X = gaussian_estimate(np.outer(means, [1, 0, 0, 0, 0]), n, seed=seed)
    labels = np.empty(len(X), np.int64)
    labels[result.scores.rows] = result.scores.clusters
    return result, unsplit.neighbour_graph(X, labels)


def merged(case, **options):
    result, graph = case
    return merge(result, neighbours=graph, **options)


APART = pieces([0, 2, 4, 20, 22, 24], 100)
# Two groups that touch: some samples have too few edges between them.
TOUCHING = pieces([0, 1.5, 4.7, 6.2], 60)


@pytest.fixture(scope="module")
def separate():
    return merged(APART)


@pytest.fixture(scope="module")
def touching():
    return merged(TOUCHING)


# --- how often clusters are together --------------------------------------------------------------


def test_groups_that_are_far_apart_are_found_in_every_re_merge(separate):
    assert separate.mapping == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1}
    assert separate.stability.numbers == {2: 20}
    assert (separate.stability.shares == np.kron(np.eye(2), np.ones((3, 3)))).all()
    assert [step.stability for step in separate.merges] == [1, 1, 1, 1, 0]
    assert [pair.stability for pair in separate.apart] == [0]


def test_groups_that_touch_are_together_in_some_re_merges(touching):
    numbers = touching.stability.numbers
    assert list(numbers) == [1, 2]
    assert sum(numbers.values()) == len(touching.stability.groups) == 20
    (pair,) = touching.apart
    assert 0.2 < pair.stability < 0.8
    assert all(step.stability > 0.9 for step in touching.merges[:-1])


def test_tests_are_repeated_where_clusters_were_split_at_random():
    result, _ = gaussian_estimate([0, 0, 9, 9, 1.2, 1.2], 60)
    tree = merge(result)
    assert tree.merges[0].reason == "alike"
    assert [step.stability for step in tree.merges[:2]] == [1, 1]
    fewer = merge(result, n_clusters=2)
    # Whatever number is requested, re-merges stop by themselves.
    assert fewer.stability.numbers == tree.stability.numbers == {3: 20}
    assert fewer.how_stable == f"Without a requested number, {tree.how_stable}"


def test_larger_clusters_count_more_in_the_mean():
    stability = Stability(np.array([[0, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 2]]))
    assert stability.between([0], [1], np.array([1, 1, 1])) == 0.25
    assert stability.between([0], [1, 2], np.array([5, 30, 10])) == 0.375
    assert stability.shares.diagonal().tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ([[0, 0], [0, 0]], "2 re-merges of resampled data leave 1 cluster"),
        ([[0, 1], [1, 0]], "2 re-merges of resampled data leave 2 clusters"),
        ([[0, 0], [1, 0]], "2 re-merges of resampled data leave 1 to 2 clusters"),
    ],
)
def test_the_sentence_says_how_many_clusters_are_left(groups, sentence):
    assert Stability(np.array(groups)).sentence == sentence


# --- nothing else changes -------------------------------------------------------------------------


def test_the_merge_itself_and_the_users_generator_stay_as_they_are(monkeypatch):
    rng = np.random.default_rng(3)
    repeated = merged(TOUCHING, random_state=rng)
    monkeypatch.setattr(api, "can_be_repeated", lambda *_: False)
    other = np.random.default_rng(3)
    plain = merged(TOUCHING, random_state=other)
    assert plain.stability is None
    assert rng.random() == other.random()
    again = with_stability(plain, repeated.stability)
    assert same_merges(again, repeated)
    assert repr(again.apart) == repr(repeated.apart)


def test_necks_that_are_left_out_change_no_decision(touching, monkeypatch):
    def thorough(state, rule):
        assert state.neighbourhoods.only_decides
        state.neighbourhoods.only_decides = False
        return loop.merge_allowed(state, rule)

    monkeypatch.setattr(api, "merge_allowed", thorough)
    assert (merged(TOUCHING).stability.groups == touching.stability.groups).all()


def test_neither_names_nor_their_order_change_anything(touching):
    result, graph = TOUCHING
    order = np.array([2, 0, 3, 1])
    renamed = merge(result.reordered(order), neighbours=renumbered(graph, np.argsort(order)))
    shares = touching.stability.shares[np.ix_(order, order)]
    assert (renamed.stability.shares == shares).all()


# --- where it is not known ------------------------------------------------------------------------


def test_unknown_where_merging_is_not_repeated(monkeypatch):
    result, _ = TOUCHING
    plain = merge(result.tvd, n_clusters=2)
    with pytest.warns(PartitionWarning):
        told = [merge(result, **more) for more in ({"max_tvd": 0.3}, {"alpha": 1e-9})]
    monkeypatch.setattr(api, "MOST_CLUSTERS", 3)
    for tree in (plain, *told, merged(TOUCHING)):
        assert tree.stability is None
        assert tree.how_stable is None
        assert all(math.isnan(pair.stability) for pair in (*tree.merges, *tree.apart))
        assert "re-merges" not in str(tree.why(0, 3))
        assert merge_entry(tree.merges[0])["stability"] is None
        assert described_tree(tree)["remerges_by_n_clusters"] is None


# --- where a user sees it -------------------------------------------------------------------------


def test_tables_and_words_have_it(touching):
    assert touching.table()["stability"] == [step.stability for step in touching.merges]
    (apart,) = touching.apart
    review = touching.review_table()
    assert apart.stability in review["stability"]
    together = f"together in {apart.stability:.0%} of the re-merges"
    assert together in str(touching.why(0, 3))
    assert merge_entry(apart)["stability"] == apart.stability
    numbers = touching.stability.numbers
    assert described_tree(touching)["remerges_by_n_clusters"] == numbers


def test_summary_and_page_say_how_many_clusters_are_left(touching):
    sentence = "20 re-merges of resampled data leave 1 to 2 clusters."
    assert f"  {sentence}" in summary.of_merge(touching, n_noise=0)
    assert sentence in answer(touching, 0, None)["sentences"]
    assert touching.cut(n_clusters=3).how_stable == sentence


def test_everything_says_if_the_data_hardly_look_like_separated_groups(touching, separate):
    known = touching.how_separated
    assert known.startswith("The data hardly look like separated groups: the evidence is unclear")
    assert "for 1 of 1 pairs of clusters that were kept apart. If you know" in known
    assert f"  {known}" in summary.of_merge(touching, n_noise=0)
    assert known in answer(touching, 0, None)["sentences"]
    assert described_tree(touching)["how_separated"] == known
    assert known in repr(touching)
    one = merged(pieces([0, 1.6, 3.2], 60))
    assert one.n_clusters == 1
    assert one.how_separated.startswith("The data do not look like separated groups: all clusters")
    # Said only of what the neighbours decided, and not of what was asked for.
    asked = merged(TOUCHING, n_clusters=2)
    for tree in (separate, asked, touching.cut(n_clusters=3), merge([[0, 0.5], [0.5, 0]], 1)):
        assert tree.how_separated is None
        assert "separated" not in " ".join(summary.of_merge(tree, n_noise=0)) + repr(tree)


def test_saved_and_loaded(touching, tmp_path):
    touching.save(tmp_path / "tree.npz")
    loaded = MergeTree.load(tmp_path / "tree.npz")
    assert (loaded.stability.groups == touching.stability.groups).all()
    assert same_merges(loaded, touching)
    result, _ = TOUCHING
    merge(result.tvd, n_clusters=2).save(tmp_path / "tree.npz")
    assert MergeTree.load(tmp_path / "tree.npz").stability is None


def test_impossible_re_merges_are_refused(touching, tmp_path):
    replace(touching, stability=Stability(np.zeros((3, 5), np.int64))).save(tmp_path / "tree.npz")
    with pytest.raises(InputError, match=r"not a valid MergeTree: remerges must"):
        MergeTree.load(tmp_path / "tree.npz")
