import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli_cases import (
    QUICK,
    merge,
    old_results,
    snapshot,
    unsplit,
)

# Every test works in a folder of its own, with data.csv in it.
pytestmark = pytest.mark.usefixtures("folder_with_data")


# Resuming


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"seed": 1}'])
def test_what_is_no_checkpoint_is_refused(content):
    name = "training.npz"
    Path("out.checkpoint").mkdir()
    Path("out.checkpoint", name).write_text(content, encoding="utf-8")
    result = merge()
    assert result.exit_code == 2
    assert result.stderr.startswith(f"unsplit: out.checkpoint/{name} ")
    assert result.stderr.endswith("remove out.checkpoint to start again.\n")
    assert Path("out.checkpoint", name).read_text(encoding="utf-8") == content


# Interrupting


def test_an_interrupted_merge_changes_nothing(monkeypatch):
    before = old_results()

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    for command in ("merge", "distances"):
        patched = "estimator.fit" if command == "merge" else "cli.merge.fit"
        monkeypatch.setattr(f"unsplit.{patched}", interrupted)
        result = unsplit(command, "data.csv", "--labels", "cluster", "--out", "out")
        assert result.exit_code == 130
        assert result.stderr == (
            "unsplit: interrupted while training; "
            "nothing of this run is kept, and out is unchanged\n"
        )
        assert result.stdout == ""
        assert snapshot() == before
        assert len(list(Path("out").iterdir())) == len(before)


# A real process that waits in the midst of training until it is stopped.
WAITING = """
import signal, sys, time
from unsplit.cli import main
from unsplit.cli.console import Console

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


def test_ctrl_c_leaves_older_results_as_they_were():
    before, process = old_results(), start("out")
    try:
        while not Path("out.ready").exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        printed = process.communicate()
    finally:
        process.kill()
    assert printed == (
        "",
        "unsplit: interrupted while training; nothing of this run is kept, and out is unchanged\n",
    )
    assert process.returncode == 130
    assert snapshot() == before
