"""``unsplit demo``: over-clustered handwritten digits, merged and scored."""

import os
import shlex
from importlib.util import find_spec
from pathlib import Path

import click

from unsplit.cli import options, outputs, summary
from unsplit.cli.digits import Score, overclustered_digits, scores
from unsplit.cli.progress import Console
from unsplit.cli.reading import Input
from unsplit.cli.run import (
    RESULT,
    ExtraFiles,
    Task,
    checkpoint_beside,
    interruptible,
    merge_into,
)
from unsplit.data.readers.observations import Observations
from unsplit.data.saving import output_folder, write_csv
from unsplit.merging.options import MergeOptions
from unsplit.networks.training.progress import PHASES
from unsplit.pairwise.api import Settings
from unsplit.report.api import PAGE

DATA = "digits.csv"
LABELS = "cluster"

EXAMPLE = """\b
Example:
  unsplit demo --out demo-output --report
"""


@click.command(epilog=EXAMPLE, short_help="Try Unsplit on handwritten digits.")
@click.option(
    "--out",
    default="demo-output",
    show_default=True,
    type=click.Path(),
    help="Folder for the results.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    default=0,
    show_default=True,
    help="Random seed; the same seed gives the same result.",
)
@options.report
def demo(out: str, seed: int, report: bool) -> None:
    """Merge 40 clusters of handwritten digits and compare the result with the true digits.

    The digits come with scikit-learn, and the demo takes about half a minute. It writes the same
    files as `unsplit merge`, and digits.csv so that you can run `unsplit merge` yourself.
    """
    outputs.require_name(out)
    data = os.path.join(out, DATA)
    extra = ExtraFiles(find_spec("matplotlib") is not None, report)
    task = Task(Input(data, LABELS), MergeOptions(), Settings(), seed, extra)
    console = Console()
    results = output_folder(out, outputs.versions(), outputs.WRITTEN)
    kept = checkpoint_beside(out, None)
    with interruptible(out, console, kept), console.show_warnings(), results as folder:
        click.echo("Merging 1,797 handwritten digits that k-means cut into 40 clusters …\n")
        console.plan(["reading", *PHASES, *extra.last_phases])
        with console.stage("reading"):
            digits, truth = overclustered_digits(seed)
        _write_data(folder / DATA, digits)
        merged = merge_into(folder, task, digits, console, kept)
    kept.remove()
    lines = summary.of_merge(merged.tree, n_noise=0)
    assert merged.neighbours is not None  # digits are vectors
    table = _table(scores(digits, merged.tree, merged.neighbours, truth, seed))
    outputs.print_result(Path(out, RESULT), [*lines, "", *table], as_json=False)
    if report:
        click.echo(f"\nOpen {os.path.join(out, PAGE)} in a browser.")
    rest = ["--labels", LABELS, "--out", "merged", "--seed", str(seed)]
    command = shlex.join(["unsplit", "merge", data, *rest])
    click.echo(f"\nTo repeat this from the file:\n  {command}")


def _write_data(path: Path, digits: Observations) -> None:
    """Write the pixels and the cluster of every row, but not the true digits."""
    assert digits.feature_names is not None
    columns = dict(zip(digits.feature_names, digits.X.T.astype(int), strict=True))
    write_csv(path, columns | {LABELS: digits.labels})


def _table(table: list[Score]) -> list[str]:
    width = max(len(score.name) for score in table)
    heading = f"  {'':{width}}  clusters  adjusted Rand index (1 = the true digits)"
    rows = [f"  {s.name:{width}}  {s.n_clusters:8}  {s.rand_index:.2f}" for s in table]
    return [heading, *rows]
