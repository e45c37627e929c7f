"""Saving the merges of a long run, so that it can be continued after an interruption."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unsplit.data.array_files import Array, load_checked, save_arrays
from unsplit.data.text_files import plain_values
from unsplit.errors import refuse_other_run
from unsplit.merging.loop import MergeRecord
from unsplit.merging.saved_merges import ENDING, MERGES, check_merges, content_of, fields_of

FORMAT = "unsplit.MergeRecord/2"
NAME = "merges.npz"
# Unknown until merging has stopped.
_LATER = {"n_taken": Array("i8", (), 0), "n_allowed": Array("i8", (), 0), **ENDING}


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
        content = content_of(record) | {"run": json.dumps(self.run)}
        numbers = {name: getattr(record, name) for name in ("n_taken", "n_allowed")}
        content |= {name: number for name, number in numbers.items() if number is not None}
        save_arrays(self.path, FORMAT, {}, content)

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
        table = {"run": Array("U"), **MERGES, **_LATER}
        content, check = load_checked(self.path, FORMAT, table, _LATER, advice)
        try:
            run = dict(json.loads(content["run"]))
        except (TypeError, ValueError):
            run = {}
        refuse_other_run(self.path, run, self.run, advice)
        found = fields_of(content)
        found |= {name: content.get(name) for name in ("n_taken", "n_allowed")}
        check_merges(check, found, n_clusters)
        # Forbidden merges come last.
        numbers = [found[name] or 0 for name in ("n_taken", "n_allowed")]
        in_order = found["n_allowed"] is None or numbers[0] <= numbers[1]
        inside = max(numbers) <= len(found["merges"])
        check.require(in_order and inside, "n_taken and n_allowed must be numbers of merges")
        known = [name in content for name in ("n_taken", *ENDING)]
        check.require(len(set(known)) == 1, "n_taken and the ending must be known together")
        check.require(known[0] or found["n_allowed"] is None, "n_allowed needs n_taken")
        return MergeRecord(**found)
