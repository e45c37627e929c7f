"""What a command is asked to do with which input, and reading that input."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from unsplit.cli import summary
from unsplit.cli.console import Console
from unsplit.data.cells import clusterings_in
from unsplit.data.readers.api import read
from unsplit.data.readers.h5ad import open_cells
from unsplit.data.readers.observations import Observations, with_vectors
from unsplit.data.readers.tables import listing
from unsplit.errors import InputError
from unsplit.networks.training.loop import TrainConfig

# Not a network: several are tried, and the most accurate one is used.
SELECT = "select"


@dataclass(frozen=True)
class Input:
    """What a command reads, by the names of its options; files and columns are named, not read.

    Examples
    --------
    >>> Input("cells.csv", "leiden", drop=("age",)).described()
    {'data': 'cells.csv', 'labels': 'leiden', 'drop': ('age',)}
    """

    data: str
    labels: str | None = None
    batch: str | None = None
    groups: str | None = None
    vectors: str | None = None
    id: str | None = None
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    scale: bool = False
    use_rep: str | None = None

    @property
    def named(self) -> list[str | None]:
        """Files, or columns of the data, that are read as well."""
        return [self.labels, self.batch, self.groups, self.vectors]

    @property
    def clusters(self) -> str:
        """Where the clusters are from."""
        return self.labels or "subfolders"

    def read(self, progress: Callable[[int, int], None]) -> Observations:
        """Read everything but the vectors."""
        given = {f.name: getattr(self, f.name) for f in fields(Input)[1:] if f.name != "vectors"}
        return read(self.data, **given | {"features": self.features or None}, progress=progress)

    def described(self) -> dict[str, Any]:
        """What result.json says about it: the options that were used."""
        given = {field.name: getattr(self, field.name) for field in fields(Input)}
        return {name: value for name, value in given.items() if value} | {"labels": self.clusters}


@dataclass(frozen=True)
class Run(Input):
    """What ``merge`` and ``distances`` have in common, by the names of their options."""

    out: str = ""
    backbone: str = "auto"
    cv: int | float | str = "auto"
    epochs: int | None = None
    device: str = "auto"
    seed: int | None = None
    as_json: bool = False
    progress: bool | None = None

    @property
    def selects(self) -> bool:
        """Whether several networks are tried first."""
        return self.backbone == SELECT

    @property
    def network(self) -> dict[str, Any]:
        """The options of an estimate, as in Python."""
        training = None if self.epochs is None else TrainConfig(epochs=self.epochs)
        backbone = "auto" if self.selects else self.backbone
        return {"backbone": backbone, "cv": self.cv, "training": training, "device": self.device}


def read_clustered(source: Input, console: Console) -> Observations:
    """Read observations with the cluster of each, and more of each if it is named."""
    data = source.data
    with console.stage("reading"):
        observations = source.read(console.on_progress)
        if observations.labels is None:
            raise InputError(
                f"{data} needs clusters to merge; name a column of it, or another file, with "
                f"--labels{_clusterings_of(data)}, or make clusters with `unsplit overcluster`."
            )
        observations = replace(observations, labels=np.asarray(observations.labels))
        if source.vectors is not None:
            observations = with_vectors(observations, source.vectors, data)
    if console.bars is not None:
        console.say("\n".join(summary.of_data(observations)))
    return observations


def _clusterings_of(data: str) -> str:
    """What could be named, if the file is one of cells."""
    if not data.lower().endswith(".h5ad"):
        return ""
    with open_cells(Path(data)) as cells:
        names = clusterings_in(cells.obs)
    return f" (these look like clusterings: {listing(names)})" if names else ""
