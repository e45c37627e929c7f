"""Read tables: text, compressed or not, .parquet and Arrow files, and folders of .parquet files.

Parquet and Arrow are read batch by batch, and features that take much of the free memory are kept
in a temporary file on disk.
"""

import bz2
import csv
import gzip
import io
import lzma
import os
import re
import shutil
import tempfile
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
Progress = Callable[[int, int], None]
# Decides, given the names of all columns, which are read, and which of them hold names rather than
# measurements: :class:`unsplit.data.readers.columns.Roles`.
Assign = Callable[[list[str]], Any]

# Name given to a first column that has none, as pandas does.
UNNAMED = "Unnamed: 0"
ARROW_ENDINGS = (".parquet", ".arrow", ".feather")

# In memory, for each value of a table in text.
BYTES_PER_VALUE = 24
# Of .parquet and Arrow files at a time: rows, values, and bytes of a compressed column.
ROWS_AT_ONCE = 65_536
VALUES_AT_ONCE = 2**22
BYTES_AT_ONCE = 2**16
# Features that take a larger share of the free memory are kept on disk.
SHARE_IN_MEMORY = 0.25
# The largest error of float32, as a share of a feature's range, that does no harm.
HARMLESS = 1e-5

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
    """

    arrays: dict[str, Any]
    features: list[str] | None = None
    X: Any = None
    text: Columns = field(default_factory=dict)
    index: NDArray[Any] | None = None


# --- text -----------------------------------------------------------------------------------------


def read_text_table(path: Path, separator: str, assign: Assign) -> Contents:
    r"""Read columns of a text file whose first line names them.

    Examples
    --------
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
    names = _names(path, separator)
    roles = assign(names)
    if not roles.names:
        _refuse_numbers(path, names)
    # Read in one piece: of several, one could have numbers and another text in a column.
    options |= {"low_memory": False, "dtype": dict.fromkeys(roles.names, str)}
    wanted = [n for n in names if n in roles.read]
    if wanted != names:
        options["usecols"] = wanted
    try:
        with _unpacked(path) as file:
            frame = pd.read_csv(file, header=0, names=names, **options)
    except pd.errors.ParserError as error:
        told = str(error).strip().removeprefix("Error tokenizing data. C error: ")
        raise InputError(
            f"{path} is not a regular table ({shortened(told)}); "
            "give every line as many values as the first, and close all quotes."
        ) from None
    features = frame[[name for name in wanted if name in roles.features]]
    numbers = features.select_dtypes(["number", "bool"])
    X = numbers.to_numpy(np.float64)
    text = {name: values.to_numpy() for name, values in features.items() if name not in numbers}
    arrays = {name: as_written(frame[name]) for name in roles.names}
    return Contents(arrays, list(numbers), X, text)


def memory_for_text(path: Path, separator: str) -> int:
    r"""Estimate how many bytes of memory a table needs, by unpacking it piece by piece.

    Examples
    --------
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
def _unpacked(path: Path) -> Iterator[Any]:
    """Open a table as bytes, without its compression."""
    opened: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    ending = path.suffix.lower()
    if ending != ".zip":
        with opened.get(ending, open)(path, "rb") as content:
            yield content
        return
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if len(names) != 1:
            raise ValueError(f"it holds {len(names)} files, not one table")
        with archive.open(names[0]) as content:
            yield content


def _names(path: Path, separator: str) -> list[str]:
    """Return the names of all columns; the second line must not have more values than names."""
    with _unpacked(path) as file:
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        lines = (line for line in csv.reader(text, delimiter=separator) if line)
        first, second = next(lines, None), next(lines, [])
    if first is None:
        raise InputError(f"{path} is empty; write it again.")
    names = [name.strip() for name in first]
    if len(names) == 1 and re.search("[,;\t]", names[0]):
        raise InputError(
            f"{path} seems to have one column, {listing(names)}; "
            "separate values by commas in .csv and by tabs in .tsv files."
        )
    if len(second) > len(names):
        raise InputError(
            f"{path} has {len(second) - len(names)} more values per line than column names; name "
            "every column in the first line, in R with write.csv."
        )
    names = [name or f"Unnamed: {i}" for i, name in enumerate(names)]
    _refuse_repeated(path, names)
    return names


def _refuse_repeated(path: Path, names: Sequence[str]) -> None:
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError(
            f"{path} has more than one column called {listing(repeated)}; "
            "give every column a name of its own."
        )


def _refuse_numbers(path: Path, names: list[str]) -> None:
    """Raise if the first line looks like data; numbers that only count the columns may be names."""
    counts = [[str(i + first) for i in range(len(names))] for first in (0, 1)]
    if names not in counts and all(NUMBER.fullmatch(name) for name in names):
        raise InputError(
            f"the first line of {path} holds numbers ({listing(names, 3)}) instead of column "
            "names; add a line of names above it, or save the matrix as .npy."
        )


def as_written(texts: Iterable[Any]) -> NDArray[Any]:
    """Turn names into integers if every one is written as an integer, else into strings.

    Whole numbers that pandas or NumPy wrote as floats, such as ``1.0``, count as integers.
    Missing values, and what is not a string, become None.

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


def _integer(text: str) -> int | None:
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text and abs(number) < 2**53 else None


def _whole_float(text: str) -> int | None:
    number = float(text) if _WHOLE_FLOAT.fullmatch(text) else 0.5
    return int(number) if number.is_integer() and abs(number) < 2**53 else None


# --- parquet and Arrow ----------------------------------------------------------------------------


def parquet_files(folder: Path) -> list[Path]:
    """List the .parquet files directly in a folder, by name; hidden ones are left out."""
    if not folder.is_dir():
        return []
    return sorted(
        path for path in folder.glob("*.[pP][aA][rR][qQ][uU][eE][tT]") if path.name[0] not in "._"
    )


def read_arrow(path: Path, assign: Assign, progress: Progress | None = None) -> Contents:
    """Read a .parquet, .arrow or .feather file, or a folder of .parquet files.

    Examples
    --------
    >>> import pandas as pd
    >>> from unsplit.data.readers.columns import Roles
    >>> path = Path(tempfile.mkdtemp()) / "cells.parquet"
    >>> pd.DataFrame({"depth": [1.5, 2.0], "kind": ["u", "v"]}, index=["a", "b"]).to_parquet(path)
    >>> read = read_arrow(path, lambda names: Roles(["kind"], ["depth"]))
    >>> read.X.ravel(), read.arrays, read.index
    (array([1.5, 2. ], dtype=float32), {'kind': array(['u', 'v'], ...)}, array(['a', 'b'], ...))
    """
    pa = require_module("pyarrow", "reading parquet and Arrow files", "tables")
    source = _opened(pa, path)
    schema, n_rows = source.schema, source.count_rows()
    stored, counted = _index_columns(schema)
    # An index can be named as the id, like any column.
    roles = assign([name for name in schema.names if name not in stored] + stored)
    features = [name for name in roles.features if name not in stored]
    numbers = [name for name in features if _is_number(pa, schema.field(name).type)]
    kept = [name for name in roles.names if name in schema.names]
    others = sorted({*kept, *stored})
    X = room_for((n_rows, len(numbers)), np.float32, path)
    harm, tables = _fill(X, source, numbers, others, progress)
    if harm > HARMLESS:  # such as time stamps, whose large offset uses up the digits of float32
        X = room_for((n_rows, len(numbers)), np.float64, path)
        tables = _fill(X, source, numbers, others, progress)[1]
    frame = pa.Table.from_batches(tables, pa.schema([schema.field(name) for name in others]))
    frame = frame.to_pandas(ignore_metadata=True)
    columns = {name: _plain_column(frame[name]) for name in others}
    unread = {name: np.empty(0, object) for name in features if name not in numbers}
    index = _index(columns, stored) if stored else counted
    return Contents({name: columns[name] for name in kept}, numbers, X, unread, index)


def _opened(pa: Any, path: Path) -> Any:
    """Open a file or a folder as a dataset of Arrow, which reads batches with some columns."""
    from pyarrow import dataset, fs, parquet

    files = parquet_files(path) or [path]
    if files[0].suffix.lower() != ".parquet":
        with path.open("rb") as content:
            is_stream = content.read(6) != b"ARROW1"
        mapped = pa.memory_map(str(path))
        reader = pa.ipc.open_stream(mapped) if is_stream else pa.ipc.open_file(mapped)
        _refuse_repeated(path, reader.schema.names)
        if is_stream:
            return dataset.dataset(reader.read_all())
        disk = fs.LocalFileSystem(use_mmap=True)
        return dataset.dataset(str(path), format="ipc", filesystem=disk)
    schemas = [parquet.read_schema(file) for file in files]
    _refuse_repeated(path, schemas[0].names)
    unlike = [file for file, one in zip(files, schemas, strict=True) if set(one) != set(schemas[0])]
    if unlike:
        raise InputError(
            f"{unlike[0].name} and {files[0].name} in {path} differ in their columns; write all "
            "files of the folder with the same columns and types."
        )
    if len(files) > 1 and not _index_columns(schemas[0])[0]:
        schemas[0] = schemas[0].remove_metadata()  # its index only counts the rows of one file
    # Without pre-buffering, which would hold all of a large file in memory.
    reading = dataset.ParquetFragmentScanOptions(
        use_buffered_stream=True, buffer_size=BYTES_AT_ONCE, pre_buffer=False
    )
    form = dataset.ParquetFileFormat(default_fragment_scan_options=reading)
    return dataset.dataset([str(file) for file in files], schemas[0], form)


def _is_number(pa: Any, kind: Any) -> bool:
    types = pa.types
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)


def _fill(
    X: NDArray[Any], source: Any, numbers: list[str], others: list[str], progress: Progress | None
) -> tuple[float, list[Any]]:
    """Read numbers into X batch by batch; the error of rounding by range, and other columns."""
    low, high = np.full(len(numbers), np.inf), np.full(len(numbers), -np.inf)
    done, tables = 0, []
    names = [*numbers, *(name for name in others if name not in numbers)]
    n_rows = min(ROWS_AT_ONCE, max(1, VALUES_AT_ONCE // max(1, len(names))))
    sparing = {"batch_readahead": 0, "fragment_readahead": 0, "use_threads": False}
    for batch in source.to_batches(columns=names, batch_size=n_rows, **sparing):
        batch.validate(full=True)  # places in memory can be wrong in a damaged file
        rows = slice(done, done + batch.num_rows)
        for j, name in enumerate(numbers):
            exact = batch.column(name).cast("double", safe=False).to_numpy(zero_copy_only=False)
            with np.errstate(over="ignore"):
                X[rows, j] = exact
            low[j] = np.fmin.reduce(exact, initial=low[j])
            high[j] = np.fmax.reduce(exact, initial=high[j])
        tables.append(batch.select(others))
        done += batch.num_rows
        if progress is not None:
            progress(done, len(X))
    if done != len(X):
        raise ValueError(f"its header says {len(X)} rows, but it has {done}")
    spread = np.where(high > low, high - low, np.inf)
    error = np.maximum(np.abs(low), np.abs(high)) * np.finfo(X.dtype).eps / 2
    known = np.isfinite(spread) & np.isfinite(error)
    return float((error[known] / spread[known]).max(initial=0.0)), tables


def room_for(shape: tuple[int, int], dtype: Any, what: object) -> NDArray[Any]:
    """Return an array to be filled with ``what``; a large one is mapped from a temporary file.

    The file has no name, so nothing is left of it when the array is gone or the process has ended,
    however that happened.

    Examples
    --------
    >>> room_for((5, 2), np.float32, "cells.parquet").shape
    (5, 2)
    """
    size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    free = available_memory()
    if size <= SHARE_IN_MEMORY * free:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:
        try:
            _reserve(file.fileno(), size)
        except OSError:
            folder, gib = tempfile.gettempdir(), 2**30
            raise InputError(
                f"{what} takes {size / gib:,.1f} GiB, more than memory ({free / gib:,.1f} GiB) and "
                f"the folder for temporary files, {folder}, have room for "
                f"({shutil.disk_usage(folder).free / gib:,.1f} GiB); name a folder with more room "
                "in the environment variable TMPDIR, or use fewer columns."
            ) from None
        return np.memmap(file, dtype, "r+", shape=shape)


def _reserve(file: int, size: int) -> None:
    """Reserve room on the disk, because a mapped file on a full disk would end the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.truncate(file, size)


def _index_columns(schema: Any) -> tuple[list[str], NDArray[np.int64] | None]:
    """The columns in which pandas stored an index, or the numbers of one that only counts."""
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    if len(stored) == 1 and isinstance(stored[0], dict):
        start, stop, step = (int(stored[0][name]) for name in ("start", "stop", "step"))
        plain = stored[0].get("name") is None and (start, step) == (0, 1)
        return [], None if plain else np.arange(start, stop, step)
    return [name for name in stored if isinstance(name, str) and name in schema.names], None


def _index(columns: Columns, stored: list[str]) -> NDArray[Any] | None:
    """The index, if it identifies the rows."""
    values = columns[stored[0]]
    if len(stored) > 1 or values.dtype.kind == "f" or None in values.tolist():
        return None
    if len(set(map(str, values.tolist()))) < len(values):
        return None
    counts = values.dtype.kind in "iu" and np.array_equal(values, np.arange(len(values)))
    return None if counts and stored[0].startswith("__index_level_") else values


def _plain_column(series: Any) -> NDArray[Any]:
    """A pandas column as numbers, or as strings or objects with None for missing values."""
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


# --- words ----------------------------------------------------------------------------------------


def listing(names: Sequence[str], most: int = 8) -> str:
    """Join names in quotes; if there are many, only the first few.

    Examples
    --------
    >>> listing(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    text = ", ".join(shortened(repr(name)) for name in names[:most])
    return text if len(names) <= most else f"{text} and {len(names) - most:,} more"


def shortened(text: str, most: int = 200) -> str:
    """Cut the middle out of a long text, so that no message becomes longer than a screen.

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
