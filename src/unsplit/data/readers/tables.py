"""Read text tables as columns: .csv and .tsv, compressed or not."""

import bz2
import gzip
import io
import lzma
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit.data.memory import available_memory
from unsplit.errors import InputError

Columns = dict[str, NDArray[Any]]

# Name given to a first column that has none, as pandas does.
UNNAMED = "Unnamed: 0"

# In memory, for each value of a table in text.
BYTES_PER_VALUE = 24

# How pandas, R and spreadsheets write a missing value.
MISSING = frozenset(["", "NA", "N/A", "n/a", "NaN", "nan", "<NA>", "None", "NULL", "null"])

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_WHOLE_FLOAT = re.compile(r"-?(0|[1-9]\d*)\.\d+(e[+-]\d+)?")


@dataclass(frozen=True, eq=False)
class Contents:
    """What a file holds.

    Parameters
    ----------
    arrays : dict of str to ndarray or sparse matrix
        Arrays by name; for a table, its columns that hold names, all of shape (n,).
    features : list of d str, or None
        The columns of a table that hold numbers; None for other files.
    X : ndarray of shape (n, d) or None
        These numbers.
    text : dict of str to ndarray
        The columns of a table that should hold numbers and do not; without values if they were not
        read.
    index : ndarray of shape (n,) or None
        Names of the rows, if the file keeps them apart from the columns, as parquet does.

    Examples
    --------
    >>> Contents({"x": np.array([1.5, 2.0])}).arrays["x"]
    array([1.5, 2. ])
    """

    arrays: dict[str, Any]
    features: list[str] | None = None
    X: Any = None
    text: Columns = field(default_factory=dict)
    index: NDArray[Any] | None = None


def read_text_table(
    path: Path,
    separator: str,
    assign: Callable[[list[str]], Any],
    progress: Callable[[int, int], None] | None = None,
) -> Contents:
    r"""Read columns of a text file whose first line names them.

    Parameters
    ----------
    path : Path
    separator : str
    assign : callable
        Returns :class:`unsplit.data.readers.columns.Roles`, given the names of all columns:
        which columns are read, and which of them hold names rather than measurements (see
        :func:`as_written`).
    progress : callable, optional
        Called with the number of bytes read so far and the number of all.

    Examples
    --------
    >>> import tempfile
    >>> from unsplit.data.readers.columns import Roles
    >>> path = Path(tempfile.mkdtemp()) / "cells.csv"
    >>> _ = path.write_text("cell,depth,age\n007,1.5,3\n008,2,3\n")
    >>> read = read_text_table(path, ",", lambda names: Roles(["cell"], ["depth"]))
    >>> read.arrays, read.X.ravel()
    ({'cell': array(['007', '008'], dtype='<U3')}, array([1.5, 2. ]))
    """
    pd = require_module("pandas", "reading tables", "tables")
    options: dict[str, Any] = {"sep": separator, "encoding": "utf-8", "index_col": False}
    if int(pd.__version__.split(".")[0]) < 3:  # the last digit of many numbers was wrong
        options["float_precision"] = "round_trip"
    try:
        names, excess = _names(pd, path, separator)
        roles = assign(names)
        if not roles.names:
            _refuse_numbers(path, names)
        # Read in one piece: of several, one could have numbers and another text in a column.
        options |= {"low_memory": False, "dtype": dict.fromkeys(roles.names, str)}
        wanted = [n for n in names if n in roles.read or (excess and n == UNNAMED)]
        if wanted != names:
            options["usecols"] = wanted
        with _unpacked(path, progress) as file:
            frame = pd.read_csv(file, header=0, names=names, **options)
    except pd.errors.EmptyDataError:
        raise InputError(f"{path} is empty; write it again.") from None
    except pd.errors.ParserError as error:
        told = str(error).strip().removeprefix("Error tokenizing data. C error: ")
        reason = shortened(told)
        raise InputError(
            f"{path} is not a regular table ({reason}); "
            "give every line as many values as the first, and close all quotes."
        ) from None
    if excess:
        _refuse_excess(path, excess, as_written(frame[UNNAMED].astype(str)))
    features = frame[[name for name in wanted if name in roles.features]]
    numbers = features.select_dtypes(["number", "bool"])
    X = numbers.to_numpy(np.float64)
    text = {name: values.to_numpy() for name, values in features.items() if name not in numbers}
    arrays = {name: as_written(frame[name]) for name in roles.names}
    return Contents(arrays, list(numbers), X, text)


def memory_for_text(path: Path, separator: str) -> int:
    r"""Estimate how many bytes of memory a table needs, by unpacking it piece by piece.

    Parameters
    ----------
    path : Path
        Text, compressed if its name ends in .gz, .bz2, .xz or .zip.
    separator : str

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "cells.csv"
    >>> _ = path.write_text("x,y\n1,2\n")
    >>> memory_for_text(path, ",")
    112
    """
    limit, needed = available_memory(), 0
    with _unpacked(path) as file:
        while needed <= limit and (piece := file.read(2**20)):
            n_values = piece.count(separator.encode()) + piece.count(b"\n")
            # The text itself, and where each value begins, its number, and a copy of that.
            needed += 2 * len(piece) + BYTES_PER_VALUE * n_values
    return needed


@contextmanager
def _unpacked(path: Path, progress: Callable[[int, int], None] | None = None) -> Iterator[Any]:
    """Open a table as bytes, without its compression."""
    opened: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    ending = path.suffix.lower()
    with io.BufferedReader(CountedFile(path, progress), buffer_size=2**20) as file:
        if ending in opened:
            with opened[ending](file) as content:
                yield content
        elif ending == ".zip":
            with zipfile.ZipFile(file) as archive:
                names = archive.namelist()
                if len(names) != 1:
                    raise ValueError(f"it holds {len(names)} files, not one table")
                with archive.open(names[0]) as content:
                    yield content
        else:
            yield file


class CountedFile(io.FileIO):
    r"""A file that tells how much of it has been read.

    Parameters
    ----------
    path : Path
    progress : callable, optional
        Called with the number of bytes read so far and the number of all.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "cells.csv"
    >>> _ = path.write_bytes(b"x\n1\n")
    >>> with io.BufferedReader(CountedFile(path, lambda done, size: print(done, size))) as file:
    ...     _ = file.read(1)
    4 4
    """

    def __init__(self, path: Path, progress: Callable[[int, int], None] | None) -> None:
        super().__init__(path)
        self._progress = progress
        self._size = os.fstat(self.fileno()).st_size

    def readinto(self, buffer: Any) -> int | None:
        """Read into the buffer, and tell how far that went."""
        n = super().readinto(buffer)
        if self._progress is not None:
            self._progress(min(self.tell(), self._size), self._size)
        return n


def as_written(texts: Iterable[Any]) -> NDArray[Any]:
    """Turn names into integers if every one is written as an integer, else into strings.

    Whole numbers that pandas or NumPy wrote as floats, such as ``1.0``, count as integers.
    Missing values become None.

    Parameters
    ----------
    texts : iterable of str
        Anything that is not a string counts as missing.

    Examples
    --------
    >>> as_written(["10", "-1", "2"])
    array([10, -1,  2])
    >>> as_written(["007", "12"])
    array(['007', '12'], dtype='<U3')
    >>> as_written(["1", "NA"])
    array([1, None], dtype=object)
    """
    stripped = [text.strip() if isinstance(text, str) else "" for text in texts]
    values: list[Any] = [None if text in MISSING else text for text in stripped]
    known = set(values) - {None}
    for whole in (_integer, _whole_float):
        numbers = {text: whole(text) for text in known}
        if None not in numbers.values():
            values = [numbers.get(text) for text in values]
            break
    return np.array(values, dtype=object if None in values else None)


def listing(names: Sequence[str], most: int = 8) -> str:
    """Join names in quotes; if there are many, only the first few.

    Parameters
    ----------
    names : sequence of str
    most : int
        Number of names that are shown.

    Examples
    --------
    >>> listing(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    text = ", ".join(shortened(repr(name)) for name in names[:most])
    return text if len(names) <= most else f"{text} and {len(names) - most:,} more"


def shortened(text: str, most: int = 200) -> str:
    """Cut the middle out of a long text, so that no message becomes longer than a screen.

    Parameters
    ----------
    text : str
    most : int
        Number of characters up to which a text stays as it is.

    Examples
    --------
    >>> shortened("cluster 7"), shortened("x" * 10_000 + "y", most=10)
    ('cluster 7', 'xxxxx…xxxy')
    """
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}…{text[len(text) - most + most // 2 + 1 :]}"


def require_module(name: str, what: str, extra: str) -> Any:
    """Import a module, or raise an ImportError that says what to install.

    Examples
    --------
    >>> require_module("numpy", "reading arrays", "tables").__name__
    'numpy'
    """
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise ImportError(f"{what} needs {package}: pip install unsplit[{extra}]") from None


def _names(pd: Any, path: Path, separator: str) -> tuple[list[str], int]:
    """Return the names of all columns, and how many more values the second line has than names.

    The first line is read as it is; pandas would change names that repeat.
    """
    options = {"sep": separator, "nrows": 1, "dtype": str, "keep_default_na": False}
    with _unpacked(path) as file:
        first = pd.read_csv(file, header=None, encoding="utf-8", **options)
    names = [name.strip() for name in first.iloc[0]]
    if len(names) == 1 and re.search("[,;\t]", names[0]):
        raise InputError(
            f"{path} seems to have one column, {listing(names)}; "
            "separate values by commas in .csv and by tabs in .tsv files."
        )
    with _unpacked(path) as file:
        index = pd.read_csv(file, encoding="utf-8", **options).index
    excess = 0 if isinstance(index, pd.RangeIndex) else index.nlevels
    names = [""] * excess + names
    names = [name or f"Unnamed: {i}" for i, name in enumerate(names)]
    refuse_repeated(path, names)
    return names, excess


def refuse_repeated(path: Path, names: Sequence[str]) -> None:
    """Raise an error if columns of a table share a name.

    Examples
    --------
    >>> refuse_repeated(Path("cells.csv"), ["x", "y"])
    """
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError(
            f"{path} has more than one column called {listing(repeated)}; "
            "give every column a name of its own."
        )


def _refuse_excess(path: Path, excess: int, first: NDArray[Any]) -> None:
    """Raise unless R wrote the file: an unnamed first column of row names or of 1, 2, 3, …"""
    counted = np.array_equal(first, np.arange(1, len(first) + 1))
    numbers = all(NUMBER.fullmatch(str(name)) for name in first)
    if excess > 1 or (numbers and not counted):
        raise InputError(
            f"{path} has {excess} more values per line than column names; name every column in the "
            "first line."
        )


def _refuse_numbers(path: Path, names: list[str]) -> None:
    """Raise if the first line looks like data; numbers that only count the columns may be names."""
    counts = [[str(i + first) for i in range(len(names))] for first in (0, 1)]
    if names not in counts and all(NUMBER.fullmatch(name) for name in names):
        raise InputError(
            f"the first line of {path} holds numbers ({listing(names, 3)}) instead of column "
            "names; add a line of names above it, or save the matrix as .npy."
        )


def _integer(text: str) -> int | None:
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text and abs(number) < 2**53 else None


def _whole_float(text: str) -> int | None:
    number = float(text) if _WHOLE_FLOAT.fullmatch(text) else 0.5
    return int(number) if number.is_integer() and abs(number) < 2**53 else None


def plain_column(series: Any) -> NDArray[Any]:
    """Return a pandas column as numbers, or as strings or objects with None for missing values.

    Examples
    --------
    >>> import pandas as pd
    >>> plain_column(pd.Series(["b", None]))
    array(['b', None], dtype=object)
    """
    pd = require_module("pandas", "reading tables", "tables")
    if pd.api.types.is_numeric_dtype(series.dtype):
        if series.hasnans:
            return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(series.to_numpy(dtype=getattr(series.dtype, "numpy_dtype", None)))
    values = np.empty(len(series), object)
    values[:] = list(series)
    values[series.isna().to_numpy()] = None
    types = {type(value) for value in values}
    return np.array(values.tolist()) if types in ({str}, {int}) else values
