"""k outputs against k², and the largest run: small, and with a GPU that is only pretended."""

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments import core
from experiments.scaling import heads, run
from experiments.scaling.config import FULL, GIB, QUICK
from experiments.scaling.pictures import VALUES, PictureDataset, PictureRows, Pictures, _values
from experiments.scaling.timings import Laps, at_most
from experiments.scaling.whole import feeding, whole
from unsplit.data.rows.base import scrambled

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SMALL = Pictures(clusters=6, size=4, categories=3, pixels=32)
HEAD_OF = pytest.mark.parametrize("outputs", ["k", "k2"])


# The pictures.


def test_a_picture_depends_on_its_number_alone():
    together = SMALL.drawn(torch.arange(len(SMALL)))
    assert together.dtype == torch.uint8
    assert together.shape == (24, 3, 32, 32)
    for i in (0, 7, 23):
        assert torch.equal(SMALL.drawn(torch.tensor([i]))[0], together[i])
    assert len(together.flatten(1).unique(dim=0)) == len(SMALL)


def test_values_are_those_of_the_library_s_hash():
    which = np.array([0, 1, 5, 999, 1_300_999])
    bits = scrambled((which[:, None] * VALUES + np.arange(VALUES)).astype(np.uint64))
    expected = (bits.astype(np.int64) >> 40) / 2**23
    found = _values(torch.from_numpy(which)).numpy()
    np.testing.assert_array_equal(found, expected)
    assert abs(found[1:].mean()) < 0.1
    assert found[1:].std() == pytest.approx(1 / math.sqrt(3), abs=0.05)


def test_pictures_of_one_category_are_alike():
    pixels = SMALL.drawn(torch.arange(len(SMALL))).flatten(1).double()
    category = SMALL.category[SMALL.labels]
    correlation = np.corrcoef(pixels.numpy())
    same = category[:, None] == category
    np.fill_diagonal(correlation, np.nan)
    assert np.nanmean(correlation[same]) > 0.3 > 0.2 > np.nanmean(correlation[~same])


def test_clusters_have_their_size_and_categories_their_clusters():
    assert np.bincount(SMALL.labels).tolist() == [4] * 6
    assert np.bincount(SMALL.category).tolist() == [2] * 3
    assert SMALL.category[SMALL.labels[[0, 12]]].tolist() == [0, 0]


def test_rows_and_dataset_give_the_same_pictures():
    rows = PictureRows(SMALL, CPU, Laps(CPU))
    index = torch.tensor([[3, 20], [11, 0]])
    taken = rows.take(index)
    dataset = PictureDataset(SMALL)
    assert taken.shape == (2, 2, 3, 32, 32)
    assert torch.equal(taken[1, 0], dataset[11])
    assert len(rows) == len(dataset) == 24


def test_first_rows_and_other_pictures():
    rows = PictureRows(SMALL, CPU, Laps(CPU))
    few = rows.first(5)
    assert (len(few), len(rows)) == (5, 24)
    assert torch.equal(few.take(torch.tensor([4])), rows.take(torch.tensor([4])))
    assert len(rows.another(Pictures(clusters=2, size=3, categories=2, pixels=8))) == 6


def test_moments_are_those_of_the_channels():
    rows = PictureRows(SMALL, CPU, Laps(CPU))
    mean, scale = rows.moments(np.arange(len(SMALL)))
    pixels = rows.take(torch.arange(len(SMALL))).double()
    for channel in range(3):
        assert float(mean[channel]) == pytest.approx(float(pixels[:, channel].mean()), rel=1e-4)
        assert float(scale[channel]) == pytest.approx(float(pixels[:, channel].std()), rel=1e-3)


def test_every_stream_is_a_lap_named_by_what_it_was_for():
    rows = PictureRows(SMALL, CPU, Laps(CPU))
    batches = [torch.tensor([0, 1]), torch.tensor([2])]
    assert [len(x) for x in rows.stream(batches)] == [2, 1]
    with torch.no_grad():
        list(rows.stream(batches[:1]))
    laps = [(lap["part"], lap["images"], lap["batches"]) for lap in rows.laps.laps]
    assert laps == [("preparing", 0, 0), ("training", 3, 2), ("preparing", 0, 0), ("trying", 2, 1)]


# Time and memory.


@pytest.fixture
def pretended(monkeypatch):
    """A GPU whose peaks are told, and that remembers what it was asked for."""
    gpu = SimpleNamespace(peaks=[], asked=[], total=4 * GIB)
    answers = {
        "synchronize": lambda: gpu.asked.append("wait"),
        "reset_peak_memory_stats": lambda: gpu.asked.append("reset"),
        "max_memory_allocated": lambda: gpu.peaks.pop(0),
        "max_memory_reserved": lambda: 100,
        "empty_cache": lambda: gpu.asked.append("empty"),
        "current_device": lambda: 0,
        "get_device_properties": lambda device: SimpleNamespace(total_memory=gpu.total),
        "set_per_process_memory_fraction": lambda share: gpu.asked.append(share),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    return gpu


def test_laps_wait_for_the_gpu_and_each_has_its_own_peak(pretended):
    pretended.peaks = [10, 70, 30]
    laps = Laps(CUDA)
    laps.end("training", 5, 1)
    laps.end("scoring", 2, 1)
    laps.end("training", 4, 1)
    laps.rename_last("more training")
    assert pretended.asked == ["wait", "reset"] * 4
    parts = laps.parts()
    assert list(parts) == ["training", "scoring", "more training"]
    assert [part["bytes"] for part in parts.values()] == [10, 70, 30]
    assert parts["scoring"]["held"] == 100


def test_parts_add_up():
    laps = Laps(CPU)
    for n in (5, 4):
        laps.end("training", n, 1)
    part = laps.parts()["training"]
    assert (part["images"], part["batches"], part["bytes"]) == (9, 2, 0)
    assert part["seconds"] == sum(lap["seconds"] for lap in laps.laps) > 0


def test_the_budget_is_lifted_whatever_happens(pretended):
    def fail():
        with at_most(GIB, CUDA):
            raise ValueError("too much")

    with pytest.raises(ValueError, match="too much"):
        fail()
    assert pretended.asked == ["empty", 0.25, 1.0]
    with at_most(9 * GIB, CUDA):
        assert pretended.asked[-1] == 1.0
    with at_most(1, CPU):
        pass


# The heads.


@HEAD_OF
def test_least_bytes_are_what_adam_holds(outputs):
    k, features = 7, 5
    head = heads.HEADS[outputs](features, k)
    optimizer = torch.optim.Adam(head.parameters())
    head.loss(head(torch.randn(4, features)), torch.arange(4)).backward()
    optimizer.step()
    state = [v for s in optimizer.state.values() for v in s.values() if v.ndim]
    tensors = [*head.parameters(), *(p.grad for p in head.parameters()), *state]
    assert heads.least_bytes(outputs, k, features, 0) == sum(t.nbytes for t in tensors)
    scores = head(torch.randn(4, features))
    more = heads.least_bytes(outputs, k, features, 4) - heads.least_bytes(outputs, k, features, 0)
    assert more == 2 * scores.nbytes


@given(st.sampled_from(["k", "k2"]), st.integers(1, 40), st.integers(0, 9), st.integers(0, 10**5))
def test_most_clusters_is_the_last_within_the_budget(outputs, features, batch, budget):
    most = heads.most_clusters(outputs, features, batch, budget)
    assert heads.least_bytes(outputs, most, features, batch) <= budget
    assert heads.least_bytes(outputs, most + 1, features, batch) > budget


def test_the_paper_s_numbers_for_unpooled_features():
    assert heads.most_clusters("k2", heads.UNPOOLED, 0, 11 * GIB) < 200
    assert heads.most_clusters("k2", 512, 0, 11 * GIB) > 1000


@given(st.integers(0, 5000), st.integers(0, 5000), st.sampled_from([0.0, 0.02, 0.2]))
def test_largest_is_within_its_tolerance(limit, most, tolerance):
    asked = []

    def fits(k):
        asked.append(k)
        return k <= limit

    right = min(limit, most)
    found = heads.largest(fits, most, tolerance)
    assert right / (1 + tolerance) - 1 <= found <= right
    if tolerance == 0:
        assert found == right
    assert len(asked) == len(set(asked)) < 30


@HEAD_OF
def test_growth_ends_with_the_first_that_is_over_the_budget(outputs):
    few = replace(QUICK, budget=QUICK.budget // 16)
    found = heads.growth(outputs, few, CPU)
    rows = found["growth"]
    assert all(b["k"] == 2 * a["k"] for a, b in pairwise(rows))
    assert all(row["bytes"] <= few.budget for row in rows[:-1])
    assert rows[-1]["bytes"] > few.budget
    assert rows[0]["parameters"] == heads.n_outputs(outputs, 50) * (QUICK.features + 1)
    assert all(row["ms"] > 0 for row in rows)
    assert not found["measured memory"]


def test_growth_ends_where_the_card_does(monkeypatch):
    def cost(outputs, k, config, device):
        if k > 100:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return {"k": k, "bytes": 1}

    monkeypatch.setattr(heads, "step_cost", cost)
    assert [row["k"] for row in heads.growth("k2", QUICK, CPU)["growth"]] == [50, 100]


@HEAD_OF
def test_steps_lower_the_loss(outputs):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head, x = heads.HEADS[outputs](8, 4), torch.randn(12, 8)
    clusters = torch.arange(12) % 4
    before = head.loss(head(x), clusters).item()
    step = heads.stepping(head, x, 4, half=False)
    for _ in range(30):
        step()
    assert head.loss(head(x), clusters).item() < 0.99 * before


@pytest.mark.parametrize(("outputs", "precision"), [("k", "float32"), ("k2", "bfloat16")])
def test_the_whole_network_takes_steps(outputs, precision):
    small = replace(QUICK, pixels=16, batch=2)
    assert heads._fits(outputs, 3, precision, small, CPU)


def test_only_want_of_memory_means_that_it_does_not_fit(monkeypatch):
    def fail(words):
        def few_steps(*arguments):
            raise RuntimeError(words)

        monkeypatch.setattr(heads, "_few_steps", few_steps)

    for words in ("CUDA out of memory. Tried", "cuDNN is unable to find an engine to execute"):
        fail(words)
        assert not heads._fits("k", 3, "float32", QUICK, CPU)
    fail("mat1 and mat2 shapes cannot be multiplied")
    with pytest.raises(RuntimeError, match="shapes"):
        heads._fits("k", 3, "float32", QUICK, CPU)


def test_reach_is_found_by_trying_where_there_is_a_gpu(pretended, monkeypatch):
    monkeypatch.setattr(heads, "_fits", lambda outputs, k, *rest: k <= 500)
    found = heads.reach("k2", "float32", FULL, CUDA)
    assert 485 <= found["most clusters"] <= 500
    assert found["measured memory"]
    assert found["head alone"] == {"512": 1199, "4096": 424, "25088": 171}
    assert 1.0 in pretended.asked


# The whole run.


def test_the_whole_run_has_all_parts_and_all_distances():
    found = whole("pairwise", QUICK, CPU, quick=True)
    k, n = QUICK.clusters, QUICK.clusters * QUICK.size
    parts = found["parts"]
    names = ["preparing", "training", "trying", "scoring", "hits of all pairs", "distances"]
    assert list(parts) == names
    assert found["distances"] == k * (k - 1) // 2
    assert found["n"] == n
    assert parts["scoring"]["images"] == found["held out"] == n // 5
    assert parts["training"]["images"] >= found["epochs run"] * (n - 2 * n // 5)
    assert parts["trying"]["images"] >= found["epochs run"] * k
    assert 0.7 < found["A"] <= 1
    assert found["1-Q"]["tv"] < 0.3
    assert found["clusters looked at"] == k


@pytest.mark.parametrize("source", ["made on the device", "worker processes"])
def test_feeding_counts_images(source):
    found = feeding(source, QUICK, CPU)
    assert found["images"] == QUICK.fed // 2
    assert found["images a second"] > 0


# Tables and claims.


def part(seconds, images=0, gibibytes=0.0):
    size = int(gibibytes * GIB)
    return {
        "seconds": seconds, "images": images, "batches": images // 250, "bytes": size,
        "held": 2 * size,
    }  # fmt: skip


def whole_result(**other):
    return {
        "part": "whole", "k": 26_000, "loss": "pairwise", "epochs": 1, "n": 1_300_000,
        "budget": 11 * GIB, "measured memory": True, "epochs run": 1, "held out": 260_000,
        "distances": 337_987_000, "A": 0.998, "1-Q": {"tv": 0.001}, "clusters looked at": 2080,
        "parts": {"training": part(50.0, 832_000, 4.0), "distances": part(10.0)},
    } | other  # fmt: skip


def reach_result(outputs, most, precision="float32", measured=True):
    return {
        "part": "reach", "outputs": outputs, "precision": precision, "budget": 11 * GIB,
        "measured memory": measured, "pixels": 224, "batch": 256, "most clusters": most,
        "head alone": {"512": 1199},
    }  # fmt: skip


def growth_result(outputs, ks):
    rows = [{"k": k, "parameters": 10 * k, "ms": 1.5, "bytes": k * GIB} for k in ks]
    return {
        "part": "heads", "outputs": outputs, "budget": 11 * GIB, "measured memory": True,
        "growth": rows,
    }  # fmt: skip


FEEDING = {"part": "feeding", "source": "worker processes", "images a second": 2000.4}
EVERYTHING = [
    growth_result("k", [50, 100]), growth_result("k2", [50]), reach_result("k", 300_000),
    reach_result("k2", 600), whole_result(), FEEDING,
]  # fmt: skip


def verdicts(results):
    return [claim.verdict for claim in run.claims(results)]


def test_claims_of_the_largest_run():
    claim = run.claims([whole_result()])[0]
    assert claim.verdict == "reproduced"
    assert "337,987,000 distances" in claim.ours
    assert "(224 pixels, epochs: 1, Q 1.00) in 1.0 minutes; peak 4.00 GiB, 8.00 held" in claim.ours
    over = whole_result(parts={"training": part(1.0, 10, 6.0)})
    assert verdicts([over])[0] == "not reproduced"
    assert verdicts([whole_result(distances=10**7)])[0] == "not reproduced"
    assert verdicts([whole_result(k=60)])[0] == "not measured"
    assert verdicts([whole_result(**{"measured memory": False})])[0] == "not measured"


@pytest.mark.parametrize(
    ("naive", "ours", "expected"),
    [(150, 300_000, "reproduced"), (600, 300_000, "changed"), (600, 900, "not reproduced")],
)
def test_claims_of_the_naive_network(naive, ours, expected):
    found = [reach_result("k2", naive), reach_result("k", ours)]
    assert verdicts(found)[1] == expected
    assert f"{naive:,} clusters" in run.claims(found)[1].ours
    assert verdicts(found[:1])[1] == "not measured"
    other = [reach_result("k2", naive, "bfloat16"), reach_result("k", ours, "bfloat16")]
    assert verdicts(other)[1] == "not measured"
    guessed = [reach_result("k2", naive, measured=False), reach_result("k", ours, measured=False)]
    assert verdicts(guessed)[1] == "not measured"


def test_tables_of_what_is_there():
    text = run.table(EVERYTHING)
    for line in (
        "| 50 | 500 | 50.00 | 1.5 | 500 | 50.00 | 1.5 |",
        "| 100 | 1,000 | 100.00 | 1.5 |  |  |  |",
        "| k² | float32 | 600 | 1,199 |",
        "| training | 50 | 832,000 | 16,640 | 4.00 |",
        "| all | 60 |  |  | 4.00 |",
        "| worker processes | 2,000 |",
    ):
        assert line in text.splitlines()
    assert "15.0 ms a step of training" in text
    assert "GiB at least" not in text


def test_any_of_the_results_will_do(tmp_path):
    for left_out in EVERYTHING:
        rest = [result for result in EVERYTHING if result is not left_out]
        for some in (rest, [left_out]):
            assert run.table(some)
            assert len(run.claims(some)) == 2
    assert run.table([]) == ""
    assert verdicts([]) == ["not measured"] * 2
    assert run.draw([FEEDING], tmp_path) == []
    drawn = run.draw(EVERYTHING, tmp_path)
    assert [path.name for path in drawn] == ["scaling_heads.png", "scaling_whole.png"]
    assert all(path.stat().st_size > 5000 for path in drawn)


def test_trials_fit_into_the_time_there_is():
    trials = run.trials(quick=False)
    assert len({core.name_of(trial) for trial in trials}) == len(trials)
    assert sum(map(run.minutes, trials)) <= 8
    assert max(map(run.minutes, trials)) <= 4


def test_every_kind_of_trial_runs():
    setting = core.Setting(None, "cpu", quick=True)
    for trial in run.trials(quick=True):
        if trial["part"] in ("reach", "feeding"):
            assert run.run(trial, setting)
