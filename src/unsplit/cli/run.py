"""One merge from observations to files, for the commands that make one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from unsplit.cli import outputs
from unsplit.cli.progress import Console
from unsplit.cli.resume import ResumeFile, content_of, digest
from unsplit.data.labels import encode_labels
from unsplit.data.readers.tables_and_arrays import Observations
from unsplit.merging.state import MergeRecord
from unsplit.pairwise.api import Settings
from unsplit.pipeline import Merged, MergeOptions, merge_overclustering

RESULT = "result.json"
INTERRUPTED = 130  # as shells count a process ended by SIGINT


@dataclass(frozen=True)
class Task:
    """What to merge and how; ``data``, ``labels`` and ``batch`` say whence they are."""

    data: str
    labels: str
    merge_options: MergeOptions
    settings: Settings
    seed: int
    figures: bool = False
    batch: str | None = None


def merge_into(
    folder: Path,
    task: Task,
    read: Observations,
    console: Console,
    resume: ResumeFile | None = None,
    go_on: bool = False,
) -> Merged:
    """Merge the clusters of what was read, and write all files into the folder.

    Parameters
    ----------
    resume : ResumeFile, optional
        Where to keep what was done.
    go_on : bool
        Whether to go on from what it holds.
    """
    encoded = encode_labels(np.asarray(read.labels), len(read.row_ids))
    about = outputs.about_run(task.settings, task.merge_options, task.seed)
    done = None
    if resume is not None:
        content = [digest(encoded.clusters), digest(encoded.cluster_ids)]
        if read.batch is not None:
            content.append(digest(read.batch.astype(str)))
        resume.begin(data=digest(content_of(read.X)), labels=content, **about)
        done = _done_before(resume, go_on, console)

    def on_merge(record: MergeRecord) -> None:
        if resume is not None:
            resume.save(record)
        console.on_merge(record, len(encoded.cluster_ids))

    what = (read.X, encoded, task.merge_options, task.settings, task.seed)
    with console.stages_of_merging():
        merged = merge_overclustering(*what, console.on_epoch, on_merge, done, read.batch)
    with console.stage("writing"):
        outputs.write_merge(folder, read, merged, task.figures)
    whence = {"command": "merge", "data": task.data, "labels": task.labels}
    whence |= {} if task.batch is None else {"batch": task.batch}
    about = whence | about
    about |= outputs.about_distances(read, merged.fitted.result) | outputs.about_tree(merged.tree)
    outputs.write_result(folder / RESULT, about, console)
    return merged


def _done_before(resume: ResumeFile, go_on: bool, console: Console) -> MergeRecord | None:
    if go_on:
        return resume.record()
    if resume.path.exists():
        console.warn(f"{resume.path} will be overwritten; --resume would have gone on with it.")
    return None


class Interrupted(click.ClickException):
    """Ctrl-C, with a sentence on what that means for the results."""

    exit_code = INTERRUPTED


@contextmanager
def interruptible(where: str, resume: ResumeFile | None = None) -> Iterator[None]:
    """Say after Ctrl-C that nothing was lost."""
    try:
        yield
    except KeyboardInterrupt:
        sentence = f"interrupted; nothing was changed in {where}"
        if resume is not None and resume.path.exists():
            sentence += f" but {resume.path.name}; go on with --resume"
        raise Interrupted(sentence) from None
