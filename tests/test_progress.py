"""What is shown while a command or a call runs."""

import fcntl
import json
import os
import pty
import struct
import sys
import termios
from pathlib import Path

import numpy as np
import pytest

import unsplit as library
from tests.cli_cases import X, arguments, merge, old_results, read_json, snapshot, succeeds, unsplit
from unsplit.cli.console import Console, Events
from unsplit.networks.training.progress import Bars, EpochRecord, Reporter, StepRecord

PHASES = ["reading", "training", "finding neighbours", "merging", "writing"]


# Every test works in a folder of its own, with data.csv in it.
pytestmark = pytest.mark.usefixtures("folder_with_data")


class Log(Reporter):
    """Remembers all that it is told."""

    def __init__(self):
        self.phases, self.steps, self.epochs, self.done = [], [], [], []

    def on_phase(self, name):
        self.phases.append(name)

    def on_progress(self, done, total):
        self.done.append((self.phases[-1], done, total))

    def on_step(self, step):
        self.steps.append(step)

    def on_epoch(self, record):
        self.epochs.append(record)


# The library


LABELS = np.repeat([0, 1, 2, 3], 40)


def test_a_reporter_is_told_of_phases_steps_epochs_and_merges():
    log = Log()
    quick = {"training": library.TrainConfig(epochs=3), "cv": 2, "device": "cpu", "random_state": 0}
    library.ClusterMerger(progress=log, **quick).fit(X, initial_labels=LABELS)
    assert log.phases == ["training", "finding neighbours", "merging"]
    assert log.done == [("merging", done, 3) for done in (1, 2, 3)]
    assert [record.epoch for record in log.epochs] == [0, 1, 2]
    total = log.steps[0].total
    assert [(step.epoch, step.done) for step in log.steps] == [
        (epoch, done) for epoch in range(3) for done in range(1, total + 1)
    ]
    assert {step.least_epochs for step in log.steps} == {3}


def test_steps_count_the_folds_that_are_trained_one_after_the_other():
    log = Log()
    one_by_one = library.TrainConfig(epochs=1, batch_folds=False, batch_size=16)
    options = {
        "training": one_by_one,
        "cv": 2,
        "device": "cpu",
        "random_state": 0,
    }
    library.pairwise_tvd(X, LABELS, progress=log, **options)
    assert [step.done for step in log.steps] == list(range(1, log.steps[0].total + 1))
    assert log.steps[0].total >= 2 * 80 // 16


def test_the_least_number_of_epochs_grows_while_accuracy_does():
    log = Log()
    library.pairwise_tvd(X, LABELS, progress=log, cv=2, device="cpu", random_state=0)
    n_epochs = len(log.epochs)
    assert log.steps[0].least_epochs == 5  # the patience, and the best epoch before it
    assert log.steps[-1].least_epochs == n_epochs
    assert all(s.epoch < s.least_epochs for s in log.steps)


def test_progress_does_not_change_the_result(capsys):
    quick = {"training": library.TrainConfig(epochs=3), "cv": 2, "device": "cpu", "random_state": 0}
    plain = library.pairwise_tvd(X, LABELS, **quick)
    assert capsys.readouterr().err == ""
    shown = library.pairwise_tvd(X, LABELS, **quick, progress=True)
    np.testing.assert_array_equal(plain.tvd, shown.tvd)
    assert "training, epoch 3 |" in capsys.readouterr().err


# Bars


class Screen:
    """A file that may be a terminal."""

    def __init__(self, is_terminal):
        self.text, self.is_terminal, self.encoding = "", is_terminal, "utf-8"

    def isatty(self):
        return self.is_terminal

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def run_all(console):
    console.plan(PHASES)
    with console.stage("reading"):
        console.on_progress(500_000, 1_000_000)
    console.on_phase("training")
    for epoch in (0, 1):
        console.on_step(StepRecord(epoch, 3, 9, 7))
        console.on_epoch(EpochRecord(epoch, 0.1, 0.75, 0.1))
    console.on_phase("a phase that was not announced")
    console.on_phase("merging")
    console.on_progress(3, 7)
    console.finish()


@pytest.mark.parametrize("asked", [None, True, False])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_bars_are_drawn_on_a_terminal_or_if_asked_for(asked, is_terminal, monkeypatch):
    monkeypatch.setattr("tqdm.std._screen_shape_wrapper", lambda: lambda file: (100, 30))
    monkeypatch.setattr(Bars, "pause", 0)
    screen = Screen(is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    run_all(Console(asked))
    if not (is_terminal if asked is None else asked):
        assert screen.text == ""
        return
    assert screen.text.startswith("5 phases: reading, training, finding neighbours, ")
    for bar in (
        "1/5 reading:  50%|",
        "| 500k/1.00M [",
        "2/5 training, epoch 2 |",
        "| 12/63 steps, at least ",
        " left, held-out accuracy 0.750",
        "\ra phase that was not announced ...",
        "4/5 merging:  43%|",
    ):
        assert bar in screen.text
    # The last thing drawn is nothing.
    assert screen.text.rpartition("\r")[0].endswith(" " * 20)


def test_epochs_without_steps_are_counted():
    screen = Screen(True)
    bars = Bars(screen)
    bars.on_phase("selecting")
    for epoch in range(3):
        bars.on_epoch(EpochRecord(epoch, 0.1, 0.75, 0.1))
    bars._bar.refresh()
    assert "selecting: 3 epochs [" in screen.text
    bars.close()


def test_nothing_is_shown_in_a_pipe_unless_asked_for():
    assert merge().stderr == ""
    shown = merge("--progress").stderr
    assert "2/5 training, epoch 1 |" in shown
    assert "Read 160 observations in 4 clusters." in shown
    assert "Using 2 features: 'x', 'y'." in shown


# Events


def events_of(result):
    return [json.loads(line) for line in result.stderr.splitlines()]


def test_every_line_of_json_is_an_event():
    result = merge("--json")
    succeeds(result)
    events = events_of(result)
    assert events[0] == {"event": "plan", "phases": PHASES}
    for phase in PHASES:
        about = [event for event in events if event.get("phase") == phase]
        assert [about[0]["event"], about[-1]["event"]] == ["started", "finished"]
        assert about[-1]["seconds"] == read_json("out/result.json")["seconds"].get(phase)
    last = [e for e in events if e.get("phase") == "merging" and e["event"] == "progress"][-1]
    assert (last["done"], last["total"]) == (3, 3)
    assert events[-1] == {"event": "result", "file": "out/result.json"}


def test_warnings_and_errors_are_events_too():
    result = merge("--json", "--drop", "z")
    assert result.exit_code == 2
    assert result.stdout == ""
    error = events_of(result)[-1]
    assert (error["event"], error["exit_code"]) == ("error", 2)
    assert error["message"].startswith("data.csv has no column 'z'")
    table = Path("data.csv").read_text(encoding="utf-8").splitlines()
    more = [f"{line},{'kind' if i == 0 else 'wine'}\n" for i, line in enumerate(table)]
    Path("data.csv").write_text("".join(more), encoding="utf-8")
    warning = [e for e in events_of(merge("--json")) if e["event"] == "warning"]
    assert "left out of data.csv: 'kind', which" in warning[0]["message"]
    overclustered = unsplit(
        "overcluster", "data.csv", "--out", "c.csv", "--method", "k-means", "--json"
    )
    phases = [e["phase"] for e in events_of(overclustered) if e["event"] == "finished"]
    assert phases == ["reading", "clustering", "writing"]


def test_events_come_once_a_second_with_what_is_known(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    events = Events()
    events.on_phase("training")
    for done in range(1, 41):
        now[0] += 0.125
        events.on_step(StepRecord(0, done, 40, 7))
    events.on_epoch(EpochRecord(0, 0.5, float("nan"), 1.0))
    events.on_epoch(EpochRecord(0, 0.5, 0.87654, 1.0))
    now[0] += 1
    events.on_step(StepRecord(1, 1, 40, 7))
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [event.get("done") for event in told] == [None, 1, 9, 17, 25, 33, 1]
    assert told[1]["least_epochs"] == 7
    assert "accuracy" not in told[-2]
    assert told[-1]["accuracy"] == 0.8765


# Ctrl-C


@pytest.mark.parametrize(
    ("phase", "existed"), [*((phase, True) for phase in PHASES), ("training", False)]
)
def test_ctrl_c_in_any_phase_says_what_is_kept(phase, existed, monkeypatch):
    before = old_results() if existed else None
    on_phase = Console.on_phase

    def interrupt(self, name):
        on_phase(self, name)
        if name == phase:
            raise KeyboardInterrupt

    monkeypatch.setattr(Console, "on_phase", interrupt)
    result = merge()
    assert result.exit_code == 130
    state = "is unchanged" if existed else "was not made"
    assert result.stderr == (
        f"unsplit: interrupted while {phase}; nothing of this run is kept, and out {state}\n"
    )
    assert Path("out").exists() == existed
    if existed:
        assert snapshot() == before


# A real terminal


def on_a_terminal(typed):
    """Run a program on a terminal of 110 columns; what it shows, and its exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(typed[0], typed, os.environ | {"OMP_NUM_THREADS": "1"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 110, 0, 0))
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 2**16)
        except OSError:  # the program has ended
            break
        if not piece:
            break
        shown += piece
    os.close(terminal)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


PROGRAM = """
import sys
from unsplit.__main__ import start

try:
    start()
finally:
    print("compiler of torch loaded:", "torch._dynamo" in sys.modules)
"""


@pytest.mark.filterwarnings("ignore:.*forkpty:DeprecationWarning")
def test_on_a_terminal_and_without_the_compiler_of_torch():
    shown, code = on_a_terminal([sys.executable, "-c", PROGRAM, *map(str, arguments())])
    assert code == 0
    parts = [
        "loading ...",
        "5 phases: reading, training",
        "1/5 reading",
        "Read 160 observations",
        "Using 2 features",
        "2/5 training, epoch 1 |",
        "3/5 finding neighbours ...",
        "4/5 merging",
        "5/5 writing",
        "Merged 4 clusters into 2.",
        "Files in out/",
        "compiler of torch loaded: False",  # which would take seconds
    ]
    places = [shown.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
