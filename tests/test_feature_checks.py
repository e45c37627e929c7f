"""Warnings of features that drown all others or are no measurements, and what scaling does."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

import unsplit
from unsplit import ClusterMerger, InputError
from unsplit.cli.outputs import about_run
from unsplit.cli.program import main
from unsplit.data.rows.kinds import dominant, warn_of_scales
from unsplit.errors import FeatureWarning, LabelsWarning

WINE = load_wine()
CLUSTERS = KMeans(6, n_init=1, random_state=0).fit_predict(
    StandardScaler().fit_transform(WINE.data)
)


def test_raw_measurements_in_different_units_are_noticed():
    assert [WINE.feature_names[j] for j in dominant(WINE.data)] == ["proline"]
    names = load_breast_cancer().feature_names
    found = dominant(load_breast_cancer().data)
    assert [str(names[j]) for j in found] == ["worst area", "mean area"]


def test_one_unscaled_column_among_scaled_ones_is_noticed():
    scaled = StandardScaler().fit_transform(load_breast_cancer().data)
    age = np.random.default_rng(0).integers(20, 80, len(scaled))
    assert dominant(np.column_stack([scaled, age])).tolist() == [30]


@pytest.mark.parametrize(
    "X",
    [
        StandardScaler().fit_transform(WINE.data),
        PCA().fit_transform(WINE.data),
        PCA(30).fit_transform(load_digits().data)[::3],
        load_digits().data,
        np.ones((50, 4)),
        np.arange(50.0)[:, None],
        np.array([[1.0, 1000.0]] * 3),
    ],
    ids=["scaled", "components", "some rows of components", "pixels", "constant", "one", "few"],
)
def test_what_needs_no_scaling_is_left_alone(X):
    assert len(dominant(X)) == 0


def test_every_row_of_a_long_table_is_not_needed():
    X = np.random.default_rng(0).normal([0, 0, 0, 9e3], [1, 1, 1, 99], size=(60_000, 4))
    with pytest.warns(FeatureWarning, match="^age holds most of the variance of all 4 features"):
        warn_of_scales(X, ["red", "green", "blue", "age"])


def fitted(X, **how):
    return ClusterMerger(training=unsplit.TrainConfig(epochs=2), cv=2, random_state=0).fit(X, **how)


@pytest.mark.filterwarnings("ignore::unsplit.errors.PartitionWarning")
def test_the_estimator_names_the_column():
    frame = pd.DataFrame(WINE.data, columns=WINE.feature_names)
    with pytest.warns(FeatureWarning, match="column 'proline' of X holds most.*StandardScaler"):
        fitted(frame, initial_labels=CLUSTERS)
    with pytest.warns(FeatureWarning, match="column 12 of X holds"):
        fitted(WINE.data, initial_labels=CLUSTERS)


def test_the_column_of_the_clusters_is_noticed_among_the_features():
    frame = pd.DataFrame(StandardScaler().fit_transform(WINE.data), columns=WINE.feature_names)
    frame["leiden"] = pd.Categorical(CLUSTERS.astype(str))
    with pytest.warns(FeatureWarning, match="column 'leiden' of X has one value in each cluster"):
        fitted(frame, initial_labels=frame["leiden"])


@pytest.mark.filterwarnings("ignore::unsplit.errors.SmallClusterWarning")
def test_labels_passed_as_y_are_not_ignored_in_silence():
    X = StandardScaler().fit_transform(WINE.data)
    with pytest.warns(LabelsWarning, match="^y is never used.*pass your own clusters as initial_l"):
        fitted(X, y=CLUSTERS)
    with pytest.warns(LabelsWarning, match="^y is never used"):
        ClusterMerger(training=unsplit.TrainConfig(epochs=1), cv=2).fit_predict(X, CLUSTERS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LabelsWarning)
        fitted(X, y=WINE.target, initial_labels=CLUSTERS)
        merger = ClusterMerger(
            training=unsplit.TrainConfig(epochs=2), cv=2, random_state=0, overclusterer=KMeans(5)
        )
        merger.fit(X, WINE.target)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "wine.csv"
    frame = pd.DataFrame(WINE.data, columns=WINE.feature_names)
    frame.assign(cluster=CLUSTERS).to_csv(path, index=False)
    return path


def test_reading_scales_a_table_if_asked_to(table):
    with pytest.warns(FeatureWarning, match="column 'proline' of .*wine.csv holds most.*--scale"):
        plain = unsplit.read(table, "cluster").X
    scaled = unsplit.read(table, "cluster", scale=True).X
    np.testing.assert_allclose(scaled, StandardScaler().fit_transform(plain), atol=1e-12)


def test_a_constant_column_is_scaled_to_zero(tmp_path):
    path = tmp_path / "data.csv"
    pd.DataFrame({"x": np.arange(12.0) ** 2, "one": 1.0}).to_csv(path, index=False)
    assert (unsplit.read(path, scale=True).X[:, 1] == 0).all()


def test_the_command_scales_and_remembers_it(table, tmp_path):
    out = tmp_path / "merged"
    command = ["merge", str(table), "--labels", "cluster", "--scale", "--out", str(out)]
    run = CliRunner().invoke(main, [*command, "--epochs", "2", "--cv", "2", "--seed", "0"])
    assert run.exit_code == 0, run.output
    result = json.loads((out / "result.json").read_text())
    assert result["scale"] is True
    assert " --scale " in about_run(result)["command"]
    assert "variance" not in run.output


@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_a_matrix_is_not_scaled(tmp_path, ending):
    path = tmp_path / f"data{ending}"
    save = {".npy": np.save, ".npz": lambda p, X: np.savez(p, X=X)}[ending]
    save(path, WINE.data)
    with pytest.raises(InputError, match=r"is not a table, so .* scale could be about"):
        unsplit.read(path, scale=True)
