"""ClusterMerger as a scikit-learn estimator."""

import pickle
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from unsplit import ClusterMerger, InputError, TrainConfig, datasets, merge
from unsplit.overclustering import artificial

QUICK = {"cv": 2, "training": TrainConfig(epochs=3), "device": "cpu", "random_state": 0}


# scikit-learn's checks of sparse input take whatever has predict_proba for a classifier of two or
# four classes; test_predict_is_the_same_for_a_sparse_matrix checks what a clusterer should do.
ONLY_FOR_CLASSIFIERS = dict.fromkeys(
    ("check_estimator_sparse_array", "check_estimator_sparse_matrix"),
    "the check reads the classifier tags of every estimator with predict_proba",
)


@parametrize_with_checks(
    [ClusterMerger(n_clusters=3, training=TrainConfig(epochs=1), cv=2, device="cpu")],
    expected_failed_checks=lambda _: ONLY_FOR_CLASSIFIERS,
)
@pytest.mark.filterwarnings(
    "ignore::unsplit.errors.SmallClusterWarning",
    "ignore::unsplit.errors.LabelsWarning",
    "ignore:Can.t check dok",
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def halves():
    """Three far Gaussians, each cut in two at random."""
    centres = np.repeat([[0, 0], [9, 0], [0, 9]], 2, axis=0)
    return datasets.gaussians(centres, 60, random_state=0)


@pytest.fixture(scope="module")
def merger(halves):
    X, labels = halves
    return ClusterMerger(**QUICK | {"training": TrainConfig(epochs=30)}).fit(
        X, initial_labels=labels
    )


def test_halves_are_found(merger, halves):
    _, labels = halves
    assert merger.n_clusters_ == 3
    assert adjusted_rand_score(labels // 2, merger.labels_) == 1.0
    assert merger.labels_.dtype == np.int64
    assert np.array_equal(merger.initial_labels_, labels)


def test_fitted_attributes_agree(merger):
    k = 6
    assert merger.tvd_.shape == (k, k)
    assert merger.linkage_.shape == (k - 1, 4)
    assert np.array_equal(merger.linkage_, merger.tree_.linkage)
    pd.testing.assert_frame_equal(merger.review_, merger.tree_.review())
    assert merger.review_["done"].tolist() == merger.tree_.review_table()["done"]
    assert merger.n_iter_ == len(merger.history_.epoch) > 0
    assert merger.pairwise_.n_clusters == k
    assert merger.n_clusters_ == merger.tree_.n_clusters == len(np.unique(merger.labels_))


def test_predict_finds_the_cluster_of_new_observations(merger):
    X, labels = datasets.gaussians([[0, 0], [9, 0], [0, 9]], 50, random_state=1)
    predicted = merger.predict(X)
    at_centres = merger.predict([[0, 0], [9, 0], [0, 9]])
    assert len(set(at_centres)) == 3
    assert np.array_equal(predicted, at_centres[labels])


SPARSE = [scipy.sparse.csr_array, scipy.sparse.csr_matrix, scipy.sparse.coo_array]


@pytest.mark.parametrize("sparse", SPARSE)
def test_predict_is_the_same_for_a_sparse_matrix(merger, sparse):
    X = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [3.0, 4.0]])
    assert np.array_equal(merger.predict(X), merger.predict(sparse(X)))
    assert np.array_equal(merger.predict_proba(X), merger.predict_proba(sparse(X)))


@pytest.mark.parametrize("sparse", SPARSE)
def test_fit_on_a_sparse_matrix(sparse):
    X = np.random.default_rng(0).poisson(0.5, (60, 10)).astype(float)
    X[30:, :3] += 5
    merger = ClusterMerger(2, **QUICK).fit(sparse(X))
    assert merger.predict(sparse(X)).shape == (60,)
    found = merger.predict_proba(sparse(X))
    assert found.shape == (60, 2)
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_without_pandas_only_the_frame_is_missing(merger, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert merger.tree_.review_table()["done"].count("merged") == 3
    with pytest.raises(ImportError, match=r"pip install unsplit\[tables\]"):
        _ = merger.review_


def test_an_unfitted_merger_has_no_review():
    assert not hasattr(ClusterMerger(), "review_")


def test_probabilities_sum_to_one_and_agree_with_predict(merger):
    X, _ = datasets.gaussians([[0, 0], [9, 0], [0, 9], [4, 4]], 50, random_state=1)
    found = merger.predict_proba(X)
    assert found.shape == (200, 3)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    assert np.array_equal(found.argmax(axis=1), merger.predict(X))
    assert found[:150].max(axis=1).mean() > found[150:].max(axis=1).mean()


def test_where_scores_say_nothing_clusters_count_by_their_size(merger, monkeypatch):
    sizes = np.array([10, 20, 30, 40, 50, 60])
    monkeypatch.setattr(merger, "pairwise_", replace(merger.pairwise_, sizes=sizes))
    tie = SimpleNamespace(log_posterior=lambda X: np.zeros((len(X), 6)))
    monkeypatch.setattr(merger, "_fitted", tie)
    expected = np.bincount(merger.tree_.groups, sizes) / sizes.sum()
    np.testing.assert_allclose(merger.predict_proba([[0.0, 0.0]])[0], expected)


def test_probabilities_match_known_posteriors():
    # Two unit Gaussians two apart, one of them in two halves: P(first | x) is logistic in x.
    X, labels = datasets.gaussians([[0.0], [0.0], [2.0]], 300, random_state=0)
    merger = ClusterMerger(
        2, constraints={"must_link": [(0, 1)]}, cv=2, device="cpu", random_state=0
    )
    merger.fit(X, initial_labels=labels)
    x = np.linspace(-1, 3, 9)[:, None]
    odds = np.exp(2 * x[:, 0] - 2) / 2
    np.testing.assert_allclose(merger.predict_proba(x)[:, 1], odds / (1 + odds), atol=0.1)


def test_probabilities_of_images():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 20)
    images = rng.random((60, 8, 8)) + (labels == 2)[:, None, None]
    merger = ClusterMerger(2, backbone="single-layer", **QUICK)
    merger.fit(images, initial_labels=labels)
    found = merger.predict_proba(images[:7])
    assert found.shape == (7, 2)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert np.array_equal(found.argmax(axis=1), merger.predict(images[:7]))


def test_prediction_is_not_swayed_by_a_far_origin(halves):
    X, labels = halves
    far = ClusterMerger(**QUICK | {"training": TrainConfig(epochs=20)}).fit(
        X + 1e6, initial_labels=labels
    )
    assert len(set(far.predict(np.array([[0, 0], [9, 0], [0, 9]]) + 1e6))) == 3


def test_larger_clusters_get_the_doubtful_observations():
    # One density, cut 9 to 1: everywhere the larger part is more probable.
    X = np.random.default_rng(0).standard_normal((500, 2))
    labels = (np.arange(500) % 10 == 0).astype(int)
    merger = ClusterMerger(2, **QUICK).fit(X, initial_labels=labels)
    larger = merger.tree_.mapping[0]
    assert (merger.predict(X) == larger).mean() > 0.9


def test_noise_stays_noise_and_names_may_be_strings(halves):
    X, labels = halves
    named = np.array([f"c{label}" for label in labels], object)
    named[::7] = None
    merger = ClusterMerger(3, **QUICK).fit(X, initial_labels=named)
    assert (merger.labels_[::7] == -1).all()
    assert (np.delete(merger.labels_, np.arange(0, len(X), 7)) >= 0).all()
    assert set(merger.tree_.mapping) == {f"c{i}" for i in range(6)}


def test_truth_passed_as_y_changes_nothing(halves):
    X, labels = halves
    with_y = ClusterMerger(3, **QUICK).fit(X, labels // 3, initial_labels=labels)
    without = ClusterMerger(3, **QUICK).fit(X, initial_labels=labels)
    assert np.array_equal(with_y.labels_, without.labels_)
    assert np.array_equal(with_y.tvd_, without.tvd_)


def test_without_labels_the_overclusterer_is_cloned_and_used():
    X, _ = make_moons(300, noise=0.05, random_state=0)
    clusterer = KMeans(12, n_init=1)
    merger = ClusterMerger(2, overclusterer=clusterer, **QUICK)
    first, second = merger.fit_predict(X), clone(merger).fit_predict(X)
    assert not hasattr(clusterer, "labels_")
    assert len(np.unique(merger.initial_labels_)) == 12
    assert np.array_equal(first, second)


def test_in_a_pipeline():
    X, _ = make_moons(200, noise=0.05, random_state=0)
    pipeline = make_pipeline(StandardScaler(), ClusterMerger(2, **QUICK))
    assert len(np.unique(pipeline.fit_predict(X))) == 2
    assert pipeline.predict(X[:5]).shape == (5,)


def test_pickled_it_predicts_the_same_and_leaves_the_data_behind(merger, halves):
    X, _ = halves
    copy = pickle.loads(pickle.dumps(merger))
    assert np.array_equal(copy.predict(X), merger.predict(X))
    assert len(merger._fitted.rows) == 1


def test_a_merger_reports_without_arguments_until_it_is_loaded(merger, halves):
    X, labels = halves
    page = merger.report().html
    assert page == merger.tree_.report(merger.pairwise_, X, labels).html
    loaded = pickle.loads(pickle.dumps(merger))
    with pytest.raises(InputError, match=r"^X is required, because .*: merger\.report\(X\)\.$"):
        loaded.report()
    assert loaded.report(X).html == page
    with pytest.raises(InputError, match="labels"):
        loaded.report(X[:-1])
    assert merger.report(image_shape=(1, 2)).html != page


def test_the_page_of_a_data_frame_has_its_names():
    X, labels = datasets.gaussians([[0, 0, 0], [9, 0, 0]], 40, random_state=0)
    frame = pd.DataFrame(X, columns=["width", "height", "depth"])
    found = ClusterMerger(**QUICK).fit(frame, initial_labels=labels)
    assert '"width"' in found.report().html
    assert '"breadth"' in found.report(feature_names=["breadth", "b", "c"]).html


def test_neighbours_and_their_metric_reach_the_graph(halves):
    X, labels = halves
    graphs = [
        ClusterMerger(n_clusters=3, **how, **QUICK).fit(X, initial_labels=labels).neighbours_
        for how in ({}, {"n_neighbors": 5}, {"metric": "cosine"})
    ]
    usual, few, by_angle = graphs
    assert few.adjacency.nnz < usual.adjacency.nnz
    assert by_angle.metric == "cosine"
    assert (by_angle.adjacency != usual.adjacency).nnz > 0


def test_cosine_merges_embeddings_by_their_direction():
    rng = np.random.default_rng(0)
    angle = np.repeat([0.0, 1.5], 100) + rng.normal(0, 0.1, 200)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) * rng.uniform(0.5, 20, (200, 1))
    pieces = np.arange(200) // 100 * 2 + rng.integers(2, size=200)
    merger = ClusterMerger(metric="cosine", **QUICK)
    found = merger.fit_predict(X, initial_labels=pieces)
    assert adjusted_rand_score(pieces // 2, found) == 1.0


@pytest.mark.parametrize("rank_by", ["auto", "tv"])
def test_every_ranking_finds_the_halves(halves, rank_by):
    X, labels = halves
    merger = ClusterMerger(3, rank_by=rank_by, **QUICK | {"training": TrainConfig(epochs=15)})
    found = merger.fit_predict(X, initial_labels=labels)
    assert adjusted_rand_score(labels // 2, found) == 1.0
    assert merger.tree_.statistic in (rank_by, "lecam")


def test_split_digits_come_back_by_auto_and_alpha():
    X, digit = load_digits(n_class=5, return_X_y=True)
    labels = artificial(digit, 20, random_state=0)
    used = labels >= 0
    auto = ClusterMerger(random_state=0, device="cpu", cv=3).fit(X, initial_labels=labels)
    assert auto.n_clusters_ == 5
    assert adjusted_rand_score(digit[used], auto.labels_[used]) >= 0.99
    alpha = merge(auto.pairwise_, alpha=0.05)
    assert np.array_equal(alpha.groups, auto.tree_.groups)


def test_moons_cut_by_k_means_come_back_as_two():
    X, y = make_moons(600, noise=0.06, random_state=1)
    labels = KMeans(16, n_init=2, random_state=0).fit_predict(X)
    # No warning: only where a rule is given that cannot do.
    merger = ClusterMerger(**QUICK).fit(X, initial_labels=labels)
    assert merger.n_clusters_ == 2
    assert adjusted_rand_score(y, merger.labels_) >= 0.99
    two = merger.tree_.cut(n_clusters=2)
    assert adjusted_rand_score(y, two.labels(labels)) >= 0.99


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"n_clusters": 7}, "n_clusters must be a whole number from 1 to 6"),
        ({"alpha": 2}, "alpha must lie between 0 and 1"),
        ({"rank_by": "magic"}, "rank_by must be one of auto"),
        ({"cv": 1}, "cv must be a number of folds of at least 2"),
        ({"max_tvd": 0.1, "alpha": 0.1}, "max_tvd and alpha are two stopping rules; choose one"),
    ],
)
def test_bad_settings_are_sentences_at_fit(halves, wish, sentence):
    X, labels = halves
    merger = ClusterMerger(**QUICK | wish)
    with pytest.raises(InputError, match=sentence):
        merger.fit(X, initial_labels=labels)


def test_text_in_a_data_frame_is_named_with_its_place():
    frame = pd.DataFrame({"width": [1.0, 2.0, 3.0, 4.0], "colour": ["red", "red", "blue", "blue"]})
    with pytest.raises(InputError, match="got 'red' in row 0, column 'colour'; encode text"):
        ClusterMerger().fit(frame, initial_labels=[0, 0, 1, 1])
