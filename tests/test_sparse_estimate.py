"""The sparse estimate says what the dense one says."""

import logging

import numpy as np
import pytest

import unsplit
from tests.sparse_cases import both_forms, scores_of_means, whole_scores
from unsplit import InputError, PairwiseTVD, pairwise_tvd
from unsplit.data.array_files import load_arrays, save_arrays
from unsplit.errors import ConfusionWarning
from unsplit.pairwise import api
from unsplit.pairwise.api import Settings
from unsplit.pairwise.divergences import DIVERGENCES
from unsplit.pairwise.result import SPARSE_FORMAT as FORMAT
from unsplit.pairwise.statistics import rank_sum_p_value, rank_sum_p_value_of_pairs
from unsplit.pairwise.stored_pairs import BLOCKS, PairScores, count_confusions


def groups(k, per_cluster=8, seed=0):
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(k), per_cluster)
    centres = rng.normal(size=(-(-k // 3), 5))
    return centres[clusters // 3] + 0.6 * rng.normal(size=(len(clusters), 5)), clusters


@pytest.mark.parametrize("n_folds", [1, 3])
@pytest.mark.parametrize("k", [5, 23, 200])
def test_everything_known_of_all_pairs_is_that_of_the_dense_form(k, n_folds):
    dense, sparse = both_forms(whole_scores(k, 4, n_folds))
    for name in ("balanced_accuracy", "tvd", "stderr", "p_value", "p_adjusted"):
        np.testing.assert_array_equal(getattr(sparse, name).toarray(), getattr(dense, name), name)
    for one, other in zip(sparse.confidence_interval(), dense.confidence_interval(), strict=True):
        np.testing.assert_array_equal(one.toarray(), other)
    assert sparse.mean_accuracy == pytest.approx(dense.mean_accuracy, abs=1e-12)
    assert sparse.n_possibly_equal == dense.n_possibly_equal
    assert sparse.too_small[k // 2]


@pytest.mark.parametrize("name", [name for name in DIVERGENCES if name != "overlap"])
def test_divergences_are_those_of_the_dense_form(name):
    dense, sparse = both_forms(scores_of_means(*groups(30)))
    pairs = sparse.pairs
    assert 30 < len(pairs) < 30 * 29 // 2
    expected, found = dense.divergence(name), sparse.divergence(name)
    # Hellinger is a square root, which makes rounding near zero larger.
    near = 1e-3 if name == "hellinger" else 1e-6
    np.testing.assert_allclose(found.values, expected[pairs.left, pairs.right], atol=near)
    np.testing.assert_allclose(found.toarray(), expected, atol=near)


def test_clusters_that_held_nothing_out_count_as_a_coin_toss_in_every_divergence():
    dense, sparse = both_forms(whole_scores(9, 3, 2))
    small = int(np.flatnonzero(sparse.too_small)[0])
    for name in ("lecam", "js", "auc"):
        found = sparse.divergence(name)[small, np.arange(9)]
        np.testing.assert_allclose(found, dense.divergence(name)[small], atol=1e-6)


@pytest.mark.parametrize("block", [7, 64, 1000])
def test_blocks_of_any_size_give_the_same_counts(block, monkeypatch):
    scores = whole_scores(37, 3, 2)
    whole = count_confusions(scores)[0]
    monkeypatch.setitem(BLOCKS, "cpu", block)
    found = count_confusions(scores)[0]
    assert whole.nnz > 100
    np.testing.assert_array_equal(found.toarray(), whole.toarray())


@pytest.mark.parametrize("block", [50, 2**24])
def test_the_cap_keeps_the_highest_scores_and_bounds_the_error(block, monkeypatch):
    scores = whole_scores(40, 3, 2)
    whole = count_confusions(scores)[0]
    monkeypatch.setitem(BLOCKS, "cpu", block)
    monkeypatch.setattr("unsplit.pairwise.stored_pairs.MOST_CONFUSIONS", 3)
    misses, capped = count_confusions(scores)
    n_confusions = np.array(
        [(z >= z[c]).sum() - 1 for z, c in zip(scores.dense(), scores.clusters, strict=True)]
    )
    expected = np.bincount(scores.clusters, n_confusions > 3, minlength=40)
    np.testing.assert_array_equal(capped, expected)
    lost = (whole - misses).toarray()
    assert (lost >= 0).all()
    assert (lost <= capped[:, None]).all()
    assert lost.sum() > 0
    with pytest.warns(ConfusionWarning, match="too large, by up to"):
        dense, sparse = both_forms(scores)
    error = sparse.tvd.toarray() - dense.tvd
    assert (error >= -1e-12).all()
    assert (error <= sparse.tvd_error.toarray() + 1e-12).all()
    assert "too many confusions" in repr(sparse)


def test_without_a_cap_there_is_no_error():
    _, sparse = both_forms(whole_scores(10, 3, 2))
    assert not sparse.tvd_error.toarray().any()


@pytest.mark.parametrize("n_strata", [1, 2])
def test_p_values_of_a_list_of_pairs_are_those_of_all_pairs(n_strata):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 30, size=(n_strata, 8))
    n_pairs = counts.T @ counts
    U = np.round(rng.random((8, 8)) * n_pairs * 2) / 2
    left, right = np.triu_indices(8, 1)
    found = rank_sum_p_value_of_pairs(U[left, right], counts[:, left], counts[:, right])
    np.testing.assert_array_equal(found, rank_sum_p_value(U, counts)[left, right])


def test_few_pairs_at_a_time_give_the_same_rank_sums(monkeypatch):
    scores = whole_scores(20, 4, 3)
    left, right = np.triu_indices(20, 1)
    expected = PairScores(scores).rank_sums(left, right)
    monkeypatch.setattr("unsplit.pairwise.stored_pairs.MOST_ENTRIES", 50)
    monkeypatch.setattr("unsplit.pairwise.stored_pairs.MOST_FEATURES", 64)
    np.testing.assert_array_equal(PairScores(scores).rank_sums(left, right), expected)


def test_the_table_lists_stored_pairs_closest_first():
    dense, sparse = both_forms(scores_of_means(*groups(12)))
    table, whole = sparse.table(), dense.table()
    assert list(table) == list(whole)
    assert (np.diff(table["balanced_accuracy"]) >= 0).all()
    assert len(sparse.to_frame()) == len(sparse.pairs)
    some = whole["balanced_accuracy"] < 1
    np.testing.assert_array_equal(
        np.sort(table["tvd"][table["tvd"] < 1]), np.sort(whole["tvd"][some])
    )


def test_another_order_of_clusters_is_another_order_of_pairs():
    _, sparse = both_forms(scores_of_means(*groups(12)))
    order = np.random.default_rng(0).permutation(12)
    again = sparse.reordered(order)
    np.testing.assert_array_equal(again.tvd.toarray(), sparse.tvd.toarray()[np.ix_(order, order)])
    np.testing.assert_array_equal(
        again.p_value.toarray(), sparse.p_value.toarray()[np.ix_(order, order)]
    )


def test_pairs_are_indexed_by_whole_numbers():
    _, sparse = both_forms(scores_of_means(*groups(6)))
    assert sparse.tvd[0, -1] == sparse.tvd[0, 5]
    for index in ((0, 6), (slice(None), 0), (0.5, 1)):
        with pytest.raises(InputError, match="whole numbers below 6"):
            sparse.tvd[index]


def test_what_needs_all_pairs_is_refused_in_a_sentence(monkeypatch):
    _, sparse = both_forms(scores_of_means(*groups(6)))
    with pytest.raises(InputError, match=r'divergence\("overlap"\) needs the scores of all'):
        sparse.divergence("overlap")
    monkeypatch.setattr("unsplit.pairwise.stored_pairs.MOST_FOR_ARRAYS", 5)
    with pytest.raises(InputError, match="too many for one array"):
        sparse.tvd.toarray()


@pytest.mark.parametrize("with_scores", [False, True])
def test_a_saved_estimate_comes_back(tmp_path, with_scores):
    _, sparse = both_forms(scores_of_means(*groups(12)))
    sparse.save(tmp_path / "pairs.npz", scores=with_scores)
    again = PairwiseTVD.load(tmp_path / "pairs.npz")
    assert again.has_scores == with_scores
    for name in ("tvd", "stderr", "p_value"):
        np.testing.assert_array_equal(
            getattr(again, name).toarray(), getattr(sparse, name).toarray()
        )
    if not with_scores:
        with pytest.raises(InputError, match="saved without the held-out scores"):
            again.divergence("lecam")


CHANGES = {
    "misses are no sparse matrix": lambda a: a["misses.indptr"].__setitem__(-1, 10**6),
    "misses are no sparse": lambda a: a["misses.indices"].__setitem__(0, 12),
    "misses.data must be": lambda a: a["misses.data"].__setitem__(0, -1.0),
    "p_value must be": lambda a: a["p_value"].__setitem__(0, 2.0),
}


@pytest.mark.parametrize("problem", CHANGES)
def test_files_that_cannot_be_true_are_refused(tmp_path, problem):
    _, sparse = both_forms(scores_of_means(*groups(12)))
    sparse.save(tmp_path / "pairs.npz")
    meta, arrays = load_arrays(tmp_path / "pairs.npz", FORMAT)
    arrays = {name: array.copy() for name, array in arrays.items()}
    CHANGES[problem](arrays)
    save_arrays(tmp_path / "pairs.npz", FORMAT, meta, arrays)
    with pytest.raises(InputError, match=problem):
        PairwiseTVD.load(tmp_path / "pairs.npz")


def test_both_forms_are_read_back_as_what_they_are(tmp_path):
    for estimate in both_forms(scores_of_means(*groups(6))):
        estimate.save(tmp_path / "distances.npz")
        assert PairwiseTVD.load(tmp_path / "distances.npz").is_sparse == estimate.is_sparse


X, LABELS = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0], [9, 0]], 20, random_state=0)
QUICK = {"cv": 2, "training": unsplit.TrainConfig(epochs=1), "random_state": 0}


def test_the_form_is_chosen_by_the_number_of_clusters_and_the_log_says_so(monkeypatch, caplog):
    assert not pairwise_tvd(X, LABELS, **QUICK).is_sparse
    monkeypatch.setattr(api, "available_memory", lambda: 2**40)
    assert not Settings().is_sparse(10_000)
    assert Settings().is_sparse(10_001)
    assert not Settings().is_sparse(10_001, divided=True)
    monkeypatch.setattr(api, "MANY_CLUSTERS", 3)
    with caplog.at_level(logging.INFO, logger="unsplit"):
        found = pairwise_tvd(X, LABELS, **QUICK)
    assert found.is_sparse
    assert "4 clusters: only pairs that are ever confused are kept" in caplog.text
    assert not pairwise_tvd(X, LABELS, form="dense", **QUICK).is_sparse


def test_little_memory_makes_the_estimate_sparse(monkeypatch):
    monkeypatch.setattr(api, "available_memory", lambda: 10**9)
    assert not Settings().is_sparse(2000)
    assert Settings().is_sparse(3000)


def test_batches_are_refused_in_a_sentence():
    batch = np.arange(len(X)) % 2
    with pytest.raises(InputError, match=r'form="sparse" cannot compare clusters within batches'):
        pairwise_tvd(X, LABELS, batch=batch, form="sparse", **QUICK)


def test_an_unknown_form_is_refused():
    with pytest.raises(InputError, match="form must be one of"):
        pairwise_tvd(X, LABELS, form="thin", **QUICK)
