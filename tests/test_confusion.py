import re

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import is_valid_linkage
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedKFold

from benchmarks.baselines import ConfusionMerges, confusion, confusion_merging
from unsplit.errors import InputError

quick = settings(deadline=None, max_examples=30, derandomize=True)


def split_blobs(seed=0, n=30):
    """Blob one is cut at random into clusters 10 and 30, blob two into 20 and 40."""
    rng = np.random.default_rng(seed)
    labels = np.repeat([10, 30, 20, 40], n)
    X = rng.normal(size=(4 * n, 2)) + np.where(np.isin(labels, [10, 30]), 0, 20)[:, None]
    order = rng.permutation(4 * n)
    return X[order], labels[order]


def overlapping(seed, sizes):
    """Clusters 3, 6, 9 … whose neighbours a forest confuses, rows in random order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(3 * np.arange(len(sizes)) + 3, sizes))
    return rng.normal(size=(len(labels), 3)) + labels[:, None] / 5, labels


def merged(X, labels, **choices):
    return confusion_merging(X, labels, **{"n_estimators": 8, "random_state": 0} | choices)


def test_halves_of_a_blob_are_merged_and_far_blobs_kept_apart():
    X, labels = split_blobs()
    result = merged(X, labels)
    # Sorted names: 10, 20, 30, 40.
    assert sorted(result.merges.tolist()) == [[0, 2], [1, 3]]
    assert result.n_clusters == 2
    assert (result.confusion > 0.2).all()
    np.testing.assert_array_equal(result.labels, np.isin(labels, [20, 40]).astype(int))


def test_threshold_zero_gives_a_whole_scipy_tree():
    X, labels = split_blobs()
    result = merged(X, labels, threshold=0.0)
    assert result.merges.shape == (3, 2)
    assert result.confusion.shape == (3,)
    assert result.confusion[-1] == 0.0  # far blobs are never confused
    leaves = np.array([2, 2, 4])
    tree = np.column_stack([result.merges, np.arange(3), leaves]).astype(float)
    assert is_valid_linkage(tree)
    assert (result.labels == 0).all()


def test_threshold_one_merges_nothing_that_is_ever_right():
    X, labels = split_blobs()
    result = merged(X, labels, threshold=1.0)
    assert result.merges.shape == (0, 2)
    assert result.merges.dtype == np.int64
    np.testing.assert_array_equal(result.labels, np.searchsorted([10, 20, 30, 40], labels))


def test_cut_replays_the_merges():
    X, labels = split_blobs()
    result = merged(X, labels, threshold=0.0)
    for n_clusters in range(1, 5):
        groups = {i: {i} for i in range(4)}
        for t, (a, b) in enumerate(result.merges[: 4 - n_clusters].tolist()):
            groups[4 + t] = groups.pop(a) | groups.pop(b)
        number = {
            leaf: i for i, group in enumerate(sorted(groups.values(), key=min)) for leaf in group
        }
        expected = [number[leaf] for leaf in np.searchsorted([10, 20, 30, 40], labels)]
        assert result.cut(n_clusters).tolist() == expected


def test_cut_numbers_by_the_first_initial_cluster():
    result = ConfusionMerges(
        np.array(["a", "b", "c", "d"]),
        np.array([3, 2, 1, 0, -1]),
        np.array([[1, 3], [0, 4]]),
        np.array([0.5, 0.4]),
    )
    assert result.cut(4).tolist() == [3, 2, 1, 0, -1]
    assert result.cut(3).tolist() == [1, 2, 1, 0, -1]
    assert result.cut(2).tolist() == result.labels.tolist() == [0, 1, 0, 0, -1]


@pytest.mark.parametrize("n_clusters", [1, 5])
def test_cut_refuses_numbers_that_never_were(n_clusters):
    merges = np.array([[0, 2], [1, 3]])
    result = ConfusionMerges(np.arange(4), np.arange(4), merges, np.array([0.5, 0.4]))
    sentence = (
        f"n_clusters must lie between 2 and 4, got {n_clusters}; a lower threshold merges further."
    )
    with pytest.raises(InputError, match="^" + re.escape(sentence) + "$"):
        result.cut(n_clusters)


def test_noise_stays_noise_and_changes_nothing():
    X, labels = split_blobs()
    clean = merged(X, labels, threshold=0.0)
    noisy = merged(np.vstack([[[7.0, 7.0]], X]), np.append(-1, labels), threshold=0.0)
    np.testing.assert_array_equal(noisy.merges, clean.merges)
    for n_clusters in (4, 2, 1):
        np.testing.assert_array_equal(noisy.cut(n_clusters), np.append(-1, clean.cut(n_clusters)))


def test_same_seed_same_result_and_global_randomness_untouched():
    X, labels = overlapping(8, (20, 20, 20, 20))
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    results = [merged(X, labels, threshold=0.0, random_state=seed) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    np.testing.assert_array_equal(results[0].confusion, results[1].confusion)
    np.testing.assert_array_equal(results[0].merges, results[1].merges)
    assert (results[0].confusion != results[2].confusion).any()


def test_input_is_left_alone():
    X, labels = split_blobs()
    X_before, labels_before = X.copy(), labels.copy()
    merged(X, labels)
    np.testing.assert_array_equal(X, X_before)
    np.testing.assert_array_equal(labels, labels_before)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sparse_gives_the_dense_merges(index):
    X, labels = split_blobs()
    sparse = scipy.sparse.csr_array(X)
    sparse.indices, sparse.indptr = sparse.indices.astype(index), sparse.indptr.astype(index)
    np.testing.assert_array_equal(merged(sparse, labels).merges, merged(X, labels).merges)


def test_clusters_smaller_than_the_folds_need_no_warning():
    # Warnings are errors here.
    X = np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2], [9.3], [9.4], [9.5], [0.15]])
    labels = [0, 0, 0, 1, 1, 1, 1, 1, 1, 2]
    result = merged(X, labels)
    # The single observation lies inside cluster 0.
    assert result.merges.tolist() == [[0, 2]]
    assert result.confusion[0] >= 0.5


def test_two_observations_in_two_clusters_end_as_one():
    result = merged([[0.0], [1.0]], [0, 1])
    assert result.merges.tolist() == [[0, 1]]
    assert result.confusion.tolist() == [1.0]
    assert result.labels.tolist() == [0, 0]


def test_progress_is_told_every_round_the_last_one_too():
    X, labels = split_blobs()
    told = []
    result = merged(X, labels, progress=lambda *news: told.append(news))
    assert [n for n, _ in told] == [4, 3, 2]
    assert [c for _, c in told[:-1]] == result.confusion.tolist()
    assert told[-1][1] < 0.025


def test_confusion_is_the_mean_of_both_shares_of_heldout_predictions():
    X, labels = overlapping(9, (25, 12, 18))
    node = labels + 100
    forest = RandomForestClassifier(8, random_state=3)
    pair, largest = confusion._most_confused(forest, X, node, 4, np.random.default_rng(1))
    fold = confusion._deal(node, 4, np.random.default_rng(1))
    predicted = np.empty_like(node)
    for f in range(4):
        trees = RandomForestClassifier(8, random_state=3).fit(X[fold != f], node[fold != f])
        predicted[fold == f] = trees.predict(X[fold == f])
    shares = confusion_matrix(node, predicted, normalize="true")
    symmetric = (shares + shares.T) / 2
    np.fill_diagonal(symmetric, -1)
    assert largest == pytest.approx(symmetric.max(), abs=1e-12)
    assert symmetric.max() > 0.1
    names = np.unique(node)
    np.testing.assert_array_equal(pair, names[sorted(np.argwhere(symmetric == symmetric.max())[0])])


@quick
@given(st.lists(st.integers(5, 30), min_size=2, max_size=6), st.integers(2, 5))
def test_folds_are_as_even_as_those_of_stratified_k_fold(sizes, n_folds):
    node = np.repeat(np.arange(len(sizes)), sizes)
    fold = confusion._deal(node, n_folds, np.random.default_rng(0))
    ours = [np.bincount(node[fold == f], minlength=len(sizes)).tolist() for f in range(n_folds)]
    splits = StratifiedKFold(n_folds, shuffle=True, random_state=0).split(node, node)
    theirs = [np.bincount(node[test], minlength=len(sizes)).tolist() for _, test in splits]
    assert ours == theirs


def test_members_of_a_small_cluster_go_to_different_folds():
    node = np.array([0, 1, 0, 1, 1, 2, 2, 0, 2, 2])
    fold = confusion._deal(node, 4, np.random.default_rng(0))
    for name in range(3):
        assert len(set(fold[node == name])) == (node == name).sum()


def test_folds_are_shuffled():
    node = np.repeat([0, 1], 50)
    one, other = (confusion._deal(node, 5, np.random.default_rng(seed)) for seed in (0, 1))
    assert (one != other).any()


# What is refused.


@pytest.mark.parametrize(
    ("X", "labels", "sentence"),
    [
        (
            [[0.0], [np.nan]],
            [0, 1],
            "X has missing or infinite values (1 in column 0); remove those rows or fill in the "
            "values first.",
        ),
        (
            [[0.0], [1.0]],
            [0, 1, 1],
            "X has 2 observations but labels has 3; pass one label for each row of X.",
        ),
    ],
)
def test_unusable_input_is_refused(X, labels, sentence):
    with pytest.raises(InputError, match="^" + re.escape(sentence) + "$"):
        confusion_merging(X, labels)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"threshold": -0.1}, "threshold must lie between 0 and 1, got -0.1; 0.025 is usual."),
        ({"threshold": 1.5}, "threshold must lie between 0 and 1, got 1.5; 0.025 is usual."),
        ({"threshold": np.nan}, "threshold must lie between 0 and 1, got nan; 0.025 is usual."),
        ({"n_folds": 1}, "n_folds must be at least 2, got 1; 5 is usual."),
        ({"n_estimators": 0}, "n_estimators must be at least 1, got 0; 100 is usual."),
    ],
)
def test_choices_out_of_range_are_refused(choice, sentence):
    with pytest.raises(InputError, match="^" + re.escape(sentence) + "$"):
        confusion_merging([[0.0], [1.0]], [0, 1], **choice)
