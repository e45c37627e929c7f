"""Observations, labels and batches from tables and arrays.

:mod:`unsplit.data.readers.formats` reads a file; this module decides what its arrays mean.
"""

import os
from collections.abc import Callable
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
    refuse_choice,
)
from unsplit.data.readers.formats import read_file
from unsplit.data.readers.row_ids import (
    BATCH_NAMES,
    LABEL_NAMES,
    RowIds,
    ids_in,
    one_label_each,
    read_labels,
)
from unsplit.data.readers.sound import audio_in
from unsplit.data.rows.base import blocks_of, is_mapped
from unsplit.data.rows.sequences import Audio
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
    any_shape: bool = False,
) -> Observations:
    r"""Read a matrix or a table of observations, and the cluster of each row.

    Parameters
    ----------
    path : str or path
        ``.npy`` with one matrix; ``.npz`` with one matrix or one called "X" or "data" (its
        one-dimensional arrays can be labels), or a SciPy sparse matrix; ``.h5``, read like it;
        ``.csv``, ``.tsv`` (also with ``.gz``, ``.bz2``, ``.xz`` or ``.zip`` at the end),
        ``.parquet``, ``.arrow`` or ``.feather``.  In a table every column of numbers is a feature,
        except the labels and the row ids: a column called "id", "row_id" or "index", a first
        column without a name, or the index that pandas stored.  Other columns are left out with a
        warning that names them.
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
    any_shape : bool
        Whether the file may also hold an array of another shape or, in ``audio`` and ``offsets``,
        sounds.

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
    path = Path(path)
    contents = read_file(
        path, lambda names: assign_roles(path, names, wanted, choice), progress, cache
    )
    columns, X, names = dict(contents.arrays), contents.X, contents.features
    if names is None:
        X = _array_in(path, columns)
        if not any_shape and np.ndim(X) != 2:
            held = "sounds" if isinstance(X, Audio) else f"an array of shape {X.shape}"
            raise InputError(
                f"{path} must hold one matrix of shape (observations, features), but holds {held}; "
                "save such a matrix as .npy or .npz."
            )
        refuse_choice(path, [name for name in choice.given if name != "id"])
        check_choice(path, list(columns), wanted, choice)
    elif not len(X):
        raise InputError(f"{path} has column names but no rows; add one row per observation.")
    others = {k: a for k, a in columns.items() if k not in wanted and a.shape == (_length(X),)}
    ids = ids_in(path, others, contents.index, choice.id)
    if names is not None:
        leave_out_text(path, contents.text, choice, any_numbers=bool(names))
    if np.ndim(X) == 2:
        _refuse_gaps(path, X, names)
    counted = np.arange(_length(X))
    rows = RowIds(path, counted if ids is None else ids, ids is not None, choice.id)
    clusters = values_of_rows(path, columns, wanted[0], rows, LABEL_NAMES)
    batches = values_of_rows(path, columns, wanted[1], rows, BATCH_NAMES)
    if names is not None:
        _look_at_features(path, X, names, clusters, choice)
    return Observations(X, names, rows.ids, clusters, batches, tuple(contents.text), choice.id)


def _length(X: Any) -> int:
    return len(X.sounds) if isinstance(X, Audio) else X.shape[0]


def _look_at_features(
    path: Path, X: NDArray[Any], names: list[str], clusters: Any, choice: ColumnChoice
) -> None:
    """Warn of features that may not be measurements or drown others, or scale them in place."""
    called = [f"column {name!r} of {path}" for name in names]
    doubtful: list[int] = []
    if choice.features is None:
        advice = [option("drop", [name]) for name in names]
        doubtful = warn_of_other_uses(X, called, clusters, advice)
    if not choice.scale:
        return warn_of_scales(X, called, doubtful)
    scaler = StandardScaler(copy=False)
    for block in blocks_of(X):
        scaler.partial_fit(block)
    for block in blocks_of(X):
        block[:] = scaler.transform(block)
    return None


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
    if not os.path.isfile(wanted):
        raise InputError(no_column(path, wanted, list(arrays)))
    return read_labels(Path(wanted), rows, called)


def _array_in(path: Path, arrays: dict[str, Any]) -> Any:
    """Remove the observations from the arrays of a file: sounds, an array of any shape, or CSR."""
    if {"audio", "offsets"} <= arrays.keys():
        return audio_in(path, arrays)
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
    if matrix.ndim > 2 or is_mapped(matrix):
        return matrix
    if 0 in matrix.shape:
        raise InputError(f"{path} is empty (shape {matrix.shape}); save one row per observation.")
    if matrix.dtype.kind not in "fiub":
        raise InputError(f"{path} holds values of type {matrix.dtype}; save numbers instead.")
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
