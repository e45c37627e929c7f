"""``unsplit demo``: the whole job on data that are already there."""

import os
import shlex
from importlib.util import find_spec
from pathlib import Path

import click

from unsplit.cli import outputs, summary
from unsplit.cli.digits import Score, overclustered_digits, scores
from unsplit.cli.progress import Console
from unsplit.cli.run import RESULT, Task, interruptible, merge_into
from unsplit.data.readers.tables_and_arrays import Observations
from unsplit.data.saving import output_folder, write_csv
from unsplit.pairwise.api import Settings
from unsplit.pipeline import MergeOptions

DATA = "digits.csv"
LABELS = "cluster"

EXAMPLE = """\b
Example:
  unsplit demo --out demo-output
"""


@click.command(epilog=EXAMPLE, short_help="Try it on handwritten digits.")
@click.option("--out", default="demo-output", show_default=True, type=click.Path())
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
def demo(out: str, seed: int) -> None:
    """Merge 40 clusters of handwritten digits and compare with the true ones.

    The digits come with scikit-learn. It takes half a minute and leaves in the folder what `merge`
    leaves, and digits.csv to try it with.
    """
    data = os.path.join(out, DATA)
    task = Task(
        data, LABELS, MergeOptions(), Settings(), seed, figures=find_spec("matplotlib") is not None
    )
    console = Console()
    with interruptible(out), output_folder(out) as folder, console.telling_warnings():
        click.echo("1,797 handwritten digits, cut by k-means into 40 clusters, are merged …")
        digits, truth = overclustered_digits(seed)
        _write_data(folder / DATA, digits)
        merged = merge_into(folder, task, digits, console)
    lines = summary.of_merge(merged.tree, n_noise=0)
    table = _table(scores(digits, merged.tree, truth, seed))
    outputs.tell(Path(out, RESULT), ["", *lines, "", *table], as_json=False)
    again = ["--labels", LABELS, "--out", "merged", "--seed", str(seed)]
    click.echo(f"The same from the file:\n  {shlex.join(['unsplit', 'merge', data, *again])}")


def _write_data(path: Path, digits: Observations) -> None:
    """Pixels and cluster of every row, and not a word about the true digits."""
    assert digits.feature_names is not None
    columns = dict(zip(digits.feature_names, digits.X.T.astype(int), strict=True))
    write_csv(path, columns | {LABELS: digits.labels})


def _table(found: list[Score]) -> list[str]:
    width = max(len(score.name) for score in found)
    heading = f"  {'':{width}}  clusters  adjusted Rand index with the true digits"
    rows = [f"  {s.name:{width}}  {s.n_clusters:8}  {s.rand_index:.2f}" for s in found]
    return [heading, *rows]
