"""``--select``: try several networks and use the most accurate one."""

import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from unsplit.cli.progress import Console
from unsplit.data.readers.observations import Observations
from unsplit.data.saving import write_csv
from unsplit.errors import BatchWarning, InputError
from unsplit.networks.training.loop import TrainConfig
from unsplit.pairwise.api import Settings
from unsplit.selection import select, usual_candidates

NAME = "candidates.csv"


def selected(
    folder: Path, read: Observations, settings: Settings, seed: int, console: Console
) -> Settings:
    """Return the settings with the best network; write the scores of all to candidates.csv."""
    if read.groups is not None:
        raise InputError(
            "--select cannot hold out whole groups; leave it out, and name a network with "
            "--backbone."
        )
    assert read.labels is not None
    assert isinstance(settings.backbone, str)
    with console.stage("selecting"), warnings.catch_warnings():
        # The estimate that follows gives the same warning.
        warnings.simplefilter("ignore", BatchWarning)
        selection = select(
            read.X,
            read.labels,
            usual_candidates(settings.backbone),
            batch=read.batch,
            training=settings.training,
            device=settings.device,
            random_state=seed,
            progress=lambda _, record: console.on_epoch(record),
        )
    write_csv(folder / NAME, selection.table())
    return replace(settings, **selection.settings)


def settings_dict(settings: Settings) -> dict[str, Any]:
    """Turn settings into a dict that JSON can hold."""
    own = {name: value for name, value in vars(settings).items() if name != "training"}
    return own | asdict(settings.training or TrainConfig())
