"""Ids of rows, and labels that are matched to rows by id or by order."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.data.readers.columns import ID_NAMES
from unsplit.data.readers.formats import read_file
from unsplit.data.readers.tables import UNNAMED, Columns, listing
from unsplit.errors import InputError

LABEL_NAMES = ("label", "labels", "cluster", "clusters")
BATCH_NAMES = ("batch", "batches", "sample", "donor")

_DECIMAL = re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class RowIds:
    """Ids of the rows that labels are matched to.

    Parameters
    ----------
    path : Path
        The file that has the rows, for messages.
    ids : ndarray of shape (n,)
        Integers or strings.
    named : bool
        True if the ids come from the file; False if they only count the rows, so that labels
        with other ids are matched by order.
    column : str or None
        The column that the user named as the one with the ids; a file of labels may have it too.

    Examples
    --------
    >>> RowIds(Path("cells.csv"), np.array(["a", "b"]), named=True).ids.tolist()
    ['a', 'b']
    """

    path: Path
    ids: NDArray[Any]
    named: bool
    column: str | None = None


def ids_in(
    path: Path,
    columns: Columns,
    index: NDArray[Any] | None = None,
    chosen: str | None = None,
) -> NDArray[Any] | None:
    """Return the ids in the columns of a file, or None if there are none.

    A first column without a name that only counts the rows from zero, as pandas writes it, gives no
    ids.

    Parameters
    ----------
    path : Path
        The file, for messages.
    columns : dict of str to ndarray of shape (n,)
    index : ndarray of shape (n,), optional
        Ids that the file keeps apart from its columns; they take precedence.
    chosen : str, optional
        The column that the user named; it takes precedence over all others.

    Examples
    --------
    >>> columns = {"id": np.array(["a", "b"]), "x": np.array([1.5, 2.0])}
    >>> ids_in(Path("cells.csv"), columns)
    array(['a', 'b'], dtype='<U1')
    """
    if chosen in columns:
        return _checked(path, chosen, columns[chosen], chosen=True)
    if index is not None:
        return _checked(path, "index", index)
    for usual in ID_NAMES:
        for name, values in columns.items():
            counts = name == UNNAMED and np.array_equal(values, np.arange(len(values)))
            if name.lower() == usual and not counts:
                return _checked(path, name, values)
    return None


def read_labels(path: Path, rows: RowIds, names: tuple[str, ...] = LABEL_NAMES) -> NDArray[Any]:
    r"""Read labels from a separate file and return them in the order of the rows.

    Parameters
    ----------
    path : Path
        The file with the labels.
    rows : RowIds
        The rows that the labels are for.
    names : tuple of str
        Names by which the column is found if there are several.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels.csv"
    >>> _ = path.write_text("id,cluster\nb,7\na,3\n")
    >>> read_labels(path, RowIds(Path("cells.csv"), np.array(["a", "b"]), named=True))
    array([3, 7])
    """
    contents = read_file(path)
    columns = {name: array for name, array in contents.arrays.items() if array.ndim == 1}
    if not columns:
        shapes = " and ".join(str(array.shape) for array in contents.arrays.values())
        raise InputError(
            f"{path} must hold one label per row, but holds an array of shape {shapes}; save a "
            "one-dimensional array."
        )
    name = _label_column(path, columns, rows, names)
    where = f"column {name!r} of {path}" if contents.features is not None else str(path)
    labels = one_label_each(columns.pop(name), rows, where)
    order = _order(path, columns, contents.index, rows)
    return labels if order is None else labels[order]


def one_label_each(labels: NDArray[Any], rows: RowIds, where: str) -> NDArray[Any]:
    """Return the labels if there is one for each row; otherwise raise an error.

    Parameters
    ----------
    labels : ndarray
    rows : RowIds
    where : str
        Where the labels are from, for the error message.

    Examples
    --------
    >>> rows = RowIds(Path("cells.npy"), np.arange(2), named=False)
    >>> one_label_each(np.array([5, 7]), rows, "labels.npy")
    array([5, 7])
    """
    if labels.shape == rows.ids.shape:
        return labels
    count = f"{len(labels):,} labels" if labels.ndim == 1 else f"labels of shape {labels.shape}"
    raise InputError(
        f"{where} has {count} but {rows.path} has {len(rows.ids):,} rows; give one label per row."
    )


def _label_column(path: Path, columns: Columns, rows: RowIds, wanted: tuple[str, ...]) -> str:
    """Choose the only column, or the only one with a wanted name, or the only one without ids."""
    called = [name for name in columns if name.lower() in wanted]
    others = [n for n in columns if n.lower() not in ID_NAMES and n != rows.column]
    for names in (list(columns), called, others):
        if len(names) == 1:
            return names[0]
    others = [name for name in others if _places_by_name(columns[name], rows) is None]
    if len(others) == 1 and not called:
        return others[0]
    candidates = listing(called or list(columns))
    raise InputError(
        f"{path} has several columns that could be the {wanted[1]} ({candidates}); "
        f"keep one of them, or call only one of them {wanted[0]!r}."
    )


def _order(path: Path, columns: Columns, index: NDArray[Any] | None, rows: RowIds) -> Index | None:
    """Return the position of each row's label; None if labels are in the order of the rows."""
    ids = ids_in(path, columns, index, rows.column)
    if ids is None:
        places = (_places_by_name(values, rows) for values in columns.values())
        return next((place for place in places if place is not None), None)
    order, lacking = places_of(rows.ids, ids)
    if not lacking:
        return order
    if rows.named:
        raise InputError(
            f"{path} has no label for row {lacking[0]!r} of {rows.path}; use the same ids in both "
            f"files, or remove the ids from {path} to match labels by order."
        )
    return None


def places_of(wanted: NDArray[Any], ids: NDArray[Any]) -> tuple[Index, list[str]]:
    """Find rows by id: the place of each wanted id, −1 if it has none, and those that have none.

    Parameters
    ----------
    wanted, ids : ndarray of shape (n,) and (m,)
        Compared as text.

    Examples
    --------
    >>> places_of(np.array([7, 9]), np.array(["8", "7"]))
    (array([ 1, -1]), ['9'])
    """
    place = {str(value): i for i, value in enumerate(ids.tolist())}
    names = [str(value) for value in wanted.tolist()]
    lacking = [name for name in names if name not in place]
    return np.array([place.get(name, -1) for name in names], np.int64), lacking


def _places_by_name(values: NDArray[Any], rows: RowIds) -> Index | None:
    """Match rows by a column of any name, but only by text: equal numbers may be chance."""
    order, lacking = places_of(rows.ids, values)
    return order if rows.ids.dtype.kind == "U" and not lacking else None


def _checked(path: Path, name: str, values: NDArray[Any], chosen: bool = False) -> NDArray[Any]:
    """Return ids as integers or strings; raise if they are not unique or not whole numbers."""
    if values.dtype.kind == "f" and np.array_equal(values, np.rint(values)):
        values = values.astype(np.int64)
    texts = ["nan" if value is None else str(value) for value in values]
    repeated = [text for text, times in Counter(texts).items() if times > 1]
    wrong = ""
    if "nan" in texts:
        wrong = "some are missing"
    elif texts and all(_DECIMAL.fullmatch(text) for text in texts):
        wrong = f"{texts[0]} is not a whole number"
    elif repeated:
        wrong = f"{repeated[0]!r} occurs more than once"
    if wrong:
        advice = "remove the column, or rename it if it is a feature"
        if chosen:
            advice = "name a column with a different value in every row"
        raise InputError(f"column {name!r} of {path} should hold row ids, but {wrong}; {advice}.")
    return values if values.dtype.kind in "iu" else np.array(texts)
