"""Slopes of growth, records that are not measured twice, and steps against the formulas."""

import time

import numpy as np
import pytest
import torch

from benchmarks import growth, growth_page, plan, results_file

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
