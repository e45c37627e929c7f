"""Saved results are read, cut, reviewed, tabulated and plotted where torch cannot be imported."""

import json
import pickle

import numpy as np
import pytest

import unsplit
from tests.checks import run_without_torch
from tests.merging_cases import gaussian_estimate


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An estimate and its merge tree, and the folder where both are saved."""
    folder = tmp_path_factory.mktemp("saved")
    names = ["left", "left too", "right", "far"]
    result, _ = gaussian_estimate([[0], [0.2], [3], [8]], 60, names=names)
    tree = unsplit.merge(result)
    result.save(folder / "distances.npz", scores=True)
    tree.save(folder / "tree.npz")
    return result, tree, folder


LABELS = ["left", "far", "right", "left too", "far"]
# One process for all: it starts in seconds.
PROGRAM = f"""
import json, sys
import matplotlib
import numpy as np
import unsplit
folder = FOLDER
distances = unsplit.PairwiseTVD.load(folder + "/distances.npz")
tree = unsplit.MergeTree.load(folder + "/tree.npz")
names = ["tvd", "stderr", "p_value", "p_adjusted", "balanced_accuracy", "hit_rate"]
found = {{name: getattr(distances, name).tolist() for name in names}}
found["interval"] = [end.tolist() for end in distances.confidence_interval()]
found["repr"] = repr(distances)
found["table"] = {{name: column.tolist() for name, column in distances.table().items()}}
distances.save(folder + "/again.npz", scores=True)
frames = distances.to_frame(), tree.to_frame(), tree.review()
found["frames"] = [list(frame.shape) for frame in frames]
cut = tree.cut(n_clusters=2)
labels = {LABELS}
found["tree"] = [tree.labels(labels).tolist(), cut.labels(labels).tolist(), cut.n_clusters]
found["tree"] += [repr(tree), tree.linkage.tolist(), list(tree.review()), tree.undo(0).n_clusters]
found["merged"] = unsplit.merge(distances.tvd, n_clusters=2).groups.tolist()
matplotlib.use("Agg")
files = unsplit.plots.save_figures(folder + "/figures", tree, distances)
found["figures"] = sorted(file.name for file in files)
try:
    distances.divergence("lecam")
except ImportError as error:
    found["refused"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(saved):
    """What was found where torch cannot be imported."""
    for package in ("pandas", "matplotlib"):
        pytest.importorskip(package)
    return json.loads(run_without_torch(PROGRAM.replace("FOLDER", repr(str(saved[2])))))


def test_the_estimate_is_the_same(saved, found):
    result, _, folder = saved
    for name in ("tvd", "stderr", "p_value", "p_adjusted", "balanced_accuracy", "hit_rate"):
        assert np.array_equal(found[name], getattr(result, name)), name
    assert np.array_equal(found["interval"], result.confidence_interval())
    assert found["repr"] == repr(result)
    assert found["table"] == {name: column.tolist() for name, column in result.table().items()}
    again = unsplit.PairwiseTVD.load(folder / "again.npz")
    assert np.array_equal(again.p_value, result.p_value)
    assert np.array_equal(again.divergence("lecam"), result.divergence("lecam"))


def test_data_frames_are_made(saved, found):
    result, tree, _ = saved
    frames = result.to_frame(), tree.to_frame(), tree.review()
    assert found["frames"] == [list(frame.shape) for frame in frames]


def test_the_tree_is_cut_and_reviewed(saved, found):
    _, tree, _ = saved
    cut = tree.cut(n_clusters=2)
    expected = [tree.labels(LABELS).tolist(), cut.labels(LABELS).tolist(), 2, repr(tree)]
    expected += [tree.linkage.tolist(), list(tree.review()), tree.undo(0).n_clusters]
    assert found["tree"] == expected


def test_a_matrix_is_merged_and_figures_are_drawn(saved, found):
    assert found["merged"] == unsplit.merge(saved[0].tvd, n_clusters=2).groups.tolist()
    assert found["figures"] == ["dendrogram.png", "distances.png", "merge_curve.png"]


def test_what_needs_torch_says_so(found):
    assert "torch" in found["refused"]


def test_p_values_are_saved(tmp_path):
    result, _ = gaussian_estimate([[0], [1], [5]], 20)
    path = tmp_path / "distances.npz"
    result.save(path)
    again = unsplit.PairwiseTVD.load(path)
    assert np.array_equal(again.p_value, result.p_value)
    assert not again.p_value.flags.writeable


def test_estimators_and_results_can_be_pickled(saved):
    result, tree, _ = saved
    merger = pickle.loads(pickle.dumps(unsplit.ClusterMerger(cv=3)))
    assert merger.get_params()["cv"] == 3
    assert type(merger) is unsplit.ClusterMerger
    assert np.array_equal(pickle.loads(pickle.dumps(result)).tvd, result.tvd)
    assert pickle.loads(pickle.dumps(tree)).n_clusters == tree.n_clusters
