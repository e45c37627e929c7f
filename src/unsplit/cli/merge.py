"""``unsplit merge``: an over-clustering in, a clustering out."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from unsplit.cli import options, outputs, summary
from unsplit.cli.checks import pairs, wishes_of
from unsplit.cli.progress import Console
from unsplit.cli.reading import read_clustered
from unsplit.cli.resume import ResumeFile
from unsplit.cli.run import RESULT, Task, interruptible, merge_into
from unsplit.cli.select import selected
from unsplit.data.saving import output_folder
from unsplit.merging.options import LINKAGES, STATISTICS, STRATEGIES
from unsplit.pairwise.api import Settings

EXAMPLE = """\b
Example:
  unsplit merge cells.csv --labels leiden --out merged --figures
  unsplit merge photos/ --out merged
"""

# What a file that is read could be called, too.
WRITTEN = ("labels.csv", "merges.csv", "review.csv", "distances.npz", "linkage.npy", "tree.npz")

share = click.FloatRange(0, 1)
number = click.IntRange(min=1)
linked = partial(click.option, multiple=True, callback=pairs, metavar="A,B")

when_to_stop = options.together(
    click.option("--n-clusters", type=number, metavar="N", help="Stop at this many clusters."),
    click.option(
        "--max-tvd", type=share, metavar="T", help="Merge pairs with a TVD up to this, 0 to 1."
    ),
    click.option(
        "--alpha",
        type=share,
        metavar="A",
        help="Merge pairs that do not differ significantly at this level.",
    ),
    click.option("--auto", is_flag=True, help="Find out when to stop: the default."),
    click.option("--min-clusters", type=number, metavar="N", help="Leave at least this many."),
    click.option("--max-clusters", type=number, metavar="N", help="Leave at most this many."),
)

how_to_merge = options.together(
    click.option(
        "--strategy", type=click.Choice(STRATEGIES), help="How to merge.  [default: linkage]"
    ),
    click.option(
        "--statistic",
        type=click.Choice(STATISTICS),
        help="What ranks pairs.  [default: auto, edges of the neighbour graph or lecam]",
    ),
    click.option(
        "--linkage",
        type=click.Choice(LINKAGES),
        help="How --strategy linkage joins.  [default: average]",
    ),
    linked("--must-link", help="Clusters to merge; more than once if needed."),
    linked("--cannot-link", help="Clusters to keep apart."),
)


@click.command(epilog=EXAMPLE, short_help="Merge clusters that cannot be told apart.")
@options.data
@options.labels
@options.batch
@options.folder
@when_to_stop
@how_to_merge
@options.estimation
@options.seed
@click.option("--figures", is_flag=True, help="Draw dendrogram, distances and merge curve.")
@click.option("--resume", is_flag=True, help="Go on with an interrupted --strategy retrain.")
@options.as_json
def merge(
    data: str,
    labels: str | None,
    batch: str | None,
    out: str,
    backbone: str,
    select: bool,
    no_augment: bool,
    cv: int,
    epochs: int,
    device: str,
    seed: int | None,
    figures: bool,
    resume: bool,
    as_json: bool,
    **choices: Any,
) -> None:
    """Merge the clusters of DATA that a good classifier cannot tell apart.

    DATA is .npy, .npz (also SciPy sparse), .csv, .tsv or .parquet with a row per observation, or a
    folder of images, sounds, meshes or point clouds with a subfolder for each cluster.
    Written are labels.csv with the old and new cluster of every row, merges.csv, review.csv with
    the pairs to look at first, result.json, distances.npz, tree.npz and linkage.npy.
    """
    merge_options = wishes_of(choices | {"resume": resume})
    given = [data, labels or data, batch or data]
    outputs.spare(given, [os.path.join(out, name) for name in WRITTEN])
    if figures:
        outputs.require_figures()
    kept = ResumeFile(out) if merge_options.strategy == "retrain" else None
    if seed is None and kept is not None and resume:
        seed = kept.seed()
    seed = outputs.new_seed() if seed is None else seed
    settings = Settings(
        backbone, cv, epochs=epochs, device=device, augment=False if no_augment else "auto"
    )
    task = Task(data, labels or "subfolders", merge_options, settings, seed, figures, batch)
    console = Console()
    with interruptible(out, kept), output_folder(out) as folder, console.telling_warnings():
        with console.stage("reading"):
            read = read_clustered(data, labels, batch)
        if select:
            task = replace(task, settings=selected(folder, read, settings, seed, console))
        merged = merge_into(folder, task, read, console, kept, resume)
    if kept is not None:
        kept.remove()
    lines = summary.of_merge(merged.tree, merged.fitted.result.n_noise)
    lines += ["", *summary.of_review(merged.tree)]
    outputs.tell(Path(out, RESULT), lines, as_json)
