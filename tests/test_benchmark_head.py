"""The benchmark of the losses over blocks of clusters, at a tiny size."""

import json

import pytest

from benchmarks import head, large_head
from unsplit.networks import network as network_module
from unsplit.networks.training import group as group_module

SMALL = "--device cpu --clusters 700 --features 8 --batch 16 --blocks 256 --side 32"


def test_all_ways_agree_and_are_written(tmp_path, capsys):
    path = tmp_path / "head.json"
    records = head.main([*SMALL.split(), "--repeats", "1", "--write", str(path)])
    written = json.loads(path.read_text("utf-8"))
    assert written["records"] == records
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
    path = tmp_path / "large.json"
    usual, large = large_head.main(["--clusters", "20", "--seeds", "1", "--write", str(path)])
    assert json.loads(path.read_text("utf-8")) == [usual, large]
    assert [usual["bytes per weight"], large["bytes per weight"]] == pytest.approx([8, 2], abs=0.1)
    assert large["A"] == pytest.approx(usual["A"], abs=0.03)
    # What is treated as large is so only inside.
    assert group_module.LARGE_HEAD == network_module.LARGE_HEAD
    large_head.main(["--draws", "100", "7"])
    assert "round by round" in capsys.readouterr().out
