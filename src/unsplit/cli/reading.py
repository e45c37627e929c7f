"""Reading the input of a command."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.cli import summary
from unsplit.cli.progress import Console
from unsplit.data.cells import clusterings_in
from unsplit.data.readers.api import read
from unsplit.data.readers.columns import ColumnChoice
from unsplit.data.readers.h5ad import open_cells
from unsplit.data.readers.observations import Observations, with_vectors
from unsplit.data.readers.tables import listing, shortened
from unsplit.errors import InputError
from unsplit.report.collect import checked_picture


@dataclass(frozen=True)
class Input:
    """What a command reads, by the names of its options; files and columns are named, not read.

    Examples
    --------
    >>> Input("cells.csv", "leiden", columns=ColumnChoice(drop=("age",))).described()
    {'data': 'cells.csv', 'labels': 'leiden', 'reading': {'drop': ['age']}}
    """

    data: str
    labels: str | None = None
    batch: str | None = None
    vectors: str | None = None
    columns: ColumnChoice = field(default_factory=ColumnChoice)
    use_rep: str | None = None
    layer: str | None = None
    use_raw: bool = False
    groups: str | None = None

    @property
    def named(self) -> list[str | None]:
        """Files, or columns of the data, that are read as well."""
        return [self.labels, self.batch, self.groups, self.vectors]

    @property
    def clusters(self) -> str:
        """Where the clusters are from."""
        return self.labels or "subfolders"

    @property
    def of_cells(self) -> dict[str, Any]:
        """The options for .h5ad files."""
        return {"use_rep": self.use_rep, "layer": self.layer, "use_raw": self.use_raw}

    def described(self) -> dict[str, Any]:
        """What result.json says about it: the options that were used."""
        columns = self.columns
        lists = {"features": list(columns.features or ()), "drop": list(columns.drop)}
        reading = {"id": columns.id} | lists | {"scale": columns.scale} | self.of_cells
        typed = {name: value for name, value in reading.items() if value}
        names = "batch", "groups", "vectors"
        more = {name: getattr(self, name) for name in names} | {"reading": typed}
        return {"data": self.data, "labels": self.clusters} | {n: v for n, v in more.items() if v}


def read_clustered(source: Input, console: Console) -> Observations:
    """Read observations with the cluster of each, and more of each if it is named."""
    data = source.data
    with console.stage("reading"):
        columns, progress = vars(source.columns), console.on_progress
        observations = read(
            data,
            source.labels,
            source.batch,
            **columns,
            progress=progress,
            groups=source.groups,
            **source.of_cells,
        )
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


def read_picture(path: str, clusters: Index) -> NDArray[np.float64]:
    """Read two coordinates of every row, and refuse a file that has others.

    Parameters
    ----------
    path : str
        A table or array file of as many rows as there are observations.
    clusters : ndarray of shape (n,)
    """
    xy = np.asarray(read(path).X)
    try:
        checked_picture(xy, len(clusters))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return xy


@contextmanager
def observations_named(read: Observations, data: str) -> Iterator[None]:
    """Let errors name the file and the id of an observation, which the library only counts.

    Parameters
    ----------
    read : Observations
    data : str
        Where they were read from.

    Examples
    --------
    >>> read = Observations(np.eye(2), None, np.array(["a/1.npy", "b/1.npy"]), None)
    >>> with observations_named(read, "shapes"):
    ...     raise InputError("observation 1 of X has values that are NaN.")
    Traceback (most recent call last):
    unsplit.errors.InputError: observation 'b/1.npy' of shapes has values that are NaN.
    """
    try:
        yield
    except InputError as error:
        ids = read.row_ids.tolist()

        def name(found: re.Match[str]) -> str:
            which = int(found[1])
            shown = shortened(repr(ids[which])) if which < len(ids) else found[1]
            return f"observation {shown} of {data}"

        told = re.sub(r"\bobservation (\d+)\b( of X\b)?", name, str(error))
        raise InputError(re.sub(r"^X has\b", lambda _: f"{data} has", told)) from error
