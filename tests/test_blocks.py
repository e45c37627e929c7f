"""Distances written block by block are those in memory."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import unsplit
from tests.merging_cases import gaussian_estimate
from unsplit.cli.program import main
from unsplit.pairwise.result import write_tvd

CENTRES = [[0, 0], [0.3, 0], [3, 0], [3, 2], [9, 0]]


@pytest.fixture(scope="module")
def estimate():
    return gaussian_estimate(CENTRES, 40)[0]


@pytest.mark.parametrize("tile", [2048, 3, 2, 1])
def test_blocks_of_any_size_give_the_same(estimate, tile, tmp_path, monkeypatch):
    monkeypatch.setattr("unsplit.pairwise.result.ROWS_AT_ONCE", tile)
    write_tvd(tmp_path / "tvd.npy", estimate)
    found = np.load(tmp_path / "tvd.npy", mmap_mode="r")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, estimate.tvd, atol=1e-6)
    np.testing.assert_array_equal(found, found.T)


def test_distances_without_scores_are_written_from_memory(estimate, tmp_path):
    estimate.save(tmp_path / "distances.npz")
    loaded = unsplit.PairwiseTVD.load(tmp_path / "distances.npz")
    assert not loaded.has_scores
    write_tvd(tmp_path / "tvd.npy", loaded)
    np.testing.assert_allclose(np.load(tmp_path / "tvd.npy"), estimate.tvd, atol=1e-6)


def test_batches_and_single_observations(tmp_path):
    X, labels = unsplit.datasets.gaussians(CENTRES, 20, random_state=0)
    batch = np.arange(len(X)) % 2
    fast = {"cv": 2, "training": unsplit.TrainConfig(epochs=2), "random_state": 0, "device": "cpu"}
    result = unsplit.pairwise_tvd(X, labels, batch=batch, **fast)
    write_tvd(tmp_path / "tvd.npy", result)
    np.testing.assert_allclose(np.load(tmp_path / "tvd.npy"), result.tvd, atol=1e-6)
    labels[0] = 99
    with pytest.warns(unsplit.errors.SmallClusterWarning):
        result = unsplit.pairwise_tvd(X, labels, **fast)
    write_tvd(tmp_path / "tvd.npy", result)
    np.testing.assert_allclose(np.load(tmp_path / "tvd.npy"), result.tvd, atol=1e-6)


def test_the_command_writes_the_matrix(tmp_path):
    X, labels = unsplit.datasets.gaussians(CENTRES, 20, random_state=0)
    np.savez(tmp_path / "x.npz", X=X, cluster=labels)
    out = tmp_path / "out"
    given = ["distances", str(tmp_path / "x.npz"), "--labels", "cluster", "--out", str(out)]
    done = CliRunner().invoke(main, [*given, "--also", "matrix", "--epochs", "2", "--cv", "2"])
    assert done.exit_code == 0, done.output
    loaded = unsplit.PairwiseTVD.load(out / "distances.npz")
    np.testing.assert_allclose(np.load(out / "tvd.npy"), loaded.tvd, atol=1e-6)
    assert "tvd.npy" in json.loads((out / "distances.json").read_text())["files"]
