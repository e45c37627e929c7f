"""Saving the progress of a long run, so that it can be continued after an interruption."""

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
    """The file ``resume.json`` in the output folder: the merges so far and the run they belong to.

    Parameters
    ----------
    folder : str or path
        The output folder; the first merge creates it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / NAME
        self.run: dict[str, Any] = {}

    def begin(self, **run: Any) -> None:
        """Set what the run depends on, such as data, settings and seed."""
        self.run = {"format": FORMAT, "version": __version__} | run

    def save(self, record: MergeRecord) -> None:
        """Write the merges so far."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as new:
            write_json(new, self.run | {"record": asdict(record)})

    def remove(self) -> None:
        """Delete the file, because the run has finished."""
        self.path.unlink(missing_ok=True)

    def seed(self) -> int | None:
        """Return the seed of the interrupted run; None if there is no file."""
        return None if (content := self._content()) is None else content["seed"]

    def record(self) -> MergeRecord | None:
        """Return the merges of the interrupted run; None if there is no file."""
        content = self._content()
        if content is None:
            return None
        # Compare as JSON, where tuples are lists.
        now = json.loads(json.dumps(self.run))
        differ = [name for name in now if content.get(name) != now[name]]
        if differ:
            raise InputError(
                f"{self.path} belongs to a run with different {' and '.join(differ)}; use the "
                "same as in that run, or leave out --resume to start again."
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
            f"{self.path} is not a resume file of unsplit; leave out --resume to start again."
        )


def content_of(X: Any) -> Any:
    """Return what identifies the observations: the array itself, or a hash of each."""
    if isinstance(X, np.ndarray) or scipy.sparse.issparse(X):
        return X
    return observations(X, torch.device("cpu")).keys


def digest(values: Any) -> str:
    """Compute a fingerprint of the shape, type and values of an array or sparse matrix.

    Examples
    --------
    >>> digest(np.arange(3)) == digest(np.arange(3)), digest(np.arange(3)) == digest(np.arange(4))
    (True, False)
    """
    parts: list[NDArray[Any]] = [values]
    if scipy.sparse.issparse(values):
        parts = [values.data, values.indices, values.indptr, np.array(values.shape)]
    fingerprint = hashlib.sha256()
    for part in map(np.ascontiguousarray, parts):
        fingerprint.update(f"{part.dtype.str}{part.shape}".encode())
        fingerprint.update(part.reshape(-1).view(np.uint8).data)
    return fingerprint.hexdigest()


def _record_of(content: dict[str, Any]) -> MergeRecord:
    lists = {name: [_merge_of(merge) for merge in content[name]] for name in ("merges", "apart")}
    return MergeRecord(**content | lists)


def _merge_of(content: dict[str, Any]) -> Merge:
    # JSON has no NaN; null stands for it.
    missing = {name: np.nan for name, value in content.items() if value is None}
    return Merge(**content | missing)
