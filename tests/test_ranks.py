"""Several processes train together, to the result of one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import unsplit
from benchmarks import plan
from tests.cli_cases import read_csv
from unsplit.data.rows.kinds import observations
from unsplit.devices import ALONE, Ranks, computing_with, current
from unsplit.networks.registry import RECIPES, build_network
from unsplit.networks.training.group import Fold, LargeHeadAdamW, tensors_of
from unsplit.networks.training.ranks import Sharded, is_lost, together
from unsplit.pairwise.result import PairwiseTVD

CPU = torch.device("cpu")

PROGRAM = Path(__file__).with_name("ranks_program.py")
QUICK = ["--seed", "1", "--device", "cpu", "--epochs", "2", "--cv", "2"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own with data."""
    monkeypatch.chdir(tmp_path)
    write_data()


def write_data():
    """Vectors, in which each Gaussian is cut in two, and pictures."""
    rng = np.random.default_rng(0)
    groups, noise = np.repeat(np.arange(5), 40), rng.standard_normal((200, 4))
    X = 4 * rng.standard_normal((5, 4))[groups] + noise
    np.savez("x.npz", X=X, c=2 * groups + (noise[:, 0] > 0))
    clusters = np.arange(80) % 4
    pictures = rng.integers(0, 100, (80, 12, 12, 3)) + 60 * (clusters % 2).reshape(-1, 1, 1, 1)
    np.savez("pictures.npz", X=pictures.astype(np.uint8), c=clusters)


def run(*cases, timeout=150):
    """Run cases, each a dict; the exit codes of their processes."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        input=json.dumps(cases),
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def case(name, size, *typed, data="x.npz", command="merge", **more):
    out = ["--labels", "c", "--out", name, *QUICK]
    return {"name": name, "size": size, "typed": [command, data, *out, *typed], **more}


def said(name, rank=0):
    return Path(f"{name}-{rank}.txt").read_text()


def assert_same(one, other):
    """The same labels, the same loss but for rounding, and distances nearly so.

    A cluster has about twenty observations, and rounding may turn the hit of one of them.
    """
    assert read_csv(f"{one}/labels.csv") == read_csv(f"{other}/labels.csv")
    assert_same_distances(one, other)


def assert_same_distances(one, other):
    a, b = (unsplit.PairwiseTVD.load(f"{name}/distances.npz") for name in (one, other))
    assert_same_history(a.history, b.history)
    assert np.allclose(a.tvd, b.tvd, atol=0.11)
    assert abs(a.tvd - b.tvd).mean() < 0.01


def assert_similar(one, other):
    """As of two seeds."""
    a, b = (unsplit.PairwiseTVD.load(f"{name}/distances.npz") for name in (one, other))
    assert np.allclose(a.history.loss, b.history.loss, rtol=0.2)
    assert abs(a.mean_accuracy - b.mean_accuracy) < 0.1


def assert_same_history(one, other):
    assert np.allclose(one.loss, other.loss, rtol=3e-3)
    assert np.allclose(one.accuracy, other.accuracy, atol=0.02)


def assert_same_confusions(one, other):
    """Nearly the same misses, of an estimate that keeps only these."""
    a, b = (PairwiseTVD.load(f"{name}/distances.npz") for name in (one, other))
    assert_same_history(a.history, b.history)
    assert abs(a.misses - b.misses).sum() <= 0.05 * a.misses.sum()
    assert a.misses.sum() > 0


# Without other processes


def test_parts_cover_everything_once():
    for n in (0, 1, 5, 12):
        for size in (1, 2, 3, 5):
            parts = [Ranks(rank, size).part(n) for rank in range(size)]
            assert [i for part in parts for i in range(n)[part]] == list(range(n))


def test_alone_nothing_is_exchanged():
    assert current() is ALONE
    assert ALONE.share(3) == 3
    x = torch.arange(3.0)
    assert ALONE.sum(x) is x
    assert torch.equal(ALONE.joined(x, 3), x)
    assert ALONE.gathered(3) == [3]
    with together("cpu", lambda: "") as ranks:
        assert ranks is ALONE
    values = torch.tensor([0.5, -torch.inf])
    assert ALONE.log_sum_exp(values) is values


def test_lost_processes_are_told_from_other_errors():
    assert is_lost(torch.distributed.DistNetworkError("gone"))
    assert is_lost(RuntimeError("Connection closed by peer [127.0.0.1]:80"))
    assert not is_lost(RuntimeError("shapes do not match"))
    assert not is_lost(KeyboardInterrupt())


@pytest.fixture
def sent(monkeypatch):
    """Pretend that another process answers with the same; bytes that would be sent."""
    found = {"gathered": 0, "summed": 0}

    def all_reduce(values, op=None):
        found["summed"] += values.numel() * values.element_size()

    def all_gather(parts, own):
        found["gathered"] += len(parts) * own.numel() * own.element_size()
        for part in parts:
            part.copy_(own)

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    monkeypatch.setattr("torch.distributed.all_gather", all_gather)
    return found


def test_a_very_large_head_is_never_made_as_a_whole_before_the_end(sent, monkeypatch):
    for module in ("registry", "training.group"):
        monkeypatch.setattr(f"unsplit.networks.{module}.LARGE_HEAD", 100)
    index = np.arange(40)
    rows = observations(np.random.default_rng(0).standard_normal((40, 3)), CPU)
    fold, ranks, batch = Fold(index, index, index), Ranks(0, 2), torch.arange(32)
    with computing_with(ranks):
        network = build_network(rows, fold, RECIPES["mlp"], 6, "pairwise")
        assert network.head.weight.is_meta
        group = Sharded([network], [fold], ranks, 1e-3, 0.0, 0.9)
        assert isinstance(group.optimizer, LargeHeadAdamW)
        loss = group.run(batch.view(1, 1, 32), rows, torch.arange(40) % 6)
        # All scores are zero at first, and the other half of the clusters adds nothing here.
        assert loss == pytest.approx(np.log(2) / 2, rel=0.05)
        group.keep(np.array([True]))
        state = group.state()
        (network_state,) = state["networks"]
        assert state["moments"]["head.weight"]["exp_avg"].shape == (6, 256)
        assert state["moments"]["head.weight"]["row_avg_sq"].shape == (6, 1)
        again = Sharded([network], [fold], ranks, 1e-3, 0.0, 0.9)
        again.load(state)
        assert torch.equal(
            again.state()["networks"][0]["weights"]["head.weight"],
            network_state["weights"]["head.weight"],
        )
        group.restore()
    assert network.head.weight.shape == (6, 256)
    assert torch.equal(network.head.weight, network_state["kept"]["head.weight"])


def test_a_step_sends_what_the_plan_says(sent):
    rng, index = np.random.default_rng(0), np.arange(40)
    rows, fold = observations(rng.standard_normal((40, 3)), CPU), Fold(index, index, index)
    clusters = torch.arange(40) % 6
    network = build_network(rows, fold, RECIPES["mlp"], 6, "softmax")
    group = Sharded([network], [fold], Ranks(0, 2), 1e-3, 0.0)
    batch = torch.arange(32)
    before = {name: value.clone() for name, value in tensors_of(group.present[0]).items()}
    group.gradients(batch, rows.take(group.taken(batch)), rows, clusters)
    n_parameters = sum(p.numel() for p in network.backbone.parameters())
    run = plan.Run(6, 40, 2, 32, network.head.in_features, parameters=n_parameters)
    assert sent == {"gathered": plan.gathered(run, size=4), "summed": plan.summed(run)}
    group.optimizer.step()
    after = tensors_of(group.present[0])
    assert after["head.weight"].shape == (3, network.head.in_features)
    assert not torch.equal(before["head.weight"], after["head.weight"])


def test_the_plan_grows_as_it_should():
    one = plan.Run(10**6, 10**9)
    shared = plan.Run(10**6, 10**9, ranks=8)
    device = plan.Device(780e12, 0.6, 4e12, 400e9, 20e-6)
    assert plan.step_operations(one) == 8 * plan.step_operations(shared)
    assert plan.received(one) == 0 < plan.received(shared)
    assert 4 < plan.hours(one, device) / plan.hours(shared, device) < 8
    more = plan.Run(10**7, 10**9)
    # 14 bytes of a weight; a block of scores does not grow.
    assert plan.memory(more) - plan.memory(one) == 14 * 9 * 10**6 * 512


# Two and three processes


@pytest.fixture(scope="module")
def first_runs(tmp_path_factory):
    """Runs that work and runs that are refused, by one program, and the folder of their results."""
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_data()
        return folder, run(
            *(case(f"plain{size}", size) for size in (1, 2, 3)),
            case("none", 2, starve=[1, 0]),
            case("column", 2, "--labels", "d"),
            case("usage", 2, "--epochs", "0"),
            case("links", 3, "--must-link", "0,x"),
        )


def test_two_and_three_processes_give_the_result_of_one(first_runs, monkeypatch):
    monkeypatch.chdir(first_runs[0])
    found = [first_runs[1][f"plain{size}"] for size in (1, 2, 3)]
    assert found == [[0], [0, 0], [0, 0, 0]], said("plain2")
    for name in ("plain2", "plain3"):
        assert_same("plain1", name)
    # Rank 0 prints what one process prints, and the others nothing.
    assert said("plain2").replace("plain2", "plain1") == said("plain1")
    assert said("plain3", 1) == said("plain3", 2) == ""
    assert not list(Path().glob("plain*.checkpoint"))


OTHERS = {
    # Batch normalisation and random changes, of which each process has its own.
    "pictures": {"data": "pictures.npz"},
    "distances": {"command": "distances"},
    # As with more than 10,000 clusters: only confused pairs, counted in parts.
    "sparse": {"command": "distances", "form": "sparse"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OTHERS)
def test_other_networks_and_commands_are_shared_too(kind):
    more = dict(OTHERS[kind])
    typed = more.pop("typed", [])
    different = {
        "distances": assert_same_distances,
        "sparse": assert_same_confusions,
        "pictures": assert_similar,
    }
    assert_equal = different.get(kind, assert_same)
    found = run(*(case(f"out{size}", size, *typed, **more) for size in (1, 2)))
    assert found == {"out1": [0], "out2": [0, 0]}, said("out2")
    assert_equal("out1", "out2")


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_all_and_another_number_of_them_goes_on(victim):
    found = run(
        case("whole", 1),
        case("out", 3, kill=[victim, 33]) | {"name": "killed"},
        case("out", 2, kill=[1 - victim, 6]) | {"name": "again"},
        case("out", 1),
    )
    others = [found["killed"][rank] for rank in range(3) if rank != victim]
    assert found["killed"][victim] == -signal.SIGKILL
    assert others == [2, 2]
    sentence = (
        "unsplit: one of the 3 processes of this run has ended or was stopped, and the others "
        "cannot go on without it; out.checkpoint keeps what was done so far (the same command "
        "goes on from there).\n"
    )
    told = [said("killed", rank) for rank in range(3)]
    assert sentence in told
    assert set(told) <= {sentence, ""}
    assert 2 in found["again"]
    assert found["out"] == [0], said("out")
    assert_same("whole", "out")
    assert not Path("out.checkpoint").exists()


def test_memory_that_runs_out_in_one_process_ends_all_with_one_sentence(first_runs, monkeypatch):
    monkeypatch.chdir(first_runs[0])
    assert first_runs[1]["none"] == [2, 2]
    told = [said("none", rank) for rank in range(2)]
    assert sum(text.count("needs more memory than is available") for text in told) == 1
    assert "a smaller batch_size" in "".join(told)


def test_what_is_wrong_is_said_once(first_runs, monkeypatch):
    monkeypatch.chdir(first_runs[0])
    found = first_runs[1]
    assert found["column"] == found["usage"] == [2, 2]
    assert found["links"][0] == 2
    assert all(found["links"])
    for name, size in (("column", 2), ("usage", 2), ("links", 3)):
        told = [said(name, rank) for rank in range(size)]
        assert sum(map(len, told)) == max(map(len, told)) > 0
        assert max(told).startswith("unsplit: ")
        assert max(told).count("\n") == 1


@pytest.mark.slow
def test_torchrun():
    def torchrun(size, out):
        line = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(size)]
        return subprocess.run(
            [*line, "-m", "unsplit", *case(out, size)["typed"]],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    assert run(case("one", 1)) == {"one": [0]}
    done = torchrun(2, "two")
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace("two/", "one/") == said("one")
    assert_same("one", "two")
