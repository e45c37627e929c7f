"""Stopping rules: what each lets through, when it warns, what it refuses."""

import math
import re
import warnings
from functools import cache

import numpy as np
import pytest
from sklearn.cluster import KMeans

from tests.merging_cases import gaussian_estimate, regrouped
from unsplit import InputError, PartitionWarning, SmallClusterWarning, merge, pairwise_tvd
from unsplit.datasets import gaussians
from unsplit.merging.choices import looks_like_partition

MATRIX = [[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]]


@cache
def overlapping():
    """Pieces of three distributions, drawn at random."""
    return gaussian_estimate([0, 0, 0, 2, 2, 9], 60)[0]


@cache
def touching():
    """Two lumps of which each was cut in three: neighbours touch and hardly overlap."""
    return gaussian_estimate([0, 2, 4, 20, 22, 24], 150)[0]


def quietly(*arguments, **wishes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartitionWarning)
        return merge(*arguments, **wishes)


def left_over(result, tree, name):
    """Values of the pairs of clusters that were not merged."""
    union = regrouped(result, tree.groups)
    return getattr(union, name)[np.triu_indices(tree.n_clusters, 1)]


def taken(tree):
    return [step for step, merged in zip(tree.merges, tree.taken, strict=True) if merged]


# --- n_clusters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["compose", "linkage", "spectral"])
@pytest.mark.parametrize("n", range(1, 7))
def test_n_clusters_is_exact_and_warns_of_nothing(strategy, n):
    for result in (overlapping(), touching()):
        tree = merge(result, n_clusters=n, strategy=strategy, random_state=0)
        assert tree.n_clusters == n == len(set(tree.groups))
        assert len(tree.merges) == 5
        expected = "one cluster is left" if n == 1 else f"{n} clusters are left, as asked"
        assert tree.stopped == expected


# --- max_tvd --------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["compose", "linkage"])
@pytest.mark.parametrize("limit", [0.0, 0.15, 0.5, 0.8, 1.0])
def test_max_tvd_leaves_only_pairs_above_it(strategy, limit):
    result = overlapping()
    tree = merge(result, max_tvd=limit, strategy=strategy)
    assert all(step.tvd <= limit for step in taken(tree))
    assert (left_over(result, tree, "tvd") > limit).all()
    if limit == 1:
        assert tree.stopped == "one cluster is left"
    else:
        assert tree.stopped == f"every pair has a TVD above {limit:g}"
    first = tree.merges[0]
    if tree.taken[0]:
        assert first.why == f"TVD {first.tvd:.3f}, limit {limit:g}"


def test_max_tvd_of_a_matrix_is_its_linkage_distance():
    assert merge(MATRIX, max_tvd=0.84).groups.tolist() == [0, 0, 1]
    assert merge(MATRIX, max_tvd=0.86).n_clusters == 1
    assert merge(MATRIX, max_tvd=0.84, linkage="single").n_clusters == 1
    assert merge(MATRIX, max_tvd=0.85, linkage="complete").n_clusters == 2
    assert merge(MATRIX, max_tvd=0.0).n_clusters == 3


# --- alpha ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["compose", "linkage"])
@pytest.mark.parametrize("alpha", [1e-9, 0.05, 0.5])
def test_alpha_leaves_only_pairs_that_differ(strategy, alpha):
    result = overlapping()
    tree = merge(result, alpha=alpha, strategy=strategy)
    assert all(step.p_adjusted > alpha for step in taken(tree))
    # All 15 initial pairs count to the end.
    assert (15 * left_over(result, tree, "p_value") <= alpha).all()
    assert tree.stopped == f"every pair differs significantly (adjusted p ≤ {alpha:g})"


def test_alpha_finds_the_distributions():
    assert merge(overlapping(), alpha=0.05).groups.tolist() == [0, 0, 0, 1, 1, 2]


def test_p_values_are_adjusted_for_all_initial_pairs():
    result = overlapping()
    for step in merge(result, alpha=0.05).merges:
        if step.left < 6 and step.right < 6:
            expected = min(1.0, math.comb(6, 2) * result.p_value[step.left, step.right])
            assert step.p_adjusted == pytest.approx(expected)


def test_a_pair_at_the_limit():
    result, _ = gaussian_estimate([0, 0.5], 40)
    (step,) = merge(result, n_clusters=2).merges
    assert 0.001 < step.p_adjusted < 0.2
    assert merge(result, alpha=step.p_adjusted).n_clusters == 2
    assert merge(result, alpha=step.p_adjusted * 0.999).n_clusters == 1
    assert merge(result, max_tvd=step.tvd).n_clusters == 1
    assert merge(result, max_tvd=step.tvd * 0.999).n_clusters == 2


def test_a_pair_that_is_refused_does_not_stop_others():
    # Two large clusters are closer but surely different; two small ones may well be the same.
    result, _ = gaussian_estimate([0, 0.5, 10, 11.3], [400, 400, 4, 4])
    tree = merge(result, alpha=0.05)
    assert tree.groups.tolist() == [0, 1, 2, 2]
    assert tree.merges[1].statistic < tree.merges[0].statistic
    assert {tree.merges[1].left, tree.merges[1].right} == {0, 1}


# --- auto -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["compose", "linkage"])
def test_auto_is_a_test_where_clusters_overlap(strategy):
    tree = merge(overlapping(), strategy=strategy)
    tested = merge(overlapping(), strategy=strategy, alpha=0.05)
    assert tree.groups.tolist() == tested.groups.tolist() == [0, 0, 0, 1, 1, 2]
    assert tree.stopped == "all neighbours differ significantly (adjusted p ≤ 0.05)"
    assert all(step.why.endswith("of one distribution") for step in taken(tree))


@pytest.mark.parametrize("strategy", ["compose", "linkage"])
def test_auto_looks_for_valleys_where_clusters_only_touch(strategy):
    with pytest.warns(PartitionWarning):
        tree = merge(touching(), strategy=strategy)
    assert tree.groups.tolist() == [0, 0, 0, 1, 1, 1]
    assert tree.stopped == "all neighbours have a valley between (dip p < 0.05)"
    assert all(step.why.startswith("no valley between: dip p ") for step in taken(tree))
    assert tree.merges[-1].why.startswith("beyond the cut: valley between: dip p ")
    assert quietly(touching(), alpha=0.05, strategy=strategy).n_clusters == 6


def test_auto_asks_the_test_before_it_looks_for_a_valley():
    result, _ = gaussian_estimate([0, 0, 20, 40, 60, 80], 30)
    tree = quietly(result)
    assert tree.groups.tolist() == [0, 0, 1, 2, 3, 4]
    assert tree.merges[0].why == "adjusted p 1 of one distribution"


def test_auto_looks_for_valleys_in_the_view():
    # A view that sees a gap between every two clusters, and the other way round.
    apart, _ = gaussian_estimate([0, 20, 40, 60, 80, 100], 150)
    assert quietly(touching(), view=apart).n_clusters == 6
    assert quietly(apart, view=touching()).groups.tolist() == [0, 0, 0, 1, 1, 1]


def test_the_warning_says_what_it_saw_and_what_happens_now():
    nearest = np.median((touching().tvd + np.diag([np.inf] * 6)).min(axis=1))
    saw = (
        "the clusters look like a partition of the same features (median TVD to the nearest "
        f"neighbour {nearest:.2f}), where every pair is separable by construction; "
    )
    with pytest.warns(PartitionWarning) as caught:
        merge(touching())
    assert str(caught[0].message) == (
        saw + "auto therefore looks for a valley between them instead."
    )
    # The line blamed is the user's.
    assert caught[0].filename == __file__
    for rule in ({"alpha": 0.05}, {"max_tvd": 0.5}):
        with pytest.warns(PartitionWarning) as caught:
            merge(touching(), **rule)
        assert str(caught[0].message) == (
            saw + "leave the rule out, and auto looks for a valley between them instead."
        )


def test_no_warning_where_clusters_overlap():
    # Warnings are errors here.
    for rule in ({}, {"alpha": 0.05}, {"max_tvd": 0.5}, {"n_clusters": 2}):
        assert merge(overlapping(), **rule).n_clusters >= 1
    assert merge(np.ones((3, 3)), max_tvd=0.5).n_clusters == 3


def test_two_clusters():
    near, _ = gaussian_estimate([0, 0], 40)
    far, _ = gaussian_estimate([0, 9], 40)
    assert merge(near).groups.tolist() == [0, 0]
    with pytest.warns(PartitionWarning):
        assert merge(far).groups.tolist() == [0, 1]
    assert merge([[0, 0.5], [0.5, 0]], n_clusters=1).groups.tolist() == [0, 0]


# --- what is refused ------------------------------------------------------------------------------


def refuses(sentence, distances, **wishes):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        merge(distances, **wishes)


def test_two_rules_at_once():
    refuses(
        "n_clusters and max_tvd are two stopping rules; choose one.",
        MATRIX,
        n_clusters=2,
        max_tvd=0.5,
    )
    refuses(
        "max_tvd and alpha are two stopping rules; choose one.",
        overlapping(),
        max_tvd=0.5,
        alpha=0.05,
    )


@pytest.mark.parametrize("name", ["max_tvd", "alpha"])
@pytest.mark.parametrize("value", [-0.1, 1.01, math.nan])
def test_levels_out_of_range(name, value):
    refuses(f"{name} must lie between 0 and 1, got {value!r}.", overlapping(), **{name: value})


@pytest.mark.parametrize("value", [0, 4, -2, 1.5, "2"])
def test_numbers_of_clusters_out_of_range(value):
    refuses(
        "n_clusters must be a whole number from 1 to 3, the number of clusters there are, "
        f"got {value!r}.",
        MATRIX,
        n_clusters=value,
    )


@pytest.mark.parametrize("rule", [{}, {"alpha": 0.05}])
def test_a_matrix_without_scores_has_no_tests(rule):
    refuses(
        "a matrix without scores can be cut by n_clusters or max_tvd only; pass one of them, or a "
        "PairwiseTVD.",
        MATRIX,
        **rule,
    )


@pytest.mark.parametrize("strategy", ["compose", "retrain", "warm"])
def test_a_matrix_without_scores_has_no_scores_to_compose(strategy):
    refuses(
        f'strategy="{strategy}" needs scores, and a matrix has none; pass a PairwiseTVD or use '
        'strategy="linkage".',
        MATRIX,
        n_clusters=2,
        strategy=strategy,
    )


def test_strategies_that_need_more():
    for strategy in ("retrain", "warm"):
        refuses(
            f'strategy="{strategy}" needs estimate, a function that estimates anew; ClusterMerger '
            "brings one.",
            overlapping(),
            strategy=strategy,
        )
    sentence = 'strategy="spectral" needs n_clusters; it cannot find the number itself.'
    refuses(sentence, MATRIX, strategy="spectral", max_tvd=0.5)


def test_unknown_choices():
    refuses(
        "strategy must be one of linkage, compose, retrain, warm, spectral, got 'ward'.",
        MATRIX,
        strategy="ward",
        n_clusters=2,
    )
    refuses(
        "linkage must be one of average, single, complete, got 'ward'.",
        MATRIX,
        linkage="ward",
        n_clusters=2,
    )
    with pytest.raises(InputError, match="there is no divergence 'kl'; choose one of tv, lecam"):
        merge(overlapping(), strategy="linkage", statistic="kl")


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        ("abc", "distances must be a PairwiseTVD or a matrix of numbers."),
        (None, "distances must be a square matrix of two or more clusters, got shape ()"),
        ([0.1, 0.2, 0.3], "distances must be a square matrix of two or more clusters, got shape"),
        (np.zeros((2, 3)), "two or more clusters, got shape (2, 3); pass all pairs, not a"),
        ([[0.0]], "two or more clusters, got shape (1, 1)"),
        ([[0, math.nan], [math.nan, 0]], "distances must be finite and not negative; fill in"),
        ([[0, -0.1], [-0.1, 0]], "distances must be finite and not negative"),
        ([[0, 0.1], [0.2, 0]], "distances must be symmetric; average the matrix with its"),
    ],
)
def test_matrices_that_are_none(matrix, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        merge(matrix, n_clusters=1)


def test_the_weakest_valley_gives_way_first():
    # All three are apart, but six observations are less evidence of a valley than two hundred.
    result, _ = gaussian_estimate([0, 12, 24], [200, 200, 6])
    tree = quietly(result)
    assert tree.n_clusters == 3
    two = quietly(result, n_clusters=2)
    assert two.groups.tolist() == tree.cut(n_clusters=2).groups.tolist() == [0, 1, 1]
    assert two.merges[0].why.startswith("valley between: dip p ")
    assert two.merges[0].why.endswith("; merged because at most 2 may remain")


def test_a_cluster_of_one_does_not_hide_a_partition():
    """All clusters look near to it, because nothing of it can be held out."""
    X, _ = gaussians([[0, 0]], 400)
    labels = KMeans(8, n_init=1, random_state=0).fit_predict(X)
    labels[0] = 8
    with pytest.warns(SmallClusterWarning):
        result = pairwise_tvd(X, labels, epochs=20, random_state=0, device="cpu")
    assert np.median(np.sort(result.tvd, axis=1)[:, 1]) <= 0.5
    assert looks_like_partition(result)
