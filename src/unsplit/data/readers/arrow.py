"""Read .parquet and Arrow files batch by batch, and only the columns that are needed.

A folder of .parquet files is read as one table.  Features that take much of the free memory are
kept in a temporary file on disk.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit.data.memory import available_memory
from unsplit.data.readers.columns import Assign
from unsplit.data.readers.tables import (
    Columns,
    Contents,
    plain_column,
    refuse_repeated,
    require_module,
)
from unsplit.errors import InputError, option

Progress = Callable[[int, int], None]

ENDINGS = (".parquet", ".arrow", ".feather")
# At a time: rows, values, and bytes of a compressed column.
ROWS_AT_ONCE = 65_536
VALUES_AT_ONCE = 2**22
BYTES_AT_ONCE = 2**16

# Features that take a larger share of the free memory are kept on disk.
SHARE_IN_MEMORY = 0.25

# The largest error of float32, as a share of a feature's range, that does no harm.
HARMLESS = 1e-5


@dataclass(frozen=True, eq=False)
class _Source:
    """An open file: its schema, its number of rows, and its batches with some of the columns."""

    schema: Any
    n_rows: int
    batches: Callable[[list[str]], Iterator[Any]]


def parquet_files(folder: Path) -> list[Path]:
    """List the .parquet files directly in a folder, by name; hidden ones are left out.

    Examples
    --------
    >>> parquet_files(Path("nowhere"))
    []
    """
    if not folder.is_dir():
        return []
    return sorted(
        path for path in folder.glob("*.[pP][aA][rR][qQ][uU][eE][tT]") if path.name[0] not in "._"
    )


def read_arrow(
    path: Path,
    assign: Assign,
    progress: Progress | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Contents:
    """Read a .parquet, .arrow or .feather file, or a folder of .parquet files.

    Parameters
    ----------
    path : Path
    assign : callable
        Decides, given the names of all columns, how they are read.
    progress : callable, optional
        Called with the number of rows read so far and the number of all.
    cache : str or path, optional
        Where features are kept that take much of the free memory; see :func:`room_for`.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from unsplit.data.readers.columns import Roles
    >>> path = Path(tempfile.mkdtemp()) / "cells.parquet"
    >>> pd.DataFrame({"depth": [1.5, 2.0], "kind": ["u", "v"]}, index=["a", "b"]).to_parquet(path)
    >>> read = read_arrow(path, lambda names: Roles(["kind"], ["depth"]))
    >>> read.X.ravel(), read.arrays, read.index
    (array([1.5, 2. ], dtype=float32), {'kind': array(['u', 'v'], ...)}, array(['a', 'b'], ...))
    """
    pa = require_module("pyarrow", "reading parquet and Arrow files", "tables")
    files = parquet_files(path) or [path]
    is_parquet = files[0].suffix.lower() == ".parquet"
    source = _parquet(files) if is_parquet else _ipc(pa, path)
    names = source.schema.names
    refuse_repeated(path, names)
    stored, counted = _index_columns(source.schema)
    # An index can be named as the id, like any column.
    roles = assign([name for name in names if name not in stored] + stored)
    features = [name for name in roles.features if name not in stored]
    numbers = [name for name in features if _is_number(pa, source.schema.field(name).type)]
    text = [name for name in features if name not in numbers]
    kept = [name for name in roles.names if name in names]
    others = sorted({*kept, *stored})

    def filled(dtype: type[np.floating[Any]]) -> tuple[NDArray[Any], float, list[Any]]:
        X = room_for((source.n_rows, len(numbers)), dtype, path, cache)
        return X, *_fill(X, source, numbers, others, progress)

    X, harm, tables = filled(np.float32)
    if harm > HARMLESS:  # such as time stamps, whose large offset uses up the digits of float32
        del X, tables
        X, _, tables = filled(np.float64)
    schema = pa.schema([source.schema.field(name) for name in others])
    frame = pa.Table.from_batches(tables, schema).to_pandas(ignore_metadata=True)
    columns = {name: plain_column(frame[name]) for name in others}
    index = counted if not stored else _index(columns, stored)
    unread = {name: np.empty(0, object) for name in text}
    return Contents({name: columns[name] for name in kept}, numbers, X, unread, index)


def _parquet(paths: list[Path]) -> _Source:
    """Open files with the same columns as one, in the order of their names."""
    import pyarrow.parquet

    # Without pre-buffering, which would hold all of a large file in memory.
    files = [
        pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=BYTES_AT_ONCE)
        for path in paths
    ]
    schema = files[0].schema_arrow
    for path, file in zip(paths, files, strict=True):
        here, there = ({f.name: f.type for f in one} for one in (schema, file.schema_arrow))
        unlike = [name for name in here | there if here.get(name) != there.get(name)]
        if unlike:
            raise InputError(
                f"{path.name} and {paths[0].name} in {path.parent} differ in column {unlike[0]!r}; "
                "write all files of the folder with the same columns and types."
            )
    if len(files) > 1 and not _index_columns(schema)[0]:
        schema = schema.remove_metadata()  # its index only counts the rows of one file

    def batches(names: list[str]) -> Iterator[Any]:
        n_rows = min(ROWS_AT_ONCE, max(1, VALUES_AT_ONCE // max(1, len(names))))
        for file in files:
            for batch in file.iter_batches(n_rows, columns=names):
                yield batch.select(names)

    return _Source(schema, sum(file.metadata.num_rows for file in files), batches)


def _ipc(pa: Any, path: Path) -> _Source:
    """Open an Arrow file, or a stream of batches that was saved as one."""
    with path.open("rb") as file:
        in_blocks = file.read(6) == b"ARROW1"

    def batches(names: list[str]) -> Iterator[Any]:
        with pa.memory_map(str(path)) as mapped:
            if in_blocks:
                places = [schema.names.index(name) for name in names]
                only = pa.ipc.IpcReadOptions(included_fields=places)
                reader = pa.ipc.open_file(mapped, options=only)
                found = map(reader.get_batch, range(reader.num_record_batches))
            else:
                found = pa.ipc.open_stream(mapped)
            for batch in found:
                wanted = batch.select(names)
                wanted.validate(full=True)  # places in memory can be wrong in a damaged file
                yield wanted

    with pa.memory_map(str(path)) as mapped:
        schema = (pa.ipc.open_file if in_blocks else pa.ipc.open_stream)(mapped).schema
    return _Source(schema, sum(batch.num_rows for batch in batches(schema.names[:1])), batches)


def _is_number(pa: Any, kind: Any) -> bool:
    types = pa.types
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)


def _fill(
    X: NDArray[Any],
    source: _Source,
    numbers: list[str],
    kept: list[str],
    progress: Progress | None,
) -> tuple[float, list[Any]]:
    """Read numbers into X batch by batch; the error of rounding by range, and other columns."""
    low, high = np.full(len(numbers), np.inf), np.full(len(numbers), -np.inf)
    done, tables = 0, []
    for batch in source.batches([*numbers, *(name for name in kept if name not in numbers)]):
        rows = slice(done, done + batch.num_rows)
        for j, name in enumerate(numbers):
            exact = batch.column(name).cast("double", safe=False).to_numpy(zero_copy_only=False)
            with np.errstate(over="ignore"):
                X[rows, j] = exact
            low[j] = np.fmin.reduce(exact, initial=low[j])
            high[j] = np.fmax.reduce(exact, initial=high[j])
        tables.append(batch.select(kept))
        done += batch.num_rows
        if progress is not None:
            progress(done, source.n_rows)
    if done != source.n_rows:
        raise ValueError(f"its header says {source.n_rows} rows, but it has {done}")
    spread = np.where(high > low, high - low, np.inf)
    error = np.maximum(np.abs(low), np.abs(high)) * np.finfo(X.dtype).eps / 2
    known = np.isfinite(spread) & np.isfinite(error)
    return float((error[known] / spread[known]).max(initial=0.0)), tables


def room_for(
    shape: tuple[int, int], dtype: Any, what: object, cache: str | os.PathLike[str] | None = None
) -> NDArray[Any]:
    """Return an array to be filled; a large one is mapped from a temporary file.

    The file has no name, so nothing is left of it when the array is gone or the process has ended,
    however that happened.

    Parameters
    ----------
    shape : tuple of two int
    dtype : dtype
    what : object
        What will be in it, for messages.
    cache : str or path, optional
        Folder for the file; by default the one for temporary files (``TMPDIR``).

    Examples
    --------
    >>> room_for((5, 2), np.float32, "cells.parquet").shape
    (5, 2)
    """
    size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    free = available_memory()
    if size <= SHARE_IN_MEMORY * free:
        return np.empty(shape, dtype)
    folder = Path(tempfile.gettempdir() if cache is None else cache)
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder} for temporary files; make it first.")
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            _reserve(file.fileno(), size)
        except OSError:
            gib = 2**30
            raise InputError(
                f"{what} takes {size / gib:,.1f} GiB, more than memory ({free / gib:,.1f} GiB) and "
                f"the folder for temporary files, {folder}, have room for "
                f"({shutil.disk_usage(folder).free / gib:,.1f} GiB); name a folder with more room "
                f"with {option('cache')}, or use fewer columns."
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
        index = stored[0]
        start, stop, step = (int(index[name]) for name in ("start", "stop", "step"))
        if index.get("name") is None and (start, step) == (0, 1):
            return [], None
        return [], np.arange(start, stop, step)
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
