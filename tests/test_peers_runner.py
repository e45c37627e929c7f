"""The benchmark itself: its grid, what it scores, that it goes on where it was, and its page."""

import time
from argparse import Namespace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from benchmarks import results_file
from benchmarks.peers import __main__ as runner
from benchmarks.peers import page, tables
from benchmarks.peers.compare import above_bound, best_peer
from benchmarks.peers.grid import BATTERY_FACTORS, FACTORS, Trial, initial_number, trials
from benchmarks.peers.methods import FROM_SCRATCH, METHODS, SETTINGS
from benchmarks.peers.read import read_scores
from benchmarks.peers.scoring import BOUND, bound, scored
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


def test_noise_is_not_scored():
    task = Task(np.zeros((12, 1)), CLUSTERS, 0)
    y = Y.copy()
    y[6:9] = -1  # all of cluster 2, which one of the methods' groups consists of
    found = scored(pairs_of, task, y)["pairs"]
    assert found["automatic"] == found["given"] == {"ari": 1.0, "nmi": 1.0, "number": 2}
    assert bound(task, y)[BOUND]["bound"]["ari"] == 1.0


def test_the_bound_gives_each_piece_to_its_majority():
    y = np.array([0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0])
    found = bound(Task(np.zeros((12, 1)), CLUSTERS, 0), y)
    expected = adjusted_rand_score(y, Y)
    assert list(found) == [BOUND]
    assert found[BOUND]["bound"] == {
        "ari": pytest.approx(expected, abs=1e-4),
        "nmi": pytest.approx(normalized_mutual_info_score(y, Y), abs=1e-4),
        "number": 2,
    }


def test_what_works_late_is_timed_all_the_same():
    def late(_):
        def at(n):
            start = time.process_time()
            while time.process_time() < start + 0.02:
                pass
            return CLUSTERS

        return {"late": Outcome(at=at)}

    task = Task(np.zeros((12, 1)), CLUSTERS, 0)
    assert scored(late, task, Y)["late"]["seconds"] >= 0.02


def test_every_trial_once_and_scratch_once_for_all_overclusterings():
    grid = list(trials(["moons"], ["k-means", "birch"], list(METHODS), seeds=2))
    assert len({trial.key for trial in grid}) == len(grid)
    scratch = [trial for trial in grid if trial.work in FROM_SCRATCH]
    assert len(scratch) == 2 * len(FROM_SCRATCH)
    assert {trial.overclustering for trial in scratch} == {""}
    assert {c.factor for c in grid if c.overclustering == "birch"} == set(FACTORS)
    assert "confusion loop" not in {trial.work for trial in grid}
    slow = trials(["moons"], ["birch"], ["confusion loop"], seeds=1, slow=True)
    assert len(list(slow)) == len(FACTORS)


def test_batteries_are_cut_in_fewer_ways_and_structureless_data_drawn_once():
    grid = list(trials(["battery: a1", "digits", "uniform, 2-d"]))
    merging = [trial for trial in grid if trial.overclustering]
    battery = [trial for trial in merging if trial.problem == "battery: a1"]
    assert {c.overclustering for c in battery} == {"k-means", "leiden"}
    assert {c.factor for c in battery} == set(BATTERY_FACTORS)
    assert {c.seed for c in battery} == {0, 1}
    assert {c.seed for c in grid if c.problem == "uniform, 2-d"} == {0}
    again = [c for c in merging if c.problem == "digits" and c.seed == 1]
    assert {c.factor for c in again} == set(FACTORS)
    assert not {c.work for c in again} & SETTINGS
    assert BOUND in {c.work for c in again}


@pytest.mark.parametrize(("n_true", "n", "number"), [(1, 999, 20), (2, 999, 20), (10, 999, 40)])
def test_few_groups_are_cut_as_if_they_were_five(n_true, n, number):
    assert initial_number(n_true, 4.0, n) == number


def test_clusters_to_start_from_have_some_observations_each():
    assert initial_number(6, 6.0, 214) == 35


def arguments(folder, minutes=1.0):
    return Namespace(results=folder / "results.jsonl.gz", workers=1, minutes=minutes, data=folder)


def test_a_run_goes_on_where_it_was(tmp_path, capsys):
    grid = list(trials(["moons"], ["k-means"], ["centroid distance", "k-means"]))
    runner.work_off(grid[:3], arguments(tmp_path))
    known = {runner.key_of(line) for line in results_file.read(tmp_path / "results.jsonl.gz")}
    assert known == {trial.key for trial in grid[:3]}
    line = results_file.read(tmp_path / "results.jsonl.gz")[0]
    assert (line["true"], line["n"]) == (2, 1000)
    assert "given" in line["scores"][line["work"]]


def test_the_bound_is_a_trial_of_its_own(tmp_path):
    line = runner.done(Trial("moons", 0, "k-means", 4.0, BOUND), tmp_path)
    assert line["scores"][BOUND]["bound"]["ari"] > 0.9


def test_what_fails_or_is_absent_does_not_end_the_benchmark(monkeypatch, tmp_path):
    def broken(task):
        raise ValueError("no")

    def missing(task):
        raise ImportError("pip install something")

    monkeypatch.setitem(METHODS, "k-means", broken)
    trial = Trial("moons", 0, "", 0.0, "k-means")
    assert runner.done(trial, tmp_path)["failed"] == "ValueError: no"
    monkeypatch.setitem(METHODS, "k-means", missing)
    assert runner.done(trial, tmp_path)["absent"] == "pip install something"


# Both real; rules were chosen on the first, and the second was held back.
CHOSEN, HELD = "bladder cells", "digits"


def line(problem, method, ari, overclustering="k-means", mode="automatic", factor=4.0):
    what = {"ari": ari, "nmi": ari, "number": 4}
    return {
        "problem": problem,
        "seed": 0,
        "overclustering": overclustering,
        "factor": factor if overclustering else 0.0,
        "work": method,
        "true": 2,
        "scores": {method: {mode: what, "seconds": 1.0, "mebibytes": 100}},
    }


def scores_of(found, folder):
    results_file.write(folder / "results.jsonl.gz", found)
    return read_scores(folder / "results.jsonl.gz")


def rows_of(table):
    """Trials by what is in the first column."""
    rows = [[trial.strip() for trial in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    return {row[0]: row[1:] for row in rows}


def test_page_compares_on_the_same_trials(tmp_path):
    found = [
        line(CHOSEN, "unsplit", 0.9),
        line(HELD, "unsplit", 0.5),
        line(CHOSEN, "SCCAF", 0.7),
        line(CHOSEN, "HDBSCAN, hundredths", 0.6, overclustering=""),
        line(HELD, "HDBSCAN, hundredths", 0.4, overclustering=""),
        line(CHOSEN, "unsplit", 0.95, mode="best cut"),
        line(CHOSEN, BOUND, 0.94, mode="bound"),
    ]
    scores = scores_of(found, tmp_path)
    rows = rows_of(tables.overview(scores, "automatic"))
    # Trials, ARI, chosen on, held back, unsplit, number / true, seconds.
    assert rows["unsplit"] == ["2", "0.700", "0.900", "0.500", "0.700", "2.00", "1.0"]
    assert rows["SCCAF"] == ["1", "0.700", "0.700", "", "0.900", "2.00", "1.0"]
    assert rows["HDBSCAN, hundredths"][:5] == ["2", "0.500", "0.600", "0.400", "0.700"]
    assert best_peer(scores, "automatic") == (
        "HDBSCAN, hundredths",
        pytest.approx(0.5),
        pytest.approx(0.7),
    )
    assert above_bound(scores) == (1, 1)
    by_data = rows_of(tables.by_problem(scores))
    assert by_data[CHOSEN] == ["chosen on", "0.900", "", "0.950", "", "", "0.940", "", "0.600", ""]
    assert by_data[HELD] == ["held back", "0.500", "", "", "", "", "", "", "0.400", ""]


def test_page_says_what_a_setting_changes(tmp_path):
    found = [line(CHOSEN, "unsplit", 0.9), line(HELD, "unsplit", 0.5)]
    found += [line(CHOSEN, "unsplit, cv=3", 0.8), line(HELD, "unsplit, cv=3", 0.7)]
    scores = scores_of(found, tmp_path)
    assert "| `cv=3` | 2 | +0.050 ± 0.150 |  |  |" in tables.settings(scores)
    assert "cv=3" not in tables.overview(scores, "automatic")


def test_brief_table_has_the_half_held_back_and_no_costs(tmp_path):
    scores = scores_of([line(CHOSEN, "unsplit", 0.9), line(HELD, "unsplit", 0.5)], tmp_path)
    table = tables.overview(scores, "automatic", brief=True)
    assert "| method | trials | ARI | held back | unsplit, same trials |" in table
    assert rows_of(table)["unsplit"] == ["2", "0.700", "0.500", "0.700"]


def test_page_has_every_family_and_the_trials_of_the_first_benchmark(tmp_path):
    found = [
        line(CHOSEN, "unsplit", 0.9),
        line(HELD, "unsplit", 0.5),
        line(HELD, "unsplit", 0.8, overclustering="random split"),
        line(HELD, "unsplit", 0.1, factor=3.0),  # for the figure only
        line("battery: a1", "unsplit", 0.3, factor=3.0),
        line("uniform, 50-d", "unsplit", 0.0),
    ]
    found += [line(CHOSEN, "unsplit", 1.0, mode="best cut")]
    scores = scores_of(found, tmp_path)
    text, tables_text = page.page(scores, tmp_path), page.every_table(scores)
    assert (tmp_path / "held_back.png").stat().st_size > 0
    real, rest = text.split("## Batteries")
    assert "a mean adjusted Rand index of – on real data" in real
    assert "2 trials of 2 data sets. `auto` reaches a mean ARI of **0.700**: 0.900 on the" in real
    assert "**0.500** on those held back. No peer has been run" in real
    assert "not knowing the number costs 30.0%" in real
    assert "1 trials of 1 data sets. `auto` reaches a mean ARI of **0.300**" in rest
    assert "one cluster is left in 0 of 1 trials" in rest
    assert "random splits 0.800, refined – (the bound: –)." in rest
    assert text.count("<details") == text.count("</details>") > 3
    assert "| this release | 3 | 0.733 |" in tables_text
    assert "| random split, real | 0.800 |" in tables_text
    assert "nan" not in text + tables_text


def test_page_is_written_where_it_is_asked_for(tmp_path, monkeypatch):
    scores_of([line(HELD, "unsplit", 0.5)], tmp_path)
    out, all_tables = tmp_path / "page.md", tmp_path / "README.md"
    arguments = ["--results", tmp_path / "results.jsonl.gz", "--out", out, "--tables", all_tables]
    monkeypatch.setattr("sys.argv", ["page", *map(str, arguments)])
    page.main()
    assert all_tables.read_text(encoding="utf-8").startswith("# Every table")
    assert "## Simulated groups\n\nOurs has not been run here." in out.read_text(encoding="utf-8")
