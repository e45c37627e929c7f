import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unsplit.networks.training import loop
from unsplit.networks.training.loop import (
    MIN_STEPS,
    MOST_DRAWS,
    balanced_draws,
    epoch_minibatches,
)
from unsplit.pairwise.heldout_scores import (
    FEW_CLUSTERS,
    LARGE,
    MANY,
    TESTED,
    TRAINED,
    VALIDATED,
    crossfit_folds,
    folds_by_need,
    holdout_fold,
)

quick = settings(deadline=None, max_examples=30, derandomize=True)
sizes_of_clusters = st.lists(st.integers(1, 12), min_size=2, max_size=8)
seeds = st.integers(0, 2**32 - 1)


def shuffled_clusters(sizes, seed=0):
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(seed).permutation(clusters)


def counts_of(clusters, rows):
    return np.bincount(clusters[rows], minlength=clusters.max() + 1)


@quick
@given(sizes_of_clusters, st.integers(2, 7), seeds)
def test_crossfit_tests_everything_once_except_clusters_of_one(sizes, n_folds, seed):
    clusters = shuffled_clusters(sizes, seed)
    folds = crossfit_folds(clusters, n_folds, np.random.default_rng(seed))
    assert len(folds) == n_folds
    tested = np.bincount(np.concatenate([f.test for f in folds]), minlength=len(clusters))
    alone = np.array(sizes)[clusters] == 1
    np.testing.assert_array_equal(tested, np.where(alone, 0, 1))
    for fold in folds:
        assert np.isin(np.flatnonzero(alone), fold.train).all()


@quick
@given(sizes_of_clusters, st.integers(2, 7), seeds)
def test_crossfit_parts_are_disjoint_and_complete(sizes, n_folds, seed):
    clusters = shuffled_clusters(sizes, seed)
    for fold in crossfit_folds(clusters, n_folds, np.random.default_rng(seed)):
        parts = [fold.train, fold.test]
        if len(sizes) < FEW_CLUSTERS and min(sizes) >= 2 * n_folds:
            assert not fold.validates_on_test
            parts.append(fold.validation)
        else:
            assert fold.validates_on_test
        together = np.sort(np.concatenate(parts))
        np.testing.assert_array_equal(together, np.arange(len(clusters)))


def test_few_large_clusters_validate_with_a_fifth_of_their_training_rows():
    clusters = np.repeat([0, 1], 100)
    for fold in crossfit_folds(clusters, 5, np.random.default_rng(0)):
        counts = [np.bincount(clusters[part]).tolist() for part in (fold.train, fold.validation)]
        assert counts == [[64, 64], [16, 16]]


@quick
@given(sizes_of_clusters, st.integers(2, 7), seeds)
def test_crossfit_is_stratified(sizes, n_folds, seed):
    clusters = shuffled_clusters(sizes, seed)
    folds = crossfit_folds(clusters, n_folds, np.random.default_rng(seed))
    per_fold = np.stack([counts_of(clusters, f.test) for f in folds])
    assert (np.ptp(per_fold, axis=0) <= 1).all()


@quick
@given(st.lists(st.integers(2, 12), min_size=2, max_size=8), st.integers(2, 7), seeds)
def test_crossfit_fold_sizes_differ_by_at_most_one(sizes, n_folds, seed):
    clusters = shuffled_clusters(sizes, seed)
    folds = crossfit_folds(clusters, n_folds, np.random.default_rng(seed))
    assert np.ptp([len(f.test) for f in folds]) <= 1


@quick
@given(sizes_of_clusters, st.integers(2, 7), seeds)
def test_crossfit_always_trains_on_every_cluster(sizes, n_folds, seed):
    clusters = shuffled_clusters(sizes, seed)
    for fold in crossfit_folds(clusters, n_folds, np.random.default_rng(seed)):
        assert counts_of(clusters, fold.train).min() >= 1


def test_crossfit_cluster_smaller_than_the_folds_is_tested_in_as_many_folds_as_it_has_members():
    clusters = np.repeat([0, 1], [3, 40])
    folds = crossfit_folds(clusters, 5, np.random.default_rng(0))
    assert sorted(counts_of(clusters, f.test)[0] for f in folds) == [0, 0, 1, 1, 1]


def test_crossfit_depends_on_the_seed_alone():
    clusters = shuffled_clusters([9, 8, 13])

    def fold_of(seed):
        return [f.test.tolist() for f in crossfit_folds(clusters, 3, np.random.default_rng(seed))]

    assert fold_of(1) == fold_of(1)
    assert fold_of(1) != fold_of(2)


@quick
@given(sizes_of_clusters, st.floats(0.05, 0.6), seeds)
def test_holdout_parts_are_disjoint_and_complete(sizes, fraction, seed):
    clusters = shuffled_clusters(sizes, seed)
    fold = holdout_fold(clusters, fraction, np.random.default_rng(seed))
    together = np.sort(np.concatenate([fold.train, fold.validation, fold.test]))
    np.testing.assert_array_equal(together, np.arange(len(clusters)))


@quick
@given(sizes_of_clusters, st.floats(0.01, 0.99), seeds)
def test_holdout_trains_on_every_cluster_and_tests_all_but_clusters_of_one(sizes, fraction, seed):
    clusters = shuffled_clusters(sizes, seed)
    fold = holdout_fold(clusters, fraction, np.random.default_rng(seed))
    assert counts_of(clusters, fold.train).min() >= 1
    np.testing.assert_array_equal(counts_of(clusters, fold.test) >= 1, np.array(sizes) >= 2)


@pytest.mark.parametrize(
    ("size", "train", "validation", "test"),
    [(1, 1, 0, 0), (2, 1, 0, 1), (3, 1, 1, 1), (4, 2, 1, 1), (10, 6, 2, 2)],
)
def test_holdout_of_small_clusters_fills_train_then_test_then_validation(
    size, train, validation, test
):
    # A second cluster, because the first number must not depend on what comes before.
    clusters = np.repeat([0, 1], [7, size])
    fold = holdout_fold(clusters, 0.2, np.random.default_rng(0))
    counts = [counts_of(clusters, part)[1] for part in (fold.train, fold.validation, fold.test)]
    assert counts == [train, validation, test]


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.25, 0.5])
def test_holdout_fraction_is_met_in_large_clusters(fraction):
    sizes = np.array([1000, 2000])
    clusters = np.repeat([0, 1], sizes)
    fold = holdout_fold(clusters, fraction, np.random.default_rng(0))
    np.testing.assert_array_equal(counts_of(clusters, fold.test), sizes * fraction)
    # As much of what is left is for validation.
    left = sizes * (1 - fraction)
    np.testing.assert_allclose(counts_of(clusters, fold.validation), left * fraction, atol=0.5)


def test_holdout_depends_on_the_seed_alone():
    clusters = shuffled_clusters([9, 8, 13])

    def split(seed):
        fold = holdout_fold(clusters, 0.3, np.random.default_rng(seed))
        return [fold.train.tolist(), fold.validation.tolist(), fold.test.tolist()]

    assert split(1) == split(1)
    assert split(1) != split(2)


@quick
@given(sizes_of_clusters, st.integers(1, 60), seeds)
def test_each_run_of_k_draws_has_each_cluster_once(sizes, n_draws, seed):
    clusters = shuffled_clusters(sizes, seed)
    drawn = balanced_draws(clusters, n_draws, np.random.default_rng(seed))
    assert drawn.shape == (n_draws,)
    k = len(sizes)
    for start in range(0, n_draws, k):
        run = clusters[drawn[start : start + k]]
        assert len(set(run)) == len(run)


@quick
@given(sizes_of_clusters, st.integers(1, 120), seeds)
def test_no_member_comes_again_before_all_have_come(sizes, n_draws, seed):
    clusters = shuffled_clusters(sizes, seed)
    drawn = balanced_draws(clusters, n_draws, np.random.default_rng(seed))
    for cluster, size in enumerate(sizes):
        visits = drawn[clusters[drawn] == cluster]
        for start in range(0, len(visits), size):
            one_pass = visits[start : start + size]
            assert len(set(one_pass)) == len(one_pass)


@quick
@given(st.integers(2, 8), st.integers(1, 10), seeds)
def test_clusters_of_one_size_give_a_permutation(k, size, seed):
    clusters = shuffled_clusters([size] * k, seed)
    drawn = balanced_draws(clusters, len(clusters), np.random.default_rng(seed))
    np.testing.assert_array_equal(np.sort(drawn), np.arange(len(clusters)))


def test_draws_are_even_for_very_unequal_clusters():
    clusters = shuffled_clusters([1, 10, 5000])
    drawn = balanced_draws(clusters, 3000, np.random.default_rng(0))
    assert counts_of(clusters, drawn).tolist() == [1000, 1000, 1000]
    times = np.bincount(drawn, minlength=len(clusters))
    assert set(times[clusters == 0]) == {1000}
    assert set(times[clusters == 1]) == {100}
    assert set(times[clusters == 2]) == {0, 1}


def test_draws_skip_cluster_numbers_nobody_has():
    clusters = np.array([7, 2, 7, 2, 11])
    drawn = balanced_draws(clusters, 6, np.random.default_rng(0))
    assert sorted(clusters[drawn[:3]]) == [2, 7, 11]
    assert sorted(clusters[drawn[3:]]) == [2, 7, 11]
    assert sorted(drawn[clusters[drawn] == 7]) == [0, 2]


def test_order_of_clusters_and_members_is_random():
    clusters = np.repeat([0, 1], 50)
    drawn = balanced_draws(clusters, 100, np.random.default_rng(0))
    first_of_each_run = clusters[drawn[::2]]
    assert 10 < first_of_each_run.sum() < 40
    members = drawn[clusters[drawn] == 0]
    assert abs(np.corrcoef(members, np.arange(50))[0, 1]) < 0.5


@quick
@given(sizes_of_clusters, st.integers(1, 60), seeds)
def test_same_seed_same_draws(sizes, n_draws, seed):
    clusters = shuffled_clusters(sizes)
    first, second = (
        balanced_draws(clusters, n_draws, np.random.default_rng(seed)) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_other_seed_other_draws():
    clusters = np.repeat([0, 1], 50)
    first, second = (balanced_draws(clusters, 100, np.random.default_rng(s)) for s in (0, 1))
    assert (first != second).any()


def test_epoch_has_enough_batches_for_the_longest_list_of_rows():
    clusters = np.repeat([0, 1], 500)
    train = [np.arange(0, 1000, 2), np.arange(1000)]
    batches = epoch_minibatches(train, clusters, 32, np.random.default_rng(0))
    assert batches.shape == (32, 2, 32)
    assert batches.dtype == torch.int64


def test_batch_is_no_larger_than_the_data_and_a_small_epoch_has_the_least_steps():
    clusters = np.repeat([0, 1], 6)
    batches = epoch_minibatches([np.arange(12)], clusters, 256, np.random.default_rng(0))
    assert batches.shape == (MIN_STEPS, 1, 12)


def test_each_network_draws_only_its_own_rows_and_evenly():
    clusters = np.tile([0, 1, 1, 1], 100)
    train = [np.arange(0, 200), np.arange(200, 400)]
    batches = epoch_minibatches(train, clusters, 20, np.random.default_rng(0)).numpy()
    for network, rows in enumerate(train):
        drawn = batches[:, network].ravel()
        assert np.isin(drawn, rows).all()
        assert np.ptp(np.bincount(clusters[drawn])) <= 1


def test_same_seed_same_batches():
    clusters = np.repeat([0, 1], 30)
    train = [np.arange(40), np.arange(20, 60)]
    first, second = (
        epoch_minibatches(train, clusters, 8, np.random.default_rng(5)) for _ in range(2)
    )
    assert torch.equal(first, second)


def test_clusters_of_one_do_not_unbalance_the_folds():
    clusters = np.repeat(np.arange(100), [1, 3] * 50)
    folds = crossfit_folds(clusters, 2, np.random.default_rng(0))
    assert [len(fold.test) for fold in folds] == [75, 75]


# Folds by need

LARGE_ONES = st.lists(st.integers(LARGE, LARGE + 300), min_size=1, max_size=4)
SMALL_ONES = st.lists(st.integers(1, 60), min_size=5, max_size=8)


def shuffled(sizes, seed):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


def counts(clusters, rows, k):
    return np.bincount(clusters[rows], minlength=k)


@given(LARGE_ONES, st.integers(0, 99))
def test_large_clusters_are_held_out_once(sizes, seed):
    sizes = np.array([*sizes, MANY])
    clusters, k = shuffled(sizes, seed), len(sizes)
    (fold,) = folds_by_need(clusters, 5, np.random.default_rng(seed))
    tested, validated = np.minimum(sizes // 3, TESTED), np.minimum(sizes // 6, VALIDATED)
    assert counts(clusters, fold.test, k).tolist() == tested.tolist()
    assert counts(clusters, fold.validation, k).tolist() == validated.tolist()
    trained = np.minimum(sizes - tested - validated, TRAINED)
    assert counts(clusters, fold.train, k).tolist() == trained.tolist()
    used = np.concatenate([fold.test, fold.validation, fold.train])
    assert len(np.unique(used)) == len(used)


def test_a_few_small_clusters_among_many_observations_are_held_out_once_too():
    sizes = np.array([MANY, 1, 2, 3, 60])
    clusters = shuffled(sizes, 0)
    (fold,) = folds_by_need(clusters, 5, np.random.default_rng(0))
    assert counts(clusters, fold.test, 5).tolist() == [TESTED, 0, 1, 1, 20]
    assert counts(clusters, fold.train, 5).tolist() == [TRAINED, 1, 1, 2, 30]


@given(SMALL_ONES, LARGE_ONES, st.integers(0, 99))
def test_small_clusters_are_tested_in_all_folds_and_large_ones_in_the_first(small, large, seed):
    sizes = np.array([*small, *large, MANY, 200, 200])
    clusters, k = shuffled(sizes, seed), len(sizes)
    folds = folds_by_need(clusters, 5, np.random.default_rng(seed))
    assert len(folds) == 5
    n_tested = [counts(clusters, fold.test, k) for fold in folds]
    is_large = sizes >= LARGE
    assert n_tested[0][is_large].tolist() == np.minimum(sizes // 3, TESTED)[is_large].tolist()
    assert not np.sum(n_tested[1:], axis=0)[is_large].any()
    wanted = np.where(sizes > 1, sizes, 0)[~is_large]
    assert np.sum(n_tested, axis=0)[~is_large].tolist() == wanted.tolist()
    of_large = folds[0].test[is_large[clusters[folds[0].test]]]
    for fold in folds:
        assert fold.validates_on_test
        assert not np.isin(fold.test, fold.train).any()
        assert not np.isin(of_large, fold.train).any()


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=8), st.integers(0, 99))
def test_up_to_20000_observations_are_cross_fitted_as_ever(sizes, seed):
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    by_need = folds_by_need(clusters, 3, np.random.default_rng(seed))
    usual = crossfit_folds(clusters, 3, np.random.default_rng(seed))
    for one, other in zip(by_need, usual, strict=True):
        assert one.train.tolist() == other.train.tolist()
        assert one.test.tolist() == other.test.tolist()


def test_with_few_clusters_all_must_be_large():
    clusters = np.repeat([0, 1], [MANY, LARGE - 1])
    folds = folds_by_need(clusters, 5, np.random.default_rng(0))
    assert sum(len(fold.test) for fold in folds) == len(clusters)


def test_an_epoch_of_large_clusters_is_a_part_of_each(monkeypatch):
    monkeypatch.setattr(loop, "ALWAYS_DRAWN", 100)
    clusters = np.repeat([0, 1, 2], MOST_DRAWS + 500)
    rows = np.arange(len(clusters))
    batches = epoch_minibatches([rows], clusters, 100, np.random.default_rng(0))
    assert batches.shape == (3 * MOST_DRAWS // 100, 1, 100)
    drawn = batches.flatten().numpy()
    assert np.bincount(clusters[drawn]).tolist() == [MOST_DRAWS] * 3
    assert len(np.unique(drawn)) == len(drawn)
