"""``unsplit distances``: how far apart all pairs of clusters are."""

import os
from pathlib import Path

import click
import numpy as np

from unsplit.cli import options, outputs, summary
from unsplit.cli.progress import Console
from unsplit.cli.reading import read_clustered
from unsplit.cli.run import interruptible
from unsplit.cli.select import selected
from unsplit.data.saving import output_folder, write_csv
from unsplit.pairwise.api import Settings, fit

EXAMPLE = """\b
Example:
  unsplit distances cells.csv --labels leiden --out compared
"""
RESULT = "distances.json"
WRITTEN = ("distances.npz", "pairs.csv")


@click.command(epilog=EXAMPLE)
@options.data
@options.labels
@options.batch
@options.folder
@options.estimation
@options.seed
@options.as_json
def distances(
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
    as_json: bool,
) -> None:
    """Compare all pairs of clusters of DATA and merge nothing.

    Written are pairs.csv with the distance of every pair, its interval and p-value, closest pair
    first; distances.npz for unsplit.PairwiseTVD.load; and distances.json.
    """
    outputs.spare(
        [data, labels or data, batch or data], [os.path.join(out, name) for name in WRITTEN]
    )
    settings = Settings(
        backbone, cv, epochs=epochs, device=device, augment=False if no_augment else "auto"
    )
    seed = outputs.new_seed() if seed is None else seed
    about = {"command": "distances", "data": data, "labels": labels or "subfolders"}
    about |= {} if batch is None else {"batch": batch}
    about |= outputs.about_run(settings, None, seed)
    console = Console()
    with interruptible(out), output_folder(out) as folder, console.telling_warnings():
        with console.stage("reading"):
            read = read_clustered(data, labels, batch)
        if select:
            settings = selected(folder, read, settings, seed, console)
            about |= outputs.about_run(settings, None, seed)
        with console.stage("training"):
            what = (read.X, np.asarray(read.labels), settings, seed, console.on_epoch, read.batch)
            found = fit(*what).result
        with console.stage("writing"):
            found.save(folder / "distances.npz")
            write_csv(folder / "pairs.csv", found.table())
        about |= outputs.about_distances(read, found)
        outputs.write_result(folder / RESULT, about, console)
    outputs.tell(Path(out, RESULT), summary.of_distances(found), as_json)
