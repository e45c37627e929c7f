"""How training went and goes: records of epochs and steps, who receives them, progress bars.

No torch: a saved result can be read without it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

# The phases of a merge that a reporter hears of.
PHASES = TRAINING, NEIGHBOURS, MERGING = ("training", "finding neighbours", "merging")


@dataclass(frozen=True)
class EpochRecord:
    """The result of one epoch of training.

    Parameters
    ----------
    epoch : int
        Number of the epoch, from 0.
    loss : float
        Training loss, averaged over the folds.
    accuracy : float
        Balanced accuracy averaged over all pairs of clusters (A) and over the folds, on
        observations that the networks do not train on; NaN if no observation was set aside.
    seconds : float
        Seconds of training so far.

    Examples
    --------
    >>> EpochRecord(epoch=0, loss=0.7, accuracy=0.6, seconds=1.5).accuracy
    0.6
    """

    epoch: int
    loss: float
    accuracy: float
    seconds: float


@dataclass(frozen=True)
class History:
    """How training went: one entry per epoch, and the epoch that was kept for each fold.

    Parameters
    ----------
    epoch, loss, accuracy, seconds : ndarrays of shape (epochs,)
        The values of each :class:`EpochRecord`.
    kept_epoch : ndarray of shape (folds,)
        The epoch from which each fold's network has its weights.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
    >>> unsplit.pairwise_tvd(X, labels, cv=2, random_state=0).history.epoch[:2]
    array([0, 1])
    """

    epoch: NDArray[np.int64]
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    seconds: NDArray[np.float64]
    kept_epoch: NDArray[np.int64]


@dataclass(frozen=True)
class StepRecord:
    """One step of training, and how much training there is.

    Parameters
    ----------
    epoch : int
        Number of the epoch, from 0.
    done, total : int
        Steps of this epoch, for all folds: so far, and in all.
    least_epochs, most_epochs : int
        How many epochs there will be at least, and hardly more than; A decides.

    Examples
    --------
    >>> StepRecord(epoch=2, done=3, total=10, least_epochs=9, most_epochs=50).done
    3
    """

    epoch: int
    done: int
    total: int
    least_epochs: int
    most_epochs: int


class Reporter:
    """Receives what a run is doing; subclass it and pass it as ``progress``.

    This class does nothing with what it receives.

    Examples
    --------
    >>> import unsplit
    >>> class Phases(Reporter):
    ...     def on_phase(self, name):
    ...         print(name)
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 50, random_state=0)
    >>> merger = unsplit.ClusterMerger(progress=Phases(), random_state=0)
    >>> _ = merger.fit(X, initial_labels=labels)
    training
    finding neighbours
    merging
    """

    def on_phase(self, name: str) -> None:
        """A phase begins, such as "training" or "merging"; the one before it is over."""

    def on_progress(self, done: int, total: int) -> None:
        """So much of the present phase is done, such as merges."""

    def on_step(self, step: StepRecord) -> None:
        """A step of training is done."""

    def on_epoch(self, record: EpochRecord) -> None:
        """An epoch of training is done, and A is measured."""

    def on_resume(self, epochs: int) -> None:
        """Training continues from a checkpoint, after this many epochs."""

    def close(self) -> None:
        """The run is over."""


# What steps do not count: A is measured after every epoch, and distances and merging follow.
BESIDE_STEPS = 1.3

# Fewer steps than this, or less time, say nothing about the rest.
STEPS_TO_MEASURE = 2
SECONDS_TO_MEASURE = 0.2

# Larger numbers are shown as 1.23M.
LARGE_TOTAL = 100_000

# Of a phase whose end is not known, and of an epoch, whose time says little about the whole.
NO_BAR = "{desc} ..."
EPOCH_BAR = "{desc} |{bar:12}| {n_fmt}/{total_fmt} steps{postfix}"


class TimeLeft:
    """How long training and what follows will take, from the steps so far.

    Parameters
    ----------
    clock : callable
        Returns the time in seconds.

    Examples
    --------
    >>> times = iter([0.0, 1.0, 2.0])
    >>> left = TimeLeft(lambda: next(times))
    >>> for done in (1, 2, 3):
    ...     found = left.after(StepRecord(0, done, 10, least_epochs=1, most_epochs=2))
    >>> found  # 7 steps left at least, and hardly more than 17
    (7.0, 22.1)
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._start: tuple[int, float] | None = None

    def after(self, step: StepRecord) -> tuple[float, float] | None:
        """Least and most seconds that are left after a step; None if it is too early to say."""
        now, n = self._clock(), step.epoch * step.total + step.done
        if self._start is None or n < self._start[0]:
            # The first step is left out, because it prepares the ones that follow.
            self._start = (n, now)
        n_timed, seconds = n - self._start[0], now - self._start[1]
        if n_timed < STEPS_TO_MEASURE or seconds < SECONDS_TO_MEASURE:
            return None
        least, most = (
            max(0, epochs * step.total - n) * seconds / n_timed
            for epochs in (step.least_epochs, step.most_epochs)
        )
        return least, BESIDE_STEPS * most


def spoken_range(low: float, high: float) -> str:
    """A range of time in words.

    Parameters
    ----------
    low, high : float
        Seconds.

    Examples
    --------
    >>> spoken_range(7.4, 22), spoken_range(50, 200), spoken_range(4000, 20000)
    ('about 7 to 20 s', 'about 50 s to 3 min', 'about 1.1 to 5.6 h')
    """
    (first, unit), (second, other) = _rounded(low), _rounded(high)
    if (first, unit) == (second, other):
        return f"about {first} {unit}"
    return f"about {first}{'' if unit == other else ' ' + unit} to {second} {other}"


def _rounded(seconds: float) -> tuple[str, str]:
    if seconds < 9.5:
        return str(max(1, round(seconds))), "s"
    if seconds < 57.5:
        return str(5 * round(seconds / 5)), "s"
    if seconds < 3570:
        return str(max(1, round(seconds / 60))), "min"
    return f"{seconds / 3600:.1f}", "h"


class Bars(Reporter):
    """Shows a progress bar for each phase, which disappears at its end.

    Parameters
    ----------
    file : text file, optional
        Where to draw; by default standard error.

    Examples
    --------
    >>> import io
    >>> screen = io.StringIO()
    >>> bars = Bars(screen)
    >>> bars.on_phase("merging")
    >>> bars.on_progress(3, 7)
    >>> bars.close()
    >>> "merging: " in screen.getvalue()
    True
    """

    # Seconds between two drawings of a bar.
    pause = 0.1

    def __init__(self, file: IO[str] | None = None) -> None:
        self._file = file
        self._bar: Any = None
        self._name = ""
        self._epoch: int | None = None
        self._notes: dict[str, str] = {}
        self._time_left = TimeLeft()

    def on_phase(self, name: str) -> None:
        """Begin a bar."""
        self.close()
        self._name, self._epoch, self._notes, self._time_left = name, None, {}, TimeLeft()
        # Here, because a saved result, which has a history, is read faster without.
        from tqdm.auto import tqdm

        look = {"unit": "", "bar_format": NO_BAR, "leave": False, "mininterval": self.pause}
        self._bar = tqdm(desc=name, file=self._file, **look)

    def on_progress(self, done: int, total: int) -> None:
        """Fill the bar."""
        if self._bar is None:
            return
        if self._bar.total is None:
            self._bar.bar_format, self._bar.unit_scale = None, total >= LARGE_TOTAL
            self._bar.reset(total=total)
        self._bar.update(done - self._bar.n)

    def on_step(self, step: StepRecord) -> None:
        """Fill the bar of the present epoch."""
        if self._bar is None:
            return
        if step.epoch != self._epoch:
            self._epoch = step.epoch
            self._bar.set_description_str(f"{self._name}, epoch {step.epoch + 1}", refresh=False)
            self._bar.bar_format = EPOCH_BAR
            self._bar.reset(total=step.total)
        if (left := self._time_left.after(step)) is not None:
            self._notes["time"] = f"{spoken_range(*left)} left"
            self._write_notes()
        self._bar.update(step.done - self._bar.n)

    def on_epoch(self, record: EpochRecord) -> None:
        """Show the accuracy; without steps, count epochs."""
        if self._bar is None:
            return
        self._notes["accuracy"] = f"held-out accuracy {record.accuracy:.3f}"
        self._write_notes()
        if self._epoch is None:
            self._bar.bar_format, self._bar.unit = None, " epochs"
            self._bar.update()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _write_notes(self) -> None:
        shown = [self._notes[name] for name in ("accuracy", "time") if name in self._notes]
        self._bar.set_postfix_str(", ".join(shown), refresh=False)
