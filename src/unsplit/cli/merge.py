"""``unsplit merge``: merge the clusters of an over-clustering."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from unsplit.cli import options, outputs, summary
from unsplit.cli.checks import merge_options_from, pairs
from unsplit.cli.progress import Console
from unsplit.cli.reading import Input, observations_named, read_clustered
from unsplit.cli.run import (
    RESULT,
    ExtraFiles,
    Task,
    checkpoint_beside,
    help_to_train,
    interruptible,
    merge_into,
)
from unsplit.cli.select import NAME as CANDIDATES
from unsplit.cli.select import selected
from unsplit.data.readers.observations import Observations
from unsplit.data.saving import output_folder
from unsplit.merging.answers import read_answers
from unsplit.merging.options import LABELS_FROM
from unsplit.networks.training.progress import PHASES
from unsplit.networks.training.ranks import together
from unsplit.pairwise.api import Settings
from unsplit.report.api import PAGE

EXAMPLE = """\b
Examples:
  unsplit merge cells.csv --labels leiden --out merged --report
  unsplit merge photos/ --out merged
  unsplit merge cells.h5ad --labels leiden --out merged --h5ad
  unsplit merge photos/ --vectors embedding.npy --out merged
"""

# Files that are always written.
WRITTEN = (
    "labels.csv", "merges.csv", "review.csv", "distances.npz", "linkage.npy", "tree.npz", RESULT,
)  # fmt: skip

share = click.FloatRange(0, 1)
number = click.IntRange(min=1)
linked = partial(click.option, multiple=True, callback=pairs, metavar="A,B")

when_to_stop = options.together(
    click.option("--n-clusters", type=number, metavar="N", help="Stop at exactly N clusters."),
    click.option(
        "--max-tvd",
        type=share,
        metavar="T",
        help="Merge pairs with a total variation distance (TVD) of at most T, 0 to 1.",
    ),
    click.option(
        "--alpha",
        type=share,
        metavar="A",
        help="Merge pairs that do not differ significantly at level A, 0 to 1.",
    ),
    click.option("--min-clusters", type=number, metavar="N", help="Keep at least N clusters."),
    click.option("--max-clusters", type=number, metavar="N", help="Keep at most N clusters."),
    click.option(
        "--labels-from",
        type=click.Choice(LABELS_FROM),
        help="Whether the labels were computed from the data; if not, tests decide.  "
        "[default: auto]",
    ),
)

how_to_merge = options.together(
    linked("--must-link", help="Always merge clusters A and B; may be repeated."),
    linked("--cannot-link", help="Never merge clusters A and B; may be repeated."),
    click.option(
        "--constraints",
        type=click.Path(),
        metavar="FILE",
        help="Answers that the page of an earlier result exported (JSON).",
    ),
)


what_to_write = options.packed(
    "extra",
    ExtraFiles,
    click.option(
        "--figures",
        is_flag=True,
        help="Also draw the dendrogram, the distances and the merge curve.",
    ),
    options.report,
    click.option(
        "--picture",
        type=click.Path(),
        metavar="FILE",
        help="Where the page draws the rows of DATA: a file with two coordinates of each, as UMAP "
        "makes them.",
    ),
    options.keep_scores,
    click.option(
        "--h5ad",
        is_flag=True,
        help="For .h5ad: also write merged.h5ad, a copy of DATA with the merged clusters in "
        "obs['unsplit'] and the tree in uns['unsplit'].",
    ),
)


@click.command(epilog=EXAMPLE, short_help="Merge clusters that belong together.")
@options.source
@options.folder
@when_to_stop
@how_to_merge
@options.estimation
@options.seed
@what_to_write
@options.checkpoint
@options.as_json
def merge(
    source: Input,
    out: str,
    settings: Settings,
    select: bool,
    seed: int | None,
    constraints: str | None,
    extra: ExtraFiles,
    checkpoint: str | None,
    as_json: bool,
    progress: bool | None,
    **choices: Any,
) -> None:
    """Merge the clusters of DATA that belong together.

    DATA is a table with one row per observation (.csv, .tsv, .parquet or a folder of them, .arrow,
    .feather, .npy, .npz, also SciPy sparse), cells (.h5ad, where --labels is a column of obs), a
    folder of images, sounds, meshes or point clouds with one subfolder per cluster, or .tar files
    of images as WebDataset writes them. In a table every column of numbers is a feature, except
    those named by --labels, --batch, --id and --drop.

    The command writes labels.csv (old and new cluster of every row), review.csv (which pairs to
    check, unclear ones first), merges.csv (every merge and the reason), result.json (settings,
    versions, seed, numbers), distances.npz, tree.npz, linkage.npy and manifest.json (checksums).
    With --report it also writes report.html, the page to look at.
    """
    merge_options = merge_options_from(choices)
    kept = checkpoint_beside(out, checkpoint)
    written = [*WRITTEN, *extra.names, *([CANDIDATES] if select else ())]
    named = [*source.named, constraints, extra.picture]
    outputs.refuse_overwriting(source.data, named, out, written)
    extra.check(source.data)
    if constraints is not None:
        read_answers(constraints)  # refuses a bad file before any work is done
    with together(settings.device, lambda: outputs.kept_by(kept)) as ranks:
        seed = ranks.share(outputs.seed_for(seed, kept))
        task = Task(source, merge_options, settings, seed, extra, constraints)
        if ranks.rank:
            help_to_train(task, select, kept)
            return
        console = Console(progress, as_json)
        console.plan(["reading", *(["selecting"] if select else ()), *PHASES, *extra.last_phases])
        results = output_folder(out, outputs.versions(), outputs.WRITTEN)
        with interruptible(out, console, kept), console.show_warnings(), results as folder:
            read = read_clustered(source, console)
            with observations_named(read, source.data):
                if select:
                    task = replace(task, settings=selected(folder, read, settings, seed, console))
                    ranks.share(task.settings)
                merged = merge_into(folder, task, read, console, kept)
        kept.remove()
    lines = [] if read.representation is None else [_compared_by(read)]
    lines += summary.of_merge(merged.tree, merged.fitted.result.n_noise, merge_options)
    lines += ["", *summary.of_review(merged.tree), *summary.of_sample(merged.neighbours)]
    lines += summary.of_features(read)
    if extra.report:
        lines += ["", f"Open {Path(out, PAGE)} in a browser."]
    outputs.print_result(Path(out, RESULT), lines, as_json, console)


def _compared_by(read: Observations) -> str:
    n, d = read.X.shape
    return f"Compared {n:,} cells by {read.representation} ({d:,} features)."
