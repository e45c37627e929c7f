"""Artificial over-clusterings against their definition."""

import numpy as np
import pandas as pd
import pytest

from tests.overclustering_cases import gaussian
from unsplit.errors import InputError
from unsplit.metrics import purity
from unsplit.overclustering import artificial, overcluster


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
