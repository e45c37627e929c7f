import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.cli_cases import (
    LABELS,
    QUICK,
    X,
    arguments,
    merge,
    old_results,
    read_json,
    snapshot,
    succeeds,
    unsplit,
)
from unsplit.data.array_files import saved_meta
from unsplit.merging.decision import Ending
from unsplit.merging.loop import MergeRecord
from unsplit.merging.resume import ResumeFile
from unsplit.merging.review import Merge
from unsplit.networks.training.checkpoint import Checkpoint

RETRAIN = ("--strategy", "retrain")
SAME = ("labels.csv", "merges.csv", "review.csv", "linkage.npy", "tree.npz")


# Every test works in a folder of its own, with data.csv in it.
pytestmark = pytest.mark.usefixtures("folder_with_data")


def interrupt_after(monkeypatch, n_merges):
    """Ctrl-C once so many merges were written."""
    save = ResumeFile.save

    def save_and_stop(self, record):
        save(self, record)
        if len(record.merges) == n_merges:
            raise KeyboardInterrupt

    monkeypatch.setattr(ResumeFile, "save", save_and_stop)


# Resuming


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "n_merges"),
    [
        ((), 2),
        (("--must-link", "0,2"), 1),
        (("--n-clusters", 3), 1),  # the last merge that belongs to the answer
        (("--n-clusters", 3, "--cannot-link", "0,2"), 3),  # all is done but the files
    ],
)
def test_a_resumed_run_ends_as_if_never_interrupted(rule, n_merges, monkeypatch):
    succeeds(merge(*RETRAIN, *rule, out="whole"))
    with monkeypatch.context() as patch:
        interrupt_after(patch, n_merges)
        result = merge(*RETRAIN, *rule)
    assert result.exit_code == 130
    typed = shlex.join(["unsplit", *map(str, arguments(*RETRAIN, *rule))])
    assert result.stderr == (
        "unsplit: interrupted while merging; out.checkpoint keeps what was done so far, and out "
        f"was not made; to go on: {typed}\n"
    )
    assert set(snapshot("out.checkpoint")) == {"merges.npz", "training.npz"}
    assert len(saved_meta("out.checkpoint/merges.npz")["record"]["merges"]) == n_merges
    succeeds(merge(*RETRAIN, *rule))
    assert not Path("out.checkpoint").exists()
    whole, resumed = snapshot("whole"), snapshot()
    assert set(resumed) == set(whole)
    for name in SAME:
        assert resumed[name] == whole[name]
    volatile = {"seconds": None}
    assert read_json("out/result.json") | volatile == read_json("whole/result.json") | volatile


@pytest.mark.slow
def test_only_merges_that_are_left_are_made(monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        merge(*RETRAIN)
    made = []
    save = ResumeFile.save
    monkeypatch.setattr(ResumeFile, "save", lambda s, r: (made.append(len(r.merges)), save(s, r)))
    succeeds(merge(*RETRAIN))
    assert made == [3]


@pytest.mark.slow
def test_the_seed_that_was_drawn_is_found_again(monkeypatch):
    where = ("merge", "data.csv", "--labels", "cluster", "--out", "out", *QUICK, *RETRAIN)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        unsplit(*where)
    seed = Checkpoint("out.checkpoint").seed()
    succeeds(unsplit(*where))
    assert read_json("out/result.json")["seed"] == seed
    succeeds(merge(*RETRAIN, out="whole", seed=seed))
    assert snapshot()["merges.csv"] == snapshot("whole")["merges.csv"]


def test_another_run_is_not_resumed(monkeypatch):
    np.savez("data.npz", X=X, cluster=LABELS)
    np.savez("other.npz", X=X + 1, cluster=LABELS)
    np.savez("mixed.npz", X=X, cluster=LABELS[::-1])
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        merge(*RETRAIN, data="data.npz")
    before = snapshot("out.checkpoint")
    cases = {
        "data": merge(*RETRAIN, data="other.npz"),
        "labels": merge(*RETRAIN, data="mixed.npz"),
        "settings": merge(*RETRAIN, "--epochs", 4, data="data.npz"),
        "seed": merge(*RETRAIN, data="data.npz", seed=1),
        "options": merge(*RETRAIN, "--alpha", 1, data="data.npz"),
    }
    for named, result in cases.items():
        assert result.exit_code == 2
        assert result.stderr.startswith("unsplit: out.checkpoint/")
        assert f"a run with different {named}" in result.stderr, result.stderr
        assert "remove out.checkpoint to start again" in result.stderr
    assert snapshot("out.checkpoint") == before
    assert not Path("out").exists()


@pytest.mark.parametrize("name", ["merges.npz", "training.npz"])
@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"seed": 1}'])
def test_what_is_no_checkpoint_is_refused(name, content):
    Path("out.checkpoint").mkdir()
    Path("out.checkpoint", name).write_text(content, encoding="utf-8")
    result = merge(*RETRAIN)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"unsplit: out.checkpoint/{name} ")
    assert result.stderr.endswith("remove out.checkpoint to start again.\n")
    assert Path("out.checkpoint", name).read_text(encoding="utf-8") == content


@pytest.mark.parametrize(
    "name", ["merges.json", "training.safetensors", "retraining-2.safetensors"]
)
def test_a_checkpoint_of_the_version_before_is_refused(name):
    Path("out.checkpoint").mkdir()
    Path("out.checkpoint", name).write_text("{}", encoding="utf-8")
    result = merge(*RETRAIN)
    assert result.exit_code == 2
    assert result.stderr == (
        f"unsplit: out.checkpoint/{name} was written by an earlier version of unsplit; use that "
        "version to go on, or remove out.checkpoint to start again.\n"
    )
    assert Path("out.checkpoint", name).exists()


def test_records_come_back_as_they_were():
    evidence = np.nan, np.nan, 1.0, np.nan, 12.0, 0.1 + 0.2, np.nan, 1 / 3
    merges = [Merge(0, 1, 40, 40, 0.1, 0.1 + 0.2, *evidence, "rule", "rule", np.nan, "“close”")]
    stopped = MergeRecord(merges, 1, None, Ending("requested", 2), merges * 2)
    for record in (MergeRecord(merges), stopped, MergeRecord([], 0, 0, Ending("one left"))):
        file = ResumeFile("new/folder", {"data": "a", "seed": (1, 2)})
        assert (file.record(3) is None) == (not file.path.exists())
        file.save(record)
        assert str(file.record(3)) == str(record)  # NaN is not equal to itself


# Interrupting


def test_an_interrupted_merge_changes_nothing(monkeypatch):
    before = old_results()

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    for command in ("merge", "distances"):
        patched = "run.merge_overclustering" if command == "merge" else "distances.fit"
        monkeypatch.setattr(f"unsplit.cli.{patched}", interrupted)
        result = unsplit(command, "data.csv", "--labels", "cluster", "--out", "out")
        assert result.exit_code == 130
        assert result.stderr == (
            f"unsplit: interrupted while {'reading' if command == 'merge' else 'training'}; "
            "nothing of this run is kept, and out is unchanged\n"
        )
        assert result.stdout == ""
        assert snapshot() == before
        assert len(list(Path("out").iterdir())) == len(before)


def test_retrain_interrupted_before_the_first_merge_has_nothing_to_resume(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("unsplit.cli.run.merge_overclustering", interrupted)
    result = merge(*RETRAIN)
    kept = "nothing of this run is kept, and out was not made"
    assert result.stderr == f"unsplit: interrupted while reading; {kept}\n"
    assert not Path("out").exists()


# A real process that waits in the midst of training until it is stopped.
WAITING = """
import signal, sys, time
from unsplit.cli import main
from unsplit.cli.progress import Console

def wait(console, record):
    open(f"{sys.argv[1]}.ready", "w").close()
    time.sleep(600)

# What was started in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
Console.on_epoch = wait
main(sys.argv[2:], prog_name="unsplit")
"""


def start(out):
    typed = ["merge", "data.csv", "--labels", "cluster", "--out", out, *QUICK]
    return subprocess.Popen(
        [sys.executable, "-c", WAITING, out, *typed],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        text=True,
    )


@pytest.mark.slow
def test_signals_leave_older_results_as_they_were():
    signals = {"interrupted": signal.SIGINT, "killed": signal.SIGKILL}
    before = {out: old_results(out) for out in signals}
    processes = {out: start(out) for out in signals}
    printed = {}
    try:
        for out, process in processes.items():
            while not Path(f"{out}.ready").exists() and process.poll() is None:
                time.sleep(0.02)
            process.send_signal(signals[out])
            printed[out] = process.communicate()
    finally:
        for process in processes.values():
            process.kill()
    assert printed["interrupted"] == (
        "",
        "unsplit: interrupted while training; nothing of this run is kept, and interrupted is "
        "unchanged\n",
    )
    assert processes["interrupted"].returncode == 130
    assert snapshot("interrupted") == before["interrupted"]
    assert printed["killed"] == ("", "")
    assert processes["killed"].returncode == -signal.SIGKILL
    after = snapshot("killed")
    assert {name: after[name] for name in before["killed"]} == before["killed"]
