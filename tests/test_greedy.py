"""The greedy over-clustering against its definition, written as a plain loop."""

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.overclustering_cases import (
    DATA,
    blobs,
    far_off_centre,
    gaussian,
    tight_and_far_apart,
)
from unsplit.errors import InputError
from unsplit.overclustering import greedy, greedy_dense

CPU = torch.device("cpu")
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("make", DATA)
def test_greedy_equals_the_loop(make, shape, device):
    n, d, n_clusters, size = shape
    R = make(np.random.default_rng(n + d), n, d)
    found = greedy_dense(R, n_clusters, size, device=device)
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
    found = greedy_dense(R, n_clusters, size, device="cpu")
    np.testing.assert_array_equal(found, slow_greedy(R, n_clusters, size))


@pytest.mark.parametrize("block", [1, 500])
def test_greedy_equals_the_loop_whatever_the_block_size(monkeypatch, block):
    monkeypatch.setattr(greedy, "BLOCK_ELEMENTS", block)
    R = blobs(np.random.default_rng(1), 70, 6)
    found = greedy_dense(R, 6, 9, device="cpu")
    np.testing.assert_array_equal(found, slow_greedy(R, 6, 9))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_greedy_takes_any_numbers(dtype):
    R = (10 * gaussian(np.random.default_rng(2), 50, 4)).astype(dtype)
    before = R.copy()
    found = greedy_dense(R, 4, 6, device="cpu")
    np.testing.assert_array_equal(found, slow_greedy(R, 4, 6))
    np.testing.assert_array_equal(R, before)
    np.testing.assert_array_equal(greedy_dense(R.tolist(), 4, 6, device="cpu"), found)


def test_every_observation_is_assigned_once_and_sizes_are_exact():
    R = blobs(np.random.default_rng(3), 2000, 20)
    labels = greedy_dense(R, 15, 100, device="cpu")
    assert labels.dtype == np.int64
    assert np.bincount(labels + 1).tolist() == [500] + [100] * 15


def test_clusters_come_densest_first():
    R = blobs(np.random.default_rng(4), 600, 5)
    labels = greedy_dense(R, 10, 30, device="cpu")
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
    labels = greedy_dense(R, 12, 20, device="cpu")
    np.testing.assert_array_equal(greedy_dense(R[order], 12, 20, device="cpu"), labels[order])


def test_shifting_and_scaling_by_powers_of_two_do_not_matter():
    R = np.round(blobs(np.random.default_rng(6), 300, 4), 3)
    labels = greedy_dense(R, 8, 20, device="cpu")
    np.testing.assert_array_equal(greedy_dense(R * 2.0**90, 8, 20, device="cpu"), labels)
    np.testing.assert_array_equal(greedy_dense(R + 1024, 8, 20, device="cpu"), labels)


@pytest.mark.parametrize("make", DATA)
def test_what_is_known_of_a_candidate_is_never_more_than_the_truth(make):
    R = np.asarray(make(np.random.default_rng(15), 90, 4), np.float64)
    search = greedy._Search(R, 8, CPU)
    between = np.linalg.norm(R[:, None] - R, axis=2)
    free = np.ones(90, bool)
    for _ in range(9):
        free[search.densest()] = False
        truth = np.sort(between[:, free], axis=1)[:, :8].sum(axis=1)[free]
        assert (search.total[free] * (1 - greedy.WHISPER) <= truth).all()
        assert np.isinf(search.total[~free]).all()


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
