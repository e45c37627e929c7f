"""Edges in structureless data: the curve that real data are compared with."""

import numpy as np
import pytest
from scipy.stats import ks_2samp, skew, spearmanr

from unsplit.merging.neighbours import evidence as chance
from unsplit.merging.neighbours.evidence import Surrogate, chance_curve, one_mode
from unsplit.merging.neighbours.graph import connect, dithered


def normal(deviations):
    """A surrogate of normal data with these standard deviations."""
    X = np.random.default_rng(9).standard_normal((2000, len(deviations)))
    return Surrogate(X * np.asarray(deviations))


def curve(d, n=400, k=20, seed=0):
    return chance_curve(normal(np.ones(d)), n, k, np.random.default_rng(seed))


# --- the curve ------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 3, 20])
def test_the_more_are_left_the_more_edges_the_closest_have(d):
    found = curve(d)
    assert found.shape == (21,)
    assert np.isfinite(found[2:]).all()
    assert (np.diff(found[2:]) >= 0).all()
    assert found[2] > 0


def test_of_one_cluster_nothing_can_be_merged():
    assert curve(3)[:2].tolist() == [np.inf, np.inf]


def test_the_same_seed_gives_the_same_curve():
    assert np.array_equal(curve(3), curve(3))
    assert not np.array_equal(curve(3), curve(3, seed=1))


def test_seeds_agree_on_what_the_curve_is_for():
    ends = [curve(5, seed=seed)[2] for seed in range(4)]
    assert max(ends) < 2 * min(ends)


def test_in_more_dimensions_halves_have_more_neighbours_in_common():
    ends = [curve(d)[2] for d in (1, 3, 10, 50)]
    assert (np.diff(ends) > 0).all()
    assert ends[-1] < 1  # yet fewer than by chance
    # Dimensions along which nothing varies do not count.
    flat = normal([1.0, 1.0, 1.0, *[1e-3] * 47])
    found = chance_curve(flat, 400, 20, np.random.default_rng(0))[2]
    assert found == pytest.approx(ends[1], rel=0.5)


def test_units_do_not_matter():
    small = chance_curve(normal([2.0, 1.0]), 300, 8, np.random.default_rng(0))
    large = chance_curve(normal([2e6, 1e6]), 300, 8, np.random.default_rng(0))
    np.testing.assert_allclose(small, large, rtol=1e-6)


@pytest.mark.parametrize(("n", "k", "pieces"), [(400, 80, 50), (30, 20, 15), (400, 2, 2)])
def test_no_more_pieces_than_there_is_use_for(n, k, pieces):
    found = curve(2, n, k)
    assert len(found) == pieces + 1
    assert np.isfinite(found[2:]).all()


@pytest.mark.parametrize(("n", "k"), [(400, 1), (3, 5), (2, 2)])
def test_where_nothing_can_be_cut_nothing_is_expected(n, k):
    assert curve(2, n, k).tolist() == [np.inf, np.inf]


def test_constant_data_are_no_error():
    surrogate = Surrogate(np.full((50, 4), 7.0))
    assert surrogate.is_constant
    found = chance_curve(surrogate, 50, 5, np.random.default_rng(0))
    assert found.tolist() == [np.inf, np.inf]


def test_every_merge_is_of_the_closest_pair():
    # A chain of three: the middle belongs to the nearer end, which is noted first.
    class Chain:
        def __init__(self):
            self.sizes, self.merged = np.ones(3), []

        def distances(self, rows=slice(None)):
            far = np.array([[0, 0.2, 0.9], [0.2, 0, 0.1], [0.9, 0.1, 0]])
            return far[rows].copy()

        def times_chance(self, a, b):
            return 10 * a + b

        def merge(self, a, b):
            self.merged.append((a, b))

    chain, noted = Chain(), np.full(4, np.nan)
    chance._merge_all(chain, noted)
    assert chain.merged == [(1, 2), (0, 1)]
    assert noted[[3, 2]].tolist() == [12, 1]


def test_the_curve_is_the_middle_of_the_draws_and_never_falls(monkeypatch):
    # Edges of the closest pair when 2, 3, 4 and 5 pieces are left, draw by draw.
    draws = np.array(
        [[0.1, 0.5, 0.9, 1.4], [0.3, 0.7, 0.4, 1.2], [0.2, 0.6, 0.5, 9.0], [0.4, 8.0, 0.6, 1.0]]
    )
    left = iter(draws)

    def noted(connections, curve):
        curve[2:] = next(left)

    monkeypatch.setattr(chance, "_merge_all", noted)
    found = chance_curve(normal([1.0, 1.0]), 60, 5, np.random.default_rng(0))
    # The medians are 0.25, 0.65, 0.55 and 1.3: the second is brought down to the third.
    assert found[2:].tolist() == pytest.approx([0.25, 0.55, 0.55, 1.3])


# --- the surrogate --------------------------------------------------------------------------------


def drawn(X, n=4000, seed=1):
    return Surrogate(X).draw(n, np.random.default_rng(seed))


@pytest.mark.parametrize("draw", ["standard_normal", "random", "exponential", "lognormal"])
def test_every_feature_keeps_its_distribution(draw):
    rng = np.random.default_rng(0)
    X = getattr(rng, draw)(size=(2000, 2)) * [1.0, 50.0] + [0.0, 7.0]
    found = drawn(X)
    for old, new in zip(X.T, found.T, strict=True):
        # As far apart as samples of so many are that have one distribution: 0.037 at 5 %.
        assert ks_2samp(old, new).statistic < 0.05
        assert new.min() >= old.min() - 1e-9
    if draw in ("exponential", "lognormal"):  # which a normal distribution would not be
        assert (skew(found) > 1.5).all()


def test_counts_stay_as_skewed_as_they_are():
    X = np.random.default_rng(0).poisson(2, size=(2000, 2)).astype(float)
    found = drawn(X)
    assert found.mean(axis=0) == pytest.approx(X.mean(axis=0), abs=0.1)
    assert found.std(axis=0) == pytest.approx(X.std(axis=0), rel=0.1)
    # Between the numbers is no gap.
    assert np.histogram(found[:, 0], np.arange(0, 4, 0.25))[0].min() > 50


@pytest.mark.parametrize("rho", [-0.9, 0.0, 0.6])
def test_correlations_are_kept_whatever_the_distributions_are(rho):
    normal = np.random.default_rng(0).multivariate_normal([0, 0], [[1, rho], [rho, 1]], 2000)
    X = np.column_stack([np.exp(normal[:, 0]), normal[:, 1]])
    found = drawn(X)
    assert spearmanr(*found.T).statistic == pytest.approx(spearmanr(*X.T).statistic, abs=0.05)


def test_a_gap_is_filled():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((500, 2)) - [5, 0], rng.standard_normal((500, 2))])
    found = drawn(X)
    assert found.std(axis=0) == pytest.approx(X.std(axis=0), rel=0.15)
    n_bins = np.histogram(found[:, 0], np.arange(-6.5, 1.6, 0.5))[0]
    # Rising and then falling, up to what chance does to so many.
    peak = n_bins.argmax()
    assert (np.diff(n_bins[: peak + 1]) > -60).all()
    assert (np.diff(n_bins[peak:]) < 60).all()
    assert n_bins.min() > 50


def test_one_mode_is_a_distribution_function():
    rng = np.random.default_rng(0)
    for values in (rng.exponential(size=300), rng.poisson(3, 300).astype(float), np.arange(5.0)):
        shares, at = one_mode(values)
        assert (shares[0], shares[-1]) == pytest.approx((0.0, 1.0))
        assert (np.diff(shares) >= 0).all()
        assert (np.diff(at) > 0).all()
        density = np.diff(shares) / np.diff(at)
        peak = density.argmax()
        assert (np.diff(density[: peak + 1]) >= -1e-9).all()
        assert (np.diff(density[peak:]) <= 1e-9).all()


@pytest.mark.parametrize(("n", "d"), [(60, 400), (200, 350)])
def test_of_many_features_the_whole_variance_is_kept(n, d):
    X = np.random.default_rng(0).standard_normal((n, d)) * np.geomspace(10, 0.1, d)
    found = drawn(X)
    assert found.shape[1] == 300
    assert found.var(axis=0).sum() == pytest.approx(X.var(axis=0).sum(), rel=0.1)


def test_fewer_observations_than_features_are_no_error():
    found = drawn(np.random.default_rng(0).standard_normal((5, 40)))
    assert found.shape == (4000, 40)
    assert np.isfinite(found).all()


def test_the_same_seed_draws_the_same():
    X = np.random.default_rng(0).standard_normal((100, 3))
    assert np.array_equal(drawn(X, 50), drawn(X, 50))
    assert not np.array_equal(drawn(X, 50), drawn(X, 50, seed=2))


# --- numbers of a few values ----------------------------------------------------------------------


def test_whole_numbers_are_spread_to_the_next_ones():
    X = np.random.default_rng(0).poisson(3, size=(500, 2)).astype(float) * [1.0, 10.0]
    before = X.copy()
    found = dithered(X)
    assert np.array_equal(X, before)
    assert len(np.unique(found[:, 0])) == len(np.unique(found[:, 1])) == 500
    assert np.array_equal(found[:, 0].round(), X[:, 0])
    assert 0.4 < np.abs(found - X)[:, 0].max() <= 0.5
    assert 4 < np.abs(found - X)[:, 1].max() <= 5
    assert np.array_equal(found, dithered(X))


def test_continuous_features_and_names_of_groups_stay():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal(200), rng.integers(4, size=200), np.ones(200)])
    assert np.array_equal(dithered(X), X)


def test_equal_whole_numbers_have_neighbours_in_all_directions():
    # Otherwise the first of very many equal rows would be the neighbours of all others.
    X = np.random.default_rng(0).poisson(2, size=(600, 2)).astype(float)
    graph = connect(X, np.zeros(600, np.int64))
    assert len(np.unique(graph.features, axis=0)) == 600
    assert np.abs(graph.features - X).max() <= 0.5
    assert graph.adjacency.sum(axis=1).max() < 60
    # A few equal rows are no reason to change any.
    Y = np.random.default_rng(0).standard_normal((600, 2))
    Y[:10] = Y[0]
    assert np.array_equal(connect(Y, np.zeros(600, np.int64)).features, Y)
