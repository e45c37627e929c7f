"""Vectors that somebody has computed for observations of any kind."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from unsplit.data.readers.row_ids import places_of
from unsplit.data.readers.tables_and_arrays import Observations, read_observations
from unsplit.errors import InputError


def with_vectors(
    found: Observations, path: str | os.PathLike[str], data: str | os.PathLike[str]
) -> Observations:
    r"""Replace observations by vectors from a file; their ids, labels and batches stay.

    What the vectors replace is kept as ``shown``.

    Parameters
    ----------
    found : Observations
        What was read: images, for example.
    path : str or path
        ``.npy``, ``.npz``, ``.csv``, ``.tsv`` or ``.parquet`` with one row of numbers for each
        observation.  If the file has ids (a column or array called "id"), rows are matched by id
        and rows of other observations are ignored; otherwise they are matched by order.
    data : str or path
        Where the observations were read from, for messages.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "vectors.csv"
    >>> _ = path.write_text("id,v0,v1\nb.jpg,3,4\na.jpg,1,2\n")
    >>> photos = Observations(None, None, np.array(["a.jpg", "b.jpg"]), np.array(["x", "y"]))
    >>> with_vectors(photos, path, "photos/").X
    array([[1., 2.],
           [3., 4.]])
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file of vectors {path}; check its name.")
    given = read_observations(path)
    n, ids, X = len(found.row_ids), given.row_ids, given.X
    if not np.array_equal(ids, np.arange(len(ids))):
        order, lacking = places_of(found.row_ids, ids)
        if lacking:
            raise InputError(
                f"{path} has no vector for {lacking[0]!r} of {data} ({len(lacking):,} of {n:,} are "
                f"missing; its own ids are like {str(ids[0])!r}); use the ids that labels.csv has, "
                "or remove the ids to match vectors by order."
            )
        X = X[order]
    elif len(ids) != n:
        raise InputError(
            f"{path} has {len(ids):,} vectors but {data} has {n:,} observations; give one vector "
            "for each, in the same order, or add a column 'id' to match them by name."
        )
    return replace(found, X=X, feature_names=given.feature_names, shown=found.X)
