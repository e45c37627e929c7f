"""The benchmarks run, and their pages have what was measured."""

import json
import sys
import time

import numpy as np
import pytest
import torch

import unsplit
from benchmarks import (
    calibration,
    cores,
    growth,
    growth_page,
    head,
    large_head,
    markdown,
    one_and_ten,
    photos,
    plan,
    results_file,
    small_groups,
)
from benchmarks.one_and_ten import DIMENSIONS, KINDS, TEN, Run, draw, exists
from unsplit.networks import network as network_module
from unsplit.networks.training import group as group_module

# --- The benchmarks of data without structure, of rare groups and of verdicts ---


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


# --- The benchmark of statistics for cores runs, and prints a row for each data set ---


def test_every_statistic_has_its_numbers(capsys):
    cores.main(["--only", "moons", "--factors", "2", "--epochs", "2"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert all(statistic in lines[0] for statistic in cores.STATISTICS)
    assert lines[2].startswith("| moons |")
    assert lines[3].startswith("| mean |")
    assert all(-1 <= float(cell) <= 1 for cell in lines[2].split("|")[2:-1])


# --- The benchmark of the losses over blocks of clusters, at a tiny size ---


SMALL = "--device cpu --clusters 700 --features 8 --batch 16 --blocks 256 --side 32"


def test_all_ways_agree_and_are_written(tmp_path, capsys):
    path = tmp_path / "head.jsonl.gz"
    records = head.main([*SMALL.split(), "--repeats", "1", "--write", str(path)])
    for written, record in zip(results_file.read(path), records, strict=True):
        assert written.items() > record.items()
        assert written["ceiling"] > 0
    for loss in ("pairwise", "softmax"):
        of_loss = [record for record in records if record["loss"] == loss]
        assert len(of_loss) == 3  # chosen, another size, all scores at once
        assert all(r["value"] == pytest.approx(of_loss[-1]["value"], 1e-5) for r in of_loss)
        for record in of_loss:
            assert record["gradient_norms"] == pytest.approx(of_loss[-1]["gradient_norms"], 1e-3)
            assert record["share"] > 0
    assert "all scores at once" in capsys.readouterr().out.splitlines()[-1]


def test_a_way_that_fails_is_reported_and_the_rest_goes_on(monkeypatch, capsys):
    def fail(loss):
        def compute(*_):
            raise RuntimeError("no such kernel")

        return compute

    monkeypatch.setattr(head, "at_once", fail)
    records = head.main([*SMALL.split(), "--repeats", "1", "--losses", "softmax"])
    assert [record.get("error") for record in records] == [None] * 2 + [
        "RuntimeError: no such kernel"
    ]
    assert "no such kernel" in capsys.readouterr().err


def test_large_heads_are_compared_with_usual_ones(tmp_path, capsys):
    path = tmp_path / "large.jsonl.gz"
    usual, large = large_head.main(["--clusters", "20", "--seeds", "1", "--write", str(path)])
    assert results_file.read(path) == [usual, large]
    assert [usual["bytes per weight"], large["bytes per weight"]] == pytest.approx([8, 2], abs=0.1)
    assert large["A"] == pytest.approx(usual["A"], abs=0.03)
    # What is treated as large is so only inside.
    assert group_module.LARGE_HEAD == network_module.LARGE_HEAD


# --- The benchmark of photographs: its halves, and the table in the documentation ---


@pytest.mark.parametrize("n", [10, 59, 60, 659])
def test_categories_for_choosing_and_for_the_report_are_different(n):
    drawn = {"chosen": set(), "reported": set()}
    for half, found in drawn.items():
        for seed in range(20):
            case = photos.Case("tiny", 4, "random", seed)
            categories = photos.chosen_categories(n, case, half)
            assert len(np.unique(categories)) == 4
            found.update(categories.tolist())
    assert not drawn["chosen"] & drawn["reported"]
    assert max(drawn["reported"]) < n


def test_the_page_has_the_table_of_the_results():
    table = markdown.table(photos.HEADER, photos.rows("reported")) + "\n"
    assert table.count("\n") > 8
    page = photos.PAGE.read_text("utf-8")
    assert page.split(photos.BEGIN)[1].split(photos.END)[0] == table


def test_runs_with_another_number_of_epochs_are_kept_apart():
    case = photos.CASES[0]
    whole, short = (photos.name_of(case, "convnet", "cpu", "reported", n) for n in (200, 1))
    assert whole == "reported/tiny-6-random-0-convnet-cpu"
    assert short != whole


# --- Slopes of growth, records that are not measured twice, and steps against the formulas ---


CPU = torch.device("cpu")


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.3])
def test_slope_is_that_of_the_power_above_fixed_costs(exponent):
    sizes = 10.0 ** np.arange(2, 7)
    fit = growth_page.slope(sizes, 1e-6 * sizes**exponent)
    assert fit.exponent == pytest.approx(exponent, abs=0.001)
    # A fixed cost makes the line flat where sizes are small; that part is left out.
    fixed = growth_page.slope(sizes, 2e-6 * sizes[0] ** exponent + 1e-6 * sizes**exponent)
    assert fixed.first > sizes[0]
    assert fixed.last == sizes[-1]
    assert fixed.exponent == pytest.approx(exponent, abs=0.12)


def test_slope_uses_three_sizes_even_if_nothing_grows():
    fit = growth_page.slope([1, 10, 100, 1000], [5.0, 5.0, 5.0, 5.0])
    assert (fit.exponent, fit.first) == (0.0, 10.0)


def tiny_case(size, calls):
    def prepare(device):
        return lambda: calls.append(size)

    return growth.Case("counting", "k", size, {"k": size, "n": 5}, prepare)


@pytest.fixture
def quick(monkeypatch):
    """One call of each work, and nothing to warm up."""
    monkeypatch.setattr(growth, "ENOUGH", {"cpu": 0.0})
    monkeypatch.setattr(growth, "MOST", 1)
    monkeypatch.setattr(growth, "best_time", lambda work, device: work() or 0.5)
    monkeypatch.setitem(growth.SMALL, "counting", lambda device: lambda: None)


def test_what_is_recorded_is_not_measured_again(tmp_path, quick, capsys):
    results, calls = tmp_path / "new" / "growth.jsonl.gz", []
    todo = [tiny_case(size, calls) for size in (10, 30)]
    growth.work_off(todo[:1], CPU, results, np.inf)
    assert calls == [10]
    growth.work_off(todo, CPU, results, np.inf)
    assert calls == [10, 30]
    first, second = results_file.read(results)
    assert (first["k"], second["k"]) == (10, 30)
    assert first["device"] == "CPU"
    assert first["seconds"] == 0.5
    assert first["torch"] == torch.__version__
    # Another device, or other parameters, are another measurement.
    assert not growth.is_there(todo[0], {"device": "H200"}, [first])
    other = growth.Case("counting", "k", 10, {"k": 10, "n": 6}, todo[0].prepare)
    assert not growth.is_there(other, {"device": "CPU"}, [first])


def test_what_would_take_too_long_is_left_out(tmp_path, quick, capsys):
    results, calls = tmp_path / "growth.jsonl.gz", []
    known = {"what": "counting", "against": "k", "size": 10, "k": 10, "n": 5, "took": 50.0}
    results_file.add(results, known | {"device": "CPU"})
    growth.work_off([tiny_case(100, calls)], CPU, results, time.monotonic() + 60)
    assert calls == []
    assert "left out: counting, k = 100" in capsys.readouterr().out


def test_every_measurement_does_what_it_says():
    for kind in ("cpu", "cuda"):
        assert {case.what for case in growth.cases(kind)} == set(growth.SMALL)
    found = {what: prepare(CPU)() for what, prepare in growth.SMALL.items()}
    assert found["training step"] == pytest.approx(np.log(100), rel=1e-4)  # the head starts at zero
    assert found["counting"].misses.shape == (100, 100)
    # Clusters of a group are confused with each other and with no others.
    row, column = found["counting"].misses.nonzero()
    assert len(row)
    assert (row // 10 == column // 10).all()
    assert found["neighbour graph"].n_clusters == 10
    assert found["merging"].n_clusters == 10


SPEEDS = {
    "what": "speeds", "device": "CPU", "matmul": 1e9, "memory": 1e9, "share": 0.5, "at_once": 0.8,
    "fixed": 0.001,
}  # fmt: skip


def step(k, seconds):
    named = {
        "what": "training step",
        "against": "k",
        "size": k,
        "k": k,
        "device": "CPU",
        "kind": "cpu",
    }
    cost = {"batch": 4, "features": 8, "parameters": 100, "operations": 200}
    return named | cost | {"seconds": seconds, "main_bytes": 100 * k, "device_bytes": 0}


def test_steps_are_compared_with_the_formula():
    # 3 · 2 · 4 · 100 · 8 operations of the loss, 3 · 200 · 4 of the backbone; 40 bytes of a weight,
    # and 80 of a feature of an observation.
    expected = 19_200 / 0.8e9 + 2400 / 1e9 + (40 * (800 + 100) + 80 * 32) / 1e9 + 0.001
    (row,) = plan.compared([SPEEDS, step(100, 2 * expected)])
    assert row[5] == "0.50"
    # So many scores are not held at once, and of so many weights fewer moments.
    k = 2**24
    expected = 192 * k / 0.5e9 + 2400 / 1e9 + (28 * 8 * k + 4000 + 80 * 32) / 1e9 + 0.001
    (row,) = plan.compared([SPEEDS, step(k, expected)])
    assert row[5] == "1.00"


def test_page_gets_figure_and_tables(tmp_path, monkeypatch):
    page, figure = tmp_path / "scale.md", tmp_path / "images" / "growth.png"
    names = ("growth", "plan", "steps")
    marks = "".join(f"<!-- {name} -->\nold\n<!-- end of {name} -->\n" for name in names)
    page.write_text(f"before\n{marks}after", "utf-8")
    monkeypatch.setattr(growth_page, "PAGE", page)
    monkeypatch.setattr(growth_page, "FIGURE", figure)
    growth_page.write_page([SPEEDS, *(step(k, 0.001 * k) for k in (10, 100, 1000))])
    assert figure.stat().st_size > 10_000
    text = page.read_text("utf-8")
    assert "old" not in text
    assert "| 10,000,000 | 1e9 | 512 |" in text
    assert text.startswith("before")
    assert text.endswith("after")
    assert "| training step | CPU | k, batch = 4 | k^1.00 | 10¹–10³ | k^1.00 |" in text
