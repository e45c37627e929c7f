import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import norm

from unsplit import datasets

GRID = np.linspace(-60, 60, 600_001)


def tvd_by_integration(p, q):
    return trapezoid(np.abs(p(GRID) - q(GRID)), GRID) / 2


def gaussian(mean=0.0, scale=1.0):
    return norm(mean, scale).pdf


def mixture(share, separation):
    first, second = gaussian(0), gaussian(separation)
    return lambda x: share * first(x) + (1 - share) * second(x)


@pytest.mark.parametrize("distance", [0.0, 0.01, 1.0, 3.5, 12.0])
def test_gaussians_tvd_against_integration(distance):
    exact = datasets.gaussians_tvd([[-1.0], [distance - 1.0]])[0, 1]
    expected = tvd_by_integration(gaussian(-1.0), gaussian(distance - 1.0))
    assert exact == pytest.approx(expected, abs=1e-7)


def test_gaussians_tvd_depends_on_the_distance_alone():
    in_plane = datasets.gaussians_tvd([[1.0, 1.0], [4.0, 5.0]])[0, 1]
    on_line = datasets.gaussians_tvd([[0.0], [5.0]])[0, 1]
    assert in_plane == pytest.approx(on_line, abs=1e-12)


@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.9, 0.2), (0.5, 0.5), (0.0, 0.3)])
@pytest.mark.parametrize("separation", [0.5, 4.0])
def test_mixtures_tvd_against_integration(shares, separation):
    exact = datasets.mixtures_tvd(shares, separation)[0, 1]
    expected = tvd_by_integration(*(mixture(share, separation) for share in shares))
    assert exact == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("scales", [(1.0, 1.001), (1.0, 3.0), (5.0, 0.5), (2.0, 2.0)])
def test_scaled_gaussians_tvd_against_integration(scales):
    exact = datasets.scaled_gaussians_tvd(scales)[0, 1]
    expected = tvd_by_integration(*(gaussian(0, scale) for scale in scales))
    assert exact == pytest.approx(expected, abs=1e-7)


def test_discrete_tvd_against_the_best_event():
    p, q = [0.1, 0.4, 0.3, 0.2], [0.3, 0.1, 0.3, 0.3]
    events = np.array([[(e >> i) & 1 for i in range(4)] for e in range(16)])
    largest = np.abs(events @ p - events @ q).max()
    assert datasets.discrete_tvd([p, q])[0, 1] == pytest.approx(largest, abs=1e-12)


def test_discrete_tvd_of_distributions_apart_is_one():
    assert datasets.discrete_tvd([[1.0, 0.0], [0.0, 1.0]])[0, 1] == 1.0


@pytest.mark.parametrize(
    "matrix",
    [
        datasets.gaussians_tvd([[0, 0], [1, 2], [-3, 0], [1, 2]]),
        datasets.mixtures_tvd([0.1, 0.9, 0.5, 0.5], 2.0),
        datasets.scaled_gaussians_tvd([1.0, 0.3, 2.0, 1.0]),
        datasets.discrete_tvd([[0.5, 0.5], [0.2, 0.8], [1.0, 0.0], [0.5, 0.5]]),
    ],
    ids=["gaussians", "mixtures", "scaled", "discrete"],
)
def test_distances_are_symmetric_with_zero_diagonal_and_triangle_inequality(matrix):
    assert matrix.shape == (4, 4)
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_array_equal(np.diag(matrix), 0.0)
    assert (matrix <= 1).all()
    assert (matrix[:, :, None] <= matrix[:, None, :] + matrix.T[None] + 1e-12).all()
    # Each example has exactly one pair of equal distributions.
    assert (matrix[np.triu_indices(4, 1)] == 0).sum() == 1


def assert_share(drawn, probability):
    """Five standard errors: wrong about once in two million seeds, and the seed is fixed."""
    allowed = 5 * np.sqrt(probability * (1 - probability) / len(drawn))
    assert drawn.mean() == pytest.approx(probability, abs=allowed)


def test_gaussians_have_the_means_and_unit_covariance_asked_for():
    means = np.array([[0.0, 2.0, 0.0], [-5.0, 0.0, 1.0]])
    X, labels = datasets.gaussians(means, 20_000, random_state=1)
    assert np.bincount(labels).tolist() == [20_000, 20_000]
    for c, mean in enumerate(means):
        np.testing.assert_allclose(X[labels == c].mean(axis=0), mean, atol=0.04)
        np.testing.assert_allclose(np.cov(X[labels == c].T), np.eye(3), atol=0.06)


def test_gaussians_attain_their_tvd_on_the_halfway_event():
    X, labels = datasets.gaussians([[0.0, 0.0], [2.0, 0.0]], 20_000, random_state=1)
    left = X[:, 0] < 1.0
    assert_share(left[labels == 0], norm.cdf(1.0))
    difference = left[labels == 0].mean() - left[labels == 1].mean()
    exact = datasets.gaussians_tvd([[0.0, 0.0], [2.0, 0.0]])[0, 1]
    assert difference == pytest.approx(exact, abs=0.02)


def test_mixtures_have_the_shares_asked_for():
    shares = [1.0, 0.7, 0.0]
    # So far apart that each observation shows its component.
    X, labels = datasets.mixtures(shares, 20.0, 3, 20_000, random_state=1)
    assert X.shape == (60_000, 3)
    for c, share in enumerate(shares):
        assert_share(X[labels == c, 0] < 10.0, share)
    np.testing.assert_allclose(X[:, 1:].mean(axis=0), 0.0, atol=0.03)
    np.testing.assert_allclose(X[:, 1:].std(axis=0), 1.0, atol=0.03)


def test_mixtures_attain_their_tvd_on_the_halfway_event():
    X, labels = datasets.mixtures([0.9, 0.2], 2.0, 2, 20_000, random_state=1)
    near = X[:, 0] < 1.0
    difference = near[labels == 0].mean() - near[labels == 1].mean()
    exact = datasets.mixtures_tvd([0.9, 0.2], 2.0)[0, 1]
    assert difference == pytest.approx(exact, abs=0.02)


def test_scaled_gaussians_have_the_scales_asked_for():
    scales = [0.5, 1.0, 4.0]
    X, labels = datasets.scaled_gaussians(scales, 20_000, random_state=1)
    assert X.shape == (60_000, 1)
    for c, scale in enumerate(scales):
        x = X[labels == c, 0]
        assert x.mean() == pytest.approx(0.0, abs=0.04 * scale)
        assert x.std() == pytest.approx(scale, rel=0.03)


def test_discrete_rows_are_one_hot_with_the_frequencies_asked_for():
    table = [[0.5, 0.3, 0.2, 0.0], [0.05, 0.05, 0.0, 0.9]]
    X, labels = datasets.discrete(table, 20_000, random_state=1)
    assert set(np.unique(X)) == {0.0, 1.0}
    np.testing.assert_array_equal(X.sum(axis=1), 1.0)
    for c, row in enumerate(table):
        for value, probability in enumerate(row):
            assert_share(X[labels == c, value], probability)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: datasets.gaussians([[0.0], [1.0]], 50, random_state=seed),
        lambda seed: datasets.mixtures([0.2, 0.8], 2.0, 2, 50, random_state=seed),
        lambda seed: datasets.scaled_gaussians([1.0, 2.0], 50, random_state=seed),
        lambda seed: datasets.discrete([[0.5, 0.5], [0.1, 0.9]], 50, random_state=seed),
    ],
    ids=["gaussians", "mixtures", "scaled", "discrete"],
)
def test_same_seed_same_data_and_other_seed_other_data(make):
    (X, labels), (X_again, labels_again), (X_other, _) = make(3), make(3), make(4)
    np.testing.assert_array_equal(X, X_again)
    np.testing.assert_array_equal(labels, labels_again)
    assert not np.array_equal(X, X_other)
