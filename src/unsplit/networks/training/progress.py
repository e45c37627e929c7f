"""How training went and goes: records of epochs and steps, who receives them, progress bars.

No torch: a saved result can be read without it.
"""

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
    least_epochs : int
        How many epochs there will be at least; A decides.

    Examples
    --------
    >>> StepRecord(epoch=2, done=3, total=10, least_epochs=9).done
    3
    """

    epoch: int
    done: int
    total: int
    least_epochs: int


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


# Larger numbers are shown as 1.23M.
LARGE_TOTAL = 100_000

# Of a phase whose end is not known, and of training, which may end later.
NO_BAR = "{desc} ..."
TRAINING_BAR = "{desc} |{bar:12}| {n_fmt}/{total_fmt} steps, at least {remaining} left{postfix}"


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

    def on_phase(self, name: str) -> None:
        """Begin a bar."""
        self.close()
        self._name, self._epoch = name, None
        # Here, because a saved result, which has a history, is read faster without.
        from tqdm.auto import tqdm

        look = {"unit": "", "bar_format": NO_BAR, "leave": False, "mininterval": self.pause}
        self._bar = tqdm(desc=name, file=self._file, **look)

    def on_progress(self, done: int, total: int) -> None:
        """Fill the bar."""
        if self._bar.total is None:
            self._bar.bar_format, self._bar.unit_scale = None, total >= LARGE_TOTAL
            self._bar.reset(total=total)
        self._bar.update(done - self._bar.n)

    def on_step(self, step: StepRecord) -> None:
        """Fill the bar, which ends with the earliest epoch at which training can end."""
        n, total = step.epoch * step.total + step.done, step.least_epochs * step.total
        if self._epoch is None or step.epoch < self._epoch:
            self._bar.bar_format = TRAINING_BAR
            self._bar.reset(total)
            self._bar.initial = self._bar.n = n - 1
        if step.epoch != self._epoch:
            self._epoch, self._bar.total = step.epoch, total
            self._bar.set_description_str(f"{self._name}, epoch {step.epoch + 1}")
        self._bar.update(n - self._bar.n)

    def on_epoch(self, record: EpochRecord) -> None:
        """Show the accuracy; without steps, count epochs."""
        self._bar.set_postfix_str(f"held-out accuracy {record.accuracy:.3f}", refresh=False)
        if self._epoch is None:
            self._bar.bar_format, self._bar.unit = None, " epochs"
            self._bar.update()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
