"""Progress bars, warnings and the time of each stage."""

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
from unsplit.merging.loop import MergeRecord
from unsplit.networks.training.history import EpochRecord

# Every new estimate raises these warnings again.
REPEATED = (SmallClusterWarning, BatchWarning, PartitionWarning)
OURS = (*REPEATED, SkippedWarning)


class Console:
    """Shows the progress and the warnings of one run.

    Progress bars appear on standard error if it is a terminal, and are removed at the end.  Each
    of Unsplit's warnings is shown once, although every new estimate raises it again.

    Attributes
    ----------
    seconds : dict of str to float
        How long each stage took.
    warnings : list of str
        The warnings that were shown.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.warnings: list[str] = []
        self._shown: set[object] = set()
        self._bar: Any = None
        self._n_trainings = 0
        self._last_epoch = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._close()
        self.seconds[name] = _since(start)

    @contextmanager
    def stages_of_merging(self) -> Iterator[None]:
        """Time training, which ends with the last epoch, and merging, which follows it."""
        start = self._last_epoch = time.perf_counter()
        try:
            yield
        finally:
            self._close()
        self.seconds["training"] = round(self._last_epoch - start, 3)
        self.seconds["merging"] = _since(self._last_epoch)

    @contextmanager
    def show_warnings(self) -> Iterator[None]:
        """Show each warning as one line on standard error."""
        with warnings.catch_warnings():
            for category in OURS:
                warnings.simplefilter("always", category)
            warnings.showwarning = self._warn
            yield

    def warn(self, sentence: str) -> None:
        """Show a warning without breaking the progress bar."""
        self.warnings.append(sentence)
        tqdm.write(f"warning: {sentence}", file=sys.stderr)

    def on_epoch(self, record: EpochRecord, stage: str | None = None) -> None:
        """Show an epoch of training."""
        if stage is not None and self._bar is None:
            self._open(desc=stage, unit=" epochs")
        if stage is None and record.epoch == 0:
            self._n_trainings += 1
            stage = "training" if self._n_trainings == 1 else "training on blurred data"
            self._open(desc=stage, unit=" epochs")
        self._bar.set_postfix_str(f"held-out accuracy {record.accuracy:.3f}", refresh=False)
        self._bar.update()
        self._last_epoch = time.perf_counter()

    def on_merge(self, record: MergeRecord, n_clusters: int) -> None:
        """Show how many merges of a tree with ``n_clusters`` leaves are done."""
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
        if key not in self._shown:
            self._shown.add(key)
            self.warn(str(message))


def _since(start: float) -> float:
    return round(time.perf_counter() - start, 3)
