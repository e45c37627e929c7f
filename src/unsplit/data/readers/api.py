"""Read observations of any kind from a folder or a file."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from unsplit.data.readers.arrow import parquet_files
from unsplit.data.readers.broken import refuse_unreadable
from unsplit.data.readers.cloud_files import ENDINGS as CLOUD_ENDINGS
from unsplit.data.readers.clouds import read_clouds
from unsplit.data.readers.columns import ColumnChoice, refuse_choice
from unsplit.data.readers.folders import (
    IMAGE_ENDINGS,
    FileList,
    files_in,
    find_images,
    lists_images,
)
from unsplit.data.readers.h5ad import read_cells
from unsplit.data.readers.images import inspect
from unsplit.data.readers.row_ids import BATCH_NAMES, LABEL_NAMES, RowIds
from unsplit.data.readers.shards import find_samples, shards_of
from unsplit.data.readers.sound import SOUND_ENDINGS, read_audio
from unsplit.data.readers.tables_and_arrays import Observations, read_observations, values_of_rows
from unsplit.errors import InputError, check_flag, check_path, check_type, option, shown

Progress = Callable[[int, int], None]

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
        :func:`unsplit.data.readers.tables_and_arrays.read_observations` reads.
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
        Called now and then with how much has been read so far (bytes, rows or files), and how much
        there is.
    use_rep : str, optional
        For ``.h5ad``: a key of ``obsm``, "X", or for raw counts "raw" or "layers/NAME".  By default
        "X_pca" if there is one, otherwise "X".
    cache : str or path, optional
        For ``.parquet`` and Arrow: the folder for a temporary file, used for features that take
        more than a quarter of the free memory; by default that for all temporary files.
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
    path = Path(path)
    if "\0" in str(path):
        refuse_unreadable(path)
    wanted, within = (
        None if name is None else os.fspath(name)
        for name in (labels, batch if groups is None else groups)
    )
    lists = {"features": () if features is None else features, "drop": drop}
    _check_options({"id": id, "use_rep": use_rep}, lists, progress)
    check_flag("scale", scale)
    only = None if features is None else tuple(features)
    choice = ColumnChoice(id, only, tuple(drop), scale)
    found = _read(path, wanted, within, choice, use_rep, progress)
    return found if groups is None else replace(found, batch=None, groups=found.batch)


def _read(
    path: Path,
    wanted: str | None,
    within: str | None,
    choice: ColumnChoice,
    use_rep: str | None,
    progress: Progress | None,
) -> Observations:
    """What :func:`read` does, with the batches or the groups as the batches."""
    if path.suffix.lower() == ".h5ad":
        refuse_choice(path, choice.given)
        return read_cells(path, wanted, within, use_rep)
    if use_rep is not None:
        raise InputError(f"{option('use_rep')} is for .h5ad files, got {path}; leave it out.")
    shards, is_folder = shards_of(path), path.is_dir() and not parquet_files(path)
    if not shards and not is_folder and not lists_images(path):
        return read_observations(path, wanted, within, choice, progress, any_shape=True)
    refuse_choice(path, choice.given)
    if shards:
        # A name that is no file is that of a field in the .json of every sample.
        field = None if wanted is None or os.path.isfile(wanted) else wanted
        wanted = None if field else wanted
        found = _decodable(find_samples(shards, field, needed=wanted is None), progress)
    elif is_folder:
        found = _from_folder(path, progress)
    else:
        found = _decodable(find_images(path), progress)
    rows = RowIds(path, found.row_ids, named=True)
    if wanted is not None:
        found = replace(found, labels=values_of_rows(path, {}, wanted, rows, LABEL_NAMES))
    return replace(found, batch=values_of_rows(path, {}, within, rows, BATCH_NAMES))


def _check_options(
    names: Mapping[str, object], lists: Mapping[str, object], progress: object
) -> None:
    for name, value in names.items():
        if value is not None:
            check_type(name, value, str, "pass a name")
    for name, value in lists.items():
        if not isinstance(value, (list, tuple)) or not all(isinstance(n, str) for n in value):
            raise InputError(
                f"{name} must be a list of names, got {shown(value)}; pass the names of columns."
            )
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function or None, got {shown(progress)}.")


def _from_folder(folder: Path, progress: Progress | None) -> Observations:
    kind = _what_is_in(folder)
    if kind == "point clouds":
        return read_clouds(folder, progress)
    if kind == "sounds":
        sound = read_audio(folder, progress)
        return Observations(sound, None, sound.row_ids, sound.labels)
    return _decodable(find_images(folder), progress)


def _decodable(listed: FileList, progress: Progress | None) -> Observations:
    """The images of a list that can be decoded."""
    files, kept = inspect(listed, progress=progress)
    return Observations(files, None, kept.row_ids, kept.labels)


def _what_is_in(folder: Path) -> str:
    """Return the kind of most files in clusters; without any, of most files beside them."""
    found = _kinds(name for name in files_in(folder) if "/" in name) or _kinds(files_in(folder))
    if not found:
        supported = "; ".join(f"{kind}: {', '.join(ENDINGS[kind])}" for kind in ENDINGS)
        raise InputError(
            f"{folder} has no files of a supported type ({supported}); put the files of each "
            "cluster into a subfolder of its own."
        )
    return found.most_common(1)[0][0]


def _kinds(names: Iterable[str]) -> Counter[str]:
    """Count the kinds of the first files."""
    endings = (os.path.splitext(name)[1].lower() for name in names)
    kinds = (kind for ending in endings for kind in ENDINGS if ending in ENDINGS[kind])
    return Counter(islice(kinds, ENOUGH))
