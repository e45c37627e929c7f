"""Observations, labels and batches from tables and arrays.

:mod:`unsplit.data.readers.formats` reads a file; this module decides what its arrays mean.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from unsplit.data.feature_checks import warn_of_other_uses, warn_of_scales
from unsplit.data.readers.columns import (
    ColumnChoice,
    assign_roles,
    check_choice,
    leave_out_text,
    no_column,
)
from unsplit.data.readers.formats import Contents, read_file
from unsplit.data.readers.row_ids import (
    BATCH_NAMES,
    LABEL_NAMES,
    RowIds,
    one_label_each,
    read_labels,
    take_ids,
)
from unsplit.data.readers.tables import Columns
from unsplit.data.rows.base import blocks_of, is_mapped
from unsplit.errors import InputError, option


@dataclass(frozen=True, eq=False)
class Observations:
    """Observations as read from a file.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n, d)
        Finite numbers, as floats.  From :func:`unsplit.read` also an array of another shape,
        ``ImageFiles`` or ``Audio``.
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


NO_CHOICE = ColumnChoice()


def read_observations(
    path: str | os.PathLike[str],
    labels: str | os.PathLike[str] | None = None,
    batch: str | os.PathLike[str] | None = None,
    choice: ColumnChoice = NO_CHOICE,
    progress: Callable[[int, int], None] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Observations:
    r"""Read a matrix or a table of observations, and the cluster of each row.

    Parameters
    ----------
    path : str or path
        ``.npy`` with one matrix; ``.npz`` with one matrix or one called "X" or "data" (its
        one-dimensional arrays can be labels), or a SciPy sparse matrix; ``.csv``, ``.tsv`` (also
        with ``.gz``, ``.bz2``, ``.xz`` or ``.zip`` at the end), ``.parquet``, ``.arrow`` or
        ``.feather``.  In a table every column of numbers is a feature, except the labels and the
        row ids: a column called "id", "row_id" or "index", a first column without a name, or the
        index that pandas stored.  Other columns are left out with a warning that names them.
    labels : str or path, optional
        A column of that file or, if it has none of that name, another file: ``.txt`` with one
        label per line, ``.npy``, ``.npz`` or a table, with one column of labels or one called
        "label", "labels", "cluster" or "clusters".  If that file has row ids too, labels are
        matched by id, otherwise by order.  In text files, labels are integers if all are written
        as integers, else strings; an empty label or NA is missing, which means noise.
    batch : str or path, optional
        The batch of every row, given in the same way; a column of another file may be called
        "batch", "batches", "sample" or "donor".
    choice : ColumnChoice
        Which columns are the ids and the features, if not those above.
    progress : callable, optional
        Called with how much of a table has been read so far, and how much there is.
    cache : str or path, optional
        Where to keep features that take much of the free memory, of .parquet and Arrow files.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "cells.csv"
    >>> _ = path.write_text("id,x,y,cluster\nA1,1.0,2.0,7\nA2,3.0,4.5,-1\n")
    >>> read = read_observations(path, "cluster")
    >>> read.feature_names, read.row_ids.tolist(), read.labels.tolist()
    (['x', 'y'], ['A1', 'A2'], [7, -1])
    """
    path, wanted = Path(path), [None if w is None else os.fspath(w) for w in (labels, batch)]
    contents = read_file(
        path, lambda names: assign_roles(path, names, wanted, choice), progress, cache
    )
    return observations_in(path, contents, wanted[0], wanted[1], choice)


def observations_in(
    path: Path,
    contents: Contents,
    labels: str | None,
    batch: str | None,
    choice: ColumnChoice = NO_CHOICE,
) -> Observations:
    """Find the observations, labels and batches in the content of a file.

    Parameters
    ----------
    path : Path
        The file, for messages.
    contents : Contents
        What :func:`unsplit.data.readers.formats.read_file` read from it.
    labels, batch, choice
        As for :func:`read_observations`.

    Examples
    --------
    >>> contents = Contents({"X": np.zeros((2, 3)), "y": np.array([0, 1])})
    >>> observations_in(Path("cells.npz"), contents, "y", None).labels
    array([0, 1])
    """
    wanted = [labels, batch]
    columns = dict(contents.arrays)
    matrix = None if contents.is_table else columns.pop(_matrix_name(path, columns))
    if matrix is not None:
        _check_names(path, list(columns), wanted, choice)
    own = {name: columns.pop(name) for name in set(wanted) - {None} if name in columns}
    if matrix is not None:
        columns = {name: a for name, a in columns.items() if a.shape == matrix.shape[:1]}
    ids = take_ids(path, columns, contents.index, choice.id)
    names, text = None, Columns()
    if matrix is not None:
        X = _floats(path, matrix)
    else:
        X, names, text = _features(path, columns, contents)
        if not len(X):
            raise InputError(f"{path} has column names but no rows; add one row per observation.")
        leave_out_text(path, text, choice, any_numbers=bool(names))
    _refuse_gaps(path, X, names)
    given = np.arange(X.shape[0]) if ids is None else ids
    rows = RowIds(path, given, named=ids is not None, column=choice.id)
    clusters = values_of_rows(path, own, labels, rows, LABEL_NAMES)
    batches = values_of_rows(path, own, batch, rows, BATCH_NAMES)
    if names is not None:
        called = [f"column {name!r} of {path}" for name in names]
        doubtful: list[int] = []
        if choice.features is None:
            advice = [option("drop", name) for name in names]
            doubtful = warn_of_other_uses(X, called, clusters, advice)
        if choice.scale:
            _scale(X)
        else:
            warn_of_scales(X, called, doubtful)
    return Observations(X, names, rows.ids, clusters, batches, tuple(text), choice.id)


def _check_names(
    path: Path, names: list[str], wanted: Sequence[str | None], choice: ColumnChoice
) -> None:
    """Raise an error if a file without a table does not have the arrays that are named."""
    for name in wanted:
        if name is not None and name not in names and not os.path.isfile(name):
            raise InputError(no_column(path, name, names))
    if choice.scale:
        raise InputError(
            f"{path} is a matrix, and {option('scale')} is for tables; scale it, and save it."
        )
    if choice.features is not None or choice.drop:
        raise InputError(
            f"{path} is a matrix without column names, so {option('features')} and "
            f"{option('drop')} cannot choose from "
            "it; save a table, or the columns that you want."
        )
    check_choice(path, names, wanted, choice)


def values_of_rows(
    path: Path, arrays: dict[str, Any], wanted: str | None, rows: RowIds, called: tuple[str, ...]
) -> NDArray[Any] | None:
    """Return one value per row, from an array of a file or from another file.

    Parameters
    ----------
    path : Path
        The file with the rows.
    arrays : dict of str to ndarray
        Arrays of that file.
    wanted : str or None
        Name of one of the arrays, or of another file; None returns None.
    rows : RowIds
        The rows that values are matched to.
    called : tuple of str
        Names by which a column of another file is found.

    Examples
    --------
    >>> rows = RowIds(Path("cells.npz"), np.arange(2), named=False)
    >>> values_of_rows(rows.path, {"y": np.array([5, 7])}, "y", rows, LABEL_NAMES)
    array([5, 7])
    """
    if wanted is None:
        return None
    if wanted in arrays:
        return one_label_each(arrays[wanted], rows, f"{wanted!r} in {path}")
    return read_labels(Path(wanted), rows, called)


def _matrix_name(path: Path, arrays: dict[str, Any]) -> str:
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    called = [name for name in ("X", "data") if name in matrices]
    if called or len(matrices) == 1:
        return (called or matrices)[0]
    held = ", ".join(f"{name!r} of shape {array.shape}" for name, array in arrays.items())
    raise InputError(
        f"{path} must hold one matrix of shape (observations, features), called 'X' if there are "
        f"several, but holds {held}; save such a matrix as .npy or .npz."
    )


def _features(
    path: Path, columns: Columns, contents: Contents
) -> tuple[NDArray[Any], list[str], Columns]:
    """Return the features of a table (n, d), their names, and the columns that are not numbers."""
    if contents.streamed is not None:
        read = contents.streamed
        return read.X, read.features, {name: np.empty(0, object) for name in read.text}
    text = {n: values for n, values in columns.items() if values.dtype.kind not in "fiub"}
    numbers = {n: values for n, values in columns.items() if n not in text}
    if not numbers:
        n_rows = len(next(iter(columns.values())))
        return np.empty((n_rows, 0)), [], text
    return np.stack(list(numbers.values()), axis=1, dtype=np.float64), list(numbers), text


def _scale(X: NDArray[Any]) -> None:
    """Give every feature the mean 0 and the standard deviation 1, in place."""
    scaler = StandardScaler(copy=False)
    for block in blocks_of(X):
        scaler.partial_fit(block)
    for block in blocks_of(X):
        block[:] = scaler.transform(block)


def _floats(path: Path, matrix: Any) -> Any:
    if 0 in matrix.shape:
        raise InputError(f"{path} is empty (shape {matrix.shape}); save one row per observation.")
    if matrix.dtype.kind not in "fiub":
        raise InputError(f"{path} holds values of type {matrix.dtype}; save numbers instead.")
    if is_mapped(matrix):
        return matrix
    return matrix.astype(np.result_type(matrix.dtype, np.float32), copy=False)


def _refuse_gaps(path: Path, X: Any, names: list[str] | None) -> None:
    if scipy.sparse.issparse(X):
        each = np.bincount(X.indices[~np.isfinite(X.data)], minlength=X.shape[1])
    else:
        each = np.zeros(X.shape[1], np.int64)
        for block in blocks_of(X):
            each += (~np.isfinite(block)).sum(axis=0)
    if not each.any():
        return
    columns = np.flatnonzero(each)
    shown = [f"{each[j]:,} in column {repr(names[j]) if names else j}" for j in columns[:5]]
    more = f" and more in {len(columns) - 5:,} other columns" if len(columns) > 5 else ""
    raise InputError(
        f"{path} has missing or infinite values ({', '.join(shown)}{more}); "
        "remove those rows or fill in the values first."
    )
