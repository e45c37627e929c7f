"""The checkpoint of a long run: what it has done, so that it continues after an interruption.

A checkpoint is a folder with one file, the state of the training.  The file is written from time
to time, replaces the one before it in one step, and is read when the same run is started again.  It
names the run that it belongs to, and no other run continues from it.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unsplit.data.array_files import load_arrays, save_arrays, saved_meta
from unsplit.data.saving import TEMPORARY, reason_of
from unsplit.devices import current, version_of
from unsplit.errors import CheckpointWarning, InputError, check_path, is_whole, warn

FORMAT = "unsplit.Training/4"

# The number of an array, in the place of the array; no module has such a name.
NUMBER, BFLOAT = "number of array", str(torch.bfloat16)
# Seconds between two checkpoints, so that short runs write none.
EVERY = 30.0
# Writing takes at most about one part in this many of the time.
AT_MOST_ONE_IN = 20


class Checkpoint:
    """The folder in which a run keeps the state of its training.

    Parameters
    ----------
    folder : str or path
        It is made when there is something to keep, and removed when the run has finished.

    Examples
    --------
    >>> import tempfile
    >>> checkpoint = Checkpoint(tempfile.mkdtemp())
    >>> checkpoint.begin({"data": "a1"})
    >>> checkpoint.save({"step": 7})
    >>> checkpoint.load()
    {'step': 7}
    >>> checkpoint.remove()
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        check_path("checkpoint", folder)
        self.folder = Path(folder)
        self.path = self.folder / "training.npz"
        self.advice = f"remove {self.folder} to start again"
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(
                f"checkpoint must be a folder, but {self.folder} is a file; choose another name."
            )
        if self.path.is_symlink():
            raise InputError(f"{self.path} is a link, which no run makes; {self.advice}.")
        self.identity: dict[str, Any] = {}
        self._seed: int | None = None
        self._next = time.monotonic() + EVERY

    def exists(self) -> bool:
        """Whether there is a state to continue from."""
        return self.path.exists()

    def seeded(self, random_state: object) -> object:
        """Return a ``random_state`` that a run started again will have too.

        None becomes a number: that of the interrupted run if there is one.
        """
        if random_state is None:
            found = saved_meta(self.path).get("seed")
            random_state = found if isinstance(found, int) else int.from_bytes(os.urandom(4))
        self._seed = int(random_state) if is_whole(random_state) else None  # type: ignore[call-overload]
        return random_state

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Say which run this is: named values or checksums of all that the result depends on."""
        versions = [version_of(name) for name in ("unsplit", "torch", "numpy")]
        self.identity = {"versions": versions, **identity}

    def due(self, at_end: bool = False) -> bool:
        """Whether it is time to save again; several processes ask rank 0.

        At the end of training, a state of before is replaced in any case.
        """
        return bool(current().share(time.monotonic() >= self._next or (at_end and self.exists())))

    def save(self, state: Any) -> None:
        """Write the state; if that is impossible, warn, and let the run go on."""
        if current().rank:
            return
        start = time.monotonic()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            plain, arrays = _packed(state)
            content = {"identity": self.identity, "seed": self._seed, "training": plain}
            save_arrays(self.path, FORMAT, content, arrays, compressed=False)
        except (OSError, InputError) as error:
            why = reason_of(error) if isinstance(error, OSError) else str(error)
            warn(
                f"no checkpoint could be written to {self.folder} ({why}); the run goes on "
                "without.",
                CheckpointWarning,
            )
        now = time.monotonic()
        self._next = now + max(EVERY, AT_MOST_ONE_IN * (now - start))

    def load(self) -> Any:
        """Return the state that was written last; None if there is none."""
        if not current().share(self.exists()):
            return None
        if not self.exists():
            raise InputError(
                f"{self.path} cannot be seen by all processes; choose a folder that all share."
            )
        content, arrays = load_arrays(self.path, FORMAT, self.advice)
        with self.refusing():
            found, state = dict(content["identity"]), _unpacked(content["training"], arrays)
        differ = [name for name in self.identity if found.get(name) != self.identity[name]]
        if differ:
            raise InputError(
                f"{self.path} belongs to a run with different {' and '.join(differ)}; repeat that "
                f"run to continue it, or {self.advice}."
            )
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

    def remove(self) -> None:
        """Delete the file, because the run has finished, and the folder if nothing else is in."""
        left = self.folder.glob(f"{TEMPORARY}????????.*.npz")  # of a killed run
        for path in (*left, self.path):
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
