"""What a run tells while it goes: bars, warnings, and how long each stage took."""

import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from unsplit.errors import (
    BatchWarning,
    PartitionWarning,
    SkippedWarning,
    SmallClusterWarning,
)
from unsplit.merging.state import MergeRecord
from unsplit.networks.training.history import EpochRecord

# Every new estimate raises these again.
REPEATED = (SmallClusterWarning, BatchWarning, PartitionWarning)
OURS = (*REPEATED, SkippedWarning)


class Console:
    """Follows one run.

    Bars are drawn on standard error while it is a terminal, and leave no trace.  Each of our
    warnings is told once, though every new estimate raises it again.

    Attributes
    ----------
    seconds : dict of str to float
        By stage.
    warnings : list of str
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.warnings: list[str] = []
        self._told: set[object] = set()
        self._bar: Any = None
        self._n_trainings = 0
        self._last_epoch = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._close()
        self.seconds[name] = _since(start)

    @contextmanager
    def stages_of_merging(self) -> Iterator[None]:
        """Time what is done inside: training is what came before the last epoch told of."""
        start = self._last_epoch = time.perf_counter()
        try:
            yield
        finally:
            self._close()
        self.seconds["training"] = round(self._last_epoch - start, 3)
        self.seconds["merging"] = _since(self._last_epoch)

    @contextmanager
    def telling_warnings(self) -> Iterator[None]:
        """One line on standard error for each warning."""
        with warnings.catch_warnings():
            for category in OURS:
                warnings.simplefilter("always", category)
            warnings.showwarning = self._warn
            yield

    def warn(self, sentence: str) -> None:
        """Tell a warning, whatever bar is on the screen."""
        self.warnings.append(sentence)
        tqdm.write(f"warning: {sentence}", file=sys.stderr)

    def on_epoch(self, record: EpochRecord, what: str | None = None) -> None:
        """Take note of an epoch of training."""
        if what is not None and self._bar is None:
            self._open(desc=what, unit=" epochs")
        if what is None and record.epoch == 0:
            self._n_trainings += 1
            what = "training" if self._n_trainings == 1 else "second look"
            self._open(desc=what, unit=" epochs")
        self._bar.set_postfix_str(f"A {record.accuracy:.3f}", refresh=False)
        self._bar.update()
        self._last_epoch = time.perf_counter()

    def on_merge(self, record: MergeRecord, n_clusters: int) -> None:
        """Take note of a merge in a tree of so many clusters."""
        done = len(record.merges)
        if self._bar is None or self._bar.total is None:
            self._open(desc="merging", unit=" merges", total=n_clusters - 1, initial=done)
        self._bar.update(done - self._bar.n)

    def _open(self, **look: Any) -> None:
        self._close()
        self._bar = tqdm(**look, file=sys.stderr, leave=False, disable=None)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _warn(self, message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        key: object = category if issubclass(category, REPEATED) else str(message)
        if key not in self._told:
            self._told.add(key)
            self.warn(str(message))


def _since(start: float) -> float:
    return round(time.perf_counter() - start, 3)
