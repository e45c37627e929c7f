"""Reading the input of a command."""

from dataclasses import replace

import numpy as np

from unsplit.data.readers.api import read
from unsplit.data.readers.tables_and_arrays import Observations
from unsplit.errors import InputError


def read_clustered(data: str, labels: str | None, batch: str | None = None) -> Observations:
    """Read observations with the cluster of each, and the batch if one is named."""
    observations = read(data, labels, batch)
    if observations.labels is None:
        raise InputError(
            f"{data} needs clusters to merge; name a column of it, or another file, with --labels."
        )
    return replace(observations, labels=np.asarray(observations.labels))
