"""Saving the progress of a long run, so that it can be continued after an interruption."""

import hashlib
import json
import math
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from unsplit import __version__
from unsplit.data.array_files import checksum, hash_array
from unsplit.data.content_check import ContentCheck
from unsplit.data.rows.kinds import observations
from unsplit.data.saving import plain_values, replacing, write_json
from unsplit.errors import InputError
from unsplit.merging.loop import MergeRecord
from unsplit.merging.saved_merges import check_tree, read_merges

FORMAT = "unsplit.resume/4"
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
            content = plain_values(self.run | {"record": asdict(record)})
            write_json(new, content | {"sha256": checksum(content)})

    def remove(self) -> None:
        """Delete the file, because the run has finished."""
        self.path.unlink(missing_ok=True)

    def seed(self) -> int | None:
        """Return the seed of the interrupted run; None if there is no file."""
        if (content := self._content()) is None:
            return None
        return self._check.integer(content, "seed", 0, math.inf)

    def record(self, n_clusters: int | None = None) -> MergeRecord | None:
        """Return the merges of the interrupted run; None if there is no file.

        Parameters
        ----------
        n_clusters : int, optional
            Number of initial clusters; merges that are impossible with so many are refused.
        """
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
        record = _record_of(self._check, content["record"])
        if n_clusters is not None:
            check_tree(self._check, record.merges, record.apart, n_clusters)
        return record

    @property
    def _check(self) -> ContentCheck:
        return ContentCheck(self.path, "resume file", _ADVICE)

    def _content(self) -> dict[str, Any] | None:
        """Return what the file holds, if it is a complete file of this version."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            complete = {"format", "seed", "record"} <= content.keys()
            found = checksum(content)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, AttributeError, RecursionError):
            complete = False
        if not complete:
            raise InputError(f"{self.path} is not a resume file of unsplit; {_ADVICE}.")
        if content["format"] != FORMAT:
            raise InputError(
                f"{self.path} belongs to a run with a different format, and this version reads "
                f"{FORMAT!r}; use the version of unsplit that wrote it, or {_ADVICE}."
            )
        if content.get("sha256") != found:
            raise InputError(
                f"{self.path} has been changed since unsplit wrote it, because its checksum does "
                f"not match its content; {_ADVICE}."
            )
        return dict(content)


_ADVICE = "leave out --resume to start again"


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
    for part in parts:
        hash_array(fingerprint, part)
    return fingerprint.hexdigest()


def _record_of(check: ContentCheck, content: Any) -> MergeRecord:
    check.require(isinstance(content, dict), "record must be a mapping")
    check.names(content, {field.name for field in fields(MergeRecord)}, set())
    merges, apart = (
        read_merges(check, _with_nan(content[name]), name) for name in ("merges", "apart")
    )
    # Both are unknown until merging has stopped, and forbidden merges come last.
    n_taken, n_allowed = content["n_taken"], content["n_allowed"]
    if n_taken is not None:
        check.integer(content, "n_taken", 0, len(merges))
    if n_allowed is not None:
        check.require(n_taken is not None, "n_taken must be known if n_allowed is")
        check.integer(content, "n_allowed", n_taken, len(merges))
    check.text(content, "stopped")
    return MergeRecord(merges, n_taken, n_allowed, content["stopped"], apart)


def _with_nan(merges: Any) -> Any:
    """Replace null by NaN, which JSON does not have."""
    if not isinstance(merges, list):
        return merges
    return [
        {name: math.nan if value is None else value for name, value in merge.items()}
        if isinstance(merge, dict)
        else merge
        for merge in merges
    ]
