"""Read many point clouds from one array in a file."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit.data.memory import available_memory
from unsplit.data.readers.cloud_files import is_too_far_out
from unsplit.data.readers.formats import parsed, read_file, refuse_unreadable, require_module
from unsplit.data.readers.row_ids import LABEL_NAMES, RowIds, one_label_each, take_ids
from unsplit.data.readers.tables import listing
from unsplit.errors import InputError

CLOUD_NAMES = ("points", "data", "X")


def read_cloud_array(
    path: Path, n_points: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[Any] | None, NDArray[Any]]:
    """Read clouds (n, p, 3), their labels (n,) if the file has any, and their ids (n,).

    If clouds have more than ``n_points`` points, the same positions are kept in all of them, so
    that what is kept of one cloud does not depend on the others.

    Parameters
    ----------
    path : Path
    n_points : int
        Largest number of points per cloud.
    rng : numpy Generator
        Chooses the positions that are kept.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "clouds.npz"
    >>> np.savez(path, points=np.zeros((2, 50, 3)), label=[7, 9])
    >>> points, labels, ids = read_cloud_array(path, 20, np.random.default_rng(0))
    >>> points.shape, labels, ids
    ((2, 20, 3), array([7, 9]), array([0, 1]))
    """
    return clouds_in(path, _arrays(path), n_points, rng)


def clouds_in(
    path: Path, arrays: dict[str, Any], n_points: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[Any] | None, NDArray[Any]]:
    """Find the clouds in the arrays of a file; returns what :func:`read_cloud_array` does.

    Parameters
    ----------
    path : Path
        The file, for messages.
    arrays : dict of str to ndarray
    n_points, rng
        As for :func:`read_cloud_array`.

    Examples
    --------
    >>> arrays = {"points": np.zeros((2, 50, 3)), "label": np.array([7, 9])}
    >>> clouds_in(Path("clouds.h5"), arrays, 20, np.random.default_rng(0))[0].shape
    (2, 20, 3)
    """
    arrays = dict(arrays)
    points = arrays.pop(_cloud_name(path, arrays))
    _refuse_shape(path, points)
    columns = columns_in(arrays)
    own = {name: array for name, array in columns.items() if len(array) == len(points)}
    ids = take_ids(path, own)
    rows = RowIds(path, np.arange(len(points)) if ids is None else ids, named=ids is not None)
    if points.shape[1] > n_points:
        points = points[:, np.sort(rng.choice(points.shape[1], n_points, replace=False))]
    return _finite(path, points, rows.ids), _labels(path, columns, rows), rows.ids


def _arrays(path: Path) -> dict[str, Any]:
    ending = path.suffix.lower()
    if ending in (".h5", ".hdf5"):
        refuse_unreadable(path)
        return read_hdf5(path)
    if ending not in (".npy", ".npz"):
        raise InputError(
            f"{path} has an unsupported file type; pass a folder of point clouds, or a .npy, .npz, "
            ".h5 or .hdf5 file."
        )
    try:
        return read_file(path).arrays
    except InputError as error:
        if "Python objects" not in str(error):
            raise
        raise InputError(_ragged(path)) from None


def _ragged(path: Path) -> str:
    return (
        f"{path} holds Python objects instead of numbers, probably because its clouds differ in "
        "size; take the same number of points from each and save one array of shape (clouds, "
        "points, 3)."
    )


def read_hdf5(path: Path) -> dict[str, Any]:
    """Read all arrays of an HDF5 file, by name; text becomes strings.

    Parameters
    ----------
    path : Path

    Examples
    --------
    >>> import h5py, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "clouds.h5"
    >>> with h5py.File(path, "w") as file:
    ...     file["label"] = [7, 9]
    >>> read_hdf5(path)
    {'label': array([7, 9])}
    """
    require_module("h5py", "reading HDF5", "points")
    found: dict[str, Any] = parsed(path, "unsplit.data.readers.cloud_arrays:arrays_in_hdf5")
    return found


def arrays_in_hdf5(path: str | Path) -> dict[str, Any]:
    """Do what :func:`read_hdf5` does, in this process.

    Parameters
    ----------
    path : str or Path

    Examples
    --------
    See :func:`read_hdf5`.
    """
    import h5py

    found: dict[str, Any] = {}
    room = available_memory()

    def look(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            nonlocal room
            # Half, because a copy goes to the process that asked.
            room -= 2 * (item.size or 0) * item.dtype.itemsize
            if room < 0:
                raise MemoryError
            text = h5py.check_string_dtype(item.dtype) is not None
            found[name] = np.asarray(item.asstr()[()]).astype(str) if text else item[()]

    with h5py.File(path) as file:
        file.visititems(look)
    return {name: np.asarray(array) for name, array in found.items()}


def _cloud_name(path: Path, arrays: dict[str, Any]) -> str:
    several = [name for name, array in arrays.items() if array.ndim == 3]
    called = [name for name in CLOUD_NAMES if name in several]
    if called or len(several) == 1:
        return (called or several)[0]
    if any(array.dtype == object for array in arrays.values()):
        raise InputError(_ragged(path))
    held = ", ".join(f"{name!r} of shape {array.shape}" for name, array in arrays.items())
    raise InputError(
        f"{path} must hold one array of shape (clouds, points, 3), called 'points' if there are "
        f"several, but holds {held or 'nothing'}; save such an array."
    )


def _refuse_shape(path: Path, points: NDArray[Any]) -> None:
    if points.dtype.kind not in "fiu":
        raise InputError(f"{path} holds clouds of type {points.dtype}; save them as numbers.")
    if points.shape[2] != 3:
        advice = (
            "swap its last two axes"
            if points.shape[1] == 3
            else "keep only x, y and z of every point"
        )
        raise InputError(
            f"{path} holds an array of shape {points.shape}, but clouds must have shape "
            f"(clouds, points, 3); {advice}."
        )
    if 0 in points.shape:
        raise InputError(f"{path} holds no points (shape {points.shape}); write it again.")


def columns_in(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays with one value per row; shape (n, 1), common in HDF5, becomes (n,).

    Parameters
    ----------
    arrays : dict of str to ndarray

    Examples
    --------
    >>> columns_in({"points": np.zeros((2, 5, 3)), "label": np.array([[7], [9]])})
    {'label': array([7, 9])}
    """
    return {
        name: array.ravel()
        for name, array in arrays.items()
        if array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)
    }


def _labels(path: Path, columns: dict[str, Any], rows: RowIds) -> NDArray[Any] | None:
    called = [name for name in columns if name.lower() in LABEL_NAMES]
    if len(called) > 1:
        raise InputError(
            f"{path} has several arrays that could be the labels ({listing(called)}); keep one of "
            "them."
        )
    return one_label_each(columns[called[0]], rows, f"{called[0]!r} in {path}") if called else None


def _finite(path: Path, points: NDArray[Any], ids: NDArray[Any]) -> NDArray[np.float32]:
    bad = ~np.isfinite(points).all(axis=(1, 2))
    if bad.any():
        raise InputError(
            f"{int(bad.sum()):,} of {len(points):,} clouds in {path} have values that are NaN or "
            f"infinite ({listing(ids[bad].tolist(), 5)}); remove those clouds or fill in the "
            "values first."
        )
    distorted = is_too_far_out(points)
    if distorted.any():
        raise InputError(
            f"{int(distorted.sum()):,} of {len(points):,} clouds in {path} are so far from the "
            "origin that single precision would distort them; subtract the same offset from all."
        )
    return points.astype(np.float32)
