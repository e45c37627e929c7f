"""Classifiers of scikit-learn in the place of a network."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import unsplit
from benchmarks.classifiers import families
from tests.checks import about, exactly
from tests.cli_cases import merge, read_csv, read_json, succeeds, write_data
from unsplit import ClusterMerger, InputError, PairwiseTVD, datasets, pairwise_tvd
from unsplit.data.labels import Parts
from unsplit.data.rows.kinds import VectorRows
from unsplit.devices import private_randomness
from unsplit.networks.backbones.classifiers import Classifier, ClassifierNetwork
from unsplit.networks.registry import CLASSIFIERS, build_network, recipe_for
from unsplit.networks.training.group import Fold
from unsplit.networks.training.loop import Training
from unsplit.pairwise.heldout_scores import Trained, best_of, heldout_scores
from unsplit.selection import Candidate

CPU = torch.device("cpu")
QUICK = {"device": "cpu", "random_state": 0}


@pytest.fixture(scope="module")
def four():
    return datasets.gaussians([[0, 0], [0, 0], [1.5, 0], [6, 0]], 40, random_state=1)


def slow_hit_rate(model, result, X, y):
    """Share of the held-out rows of i that the model of their fold scores higher for i than j."""
    scores, k = result.scores, result.n_clusters
    hits = np.full((k, k), np.nan)
    found = np.full((len(X), k), np.nan)
    for fold in range(scores.n_folds):
        test = np.sort(scores.rows[scores.folds == fold])
        train_rows = np.setdiff1d(np.arange(len(X)), test)
        scale = StandardScaler().fit(X[train_rows])
        fitted = clone(model).fit(scale.transform(X[train_rows]), y[train_rows])
        found[test] = fitted.predict_log_proba(scale.transform(X[test]))
    for i in range(k):
        margins = found[y == i, i][:, None] - found[y == i]
        hits[i] = ((margins > 0) + 0.5 * (margins == 0)).mean(axis=0)
    return hits


# --- the estimate is that of the classifier ----------


@pytest.mark.parametrize("model", [GaussianNB(), CLASSIFIERS["lda"], LogisticRegression()])
@pytest.mark.parametrize("k", [2, 4])
def test_hit_rates_are_those_of_a_slow_loop(four, model, k):
    X, y = (part[: 40 * k] for part in four)
    X = X + np.array([100.0, 0.0])
    result = pairwise_tvd(X, y, backbone=model, cv=4, **QUICK)
    expected = slow_hit_rate(model, result, X, y)
    off = ~np.eye(k, dtype=bool)
    np.testing.assert_allclose(result.hit_rate[off], expected[off], atol=1e-12)


OF_MANY_KINDS = {
    "probabilities": GaussianNB(),
    "zeros among them": DecisionTreeClassifier(),
    "no weights": KNeighborsClassifier(9),
    "decisions alone": LinearSVC(),
    "a pipeline": make_pipeline(PolynomialFeatures(2), RidgeClassifier()),
}


@pytest.mark.parametrize("case", OF_MANY_KINDS)
@pytest.mark.parametrize("k", [2, 4])
def test_classifiers_of_many_kinds_tell_far_clusters_apart(four, case, k):
    X, y = four
    some = np.isin(y, [0, 3]) if k == 2 else y >= 0
    result = pairwise_tvd(X[some], y[some], backbone=OF_MANY_KINDS[case], **QUICK)
    assert result.tvd[0, -1] > (0.6 if case == "zeros among them" else 0.9)
    assert np.isfinite(result.scores.dense()).all()
    assert result.history.epoch.tolist() == [0]
    assert np.isfinite([*result.history.loss, *result.history.accuracy]).all()
    if k == 4:
        assert result.tvd[0, 1] < 0.4
        assert result.p_value[0, 1] > 0.05 > result.p_value[0, 3]


@pytest.mark.parametrize("model", [LinearDiscriminantAnalysis(), GaussianNB(), LinearSVC()])
def test_unequal_sizes_move_no_boundary(model):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [1800, 200])
    x = torch.from_numpy(rng.standard_normal(2000) + 2.0 * y).float()[:, None]
    with private_randomness(0):
        classifier = Classifier(model)
    classifier.fit(x, y)
    line = torch.linspace(-1, 3, 4001)[:, None]
    scores = classifier(line)
    boundary = line[(scores[:, 1] > scores[:, 0]).int().argmax()]
    assert float(boundary) == pytest.approx(1.0, abs=0.15)


def test_priors_of_the_user_are_taken_off():
    X, y = datasets.gaussians([[0.0], [2.0]], 100)
    x, middle = torch.from_numpy(X).float(), torch.linspace(0, 2, 50)[:, None]
    found = []
    for priors in (None, [0.9, 0.1]):
        with private_randomness(0):
            classifier = Classifier(LinearDiscriminantAnalysis(priors=priors))
        classifier.fit(x, y)
        scores = classifier(middle)
        found.append(scores[:, 1] - scores[:, 0])
    torch.testing.assert_close(*found, atol=1e-3, rtol=1e-3)


def test_before_the_fit_all_clusters_tie():
    X, y = datasets.gaussians([[0.0], [5.0]], 20)
    with private_randomness(0):
        classifier = Classifier(GaussianNB())
    network = ClassifierNetwork(torch.nn.Identity(), classifier, 2, 100)
    x = torch.from_numpy(X).float()
    assert torch.equal(network(x), torch.zeros(40, 2))
    classifier.fit(x, y)
    assert network(x).argmax(dim=1).tolist() == y.tolist()


def test_clusters_of_one_and_two_give_no_warning():
    X, y = datasets.gaussians([[0, 0], [4, 0], [8, 0], [12, 0]], 12)
    kept = np.r_[0:24, 24:26, 36]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", unsplit.errors.SmallClusterWarning)
        result = pairwise_tvd(X[kept], y[kept], backbone="lda", **QUICK)
    assert result.too_small.tolist() == [False, False, False, True]


# --- seeds and orders ----------


def test_a_seed_decides_and_nothing_else_is_touched(four):
    X, y = four
    forest = RandomForestClassifier(5)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one, same = (pairwise_tvd(X, y, backbone=forest, cv=2, **QUICK).tvd for _ in range(2))
    other = pairwise_tvd(X, y, backbone=forest, cv=2, device="cpu", random_state=1).tvd
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    assert not hasattr(forest, "classes_")
    assert forest.random_state is None


@pytest.mark.parametrize("backbone", ["lda", RandomForestClassifier(5)])
def test_order_of_rows_and_names_of_clusters_change_nothing(four, backbone):
    X, y = four
    order = np.random.default_rng(0).permutation(len(X))
    names = np.array(["d", "a", "c", "b"])
    plain = pairwise_tvd(X, y, backbone=backbone, cv=2, **QUICK)
    other = pairwise_tvd(X[order], names[y[order]], backbone=backbone, cv=2, **QUICK)
    back = [other.cluster_ids.tolist().index(name) for name in names]
    assert np.array_equal(plain.tvd, other.tvd[np.ix_(back, back)])


# --- everything after it ----------


def test_merging_predicting_and_saving(four, tmp_path):
    X, y = four
    merger = ClusterMerger(3, backbone=GaussianNB(), checkpoint=tmp_path / "kept", **QUICK)
    merger = clone(merger).fit(X, initial_labels=y)
    assert merger.backbone_ == "GaussianNB"
    assert merger.labels_[[0, 40, 80, 120]].tolist() == [0, 0, 1, 2]
    assert merger.predict([[0, 0], [6, 0]]).tolist() == [0, 2]
    assert len(merger.refined_labels_) == len(X)
    assert not (tmp_path / "kept").exists()
    merger.pairwise_.save(tmp_path / "d.npz", scores=True)
    read = PairwiseTVD.load(tmp_path / "d.npz")
    assert np.array_equal(read.tvd, merger.tvd_)
    assert np.array_equal(read.scores.dense(), merger.pairwise_.scores.dense())


def test_batches_and_sparse_rows(four):
    X, y = four
    batch = np.arange(len(X)) % 2
    shifted = X + 30.0 * batch[:, None]
    result = pairwise_tvd(shifted, y, batch=batch, backbone="lda", **QUICK)
    assert result.tvd[0, 1] < 0.4 < 0.9 < result.tvd[0, 3]
    sparse = scipy.sparse.csr_array(np.round(X))
    found = pairwise_tvd(sparse, y, backbone="lda", **QUICK)
    dense = pairwise_tvd(np.round(X), y, backbone="lda", **QUICK)
    np.testing.assert_allclose(found.tvd, dense.tvd, atol=0.1)


def test_candidates_of_select(four):
    X, y = four
    found = unsplit.select(
        X, y, ["lda", GaussianNB(), "mlp"], training=unsplit.TrainConfig(epochs=3), **QUICK
    )
    assert {trial.name for trial in found.trials} == {"lda", "GaussianNB", "mlp"}
    epochs = {trial.name: trial.epochs for trial in found.trials}
    assert (epochs["lda"], epochs["GaussianNB"]) == (1, 1)
    pairwise_tvd(X, y, **found.settings, cv=2, **QUICK)


def test_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data()
    options = ("--backbone", "select")
    succeeds(merge(*options))
    assert read_json("out/result.json")["settings"]["backbone"] in ("auto", "single-layer")
    assert len(read_csv("out/candidates.csv")["candidate"]) == 5


# --- the best ----------


def trained(four, names):
    """The clusters, the folds and the candidates of these names, all trained."""
    X, y = four
    rows = VectorRows(X, CPU)
    part = np.arange(len(X)) % 2 == 0
    folds = [Fold(np.flatnonzero(a), np.flatnonzero(~a), np.flatnonzero(~a)) for a in (part, ~part)]
    found = []
    for name in names:
        recipe = recipe_for(name, rows)
        with private_randomness(0):
            networks = [build_network(rows, fold, recipe, 4, "softmax") for fold in folds]
            rng = np.random.default_rng(0)
            config = unsplit.TrainConfig(epochs=3).over(recipe.training)
            training = Training(networks, rows, torch.from_numpy(y), folds, config, rng)
            scores, history = heldout_scores(training, Parts.cut(y))
        found.append(Trained(str(name), recipe.training, networks, scores, history))
    return (rows, Parts.cut(y), folds), found


def chosen_of(given, candidates):
    with private_randomness(0):
        return best_of(candidates, *given)


def test_the_other_folds_choose_and_the_first_of_equals(four):
    given, (poor, lda) = trained(four, [DecisionTreeClassifier(max_depth=1), "lda"])
    assert chosen_of(given, [poor, lda]) is lda
    assert chosen_of(given, [lda, lda]).scores is lda.scores


def test_folds_that_choose_differently_keep_the_scores_of_their_choice(four):
    given, (mlp, lda) = trained(four, ["mlp", "lda"])
    rows, _, folds, *_ = given
    # Fold 0 is judged by the rows of fold 1, and the other way round.
    one = replace(mlp, name="one", networks=[mlp.networks[0], untrained(rows, folds[1])])
    other = replace(lda, name="other", networks=[untrained(rows, folds[0]), lda.networks[1]])
    blind = chosen_of(given, [one, other])
    assert blind.name == "one and other"
    assert np.ptp(blind.scores.dense(), axis=1).max() == 0  # the untrained ones were chosen


def untrained(rows, fold):
    with private_randomness(0):
        return build_network(rows, fold, recipe_for("lda", rows), 4, "softmax")


def test_best_is_closer_than_the_network_where_few_features_differ():
    name = "Gaussians, 2 of 50 features"
    (X, y), exact = next(family[1:] for family in families(30, 0) if family[0] == name)
    merger = ClusterMerger(backbone="best", training=unsplit.TrainConfig(epochs=5), **QUICK).fit(
        X, initial_labels=y
    )
    plain = pairwise_tvd(X, y, training=unsplit.TrainConfig(epochs=5), **QUICK)
    upper = np.triu_indices(len(exact), 1)
    error, other = (np.abs(tvd - exact)[upper].mean() for tvd in (merger.tvd_, plain.tvd))
    assert error < other - 0.1
    assert not set(merger.backbone_.split(" and ")) & {"mlp", "mlp with less weight decay"}
    assert merger.predict(X[:3]).shape == (3,)


# --- errors ----------

SEQUENCES = [np.zeros((3, 2)), np.zeros((4, 2))] * 4
REFUSED = {
    "not for sequences": (
        {"backbone": GaussianNB()},
        SEQUENCES,
        'backbone "GaussianNB" is for vectors, but X holds sequences; use "resnet1d".',
    ),
    "the best, neither": (
        {"backbone": "best"},
        SEQUENCES,
        'backbone "best" is for vectors, but X holds sequences; use "resnet1d".',
    ),
    "a regressor": (
        {"backbone": LinearRegression()},
        None,
        "backbone must be … a scikit-learn classifier with predict_proba or decision_function, got "
        "LinearRegression().",
    ),
    "options of networks": (
        {"backbone": "lda", "training": unsplit.TrainConfig(patience=3)},
        None,
        "patience is for networks, and backbone 'lda' is none, or chooses among several; leave "
        'patience out, or name a network such as "mlp".',
    ),
    "a loss": (
        {"backbone": "best", "training": unsplit.TrainConfig(loss="pairwise")},
        None,
        "loss is for networks, …",
    ),
    "changes": (
        {"backbone": "lda", "training": unsplit.TrainConfig(augment=torch.nn.Dropout())},
        None,
        "augment is for …",
    ),
    "what it cannot take": (
        {"backbone": MultinomialNB()},
        None,
        "backbone MultinomialNB could not be fitted to … standardised observations of 2 features "
        "(Negative values in data …); change its parameters or use another.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_in_one_sentence(four, case):
    options, X, sentence = REFUSED[case]
    X, y = four if X is None else (X, [0, 0, 0, 0, 1, 1, 1, 1])
    with pytest.raises(InputError, match=about(sentence)):
        pairwise_tvd(X, y, **options, **QUICK)


def test_scores_of_another_shape_are_refused():
    class Ones(GaussianNB):
        def predict_proba(self, X):
            return np.ones((len(X), 1))

    X, y = datasets.gaussians([[0.0], [5.0]], 20)
    with private_randomness(0):
        classifier = Classifier(Ones())
    classifier.fit(torch.from_numpy(X), y)
    sentence = "backbone Ones could not be applied to 40 standardised … (it gave … (40, 1) …"
    with pytest.raises(InputError, match=about(sentence)):
        classifier(torch.from_numpy(X))


def test_a_candidate_has_no_settings_of_networks():
    with pytest.raises(InputError, match=about("learning_rate is for networks, …")):
        Candidate("lda", unsplit.TrainConfig(learning_rate=0.1))
    sentence = 'backbone "best" is itself a choice; name what to choose from.'
    X, y = datasets.gaussians([[0.0], [5.0]], 20)
    with pytest.raises(InputError, match=exactly(sentence)):
        unsplit.select(X, y, ["best"], **QUICK)
