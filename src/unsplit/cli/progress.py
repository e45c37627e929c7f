"""What a command shows while it runs: phases, time, warnings."""

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from unsplit.cli.events import Events
from unsplit.errors import (
    BatchWarning,
    CheckpointWarning,
    DependenceWarning,
    FeatureWarning,
    KeptWarning,
    OutOfMemoryWarning,
    PartitionWarning,
    SkippedWarning,
    SmallClusterWarning,
)
from unsplit.networks.training.progress import (
    Bars,
    EpochRecord,
    Reporter,
    StepRecord,
    TimeLeft,
    spoken_range,
)

# Every new estimate raises these warnings again.
REPEATED = (SmallClusterWarning, BatchWarning, PartitionWarning, CheckpointWarning)
OTHERS = (SkippedWarning, FeatureWarning, DependenceWarning, KeptWarning, OutOfMemoryWarning)
OURS = (*REPEATED, *OTHERS)


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
        self.events = Events() if as_json and progress is not False else None
        shown = sys.stderr.isatty() if progress is None else progress
        self.bars = Bars(sys.stderr) if shown and not as_json else None
        self._view: Reporter = self.events or self.bars or Reporter()
        self._phases: list[str] = []
        self._shown: set[object] = set()
        self._start: float | None = None
        self._time_left: TimeLeft | None = TimeLeft()

    def plan(self, phases: Sequence[str]) -> None:
        """Say what will be done.

        Parameters
        ----------
        phases : sequence of str
            Their names, as :meth:`on_phase` will be told.
        """
        self._phases = list(phases)
        if self.events is not None:
            self.events.event("plan", phases=self._phases)
        self.say(f"{len(phases)} phases: {', '.join(phases)}.")

    def say(self, sentence: str) -> None:
        """Show a sentence, if somebody looks on."""
        if self.bars is not None:
            tqdm.write(sentence, file=sys.stderr)

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
        if self._start is None:
            return
        seconds = round(time.perf_counter() - self._start, 3)
        self.seconds[self.phase] = seconds
        self._start = None
        if self.events is not None:
            self.events.finished(self.phase, seconds)

    def on_progress(self, done: int, total: int) -> None:
        """Show how much of the phase is done."""
        self._view.on_progress(done, total)

    def on_step(self, step: StepRecord) -> None:
        """Show a step of training; say once about how long everything will take."""
        if self.bars is not None and self._time_left is not None:
            left = self._time_left.after(step)
            if left is not None:
                self.say(f"This will take {spoken_range(*left)}.")
                self._time_left = None
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
            for category in OURS:
                warnings.simplefilter("always", category)
            warnings.showwarning = self._warn
            try:
                yield
            finally:
                self._view.close()

    def warn(self, sentence: str) -> None:
        """Show a warning without breaking the progress bar."""
        self.warnings.append(sentence)
        if self.events is not None:
            self.events.event("warning", message=sentence)
        else:
            tqdm.write(f"warning: {sentence}", file=sys.stderr)

    def _warn(self, message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        key: object = category if issubclass(category, REPEATED) else str(message)
        if key not in self._shown:
            self._shown.add(key)
            self.warn(str(message))
