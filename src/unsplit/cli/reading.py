"""What commands read."""

from dataclasses import replace

import numpy as np

from unsplit.data.readers.api import read
from unsplit.data.readers.tables_and_arrays import Observations
from unsplit.errors import InputError


def read_clustered(data: str, labels: str | None, batch: str | None = None) -> Observations:
    """Observations with a cluster for each, and a batch if asked for."""
    found = read(data, labels, batch)
    if found.labels is None:
        raise InputError(
            f"{data} does not say which cluster is whose; name a column or a file with --labels."
        )
    return replace(found, labels=np.asarray(found.labels))
