"""A run that is interrupted after any epoch continues to the bit-identical result."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import unsplit
from tests.cli_cases import QUICK, arguments, merge, snapshot, succeeds
from tests.cli_cases import unsplit as command
from unsplit.data.array_files import load_arrays, saved_meta
from unsplit.errors import CheckpointWarning, InputError
from unsplit.networks.training import checkpoint as checkpoints
from unsplit.networks.training.checkpoint import Checkpoint

X, LABELS = unsplit.datasets.gaussians([[0, 0], [0, 0], [3, 0], [9, 0]], 60, random_state=0)


class Stopped(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.fixture
def at_every_epoch(monkeypatch):
    """Write a checkpoint after every epoch."""
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    monkeypatch.setattr(checkpoints, "AT_MOST_ONE_IN", 0)


def stop_after(monkeypatch, n_saved, before=False):
    """Stop a run when so many checkpoints were written, or just before the last of them."""
    save, count = Checkpoint.save, iter(range(1, 10**6))

    def save_and_stop(self, state):
        last = next(count) == n_saved
        if not (last and before):
            save(self, state)
        if last:
            raise Stopped

    monkeypatch.setattr(Checkpoint, "save", save_and_stop)


def same(one, other):
    """Whether two estimates are the same to the bit, except for the time they took."""
    for name in ("hit_rate", "tvd", "n_heldout"):
        assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True)
    for name in ("loss", "accuracy", "kept_epoch"):
        assert np.array_equal(getattr(one.history, name), getattr(other.history, name))
    assert np.array_equal(one.scores.features, other.scores.features)
    assert one.temperature == other.temperature


def noisy():
    """A network with batch statistics and dropout, which draws from torch."""
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU())


CASES = {
    "stacked": {"training": unsplit.TrainConfig(epochs=3), "cv": 2},
    "one by one": {"training": unsplit.TrainConfig(epochs=3, batch_folds=False), "cv": 2},
    "of the user": {"training": unsplit.TrainConfig(epochs=3), "backbone": noisy(), "cv": 2},
    "cv": {"training": unsplit.TrainConfig(epochs=3), "cv": 0.3},
}


@pytest.mark.parametrize("case", CASES)
def test_training_continues_to_the_same_bits(case, at_every_epoch, monkeypatch, tmp_path):
    settings = {"random_state": 3, "checkpoint": tmp_path / "kept"} | CASES[case]
    whole = unsplit.pairwise_tvd(X, LABELS, **settings)
    assert not (tmp_path / "kept").exists()  # a run that has finished leaves nothing
    for n_saved in (1, 3):
        with monkeypatch.context() as patch:
            stop_after(patch, n_saved, before=n_saved == 3)
            with pytest.raises(Stopped):
                unsplit.pairwise_tvd(X, LABELS, **settings)
        assert (tmp_path / "kept" / "training.npz").exists()
        same(unsplit.pairwise_tvd(X, LABELS, **settings), whole)
        assert not (tmp_path / "kept").exists()


def test_a_checkpoint_changes_nothing(at_every_epoch, tmp_path):
    plain = unsplit.pairwise_tvd(
        X, LABELS, training=unsplit.TrainConfig(epochs=3), cv=2, random_state=3
    )
    same(
        unsplit.pairwise_tvd(
            X,
            LABELS,
            training=unsplit.TrainConfig(epochs=3),
            cv=2,
            random_state=3,
            checkpoint=tmp_path,
        ),
        plain,
    )


def test_short_runs_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "save", lambda *_: pytest.fail("written"))
    unsplit.pairwise_tvd(
        X, LABELS, training=unsplit.TrainConfig(epochs=1), checkpoint=tmp_path / "kept"
    )
    assert not (tmp_path / "kept").exists()


def test_a_whole_merge_continues_from_its_checkpoint(at_every_epoch, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(240, 2))
    labels = (points[:, 0] > 0) * 1 + (points[:, 1] > 0) * 2
    settings = {"training": unsplit.TrainConfig(epochs=3), "cv": 2, "random_state": 1}

    def merged(**more):
        return unsplit.ClusterMerger(**settings, **more).fit(points, initial_labels=labels)

    whole = merged()
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stopped):
            merged(checkpoint=tmp_path / "kept")
    names = {path.name for path in (tmp_path / "kept").iterdir()}
    assert names == {"training.npz"}
    again = merged(checkpoint=tmp_path / "kept")
    assert again.tree_.table() == whole.tree_.table()
    assert np.array_equal(again.labels_, whole.labels_)
    assert not (tmp_path / "kept").exists()


def test_without_a_seed_the_drawn_one_is_kept(at_every_epoch, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stopped):
            unsplit.pairwise_tvd(
                X, LABELS, training=unsplit.TrainConfig(epochs=3), cv=2, checkpoint=tmp_path
            )
    seed = Checkpoint(tmp_path).seeded(None)
    again = unsplit.pairwise_tvd(
        X, LABELS, training=unsplit.TrainConfig(epochs=3), cv=2, checkpoint=tmp_path
    )
    same(
        again,
        unsplit.pairwise_tvd(
            X, LABELS, training=unsplit.TrainConfig(epochs=3), cv=2, random_state=seed
        ),
    )


def test_generators_as_random_state_are_continued_too(at_every_epoch, monkeypatch, tmp_path):
    whole = unsplit.pairwise_tvd(
        X,
        LABELS,
        training=unsplit.TrainConfig(epochs=3),
        cv=2,
        random_state=np.random.default_rng(5),
    )
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        rng = np.random.default_rng(5)
        with pytest.raises(Stopped):
            unsplit.pairwise_tvd(
                X,
                LABELS,
                training=unsplit.TrainConfig(epochs=3),
                cv=2,
                random_state=rng,
                checkpoint=tmp_path,
            )
    rng = np.random.default_rng(5)
    same(
        unsplit.pairwise_tvd(
            X,
            LABELS,
            training=unsplit.TrainConfig(epochs=3),
            cv=2,
            random_state=rng,
            checkpoint=tmp_path,
        ),
        whole,
    )


def test_another_run_is_never_continued(at_every_epoch, monkeypatch, tmp_path):
    settings = {
        "training": unsplit.TrainConfig(epochs=3),
        "cv": 2,
        "random_state": 0,
        "checkpoint": tmp_path,
    }
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stopped):
            unsplit.pairwise_tvd(X, LABELS, **settings)
    before = snapshot(tmp_path)
    others = {
        "data": ((X + 1, LABELS), {}),
        "labels": ((X, np.roll(LABELS, 7)), {}),  # the same clusters by other names would do
        "settings": ((X, LABELS), {"training": unsplit.TrainConfig(epochs=4)}),
        "seed": ((X, LABELS), {"random_state": 1}),
    }
    for named, (data, changed) in others.items():
        with pytest.raises(InputError, match=f"a run with different .*{named}.*start again") as e:
            unsplit.pairwise_tvd(*data, **settings | changed)
        assert str(tmp_path / "training.npz") in str(e.value)
        assert snapshot(tmp_path) == before
    for changed in (
        {"backbone": "single-layer"},
        {"training": unsplit.TrainConfig(loss="pairwise")},
        {"cv": 3},
    ):
        with pytest.raises(InputError, match="a run with different settings"):
            unsplit.pairwise_tvd(X, LABELS, **settings | changed)


def test_a_damaged_file_is_refused_in_one_sentence(at_every_epoch, monkeypatch, tmp_path):
    settings = {
        "training": unsplit.TrainConfig(epochs=3),
        "cv": 2,
        "random_state": 0,
        "checkpoint": tmp_path,
    }
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stopped):
            unsplit.pairwise_tvd(X, LABELS, **settings)
    path = tmp_path / "training.npz"
    whole, refused = path.read_bytes(), []
    content, _ = load_arrays(path, checkpoints.FORMAT)
    rng = np.random.default_rng(0)
    for case in range(40):
        damaged = bytearray(whole)
        place = int(rng.integers(len(whole)))
        if case % 2:
            damaged[place] ^= int(rng.integers(1, 256))
        else:
            del damaged[place:]
        path.write_bytes(damaged)
        try:
            found, _ = load_arrays(path, checkpoints.FORMAT, "remove it to start again")
        except InputError as error:
            refused.append(str(error))
        else:  # the damage is in bytes that nothing reads
            assert str(found) == str(content)
    assert len(refused) > 30
    assert all(re.search(r"training\.npz .* to start again\.$", told) for told in refused)
    path.write_bytes(whole[:-9])
    with pytest.raises(
        InputError, match="is not a Training saved by unsplit, or it is damaged; remove"
    ):
        unsplit.pairwise_tvd(X, LABELS, **settings)


def test_a_state_of_other_networks_is_refused(at_every_epoch, monkeypatch, tmp_path):
    settings = {
        "training": unsplit.TrainConfig(epochs=3),
        "cv": 2,
        "random_state": 0,
        "checkpoint": tmp_path,
    }
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stopped):
            unsplit.pairwise_tvd(X, LABELS, **settings)
    file = Checkpoint(tmp_path)
    file.identity = saved_meta(file.path)["identity"]
    whole = file.load()
    for name in ("stopping", "rng", "generators"):
        file.save({key: value for key, value in whole.items() if key != name})
        with pytest.raises(InputError, match="does not fit the networks of this run"):
            unsplit.pairwise_tvd(X, LABELS, **settings)
    weights = whole["groups"][0]["networks"][0]["weights"]
    weights["head.weight"] = weights["head.weight"][:-1]
    file.save(whole)
    with pytest.raises(InputError, match="does not fit the networks of this run"):
        unsplit.pairwise_tvd(X, LABELS, **settings)


def test_a_full_disk_does_not_stop_a_run(at_every_epoch, monkeypatch, tmp_path):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_arrays", full)
    with pytest.warns(CheckpointWarning, match=r"no space left on device\); the run goes on"):
        unsplit.pairwise_tvd(
            X, LABELS, training=unsplit.TrainConfig(epochs=1), checkpoint=tmp_path / "kept"
        )


def test_what_else_is_in_the_folder_stays(at_every_epoch, tmp_path):
    (tmp_path / "model.npz").write_text("mine")
    unsplit.pairwise_tvd(X, LABELS, training=unsplit.TrainConfig(epochs=1), checkpoint=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


def test_a_checkpoint_must_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"checkpoint must be a folder, but .* is a file; choose"):
        unsplit.pairwise_tvd(X, LABELS, checkpoint=tmp_path / "file")


def test_writing_takes_a_small_part_of_the_time(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    file = Checkpoint(tmp_path)
    assert not file.due()
    now[0] = checkpoints.EVERY
    assert file.due()

    class Slow(dict):
        def items(self):
            now[0] += 10  # writing takes ten seconds
            return super().items()

    file.save(Slow(step=1))
    now[0] += checkpoints.AT_MOST_ONE_IN * 10 - 1
    assert not file.due()
    now[0] += 1
    assert file.due()


# The file format


def test_states_come_back_as_they_were(tmp_path):
    tensors = [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.tensor(7),
        torch.zeros(0, 3),
        torch.tensor([True, False]),
        *(torch.tensor([1.5, -2]).to(dtype) for dtype in (torch.bfloat16, torch.float16)),
        torch.tensor(1.5, dtype=torch.bfloat16),
    ]
    state = {"t": tensors, "a": {"b": [1, 2.5, None]}, "nan": float("inf"), "array": np.eye(2)}
    file = Checkpoint(tmp_path)
    file.seeded(3)
    file.save(state)
    found = file.load()
    for one, other in zip(found["t"], tensors, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert torch.equal(one, other)
    assert found["a"] == {"b": [1, 2.5, None]}
    assert found["nan"] == float("inf")
    assert np.array_equal(found["array"], np.eye(2))
    assert Checkpoint(tmp_path).seeded(None) == 3


@pytest.mark.parametrize("name", ["training.npz"])
def test_a_checkpoint_with_a_link_is_refused(tmp_path, name):
    """Which could lead out of the folder."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=rf"{name} is a link, which no run makes; remove"):
        unsplit.pairwise_tvd(X, LABELS, checkpoint=tmp_path / "kept")
    assert not (tmp_path / "elsewhere").exists()


def test_what_a_killed_run_left_is_removed_with_the_checkpoint(tmp_path):
    kept = Checkpoint(tmp_path / "kept")
    kept.save({"step": 1})
    (tmp_path / "kept" / ".unsplit-01234567.training.npz").write_text("half")
    kept.remove()
    assert not (tmp_path / "kept").exists()


# The command


# Writes a checkpoint after every epoch, and kills itself at one of them or in the midst of one.
KILLED = """
import os, signal, sys
from unsplit.cli import main
from unsplit.data import saving
from unsplit.networks.training import checkpoint

checkpoint.EVERY = checkpoint.AT_MOST_ONE_IN = 0
at, left = sys.argv[1], int(sys.argv[2])
replace = os.replace

def counted(source, target):
    global left
    if str(target).endswith(".npz"):
        left -= 1
        if left == 0 and at == "before":
            os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
    if left == 0 and at == "after":
        os.kill(os.getpid(), signal.SIGKILL)

saving.os.replace = counted
main(sys.argv[3:], prog_name="unsplit")
"""


def killed(at, n, *typed):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, at, str(n), *map(str, typed)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


SAME = ("labels.csv", "merges.csv", "review.csv", "linkage.npy", "tree.npz")


@pytest.mark.usefixtures("folder_with_data")
@pytest.mark.parametrize(
    ("at", "again"), [pytest.param("before", True, marks=pytest.mark.slow), ("after", False)]
)
def test_a_killed_command_continues_when_it_is_typed_again(at, again):
    succeeds(merge(out="whole"))
    killed(at, 2, *arguments())
    assert {path.name for path in Path("out.checkpoint").glob("[!.]*")} == {"training.npz"}
    assert not Path("out").exists()
    if again:
        killed(at, 1, *arguments())
    succeeds(merge())
    whole, resumed = snapshot("whole"), snapshot()
    assert {name: resumed[name] for name in SAME} == {name: whole[name] for name in SAME}
    one, other = (unsplit.PairwiseTVD.load(f"{out}/distances.npz") for out in ("out", "whole"))
    assert np.array_equal(one.tvd, other.tvd)
    assert not Path("out.checkpoint").exists()


@pytest.mark.usefixtures("folder_with_data", "at_every_epoch")
def test_ctrl_c_in_training_says_what_is_kept(monkeypatch):
    typed = ("distances", "data.csv", "--labels", "cluster", "--out", "out", *QUICK)
    save = Checkpoint.save

    def save_and_stop(self, state):
        save(self, state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save_and_stop)
        result = command(*typed)
    assert result.exit_code == 130
    assert result.stderr == (
        "unsplit: interrupted while training; out.checkpoint keeps what was done so far (the "
        "same command goes on from there), and out was not made\n"
    )
    seed = Checkpoint("out.checkpoint").seeded(None)
    told = command(*typed, "--json")
    succeeds(told)
    events = [json.loads(line) for line in told.stderr.splitlines()]
    assert {"event": "resumed", "phase": "training", "epochs": 1} in events
    assert json.loads(told.stdout)["seed"] == seed
    assert not Path("out.checkpoint").exists()
