"""Checkpoints: what a long run has done so far, so that it continues after any interruption.

A checkpoint is a folder with one file for every training of a run.  A file is written from time to
time, replaces the one before it in one step, and is read when the same run is started again.  It
names the run that it belongs to, and no other run continues from it.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unsplit.data.array_files import load_arrays, save_arrays, saved_meta
from unsplit.data.saving import TEMPORARY, reason_of
from unsplit.devices import current, version_of
from unsplit.errors import (
    CheckpointWarning,
    InputError,
    check_path,
    is_whole,
    refuse_other_run,
    warn,
)

FORMAT = "unsplit.Training/2"
ENDING = ".npz"

_OURS = re.compile(r"training\.npz")
_OLDER = re.compile(r"training\.safetensors|(retraining-\d+|merges)\..*")

# The number of an array, in the place of the array; no module has such a name.
NUMBER, BFLOAT = "number of array", str(torch.bfloat16)
# Seconds between two checkpoints, so that short runs write none.
EVERY = 30.0
# Writing takes at most about one part in this many of the time.
AT_MOST_ONE_IN = 20


class TrainingFile:
    """The state of one training, in a file.

    Parameters
    ----------
    path : Path
    seed : int or None
        The seed of the whole run, kept for a run that is started again without one.
    clock : callable
        Returns the time in seconds.

    Examples
    --------
    >>> import tempfile
    >>> file = TrainingFile(Path(tempfile.mkdtemp()) / "training.npz", seed=3)
    >>> file.begin({"data": "a1"})
    >>> file.save({"step": 7})
    >>> file.load()
    {'step': 7}
    """

    def __init__(
        self,
        path: Path,
        seed: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path, self.seed, self._clock = path, seed, clock
        self.identity: dict[str, Any] = {}
        self.ranks = current()
        self._next = clock() + EVERY

    @property
    def advice(self) -> str:
        """What to do about a file that cannot be used."""
        return f"remove {self.path.parent} to start again"

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Say which run this is: named values or checksums of all that the result depends on."""
        versions = [version_of(name) for name in ("unsplit", "torch", "numpy")]
        self.identity = {"versions": versions, **identity}

    def due(self) -> bool:
        """Whether it is time for the next checkpoint; several processes ask rank 0."""
        return bool(self.ranks.share(self._is_time()))

    def _is_time(self) -> bool:
        return self._clock() >= self._next

    def save(self, state: Any) -> None:
        """Write the state; if that is impossible, warn, and let the run go on."""
        if self.ranks.rank:
            return
        start = self._clock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            plain, arrays = _packed(state)
            content = {"identity": self.identity, "seed": self.seed, "training": plain}
            save_arrays(self.path, FORMAT, content, arrays, compressed=False)
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
        if self.ranks.share(self._is_time() or self.path.exists()):
            self.save(state())

    def load(self) -> Any:
        """Return the state that was written last; None if there is none."""
        if not self.ranks.share(self.path.exists()):
            return None
        if not self.path.exists():
            raise InputError(
                f"{self.path} cannot be seen by all processes; choose a folder that all share."
            )
        content, arrays = load_arrays(self.path, FORMAT, self.advice)
        with self.refusing():
            identity, state = dict(content["identity"]), _unpacked(content["training"], arrays)
        refuse_other_run(self.path, identity, self.identity, self.advice)
        return state

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
        for path in self.folder.glob("*"):
            if _OLDER.fullmatch(path.name):
                raise InputError(
                    f"{path} was written by an earlier version of unsplit; use that version to go "
                    f"on, or remove {self.folder} to start again."
                )
            if path.is_symlink() and _OURS.fullmatch(path.name):
                raise InputError(
                    f"{path} is a link, which no run makes; remove {self.folder} to start again."
                )

    def files(self) -> list[Path]:
        """The files of a run that are there; others in the folder are not ours to touch."""
        return sorted(path for path in self.folder.glob("*") if _OURS.fullmatch(path.name))

    def seed(self) -> int | None:
        """Return the seed of the run that was interrupted; None if it is not known."""
        for path in self.files():
            found = saved_meta(path).get("seed")
            if isinstance(found, int):
                return found
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

    def training(self, name: str) -> TrainingFile:
        """Return the file of one training."""
        return TrainingFile(self.folder / f"{name}{ENDING}", self._seed)

    def remove(self) -> None:
        """Delete the files, because the run has finished, and the folder if nothing else is in."""
        for left in self.folder.glob(f"{TEMPORARY}????????.*{ENDING}"):  # of a killed run
            left.unlink(missing_ok=True)
        for path in self.files():
            path.unlink(missing_ok=True)
        with suppress(OSError):  # it was never made, or the user has put something there
            self.folder.rmdir()


def _packed(state: Any) -> tuple[Any, dict[str, Any]]:
    """Turn a nested state into plain values as JSON has them, and the arrays that they number."""
    arrays: dict[str, Any] = {}

    def put(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        kind = "array"
        if isinstance(value, Tensor):
            kind, value = str(value.dtype), value.detach().cpu()
            # NumPy has no such numbers.
            value = (value.view(torch.int16) if kind == BFLOAT else value).numpy()
        arrays[str(len(arrays))] = value
        return {NUMBER: str(len(arrays) - 1), "kind": kind}

    return json.loads(json.dumps(state, default=put)), arrays


def _unpacked(plain: Any, arrays: Mapping[str, Any]) -> Any:
    """Turn what :func:`_packed` made into the state again."""

    def get(value: dict[str, Any]) -> Any:
        if NUMBER not in value:
            return value
        array, kind = arrays[value[NUMBER]], value["kind"]
        if kind == "array":
            return array
        tensor = torch.from_numpy(array)
        return tensor.view(torch.bfloat16) if kind == BFLOAT else tensor

    return json.loads(json.dumps(plain), object_hook=get)
