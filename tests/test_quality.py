"""Is the answer right?  Known truth, and digits whose pieces are known to belong together."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from benchmarks.common import split_digits
from benchmarks.known_truth import spread_means
from unsplit import ClusterMerger, datasets, pairwise_tvd
from unsplit.metrics import majority_categories, quality

UPPER = np.triu_indices(8, 1)


@pytest.mark.parametrize(
    ("n_features", "size", "most"),
    [(10, 800, 0.03), *(pytest.param(d, 2000, 0.02, marks=pytest.mark.slow) for d in (2, 10, 50))],
)
def test_gaussians_against_the_closed_form(n_features, size, most):
    means = spread_means(n_features)
    X, labels = datasets.gaussians(means, size)
    exact = datasets.gaussians_tvd(means)[UPPER]
    assert exact.min() < 0.2
    assert exact.max() > 0.8
    result = pairwise_tvd(X, labels, random_state=0)
    error = np.abs(result.tvd[UPPER] - exact)
    assert error.mean() <= most
    assert error.max() <= 3 * most
    assert result.scores.n_folds > 1


@pytest.mark.slow
def test_boundaries_that_are_not_lines():
    scales = np.geomspace(1, 8, 8)
    X, labels = datasets.scaled_gaussians(scales, 500)
    exact = datasets.scaled_gaussians_tvd(scales)[UPPER]
    error = np.abs(pairwise_tvd(X, labels, random_state=0).tvd[UPPER] - exact)
    assert error.mean() <= 0.04


def test_discrete_distributions():
    table = np.random.default_rng(0).dirichlet(np.ones(12), 8)
    X, labels = datasets.discrete(table, 500)
    exact = datasets.discrete_tvd(table)[UPPER]
    error = np.abs(pairwise_tvd(X, labels, random_state=0, cv=3).tvd[UPPER] - exact)
    assert error.mean() <= 0.04


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "least"), [(0.0, 0.999), (0.3, 0.99)])
def test_digits_in_clusters_of_ten(noise, least):
    X, clusters, digit = split_digits(10, noise, seed=0)
    result = pairwise_tvd(X, clusters, random_state=0)
    assert result.n_clusters >= 174
    majority = majority_categories(clusters, digit)
    if not noise:
        assert quality(result.tvd, majority) >= least
    assert quality(result.divergence("overlap"), majority) >= least


@pytest.mark.parametrize(
    ("n_features", "k"), [(2, 8), pytest.param(10, 10, marks=pytest.mark.slow)]
)
def test_one_gaussian_comes_back_as_one(n_features, k):
    """What the README says, in small: cut by k-means, merged by *auto*."""
    X = np.random.default_rng(0).standard_normal((600, n_features))
    pieces = KMeans(k, n_init=1, random_state=0).fit_predict(X)
    merger = ClusterMerger(random_state=0, device="cpu", cv=2).fit(X, initial_labels=pieces)
    assert merger.n_clusters_ == 1
    assert (merger.labels_ == 0).all()


@pytest.mark.slow
def test_two_gaussians_come_back_as_two():
    """So that one is not the answer to everything."""
    X, truth = datasets.gaussians([[0, 0], [7, 0]], 400)
    pieces = KMeans(8, n_init=1, random_state=0).fit_predict(X)
    merger = ClusterMerger(random_state=0, device="cpu").fit(X, initial_labels=pieces)
    assert adjusted_rand_score(truth, merger.labels_) == 1


def test_null_p_values_of_the_holdout_are_uniform():
    """The test's own part of the promise: given scores, p is uniform when labels are random.

    benchmarks/statistics.py repeats this with trained networks.
    """
    from scipy.stats import kstest

    from tests.test_divergences import scores_of
    from unsplit.pairwise.divergences import rank_sums
    from unsplit.pairwise.statistics import rank_sum_p_value

    rng = np.random.default_rng(0)
    found = []
    for _ in range(12):
        scores = scores_of(rng.standard_normal((40 * 60, 40)), np.repeat(np.arange(40), 60))
        p = rank_sum_p_value(rank_sums(scores), scores.counts)
        found.append(p[np.arange(0, 40, 2), np.arange(1, 40, 2)])
    p = np.concatenate(found)
    assert len(p) == 240
    assert kstest(p, "uniform").pvalue > 0.01
