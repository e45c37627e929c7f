"""The benchmarks of data without structure, of rare groups and of verdicts."""

import json
import sys

import numpy as np
import pytest

import unsplit
from benchmarks import calibration, one_and_ten, results_file, small_groups
from benchmarks.one_and_ten import DIMENSIONS, KINDS, TEN, Run, draw, exists

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", [*KINDS, TEN])
def test_data_have_their_shape_and_follow_the_seed(kind):
    d = next(d for d in DIMENSIONS if exists(kind, d))
    first, again, other = (draw(Run(kind, d, "k-means", seed, False)) for seed in (0, 0, 1))
    assert first.shape == (one_and_ten.N, d)
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_kinds_are_what_they_are_called():
    X = {kind: draw(Run(kind, 5, "", 0, False)) for kind in KINDS if kind != "bars"}
    assert np.corrcoef(X["correlated"].T)[0, 1] == pytest.approx(0.9, abs=0.02)
    assert np.linalg.norm(X["ring"][:, :2], axis=1).std() == pytest.approx(0.1, abs=0.02)
    assert X["ring"][:, 2:].std() == pytest.approx(0.1, abs=0.01)
    assert (X["poisson"] == X["poisson"].round()).all()
    bars = draw(Run("bars", 2, "", 0, False))
    assert ((bars[:, 0] < 1) | (bars[:, 1] < 1)).all()
    assert bars.max(axis=0) == pytest.approx([3, 4], abs=0.1)


def test_runs_are_resumed_and_counted(tmp_path, monkeypatch, capsys):
    results = tmp_path / "x.jsonl.gz"
    line = Run("gaussian", 2, "k-means", 0, True)._asdict() | {"found": 3}
    results_file.add(results, line)
    choice = ["--kinds", "gaussian", "bars", "--dimensions", "2", "--ways", "k-means"]
    more = ["--graph-only", "--runs", "1", "--workers", "1", "--results", str(results)]
    monkeypatch.setattr(sys, "argv", ["one_and_ten", *choice, *more])
    one_and_ten.main()
    assert len(results_file.read(results)) == 2  # the Gaussian was there
    out = capsys.readouterr().out
    assert "| gaussian, 2-d | 0 of 1 | 3 (1, k-means) |" in out
    assert "| bars, 2-d | 1 of 1 |  |" in out


def test_rare_groups_are_far_apart():
    case = small_groups.rare_groups(6, np.random.default_rng(0))
    assert np.bincount(case.y).tolist() == [300] * 4 + [6] * 3
    assert len(np.unique(case.clusters)) == 23
    centres = np.stack([case.X[case.y == g].mean(axis=0) for g in range(7)])
    distances = np.linalg.norm(centres[:, None] - centres, axis=2)
    assert distances[np.triu_indices(7, 1)].min() > 35
    pairs = small_groups.forty_pairs(np.random.default_rng(0))
    assert np.bincount(pairs.clusters).tolist() == [5] * 80


def test_a_pair_is_judged_by_the_majorities_of_both_sides():
    distances = 0.9 * (1 - np.eye(4))
    distances[[0, 1], [1, 0]] = 0.1
    tree = unsplit.merge(distances, n_clusters=3)
    clusters = np.repeat([0, 1, 2, 3], 4)
    y = np.array([0, 0, 0, 1, 0, 0, 1, -1, 1, 1, 1, 0, -1, -1, -1, -1])
    found = list(calibration.pairs_of(tree, clusters, y))
    merged = [pair["same"] for pair in found if pair["done"] == "merged"]
    assert merged == [True]
    # Cluster 3 is all noise, so no pair with it counts; 2 belongs to another group.
    assert not any(pair["same"] for pair in found if pair["done"] != "merged")
    assert len(found) <= 2
    assert json.loads(json.dumps(found)) == found


def test_the_table_counts_what_is_right(capsys):
    line = {"half": "held back", "verdict": "different"}
    calibration.print_calibration([line | {"same": True}, line | {"same": False}])
    assert "| held back | different | 2 | 1 | 0.500 |" in capsys.readouterr().out
