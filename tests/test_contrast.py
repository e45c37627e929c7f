"""What the scores say about merged clusters, against slow twins and known densities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from tests import reference
from tests.merging_cases import gaussian_estimate, log_density, regrouped, union_scores
from unsplit import TrainConfig, pairwise_tvd
from unsplit.datasets import gaussians
from unsplit.merging.pairs import Contrast, Mixtures
from unsplit.pairwise import statistics as stats

quick = settings(deadline=None, max_examples=15, derandomize=True)

MEANS = [[0, 0], [0, 0], [1, 0], [2, 1], [0, 4], [3, 3]]
SIZES = [30, 12, 25, 40, 1, 7]
SCALES = [1, 1, 1, 0.5, 1, 2]


def small(n_folds=3, share=1.0, seed=0):
    """Six clusters of unlike sizes and scales; the fifth holds nothing out."""
    return gaussian_estimate(MEANS, SIZES, scales=SCALES, n_folds=n_folds, share=share, seed=seed)


CASES = {"crossfit": {"n_folds": 3}, "cv": {"n_folds": 1, "share": 0.4}}


def all_pairs(k):
    return [(a, b) for a in range(k) for b in range(k) if a != b]


def random_merges(seed, k, n_merges):
    """Merges, b into a, and the cluster in which every cluster ends up."""
    rng = np.random.default_rng(seed)
    firsts, merges = np.arange(k), []
    for _ in range(n_merges):
        a, b = rng.choice(np.unique(firsts), 2, replace=False).tolist()
        firsts[firsts == b] = a
        merges.append((a, b))
    return merges, firsts


# --- one pair -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_unmerged_clusters_are_as_in_the_estimate(case):
    result, _ = small(**CASES[case])
    evidence = Mixtures(result)
    low, high = result.confidence_interval()
    for a, b in all_pairs(len(SIZES)):
        contrast = evidence.contrast(a, b)
        assert contrast.hit_rate[0, 1] == pytest.approx(result.hit_rate[a, b], abs=1e-12)
        assert contrast.hit_rate[1, 0] == pytest.approx(result.hit_rate[b, a], abs=1e-12)
        assert contrast.tvd == pytest.approx(result.tvd[a, b], abs=1e-12)
        assert contrast.interval == pytest.approx((low[a, b], high[a, b]), abs=1e-9)
        assert contrast.p_value == pytest.approx(result.p_value[a, b], rel=1e-9)
        np.testing.assert_array_equal(contrast.counts, result.scores.counts[:, [a, b]])


@pytest.mark.parametrize("cv", ["auto", 0.3])
def test_unmerged_clusters_are_as_in_a_trained_estimate(cv):
    X, labels = gaussians([[0, 0], [0.5, 0], [3, 0]], 40)
    result = pairwise_tvd(
        X, labels, training=TrainConfig(epochs=3), cv=cv, random_state=0, device="cpu"
    )
    low, high = result.confidence_interval()
    evidence = Mixtures(result)
    for a, b in all_pairs(3):
        contrast = evidence.contrast(a, b)
        assert contrast.tvd == pytest.approx(result.tvd[a, b], abs=1e-12)
        assert contrast.interval == pytest.approx((low[a, b], high[a, b]), abs=1e-9)
        assert contrast.p_value == pytest.approx(result.p_value[a, b], rel=1e-6)


@pytest.mark.parametrize(("n_a", "n_b"), [(3, 10), (10, 3), (1, 12), (1, 1), (25, 40)])
def test_holdout_p_value_against_scipy(n_a, n_b):
    # Unequal sizes and a perfect score: the largest U there is.
    values = np.concatenate([np.arange(1.0, n_a + 1), -np.arange(1.0, n_b + 1)])
    contrast = Contrast(values, values > 0, np.zeros(len(values), int), 1)
    if n_a * n_b <= stats.EXACT_PAIRS:
        expected = stats.rank_sum_survival(n_a, n_b)[-1]
    else:
        U, sd = n_a * n_b, np.sqrt(n_a * n_b * (n_a + n_b + 1) / 12)
        expected = norm.sf((U / 2 - 0.5) / sd)
    assert contrast.p_value == pytest.approx(expected, rel=1e-9)


def test_swapping_the_clusters_changes_nothing():
    result, _ = small()
    evidence = Mixtures(result)
    one, other = evidence.contrast(2, 3), evidence.contrast(3, 2)
    np.testing.assert_array_equal(np.sort(one.values), np.sort(-other.values))
    assert one.tvd == pytest.approx(other.tvd)
    assert one.p_value == pytest.approx(other.p_value)
    assert one.interval == pytest.approx(other.interval)


def test_a_cluster_with_nothing_held_out_is_a_coin_toss():
    result, _ = small()
    contrast = Mixtures(result).contrast(4, 5)
    assert result.too_small[4]
    assert contrast.hit_rate[0, 1] == 0.5
    assert contrast.p_value == 1.0
    assert contrast.interval[0] == 0.0


def test_two_clusters_with_nothing_held_out():
    result, _ = gaussian_estimate([0, 1, 2], [20, 1, 1])
    contrast = Mixtures(result).contrast(1, 2)
    assert len(contrast.values) == 0
    assert (contrast.tvd, contrast.p_value) == (0.0, 1.0)
    assert contrast.interval == (0.0, 1.0)


def test_hits_count_ties_as_one_half():
    of_a = np.array([True, True, True, False, False])
    contrast = Contrast(np.array([2.0, 0.0, -1.0, 0.0, -3.0]), of_a, np.zeros(5, int), 1)
    assert contrast.hit_rate[0, 1] == pytest.approx(0.5)
    assert contrast.hit_rate[1, 0] == pytest.approx(0.75)
    assert contrast.tvd == pytest.approx(0.25)


# --- composed scores ------------------------------------------------------------------------------


@quick
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_composed_scores_against_all_scores(seed, n_members):
    result, _ = small()
    rng = np.random.default_rng(seed)
    scores, m = result.scores, len(result.scores.rows)
    members = rng.choice(len(SIZES), n_members, replace=False)
    index = np.sort(rng.choice(m, rng.integers(1, m), replace=False))
    groups = np.where(np.isin(np.arange(len(SIZES)), members), 0, 1)
    expected = union_scores(result, groups)[index, 0]
    found = scores.composed(index, [members.tolist()], result.sizes)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_composed_score_is_the_log_density_of_the_mixture():
    result, X = small()
    members = [0, 2, 3, 5]
    index = np.arange(len(result.scores.rows))
    expected = log_density(
        X[result.scores.rows],
        np.array(MEANS)[members],
        np.array(SIZES)[members],
        np.array(SCALES)[members],
    )
    found = result.scores.composed(index, [members], result.sizes)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def folds_to_compare(scores, i, j):
    """The folds; a single one for two small clusters, which are compared across folds."""
    n = max((scores.clusters == i).sum(), (scores.clusters == j).sum())
    across = stats.across_folds(n, len(scores.bias), scores.n_folds)
    return np.zeros_like(scores.folds) if across else scores.folds


def rank_sums_up_to_rounding(scores, z, i, j):
    """Smallest and largest U of z_i − z_j if what differs by rounding may change places."""
    difference = (z[:, i] - z[:, j]).astype(np.float64)
    folds = folds_to_compare(scores, i, j)
    low = high = 0
    for fold in np.unique(folds):
        inside = folds == fold
        above = difference[inside & (scores.clusters == i)][:, None]
        below = difference[inside & (scores.clusters == j)]
        low += (above > below + 1e-4).sum()
        high += (above > below - 1e-4).sum()
    return low, high


@pytest.mark.parametrize("case", CASES)
@quick
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_merged_clusters_are_those_of_an_estimate_for_the_union(case, seed, n_merges):
    result, _ = small(**CASES[case])
    merges, firsts = random_merges(seed, len(SIZES), n_merges)
    evidence = Mixtures(result)
    for a, b in merges:
        evidence.merge(a, b)
    alive, groups = np.unique(firsts, return_inverse=True)
    union = regrouped(result, groups)
    z = union.scores.dense()
    for i, j in all_pairs(len(alive)):
        contrast = evidence.contrast(int(alive[i]), int(alive[j]))
        assert contrast.tvd == pytest.approx(union.tvd[i, j], abs=1e-9)
        low, high = rank_sums_up_to_rounding(union.scores, z, i, j)
        found = contrast._rank_sum()
        assert low <= found <= high
        if low == high:
            folds = folds_to_compare(union.scores, i, j)
            assert found == reference.rank_sum(z, union.scores.clusters, folds, i, j)
            assert contrast.p_value == pytest.approx(union.p_value[i, j], rel=0.01)


def test_composed_column_is_the_log_density_of_the_mixture():
    result, X = small()
    ranking = Mixtures(result, columns=True)
    for a, b in [(3, 0), (2, 5), (3, 2)]:
        ranking.merge(a, b)
    members = [0, 2, 3, 5]
    expected = log_density(
        X[result.scores.rows],
        np.array(MEANS)[members],
        np.array(SIZES)[members],
        np.array(SCALES)[members],
    )
    np.testing.assert_allclose(ranking.z[:, 3], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_columns_kept_say_what_is_composed_anew(case):
    result, _ = small(**CASES[case])
    kept, anew = Mixtures(result, columns=True), Mixtures(result)
    for a, b in [(0, 2), (1, 4), (0, 1)]:
        for evidence in (kept, anew):
            evidence.merge(a, b)
        for pair in [(a, 3), (3, 5)]:
            one, other = kept.contrast(*pair), anew.contrast(*pair)
            assert one.tvd == pytest.approx(other.tvd, abs=1e-6)
            assert one.interval == pytest.approx(other.interval, abs=1e-6)
            assert one.p_value == pytest.approx(other.p_value, rel=1e-4)
            np.testing.assert_allclose(np.sort(one.values), np.sort(other.values), atol=1e-4)
