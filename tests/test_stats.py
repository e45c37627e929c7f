import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import unsplit
from unsplit.pairwise import statistics as stats

quick = settings(deadline=None, max_examples=30, derandomize=True)


def rates(p, q):
    """Hit rates of one pair: p of cluster 0, q of cluster 1."""
    return np.array([[0.5, p], [q, 0.5]])


def pair_matrix(value):
    return np.array([[0.0, value], [value, 0.0]])


@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
@pytest.mark.parametrize(("hits", "n"), [(0, 1), (1, 1), (0, 20), (7, 20), (20, 20), (999, 1000)])
def test_wilson_interval_against_scipy(hits, n, level):
    low, high = stats.wilson_interval(np.array([hits / n]), np.array([n]), level)
    expected = scipy.stats.binomtest(hits, n).proportion_ci(level, method="wilson")
    assert low[0] == pytest.approx(expected.low, abs=1e-12)
    assert high[0] == pytest.approx(expected.high, abs=1e-12)


def test_wilson_interval_of_nothing_is_everything():
    low, high = stats.wilson_interval(np.array([0.5, 0.5]), np.array([0, 10]), 0.95)
    assert (low[0], high[0]) == (0.0, 1.0)
    assert 0 < low[1] < high[1] < 1


def exact_coverage(p, n_p, q, n_q, level):
    """How often the interval holds (p + q)/2, summed over every outcome of the two binomials."""
    hits_p, hits_q = np.arange(n_p + 1), np.arange(n_q + 1)
    # One cluster per outcome: the block [outcome of p, outcome of q] has all combinations.
    own = np.concatenate([hits_p / n_p, hits_q / n_q])
    n = np.repeat([n_p, n_q], [n_p + 1, n_q + 1])
    ends = stats.accuracy_interval(stats.Hits.of(np.tile(own[:, None], len(own)), n), level)
    low, high = (end[: n_p + 1, n_p + 1 :] for end in ends)
    assert (low >= 0).all()
    assert (high <= 1).all()
    truth = (p + q) / 2
    chance = np.outer(scipy.stats.binom.pmf(hits_p, n_p, p), scipy.stats.binom.pmf(hits_q, n_q, q))
    return chance[(low <= truth) & (truth <= high)].sum()


PAIRS_OF_RATES = [(0.5, 0.5), (0.5, 0.7), (0.9, 0.3), (0.9, 0.9), (0.6, 0.95), (0.98, 0.98)]


@pytest.mark.parametrize(("p", "q"), PAIRS_OF_RATES)
@pytest.mark.parametrize(("n_p", "n_q"), [(50, 50), (50, 200), (300, 400)])
def test_accuracy_interval_holds_its_level(p, q, n_p, n_q):
    assert 0.93 <= exact_coverage(p, n_p, q, n_q, 0.95) <= 0.98


def test_accuracy_interval_holds_its_level_in_a_simulation():
    rng = np.random.default_rng(0)
    for p, q, n in [(0.5, 0.5, 50), (0.8, 0.6, 80), (0.95, 0.9, 200)]:
        hits = rng.binomial(n, [p, q], size=(1500, 2)) / n
        intervals = [stats.accuracy_interval(stats.Hits(*h, n, n), 0.95) for h in hits]
        held = [low <= (p + q) / 2 <= high for low, high in intervals]
        assert 0.93 <= np.mean(held) <= 0.98


def test_other_levels_are_held_too():
    assert exact_coverage(0.7, 200, 0.8, 150, 0.8) == pytest.approx(0.8, abs=0.02)
    assert exact_coverage(0.7, 200, 0.8, 150, 0.99) == pytest.approx(0.99, abs=0.005)


@quick
@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 50), st.integers(0, 50))
def test_accuracy_interval_is_symmetric_and_inside_the_unit_interval(p, q, n_p, n_q):
    low, high = stats.accuracy_interval(stats.Hits.of(rates(p, q), np.array([n_p, n_q])), 0.95)
    np.testing.assert_array_equal(low, low.T)
    np.testing.assert_array_equal(high, high.T)
    # The Wilson ends of 0 and 1 are right up to rounding.
    assert 0 <= low[0, 1] <= (p + q) / 2 + 1e-12
    assert (p + q) / 2 - 1e-12 <= high[0, 1] <= 1


def test_accuracy_interval_of_nothing_leaves_the_empty_side_open():
    low, high = stats.accuracy_interval(stats.Hits(0.5, 0.5, 0, 0), 0.95)
    half_width = np.sqrt(0.5) / 2
    assert low == pytest.approx(0.5 - half_width)
    assert high == pytest.approx(0.5 + half_width)


@quick
@given(st.floats(0, 1), st.floats(0, 1))
def test_hit_rates_are_raised_to_chance_and_no_further(p, q):
    raised = stats.at_least_chance(stats.Hits(p, q, 9, 9))
    expected = max((p + q) / 2, 0.5)
    assert raised.accuracy == pytest.approx(expected, abs=1e-12)
    assert raised.rate - raised.back == pytest.approx(p - q, abs=1e-12)
    assert -1e-12 <= min(raised[:2]) <= max(raised[:2]) <= 1 + 1e-12


def test_the_fewer_observations_the_more_could_be_hidden():
    # All did worse than chance, and must not look the surer for it.
    worse = [stats.at_least_chance(stats.Hits(0.2, 0.3, n, n)) for n in (5, 20, 80)]
    high = [stats.accuracy_interval(hits, 0.95)[1] for hits in worse]
    assert high[0] > high[1] > high[2] > 0.5


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.7, 0.9), (0.95, 0.6)])
def test_stderr_is_the_standard_deviation_of_the_tvd(p, q):
    rng = np.random.default_rng(0)
    hits = rng.binomial(200, [p, q], size=(2000, 2)) / 200
    simulated = (hits.sum(axis=1) - 1).std()
    claimed = np.mean([stats.tvd_stderr(stats.Hits(*h, 200, 200)) for h in hits])
    assert claimed == pytest.approx(simulated, rel=0.05)


def test_stderr_of_a_perfect_score_is_positive_and_shrinks():
    few, many = (stats.tvd_stderr(stats.Hits(1.0, 1.0, n, n)) for n in (10, 1000))
    assert 0 < many < few


def test_stderr_by_hand():
    # Posterior Beta(4, 3) and Beta(3, 1): variances 12/392 and 3/80.
    stderr = stats.tvd_stderr(stats.Hits(3 / 5, 2 / 2, 5, 2))
    assert stderr == pytest.approx(np.sqrt(12 / 392 + 3 / 80))


def test_stderr_of_nothing_is_that_of_two_uniform_variables():
    stderr = stats.tvd_stderr(stats.Hits(0.5, 0.5, 0, 0))
    assert stderr == pytest.approx(np.sqrt(2 / 12))


def test_errors_grow_with_the_folds_only_where_clusters_cannot_be_told_apart():
    for rate, factor in ((0.5, np.sqrt(stats.CROSSFIT_VARIANCE)), (1.0, 1.0)):
        hits = stats.Hits(rate, rate, 200, 200)
        one, five = (stats.tvd_stderr(hits, n_folds) for n_folds in (1, 5))
        assert five == pytest.approx(factor * one)
        widths = [np.diff(stats.accuracy_interval(hits, 0.95, n_folds)) for n_folds in (1, 5)]
        assert widths[1] == pytest.approx(factor * widths[0])


def test_stderr_is_symmetric_when_sizes_and_rates_are_not():
    rng = np.random.default_rng(0)
    stderr = stats.tvd_stderr(stats.Hits.of(rng.random((5, 5)), np.array([0, 3, 50, 7, 1000])))
    np.testing.assert_array_equal(stderr, stderr.T)
    assert (stderr > 0).all()


def samples_with_statistic(a, b, u):
    """Two samples, of a and b, in which ``u`` pairs have the first above the second."""
    below = np.arange(b, dtype=float)
    full, rest = divmod(u, b)
    x = [b + 0.5] * full + ([rest - 0.5] if full < a else []) + [-0.5] * (a - full - 1)
    # Spread equal values a little: the exact distribution is for samples without ties.
    return np.array(x) + np.arange(a) * 1e-6, below


@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 7), (2, 2), (3, 5), (5, 3), (8, 8), (12, 4)])
def test_rank_sum_survival_against_scipy(a, b):
    expected = []
    for u in range(a * b + 1):
        x, y = samples_with_statistic(a, b, u)
        found = scipy.stats.mannwhitneyu(x, y, alternative="greater", method="exact")
        assert found.statistic == u
        expected.append(found.pvalue)
    np.testing.assert_allclose(stats.rank_sum_survival(a, b), expected, rtol=1e-10)


def test_rank_sum_survival_at_the_ends():
    survival = stats.rank_sum_survival(20, 20)
    assert len(survival) == 401
    assert survival[0] == 1.0
    # All of one above all of the other: one order in 40 choose 20.
    assert survival[-1] == pytest.approx(1 / 137_846_528_820, rel=1e-12)
    assert (np.diff(survival) <= 0).all()


def test_rank_sum_survival_is_the_same_either_way_round():
    np.testing.assert_allclose(
        stats.rank_sum_survival(4, 9), stats.rank_sum_survival(9, 4), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("a", "b", "method"),
    [
        (2, 3, "exact"),
        (6, 9, "exact"),
        (20, 20, "exact"),
        (1, 400, "exact"),
        (20, 21, "asymptotic"),
        (150, 80, "asymptotic"),
    ],
)
@pytest.mark.parametrize("shift", [-0.5, 0.0, 0.5, 3.0])
def test_p_value_of_one_fold_against_scipy(a, b, method, shift):
    rng = np.random.default_rng(a * b)
    x, y = rng.standard_normal(a) + shift, rng.standard_normal(b)
    expected = scipy.stats.mannwhitneyu(x, y, alternative="greater", method=method)
    p = stats.rank_sum_p_value(pair_matrix(expected.statistic), np.array([[a, b]]))
    assert p[0, 1] == pytest.approx(expected.pvalue, rel=1e-9)
    assert p[1, 0] == p[0, 1]


def test_half_a_pair_counts_as_none_in_the_exact_test():
    counts = np.array([[3, 4]])
    with_tie, without = (stats.rank_sum_p_value(pair_matrix(u), counts) for u in (9.5, 9.0))
    assert with_tie[0, 1] == without[0, 1]


def test_p_value_of_several_folds_uses_twice_the_variance_by_hand():
    counts = np.array([[4, 16], [5, 15]])
    p = stats.rank_sum_p_value(pair_matrix(100.0), counts)
    # Per fold: mean a·b/2, variance a·b·(a + b + 1)/12; doubled for folds that share data.
    mean = (4 * 16 + 5 * 15) / 2
    variance = 2 * (4 * 16 * 21 + 5 * 15 * 21) / 12
    assert p[0, 1] == pytest.approx(scipy.stats.norm.sf((100 - mean - 0.5) / np.sqrt(variance)))


def test_fold_with_one_side_empty_adds_nothing():
    U = pair_matrix(100.0)
    two = stats.rank_sum_p_value(U, np.array([[4, 16], [5, 15]]))
    three = stats.rank_sum_p_value(U, np.array([[4, 16], [5, 15], [0, 9]]))
    np.testing.assert_array_equal(two, three)


# --- small clusters across folds ------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), [(3, 3), (5, 5), (5, 12), (8, 8), (19, 19)])
def test_across_folds_the_ranks_are_those_of_clusters_shifted_by_chance(a, b):
    """What networks that share training data do, simulated: a shift as large as its error."""
    rng = np.random.default_rng(a + b)
    n_draws = 40_000
    values = rng.standard_normal((n_draws, a + b))
    values[:, :a] += np.sqrt(1 / a + 1 / b) * rng.standard_normal((n_draws, 1))
    U = scipy.stats.rankdata(values, axis=1)[:, :a].sum(axis=1) - a * (a + 1) / 2
    expected = (U[:, None] >= np.arange(a * b + 1)).mean(axis=0)
    found = stats.rank_sum_survival(a, b, stats.CROSSFIT_VARIANCE)
    np.testing.assert_allclose(found, expected, atol=0.012)
    assert np.sum(found) == pytest.approx(a * b / 2 + 1)  # symmetric about a·b/2


@pytest.mark.parametrize(("n", "least"), [(5, 0.0175), (6, 0.0070), (8, 0.0011), (15, 1.3e-6)])
def test_small_clusters_that_are_perfectly_separated_differ_significantly(n, least):
    # Dealt to five folds, as unequal as such clusters are.
    counts = np.stack([np.bincount(np.arange(n) % 5, minlength=5)] * 2, axis=1)
    p = stats.rank_sum_p_value(pair_matrix(float(n * n)), counts)
    assert p[0, 1] == pytest.approx(least, rel=0.05)
    assert p[0, 1] > 1 / math.comb(2 * n, n)  # no permutation test can do better


def test_only_small_clusters_are_compared_across_folds():
    small, large = np.full((5, 1), 3), np.full((5, 1), 4)
    assert stats.across_folds(small.sum(axis=0), 5, 5)
    assert not stats.across_folds(large.sum(axis=0), 5, 5)  # 20
    assert not stats.across_folds(small.sum(axis=0), 1, 1)  # one network: no folds
    assert not stats.across_folds(small.sum(axis=0), 10, 5)  # batches


@quick
@given(
    st.integers(1, 4),
    st.lists(st.integers(0, 30), min_size=2, max_size=5),
    st.integers(0, 2**32 - 1),
)
def test_p_values_are_probabilities_and_one_on_the_diagonal_and_for_empty_clusters(
    n_folds, sizes, seed
):
    rng = np.random.default_rng(seed)
    counts = rng.permuted(np.tile(sizes, (n_folds, 1)), axis=1)
    n_pairs = counts.T @ counts
    U = np.floor(rng.random(n_pairs.shape) * (2 * n_pairs + 1)) / 2
    p = stats.rank_sum_p_value(np.triu(U, 1) + np.triu(U, 1).T, counts)
    assert not np.isnan(p).any()
    assert ((p >= 0) & (p <= 1)).all()
    np.testing.assert_array_equal(np.diag(p), 1.0)
    np.testing.assert_array_equal(p[n_pairs == 0], 1.0)
    np.testing.assert_array_equal(p, p.T)


def test_p_values_of_clusters_of_many_sizes_are_those_of_their_pairs_alone():
    sizes = np.array([0, 3, 8, 50, 3])
    upper = np.triu(np.floor(0.7 * np.outer(sizes, sizes)), 1)
    U = upper + upper.T
    p = stats.rank_sum_p_value(U, sizes[None])
    for i, j in zip(*np.triu_indices(5, 1), strict=True):
        alone = stats.rank_sum_p_value(pair_matrix(U[i, j]), sizes[None, [i, j]])
        assert p[i, j] == alone[0, 1]


def symmetric_p_values(k, seed=0):
    upper = np.triu(np.random.default_rng(seed).random((k, k)) ** 3, 1)
    return upper + upper.T + np.eye(k)


@pytest.mark.parametrize("k", [2, 3, 10])
def test_adjusted_p_values_are_bonferronis(k):
    p, n_pairs = symmetric_p_values(k), math.comb(k, 2)
    adjusted = stats.adjust_for_pairs(p, n_pairs)
    np.testing.assert_array_equal(adjusted > 0.05, n_pairs * p > 0.05)
    np.testing.assert_array_equal(adjusted, adjusted.T)
    np.testing.assert_array_equal(np.diag(adjusted), 1.0)


def test_adjusted_p_values_by_hand():
    p = np.array([[1.0, 0.01, 0.4], [0.01, 1.0, 0.03], [0.4, 0.03, 1.0]])
    expected = [[1.0, 0.03, 1.0], [0.03, 1.0, 0.09], [1.0, 0.09, 1.0]]
    np.testing.assert_allclose(stats.adjust_for_pairs(p, 3), expected, rtol=1e-12)


def test_adjusting_leaves_the_input_alone():
    p = symmetric_p_values(4)
    stats.adjust_for_pairs(p, 6)
    np.testing.assert_array_equal(p, symmetric_p_values(4))


# --- pairs that may be equal -----------------------------------------------------------------


@pytest.mark.parametrize("n_equal", [0, 10, 100, 435])
def test_pairs_that_may_be_equal_are_estimated(n_equal):
    rng = np.random.default_rng(n_equal)
    accuracy = np.full((30, 30), 0.95)
    left, right = np.triu_indices(30, 1)
    some = rng.permutation(435)[:n_equal]
    accuracy[left[some], right[some]] = rng.uniform(0.3, 0.7, n_equal)
    accuracy = np.minimum(accuracy, accuracy.T)
    found = stats.possibly_equal(int(np.triu(accuracy <= 0.5, 1).sum()), 30)
    assert abs(found - n_equal) <= 2 + 4 * np.sqrt(n_equal)
    assert found <= 435


def test_small_clusters_that_differ_are_not_merged_for_want_of_power():
    rng = np.random.default_rng(0)
    centres = 6 * rng.normal(size=(10, 10))
    X = np.repeat(centres, 20, axis=0) + rng.normal(size=(200, 10))
    merger = unsplit.ClusterMerger(random_state=0).fit(X, initial_labels=np.arange(200) // 10)
    assert (merger.tree_.groups.reshape(10, 2) == np.arange(10)[:, None]).all()
