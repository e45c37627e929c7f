"""Read .parquet and Arrow files batch by batch, and only the columns that are needed.

A folder of .parquet files is read as one table.  Features that take much of the free memory are
kept in a temporary file on disk.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit.data.readers.columns import Assign
from unsplit.data.readers.room import room_for
from unsplit.data.readers.tables import Columns, listing, plain_column
from unsplit.errors import InputError

Progress = Callable[[int, int], None]

ENDINGS = (".parquet", ".arrow", ".feather")
# At a time: rows, values, and bytes of a compressed column.
ROWS_AT_ONCE = 65_536
VALUES_AT_ONCE = 2**22
BYTES_AT_ONCE = 2**16

# The largest error of float32, as a share of a feature's range, that does no harm.
HARMLESS = 1e-5


@dataclass(frozen=True, eq=False)
class Streamed:
    """What is read of a .parquet or Arrow file.

    Parameters
    ----------
    columns : dict of str to ndarray of shape (n,)
        The columns that hold names.
    index : ndarray of shape (n,) or None
        The index that pandas stored, if it identifies the rows.
    X : ndarray of shape (n, d)
        The features, as float32 if that keeps their digits, otherwise as float64.
    features : list of d str
    text : list of str
        Columns that should be features but do not hold numbers.
    """

    columns: Columns
    index: NDArray[Any] | None
    X: NDArray[Any]
    features: list[str]
    text: list[str]


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
) -> Streamed:
    """Read a .parquet, .arrow or .feather file, or a folder of .parquet files.

    Parameters
    ----------
    path : Path
    assign : callable
        Decides, given the names of all columns, how they are read.
    progress : callable, optional
        Called with the number of rows read so far and the number of all.
    cache : str or path, optional
        Where features are kept that take much of the free memory; see
        :func:`unsplit.data.readers.room.room_for`.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from unsplit.data.readers.columns import Roles
    >>> path = Path(tempfile.mkdtemp()) / "cells.parquet"
    >>> pd.DataFrame({"depth": [1.5, 2.0], "kind": ["u", "v"]}, index=["a", "b"]).to_parquet(path)
    >>> read = read_arrow(path, lambda names: Roles(["kind"], ["depth"]))
    >>> read.X.ravel(), read.columns, read.index
    (array([1.5, 2. ], dtype=float32), {'kind': array(['u', 'v'], ...)}, array(['a', 'b'], ...))
    """
    pa = _pyarrow()
    if path.is_dir():
        source = _joined([(file, _parquet(file)) for file in parquet_files(path)])
    else:
        source = _parquet(path) if path.suffix.lower() == ".parquet" else _ipc(pa, path)
    names = source.schema.names
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError(
            f"{path} has more than one column called {listing(repeated)}; "
            "give every column a name of its own."
        )
    stored, counted = _index_columns(source.schema)
    # An index can be named as the id, like any column.
    roles = assign([name for name in names if name not in stored] + stored)
    features = [name for name in roles.features if name not in stored]
    numbers = [name for name in features if _is_number(pa, source.schema.field(name).type)]
    text = [name for name in features if name not in numbers]
    kept = [name for name in roles.names if name in names]
    stream = _Stream(pa, source, numbers, sorted({*kept, *stored}), progress, path, cache)
    X, columns = _values(stream)
    index = counted if not stored else _index(columns, stored)
    return Streamed({n: columns[n] for n in kept}, index, X, numbers, text)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            "reading parquet and Arrow files needs pyarrow: pip install unsplit[tables]"
        ) from None
    return pyarrow


def _parquet(path: Path) -> _Source:
    import pyarrow.parquet

    # Without pre-buffering, which would hold all of a large file in memory.
    file = pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=BYTES_AT_ONCE)

    def batches(names: list[str]) -> Iterator[Any]:
        n_rows = min(ROWS_AT_ONCE, max(1, VALUES_AT_ONCE // max(1, len(names))))
        for batch in file.iter_batches(n_rows, columns=names):
            yield batch.select(names)

    return _Source(file.schema_arrow, file.metadata.num_rows, batches)


def _joined(parts: list[tuple[Path, _Source]]) -> _Source:
    """Several files with the same columns as one, in the order of their names."""
    (first, source), *others = parts
    for path, other in others:
        here, there = ({f.name: f.type for f in one.schema} for one in (source, other))
        unlike = [name for name in here | there if here.get(name) != there.get(name)]
        if unlike:
            raise InputError(
                f"{path.name} and {first.name} in {path.parent} differ in column {unlike[0]!r}; "
                "write all files of the folder with the same columns and types."
            )

    def batches(names: list[str]) -> Iterator[Any]:
        for _, part in parts:
            yield from part.batches(names)

    # The index that pandas stored may only count the rows of one file.
    counts = _index_columns(source.schema)[0] == []
    schema = source.schema.remove_metadata() if counts else source.schema
    return _Source(schema, sum(part.n_rows for _, part in parts), batches)


def _ipc(pa: Any, path: Path) -> _Source:
    """Open an Arrow file, or a stream of batches that was saved as one."""
    with path.open("rb") as file:
        in_blocks = file.read(6) == b"ARROW1"
    if not in_blocks:

        def stream(names: list[str]) -> Iterator[Any]:
            with pa.memory_map(str(path)) as mapped:
                for batch in pa.ipc.open_stream(mapped):
                    yield _validated(batch.select(names))

        with pa.memory_map(str(path)) as mapped:
            schema = pa.ipc.open_stream(mapped).schema
        return _Source(schema, sum(batch.num_rows for batch in stream(schema.names[:1])), stream)
    with pa.memory_map(str(path)) as mapped:
        schema = pa.ipc.open_file(mapped).schema

    def blocks(names: list[str]) -> Iterator[Any]:
        only = pa.ipc.IpcReadOptions(included_fields=[schema.names.index(name) for name in names])
        with pa.memory_map(str(path)) as mapped:
            reader = pa.ipc.open_file(mapped, options=only)
            for i in range(reader.num_record_batches):
                yield _validated(reader.get_batch(i).select(names))

    return _Source(schema, sum(batch.num_rows for batch in blocks(schema.names[:1])), blocks)


def _validated(batch: Any) -> Any:
    """Return a batch whose places in memory were checked; those of a damaged file can be wrong."""
    batch.validate(full=True)
    return batch


def _is_number(pa: Any, kind: Any) -> bool:
    types = pa.types
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)


@dataclass(frozen=True, eq=False)
class _Stream:
    """What to read of a source: numbers into one array, and columns that are kept as they are."""

    pa: Any
    source: _Source
    numbers: list[str]
    kept: list[str]
    progress: Progress | None
    path: Path
    cache: str | os.PathLike[str] | None


def _values(stream: _Stream) -> tuple[NDArray[Any], Columns]:
    """Read the numbers into one array, and the columns that are kept as they are."""
    pa, source, kept = stream.pa, stream.source, stream.kept
    X, harm, tables = _filled(stream, np.float32)
    if harm > HARMLESS:  # such as time stamps, whose large offset uses up the digits of float32
        del X, tables
        X, _, tables = _filled(stream, np.float64)
    frame = pa.Table.from_batches(tables, pa.schema([source.schema.field(n) for n in kept]))
    frame = frame.to_pandas(ignore_metadata=True)
    return X, {name: plain_column(frame[name]) for name in kept}


def _filled(
    stream: _Stream, dtype: type[np.floating[Any]]
) -> tuple[NDArray[Any], float, list[Any]]:
    """Fill an array batch by batch; also the error of rounding by range, and other columns."""
    source, numbers, kept = stream.source, stream.numbers, stream.kept
    X = room_for((source.n_rows, len(numbers)), dtype, stream.path, stream.cache)
    low, high = np.full(len(numbers), np.inf), np.full(len(numbers), -np.inf)
    done, tables = 0, []
    for batch in source.batches([*numbers, *(name for name in kept if name not in numbers)]):
        rows = slice(done, done + batch.num_rows)
        for j, name in enumerate(numbers):
            column = batch.column(name)
            exact = column.cast(stream.pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            with np.errstate(over="ignore"):
                X[rows, j] = exact
            low[j] = np.fmin.reduce(exact, initial=low[j])
            high[j] = np.fmax.reduce(exact, initial=high[j])
        tables.append(batch.select(kept))
        done += batch.num_rows
        if stream.progress is not None:
            stream.progress(done, source.n_rows)
    if done != source.n_rows:
        raise ValueError(f"its header says {source.n_rows} rows, but it has {done}")
    spread = np.where(high > low, high - low, np.inf)
    error = np.maximum(np.abs(low), np.abs(high)) * np.finfo(dtype).eps / 2
    known = np.isfinite(spread) & np.isfinite(error)
    return X, float((error[known] / spread[known]).max(initial=0.0)), tables


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
