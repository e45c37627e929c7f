"""How sure scores are made: the factor under which what was held out is most likely."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp

from tests.merging_cases import gaussian_estimate
from unsplit import TrainConfig, datasets, pairwise_tvd
from unsplit.data.labels import Parts
from unsplit.pairwise import heldout_scores
from unsplit.pairwise.api import Settings, fit
from unsplit.pairwise.heldout_scores import best_factor, of_clusters


def scores_of(sizes, means=(0, 1, 2.5), seed=0):
    return gaussian_estimate(means, sizes, seed=seed)[0].scores


def times(scores, factor):
    return of_clusters(scores, Parts.cut(np.arange(scores.n_clusters)), factor)


def naive_factor(scores):
    """By trying: the mean over clusters of the mean surprise to see an observation in its own."""
    z, clusters = scores.dense().astype(np.float64), scores.clusters

    def surprise(log_factor):
        scaled_z = z * math.exp(log_factor)
        each = logsumexp(scaled_z, axis=1) - scaled_z[np.arange(len(z)), clusters]
        return np.mean([each[clusters == c].mean() for c in np.unique(clusters)])

    return math.exp(minimize_scalar(surprise, bounds=(-3, 3), method="bounded").x)


@pytest.mark.parametrize("wrong", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("sizes", [400, (900, 60, 200)])
def test_exact_scores_get_their_scale_back(sizes, wrong):
    # A perfect network knows log densities; its scores times any number are brought back.
    scores = scores_of(sizes)
    found = best_factor(times(scores, wrong)) * wrong
    assert found == pytest.approx(1.0, abs=0.15)
    assert found == pytest.approx(naive_factor(scores), rel=0.02)


def test_clusters_weigh_the_same_whatever_their_size():
    # Scores of the small clusters are too sure and those of the large one are not: by counting
    # observations the large one would decide alone.
    rng = np.random.default_rng(0)
    scores = scores_of((2000, 40, 40), means=(0, 1.5, 3))
    features = scores.features.copy()
    small = scores.clusters > 0
    features[small] += rng.normal(0, 2.0, features[small].shape).astype(np.float32)
    scores = replace(scores, features=features)
    found = best_factor(scores)
    assert found == pytest.approx(naive_factor(scores), rel=0.02)
    assert found < 0.8


def test_scaling_changes_no_decision():
    scores = scores_of(50)
    np.testing.assert_allclose(times(scores, 2.0).dense(), 2 * scores.dense(), rtol=1e-5)


def test_nothing_held_out_leaves_scores_as_they_are():
    scores = scores_of(50)
    empty = replace(scores, **{
        name: getattr(scores, name)[:0] for name in ("features", "clusters", "folds", "rows")
    })  # fmt: skip
    assert best_factor(empty) == 1.0


def test_a_part_of_many_observations_says_as_much(monkeypatch):
    scores = scores_of(1500)
    whole = best_factor(scores)
    monkeypatch.setattr(heldout_scores, "MOST_OBSERVATIONS", 1000)
    assert best_factor(scores) == pytest.approx(whole, rel=0.15)


def test_estimates_are_calibrated_and_say_by_how_much():
    X, labels = datasets.gaussians([[0, 0], [1, 0], [0, 1]], 80)
    result = pairwise_tvd(X, labels, random_state=0, training=TrainConfig(epochs=5), device="cpu")
    assert result.temperature != 1
    # What is left to correct is nothing.
    assert best_factor(result.scores) == pytest.approx(1.0, abs=0.02)


def test_new_observations_are_scored_as_surely_as_those_that_were_held_out():
    X, labels = datasets.gaussians([[0, 0], [1, 0], [0, 1]], 80)
    fitted = fit(
        X, labels, Settings(cv=2, training=TrainConfig(epochs=5), device="cpu"), random_state=0
    )
    factor = 1 / fitted.result.temperature
    assert factor != 1
    trained = replace(fitted.trained, networks=fitted.trained.networks[:1])
    first = replace(fitted, trained=trained)
    plain = replace(first, result=replace(fitted.result, temperature=1.0)).log_posterior(X)
    np.testing.assert_allclose(first.log_posterior(X), log_softmax(factor * plain, axis=1))
    scores = fitted.result.scores
    own = scores.folds == 0
    expected = log_softmax(scores.dense()[own], axis=1)
    np.testing.assert_allclose(first.log_posterior(X)[scores.rows[own]], expected, atol=1e-4)
