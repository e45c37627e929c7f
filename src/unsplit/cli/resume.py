"""A long run that was interrupted goes on after its last merge."""

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from unsplit import __version__
from unsplit.data.rows.kinds import observations
from unsplit.data.saving import replacing, write_json
from unsplit.errors import InputError
from unsplit.merging.review import Merge
from unsplit.merging.state import MergeRecord

FORMAT = "unsplit.resume/3"
NAME = "resume.json"


class ResumeFile:
    """``resume.json`` in the folder of the results: what was done so far, and of what.

    Parameters
    ----------
    folder : str or path
        Made with the first merge if there is none.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / NAME
        self.run: dict[str, Any] = {}

    def begin(self, **run: Any) -> None:
        """Say what the run depends on, such as data, settings and seed."""
        self.run = {"format": FORMAT, "version": __version__} | run

    def save(self, record: MergeRecord) -> None:
        """Replace the file by what was done so far."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as new:
            write_json(new, self.run | {"record": asdict(record)})

    def remove(self) -> None:
        """All is done."""
        self.path.unlink(missing_ok=True)

    def seed(self) -> int | None:
        """The seed of the run that was interrupted, if there is one."""
        return None if (content := self._content()) is None else content["seed"]

    def record(self) -> MergeRecord | None:
        """What the run that was interrupted had done, if there is one and it is the same."""
        content = self._content()
        if content is None:
            return None
        # As it comes back from a file: tuples are lists, and so on.
        now = json.loads(json.dumps(self.run))
        differ = [name for name in now if content.get(name) != now[name]]
        if differ:
            raise InputError(
                f"{self.path} is of a run with other {' and '.join(differ)}, so it cannot go on; "
                "give the same as then, or leave out --resume to start anew."
            )
        return _record_of(content["record"])

    def _content(self) -> dict[str, Any] | None:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if {"format", "seed", "record"} <= content.keys():
                return dict(content)
        except FileNotFoundError:
            return None
        except (ValueError, AttributeError):
            pass
        raise InputError(
            f"{self.path} was not written by unsplit; leave out --resume to start anew."
        )


def content_of(X: Any) -> Any:
    """What tells observations from others: they themselves, or a hash of each."""
    if isinstance(X, np.ndarray) or scipy.sparse.issparse(X):
        return X
    return observations(X, torch.device("cpu")).keys


def digest(values: Any) -> str:
    """A fingerprint of an array or sparse matrix: its shape, type and every value.

    Examples
    --------
    >>> digest(np.arange(3)) == digest(np.arange(3)), digest(np.arange(3)) == digest(np.arange(4))
    (True, False)
    """
    parts: list[NDArray[Any]] = [values]
    if scipy.sparse.issparse(values):
        parts = [values.data, values.indices, values.indptr, np.array(values.shape)]
    found = hashlib.sha256()
    for part in map(np.ascontiguousarray, parts):
        found.update(f"{part.dtype.str}{part.shape}".encode())
        found.update(part.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _record_of(content: dict[str, Any]) -> MergeRecord:
    lists = {name: [_merge_of(merge) for merge in content[name]] for name in ("merges", "apart")}
    return MergeRecord(**content | lists)


def _merge_of(content: dict[str, Any]) -> Merge:
    # JSON has no NaN, and no other field can be null.
    gaps = {name: np.nan for name, value in content.items() if value is None}
    return Merge(**content | gaps)
