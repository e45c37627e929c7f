"""Strategies and the loop: in which order clusters are merged, and what is reported."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import scipy.cluster.hierarchy as sch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import squareform

from tests.merging_cases import gaussian_estimate, partition_of, regrouped
from unsplit import InputError, TrainConfig, merge, neighbour_graph, pairwise_tvd
from unsplit.datasets import gaussians
from unsplit.merging.api import merge_with
from unsplit.merging.pairs import Linked
from unsplit.merging.plan import MergeOptions
from unsplit.merging.tree import members_of_nodes

quick = settings(deadline=None, max_examples=25, derandomize=True)

# Apart enough that no two distances are alike.
SPREAD = [[0, 0], [1, 0], [0, 1.3], [3, 3], [4.1, 3.2], [7, 0]]


def spread(**more):
    return gaussian_estimate(SPREAD, [30, 20, 25, 40, 15, 10], **more)[0]


def cores(**more):
    """The same with most observations outside: the closest are merged first."""
    return replace(spread(**more), n_noise=1000)


def random_matrix(rng, k):
    """Symmetric, all different, no metric."""
    return squareform(rng.permutation(math.comb(k, 2)) + rng.random(math.comb(k, 2))) / k**2


def node_members(merges, k):
    return [frozenset(members) for members in members_of_nodes(merges, k)[k:]]


# --- linkage --------------------------------------------------------------------------------------


@quick
@given(st.integers(0, 10**6), st.integers(2, 14))
def test_linkage_is_that_of_scipy(seed, k):
    matrix = random_matrix(np.random.default_rng(seed), k)
    Z = sch.linkage(squareform(matrix), "average")
    tree = merge(matrix, n_clusters=1)
    theirs = sch.to_tree(Z, rd=True)[1][k:]
    assert node_members(tree.merges, k) == [frozenset(node.pre_order()) for node in theirs]
    np.testing.assert_allclose(tree.linkage[:, 2:], Z[:, 2:], rtol=1e-9)
    assert [m.statistic for m in tree.merges] == [m.height for m in tree.merges]


def test_linkage_leaves_out_pairs_of_which_nothing_is_known():
    rng = np.random.default_rng(0)
    matrix, known = random_matrix(rng, 8), random_matrix(rng, 8) > 0.4
    matrix[~known] = 1.0
    linked, members = Linked(matrix, "tv", known), [[i] for i in range(8)]
    for a, b in [(0, 1), (2, 3), (0, 2), (0, 4)]:
        linked.merge(a, b)
        members[a] += members[b]
        for other in range(5, 8):
            pairs = [i for i in members[a] if known[i, other]]
            expected = matrix[pairs, other].mean() if pairs else 1.0
            assert linked.row(a)[other] == linked.distances()[other, a] == pytest.approx(expected)


@pytest.mark.parametrize("statistic", ["tv", "lecam", "overlap"])
def test_linkage_of_an_estimate_takes_the_divergence_asked_for(statistic):
    result = cores()
    tree = merge(result, n_clusters=2, rank_by=statistic)
    plain = merge(result.divergence(statistic), n_clusters=2)
    assert (tree.statistic, tree.strategy) == (statistic, "average linkage")
    assert node_members(tree.merges, 6) == node_members(plain.merges, 6)
    np.testing.assert_allclose(tree.linkage[:, 2], plain.linkage[:, 2], atol=1e-6)


@pytest.mark.parametrize(
    ("n_noise", "merge_options", "statistic"),
    [
        (140, {"n_clusters": 2}, "overlap"),  # as many outside as in clusters
        (139, {"n_clusters": 2}, "edges"),
        (140, {"n_clusters": 2, "rank_by": "tv"}, "tv"),
        (140, {"max_tvd": 0.5}, "lecam"),
        (140, {}, "overlap"),
    ],
)
def test_cores_are_ranked_by_overlap_when_their_number_is_said(n_noise, merge_options, statistic):
    result = replace(spread(), n_noise=n_noise)
    assert merge(result, **merge_options).statistic == statistic


def test_no_graph_goes_first_between_cores():
    cells, _ = gaussian_estimate([[0, 0], [4.0, 0], [0, 5.5], [9, 9]], 60, scales=0.8)
    cores = replace(cells, n_noise=1000)
    plain = merge(cells.divergence("overlap"), n_clusters=1)
    tree = merge(cores, n_clusters=1)
    assert node_members(tree.merges, 4) == node_members(plain.merges, 4)
    assert all(step.why.endswith("closest pair") for step in tree.merges)
    assert any("connected" in step.why for step in merge(cells, n_clusters=1).merges)


def test_a_plain_matrix_has_distances_and_nothing_else():
    tree = merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    assert [m.statistic for m in tree.merges] == pytest.approx([0.1, 0.85])
    for step in tree.merges:
        assert all(math.isnan(getattr(step, name)) for name in ("tvd", "low", "high"))
        assert math.isnan(step.p_adjusted)
    assert tree.sizes.tolist() == [1, 1, 1]
    assert [m.why for m in tree.merges] == ["closest pair", "beyond the cut: closest pair"]


# --- scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_folds", [1, 3])
def test_what_is_reported_is_what_an_estimate_for_the_union_says(n_folds):
    result = spread(n_folds=n_folds)
    tree = merge_with(result, MergeOptions(n_clusters=2))
    for step, found in enumerate(tree.merges):
        groups = tree.cut(n_clusters=6 - step).groups
        union = regrouped(result, groups)
        below = members_of_nodes(tree.merges, 6)
        a, b = groups[below[found.left][0]], groups[below[found.right][0]]
        low, high = union.confidence_interval()
        assert found.tvd == pytest.approx(union.tvd[a, b], abs=1e-9)
        assert (found.low, found.high) == pytest.approx((low[a, b], high[a, b]), abs=1e-6)
        expected = min(1.0, union.p_value[a, b] * result.n_possibly_equal)
        assert found.p_adjusted == pytest.approx(expected, rel=0.02)


# --- odd clusters ---------------------------------------------------------------------------------

ODD = {
    "two clusters": ([0, 3], 12, {}),
    "hold-out": ([0, 0, 1, 4, 4], 30, {"n_folds": 1, "share": 0.3}),
    "singletons": ([0, 3, 0, 1, 4, 4], [20, 1, 20, 1, 20, 20], {}),
    "hold-out, singletons": ([0, 3, 0, 1, 4], [9, 1, 9, 1, 8], {"n_folds": 1, "share": 0.5}),
    "all alike": ([1, 1, 1, 1], 10, {}),
}


@pytest.mark.filterwarnings("ignore::unsplit.errors.PartitionWarning")
@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("rule", [{}, {"n_clusters": 2}, {"max_tvd": 0.3}, {"alpha": 0.01}])
def test_odd_clusters_give_a_complete_tree(case, rule):
    means, sizes, more = ODD[case]
    result, _ = gaussian_estimate(means, sizes, **more)
    tree = merge_with(result, MergeOptions(**rule))
    assert sch.is_valid_linkage(tree.linkage, throw=True)
    assert len(tree.merges) == len(means) - 1
    assert 1 <= tree.n_clusters == rule.get("n_clusters", tree.n_clusters)
    for step in tree.merges:
        assert 0 <= step.low <= step.tvd <= step.high <= 1
        assert 0 <= step.statistic <= step.height <= 1
        assert 0 <= step.p_adjusted <= 1
    if case == "all alike" and "n_clusters" not in rule:
        assert tree.n_clusters == 1
        assert {m.statistic for m in tree.merges} == {0.0}


def test_equal_distances_merge_in_the_order_of_the_clusters():
    tree = merge(np.full((5, 5), 0.5), n_clusters=1)
    assert [(m.left, m.right) for m in tree.merges] == [(0, 1), (5, 2), (6, 3), (7, 4)]
    assert tree.linkage[:, 2].tolist() == [0.5] * 4


# --- names decide nothing -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def renamed_pairs():
    """The same data under three sets of names; most pairs have a TVD of exactly 1."""
    X, labels = gaussians([[0, 0], [1, 0], [9, 0], [10, 0], [0, 9], [0, 18], [9, 9]], 20)
    rng = np.random.default_rng(0)
    shuffle = rng.permutation(len(X))
    X, labels = X[shuffle], labels[shuffle]
    every = [np.arange(7), rng.permutation(7), np.array(["10", "9", "2", "x", "a", "1", "0"])]
    estimate = {"training": TrainConfig(epochs=4), "random_state": 0, "device": "cpu"}
    return [(names, pairwise_tvd(X, names[labels], **estimate)) for names in every]


@pytest.mark.filterwarnings("ignore::unsplit.errors.PartitionWarning")
@pytest.mark.parametrize(
    "merge_options",
    [{"rank_by": "tv"}, {}, {"rank_by": "lecam", "max_tvd": 0.9}],
)
def test_new_names_give_the_same_tree_under_new_names(renamed_pairs, merge_options):
    n_clusters = None if not merge_options or "max_tvd" in merge_options else 3
    trees = []
    for names, result in renamed_pairs:
        assert (np.triu(result.tvd, 1) == 1).sum() > 10
        tree = merge(result, n_clusters=n_clusters, random_state=1, **merge_options)
        old = {new: old for old, new in enumerate(names.tolist())}
        place = [old[name] for name in tree.cluster_ids.tolist()]
        steps = [asdict(step) for step in tree.merges]
        for step in steps:
            for side in ("left", "right"):
                step[side] = place[step[side]] if step[side] < 7 else step[side]
        groups = dict(zip(place, tree.groups, strict=True))
        trees.append((steps, partition_of([groups[i] for i in range(7)]), tree.stopped))
    assert trees[0] == trees[1] == trees[2]


def test_neighbours_are_refused_with_a_plain_matrix():
    _, X = gaussian_estimate([[0, 0], [3, 0]], 30)
    graph = neighbour_graph(X, np.arange(60) % 2)
    with pytest.raises(InputError, match=r"^neighbours has no effect without scores"):
        merge([[0, 0.5], [0.5, 0]], n_clusters=1, neighbours=graph)
