"""Lower bounds on Wasserstein distances against distances that are known."""

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.spatial.distance import cdist
from scipy.stats import chi, expon, wasserstein_distance

from tests.wasserstein_cases import clusters_at, normal
from unsplit import MergeTree, merge
from unsplit.errors import InputError
from unsplit.pairwise import lipschitz_maps
from unsplit.pairwise.lipschitz_maps import pairwise_wasserstein
from unsplit.pairwise.wasserstein import FORMAT, PairwiseWasserstein

# Known distances.


def check_against(result, truth, shortfall=0.0, off=3.0):
    """Below the truth by no more than a share of it, but for chance; above it by chance alone."""
    upper = np.triu_indices(len(truth), 1)
    distance, stderr, truth = result.distance[upper], result.stderr[upper], truth[upper]
    assert (distance <= truth + off * stderr).all()
    assert (distance >= (1 - shortfall) * truth - off * stderr).all()
    assert (stderr < 0.25 * truth.max()).all()


def test_translations_of_one_distribution():
    shifts = np.array([[0, 0, 0], [2, 0, 0], [0, -1, 3], [4, 4, 4]])
    X, labels = clusters_at(shifts, 250, lambda rng, shape: rng.exponential(1.0, shape), seed=1)
    result = pairwise_wasserstein(X, labels, cv=3, epochs=5, random_state=0)
    check_against(result, cdist(shifts, shifts))


def test_gaussians_with_one_covariance():
    means = np.array([[0, 0], [1, 0], [3, 4]])
    mix = np.array([[2.0, 0.5], [0.0, 0.3]])
    X, labels = clusters_at(means, 200, lambda rng, shape: rng.standard_normal(shape) @ mix)
    result = pairwise_wasserstein(X, labels, cv=3, epochs=5, random_state=0)
    check_against(result, cdist(means, means))


def test_distributions_on_a_line_against_scipy():
    rng = np.random.default_rng(0)
    shapes = [
        lambda n: rng.uniform(-2, 2, n),
        lambda n: rng.standard_normal(n) * 0.3 + rng.choice([-2, 2], n),
        lambda n: rng.exponential(1.0, n) - 1,
        lambda n: rng.standard_normal(n) + 1.5,
    ]
    X = np.concatenate([shape(200) for shape in shapes])[:, None]
    large = [shape(20_000) for shape in shapes]
    truth = np.array([[wasserstein_distance(a, b) for b in large] for a in large])
    result = pairwise_wasserstein(X, np.repeat(range(4), 200), cv=2, n_maps=8, random_state=0)
    check_against(result, truth, shortfall=0.1)


@pytest.mark.parametrize("d", [1, 20])
def test_gaussians_around_one_centre(d):
    scales = np.array([0.5, 1.0, 2.5])
    X, labels = clusters_at(np.zeros((3, d)), 150, normal)
    X *= scales[labels, None]
    result = pairwise_wasserstein(X, labels, cv=3, epochs=8, n_maps=8, random_state=0)
    # Stretching moves x by |s − t|·|x| / s, straight away from the centre: no way is shorter.
    truth = np.abs(scales[:, None] - scales) * chi(d).mean()
    check_against(result, truth, shortfall=0.1)
    means = np.array([X[labels == i].mean(0) for i in range(3)])
    assert result.distance[0, 2] > 3 * np.linalg.norm(means[0] - means[2])


def test_stretched_and_shifted_at_once():
    rng = np.random.default_rng(0)
    sample = rng.standard_normal((300, 5))
    X = np.concatenate([sample[:150], 2 * sample[150:] + [1, 2, 0, 0, 0]])
    result = pairwise_wasserstein(X, np.repeat([0, 1], 150), cv=3, epochs=8, random_state=0)
    # One point stays where it is, all others move straight away from it.
    moved = np.array([1, 2, 0, 0, 0]) + rng.standard_normal((10_000, 5))
    truth = np.linalg.norm(moved, axis=1).mean()
    check_against(result, np.array([[0, truth], [truth, 0]]), shortfall=0.1)


def test_closed_form_of_exponentials():
    # W1 of exponentials on a line is the difference of their means, and all pairs want f(x) = x.
    X = np.concatenate([expon(scale=s).rvs(300, random_state=s) for s in (1, 2, 4)])[:, None]
    result = pairwise_wasserstein(X, np.repeat([1, 2, 4], 300), cv=2, epochs=3, random_state=0)
    check_against(result, np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0.0]]))


def test_one_distribution_cut_at_random_is_near_zero():
    rng = np.random.default_rng(0)
    result = pairwise_wasserstein(
        rng.standard_normal((400, 2)), rng.integers(0, 5, 400), cv=3, epochs=5, random_state=0
    )
    assert (result.distance <= 3 * result.stderr).all()
    assert result.distance.min() == 0
    assert (result.distance[np.triu_indices(5, 1)] == 0).any()  # cut off
    assert result.history[-1] > 3 * result.distance.mean()  # training rows would say otherwise


# What does not matter, and what does.


@pytest.fixture(scope="module")
def three():
    X, labels = clusters_at([[0, 0], [0, 0], [2, 1]], 40, normal)
    X[labels == 1] *= 3
    return X, labels, pairwise_wasserstein(X, labels, cv=2, epochs=3, random_state=0)


def test_result_is_a_symmetric_table_of_bounds(three):
    _, _, result = three
    for matrix in (result.distance, result.stderr):
        np.testing.assert_array_equal(matrix, matrix.T)
        np.testing.assert_array_equal(np.diag(matrix), 0.0)
        assert (matrix >= 0).all()
    np.testing.assert_array_equal(result.cluster_ids, [0, 1, 2])
    np.testing.assert_array_equal(result.n_heldout, [40, 40, 40])
    assert result.history.shape == (4,)
    with pytest.raises(ValueError, match="read-only"):
        result.distance[0, 1] = 0.0


def test_order_of_rows_and_names_do_not_matter(three):
    X, labels, result = three
    mixed = np.random.default_rng(1).permutation(len(X))
    names = np.array(["c", "a", "b"])
    again = pairwise_wasserstein(X[mixed], names[labels[mixed]], cv=2, epochs=3, random_state=0)
    assert list(again.cluster_ids) == ["a", "b", "c"]
    old = np.array([1, 2, 0])  # a was 1, b was 2, c was 0
    np.testing.assert_allclose(again.distance, result.distance[np.ix_(old, old)], rtol=1e-6)
    np.testing.assert_allclose(again.stderr, result.stderr[np.ix_(old, old)], rtol=1e-6)


def test_unit_and_origin_of_x_carry_over(three, monkeypatch):
    X, labels, _ = three
    # Other numbers would come in another order, and so in other folds.
    as_given = lambda keys, clusters: (np.arange(len(keys)), clusters)  # noqa: E731
    monkeypatch.setattr(lipschitz_maps, "canonical_order", as_given)
    one, other = (
        pairwise_wasserstein(values, labels, cv=2, epochs=3, random_state=0)
        for values in (X, 1024 * X + 4096)
    )
    np.testing.assert_allclose(other.distance, 1024 * one.distance, rtol=1e-3)
    np.testing.assert_allclose(other.stderr, 1024 * one.stderr, rtol=1e-3)
    np.testing.assert_allclose(other.history, 1024 * one.history, rtol=1e-3)


def test_features_keep_their_own_scale():
    X, labels = clusters_at([[0, 0], [0, 4]], 60, normal)
    one, other = (
        pairwise_wasserstein(X * factor, labels, cv=2, epochs=2, random_state=0).distance[0, 1]
        for factor in ([1, 1], [1, 10])
    )
    assert other == pytest.approx(10 * one, rel=0.05)


def test_same_seed_same_result_and_nobody_elses_randomness(three):
    X, labels, result = three
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    again = pairwise_wasserstein(X, labels, cv=2, epochs=3, random_state=0)
    np.testing.assert_array_equal(again.distance, result.distance)
    np.testing.assert_array_equal(before[0], np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(before[1], torch.get_rng_state())
    other = pairwise_wasserstein(X, labels, cv=2, epochs=3, random_state=1)
    assert (other.distance[0] != result.distance[0]).any()


def test_noise_is_left_out_and_sparse_is_dense(three):
    X, labels, result = three
    X = np.concatenate([X, 100 + np.zeros((5, 2))])
    sparse = scipy.sparse.csr_matrix(X)
    with_noise = np.append(labels, [-1] * 5)
    again = pairwise_wasserstein(sparse, with_noise, cv=2, epochs=3, random_state=0)
    np.testing.assert_allclose(again.distance, result.distance, rtol=1e-6)


def test_nothing_is_claimed_about_a_cluster_of_one():
    X, labels = clusters_at([[0, 0], [5, 0]], 20, normal)
    X, labels = np.concatenate([X, [[50.0, 50.0]]]), np.append(labels, 2)
    result = pairwise_wasserstein(X, labels, cv=2, epochs=2, random_state=0)
    np.testing.assert_array_equal(result.distance[2], 0.0)
    np.testing.assert_array_equal(result.stderr[2], [np.inf, np.inf, 0.0])
    np.testing.assert_array_equal(result.n_heldout, [20, 20, 0])
    assert 3 < result.distance[0, 1] < 7


def test_clusters_of_two_that_share_a_fold_are_compared():
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    result = pairwise_wasserstein(X, [0, 0, 1, 1], cv=2, epochs=1, random_state=0)
    assert result.distance[0, 1] == pytest.approx(10, abs=1.01)
    assert np.isfinite(result.stderr).all()


def test_more_folds_than_rows_and_rows_all_the_same_do_no_harm():
    result = pairwise_wasserstein(np.ones((6, 2)), [0, 0, 0, 1, 1, 1], cv=8, epochs=1)
    np.testing.assert_array_equal(result.distance, 0.0)


# Files, tables and merging.


def test_save_and_load_give_the_same_result(three, tmp_path):
    _, _, result = three
    result.save(tmp_path / "distances.npz")
    again = PairwiseWasserstein.load(tmp_path / "distances.npz")
    for name, array in vars(result).items():
        found = getattr(again, name)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)
    assert [path.name for path in tmp_path.iterdir()] == ["distances.npz"]


def test_names_survive_saving(tmp_path):
    names = np.repeat(["β cell", "α cell"], 10)
    X = np.random.default_rng(0).standard_normal((20, 2))
    result = pairwise_wasserstein(X, names, cv=2, epochs=1, random_state=0)
    result.save(tmp_path / "distances.npz")
    again = PairwiseWasserstein.load(tmp_path / "distances.npz")
    assert again.cluster_ids.tolist() == ["α cell", "β cell"]


def test_load_refuses_other_files_in_a_sentence(three, tmp_path):
    _, _, result = three
    text = tmp_path / "notes.txt"
    text.write_text("hello", "utf-8")
    with pytest.raises(
        InputError, match=r"notes\.txt is not a PairwiseWasserstein saved by unsplit"
    ):
        PairwiseWasserstein.load(text)
    result.save(tmp_path / "distances.npz")
    with pytest.raises(InputError, match=rf"format '{FORMAT}'.*MergeTree"):
        MergeTree.load(tmp_path / "distances.npz")


def test_table_and_frame_list_the_closest_pairs_first(three):
    _, _, result = three
    table, frame = result.table(), result.to_frame()
    assert list(table) == ["cluster_a", "cluster_b", "distance", "stderr", "n_a", "n_b"]
    assert (np.diff(table["distance"]) >= 0).all()
    for name, column in table.items():
        np.testing.assert_array_equal(frame[name], column)
    pairs = table["cluster_a"], table["cluster_b"]
    np.testing.assert_array_equal(table["distance"], result.distance[pairs])
    assert f"{table['cluster_a'][0]}–{table['cluster_b'][0]}" in repr(result)


def test_merge_keeps_names_and_sizes():
    X, labels = clusters_at([[0, 0], [20, 0], [0, 0.1]], 30, normal)
    names = np.array(["b", "a", "c"])[labels]
    X, names = X[:-5], names[:-5]
    result = pairwise_wasserstein(X, names, cv=2, epochs=2, random_state=0)
    tree = merge(result, n_clusters=2)
    assert tree.mapping == {"a": 0, "b": 1, "c": 1}
    assert tree.sizes.tolist() == [30, 30, 25]
    assert tree.merges[0].statistic == result.distance[1, 2]
    assert tree.labels(names).tolist() == [{"a": 0}.get(name, 1) for name in names]
    assert merge(result, n_clusters=2, constraints={"must_link": [("a", "c")]}).mapping == {
        "a": 0,
        "b": 1,
        "c": 0,
    }
    # Heights are distances in the unit of X.
    assert merge(result, n_clusters=1).cut(height=10).n_clusters == 2


@pytest.mark.parametrize(
    "options", [{}, {"max_tvd": 0.5}, {"alpha": 0.05}, {"rank_by": "tv", "n_clusters": 2}]
)
def test_merge_says_what_wasserstein_distances_cannot_do(three, options):
    with pytest.raises(InputError, match=r"PairwiseWasserstein.*unit of X.*n_clusters"):
        merge(three[2], **options)


def test_clusters_that_could_not_be_compared_are_not_merged_as_if_close():
    X, labels = clusters_at([[0, 0], [5, 0]], 20, normal)
    X, labels = np.concatenate([X, [[50.0, 50.0]]]), np.append(labels, 2)
    result = pairwise_wasserstein(X, labels, cv=2, epochs=2, random_state=0)
    assert result.comparable.tolist() == [[True, True, False]] * 2 + [[False, False, True]]
    assert np.isnan(result.table()["distance"][-2:]).all()
    with pytest.raises(InputError, match=r"distances.*cluster 2.*label.*-1"):
        merge(result, n_clusters=2)


def test_a_bar_is_shown_on_request(three, capsys):
    X, labels, result = three
    again = pairwise_wasserstein(X, labels, cv=2, epochs=3, random_state=0, progress=True)
    assert "3/3" in capsys.readouterr().err
    np.testing.assert_array_equal(again.distance, result.distance)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cv": 1}, "cv must be a whole number of at least 2, got 1; 5 is usual."),
        ({"cv": 2.5}, "cv must be a whole number of at least 2, got 2.5; 5 is usual."),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0."),
        ({"n_maps": 0}, "n_maps must be a whole number of at least 1, got 0."),
        ({"labels": [0, 0, 0, 0]}, "labels hold only one cluster (0), so there is no pair"),
        ({"labels": [0, 1]}, "X has 4 observations but labels has 2; pass one label for each"),
        ({"X": np.zeros(4)}, "X must be a table with one row per observation, got shape (4,)"),
        ({"X": [[0.0], [1], [2], [np.nan]]}, "observation 3 of X has values that are NaN"),
        ({"device": "abacus"}, 'device="abacus" cannot be used here'),
        ({"random_state": "x"}, "random_state must be a whole number of at least 0, a numpy"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(changed, message):
    given_ = {"X": [[0.0], [1.0], [2.0], [3.0]], "labels": [0, 0, 1, 1], **changed}
    with pytest.raises(InputError) as error:
        pairwise_wasserstein(given_.pop("X"), given_.pop("labels"), **given_)
    assert str(error.value).startswith(message)
