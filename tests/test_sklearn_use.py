"""ClusterMerger among scikit-learn's and pandas' objects."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unsplit
from examples.grid_search import GRID, search, table
from unsplit import ClusterMerger, InputError
from unsplit.errors import InputWarning
from unsplit.overclustering import artificial

QUICK = {"training": unsplit.TrainConfig(epochs=4), "cv": 2, "device": "cpu", "random_state": 0}


@pytest.fixture(scope="module")
def wines():
    """The wines as a table with bottles as its index, and their types cut in two at random."""
    wine = load_wine(as_frame=True)
    bottles = pd.Index([f"W{i:03}" for i in range(len(wine.data))], name="bottle")
    X = ((wine.data - wine.data.mean()) / wine.data.std()).set_axis(bottles)
    labels = artificial(wine.target.to_numpy(), 20, 0.0, 0)
    return X, pd.Series(labels, index=bottles)


@pytest.fixture(scope="module")
def fitted(wines):
    X, labels = wines
    return ClusterMerger(3, **QUICK).set_output(transform="pandas").fit(X, initial_labels=labels)


# pandas


def test_tables_have_the_index_of_what_was_given(wines, fitted):
    X, labels = wines
    probability = fitted.transform(X)
    assert probability.index.equals(X.index)
    assert probability.columns.tolist() == [f"clustermerger{c}" for c in range(3)]
    np.testing.assert_array_equal(probability, fitted.predict_proba(X))
    merged = fitted.tree_.labels(labels)
    assert merged.index.equals(X.index)
    assert merged.name == "cluster"
    np.testing.assert_array_equal(merged, fitted.labels_)


def test_names_of_features_are_remembered(wines, fitted):
    X, _ = wines
    assert fitted.feature_names_in_.tolist() == X.columns.tolist()
    with pytest.raises(InputError, match="feature names should match"):
        fitted.predict(X[X.columns[::-1]])


@pytest.mark.parametrize("call", ["fit", "pairwise_tvd", "neighbour_graph", "select"])
def test_an_index_in_another_order_is_refused(call, wines):
    X, labels = wines
    name = "initial_labels" if call == "fit" else "labels"
    sentence = rf"^{name} has the index of X in another order; pass {name}\.loc\[X\.index\]\.$"
    turned = labels[::-1]
    merger = ClusterMerger(**QUICK)
    with pytest.raises(InputError, match=sentence):
        merger.fit(X, initial_labels=turned) if call == "fit" else getattr(unsplit, call)(X, turned)
    batch = pd.Series("a", index=X.index[::-1])
    with pytest.raises(InputError, match=r"^batch has the index of X in another order"):
        ClusterMerger(**QUICK).fit(X, initial_labels=labels, batch=batch)


def test_an_index_of_its_own_is_matched_by_position(wines, fitted):
    X, labels = wines
    again = ClusterMerger(3, **QUICK).fit(X, initial_labels=labels.reset_index(drop=True))
    np.testing.assert_array_equal(again.labels_, fitted.labels_)


# Pipelines and searches


def test_probabilities_are_features_for_a_next_step(wines):
    X, labels = wines
    steps = make_pipeline(StandardScaler(), ClusterMerger(3, **QUICK), LogisticRegression())
    steps.fit(X, load_wine().target, clustermerger__initial_labels=labels)
    assert steps.score(X, load_wine().target) > 0.9
    names = steps[:-1].get_feature_names_out()
    assert names.tolist() == [f"clustermerger{c}" for c in range(3)]


def test_a_search_needs_a_score_and_a_is_one(wines):
    X, labels = wines
    grid = {"backbone": ["mlp", "single-layer"]}
    with pytest.raises(TypeError, match="scoring"):
        GridSearchCV(ClusterMerger(**QUICK), grid).fit(X, initial_labels=labels)
    found = GridSearchCV(
        ClusterMerger(**QUICK),
        grid,
        scoring=lambda merger, X, y=None: merger.pairwise_.mean_accuracy,
        cv=[(np.arange(len(X)), np.arange(len(X)))],
    ).fit(X, initial_labels=labels)
    assert found.best_score_ == found.best_estimator_.pairwise_.mean_accuracy
    assert found.best_score_ == found.cv_results_["mean_test_score"].max()


def test_the_example_tries_the_whole_grid():
    rng = np.random.default_rng(0)
    digits = rng.normal(size=(120, 40)) + 4 * np.repeat(np.eye(3, 40), 40, axis=0)
    found = search(digits, np.repeat(np.arange(6), 20), epochs=2)
    rows = table(found)
    assert len(rows) == 1 + np.prod([len(values) for values in GRID.values()])
    scores = [float(row.split()[-1]) for row in rows[1:]]
    assert scores == sorted(scores, reverse=True)


# What people type


def test_a_profile_of_each_merged_cluster(wines, fitted):
    X, _ = wines
    table = X[["hue", "ash"]].assign(
        cellar=np.where(np.arange(len(X)) % 3, "north", "south"),
        sweet=X["proline"] > 0,
        bottled=pd.date_range("2001-02-03", periods=len(X)),
    )
    found = fitted.describe(table)
    assert found.index.tolist() == [0, 1, 2]
    assert found.columns.names == ["feature", "statistic"]
    for cluster in range(3):
        inside = table[fitted.labels_ == cluster]
        quartiles = found.loc[cluster, "hue"]
        assert quartiles.index.tolist() == ["25%", "50%", "75%"]
        np.testing.assert_allclose(
            quartiles.astype(float), inside["hue"].quantile([0.25, 0.5, 0.75])
        )
        assert found.loc[cluster, ("cellar", "north")] == (inside["cellar"] == "north").mean()
        assert found.loc[cluster, ("sweet", True)] == inside["sweet"].mean()
        assert found.loc[cluster, ("bottled", "50%")] == inside["bottled"].quantile(0.5)


def test_a_profile_without_noise_and_missing_values(wines):
    X, labels = wines
    labels = labels.where(np.arange(len(X)) % 10 > 0, -1)
    merger = ClusterMerger(3, **QUICK).fit(X, initial_labels=labels)
    table = pd.DataFrame({"hue": X["hue"], "id": X.index, "kind": ["u", None] * (len(X) // 2)})
    found = merger.describe(table.assign(hue=table["hue"].where(table["kind"] == "u")))
    inside = (merger.labels_ == 1) & (table["kind"] == "u")
    assert found.loc[1, ("hue", "50%")] == table["hue"][inside].median()
    assert found["kind"].columns.tolist() == ["u"]
    assert (found["kind"] == 1).all(axis=None)
    assert found["id"].shape == (3, 10)
    with pytest.raises(
        InputError, match="one row for each of the 178 observations of fit, got 177"
    ):
        merger.describe(table[1:])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda df, labels: ClusterMerger().fit(df, initial_labels="cluster"),
            "labels must be one label per observation, got the text 'cluster'; pass the column "
            "itself, such as df['cluster'], and leave it out of X.",
        ),
        (
            lambda df, labels: unsplit.merge(df, labels),
            "or merge observations with unsplit.ClusterMerger().fit(X, initial_labels=labels).",
        ),
        (
            lambda df, labels: unsplit.merge(df, labels=labels),
            "labels is no option here; "
            "write unsplit.ClusterMerger().fit(X, initial_labels=labels).",
        ),
        (
            lambda df, labels: ClusterMerger().fit(
                pd.DataFrame({"when": pd.date_range("2001-02-03", periods=len(df))}),
                initial_labels=labels,
            ),
            "X must hold numbers, got dates or durations of type datetime64[ns]; turn them into "
            "numbers first, for example days since the first date.",
        ),
        (
            lambda df, labels: ClusterMerger().fit(
                df.assign(kind=pd.Categorical(["u", "v"] * (len(df) // 2))), initial_labels=labels
            ),
            "X must hold numbers, got 'u' in row 0, column 'kind'; encode text, categories "
            "(pandas.get_dummies) and dates as numbers first, or leave such columns out.",
        ),
    ],
)
def test_what_people_type_is_answered_with_the_line_to_write(call, sentence, wines):
    with pytest.raises(InputError) as refusal:
        call(*wines)
    assert str(refusal.value).endswith(sentence)


def test_distances_passed_as_features_are_warned_of(wines):
    X, labels = wines
    far = np.linalg.norm(X.to_numpy()[:, None] - X.to_numpy(), axis=2)
    with pytest.warns(InputWarning, match="X is square and symmetric with zeros on its diagonal"):
        ClusterMerger(3, **QUICK).fit(far, initial_labels=labels)
    with pytest.warns(InputWarning, match="X is square and symmetric with zeros on its diagonal"):
        unsplit.pairwise_tvd(far, labels, cv=2, training=QUICK["training"])


def test_a_page_has_the_names_of_the_columns(wines, fitted):
    X, labels = wines
    page = fitted.tree_.report(fitted.pairwise_, X, labels).html
    assert '"proline"' in page
    assert "feature 0" not in page
