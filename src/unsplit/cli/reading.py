"""What commands read."""

import numpy as np

from unsplit.data.files import Observations
from unsplit.data.sources import read
from unsplit.errors import InputError


def read_clustered(data: str, labels: str | None) -> Observations:
    """Observations with a cluster for each."""
    found = read(data, labels)
    if found.labels is None:
        raise InputError(
            f"{data} does not say which cluster is whose; name a column or a file with --labels."
        )
    return Observations(found.X, found.feature_names, found.row_ids, np.asarray(found.labels))
