"""Observations, labels and batches from one file: a table, an array, or several arrays.

:func:`read_file` reads a file of any type as named arrays; the rest decides what they mean, and
matches labels in other files to rows by id or by order.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from unsplit._typing import Index
from unsplit.data.readers.broken import reading, refuse_unreadable
from unsplit.data.readers.columns import (
    ID_NAMES,
    ColumnChoice,
    Roles,
    RowIds,
    assign_roles,
    check_choice,
    ids_in,
    leave_out_text,
    no_column,
    places_of,
    refuse_choice,
    without_gaps,
)
from unsplit.data.readers.tables import (
    Assign,
    Contents,
    as_written,
    listing,
    read_arrow,
    read_text_table,
    require_module,
    require_room,
)
from unsplit.data.rows.base import is_mapped
from unsplit.data.rows.kinds import warn_of_other_uses, warn_of_scales
from unsplit.devices import available_memory
from unsplit.errors import InputError, option

LABEL_NAMES = ("label", "labels", "cluster", "clusters")
BATCH_NAMES = ("batch", "batches", "sample", "donor")
# Matrices in .npy files of at least this many bytes stay on disk, as do arrays of more axes.
MAPPED_FROM = 2**26

_TEXT_TABLE = re.compile(r"\.((csv|tsv)(\.gz)?|xlsx)$")
_SPARSE_KEYS = {"format", "shape", "data"}


@dataclass(frozen=True, eq=False)
class Observations:
    """Observations as read from a file.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n, d)
        Numbers as floats, from tables finite ones.  From :func:`unsplit.read` also an array of
        another shape, ``ImageFiles`` or ``Ragged`` sounds.
    feature_names : list of d str, or None
        None if the file has none.
    row_ids : ndarray of shape (n,)
        Unique integers or strings; 0, 1, …, n − 1 if the file has none.
    labels : ndarray of shape (n,), or None
        Cluster of each row as in the file; see :func:`unsplit.data.labels.encode_labels` for
        which labels mean noise.
    batch : ndarray of shape (n,), or None
        Batch of each row; clusters are compared within batches.
    groups : ndarray of shape (n,), or None
        Group of each row, such as its track; whole groups are held out.
    left_out : list of str
        Columns of the table that are not used because they do not hold numbers.
    id_name : str or None
        The column that was named as the one with the ids.
    representation : str or None
        Which matrix of an .h5ad file X is, such as "X_pca"; None for other files.
    shown : any kind of observations, or None
        What a page shows of the observations where X holds vectors given for them: the images.
    kept : ndarray of shape (N,), or None
        Which of the N rows of a table are left; the others have missing values.
    all_ids : ndarray of shape (N,), or None
        The ids of all rows of a table.

    Examples
    --------
    >>> Observations(np.eye(2), ["x", "y"], np.arange(2), np.array(["a", "b"])).labels.tolist()
    ['a', 'b']
    """

    X: Any
    feature_names: list[str] | None
    row_ids: NDArray[Any]
    labels: NDArray[Any] | None
    batch: NDArray[Any] | None = None
    left_out: tuple[str, ...] = ()
    id_name: str | None = None
    representation: str | None = None
    shown: Any = None
    groups: NDArray[Any] | None = None
    kept: NDArray[np.bool_] | None = None
    all_ids: NDArray[Any] | None = None

    def of_all_rows(self, columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Columns with the ids first, and −1 (noise) for rows that were left out.

        Examples
        --------
        >>> ids, kept = np.array(["a", "b"]), np.array([True, False])
        >>> read = Observations(np.eye(1), ["x"], ids[:1], None, kept=kept, all_ids=ids)
        >>> [values.tolist() for values in read.of_all_rows({"new": np.array([3])}).values()]
        [['a', 'b'], [3, -1]]
        """
        if self.kept is None or self.kept.all() or self.all_ids is None:
            return {"id": self.row_ids, **columns}
        whole = {"id": self.all_ids}
        for name, values in columns.items():
            whole[name] = np.full(len(self.kept), -1, object)
            whole[name][self.kept] = values
        return whole


def read_observations(
    path: str | os.PathLike[str],
    labels: str | os.PathLike[str] | None = None,
    batch: str | os.PathLike[str] | None = None,
    choice: ColumnChoice | None = None,
) -> Observations:
    r"""Read a matrix or a table of observations, and the cluster of each row.

    Parameters
    ----------
    path : str or path
        ``.npy`` with an array; ``.npz`` with one array of observations or one called "X" or "data"
        (its one-dimensional arrays can be labels), or a SciPy sparse matrix; ``.h5``, read like it;
        ``.csv`` or ``.tsv`` (also with ``.gz`` at the end), ``.txt`` with tabs, ``.xlsx``,
        ``.parquet``, ``.arrow`` or ``.feather``.  In a table every column of numbers is a feature,
        except the labels and the row ids: a column called "id", "row_id" or "index", a first column
        without a name, or the index that pandas stored.  Other columns are left out with a warning
        that names them.
    labels : str or path, optional
        A column of that file or, if it has none of that name, another file: ``.txt`` with one
        label per line, ``.npy``, ``.npz`` or a table, with one column of labels or one called
        "label", "labels", "cluster" or "clusters".  If that file has row ids too, labels are
        matched by id, otherwise by order.  In text files, labels are integers if all are written
        as integers, else strings; an empty label or NA is missing, which means noise.
    batch : str or path, optional
        The batch of every row, given in the same way; a column of another file may be called
        "batch", "batches", "sample" or "donor".
    choice : ColumnChoice, optional
        Which columns are the ids and the features, if not those above.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "cells.csv"
    >>> _ = path.write_text("id,x,y,cluster\nA1,1.0,2.0,7\nA2,3.0,4.5,-1\n")
    >>> read = read_observations(path, "cluster")
    >>> read.feature_names, read.row_ids.tolist(), read.labels.tolist()
    (['x', 'y'], ['A1', 'A2'], [7, -1])
    """
    wanted = [None if name is None else os.fspath(name) for name in (labels, batch)]
    path, choice = Path(path), choice or ColumnChoice()
    contents = read_file(path, lambda names: assign_roles(path, names, wanted, choice))
    columns, X, names = dict(contents.arrays), contents.X, contents.features
    if names is None:
        X = _array_in(path, columns)
        refuse_choice(path, [name for name in choice.given if name != "id"])
        check_choice(path, list(columns), wanted, choice)
    elif not len(X):
        raise InputError(f"{path} has column names but no rows; add one row per observation.")
    n = X.shape[0]
    others = {k: a for k, a in columns.items() if k not in wanted and a.shape == (n,)}
    ids = ids_in(path, others, contents.index, choice.id)
    kept: Any = None
    if names is not None:
        leave_out_text(path, contents.text, choice, any_numbers=bool(names))
        kept = without_gaps(path, X, names, choice.missing)
    rows = RowIds(path, np.arange(n) if ids is None else ids, ids is not None, choice.id)
    clusters = values_of_rows(columns, wanted[0], rows, LABEL_NAMES)
    batches = values_of_rows(columns, wanted[1], rows, BATCH_NAMES)
    given: Any = X, rows.ids, clusters, batches
    if kept is not None and not kept.all():
        given = tuple(of if of is None else of[kept] for of in given)
    X, left, clusters, batches = given
    if names is not None:
        _look_at_features(path, X, names, clusters, choice)
    found = Observations(X, names, left, clusters, batches, tuple(contents.text), choice.id)
    return replace(found, kept=kept, all_ids=rows.ids)


def with_vectors(
    found: Observations, path: str | os.PathLike[str], data: str | os.PathLike[str]
) -> Observations:
    r"""Replace observations, read from ``data``, by vectors from a file; what else is known stays.

    If the file has ids (a column or array called "id"), rows are matched by id and rows of other
    observations are ignored; otherwise they are matched by order.  What the vectors replace is kept
    as ``shown``.

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
    if np.ndim(X) != 2:
        raise InputError(
            f"{path} must hold one vector for each observation, but holds an array of shape "
            f"{X.shape}; save a matrix of shape (observations, features)."
        )
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


# --- files as arrays ------------------------------------------------------------------------------


def read_file(path: Path, assign: Assign = lambda names: Roles(names, [])) -> Contents:
    r"""Read a file; the ending of its name tells its type.

    ``assign`` decides how the columns of a table are read; by default as names, not measurements.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels.txt"
    >>> _ = path.write_text("b\na\n")
    >>> read_file(path).arrays
    {'labels': array(['b', 'a'], dtype='<U1')}
    """
    refuse_unreadable(path)
    name = path.name.lower()
    with reading(path):
        if _TEXT_TABLE.search(name) or (name.endswith(".txt") and _has_columns(path)):
            return read_text_table(path, assign)
        if name.endswith((".parquet", ".arrow", ".feather")):
            return read_arrow(path, assign)
        if name.endswith(".txt"):
            lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
            return Contents({"labels": as_written(lines)})
        if name.endswith((".npy", ".npz")):
            return Contents(_read_numpy(path))
        if name.endswith((".h5", ".hdf5")):
            return Contents(_read_hdf5(path))
    raise InputError(
        f"{path} has an unsupported file type; supported are .npy, .npz, .csv, .tsv, .csv.gz, "
        ".tsv.gz, .xlsx, .parquet, .arrow, .feather, .h5, .hdf5, .h5ad and .txt, a table with tabs "
        "or labels."
    )


def _has_columns(path: Path) -> bool:
    """Whether the first line of a text has tabs, as in a table; labels stand one in a line."""
    with path.open("rb") as file:
        return b"\t" in file.readline(2**20)


def _read_numpy(path: Path) -> dict[str, Any]:
    try:
        # Opened here because NumPy leaves a damaged file open.
        with path.open("rb") as file:
            is_archive = file.read(2) == b"PK"
            file.seek(0)
            if is_archive:
                return _arrays_in(path, file)
        found = np.load(path, mmap_mode="r")
    except ValueError as error:
        if "pickle" not in str(error) and "Python objects" not in str(error):
            raise
        raise InputError(
            f"{path} is not a NumPy file, or holds Python objects, which are not read because they "
            "could run any code; save arrays of numbers or strings with numpy.save or numpy.savez."
        ) from None
    large = found.ndim == 2 and found.dtype.kind == "f" and found.nbytes >= MAPPED_FROM
    return {"array": found if large or found.ndim > 2 else np.array(found)}


def _arrays_in(path: Path, file: BinaryIO) -> dict[str, Any]:
    content = np.load(file)
    require_room(path, sum(member.file_size for member in content.zip.infolist()))
    if set(content.files) >= _SPARSE_KEYS:
        file.seek(0)
        return {"matrix": _read_sparse(file)}
    arrays = {name: content[name] for name in content.files}
    others = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if others:
        raise InputError(
            f"{path} holds something other than arrays ({listing(others)}); write it with "
            "numpy.savez."
        )
    return arrays


def _read_hdf5(path: Path) -> dict[str, Any]:
    """Read all arrays by name; text becomes strings, and one column, (n, 1), becomes (n,)."""
    h5py = require_module("h5py", "reading HDF5", "points")
    with h5py.File(path) as file:
        items: list[Any] = []
        file.visititems(lambda _, item: items.append(item))
        items = [item for item in items if isinstance(item, h5py.Dataset)]
        require_room(path, sum(item.nbytes for item in items))
        found = {}
        for item in items:
            is_text = h5py.check_string_dtype(item.dtype) is not None
            array = item.asstr()[()].astype(str) if is_text else np.asarray(item[()])
            found[item.name[1:]] = array.ravel() if array.shape[1:] == (1,) else array
    return found


def _read_sparse(file: BinaryIO) -> Any:
    matrix = scipy.sparse.load_npz(file)
    # A few bytes can say that there are billions of rows, each of which needs an entry.
    if 8 * matrix.shape[0] > available_memory():
        raise MemoryError
    if hasattr(matrix, "check_format"):
        # An index out of range would read any place in memory.
        matrix.check_format(full_check=True)
    return matrix.tocsr() if matrix.ndim == 2 else matrix


def _array_in(path: Path, arrays: dict[str, Any]) -> Any:
    """Remove the observations from the arrays of a file: an array of any shape, or CSR."""
    most = max(2, max((array.ndim for array in arrays.values()), default=0))
    found = [name for name, array in arrays.items() if array.ndim == most]
    called = [name for name in ("X", "data", "points", "images") if name in found]
    if not called and len(found) != 1:
        held = ", ".join(f"{name!r} of shape {array.shape}" for name, array in arrays.items())
        raise InputError(
            f"{path} must hold one array of observations, called 'X' if there are several, but "
            f"holds {held or 'nothing'}; save such an array as .npy or .npz."
        )
    matrix = arrays.pop((called or found)[0])
    if matrix.ndim > 2 or is_mapped(matrix) or matrix.dtype.kind not in "fiub":
        return matrix
    return matrix.astype(np.result_type(matrix.dtype, np.float32), copy=False)


def _look_at_features(
    path: Path, X: NDArray[Any], names: list[str], clusters: Any, choice: ColumnChoice
) -> None:
    """Warn of features that may not be measurements or drown others, or scale them in place."""
    called = [f"column {name!r} of {path}" for name in names]
    if choice.features is None:
        advice = [option("drop", [name]) for name in names]
        warn_of_other_uses(X, called, clusters, advice)
    if choice.scale:
        X[:] = StandardScaler(copy=False).fit_transform(X)
    else:
        warn_of_scales(X, called)


# --- what is matched to the rows ------------------------------------------------------------------


def values_of_rows(
    arrays: dict[str, Any], wanted: str | None, rows: RowIds, called: tuple[str, ...]
) -> NDArray[Any] | None:
    """Return one value per row, from an array of the file with the rows or from another file.

    ``called`` are the names by which a column of another file is found.

    Examples
    --------
    >>> rows = RowIds(Path("cells.npz"), np.arange(2), named=False)
    >>> values_of_rows({"y": np.array([5, 7])}, "y", rows, LABEL_NAMES)
    array([5, 7])
    """
    if wanted is None:
        return None
    if wanted in arrays:
        return _one_each(arrays[wanted], rows, f"{wanted!r} in {rows.path}")
    if not os.path.isfile(wanted):
        raise InputError(no_column(rows.path, wanted, list(arrays)))
    return _read_labels(Path(wanted), rows, called)


def _read_labels(path: Path, rows: RowIds, called: tuple[str, ...]) -> NDArray[Any]:
    """Read labels from a file of their own, and return them in the order of the rows."""
    contents = read_file(path)
    columns = {name: array for name, array in contents.arrays.items() if array.ndim == 1}
    if not columns:
        shapes = " and ".join(str(array.shape) for array in contents.arrays.values())
        raise InputError(
            f"{path} must hold one label per row, but holds an array of shape {shapes}; save a "
            "one-dimensional array."
        )
    others = {n: a for n, a in columns.items() if n.lower() not in ID_NAMES and n != rows.column}
    others, order = others or dict(columns), None
    ids_of = {name: array for name, array in columns.items() if name not in others}
    ids = ids_in(path, ids_of, contents.index, rows.column)
    if ids is not None:
        order = _order(path, ids, rows)
    elif rows.ids.dtype.kind == "U" and len(others) > 1:
        # A column of any name can have the ids, but only as text: equal numbers may be chance.
        places = {name: places_of(rows.ids, values) for name, values in others.items()}
        name = next((name for name, (_, lacking) in places.items() if not lacking), None)
        if name is not None:
            order = places[name][0]
            del others[name]
    names = [name for name in others if name.lower() in called] or list(others)
    if len(names) > 1:
        raise InputError(
            f"{path} has several columns that could be the {called[1]} ({listing(names)}); "
            f"keep one of them, or call only one of them {called[0]!r}."
        )
    where = f"column {names[0]!r} of {path}" if contents.features is not None else str(path)
    labels = _one_each(others[names[0]], rows, where)
    return labels if order is None else labels[order]


def _one_each(labels: NDArray[Any], rows: RowIds, where: str) -> NDArray[Any]:
    """Return the labels if there is one for each row; otherwise raise an error."""
    if labels.shape == rows.ids.shape:
        return labels
    count = f"{len(labels):,} labels" if labels.ndim == 1 else f"labels of shape {labels.shape}"
    raise InputError(
        f"{where} has {count} but {rows.path} has {len(rows.ids):,} rows; give one label per row."
    )


def _order(path: Path, ids: NDArray[Any], rows: RowIds) -> Index | None:
    """Return the position of each row's label; None if labels are in the order of the rows."""
    order, lacking = places_of(rows.ids, ids)
    if lacking and rows.named:
        raise InputError(
            f"{path} has no label for row {lacking[0]!r} of {rows.path}; use the same ids in both "
            f"files, or remove the ids from {path} to match labels by order."
        )
    return None if lacking else order
