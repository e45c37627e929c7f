"""``unsplit distances``: the distances between all pairs of clusters."""

from pathlib import Path

import click
import numpy as np

from unsplit.cli import options, outputs, summary
from unsplit.cli.progress import Console
from unsplit.cli.reading import Input, observations_named, read_clustered
from unsplit.cli.run import checkpoint_beside, interruptible
from unsplit.cli.select import NAME as CANDIDATES
from unsplit.cli.select import selected
from unsplit.data.readers.observations import Observations
from unsplit.data.saving import output_folder, write_csv
from unsplit.devices import current
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.networks.training.ranks import together
from unsplit.pairwise.api import Settings, fit
from unsplit.pairwise.heldout_scores import Fitted
from unsplit.pairwise.result import write_tvd

EXAMPLE = """\b
Example:
  unsplit distances cells.csv --labels leiden --out compared
"""
RESULT = "distances.json"
MATRIX = "tvd.npy"
WRITTEN = ("distances.npz", "pairs.csv", RESULT)


@click.command(epilog=EXAMPLE, short_help="Compare all pairs of clusters, without merging.")
@options.source
@options.folder
@options.estimation
@options.seed
@options.keep_scores
@options.checkpoint
@click.option(
    "--matrix",
    is_flag=True,
    help="Also write tvd.npy, the distances of all pairs as a (k, k) matrix, block by block.",
)
@options.as_json
def distances(
    source: Input,
    out: str,
    settings: Settings,
    select: bool,
    seed: int | None,
    keep_scores: bool,
    checkpoint: str | None,
    matrix: bool,
    as_json: bool,
    progress: bool | None,
) -> None:
    """Compare all pairs of clusters in DATA, without merging any.

    The command writes pairs.csv (the total variation distance of every pair, which is at least
    "low", with its interval and p-value, closest pair first), distances.npz (read it with
    unsplit.PairwiseTVD.load), distances.json (settings, versions, seed) and manifest.json
    (checksums).
    """
    written = [*WRITTEN, *([CANDIDATES] if select else ())]
    written += [outputs.SCORES] if keep_scores else []
    written += [MATRIX] if matrix else []
    outputs.refuse_overwriting(source.data, source.named, out, written)
    kept = checkpoint_beside(out, checkpoint)
    with together(settings.device, lambda: outputs.kept_by(kept)) as ranks:
        seed = ranks.share(outputs.seed_for(seed, kept))
        kept.seeded(seed)
        if ranks.rank:
            _help(source, settings, select, seed, kept)
            return
        info = {"command": "distances"} | source.described()
        info |= outputs.describe_run(settings, None, seed)
        console = Console(progress, as_json)
        console.plan(["reading", *(["selecting"] if select else ()), "training", "writing"])
        results = output_folder(out, outputs.versions(), outputs.WRITTEN)
        with interruptible(out, console, kept), console.show_warnings(), results as folder:
            read = read_clustered(source, console)
            if select:
                settings = selected(folder, read, settings, seed, console)
                ranks.share(settings)
                info |= outputs.describe_run(settings, None, seed)
            with console.stage("training"), observations_named(read, source.data):
                result = _fit(read, settings, seed, console, kept).result
            with console.stage("writing"):
                result.save(folder / outputs.DISTANCES, scores=keep_scores)
                write_csv(folder / "pairs.csv", result.table())
                if matrix:
                    write_tvd(folder / MATRIX, result)
            info |= outputs.describe_distances(read, result)
            info |= {} if read.representation is None else {"representation": read.representation}
            outputs.write_result(folder / RESULT, info, console)
        kept.remove()
    lines = [*summary.of_distances(result), "", *summary.of_features(read)]
    outputs.print_result(Path(out, RESULT), lines, as_json, console)


def _fit(
    read: Observations, settings: Settings, seed: int, console: Console, checkpoint: Checkpoint
) -> Fitted:
    given = read.X, np.asarray(read.labels), settings, seed, console, read.batch
    return fit(*given, checkpoint=checkpoint, groups=read.groups)


def _help(
    source: Input, settings: Settings, select: bool, seed: int, checkpoint: Checkpoint
) -> None:
    """Do the part of another process: train; nothing is printed or written."""
    console = Console(progress=False)
    with console.show_warnings():
        read = read_clustered(source, console)
        settings = current().share(None) if select else settings
        _fit(read, settings, seed, console, checkpoint)
