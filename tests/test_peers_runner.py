"""The benchmark itself: its grid, what it scores, that it goes on where it was, and its page."""

import json
from argparse import Namespace

import numpy as np
import pytest

from benchmarks.peers import __main__ as runner
from benchmarks.peers import page
from benchmarks.peers.grid import FACTORS, Cell, cells, initial_number
from benchmarks.peers.methods import FROM_SCRATCH, METHODS
from benchmarks.peers.scoring import scored
from benchmarks.peers.task import Outcome, Task

Y = np.repeat([0, 1], 6)
CLUSTERS = np.repeat([0, 1, 2, 3], 3)


def pairs_of(_):
    """Merges 0 with 1 and 2 with 3 by itself; cuts go from four clusters to one."""
    cut = {1: [0, 0, 0, 0], 2: [0, 0, 1, 1], 3: [0, 0, 1, 2], 4: [0, 1, 2, 3]}
    return {
        "pairs": Outcome(np.array(cut[3])[CLUSTERS], lambda n: np.array(cut[n])[CLUSTERS], True)
    }


def test_scores_of_a_tree():
    task = Task(np.zeros((12, 1)), CLUSTERS, 0)
    found = scored(pairs_of, task, Y)["pairs"]
    assert found["automatic"]["number"] == 3
    assert 0 < found["automatic"]["ari"] < 1
    assert found["given"] == found["best cut"] == {"ari": 1.0, "nmi": 1.0, "number": 2}
    assert found["seconds"] >= 0


def test_every_cell_once_and_scratch_once_for_all_overclusterings():
    grid = list(cells(["moons"], ["k-means", "birch"], list(METHODS), seeds=2))
    assert len({cell.key for cell in grid}) == len(grid)
    scratch = [cell for cell in grid if cell.work in FROM_SCRATCH]
    assert len(scratch) == 2 * len(FROM_SCRATCH)
    assert {cell.overclustering for cell in scratch} == {""}
    assert {c.factor for c in grid if c.overclustering == "birch"} == set(FACTORS)
    assert "confusion loop" not in {cell.work for cell in grid}
    slow = cells(["moons"], ["birch"], ["confusion loop"], slow=True)
    assert len(list(slow)) == len(FACTORS)


@pytest.mark.parametrize(("n_true", "number"), [(1, 20), (2, 20), (10, 40)])
def test_few_groups_are_cut_as_if_they_were_five(n_true, number):
    assert initial_number(n_true, 4.0) == number


def arguments(folder, minutes=1.0):
    return Namespace(results=folder, workers=1, minutes=minutes, data=folder)


def test_a_run_goes_on_where_it_was(tmp_path, capsys):
    grid = list(cells(["moons"], ["k-means"], ["centroid distance", "k-means"]))
    runner.work_off(grid[:3], arguments(tmp_path))
    known = {runner.key_of(line) for line in runner.lines(tmp_path)}
    assert known == {cell.key for cell in grid[:3]}
    line = next(runner.lines(tmp_path))
    assert (line["true"], line["n"]) == (2, 1000)
    assert "given" in line["scores"][line["work"]]


def test_what_fails_or_is_absent_does_not_end_the_benchmark(monkeypatch, tmp_path):
    def broken(task):
        raise ValueError("no")

    def missing(task):
        raise ImportError("pip install something")

    monkeypatch.setitem(METHODS, "k-means", broken)
    cell = Cell("moons", 0, "", 0.0, "k-means")
    assert runner.done(cell, tmp_path)["failed"] == "ValueError: no"
    monkeypatch.setitem(METHODS, "k-means", missing)
    assert runner.done(cell, tmp_path)["absent"] == "pip install something"


def line(problem, method, ari, overclustering="k-means", mode="automatic"):
    what = {"ari": ari, "nmi": ari, "number": 4}
    return {
        "problem": problem,
        "seed": 0,
        "overclustering": overclustering,
        "factor": 4.0 if overclustering else 0.0,
        "work": method,
        "true": 2,
        "scores": {method: {mode: what, "seconds": 1.0, "mebibytes": 100}},
    }


def test_page_compares_on_the_same_cells(tmp_path):
    found = [
        line("a", "unsplit", 0.9),
        line("b", "unsplit", 0.5),
        line("a", "SCCAF", 0.7),
        line("a", "HDBSCAN", 0.6, overclustering=""),
        line("b", "HDBSCAN", 0.4, overclustering=""),
    ]
    text = "\n".join(json.dumps(one) for one in found)
    (tmp_path / "x.jsonl").write_text(text, encoding="utf-8")
    scores = page.read_scores(tmp_path)
    table = page.overview(scores, "automatic").splitlines()[2:]
    rows = {row.split("|")[1].strip(): [c.strip() for c in row.split("|")[2:]] for row in table}
    assert rows["unsplit"][:3] == ["2", "0.700", "0.700"]
    assert rows["SCCAF"][:3] == ["1", "0.700", "0.900"]
    assert rows["HDBSCAN"][:3] == ["2", "0.500", "0.700"]
    assert rows["SCCAF"][4] == "2.00"
    by_data = page.by(scores, lambda s: s.problem, "data")
    assert "| a | 0.900 |  |  |  | SCCAF | 0.700 |" in by_data
    assert "| b | 0.500 |  |  |  | HDBSCAN | 0.400 |" in by_data


def test_page_says_what_a_setting_changes_and_where_the_best_cut_was_missed(tmp_path):
    found = [
        *(line(name, "unsplit", ari) for name, ari in zip("abc", (0.9, 0.5, 0.1), strict=True)),
        *(line(name, "unsplit, cv=3", ari) for name, ari in zip("ab", (0.8, 0.7), strict=True)),
    ]
    bounds = zip("abc", (0.9, 0.8, 0.2), strict=True)
    found += [line(name, "unsplit", ari, mode="best cut") for name, ari in bounds]
    text = "\n".join(json.dumps(one) for one in found)
    (tmp_path / "x.jsonl").write_text(text, encoding="utf-8")
    scores = page.read_scores(tmp_path)
    assert "| `cv=3` | 2 | +0.050 ± 0.150 |  |  |" in page.settings(scores)
    assert "cv=3" not in page.overview(scores, "automatic")
    rows = page.by(scores, lambda s: s.problem, "data").splitlines()[2:]
    assert [row.split("|")[5].strip() for row in rows] == ["0%", "75%", "25%"]
    assert "not knowing the number costs 21.1%" in page.summary(scores)
