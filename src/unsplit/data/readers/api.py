"""Read observations of any kind from a folder or a file."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from unsplit.data.readers.broken import refuse_unreadable
from unsplit.data.readers.columns import ColumnChoice, RowIds, refuse_choice
from unsplit.data.readers.folders import (
    IMAGE_ENDINGS,
    FileList,
    clusters_in,
    files_in,
    find_images,
    lists_images,
)
from unsplit.data.readers.h5ad import read_cells
from unsplit.data.readers.media import SOUND_ENDINGS, read_audio, read_clouds, read_images
from unsplit.data.readers.observations import (
    BATCH_NAMES,
    LABEL_NAMES,
    Observations,
    read_observations,
    values_of_rows,
)
from unsplit.data.readers.parsers import CLOUD_ENDINGS
from unsplit.data.readers.shards import find_samples, shards_of
from unsplit.data.readers.tables import Progress, parquet_files
from unsplit.errors import InputError, check_flag, check_path, check_type, option, shown

# Number of files that decide which kind of data a folder holds.
ENOUGH = 1000
ENDINGS = {
    "images": IMAGE_ENDINGS,
    "sounds": SOUND_ENDINGS,
    "point clouds": CLOUD_ENDINGS,
}


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
) -> Observations:
    """Read observations of any kind, and the cluster of each.

    Parameters
    ----------
    path : str or path
        A folder of images, ``.wav`` files, meshes or point clouds with a subfolder for each
        cluster (see :func:`unsplit.data.readers.folders.clusters_in`); a table of images with the
        columns ``path`` and ``cluster``; ``.tar`` files of images, as WebDataset writes them, by
        name, folder or a pattern such as "shards/{000..012}.tar"; ``.npy`` or ``.npz`` with an
        array of any shape; ``.npz`` with sound in ``audio`` and ``offsets``; ``.h5``, which is
        read like ``.npz``; ``.h5ad`` with cells; a folder of ``.parquet`` files; or a file that
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
        Called now and then with how many rows or files have been read so far, and how many there
        are; not for tables in text and arrays.
    use_rep : str, optional
        For ``.h5ad``: a key of ``obsm``, "X", or for raw counts "raw" or "layers/NAME".  By default
        "X_pca" if there is one, otherwise "X".
    groups : str or path, optional
        A file with the groups, or the name of a column or array in ``path``; not together with
        ``batch``.

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
    _check_lists({"features": () if features is None else features, "drop": drop})
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function or None, got {shown(progress)}.")
    check_flag("scale", scale)
    path = Path(path)
    if "\0" in str(path):
        refuse_unreadable(path)
    wanted, within = (
        None if name is None else os.fspath(name)
        for name in (labels, batch if groups is None else groups)
    )
    only = None if features is None else tuple(features)
    choice = ColumnChoice(id, only, tuple(drop), scale)
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
    shards, is_folder = shards_of(path), path.is_dir() and not parquet_files(path)
    if not shards and not is_folder and not lists_images(path):
        return read_observations(path, wanted, within, choice, progress, any_shape=True)
    refuse_choice(path, choice.given)
    if shards:
        # A name that is no file is that of a field in the .json of every sample.
        field = None if wanted is None or os.path.isfile(wanted) else wanted
        wanted = None if field else wanted
        X, files = read_images(find_samples(shards, field, needed=wanted is None), progress)
    else:
        X, files = _from_files(path, _what_is_in(path) if is_folder else "images", progress)
    rows = RowIds(path, files.row_ids, named=True)
    labels = files.labels if wanted is None else values_of_rows({}, wanted, rows, LABEL_NAMES)
    batches = values_of_rows({}, within, rows, BATCH_NAMES)
    return Observations(X, None, files.row_ids, labels, batches)


def _from_files(path: Path, kind: str, progress: Progress | None) -> tuple[Any, FileList]:
    """The observations in a folder or a list of files, and the files that could be read."""
    if kind == "point clouds":
        return read_clouds(clusters_in(path, CLOUD_ENDINGS, kind), progress)
    if kind == "sounds":
        return read_audio(clusters_in(path, SOUND_ENDINGS, ".wav files"), progress)
    return read_images(find_images(path), progress)


def _what_is_in(folder: Path) -> str:
    """Return the kind of most files in clusters; without any, of most files beside them."""
    for names in ((name for name in files_in(folder) if "/" in name), files_in(folder)):
        endings = (os.path.splitext(name)[1].lower() for name in names)
        found = (kind for ending in endings for kind in ENDINGS if ending in ENDINGS[kind])
        if kinds := Counter(islice(found, ENOUGH)):
            return kinds.most_common(1)[0][0]
    supported = "; ".join(f"{kind}: {', '.join(ENDINGS[kind])}" for kind in ENDINGS)
    raise InputError(
        f"{folder} has no files of a supported type ({supported}); put the files of each "
        "cluster into a subfolder of its own."
    )
