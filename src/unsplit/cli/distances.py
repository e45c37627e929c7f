"""``unsplit distances``: how far apart all pairs of clusters are."""

import os
from pathlib import Path

import click
import numpy as np

from unsplit.cli import options, outputs, words
from unsplit.cli.course import Course
from unsplit.cli.run import interruptible
from unsplit.data.files import read_observations
from unsplit.estimation import Settings, fit
from unsplit.files import output_folder, write_csv

EXAMPLE = """\b
Example:
  unsplit distances cells.csv --labels leiden --out compared
"""
RESULT = "distances.json"
WRITTEN = ("distances.npz", "pairs.csv")


@click.command(epilog=EXAMPLE)
@options.data
@options.labels
@options.folder
@options.estimation
@options.seed
@options.as_json
def distances(
    data: str,
    labels: str,
    out: str,
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
    outputs.spare([data, labels], [os.path.join(out, name) for name in WRITTEN])
    settings = Settings(cv=cv, epochs=epochs, device=device)
    seed = outputs.new_seed() if seed is None else seed
    about = {"command": "distances", "data": data, "labels": labels}
    about |= outputs.about_run(settings, None, seed)
    course = Course()
    with interruptible(out), output_folder(out) as folder, course.telling_warnings():
        with course.stage("reading"):
            read = read_observations(data, labels)
        with course.stage("training"):
            found = fit(read.X, np.asarray(read.labels), settings, seed, course.on_epoch).result
        with course.stage("writing"):
            found.save(folder / "distances.npz")
            write_csv(folder / "pairs.csv", found.table())
        about |= outputs.about_distances(read, found)
        outputs.write_result(folder / RESULT, about, course)
    outputs.tell(Path(out, RESULT), words.of_distances(found), as_json)
