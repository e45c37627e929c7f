"""Nearest neighbours: the quick search against comparing everything with everything."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from unsplit.merging.neighbours import search
from unsplit.merging.neighbours.search import by_clusters, nearest

CPU = torch.device("cpu")


def brute_force(X, n_neighbours, every=1):
    """Distances to the nearest of all or every so manyth, one observation at a time."""
    found = []
    for i in range(0, len(X), every):
        distances = np.sqrt(((X - X[i]) ** 2).sum(axis=1))
        found.append(np.sort(np.delete(distances, i))[:n_neighbours])
    return np.array(found)


def recall(X, rows, n_neighbours, every=1):
    """Share of neighbours that are no farther than the farthest true one, ties allowed."""
    farthest = brute_force(X, n_neighbours, every)[:, -1:]
    distances = np.sqrt(((X[rows[::every]] - X[::every, None]) ** 2).sum(axis=2))
    return (distances <= farthest * (1 + 1e-9) + 1e-12).mean()


def pieces(X, k, seed=0):
    return KMeans(k, n_init=1, random_state=seed).fit_predict(X).astype(np.int64)


def check(X, rows, distances, n_neighbours):
    """What holds of every answer: others, all different, nearest first, at their distances."""
    n = len(X)
    assert rows.shape == distances.shape == (n, n_neighbours)
    assert rows.dtype == np.int64
    assert ((rows >= 0) & (rows < n)).all()
    assert (rows != np.arange(n)[:, None]).all()
    assert (np.diff(np.sort(rows, axis=1), axis=1) > 0).all()
    assert (np.diff(distances, axis=1) >= 0).all()
    true = np.sqrt(((X[rows] - X[:, None]) ** 2).sum(axis=2))
    np.testing.assert_allclose(distances, true, rtol=1e-6, atol=1e-9)


@pytest.fixture(scope="module")
def lumps():
    """5,000 observations of thirty lumps in 20 dimensions, cut by k-means into 60."""
    rng = np.random.default_rng(0)
    means = 1.5 * rng.standard_normal((30, 20))
    X = rng.standard_normal((5000, 20)) + means[rng.integers(30, size=5000)]
    return X, pieces(X, 60)


# --- by clusters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_noise", [0, 1, 300, 590])
@pytest.mark.parametrize("k", [1, 5, 12])
def test_all_are_found_where_all_clusters_are_searched(k, n_noise):
    rng = np.random.default_rng(k)
    X = rng.standard_normal((600, 20))
    clusters = np.arange(600) % k if k == 12 else pieces(X, k)
    kept = np.unique(clusters, return_index=True)[1]  # or there would be no such cluster
    clusters[np.setdiff1d(rng.permutation(600)[:n_noise], kept)] = -1
    rows, distances = by_clusters(X, 15, clusters, CPU)
    check(X, rows, distances, 15)
    assert recall(X, rows, 15) == 1.0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.6])
def test_nearly_all_are_found_in_the_nearest_clusters(lumps, share):
    X, clusters = lumps
    outside = np.random.default_rng(1).random(len(X)) < share
    rows, distances = by_clusters(X, 15, np.where(outside, -1, clusters), CPU)
    check(X, rows, distances, 15)
    assert recall(X, rows, 15, every=10) >= 0.95
    # What was searched is less than everything, or the test would say nothing.
    least = search._searched(np.arange(60), np.arange(61) * 83, 15)
    assert len(least) < 60


def test_small_clusters_are_searched_until_there_are_enough():
    # Of clusters of two, twelve would not have fifteen others.
    X = np.random.default_rng(0).standard_normal((400, 9))
    rows, distances = by_clusters(X, 15, np.arange(400) // 2, CPU)
    check(X, rows, distances, 15)
    assert recall(X, rows, 15) == 1.0


def test_everyone_else_is_a_neighbour_if_all_are_wanted():
    X = np.random.default_rng(0).standard_normal((30, 4))
    for clusters in (np.zeros(30, np.int64), np.arange(30) % 4, np.arange(30)):
        for rows, distances in (by_clusters(X, 29, clusters, CPU), nearest(X, 29, clusters)):
            check(X, rows, distances, 29)


def test_duplicates_are_neighbours_and_nobody_is_its_own():
    X = np.repeat(np.random.default_rng(0).standard_normal((50, 9)), 4, axis=0)
    for rows, distances in (
        by_clusters(X, 5, np.arange(200) % 3, CPU),
        nearest(X, 5, np.arange(200) % 3),
    ):
        check(X, rows, distances, 5)
        assert (distances[:, :3] < 1e-9).all()
        assert (distances[:, 3:] > 0.1).all()
        assert (rows[:, :3] // 4 == np.arange(200)[:, None] // 4).all()


def test_all_the_same_is_no_error():
    X = np.ones((40, 9))
    rows, distances = by_clusters(X, 7, np.arange(40) % 2, CPU)
    check(X, rows, distances, 7)
    assert not distances.any()


def test_a_far_origin_costs_no_digits():
    X = np.random.default_rng(0).standard_normal((500, 10))
    clusters = pieces(X, 5)
    near, _ = by_clusters(X, 15, clusters, CPU)
    far, distances = by_clusters(X + 1e5, 15, clusters, CPU)
    assert np.array_equal(np.sort(near), np.sort(far))
    np.testing.assert_allclose(distances, brute_force(X, 15), rtol=1e-6)


# --- which way is taken ---------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "n"), [(1, 200), (8, 200), (9, 200), (40, 100)])
def test_few_observations_are_compared_with_all(d, n):
    X = np.random.default_rng(0).standard_normal((n, d))
    # Clusters in which searching would find nothing near.
    rows, distances = nearest(X, 15, np.arange(n))
    check(X, rows, distances, 15)
    np.testing.assert_allclose(distances, brute_force(X, 15), atol=1e-6)


def test_many_in_many_dimensions_are_searched_by_clusters(monkeypatch, lumps):
    X, clusters = lumps
    exact = nearest(X, 15, clusters)[1]
    np.testing.assert_allclose(exact[::10], brute_force(X, 15, every=10), atol=1e-5)
    asked = []

    def noted(*arguments):
        asked.append(arguments)
        return by_clusters(*arguments)

    monkeypatch.setattr(search, "by_clusters", noted)
    monkeypatch.setattr(search, "MOST_FOR_EXACT", 4000)
    quick = nearest(X, 15, clusters)[1]
    assert len(asked) == 1
    assert np.isclose(quick, exact, atol=1e-5).mean() > 0.9
    # A tree is quick enough in few dimensions, however many there are.
    nearest(X[:, :8], 15, clusters)
    assert len(asked) == 1


def test_noise_alone_is_searched_too(monkeypatch):
    # As in a batch in which no observation is in a cluster.
    monkeypatch.setattr(search, "MOST_FOR_EXACT", 50)
    X = np.random.default_rng(0).standard_normal((100, 10))
    rows, distances = nearest(X, 5, np.full(100, -1))
    check(X, rows, distances, 5)
