"""Programs whose standard streams are closed or full, and whose folder is gone."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unsplit.data.saving import verify_folder

MERGE = [sys.executable, "-m", "unsplit", "merge", "x.npy", "--labels", "labels.npy", "--out"]
QUICK = ["--epochs", "1", "--cv", "2", "--seed", "0", "--device", "cpu", "--progress"]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    labels = np.arange(60) // 20
    np.save("x.npy", np.random.default_rng(0).normal(size=(60, 2)) + 5 * labels[:, None])
    np.save("labels.npy", labels)


def close(*numbers: int) -> Callable[[], None]:
    def in_the_program() -> None:
        for number in numbers:
            os.close(number)

    return in_the_program


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
def test_no_result_is_lost_because_nobody_listens() -> None:
    with open("/dev/full", "w") as full:
        ways = {"closed": {"preexec_fn": close(0, 1, 2)}, "full": {"stderr": full}}
        runs = [
            subprocess.Popen([*MERGE, name, *QUICK], **{"stdout": subprocess.DEVNULL, **way})
            for name, way in ways.items()
        ]
        for name, run in zip(ways, runs, strict=True):
            assert run.wait(300) == 0, name
            verify_folder(name)


def test_a_folder_that_is_gone_is_named_in_one_sentence() -> None:
    os.mkdir("gone")
    run = subprocess.run(
        [*MERGE, "out"],
        cwd="gone",
        preexec_fn=lambda: os.rmdir(os.getcwd()),
        capture_output=True,
        text=True,
    )
    expected = "unsplit: the current folder no longer exists; change to another one.\n"
    assert (run.returncode, run.stderr, run.stdout) == (2, expected, "")
