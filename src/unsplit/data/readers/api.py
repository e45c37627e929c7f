"""Read observations of any kind from a folder or a file."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit.data.cells import Matrix
from unsplit.data.readers.arrow import parquet_files
from unsplit.data.readers.cloud_arrays import clouds_in, columns_in, read_hdf5
from unsplit.data.readers.cloud_files import ENDINGS as CLOUD_ENDINGS
from unsplit.data.readers.clouds import DEFAULT_POINTS, read_clouds
from unsplit.data.readers.columns import ColumnChoice
from unsplit.data.readers.folders import IMAGE_ENDINGS, FileList, files_in, find_images
from unsplit.data.readers.formats import read_file, refuse_unreadable
from unsplit.data.readers.h5ad import read_cells
from unsplit.data.readers.images import ImageFiles, inspect
from unsplit.data.readers.row_ids import BATCH_NAMES, LABEL_NAMES, RowIds, read_labels
from unsplit.data.readers.shards import find_samples, shards_of
from unsplit.data.readers.sound import SOUND_ENDINGS, audio_in, read_audio
from unsplit.data.readers.tables import listing
from unsplit.data.readers.tables_and_arrays import (
    Observations,
    observations_in,
    read_observations,
    values_of_rows,
)
from unsplit.data.rows.sequences import Audio
from unsplit.devices import generator_of
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
    layer: str | None = None,
    use_raw: bool = False,
    cache: str | os.PathLike[str] | None = None,
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
        array of any shape; ``.npz`` with sound in ``audio`` and ``offsets``; ``.h5`` with point
        clouds; ``.h5ad`` with cells; a folder of ``.parquet`` files; or a file that
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
        For ``.h5ad``: a key of ``obsm``, or "X".  By default "X_pca" if there is one, otherwise
        "X".
    layer : str, optional
        For ``.h5ad``: a layer with raw counts, instead of ``use_rep``.
    use_raw : bool
        For ``.h5ad``: take the raw counts in ``raw``, instead of ``use_rep``.
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
    >>> path = Path(tempfile.mkdtemp()) / "clouds.npz"
    >>> np.savez(path, points=np.zeros((4, 100, 3)), cluster=[0, 0, 1, 1])
    >>> found = read(path, "cluster")
    >>> found.X.shape, found.labels.tolist()
    ((4, 100, 3), [0, 0, 1, 1])
    """
    check_path("path", path)
    given = {"labels": labels, "batch": batch, "cache": cache, "groups": groups}
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
    _check_options(id, features, drop, progress, use_rep, layer)
    check_flag("use_raw", use_raw)
    check_flag("scale", scale)
    only = None if features is None else tuple(features)
    choice = ColumnChoice(id, only, tuple(drop), scale)
    found = _read(path, wanted, within, choice, Matrix(use_rep, layer, use_raw), progress, cache)
    return found if groups is None else replace(found, batch=None, groups=found.batch)


def _read(
    path: Path,
    wanted: str | None,
    within: str | None,
    choice: ColumnChoice,
    matrix: Matrix,
    progress: Progress | None,
    cache: str | os.PathLike[str] | None,
) -> Observations:
    """What :func:`read` does, with the batches or the groups as the batches."""
    ending = path.suffix.lower()
    if ending == ".h5ad":
        _refuse_choice(path, choice)
        return read_cells(path, wanted, within, matrix)
    if matrix != Matrix():
        raise InputError(
            f"{option('use_rep')}, {option('layer')} and {option('use_raw')} are for .h5ad files, "
            f"got {path}; leave them out."
        )
    if shards := shards_of(path):
        _refuse_choice(path, choice)
        in_file = wanted is not None and os.path.isfile(wanted)
        listed = find_samples(shards, None if in_file else wanted, needed=not in_file)
        found = _decodable(listed, progress)
        return _relabelled(path, found, wanted if in_file else None, within)
    if parquet_files(path):
        return read_observations(path, wanted, within, choice, progress, cache)
    if path.is_dir() or _lists_images(path):
        _refuse_choice(path, choice)
        found = _from_folder(path, progress) if path.is_dir() else _images(path, progress)
        return _relabelled(path, found, wanted, within)
    if ending in (".h5", ".hdf5"):
        _refuse_choice(path, choice)
        return _from_hdf5(path, wanted, within)
    if ending == ".npz":
        return _from_npz(path, wanted, within, choice)
    if ending == ".npy" and (array := _mapped(path)) is not None:
        _refuse_choice(path, choice)
        return _labelled(path, array, {}, wanted, within)
    return read_observations(path, wanted, within, choice, progress, cache)


def _check_options(
    id: object,
    features: object,
    drop: object,
    progress: object,
    use_rep: object,
    layer: object,
) -> None:
    for name, value in {"id": id, "use_rep": use_rep, "layer": layer}.items():
        if value is not None:
            check_type(name, value, str, "pass a name")
    for name, value in {"features": () if features is None else features, "drop": drop}.items():
        if not isinstance(value, (list, tuple)) or not all(isinstance(n, str) for n in value):
            raise InputError(
                f"{name} must be a list of names, got {shown(value)}; pass the names of columns."
            )
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function or None, got {shown(progress)}.")


def _refuse_choice(path: Path, choice: ColumnChoice) -> None:
    """Raise an error if something is said of columns where there are none."""
    if choice.given:
        options = " and ".join(map(option, choice.given))
        raise InputError(
            f"{path} is not a table, so it has no columns that {options} could be about; leave "
            f"{options} out."
        )


def _from_folder(folder: Path, progress: Progress | None) -> Observations:
    kind = _what_is_in(folder)
    if kind == "sounds":
        sound = read_audio(folder, progress=progress)
        return Observations(sound, None, sound.row_ids, sound.labels)
    if kind == "point clouds":
        clouds = read_clouds(folder, progress=progress)
        return Observations(clouds.points, None, clouds.row_ids, clouds.labels)
    return _images(folder, progress)


def _images(path: Path, progress: Progress | None) -> Observations:
    return _decodable(find_images(path), progress)


def _decodable(listed: FileList, progress: Progress | None) -> Observations:
    """The images of a list that can be decoded."""
    seen = inspect(listed, progress=progress)
    kept = listed.only(seen.usable)
    files = ImageFiles(kept.paths, seen.size, seen.channels, seen.depth)
    files.keys = seen.keys[seen.usable]
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


def _lists_images(path: Path) -> bool:
    """Return whether a table has the columns of a list of images."""
    if path.suffix.lower() not in (".csv", ".tsv") or not path.is_file():
        return False
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as lines:
            names = lines.readline().strip().lower().replace("\t", ",").split(",")
    except OSError:
        return False  # read_observations says what is wrong
    return {"path", "cluster"} <= {name.strip(' "') for name in names}


def _mapped(path: Path) -> NDArray[Any] | None:
    """Map an array from disk, so that it may be larger than memory; None if it is a table."""
    if not path.is_file():
        return None
    try:
        array = np.load(path, mmap_mode="r")
    except Exception:  # a damaged header can raise many types of error
        return None  # read_observations says what is wrong
    return array if array.ndim > 2 else None


def _from_npz(
    path: Path, wanted: str | None, within: str | None, choice: ColumnChoice
) -> Observations:
    contents = read_file(path)
    arrays = contents.arrays
    if {"audio", "offsets"} <= arrays.keys():
        _refuse_choice(path, choice)
        return _labelled(path, audio_in(path, arrays), arrays, wanted, within)
    if any(array.ndim > 2 for array in arrays.values()):
        _refuse_choice(path, choice)
        return _labelled(path, arrays[_deep_name(path, arrays)], arrays, wanted, within)
    return observations_in(path, contents, wanted, within, choice)


def _from_hdf5(path: Path, wanted: str | None, within: str | None) -> Observations:
    refuse_unreadable(path)
    arrays = read_hdf5(path)
    # Arrays that were asked for by name need not be guessed.
    others = {name: array for name, array in arrays.items() if name not in (wanted, within)}
    points, labels, _ = clouds_in(path, others, DEFAULT_POINTS, generator_of(0))
    columns = columns_in(arrays)
    if labels is not None:
        columns.setdefault("label", labels)
    return _labelled(path, points, columns, wanted, within)


def _labelled(
    path: Path, X: Any, arrays: dict[str, Any], wanted: str | None, within: str | None
) -> Observations:
    """Give observations that have no names the labels and batches that are wanted."""
    rows = RowIds(path, np.arange(len(X.sounds if isinstance(X, Audio) else X)), named=False)
    for name in (wanted, within):
        if name is not None and name not in arrays and not os.path.isfile(name):
            held = f"its arrays: {listing(list(arrays))}" if arrays else "it has no named arrays"
            raise InputError(
                f"there is no array {name!r} in {path} ({held}) and no file of that name; check "
                "the name."
            )
    found = values_of_rows(path, arrays, wanted, rows, LABEL_NAMES)
    batch = values_of_rows(path, arrays, within, rows, BATCH_NAMES)
    return Observations(X, None, rows.ids, found, batch)


def _deep_name(path: Path, arrays: dict[str, Any]) -> str:
    deep = [name for name, array in arrays.items() if array.ndim > 2]
    called = [name for name in ("X", "data", "points", "images") if name in deep]
    if called or len(deep) == 1:
        return (called or deep)[0]
    raise InputError(
        f"{path} has several arrays that could be the observations ({listing(deep)}); call the "
        "right one 'X'."
    )


def _relabelled(
    path: Path, found: Observations, wanted: str | None, within: str | None
) -> Observations:
    rows = RowIds(path, found.row_ids, named=True)
    if wanted is not None:
        if not os.path.isfile(wanted):
            raise InputError(
                f"there is no file of labels {wanted}; check its name, or leave labels out to use "
                "the clusters of the folder or table."
            )
        found = replace(found, labels=read_labels(Path(wanted), rows))
    if within is not None:
        if not os.path.isfile(within):
            raise InputError(f"there is no file of batches {within}; check its name.")
        found = replace(found, batch=read_labels(Path(within), rows, BATCH_NAMES))
    return found
