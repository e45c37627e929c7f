"""Edges in structureless data: the curve that real data are compared with."""

import numpy as np
import pytest

from unsplit.merging.neighbours import evidence as chance
from unsplit.merging.neighbours.evidence import Spectrum, chance_curve


def curve(d, n=400, k=20, seed=0):
    return chance_curve(Spectrum(np.ones(d)), n, k, np.random.default_rng(seed))


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
    flat = Spectrum(np.array([1.0, 1.0, 1.0, *[1e-3] * 47]))
    found = chance_curve(flat, 400, 20, np.random.default_rng(0))[2]
    assert found == pytest.approx(ends[1], rel=0.5)


def test_units_do_not_matter():
    small = chance_curve(Spectrum(np.array([2.0, 1.0])), 300, 8, np.random.default_rng(0))
    large = chance_curve(Spectrum(np.array([2e6, 1e6])), 300, 8, np.random.default_rng(0))
    np.testing.assert_allclose(small, large)


@pytest.mark.parametrize(("n", "k", "pieces"), [(400, 80, 50), (30, 20, 15), (400, 2, 2)])
def test_no_more_pieces_than_there_is_use_for(n, k, pieces):
    found = curve(2, n, k)
    assert len(found) == pieces + 1
    assert np.isfinite(found[2:]).all()


@pytest.mark.parametrize(("n", "k"), [(400, 1), (3, 5), (2, 2)])
def test_where_nothing_can_be_cut_nothing_is_expected(n, k):
    assert curve(2, n, k).tolist() == [np.inf, np.inf]


def test_constant_data_are_no_error():
    spectrum = Spectrum.of(np.full((50, 4), 7.0))
    assert not spectrum.deviations.any()
    found = chance_curve(spectrum, 50, 5, np.random.default_rng(0))
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
    found = chance_curve(Spectrum(np.ones(2)), 60, 5, np.random.default_rng(0))
    # The medians are 0.25, 0.65, 0.55 and 1.3: the second is brought down to the third.
    assert found[2:].tolist() == pytest.approx([0.25, 0.55, 0.55, 1.3])


# --- the spectrum ---------------------------------------------------------------------------------


def test_the_spectrum_is_that_of_the_data():
    rng = np.random.default_rng(0)
    scales = np.array([5.0, 2.0, 0.5])
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    X = 100 + rng.standard_normal((500, 3)) * scales @ turn
    found = Spectrum.of(X).deviations
    np.testing.assert_allclose(found, scales, rtol=0.15)
    np.testing.assert_allclose(found, np.linalg.svd(X - X.mean(0), compute_uv=False) / np.sqrt(500))


@pytest.mark.parametrize(("n", "d"), [(60, 400), (200, 350)])
def test_of_many_features_the_whole_variance_is_kept(n, d):
    X = np.random.default_rng(0).standard_normal((n, d)) * np.geomspace(10, 0.1, d)
    found = Spectrum.of(X).deviations
    assert len(found) == 300
    assert (found**2).sum() == pytest.approx(X.var(axis=0).sum())
    exact = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) / np.sqrt(n)
    np.testing.assert_allclose(found[:20], exact[:20], rtol=0.05)
    assert (np.diff(found[:100]) <= 1e-6).all()


def test_fewer_observations_than_features_are_no_error():
    X = np.random.default_rng(0).standard_normal((5, 40))
    found = Spectrum.of(X).deviations
    assert (found[:4] > 0.1).all()
    assert (found[5:] < 1e-6).all()
    assert np.isfinite(found).all()
