"""Over-clusterings: of given categories, by the greedy method, and by any clusterer."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import BaseEstimator
from sklearn.cluster import DBSCAN, KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unsplit import overclustering
from unsplit.errors import InputError
from unsplit.metrics import purity
from unsplit.overclustering import artificial, default_clusterer, greedy_dense, overcluster

# --- Points to cluster, from plain to hard on arithmetic ---


def gaussian(rng, n, d):
    return rng.standard_normal((n, d))


def blobs(rng, n, d):
    centre = 4 * rng.standard_normal((5, d))[rng.integers(0, 5, n)]
    return centre + rng.uniform(0.2, 1.5, (n, 1)) * rng.standard_normal((n, d))


def far_off_centre(rng, n, d):
    return 1e8 + rng.standard_normal((n, d))


def tight_and_far_apart(rng, n, d):
    """Distances in a cluster are below what float32 products can see: 1e-6 of the spread."""
    return rng.standard_normal((4, d))[rng.integers(0, 4, n)] + 1e-6 * rng.standard_normal((n, d))


def one_outlier(rng, n, d):
    R = rng.standard_normal((n, d))
    R[n // 2] = 1e9
    return R


def huge(rng, n, d):
    return 1e120 * rng.standard_normal((n, d))


def minute(rng, n, d):
    return 1e-120 * rng.standard_normal((n, d))


def many_ties(rng, n, d):
    return rng.integers(0, 3, (n, d))


DATA = [
    gaussian, blobs, far_off_centre, tight_and_far_apart, one_outlier, huge, minute, many_ties,
]  # fmt: skip


# --- Artificial over-clusterings against their definition ---


def uneven_categories(seed=0):
    """Categories "a" … "e" with 203, 57, 10, 9 and 100 members, shuffled."""
    values = np.repeat(list("abcde"), [203, 57, 10, 9, 100])
    return np.random.default_rng(seed).permutation(values)


def category_of_clusters(categories, size):
    """The category each cluster was cut from, by the definition."""
    names, counts = np.unique(categories, return_counts=True)
    return np.repeat(names, counts // size)


@pytest.mark.parametrize("size", [1, 2, 10, 50])
def test_every_category_is_cut_into_clusters_of_exactly_this_size(size):
    categories = uneven_categories()
    labels = artificial(categories, size, random_state=0)
    home = category_of_clusters(categories, size)
    assert np.bincount(labels[labels >= 0]).tolist() == [size] * len(home)
    assert (categories[labels >= 0] == home[labels[labels >= 0]]).all()
    left_over = np.unique(categories[labels < 0], return_counts=True)[1]
    assert (left_over < size).all()
    assert len(categories) - len(home) * size == left_over.sum()


def test_the_cut_is_random():
    labels = artificial(np.repeat([0, 1], 1000), 500, random_state=0)
    # Row order says nothing about the cluster: its first half of category 0 holds rows of both.
    first = np.bincount(labels[:500], minlength=4)[:2]
    assert first.min() > 200


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3, 0.9])
@pytest.mark.parametrize("size", [5, 10])
def test_exactly_this_share_moves_and_never_to_its_own_category(size, noise):
    categories = uneven_categories()
    labels = artificial(categories, size, noise, random_state=1)
    used = labels >= 0
    home = category_of_clusters(categories, size)
    assert used.sum() == size * len(home)
    away = categories[used] != home[labels[used]]
    assert away.sum() == round(noise * used.sum())


def test_noise_without_moving_leaves_the_cut_as_it_was():
    categories = uneven_categories()
    clean = artificial(categories, 10, random_state=2)
    noisy = artificial(categories, 10, 0.3, random_state=2)
    moved = clean != noisy
    assert moved.sum() == round(0.3 * (clean >= 0).sum())
    home = category_of_clusters(categories, 10)
    assert (home[noisy[moved]] != categories[moved]).all()


def test_purity_is_one_minus_the_noise():
    categories = np.repeat(np.arange(10), 1000)
    for noise in (0.0, 0.1, 0.3):
        labels = artificial(categories, 100, noise, random_state=3)
        assert purity(labels, categories) == pytest.approx(1 - noise, abs=1e-9)


def test_noise_goes_to_all_other_clusters_alike():
    categories = np.repeat([0, 1, 2], [2000, 1000, 4000])
    labels = artificial(categories, 1000, 0.5, random_state=4)
    for category, others in [(0, [2, 3, 4, 5, 6]), (1, [0, 1, 3, 4, 5, 6]), (2, [0, 1, 2])]:
        targets = np.bincount(labels[categories == category], minlength=7)[others]
        expected = targets.sum() / len(others)
        assert (abs(targets - expected) < 5 * np.sqrt(expected)).all()


def test_same_seed_same_clusters():
    categories = uneven_categories()
    first = artificial(categories, 7, 0.2, random_state=5)
    np.testing.assert_array_equal(artificial(categories, 7, 0.2, random_state=5), first)
    assert (artificial(categories, 7, 0.2, random_state=6) != first).any()


def test_global_random_numbers_stay_untouched():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    artificial(uneven_categories(), 7, 0.2)
    overcluster(gaussian(np.random.default_rng(0), 60, 2))
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


@pytest.mark.parametrize(
    "categories",
    [
        np.array([3, 3, -1, 5, 5, 5]),
        np.array(["x", "x", "", "y", "y", "y"]),
        np.array(["x", "x", None, "y", "y", "y"], object),
        pd.Series(["x", "x", None, "y", "y", "y"]),
        [1.0, 1.0, np.nan, 2.0, 2.0, 2.0],
    ],
    ids=["integers", "strings", "objects", "series", "floats"],
)
def test_observations_without_a_category_are_left_out(categories):
    labels = artificial(categories, 2, random_state=0)
    assert labels[2] == -1
    assert labels[:2].tolist() == [0, 0]
    assert sorted(labels[3:]) == [-1, 1, 1]


@pytest.mark.parametrize("size", [0, -2])
def test_clusters_without_members_are_refused(size):
    with pytest.raises(InputError, match=f"size must be a whole number of at least 1, got {size}"):
        artificial(uneven_categories(), size)


@pytest.mark.parametrize("noise", [-0.1, 1.0, 30, np.nan])
def test_noise_must_be_a_share(noise):
    with pytest.raises(
        InputError, match=f"noise must be at least 0 and less than 1, .* got {noise}"
    ):
        artificial(uneven_categories(), 10, noise)


def test_too_large_a_size_names_the_largest_category():
    with pytest.raises(InputError, match=r"size must be at most 203.*got 204.*smaller size"):
        artificial(uneven_categories(), 204)


def test_noise_needs_clusters_of_two_categories():
    with pytest.raises(InputError, match=r"noise must be .*one category is large enough .*got 0.1"):
        artificial(uneven_categories(), 101, noise=0.1)
    assert np.bincount(artificial(uneven_categories(), 101) + 1).tolist() == [177, 101, 101]


def test_a_single_category_is_cut_but_has_nowhere_to_move_noise():
    categories = np.array(["cat"] * 7 + [""])
    labels = artificial(categories, 3, random_state=0)
    assert sorted(labels[:7]) == [-1, 0, 0, 0, 1, 1, 1]
    assert labels[7] == -1
    with pytest.raises(InputError, match=r"only one category is large enough .* got 0.1"):
        artificial(categories, 3, noise=0.1)


# --- The greedy over-clustering against its definition, written as a plain loop ---


quick = settings(deadline=None, max_examples=40, derandomize=True)
SHAPES = [
    (60, 2, 3, 8), (45, 1, 9, 5), (80, 30, 5, 10), (40, 3, 20, 2), (50, 4, 1, 50),
    (500, 30, 10, 20),
]  # fmt: skip


def slow_greedy(R, n_clusters, size):
    """Algorithm 1, line by line; ties go to the lower index."""
    R = np.asarray(R, np.float64)
    labels = np.full(len(R), -1)
    for cluster in range(n_clusters):
        free = np.flatnonzero(labels < 0)
        best_sum, best_members = np.inf, None
        for i in free:
            distances = np.sqrt(((R[free] - R[i]) ** 2).sum(axis=1))
            nearest = np.argsort(distances, kind="stable")[:size]
            if distances[nearest].sum() < best_sum:
                best_sum, best_members = distances[nearest].sum(), free[nearest]
        labels[best_members] = cluster
    return labels


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("make", DATA)
def test_greedy_equals_the_loop(make, shape):
    n, d, n_clusters, size = shape
    R = make(np.random.default_rng(n + d), n, d)
    found = greedy_dense(R, n_clusters, size)
    np.testing.assert_array_equal(found, slow_greedy(R, n_clusters, size))


@quick
@given(
    arrays(np.int64, st.tuples(st.integers(4, 25), st.integers(1, 3)), elements=st.integers(-3, 3)),
    st.integers(2, 6),
    st.data(),
)
def test_greedy_equals_the_loop_on_grids_full_of_ties(R, size, data):
    size = min(size, len(R))
    n_clusters = data.draw(st.integers(1, len(R) // size))
    found = greedy_dense(R, n_clusters, size)
    np.testing.assert_array_equal(found, slow_greedy(R, n_clusters, size))


@pytest.mark.parametrize("at_once", [1, 500])
def test_greedy_equals_the_loop_however_many_are_computed_at_once(monkeypatch, at_once):
    monkeypatch.setattr(overclustering, "AT_ONCE", at_once)
    R = blobs(np.random.default_rng(1), 70, 6)
    found = greedy_dense(R, 6, 9)
    np.testing.assert_array_equal(found, slow_greedy(R, 6, 9))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_greedy_takes_any_numbers(dtype):
    R = (10 * gaussian(np.random.default_rng(2), 50, 4)).astype(dtype)
    before = R.copy()
    found = greedy_dense(R, 4, 6)
    np.testing.assert_array_equal(found, slow_greedy(R, 4, 6))
    np.testing.assert_array_equal(R, before)
    np.testing.assert_array_equal(greedy_dense(R.tolist(), 4, 6), found)


def test_every_observation_is_assigned_once_and_sizes_are_exact():
    R = blobs(np.random.default_rng(3), 2000, 20)
    labels = greedy_dense(R, 15, 100)
    assert labels.dtype == np.int64
    assert np.bincount(labels + 1).tolist() == [500] + [100] * 15


def test_clusters_come_densest_first():
    R = blobs(np.random.default_rng(4), 600, 5)
    labels = greedy_dense(R, 10, 30)
    # The seed of a cluster is the member with the smallest mean distance at the time.
    means = []
    for cluster in range(10):
        members = R[labels == cluster]
        between = np.linalg.norm(members[:, None] - members, axis=2)
        means.append(between.mean(axis=1).min())
    assert means == sorted(means)


@pytest.mark.parametrize("make", [gaussian, blobs, far_off_centre, tight_and_far_apart])
def test_order_of_rows_does_not_matter(make):
    rng = np.random.default_rng(5)
    R = make(rng, 400, 10)
    order = rng.permutation(len(R))
    labels = greedy_dense(R, 12, 20)
    np.testing.assert_array_equal(greedy_dense(R[order], 12, 20), labels[order])


def test_shifting_and_scaling_by_powers_of_two_do_not_matter():
    R = np.round(blobs(np.random.default_rng(6), 300, 4), 3)
    labels = greedy_dense(R, 8, 20)
    np.testing.assert_array_equal(greedy_dense(R * 2.0**90, 8, 20), labels)
    np.testing.assert_array_equal(greedy_dense(R + 1024, 8, 20), labels)


@pytest.mark.parametrize(
    ("n_clusters", "size", "sentence"),
    [
        (2, 1, "size must be a whole number of at least 2, got 1"),
        (2, -3, "size must be a whole number of at least 2, got -3"),
        (0, 3, "n_clusters must be a whole number of at least 1, got 0"),
        (4, 3, "n_clusters=4 .*size=3 need 12 .*R has 10; .*at most n_clusters=3 or a smaller"),
    ],
)
def test_impossible_counts_are_refused(n_clusters, size, sentence):
    with pytest.raises(InputError, match=sentence):
        greedy_dense(np.arange(10.0)[:, None], n_clusters, size)


@pytest.mark.parametrize(
    "R",
    [
        np.zeros(6),
        np.zeros((0, 3)),
        [[0.0, 1.0], [2.0]],
        [["a"], ["b"]],
        scipy.sparse.eye_array(4).tocsr(),
        np.eye(4) * 1j,
        [[0.0], [np.nan]],
    ],
    ids=["one axis", "empty", "ragged", "text", "sparse", "complex", "NaN"],
)
def test_what_is_no_table_of_numbers_is_refused(R):
    with pytest.raises(InputError, match=r"R must be an array of numbers with 2 axes, got"):
        greedy_dense(R, 1, 2)


# --- Over-clustering with any clusterer of scikit-learn ---


def test_the_clusterer_is_copied_and_seeded():
    X = gaussian(np.random.default_rng(12), 200, 3)
    clusterer = KMeans(8, n_init=1, init="random")
    labels = overcluster(X, clusterer, random_state=0)
    assert clusterer.random_state is None
    assert not hasattr(clusterer, "labels_")
    assert sorted(set(labels)) == list(range(8))
    np.testing.assert_array_equal(overcluster(X, clusterer, random_state=0), labels)
    others = [overcluster(X, clusterer, random_state=seed) for seed in range(1, 4)]
    assert any((other != labels).any() for other in others)


class Recorder(BaseEstimator):
    """Remembers, outside itself, the seeds it was fitted with."""

    seeds = ()

    def __init__(self, random_state=None, inner=None):
        self.random_state = random_state
        self.inner = inner

    def fit_predict(self, X):
        Recorder.seeds = (self.random_state, getattr(self.inner, "random_state", "none"))
        return np.arange(len(X)) % 2


@pytest.mark.parametrize(
    ("clusterer", "given"),
    [
        (Recorder(), [None, "none"]),
        (Recorder(7), [7, "none"]),
        (Recorder(None, Recorder(3)), [None, 3]),
        (Recorder(3, Recorder()), [3, None]),
    ],
)
def test_only_unset_seeds_are_set_at_any_depth(clusterer, given):
    overcluster(np.zeros((4, 1)), clusterer, random_state=1)
    for before, after in zip(given, Recorder.seeds, strict=True):
        assert isinstance(after, int) if before is None else after == before


def test_a_pipeline_will_do():
    X = blobs(np.random.default_rng(13), 100, 3)
    pipeline = make_pipeline(StandardScaler(), KMeans(6, n_init=1, init="random"))
    labels = overcluster(X, pipeline, random_state=0)
    np.testing.assert_array_equal(overcluster(X, pipeline, random_state=0), labels)
    assert len(set(labels)) == 6


@pytest.mark.parametrize(("eps", "found"), [(1e-9, 0), (100.0, 1)])
def test_fewer_than_two_clusters_are_refused(eps, found):
    X = gaussian(np.random.default_rng(14), 30, 2)
    sentence = rf"clusterer must find at least 2.*DBSCAN\(eps={eps}\) found {found}; change"
    with pytest.raises(InputError, match=sentence):
        overcluster(X, DBSCAN(eps=eps))


@pytest.mark.parametrize("clusterer", [40, "kmeans", KMeans, StandardScaler()])
def test_what_is_no_clusterer_is_refused(clusterer):
    sentence = rf"clusterer must .*fit_predict, got {re.escape(repr(clusterer))}; pass.*KMeans"
    with pytest.raises(InputError, match=sentence):
        overcluster(np.zeros((4, 1)), clusterer)


@pytest.mark.parametrize("X", [np.eye(50), np.eye(50).tolist(), scipy.sparse.eye_array(50).tocsr()])
def test_without_a_clusterer_the_default_is_used(X):
    labels = overcluster(X, random_state=0)
    assert labels.shape == (50,)
    assert len(set(labels)) == 5


def test_default_leaves_ten_observations_to_a_cluster():
    numbers = {n: default_clusterer(n).n_clusters for n in (2, 19, 20, 99, 100, 400, 10_000)}
    assert numbers == {2: 2, 19: 2, 20: 2, 99: 9, 100: 10, 400: 20, 10_000: 100}
    assert all(n / k >= 10 for n, k in numbers.items() if n >= 20)
