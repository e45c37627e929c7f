"""One merge from observations to files, shared by ``merge`` and ``demo``."""

import errno
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from unsplit.cli import cells, outputs
from unsplit.cli.program import INTERRUPTED
from unsplit.cli.progress import Console
from unsplit.cli.reading import Input, read_clustered, read_picture
from unsplit.data.labels import encode_labels
from unsplit.data.memory import memory_errors
from unsplit.data.readers.observations import Observations
from unsplit.data.saving import MANIFEST
from unsplit.devices import current
from unsplit.errors import InputError
from unsplit.estimator import Merged, merge_overclustering, seeds_of
from unsplit.merging.options import MergeOptions
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.pairwise.api import LESS_DATA, Settings, fit
from unsplit.report.api import PAGE
from unsplit.report.collect import NAME as KEPT
from unsplit.report.collect import Source

RESULT = "result.json"
FIGURES = ("dendrogram.png", "merge_curve.png", "distances.png")
# The disk is full, or this user's share of it, or a file is larger than the disk allows.
NO_SPACE = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG)


@dataclass(frozen=True)
class ExtraFiles:
    """The files to write on request, by the names of the options that request them.

    Examples
    --------
    >>> ExtraFiles(keep_scores=True, h5ad=True).names
    ['distances.scores.npz', 'merged.h5ad']
    """

    figures: bool = False
    report: bool = False
    picture: str | None = None
    keep_scores: bool = False
    h5ad: bool = False

    @property
    def names(self) -> list[str]:
        """The files."""
        names = [*FIGURES] if self.figures else []
        names += [outputs.SCORES] if self.keep_scores else []
        names += [cells.MERGED] if self.h5ad else []
        return names + ([KEPT, PAGE] if self.report else [])

    @property
    def last_phases(self) -> list[str]:
        """What a run does after merging."""
        return ["writing", *(["making the page"] if self.report else ())]

    def check(self, data: str) -> None:
        """Raise an error if one of the files cannot be made from the data."""
        if self.picture is not None and not self.report:
            raise click.UsageError(
                "--picture works only with --report; add it or leave --picture out."
            )
        if self.figures:
            outputs.require_figures()
        if self.h5ad:
            cells.require_h5ad(data)


@dataclass(frozen=True)
class Task:
    """What to merge, how, and what to write; ``constraints`` is the name of a file."""

    source: Input
    merge_options: MergeOptions
    settings: Settings
    seed: int
    extra: ExtraFiles
    constraints: str | None = None


def merge_into(
    folder: Path,
    task: Task,
    read: Observations,
    console: Console,
    checkpoint: Checkpoint,
) -> Merged:
    """Merge the clusters and write all files into the folder.

    Parameters
    ----------
    folder : Path
        Where the files are written.
    task : Task
        What to merge and how.
    read : Observations
        The observations, with their clusters.
    console : Console
        Shows progress and warnings.
    checkpoint : Checkpoint
        Keeps what a long run has done, and what an interrupted one had done before.
    """
    encoded = encode_labels(np.asarray(read.labels), len(read.row_ids))
    source, extra = task.source, task.extra
    merge_options = task.merge_options.with_constraints(task.constraints, encoded.cluster_ids)
    picture = None if extra.picture is None else read_picture(extra.picture, encoded.clusters)
    info = outputs.describe_run(task.settings, task.merge_options, task.seed)
    inputs = (read.X, encoded, merge_options, task.settings, checkpoint.seeded(task.seed))
    merged = merge_overclustering(*inputs, console, read.batch, None, checkpoint, read.groups)
    with console.stage("writing"):
        outputs.write_merge(folder, read, merged, extra.figures, extra.keep_scores, console)
        if extra.h5ad:
            keys = {"batch_key": source.batch, "groups_key": source.groups}
            params = {**keys, "random_state": task.seed}
            params |= cells.chosen(task.merge_options)
            path = folder / cells.MERGED
            cells.write_merged(path, source.data, source.clusters, read, merged, params)
    typed = {"constraints": task.constraints, "picture": extra.picture}
    more = typed | {"representation": read.representation}
    about = {"command": "merge"} | source.described() | {n: v for n, v in more.items() if v}
    info = about | info | outputs.describe_distances(read, merged.fitted.result)
    info |= outputs.describe_neighbours(merged.neighbours)
    info |= outputs.describe_tree(merged.tree)
    if extra.report:
        with console.stage("making the page"):
            run = {"warnings": console.warnings, "seconds": console.seconds}
            k, names = merged.tree.n_initial, read.feature_names
            page_of = Source(read.X, encoded.clusters, k, names, picture, read.shown)
            if read.representation is not None:
                page_of = cells.with_genes(page_of, source.data)
            outputs.write_report(folder, page_of, read.row_ids, merged, info | run)
    outputs.write_result(folder / RESULT, info, console)
    return merged


def help_to_train(task: Task, select: bool, checkpoint: Checkpoint) -> None:
    """Do the part of another process in :func:`merge_into`; nothing is printed or written."""
    console = Console(progress=False)
    with console.show_warnings():
        read = read_clustered(task.source, console)
        settings = current().share(None) if select else task.settings
        seed = seeds_of(checkpoint.seeded(task.seed))[0]
        given = read.X, np.asarray(read.labels), settings, seed, False, read.batch
        fit(*given, checkpoint=checkpoint.training("training"), groups=read.groups)


class Interrupted(click.ClickException):
    """Ctrl-C, with a sentence about the results."""

    exit_code = INTERRUPTED


@contextmanager
def interruptible(
    out: str, console: Console, checkpoint: Checkpoint | None = None
) -> Iterator[None]:
    """Say after Ctrl-C what is kept, and whether the results in ``out`` are old or new.

    A full disk is an error that names ``out``, and memory that is used up one that says so.
    """
    before = _identity(out)
    existed = os.path.exists(out)
    try:
        with memory_errors("this run", LESS_DATA):
            yield
    except KeyboardInterrupt:
        if _identity(out) != before:
            sentence = f"interrupted after all results were written to {out}"
        else:
            kept = _kept(out, existed, checkpoint)
            sentence = f"interrupted while {console.phase}; {kept}"
        raise Interrupted(sentence) from None
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        reason = (error.strerror or str(error)).lower()
        raise InputError(
            f"cannot write to {out}: {reason}; free some space, or choose another --out."
        ) from None


def _kept(out: str, existed: bool, checkpoint: Checkpoint | None) -> str:
    """What is left of an interrupted run, and how to go on."""
    state = "is unchanged" if existed else "was not made"
    if checkpoint is None or not checkpoint.files():
        return f"nothing of this run is kept, and {out} {state}"
    command = shlex.join(["unsplit", *(click.get_current_context().obj or [])])
    return f"{checkpoint.folder} keeps what was done so far, and {out} {state}; to go on: {command}"


def checkpoint_beside(out: str, chosen: str | None) -> Checkpoint:
    """The checkpoint that was chosen, or else one beside the results.

    Examples
    --------
    >>> checkpoint_beside("results/merged", None).folder.as_posix()
    'results/merged.checkpoint'
    """
    if chosen is not None:
        return Checkpoint(chosen)
    # In the current folder if that is where the results go.
    name = Path(out).name or Path(os.path.realpath(out)).name
    return Checkpoint(Path(out).parent / f"{name}.checkpoint")


def _identity(out: str) -> tuple[int, int] | None:
    """Return what tells two results apart: the last file that a run writes."""
    last = Path(out, MANIFEST) if os.path.isdir(out) else Path(out)
    return (last.stat().st_ino, last.stat().st_mtime_ns) if last.is_file() else None
