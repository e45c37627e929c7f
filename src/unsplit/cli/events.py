"""What a run is doing, as one JSON object per line for programs."""

import json
import time
from collections.abc import Callable
from typing import Any

import click

from unsplit.networks.training.progress import EpochRecord, Reporter, StepRecord, TimeLeft

# Seconds between two events about the same phase.
PAUSE = 1.0


class Events(Reporter):
    """Writes events to standard error; docs/progress.md describes them.

    Parameters
    ----------
    clock : callable
        Returns the time in seconds.
    write : callable, optional
        Receives each line; by default it is written to standard error.

    Examples
    --------
    >>> events = Events(write=print)
    >>> events.on_phase("merging")
    {"event": "started", "phase": "merging"}
    >>> events.on_progress(3, 7)
    {"event": "progress", "phase": "merging", "done": 3, "total": 7}
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        write: Callable[[str], None] | None = None,
    ) -> None:
        self._clock = clock
        self._write = write or (lambda line: click.echo(line, err=True))
        self._phase = ""
        self._last = -PAUSE
        self._time_left = TimeLeft(clock)
        self._accuracy: float | None = None
        self._told: dict[str, Any] = {}

    def event(self, event: str, **content: Any) -> None:
        """Write one event."""
        self._write(json.dumps({"event": event} | content, allow_nan=False))

    def on_phase(self, name: str) -> None:
        """Tell that a phase has started."""
        self._phase, self._last = name, self._clock() - PAUSE
        self._time_left, self._accuracy, self._told = TimeLeft(self._clock), None, {}
        self.event("started", phase=name)

    def on_progress(self, done: int, total: int) -> None:
        """Tell how much of the phase is done, at most once a second and at the end."""
        self._progress(done == total, done=done, total=total)

    def on_step(self, step: StepRecord) -> None:
        """Tell how much of the epoch is done, and how many seconds are left."""
        left = self._time_left.after(step)
        self._progress(
            False,
            epoch=step.epoch,
            done=step.done,
            total=step.total,
            least_epochs=step.least_epochs,
            most_epochs=step.most_epochs,
            seconds_left=None if left is None else [round(seconds, 1) for seconds in left],
        )

    def on_resume(self, epochs: int) -> None:
        """Tell that training continues after so many epochs."""
        self.event("resumed", phase=self._phase, epochs=epochs)

    def on_epoch(self, record: EpochRecord) -> None:
        """Remember the accuracy, which later events tell."""
        known = record.accuracy == record.accuracy
        self._accuracy = record.accuracy if known else None
        self._progress(False, epoch=record.epoch)

    def finished(self, name: str, seconds: float) -> None:
        """Tell that a phase is over."""
        self.event("finished", phase=name, seconds=seconds)

    def _progress(self, is_last: bool, **content: Any) -> None:
        now = self._clock()
        if content == self._told or (now - self._last < PAUSE and not is_last):
            return
        self._last, self._told = now, content
        if self._accuracy is not None:
            content = content | {"accuracy": round(self._accuracy, 4)}
        self.event("progress", phase=self._phase, **content)
