"""Wasserstein distances that are known, exact transport, and what the results are said to mean."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from experiments.wasserstein import baselines, families, parts, run, transport
from experiments.wasserstein.config import FULL, QUICK

few = settings(deadline=None, max_examples=20, derandomize=True)
TINY = replace(QUICK, size=20, epochs=1, plain_steps=2)


# Families.


@pytest.mark.parametrize("family", families.FAMILIES)
def test_clusters_stay_the_same_whatever_their_number(family):
    few_, many = (families.drawn(family, k, 30, 1) for k in (2, 4))
    np.testing.assert_array_equal(many.X[:60], few_.X)
    np.testing.assert_array_equal(many.truth[:2, :2], few_.truth)
    np.testing.assert_array_equal(many.truth, many.truth.T)
    assert (many.truth[np.triu_indices(4, 1)] > 0).all()
    assert not np.array_equal(families.drawn(family, 2, 30, 2).X, few_.X)


@pytest.mark.parametrize("family", ["scaled Gaussians", "mixtures"])
def test_distances_on_a_line_against_large_samples(family):
    X, clusters, truth = families.drawn(family, 3, 50_000, 0)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        found = wasserstein_distance(X[clusters == i, 0], X[clusters == j, 0])
        assert truth[i, j] == pytest.approx(found, abs=0.03)


def test_mixtures_have_one_mean_and_noise_leaves_their_distances_alone():
    X, clusters, truth = families.drawn("mixtures in noise", 3, 20_000, 0)
    means = np.array([X[clusters == c].mean(axis=0) for c in range(3)])
    np.testing.assert_allclose(means, 0.0, atol=0.06)
    np.testing.assert_array_equal(truth, families.drawn("mixtures", 3, 1, 0).truth)


@pytest.mark.parametrize(("d", "shift", "scale"), [(1, 0.5, 2.0), (10, 2.0, 0.3), (20, 0.0, 1.5)])
def test_mean_length_against_draws(d, shift, scale):
    draws = scale * np.random.default_rng(0).standard_normal((100_000, d))
    draws[:, 0] += shift
    expected = np.linalg.norm(draws, axis=1)
    assert families.mean_length(d, shift, scale) == pytest.approx(expected.mean(), rel=0.01)


@pytest.mark.parametrize("family", ["shells", "stretched Gaussians"])
def test_distances_from_the_point_that_stays_attain_the_truth(family):
    # Any 1-Lipschitz function gives a lower bound: no truth can be smaller.
    X, clusters, truth = families.drawn(family, 2, 50_000, 0)
    d, parameters, *_ = families.FAMILIES[family]
    a, b = (parameters(np.random.default_rng([0, c]), d) for c in (0, 1))
    (m, s), (n, t) = (p if isinstance(p, tuple) else (np.zeros(d), p) for p in (a, b))
    stays = (t * m - s * n) / (t - s)
    away = np.linalg.norm(X - stays, axis=1)
    found = abs(away[clusters == 0].mean() - away[clusters == 1].mean())
    assert truth[0, 1] == pytest.approx(found, abs=0.05)


# Exact transport.


def two_samples(seed, n, d):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), 2 * rng.standard_normal((n, d)) + 1


@few
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 3))
def test_exact_distance_is_the_best_of_all_matchings(seed, n, d):
    a, b = two_samples(seed, n, d)
    cost = cdist(a, b)
    best = min(cost[range(n), list(order)].mean() for order in permutations(range(n)))
    assert transport.exact_distance(a, b) == pytest.approx(best)


@few
@given(st.integers(0, 2**32 - 1), st.integers(1, 25), st.integers(1, 4))
def test_best_function_is_lipschitz_and_attains_the_distance(seed, n, d):
    a, b = two_samples(seed, n, d)
    at_b = transport.best_function(a, b)
    assert (np.abs(at_b[:, None] - at_b) <= cdist(b, b) + 1e-7).all()
    found = transport.value_of_best_function((a, b), (a, b))
    assert found == pytest.approx(transport.exact_distance(a, b), abs=1e-6)


def test_transport_is_that_of_pot():
    ot = pytest.importorskip("ot")
    a, b = two_samples(0, 80, 5)
    assert transport.exact_distance(a, b) == pytest.approx(ot.emd2([], [], cdist(a, b)))


def test_all_pairs_with_as_many_of_each():
    X = np.arange(9.0)[:, None]
    clusters = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
    found = transport.exact_distances(X, clusters, np.random.default_rng(0))
    np.testing.assert_allclose(found, [[0, 3, 6], [3, 0, 3], [6, 3, 0]])
    one, other = transport.same_size((X[:3], X[3:]), np.random.default_rng(0))
    assert len(one) == len(other) == 3
    assert set(other.ravel()) < set(X[3:].ravel())


def test_best_function_is_worth_less_on_others():
    X, clusters, truth = families.drawn("shells", 2, 60, 0)
    rng = np.random.default_rng(0)
    held_out = parts.best_heldout(X, clusters, (0, 1), rng)
    assert held_out < truth[0, 1] < transport.exact_distances(X, clusters, rng)[0, 1]


# Baselines.


def test_differences_of_outputs_are_lipschitz_once_divided():
    torch.manual_seed(0)
    network = baselines.KOutputs(3, 4).double()
    for bias in network.biases:
        torch.nn.init.normal_(bias)  # sorting does something everywhere
    x, y = torch.randn(2, baselines.FOLDS, 50, 3, dtype=torch.double)
    scores = network(x) - network(y)
    apart = torch.linalg.vector_norm(x - y, dim=2)
    for i, j in permutations(range(4), 2):
        length = torch.linalg.vector_norm(network.outputs[:, i] - network.outputs[:, j], dim=1)
        change = (scores[..., i] - scores[..., j]).abs() / length[:, None]
        assert (change <= apart * (1 + 1e-9)).all()
    assert scores.abs().max() > 0.1


def test_bounds_of_one_network_are_those_of_a_loop():
    torch.manual_seed(0)
    network = baselines.KOutputs(2, 3)
    x = torch.randn(baselines.FOLDS, 12, 2)
    with torch.no_grad():
        found = network.bounds(x, baselines._members(3, 4))
        scores, w = network(x), network.outputs.detach()
    for f, i, j in np.ndindex(baselines.FOLDS, 3, 3):
        means = [scores[f, 4 * c : 4 * c + 4].mean(dim=0) for c in (i, j)]
        gained = (means[0][i] - means[0][j]) - (means[1][i] - means[1][j])
        expected = gained / (w[f, i] - w[f, j]).norm() if i != j else 0.0
        assert float(found[f, i, j]) == pytest.approx(float(expected), abs=1e-4)


def test_baselines_find_a_shift_and_touch_nobody_elses_randomness():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)) + 4 * np.repeat(np.eye(3)[:2], 100, axis=0)
    clusters, before = np.repeat([0, 1], 100), torch.get_rng_state()
    truth = 4 * np.sqrt(2)
    assert baselines.means_alone(X, clusters, 0)[0, 1] == pytest.approx(truth, abs=0.5)
    found = baselines.one_network(X, clusters, 150, 0)
    assert found[0, 1] == pytest.approx(truth, abs=0.7)
    assert found[0, 0] == 0
    assert torch.equal(before, torch.get_rng_state())


def test_members_are_dealt_to_folds_in_turn():
    clusters = np.array([1, 0] * 10 + [2] * 7)
    fold = baselines._folds(clusters, np.random.default_rng(0))
    for c in range(3):
        dealt = np.bincount(fold[clusters == c], minlength=baselines.FOLDS)
        assert dealt.max() - dealt.min() <= 1


# Parts.


def test_known_distances_in_numbers():
    found = parts.known("shells", 3, 0, TINY, "cpu")
    assert (found["n"], found["d"], found["pairs"]) == (20, 20, 3)
    assert found["truth"] == pytest.approx(
        families.drawn("shells", 3, 1, 0).truth[np.triu_indices(3, 1)].mean()
    )
    assert found["of truth"]["exact transport of samples"] > 1
    assert len(found["shown"]) == 3
    assert parts.known("shells", 2, 0, TINY, "cpu")["pairs"] == parts.PAIRS_OF_TWO


def test_two_clusters_have_a_network_of_their_own(monkeypatch):
    asked = []

    def spy(x, y, steps, seed):
        asked.append((len(x), y.max() + 1))
        return np.zeros((y.max() + 1, y.max() + 1))

    monkeypatch.setattr(parts, "one_network", spy)
    own = parts.sharing("mixtures", 2, 0, TINY, "cpu")
    shared = parts.sharing("mixtures", 5, 0, TINY, "cpu")
    assert asked == [(40, 2)] * 6 + [(100, 5)]
    assert own["of truth"]["one network"] == 0 == shared["of truth"]["one network"]
    assert own["of truth"]["many maps"] >= 0


def test_gaussians_lie_like_the_digits():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 3)) @ np.diag([1.0, 2, 0])
    clusters = np.repeat([0, 1], 2000)
    X[clusters == 1] += [5, 0, 0]
    means, twin = parts._gaussian_twin(X, clusters, rng)
    np.testing.assert_allclose(means[1] - means[0], [5, 0, 0], atol=0.2)
    for c in (0, 1):
        np.testing.assert_allclose(np.cov(twin[clusters == c].T), np.diag([1, 4, 0]), atol=0.4)


# What the results say.


def known_result(family, k, bound, too_large=0.0):
    of_truth = {"bound": bound, "means": 0.1, "exact transport of samples": 1.5}
    return {
        "part": "known", "family": family, "k": k, "seed": 0, "n": 50, "d": 3, "truth": 2.0,
        "of truth": of_truth, "standard error of truth": 0.02, "rank correlation": 1.0,
        "too large": too_large, "pairs": 10, "shown": [[1.0, 0.9], [2.0, 1.9]],
    }  # fmt: skip


def sharing_result(k, many, one):
    of_truth = {"many maps": many, "one network": one, "means": 0.2}
    return {
        "part": "sharing", "family": "mixtures", "k": k, "seed": 0, "n": 50, "d": 1,
        "of truth": of_truth,
    }  # fmt: skip


def digits_result():
    numbers = {
        "bound": 36.0, "means": 35.0, "exact": 45.0, "of exact": 0.8, "rank correlation": 0.97,
        "of some pairs": {"bound": 34.0, "best function": 27.0}, "shown": [[45.0, 36.0]],
    }  # fmt: skip
    twin = numbers | {"truth": 37.0}
    return {
        "part": "digits", "k": 20, "seed": 0, "n": 90, "d": 64, "digits": numbers,
        "Gaussians": twin,
    }  # fmt: skip


def test_nothing_measured_nothing_said(tmp_path):
    assert run.table([]) == ""
    assert [claim.verdict for claim in run.claims([])] == ["not measured"] * 2
    assert run.draw([], tmp_path) == []


@pytest.mark.parametrize(
    ("bound", "too_large", "verdict"),
    [(0.95, 0.0, "reproduced"), (0.7, 0.0, "not reproduced"), (0.95, 0.2, "not reproduced")],
)
def test_bounds_have_to_be_tight_and_bounds(bound, too_large, verdict):
    claim, _ = run.claims([known_result("shells", 8, bound, too_large)])
    assert claim.verdict == verdict
    assert f"attain {bound:.0%} of known distances" in claim.ours
    assert f"{too_large:.1%} are too large" in claim.ours


@pytest.mark.parametrize(
    ("many", "one", "verdict"),
    [(0.95, 0.93, "reproduced"), (0.95, 0.6, "changed"), (0.5, 0.6, "not reproduced")],
)
def test_more_clusters_must_not_cost_tightness(many, one, verdict):
    _, claim = run.claims([sharing_result(2, 0.96, 0.94), sharing_result(32, many, one)])
    assert claim.verdict == verdict
    assert f"94% of the truth for two clusters, {one:.0%} for 32" in claim.ours
    assert run.claims([sharing_result(32, many, one)])[1].verdict == "not measured"


def test_tables_average_seeds_and_leave_out_what_is_missing():
    results = [
        known_result("shells", 8, 0.9),
        known_result("shells", 8, 0.8) | {"seed": 1},
        digits_result(),
        sharing_result(2, 0.96, 0.94),
        sharing_result(8, 0.5, 0.6),
        sharing_result(4, 0.7, 0.8) | {"family": "others"},
    ]
    lines = run.table(results).splitlines()
    assert "| shells | 3 | 8 | 0.850 | 0.100 | 1.500 | 0.020 | 0.000 |" in lines
    assert "| digits | 20 | 36.00 | 35.00 | 45.00 |  | 0.97 | 34.00 | 27.00 |" in lines
    assert "| Gaussians | 20 | 36.00 | 35.00 | 45.00 | 37.00 | 0.97 | 34.00 | 27.00 |" in lines
    assert "| mixtures | many maps (unsplit) | 0.96 |  | 0.50 |" in lines
    assert "| others | one network, k outputs |  | 0.80 |  |" in lines


@pytest.mark.parametrize(
    ("results", "names"),
    [
        ([known_result("shells", 8, 0.9)], ["wasserstein_bounds.png"]),
        ([digits_result()], ["wasserstein_bounds.png"]),
        ([sharing_result(4, 0.9, 0.8)], ["wasserstein_sharing.png"]),
    ],
)
def test_figures_of_what_is_there(results, names, tmp_path):
    assert [path.name for path in run.draw(results, tmp_path)] == names
    assert all((tmp_path / name).stat().st_size > 5000 for name in names)


def test_trials_are_known_by_their_keys():
    trials = run.trials(quick=False)
    assert len(trials) == 2 * (7 * 3 + 2 + 3 * 5)
    assert {trial["part"] for trial in trials} == {"known", "digits", "sharing"}
    assert 0 < sum(map(run.minutes, trials)) < 30
    assert set(FULL.crowded) | set(FULL.families) == set(families.FAMILIES)
