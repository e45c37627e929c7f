"""``unsplit distances``: the distances between all pairs of clusters."""

from pathlib import Path

import click
import numpy as np

from unsplit.cli import options, outputs, summary
from unsplit.cli.progress import Console
from unsplit.cli.reading import observations_named, read_clustered
from unsplit.cli.run import interruptible
from unsplit.cli.select import NAME as CANDIDATES
from unsplit.cli.select import selected
from unsplit.data.readers.columns import ColumnChoice
from unsplit.data.result_folder import output_folder
from unsplit.data.saving import write_csv
from unsplit.pairwise.api import Settings, fit

EXAMPLE = """\b
Example:
  unsplit distances cells.csv --labels leiden --out compared
"""
RESULT = "distances.json"
WRITTEN = ("distances.npz", "pairs.csv", RESULT)


@click.command(epilog=EXAMPLE, short_help="Compare all pairs of clusters, without merging.")
@options.data
@options.labels
@options.batch
@options.vectors
@options.columns
@options.cells
@options.folder
@options.estimation
@options.seed
@options.keep_scores
@options.as_json
def distances(
    data: str,
    labels: str | None,
    batch: str | None,
    vectors: str | None,
    id: str | None,
    features: tuple[str, ...],
    drop: tuple[str, ...],
    use_rep: str | None,
    layer: str | None,
    use_raw: bool,
    out: str,
    backbone: str,
    select: bool,
    no_augment: bool,
    cv: int,
    epochs: int,
    device: str,
    seed: int | None,
    keep_scores: bool,
    as_json: bool,
    progress: bool | None,
) -> None:
    """Compare all pairs of clusters in DATA, without merging any.

    The command writes pairs.csv (the total variation distance of every pair with its interval and
    p-value, closest pair first), distances.npz (read it with unsplit.PairwiseTVD.load),
    distances.json (settings, versions, seed) and manifest.json (checksums).
    """
    choice = ColumnChoice(id, features or None, drop)
    written = [*WRITTEN, *([CANDIDATES] if select else ())]
    written += [outputs.SCORES] if keep_scores else []
    outputs.refuse_overwriting(data, [labels, batch, vectors], out, written)
    settings = Settings(
        backbone, cv, epochs=epochs, device=device, augment=False if no_augment else "auto"
    )
    seed = outputs.new_seed() if seed is None else seed
    info = {"command": "distances", "data": data, "labels": labels or "subfolders"}
    info |= {} if batch is None else {"batch": batch}
    info |= {} if vectors is None else {"vectors": vectors}
    info |= outputs.describe_run(settings, None, seed)
    console = Console(progress, as_json)
    console.plan(["reading", *(["selecting"] if select else ()), "training", "writing"])
    results = output_folder(out, outputs.versions())
    with interruptible(out, console), results as folder, console.show_warnings():
        with console.stage("reading"):
            read = read_clustered(
                data,
                labels,
                batch,
                choice,
                console.on_progress,
                vectors,
                use_rep=use_rep,
                layer=layer,
                use_raw=use_raw,
            )
        if console.bars is not None:
            console.say("\n".join(summary.of_data(read)))
        if select:
            settings = selected(folder, read, settings, seed, console)
            info |= outputs.describe_run(settings, None, seed)
        with console.stage("training"):
            labels_read = np.asarray(read.labels)
            with observations_named(read, data):
                fitted = fit(read.X, labels_read, settings, seed, console, read.batch)
            result = fitted.result
        with console.stage("writing"):
            result.save(folder / outputs.DISTANCES, scores=keep_scores)
            write_csv(folder / "pairs.csv", result.table())
        info |= outputs.describe_distances(read, result)
        info |= {} if read.representation is None else {"representation": read.representation}
        outputs.write_result(folder / RESULT, info, console)
    lines = [*summary.of_distances(result), "", *summary.of_features(read)]
    outputs.print_result(Path(out, RESULT), lines, as_json, console)
