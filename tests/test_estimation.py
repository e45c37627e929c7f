"""The front door: known truth, invariances, small clusters, bad input."""

import copy
import io
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from torch import nn

import unsplit
from benchmarks.common import as_options
from tests import reference
from unsplit import InputError, PairwiseTVD, pairwise_tvd
from unsplit.datasets import gaussians
from unsplit.errors import SmallClusterWarning
from unsplit.pairwise.divergences import DIVERGENCES


def quick(X, labels, **settings):
    return pairwise_tvd(
        X,
        labels,
        **as_options(**{"epochs": 3, "random_state": 0, "device": "cpu"} | settings),
    )


@pytest.fixture(scope="module")
def three():
    """Two pieces of one Gaussian and a different one."""
    X, labels = gaussians([[0, 0], [0, 0], [3, 0]], 100)
    return X, labels, pairwise_tvd(X, labels, random_state=0)


def test_tells_same_from_different(three):
    _, _, result = three
    assert result.tvd[0, 1] < 0.15
    assert result.tvd[0, 2] > 0.75
    assert result.p_value[0, 1] > 0.05
    assert result.p_adjusted[0, 2] < 1e-6
    low, high = result.confidence_interval()
    exact = unsplit.datasets.gaussians_tvd([[0, 0], [3, 0]])[0, 1]
    assert low[0, 2] < exact < high[0, 2]


def test_hit_rates_are_those_of_the_kept_scores(three):
    _, _, result = three
    expected = reference.hit_rates(result.scores.dense(), result.scores.clusters, 3)
    np.testing.assert_allclose(result.hit_rate, expected, atol=1e-12)
    np.testing.assert_allclose(result.divergence("tv"), result.tvd)
    with pytest.raises(InputError, match="name must be one of tv, lecam, js"):
        result.divergence("kl")


def test_every_observation_is_scored_once(three):
    X, labels, result = three
    assert np.array_equal(np.sort(result.scores.rows), np.arange(len(X)))
    assert np.array_equal(labels[result.scores.rows], result.scores.clusters)
    assert result.n_heldout.tolist() == [100, 100, 100]


def test_holdout_counts_only_its_share(three):
    X, labels, _ = three
    result = quick(X, labels, cv=0.2)
    assert result.scores.n_folds == 1
    assert result.n_heldout.tolist() == [20, 20, 20]
    assert result.stderr[0, 1] > three[2].stderr[0, 1]


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6), k=st.integers(2, 5), loss=st.sampled_from(["softmax", "pairwise"])
)
def test_symmetry_range_and_invariance(seed, k, loss):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 12, k)
    labels = np.repeat(np.arange(k), sizes)
    X = rng.standard_normal((len(labels), 3)) + labels[:, None]
    result = quick(X, labels, loss=loss)
    for matrix in (result.tvd, result.p_value, result.divergence("lecam"), result.stderr):
        assert np.array_equal(matrix, matrix.T)
        assert matrix.min() >= 0
        assert matrix.max() <= 1
    assert (np.diag(result.tvd) == 0).all()
    # Other names, other order of the names, other order of the rows: the same numbers.
    names = np.array([f"cluster {c}" for c in rng.permutation(k)])
    shuffled = rng.permutation(len(labels))
    other = quick(X[shuffled], names[labels[shuffled]], loss=loss)
    where = np.searchsorted(other.cluster_ids, names)
    assert np.array_equal(other.tvd[np.ix_(where, where)], result.tvd)
    assert np.array_equal(other.p_value[np.ix_(where, where)], result.p_value)
    assert np.array_equal(np.sort(shuffled[other.scores.rows]), np.sort(result.scores.rows))


def test_no_divergence_depends_on_the_order_of_the_rows(three):
    X, labels, _ = three
    shuffled = np.random.default_rng(0).permutation(len(labels))
    one, other = quick(X, labels), quick(X[shuffled], labels[shuffled])
    for name in DIVERGENCES:
        np.testing.assert_array_equal(other.divergence(name), one.divergence(name), name)


def test_global_random_state_is_left_alone(three):
    X, labels, _ = three
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    quick(X, labels)
    quick(X, labels, random_state=None)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


def test_random_state_kinds(three):
    X, labels, _ = three
    for make in (np.random.default_rng, np.random.RandomState):
        same = [quick(X, labels, epochs=1, random_state=make(3)).hit_rate for _ in range(2)]
        assert np.array_equal(*same)


def test_noise_and_missing_labels_are_left_out_and_reported():
    X, labels = gaussians([[0, 0], [3, 0]], 20)
    named = np.array(["a", "b"], object)[labels]
    named[:3], named[3] = "-1", None
    result = quick(X, named)
    assert result.n_noise == 4
    assert result.sizes.tolist() == [16, 20]
    assert result.cluster_ids.tolist() == ["a", "b"]
    assert not np.isin(result.scores.rows, [0, 1, 2, 3]).any()
    assert "4 noise observations left out" in repr(result)


def test_cluster_of_one_is_flagged_not_fatal():
    X, labels = gaussians([[0, 0], [3, 0], [9, 9]], 30)
    keep = np.r_[:61]
    with pytest.warns(SmallClusterWarning, match=r"1 of 3 clusters have one observation \(2\)"):
        result = quick(X[keep], labels[keep])
    assert result.too_small.tolist() == [False, False, True]
    assert np.isfinite(result.tvd).all()
    assert np.isfinite(result.stderr).all()
    assert (result.p_value[2] == 1).all()
    low, high = result.confidence_interval()
    # Its own side is unknown, so half of the accuracy may be anything.
    assert (high - low)[2, 0] >= 0.5
    assert result.hit_rate[2, 0] == 0.5
    assert "1 clusters too small" in repr(result)


def test_all_clusters_of_one_still_give_an_answer_without_evidence():
    X, _ = gaussians([[0, 0]], 6)
    with pytest.warns(SmallClusterWarning):
        result = quick(X, np.arange(6))
    assert (result.tvd == 0).all()
    assert (result.p_value == 1).all()


@pytest.mark.parametrize("cv", ["auto", 0.2])
def test_clusters_of_two_and_three(cv):
    X, labels = gaussians([[0, 0], [5, 0], [0, 5]], 3)
    result = quick(X[1:], labels[1:], cv=cv)
    assert np.isfinite(result.tvd).all()
    assert not result.too_small.any()


def test_sparse_input_gives_what_dense_input_gives():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 60)
    X = rng.poisson(np.array([[0.2, 1, 2], [2, 0.2, 1], [1, 2, 0.2]])[labels]).astype(float)
    dense = quick(X, labels)
    sparse = quick(scipy.sparse.csr_matrix(X), labels, backbone="mlp")
    np.testing.assert_allclose(sparse.tvd, dense.tvd, atol=0.05)


def test_large_common_offset_does_not_matter():
    X, labels = gaussians([[0, 0], [3, 0]], 100)
    plain = quick(X, labels, epochs=20)
    moved = quick(X + 1e9, labels, epochs=20)
    # Other folds, so not the same number; in plain float32 nothing would be left of X.
    assert moved.tvd[0, 1] == pytest.approx(plain.tvd[0, 1], abs=0.15)


def test_own_module_is_copied_not_trained(three):
    X, labels, _ = three
    module = nn.Sequential(nn.Linear(2, 16), nn.Tanh())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    result = quick(X, labels, backbone=module, epochs=20)
    assert result.tvd[0, 2] > 0.7
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_progress_callback_and_bar(three, monkeypatch):
    X, labels, _ = three
    seen = []
    quick(X, labels, progress=seen.append)
    assert [record.epoch for record in seen] == [0, 1, 2]
    shown = io.StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    quick(X, labels, progress=True)
    assert "training" in shown.getvalue()


def test_the_library_is_silent_by_default(three, capsys):
    quick(three[0], three[1])
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


BAD = {
    "lengths that differ": (
        lambda X, y: (X, y[:-1]),
        {},
        "X has 300 observations but labels has 299; pass one label for each row of X",
    ),
    "NaN": (lambda X, y: (np.where(X > 2, np.nan, X), y), {}, "values that are NaN, infinite"),
    "infinity": (lambda X, y: (np.where(X > 2, np.inf, X), y), {}, "NaN, infinite"),
    "one cluster": (lambda X, y: (X, y * 0), {}, r"labels hold only one cluster \(0\)"),
    "all noise": (lambda X, y: (X, y * 0 - 1), {}, "every label is noise"),
    "empty array": (lambda X, y: (X[:0], y[:0]), {}, r"X is empty \(shape \(0, 2\)\)"),
    "text": (lambda X, y: (np.full(X.shape, "a"), y), {}, "X must hold numbers, got"),
    "one-dimensional": (lambda X, y: (X[:, 0], y), {}, r"got shape \(300,\); reshape it"),
    "cv": (lambda X, y: (X, y), {"cv": 1}, "cv must be a number of folds .*, got 1;"),
    "a share": (lambda X, y: (X, y), {"cv": 1.5}, "cv must be .* a share to hold out .* got 1.5"),
    "loss": (lambda X, y: (X, y), {"loss": "hinge"}, "loss must be one of pairwise, softmax"),
    "epochs": (lambda X, y: (X, y), {"epochs": 0}, "epochs must be a whole number .* got 0"),
    "backbone": (lambda X, y: (X, y), {"backbone": "vgg"}, "backbone must be .* got 'vgg'"),
    "device": (lambda X, y: (X, y), {"device": "tpu9"}, 'device="tpu9" cannot be used here'),
    "random_state": (lambda X, y: (X, y), {"random_state": "x"}, "random_state must be .* got 'x'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_clear_sentence(case, three):
    change, arguments, message = BAD[case]
    X, labels = change(three[0], three[1])
    with pytest.raises(InputError, match=message) as caught:
        quick(X, labels, **arguments)
    assert "\n" not in str(caught.value)


def test_backbone_of_the_wrong_shape_is_refused(three):
    with pytest.raises(InputError, match=r"turned \(2, 2\) into \(2, 1, 2\); flatten"):
        quick(three[0], three[1], backbone=nn.Unflatten(1, (1, 2)))


def test_backbone_for_other_features_is_refused(three):
    with pytest.raises(InputError, match=r"cannot take a batch of shape \(2, 2\): mat1 and mat2"):
        quick(three[0], three[1], backbone=nn.Linear(5, 3))


def test_large_clusters_held_out_once_have_the_known_distances():
    means = np.array([[0.0, 0.0], [1.0, 0.0], [2.5, 0.0], [2.5, 0.0]])
    X, labels = gaussians(means, 6000, random_state=0)
    result = pairwise_tvd(X, labels, random_state=0)
    assert (result.n_heldout == 200).all()
    apart = np.linalg.norm(means[:, None] - means, axis=2)
    truth = 2 * norm.cdf(apart / 2) - 1
    pairs = np.triu_indices(4, 1)
    assert np.abs(result.tvd - truth)[pairs].max() < 0.15  # three standard errors
    low, high = result.confidence_interval()
    # The network may be a little worse than the best classifier, never better.
    assert ((low <= truth) & (truth <= high + 0.05))[pairs].all()
    assert result.p_value[2, 3] > 0.001


def test_more_folds_than_observations():
    X, labels = gaussians([[0, 0], [5, 0]], 2)
    result = quick(X, labels, cv=10)
    assert np.isfinite(result.tvd).all()
    assert result.n_heldout.tolist() == [2, 2]


def test_repr_names_the_closest_pairs_first(three):
    text = repr(three[2])
    assert text.startswith("PairwiseTVD: 3 clusters, 3 pairs, 300 of 300 held out in 5 folds")
    assert f"closest 0–1 {three[2].tvd[0, 1]:.2f}" in text


def test_too_many_clusters_say_how_much_memory_they_need():
    n = 400_000
    with pytest.raises(InputError, match=r"400,000 clusters .* would need about [\d,.]+ GiB"):
        quick(np.arange(n, dtype=float)[:, None], np.arange(n), form="dense")


def test_result_is_frozen(three):
    _, _, result = three
    with pytest.raises(ValueError, match="read-only"):
        result.tvd[0, 1] = 0.5
    with pytest.raises(AttributeError):
        result.n_noise = 3


def test_save_and_load_give_the_same_result(three, tmp_path):
    _, _, result = three
    path = tmp_path / "pairs.npz"
    result.save(path, scores=True)
    again = PairwiseTVD.load(path)
    for name in ("cluster_ids", "tvd", "stderr", "p_value", "p_adjusted", "n_heldout"):
        assert np.array_equal(getattr(again, name), getattr(result, name)), name
    assert np.array_equal(again.divergence("overlap"), result.divergence("overlap"))
    assert np.array_equal(again.history.accuracy, result.history.accuracy)
    assert repr(again) == repr(result)
    assert {file.name for file in tmp_path.iterdir()} == {"pairs.npz", "pairs.scores.npz"}


def test_without_scores_everything_about_the_distances_is_saved(three, tmp_path):
    _, _, result = three
    path = tmp_path / "pairs.npz"
    result.save(path)
    assert list(tmp_path.iterdir()) == [path]
    again = PairwiseTVD.load(path)
    assert (again.has_scores, result.has_scores) == (False, True)
    assert repr(again) == repr(result)
    expected, found = result.table(), again.table()
    assert list(found) == list(expected)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    turned, order = again.reordered(np.array([2, 0, 1])), [2, 0, 1]
    assert np.array_equal(turned.stderr, result.stderr[np.ix_(order, order)])
    assert np.array_equal(turned.scores.counts, result.scores.counts[:, order])
    again.save(tmp_path / "more.npz")
    assert (tmp_path / "more.npz").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "use",
    [
        lambda result, path: result.divergence("lecam"),
        lambda result, path: unsplit.merge(result),
        lambda result, path: unsplit.merge(result, n_clusters=2),
        lambda result, path: result.save(path, scores=True),
    ],
)
def test_what_needs_the_scores_says_how_to_keep_them(three, tmp_path, use):
    path = tmp_path / "pairs.npz"
    three[2].save(path)
    with pytest.raises(InputError, match=r"without the held-out scores.*scores=True.*--also sc"):
        use(PairwiseTVD.load(path), tmp_path / "other.npz")
    assert list(tmp_path.iterdir()) == [path]


def test_a_loaded_result_without_scores_can_be_copied(three, tmp_path):
    three[2].save(tmp_path / "pairs.npz")
    again = PairwiseTVD.load(tmp_path / "pairs.npz")
    for twin in (copy.deepcopy(again), pickle.loads(pickle.dumps(again))):
        assert repr(twin) == repr(again)


def test_scores_of_other_distances_are_not_used(three, tmp_path):
    X, labels, result = three
    path = tmp_path / "pairs.npz"
    quick(X, labels, random_state=7).save(path, scores=True)
    result.save(path)
    with pytest.raises(InputError, match="without the held-out scores"):
        PairwiseTVD.load(path).divergence("js")
    # Saving the same distances again leaves their scores in use.
    result.save(path, scores=True)
    PairwiseTVD.load(path).save(path)
    assert np.array_equal(PairwiseTVD.load(path).divergence("js"), result.divergence("js"))


def test_failed_save_leaves_the_old_file(three, tmp_path, monkeypatch):
    path = tmp_path / "pairs.npz"
    path.write_text("precious")

    def broken(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", broken)
    with pytest.raises(OSError, match="disk full"):
        three[2].save(path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_load_refuses_other_files(tmp_path):
    other = tmp_path / "other.npz"
    np.savez(other, a=np.arange(3))
    text = tmp_path / "text.npz"
    text.write_text("hello")
    for path in (other, text):
        with pytest.raises(InputError, match=r"is not a PairwiseTVD saved by unsplit"):
            PairwiseTVD.load(path)
    with pytest.raises(FileNotFoundError):
        PairwiseTVD.load(tmp_path / "missing.npz")


def test_frame_has_one_row_per_pair_closest_first(three):
    _, _, result = three
    frame = result.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == 3
    assert frame.loc[0, ["cluster_a", "cluster_b"]].tolist() == [0, 1]
    assert frame["tvd"].is_monotonic_increasing
    assert (frame["low"] <= frame["tvd"]).all()
    assert (frame["tvd"] <= frame["high"]).all()


def test_interval_level_is_checked(three):
    with pytest.raises(InputError, match="level must be between 0 and 1, got 95"):
        three[2].confidence_interval(95)


def test_mean_accuracy_is_the_mean_of_the_upper_triangle(three):
    _, _, result = three
    accuracy = result.balanced_accuracy
    expected = accuracy[np.triu_indices(len(accuracy), 1)].mean()
    assert result.mean_accuracy == pytest.approx(expected)


def test_mean_accuracy_without_batches_makes_no_matrix_of_their_numbers(three):
    fresh = replace(three[2])
    assert fresh.mean_accuracy == three[2].mean_accuracy
    assert "n_batches" not in vars(fresh)


def test_no_warnings_on_ordinary_data(three):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quick(three[0].astype(np.float32), three[1].astype(str))
    assert caught == []
