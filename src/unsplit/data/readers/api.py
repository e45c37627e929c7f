"""Read observations of any kind from a folder or a file."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unsplit.data.readers.columns import ColumnChoice, RowIds, refuse_choice
from unsplit.data.readers.folders import FileList, find_files, listed_images, lists_images
from unsplit.data.readers.h5ad import read_cells
from unsplit.data.readers.media import read_audio, read_clouds, read_images
from unsplit.data.readers.observations import (
    BATCH_NAMES,
    LABEL_NAMES,
    Observations,
    read_observations,
    values_of_rows,
)
from unsplit.data.readers.shards import find_samples, shards_of
from unsplit.data.readers.tables import Progress
from unsplit.errors import (
    InputError,
    check_choice,
    check_flag,
    check_path,
    check_type,
    option,
    refuses_old_options,
    shown,
)

# What can be done with missing values of a table.
MISSING = ("drop", "median")

READERS: dict[str, Callable[..., tuple[Any, FileList]]] = {
    "images": read_images,
    "sounds": read_audio,
    "point clouds": read_clouds,
}


@refuses_old_options
def read(
    path: str | os.PathLike[str],
    labels: str | os.PathLike[str] | None = None,
    batch: str | os.PathLike[str] | None = None,
    *,
    id: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    scale: bool = False,
    progress: Callable[[int, int], None] | None = None,
    use_rep: str | None = None,
    groups: str | os.PathLike[str] | None = None,
    encode: Sequence[str] = (),
    missing: str | None = None,
) -> Observations:
    """Read observations of any kind, and the cluster of each.

    Parameters
    ----------
    path : str or path
        A folder of images, ``.wav`` files, meshes or point clouds with a subfolder for each
        cluster (see :func:`unsplit.data.readers.folders.find_files`); a table of images with the
        columns ``path`` and ``cluster``; a ``.tar`` file of images, as WebDataset writes them, or a
        folder of such files; ``.h5ad`` with cells; or a file that
        :func:`unsplit.data.readers.observations.read_observations` reads.
    labels : str or path, optional
        A file with the labels, or the name of a column or array in ``path``.  Without it, the
        subfolders of a folder are the clusters.
    batch : str or path, optional
        A file with the batches, or the name of a column or array in ``path``.
    id : str, optional
        The column of a table that names the rows; it is no feature, and must be unique.  By
        default a column called "id", "row_id" or "index", or a first column without a name.
    features, drop : sequences of str, optional
        The only columns of a table that are features, or the columns that are not; pass one of
        them.  By default all columns of numbers are features.
    scale : bool
        Give every feature of a table the mean 0 and the standard deviation 1, because columns in
        different units cannot be compared by distances.
    progress : callable, optional
        Called now and then with how many files of a folder have been read so far, and how many
        there are.
    use_rep : str, optional
        For ``.h5ad``: a key of ``obsm``, "X", or for raw counts "raw" or "layers/NAME".  By default
        "X_pca" if there is one, otherwise "X".
    groups : str or path, optional
        A file with the groups, or the name of a column or array in ``path``; not together with
        ``batch``.
    encode : sequence of str
        Columns of categories of a table.  Each becomes a column of 0 and 1 for each of its 2 to 20
        values; other columns that do not hold numbers are left out.
    missing : {"drop", "median"}, optional
        Leave out the rows of a table that have missing values, or fill them in with the medians of
        their columns; by default they are an error.  ``kept`` then says which rows are left.

    Returns
    -------
    Observations
        ``X``, ``labels``, ``batch``, ``groups``, ``row_ids`` and ``feature_names``; what the file
        does not have is None.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> path = Path(tempfile.mkdtemp()) / "clouds.npz"
    >>> np.savez(path, points=np.zeros((4, 100, 3)), cluster=[0, 0, 1, 1])
    >>> found = read(path, "cluster")
    >>> found.X.shape, found.labels.tolist()
    ((4, 100, 3), [0, 0, 1, 1])
    """
    check_path("path", path)
    given = {"labels": labels, "batch": batch, "groups": groups}
    for name, value in given.items():
        if value is not None:
            check_path(name, value)
    if batch is not None and groups is not None:
        raise InputError(
            f"{option('groups')} and {option('batch')} cannot be used together, because whole "
            "groups cannot be held out within batches; leave one of them out."
        )
    for name, value in {"id": id, "use_rep": use_rep}.items():
        if value is not None:
            check_type(name, value, str, "pass a name")
    only = () if features is None else features
    _check_lists({"features": only, "drop": drop, "encode": encode})
    if missing is not None:
        check_choice("missing", missing, MISSING)
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function or None, got {shown(progress)}.")
    check_flag("scale", scale)
    path = Path(path)
    wanted, within = (
        None if name is None else os.fspath(name)
        for name in (labels, batch if groups is None else groups)
    )
    chosen = None if features is None else tuple(features)
    choice = ColumnChoice(id, chosen, tuple(drop), scale, tuple(encode), missing)
    if path.suffix.lower() == ".h5ad":
        refuse_choice(path, choice.given)
        found = read_cells(path, wanted, within, use_rep)
    elif use_rep is not None:
        raise InputError(f"{option('use_rep')} is for .h5ad files, got {path}; leave it out.")
    else:
        found = _read(path, wanted, within, choice, progress)
    return found if groups is None else replace(found, batch=None, groups=found.batch)


def _check_lists(lists: dict[str, object]) -> None:
    for name, value in lists.items():
        if not isinstance(value, (list, tuple)) or not all(isinstance(n, str) for n in value):
            raise InputError(
                f"{name} must be a list of names, got {shown(value)}; pass the names of columns."
            )


def _read(
    path: Path,
    wanted: str | None,
    within: str | None,
    choice: ColumnChoice,
    progress: Progress | None,
) -> Observations:
    """What :func:`read` does with other files than .h5ad."""
    shards = shards_of(path)
    if shards:
        X, files = read_images(find_samples(shards, needed=wanted is None), progress)
    elif path.is_dir():
        files, kind = find_files(path)
        X, files = READERS[kind](files, progress)
    elif lists_images(path):
        X, files = read_images(listed_images(path), progress)
    else:
        return read_observations(path, wanted, within, choice)
    refuse_choice(path, choice.given)
    rows = RowIds(path, files.row_ids, named=True)
    labels = files.labels if wanted is None else values_of_rows({}, wanted, rows, LABEL_NAMES)
    batches = values_of_rows({}, within, rows, BATCH_NAMES)
    return Observations(X, None, files.row_ids, labels, batches)
