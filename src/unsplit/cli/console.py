"""What a command shows while it runs: phases, time, warnings; and what it says if it is stopped."""

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from unsplit import errors
from unsplit.cli.program import INTERRUPTED
from unsplit.data.saving import MANIFEST
from unsplit.devices import memory_errors
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.networks.training.progress import Bars, EpochRecord, Reporter, StepRecord
from unsplit.pairwise.api import LESS_DATA

# Seconds between two events about the same phase.
PAUSE = 1.0


class Events(Reporter):
    """Writes what happens to standard error, one JSON object per line; see docs/progress.md."""

    def __init__(self) -> None:
        self._phase, self._last = "", -PAUSE
        self._accuracy: float | None = None

    def event(self, event: str, **content: Any) -> None:
        """Write one event."""
        click.echo(json.dumps({"event": event} | content, allow_nan=False), err=True)

    def on_phase(self, name: str) -> None:
        """Say that a phase has started."""
        self._phase, self._last = name, time.perf_counter() - PAUSE
        self._accuracy = None
        self.event("started", phase=name)

    def on_progress(self, done: int, total: int) -> None:
        """Say how much of the phase is done, at most once a second and at the end."""
        self._progress(done == total, done=done, total=total)

    def on_step(self, step: StepRecord) -> None:
        """Say how much of the epoch is done, and how many epochs there will be at least."""
        self._progress(False, **asdict(step))

    def on_resume(self, epochs: int) -> None:
        """Say that training continues after this many epochs."""
        self.event("resumed", phase=self._phase, epochs=epochs)

    def on_epoch(self, record: EpochRecord) -> None:
        """Remember the accuracy, which later events have."""
        known = record.accuracy == record.accuracy
        self._accuracy = record.accuracy if known else None
        self._progress(False, epoch=record.epoch)

    def _progress(self, is_last: bool, **content: Any) -> None:
        now = time.perf_counter()
        if now - self._last < PAUSE and not is_last:
            return
        self._last = now
        if self._accuracy is not None:
            content = content | {"accuracy": round(self._accuracy, 4)}
        self.event("progress", phase=self._phase, **content)


class Console(Reporter):
    """Shows the phases, the progress and the warnings of one run.

    Progress bars appear on standard error, and are removed at the end.  Each of Unsplit's warnings
    is shown once, although every new estimate raises it again.

    Parameters
    ----------
    progress : bool, optional
        Whether to show bars; by default, if standard error is a terminal.
    as_json : bool
        Write events as lines of JSON instead (unless ``progress`` is False).

    Attributes
    ----------
    phase : str
        What the run is doing now.
    seconds : dict of str to float
        How long each phase took.
    warnings : list of str
        The warnings that were shown.
    """

    def __init__(self, progress: bool | None = None, as_json: bool = False) -> None:
        self.phase = "starting"
        self.seconds: dict[str, float] = {}
        self.warnings: list[str] = []
        self.as_json = as_json
        self.events = Events() if as_json and progress is not False else None
        shown = sys.stderr.isatty() if progress is None else progress
        self.bars = Bars(sys.stderr) if shown and not as_json else None
        self._view: Reporter = self.events or self.bars or Reporter()
        self._phases: list[str] = []
        self._start: float | None = None

    def event(self, event: str, **content: Any) -> None:
        """Write one event for programs, if they are written."""
        if self.events is not None:
            self.events.event(event, **content)

    def say(self, sentence: str) -> None:
        """Show a sentence, if somebody looks on."""
        if self.bars is not None:
            tqdm.write(sentence, file=sys.stderr)

    def plan(self, phases: Sequence[str]) -> None:
        """Say what will be done: the names of all phases."""
        self._phases = list(phases)
        self.event("plan", phases=self._phases)
        self.say(f"{len(phases)} phases: {', '.join(phases)}.")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Show and time one phase."""
        self.on_phase(name)
        yield
        self.finish()

    def on_phase(self, name: str) -> None:
        """Begin a phase."""
        self.finish()
        self.phase, self._start = name, time.perf_counter()
        label = name
        if self.bars is not None and name in self._phases:
            label = f"{self._phases.index(name) + 1}/{len(self._phases)} {name}"
        self._view.on_phase(label)

    def finish(self) -> None:
        """End the present phase."""
        self._view.close()
        if self._start is not None:
            seconds = round(time.perf_counter() - self._start, 3)
            self.seconds[self.phase], self._start = seconds, None
            self.event("finished", phase=self.phase, seconds=seconds)

    def described(self) -> dict[str, Any]:
        """What the files of a result say about the run: its warnings, and seconds per phase."""
        return {"warnings": self.warnings, "seconds": self.seconds}

    def on_progress(self, done: int, total: int) -> None:
        """Show how much of the phase is done."""
        self._view.on_progress(done, total)

    def on_step(self, step: StepRecord) -> None:
        """Show a step of training."""
        self._view.on_step(step)

    def on_resume(self, epochs: int) -> None:
        """Say that training continues from a checkpoint."""
        self.say(f"Continuing an interrupted run after {epochs} epochs.")
        self._view.on_resume(epochs)

    def on_epoch(self, record: EpochRecord) -> None:
        """Show an epoch of training."""
        self._view.on_epoch(record)

    @contextmanager
    def show_warnings(self) -> Iterator[None]:
        """Show each warning as one line on standard error, and end the last phase."""
        with warnings.catch_warnings():
            for category in vars(errors).values():
                if isinstance(category, type) and issubclass(category, UserWarning):
                    warnings.simplefilter("always", category)
            warnings.showwarning = self._warn
            try:
                yield
            finally:
                self._view.close()

    def _warn(self, message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) in self.warnings:
            return
        self.warnings.append(str(message))
        self.event("warning", message=str(message))
        if self.events is None:
            tqdm.write(f"warning: {message}", file=sys.stderr)


# --- if a run is stopped --------------------------------------------------------------------------


class Interrupted(click.ClickException):
    """Ctrl-C, with a sentence about the results."""

    exit_code = INTERRUPTED


@contextmanager
def interruptible(
    out: str, console: Console, checkpoint: Checkpoint | None = None
) -> Iterator[None]:
    """Say after Ctrl-C what is kept, and whether the results in ``out`` are old or new.

    Memory that is used up is an error that says so.
    """
    before, existed = _identity(out), os.path.exists(out)
    try:
        with memory_errors("this run", LESS_DATA):
            yield
    except KeyboardInterrupt:
        sentence = f"interrupted after all results were written to {out}"
        if _identity(out) == before:
            state = f"{out} {'is unchanged' if existed else 'was not made'}"
            sentence = f"interrupted while {console.phase}; {kept_by(checkpoint)}, and {state}"
        raise Interrupted(sentence) from None


def kept_by(checkpoint: Checkpoint | None) -> str:
    """What is left of a run that was stopped, and how to go on."""
    if checkpoint is None or not checkpoint.exists():
        return "nothing of this run is kept"
    return f"{checkpoint.folder} keeps what was done so far (the same command goes on from there)"


def _identity(out: str) -> tuple[int, int] | None:
    """What tells two results apart: the last file that a run writes."""
    last = Path(out, MANIFEST) if os.path.isdir(out) else Path(out)
    return (last.stat().st_ino, last.stat().st_mtime_ns) if last.is_file() else None
