"""Checkpoints: what a long run has done so far, so that it continues after any interruption.

A checkpoint is a folder with one file for every training of a run.  A file is written from time to
time, replaces the one before it in one step, and is read when the same run is started again.  It
names the run that it belongs to, and no other run continues from it.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from unsplit.data.saving import reason_of
from unsplit.data.swap import remove_abandoned
from unsplit.data.tensor_files import load_state, plain_state, save_state
from unsplit.devices import current, version_of
from unsplit.errors import (
    CheckpointWarning,
    InputError,
    check_path,
    is_whole,
    refuse_other_run,
    warn,
)

FORMAT = "unsplit.training/1"
ENDING = ".safetensors"

_OURS = re.compile(rf"(training|retraining-\d+){re.escape(ENDING)}|merges\.json")

# Seconds between two checkpoints, so that short runs write none.
EVERY = 30.0
# Writing takes at most about one part in this many of the time.
AT_MOST_ONE_IN = 20
# Steps between two questions of several processes whether it is time.
ASKED_EVERY = 16


class TrainingFile:
    """The state of one training, in a file.

    Parameters
    ----------
    path : Path
    seed : int or None
        The seed of the whole run, kept for a run that is started again without one.
    always : bool
        Keep the end of training even if repeating it takes little time.
    clock : callable
        Returns the time in seconds.

    Examples
    --------
    >>> import tempfile
    >>> file = TrainingFile(Path(tempfile.mkdtemp()) / "training.safetensors", seed=3)
    >>> file.begin({"data": "a1"})
    >>> file.save({"step": 7})
    >>> file.load()
    {'step': 7}
    """

    def __init__(
        self,
        path: Path,
        seed: int | None,
        always: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path, self.seed, self.always, self._clock = path, seed, always, clock
        self.identity: dict[str, Any] = {}
        self.ranks = current()
        self._next, self._n_asked = clock() + EVERY, 0

    @property
    def advice(self) -> str:
        """What to do about a file that cannot be used."""
        return f"remove {self.path.parent} to start again"

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Say which run this is: named values or checksums of all that the result depends on."""
        versions = [version_of(name) for name in ("unsplit", "torch", "numpy")]
        self.identity = {"versions": versions, **identity}

    def due(self) -> bool:
        """Whether it is time for the next checkpoint; several processes ask rank 0 now and then."""
        if self.ranks.size == 1:
            return self._is_time()
        self._n_asked += 1
        return self._n_asked % ASKED_EVERY == 0 and self.ranks.agree(self._is_time())

    def _is_time(self) -> bool:
        return self._clock() >= self._next

    def save(self, state: Any) -> None:
        """Write the state; if that is impossible, warn, and let the run go on."""
        if self.ranks.rank:
            return
        start = self._clock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = {"identity": self.identity, "seed": self.seed, "training": state}
            save_state(self.path, FORMAT, content)
        except (OSError, InputError) as error:
            why = reason_of(error) if isinstance(error, OSError) else str(error)
            warn(
                f"no checkpoint could be written to {self.path.parent} ({why}); the run goes on "
                "without.",
                CheckpointWarning,
            )
        now = self._clock()
        self._next = now + max(EVERY, AT_MOST_ONE_IN * (now - start))

    def save_last(self, state: Callable[[], Any]) -> None:
        """Write the state at the end of training, unless repeating it takes little time."""
        if self.ranks.agree(self.always or self._is_time() or self.path.exists()):
            self.save(state())

    def load(self) -> Any:
        """Return the state that was written last; None if there is none."""
        if not self.ranks.agree(self.path.exists()):
            return None
        if not self.path.exists():
            raise InputError(
                f"{self.path} cannot be seen by all processes; choose a folder that all share."
            )
        content = load_state(self.path, FORMAT, self.advice)
        refuse_other_run(self.path, content["identity"], self.identity, self.advice)
        return content["training"]

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Turn errors that a state of other networks causes into one sentence."""
        try:
            yield
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
            raise InputError(
                f"{self.path} does not fit the networks of this run; {self.advice}."
            ) from None


class Checkpoint:
    """The folder in which a run keeps what it has done so far.

    Parameters
    ----------
    folder : str or path
        It is made when there is something to keep, and removed when the run has finished.

    Examples
    --------
    >>> Checkpoint("not/there").seed() is None
    True
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        check_path("checkpoint", folder)
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(
                f"checkpoint must be a folder, but {self.folder} is a file; choose another name."
            )
        self._seed: int | None = None

    def files(self) -> list[Path]:
        """The files of a run that are there; others in the folder are not ours to touch."""
        return sorted(path for path in self.folder.glob("*") if _OURS.fullmatch(path.name))

    def seed(self) -> int | None:
        """Return the seed of the run that was interrupted; None if it is not known."""
        for path in self.files():
            if path.suffix != ENDING:
                continue
            content = plain_state(path, FORMAT, f"remove {self.folder} to start again")
            found = content["seed"]
            return int(found) if is_whole(found) else None
        return None

    def seeded(self, random_state: object) -> object:
        """Return a ``random_state`` that a run started again will have too.

        None becomes a number: that of the interrupted run if there is one.
        """
        if random_state is None:
            found = self.seed()
            random_state = int.from_bytes(os.urandom(4)) if found is None else found
        self._seed = int(random_state) if is_whole(random_state) else None  # type: ignore[call-overload]
        return random_state

    def training(self, name: str, always: bool = False) -> TrainingFile:
        """Return the file of one training."""
        return TrainingFile(self.folder / f"{name}{ENDING}", self._seed, always)

    def forget(self, start: str) -> None:
        """Delete files whose names start so, because what they led to is kept elsewhere."""
        for path in self.files():
            if path.name.startswith(start):
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the files, because the run has finished, and the folder if nothing else is in."""
        remove_abandoned(self.folder)
        self.forget("")
        with suppress(OSError):  # it was never made, or the user has put something there
            self.folder.rmdir()
