import math
import re

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.baselines import centroid, energy, euclidean
from unsplit import original
from unsplit.errors import InputError

quick = settings(deadline=None, max_examples=30, derandomize=True)

DISTANCES = [euclidean, centroid, energy]


# Slow twins, from the definitions.


def members(X, labels, name):
    return [row for row, label in zip(X, labels, strict=True) if label == name]


def mean_distance(A, B):
    return sum(math.dist(a, b) for a in A for b in B) / (len(A) * len(B))


def slow_euclidean(A, B):
    return mean_distance(A, B)


def slow_centroid(A, B):
    return math.dist(np.mean(A, axis=0), np.mean(B, axis=0))


def slow_energy(A, B):
    return 2 * mean_distance(A, B) - mean_distance(A, A) - mean_distance(B, B)


TWIN = {euclidean: slow_euclidean, centroid: slow_centroid, energy: slow_energy}


def by_double_loop(distance, X, labels):
    names = sorted({label for label in labels if label != -1})
    result = np.zeros((len(names), len(names)))
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            if i != j:
                result[i, j] = TWIN[distance](members(X, labels, a), members(X, labels, b))
    return result


def example(seed, sizes=(1, 4, 7, 2), d=3, n_noise=3):
    """Rows in random order, clusters named 3, 6, 9 …, some noise."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.full(size, 3 * i + 3) for i, size in enumerate(sizes)])
    labels = rng.permutation(np.append(labels, np.full(n_noise, -1)))
    return rng.normal(size=(len(labels), d)) + labels[:, None] / 5, labels


# Distances.


@pytest.mark.parametrize("distance", DISTANCES)
@quick
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 6), min_size=2, max_size=6),
    st.integers(1, 4),
)
def test_distance_against_the_double_loop(distance, seed, sizes, d):
    X, labels = example(seed, sizes, d)
    result = distance(X, labels)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, by_double_loop(distance, X, labels), atol=1e-7)
    assert (result == result.T).all()
    assert (np.diag(result) == 0).all()
    assert (result >= 0).all()


@pytest.mark.parametrize("distance", DISTANCES)
def test_many_chunks_give_what_one_gives(distance, monkeypatch):
    X, labels = example(0, sizes=(30, 50, 20))
    whole = distance(X, labels)
    monkeypatch.setattr(original, "CHUNK_MIB", 103 * 8 * 7 / 2**20)  # seven rows at a time
    np.testing.assert_allclose(distance(X, labels), whole, rtol=1e-12)


def test_chunks_keep_memory_below_all_pairs(monkeypatch):
    seen = []

    def watch(values, **options):
        for block in whole(values, **options):
            seen.append(block.shape)
            yield block

    whole = original.pairwise_distances_chunked
    monkeypatch.setattr(original, "pairwise_distances_chunked", watch)
    n = 5000
    euclidean(np.arange(n)[:, None], np.arange(n) % 2)
    assert sum(rows for rows, _ in seen) == n
    assert max(rows * columns for rows, columns in seen) * 8 <= original.CHUNK_MIB * 2**20
    assert len(seen) > 1


@pytest.mark.parametrize("distance", DISTANCES)
def test_clusters_of_one_are_points(distance):
    X = [[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]
    factor = 2 if distance is energy else 1
    expected = factor * np.array([[0, 5, 1], [5, 0, math.sqrt(18)], [1, math.sqrt(18), 0]])
    np.testing.assert_allclose(distance(X, ["a", "b", "c"]), expected, atol=1e-12)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("container", [scipy.sparse.csr_array, scipy.sparse.coo_matrix])
def test_sparse_is_dense(distance, container):
    X, labels = example(1, d=6)
    X[X < 0.5] = 0
    np.testing.assert_allclose(distance(container(X), labels), distance(X, labels), atol=1e-7)


@pytest.mark.parametrize("distance", DISTANCES)
def test_order_of_rows_does_not_matter(distance):
    X, labels = example(2)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(distance(X[order], labels[order]), distance(X, labels), atol=1e-7)


@pytest.mark.parametrize("distance", DISTANCES)
def test_matrix_follows_the_sorted_names(distance):
    X, labels = example(3)
    result = distance(X, labels)
    new_name = {3: "d", 6: "c", 9: "b", 12: "a", -1: "-1"}
    renamed = [new_name[label] for label in labels.tolist()]
    np.testing.assert_allclose(distance(X, renamed), result[::-1, ::-1], atol=1e-7)


@pytest.mark.parametrize("distance", DISTANCES)
def test_noise_does_not_count(distance):
    X, labels = example(4)
    kept = labels != -1
    np.testing.assert_allclose(distance(X, labels), distance(X[kept], labels[kept]), atol=1e-7)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_a_large_common_offset_costs_no_digits(distance, dtype):
    rng = np.random.default_rng(5)
    X = rng.integers(0, 50, (40, 3))
    labels = np.arange(40) % 3
    moved = (X + 2**23).astype(dtype)  # whole numbers that float32 still holds
    np.testing.assert_allclose(distance(moved, labels), distance(X, labels), rtol=1e-6, atol=1e-6)


def test_mean_distance_differs_from_the_distance_of_means():
    X, labels = [[-1.0], [1.0], [0.0]], [0, 0, 1]
    assert euclidean(X, labels)[0, 1] == pytest.approx(1.0)
    assert centroid(X, labels)[0, 1] == pytest.approx(0.0)


def test_energy_of_two_point_masses_is_twice_their_distance():
    X = [[1.0]] * 3 + [[4.0]] * 5
    assert energy(X, [0] * 3 + [1] * 5)[0, 1] == pytest.approx(6.0, abs=1e-7)


@pytest.mark.parametrize("n_points", [2, 9])
def test_energy_of_the_same_points_is_zero_and_never_below(n_points):
    for seed in range(20):  # rounding falls below zero in some
        points = np.random.default_rng(seed).normal(size=(n_points, 4))
        X = np.tile(points, (5, 1))  # each point twice in one cluster, thrice in the other
        result = energy(X, np.repeat([0, 1], [2 * n_points, 3 * n_points]))[0, 1]
        assert 0 <= result < 1e-7


def test_energy_of_the_same_distribution_shrinks_with_size():
    rng = np.random.default_rng(7)
    small, large = (
        energy(rng.normal(size=(2 * n, 2)), np.repeat([0, 1], n))[0, 1] for n in (5, 500)
    )
    assert large < small / 10


# What is refused.


@pytest.mark.parametrize("distance", DISTANCES)
def test_nan_is_refused(distance):
    sentence = (
        "observation 1 of X has values that are NaN, infinite or larger than 1e+30; remove such "
        "observations or fill in the values first."
    )
    with pytest.raises(InputError, match="^" + re.escape(sentence) + "$"):
        distance([[0.0], [np.nan]], [0, 1])


@pytest.mark.parametrize("distance", DISTANCES)
def test_lengths_must_match(distance):
    sentence = "X has 2 observations but labels has 3; pass one label for each row of X."
    with pytest.raises(InputError, match="^" + re.escape(sentence) + "$"):
        distance([[0.0], [1.0]], [0, 1, 1])
