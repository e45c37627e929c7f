"""Saving the merges of a long run, so that it can be continued after an interruption."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from unsplit.data.array_files import checksum
from unsplit.data.content_check import ContentCheck
from unsplit.data.saving import plain_values, replacing, write_json
from unsplit.errors import InputError, refuse_other_run
from unsplit.merging.loop import MergeRecord
from unsplit.merging.saved_merges import check_tree, read_ending, read_merges

FORMAT = "unsplit.merges/2"
NAME = "merges.json"


class ResumeFile:
    """The file ``merges.json`` of a checkpoint: the merges so far and the run they belong to.

    Parameters
    ----------
    folder : str or path
        The folder of the checkpoint; the first merge creates it.
    run : mapping of str to plain values
        What the merges depend on, such as data, settings and seed.
    """

    def __init__(self, folder: str | os.PathLike[str], run: Mapping[str, Any]) -> None:
        self.path = Path(folder) / NAME
        # As JSON, where tuples are lists.
        self.run = json.loads(json.dumps(plain_values(run)))

    def save(self, record: MergeRecord) -> None:
        """Write the merges so far."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as new:
            ending = None if record.ending is None else record.ending._asdict()
            written = asdict(record) | {"ending": ending}
            content = plain_values({"format": FORMAT, "run": self.run, "record": written})
            write_json(new, content | {"sha256": checksum(content)})

    def record(self, n_clusters: int) -> MergeRecord | None:
        """Return the merges of the interrupted run; None if there is no file.

        Parameters
        ----------
        n_clusters : int
            Number of initial clusters; merges that are impossible with so many are refused.
        """
        content = self._content()
        if content is None:
            return None
        self._check.require(isinstance(content["run"], dict), "run must be a mapping")
        refuse_other_run(self.path, content["run"], self.run, self._advice)
        record = _record_of(self._check, content["record"])
        check_tree(self._check, record.merges, record.apart, n_clusters)
        return record

    @property
    def _advice(self) -> str:
        return f"remove {self.path.parent} to start again"

    @property
    def _check(self) -> ContentCheck:
        return ContentCheck(self.path, "file of merges", self._advice)

    def _content(self) -> dict[str, Any] | None:
        """Return what the file holds, if it is a complete file of this version."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            complete = {"format", "run", "record"} <= content.keys()
            found = checksum(content)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, AttributeError, RecursionError):
            complete = False
        if not complete:
            raise InputError(f"{self.path} does not hold the merges of a run; {self._advice}.")
        if content["format"] != FORMAT:
            raise InputError(
                f"{self.path} belongs to a run with a different format, and this version reads "
                f"{FORMAT!r}; use the version of unsplit that wrote it, or {self._advice}."
            )
        if content.get("sha256") != found:
            raise InputError(
                f"{self.path} has been changed since unsplit wrote it, because its checksum does "
                f"not match its content; {self._advice}."
            )
        return dict(content)


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
    ending = content["ending"]
    check.require((ending is None) == (n_taken is None), "ending must be known if n_taken is")
    if ending is not None:
        ending = read_ending(check, _with_nan([ending])[0])
    return MergeRecord(merges, n_taken, n_allowed, ending, apart)


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
