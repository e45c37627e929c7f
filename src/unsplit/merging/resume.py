"""Saving the merges of a long run, so that it can be continued after an interruption."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unsplit.data.array_files import load_arrays, save_arrays
from unsplit.data.content_check import Array, ContentCheck
from unsplit.data.text_files import plain_values
from unsplit.errors import refuse_other_run
from unsplit.merging.loop import MergeRecord
from unsplit.merging.saved_merges import check_tree, read_ending, read_merges

FORMAT = "unsplit.MergeRecord/1"
NAME = "merges.npz"


class ResumeFile:
    """The file ``merges.npz`` of a checkpoint: the merges so far and the run they belong to.

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
        ending = None if record.ending is None else record.ending._asdict()
        content = {"run": self.run, "record": asdict(record) | {"ending": ending}}
        save_arrays(self.path, FORMAT, content, {})

    def record(self, n_clusters: int) -> MergeRecord | None:
        """Return the merges of the interrupted run; None if there is no file.

        Parameters
        ----------
        n_clusters : int
            Number of initial clusters; merges that are impossible with so many are refused.
        """
        if not self.path.exists():
            return None
        advice = f"remove {self.path.parent} to start again"
        content, _ = load_arrays(self.path, FORMAT, advice)
        check = ContentCheck(self.path, "file of merges", advice)
        for name in ("run", "record"):
            check.require(isinstance(content.get(name), dict), f"{name} must be a mapping")
        refuse_other_run(self.path, content["run"], self.run, advice)
        record = _record_of(check, content["record"])
        check_tree(check, record.merges, record.apart, n_clusters)
        return record


def _record_of(check: ContentCheck, content: dict[str, Any]) -> MergeRecord:
    check.names(content, vars(MergeRecord()))
    merges, apart = (read_merges(check, content[name], name) for name in ("merges", "apart"))
    # Both are unknown until merging has stopped, and forbidden merges come last.
    n_taken, n_allowed, ending = (content[name] for name in ("n_taken", "n_allowed", "ending"))
    for name, number, low in (("n_taken", n_taken, 0), ("n_allowed", n_allowed, n_taken)):
        if number is not None:
            check.require(low is not None, "n_taken must be known if n_allowed is")
            check.rows([{name: number}], {name: Array("i8", (1,), low, len(merges))}, name)
    check.require((ending is None) == (n_taken is None), "ending must be known if n_taken is")
    if ending is not None:
        ending = read_ending(check, ending)
    return MergeRecord(merges, n_taken, n_allowed, ending, apart)
