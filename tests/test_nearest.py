"""Nearest neighbours: the quick search against comparing everything with everything."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from unsplit.merging.neighbours import graph, search
from unsplit.merging.neighbours.graph import Connections, connect, nearest
from unsplit.merging.neighbours.search import by_regions

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
    """5,000 observations of thirty lumps in 20 dimensions."""
    rng = np.random.default_rng(0)
    means = 1.5 * rng.standard_normal((30, 20))
    return rng.standard_normal((5000, 20)) + means[rng.integers(30, size=5000)]


# --- in regions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 4, 16, 600])
@pytest.mark.parametrize("n_neighbours", [1, 15])
def test_all_are_found_where_all_regions_are_searched(n, n_neighbours):
    X = np.random.default_rng(n).standard_normal((n, 20))
    width = min(n_neighbours, n - 1)
    rows, distances = by_regions(X, width, CPU, compared=n)
    check(X, rows, distances, width)
    assert recall(X, rows, width) == 1.0


@pytest.mark.parametrize("n_neighbours", [1, 15])
def test_nearly_all_are_found_in_lumps(lumps, n_neighbours):
    rows, distances = by_regions(lumps, n_neighbours, CPU, compared=500)
    check(lumps, rows, distances, n_neighbours)
    assert recall(lumps, rows, n_neighbours, every=10) >= 0.95


def test_most_are_found_where_there_is_no_structure():
    # Regions chosen for the whole cluster of an observation, as in an earlier version, had 0.63.
    X = np.random.default_rng(0).standard_normal((5000, 20))
    rows, distances = by_regions(X, 15, CPU, compared=1500)
    check(X, rows, distances, 15)
    assert recall(X, rows, 15, every=10) >= 0.9


@pytest.mark.parametrize("compared", [1, 20, 100, 300])
def test_the_more_are_compared_the_more_are_found(compared):
    X = np.random.default_rng(0).standard_normal((900, 10))
    few, more = (recall(X, by_regions(X, 15, CPU, c)[0], 15) for c in (compared, 3 * compared))
    assert few <= more


def test_edges_between_clusters_are_those_of_the_exact_graph(monkeypatch, lumps):
    clusters = KMeans(25, n_init=1, random_state=0).fit_predict(lumps).astype(np.int64)
    exact = Connections(connect(lumps, clusters)).edges
    monkeypatch.setattr(graph, "MOST_FOR_EXACT", 1000)
    monkeypatch.setattr(search, "by_regions", partial(by_regions, compared=500))
    found = Connections(connect(lumps, clusters)).edges
    between = ~np.eye(25, dtype=bool)
    assert np.abs(found - exact)[between].sum() <= 0.1 * exact[between].sum()


def test_regions_of_one_are_visited_until_there_are_enough():
    # Of far more copies of a few places than places, most regions have nobody; others one outlier.
    rng = np.random.default_rng(0)
    X = np.concatenate(
        [np.repeat(rng.standard_normal((3, 9)), 60, axis=0), np.diag(np.arange(9.0))]
    )
    for n_neighbours in (1, 15, 100):
        rows, distances = by_regions(X, n_neighbours, CPU, compared=1)
        check(X, rows, distances, n_neighbours)
    # Everyone is searched for, with regions of its own.
    alone = 1e3 * rng.standard_normal((30, 9))
    check(alone, *by_regions(alone, 29, CPU, compared=1), 29)


def test_everyone_else_is_a_neighbour_if_all_are_wanted():
    X = np.random.default_rng(0).standard_normal((30, 4))
    for rows, distances in (by_regions(X, 29, CPU), by_regions(X, 29, CPU, 1), nearest(X, 29)):
        check(X, rows, distances, 29)


def test_duplicates_are_neighbours_and_nobody_is_its_own():
    X = np.repeat(np.random.default_rng(0).standard_normal((50, 9)), 4, axis=0)
    for rows, distances in (by_regions(X, 5, CPU), nearest(X, 5)):
        check(X, rows, distances, 5)
        assert (distances[:, :3] < 1e-9).all()
        assert (distances[:, 3:] > 0.1).all()
        assert (rows[:, :3] // 4 == np.arange(200)[:, None] // 4).all()


def test_all_the_same_is_no_error():
    X = np.ones((40, 9))
    rows, distances = by_regions(X, 7, CPU, compared=10)
    check(X, rows, distances, 7)
    assert not distances.any()


def test_small_blocks_find_the_same(monkeypatch, lumps):
    X = lumps[:1000]
    whole = by_regions(X, 15, CPU, compared=200)
    monkeypatch.setattr(search, "MOST_DISTANCES", 100)
    monkeypatch.setattr(search, "MOST_NEAR", 1000)
    parts = by_regions(X, 15, CPU, compared=200)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-6)


@pytest.mark.parametrize(("origin", "scale"), [(1e5, 1.0), (0.0, 1e-25), (0.0, 1e25)])
def test_origin_and_scale_cost_no_digits(origin, scale):
    X = np.random.default_rng(0).standard_normal((500, 10))
    near, _ = by_regions(X, 15, CPU, compared=100)
    far, distances = by_regions(scale * X + origin, 15, CPU, compared=100)
    assert np.array_equal(np.sort(near), np.sort(far))
    check(scale * X + origin, far, distances, 15)


def test_far_lumps_cost_no_digits():
    # In float32, 1e5 is too far from the origin to see who is near whom.
    X = np.random.default_rng(0).standard_normal((600, 10))
    X[300:] += 1e5
    rows, distances = by_regions(X, 15, CPU)
    check(X, rows, distances, 15)
    assert recall(X, rows, 15) == 1.0


# --- which way is taken ---------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "n"), [(1, 200), (8, 200), (9, 200), (40, 100)])
def test_few_observations_are_compared_with_all(d, n):
    X = np.random.default_rng(0).standard_normal((n, d))
    rows, distances = nearest(X, 15)
    check(X, rows, distances, 15)
    np.testing.assert_allclose(distances, brute_force(X, 15), atol=1e-6)


def test_many_in_many_dimensions_are_searched_in_regions(monkeypatch, lumps):
    exact = nearest(lumps, 15)[1]
    np.testing.assert_allclose(exact[::10], brute_force(lumps, 15, every=10), atol=1e-5)
    asked = []

    def noted(*arguments):
        asked.append(arguments)
        return by_regions(*arguments, compared=500)

    monkeypatch.setattr(search, "by_regions", noted)
    monkeypatch.setattr(graph, "MOST_FOR_EXACT", 4000)
    quick = nearest(lumps, 15)[1]
    assert len(asked) == 1
    assert np.isclose(quick, exact, atol=1e-5).mean() > 0.9
    # A tree is quick enough in few dimensions, however many there are.
    nearest(lumps[:, :8], 15)
    assert len(asked) == 1
