"""Read tables: text, also with .gz at the end, .parquet and Arrow files."""

import csv
import gzip
import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit.devices import available_memory, require_memory
from unsplit.errors import InputError, InputWarning, option, warn

Columns = dict[str, NDArray[Any]]
Progress = Callable[[int, int], None]
# Decides, given the names of all columns, which are read, and which of them hold names rather than
# measurements: :class:`unsplit.data.readers.columns.Roles`.
Assign = Callable[[list[str]], Any]

# Name given to a first column that has none, as pandas does.
UNNAMED = "Unnamed: 0"

# Values of a column that become columns of 0 and 1.
MOST_CATEGORIES = 20

# In memory, for each value of a table.
BYTES_PER_VALUE = 24
TOO_LARGE = "use fewer rows or columns"

# How pandas, R and spreadsheets write a missing value.
MISSING = frozenset(["", "NA", "N/A", "n/a", "NaN", "nan", "<NA>", "None", "NULL", "null"])

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
DECIMAL_COMMA = re.compile(r"\s*[+-]?(\d+,\d*|,\d+)(e[+-]?\d+)?\s*", re.IGNORECASE)
# Between values, and what spreadsheets write of text that is not in UTF-8.
SEPARATORS, OLDER = (",", ";", "\t"), "cp1252"
_WHOLE = re.compile(r"-?(0|[1-9]\d*)(\.\d+(e[+-]\d+)?)?")


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


def read_text_table(path: Path, assign: Assign) -> Contents:
    r"""Read columns of a text file, or of a spreadsheet, whose first line names them.

    Values stand between commas, semicolons or tabs, and in the last two cases decimals may have a
    comma.  Text that is not in UTF-8 is read as Windows and Excel write it (Latin-1), with a
    warning.

    Examples
    --------
    >>> from unsplit.data.readers.columns import Roles
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "cells.csv"
    >>> _ = path.write_text("cell;depth;age\n007;1,5;3\n008;2;3\n")
    >>> read = read_text_table(path, lambda names: Roles(["cell"], ["depth"]))
    >>> read.arrays, read.X.ravel()
    ({'cell': array(['007', '008'], dtype='<U3')}, array([1.5, 2. ]))
    """
    require_module("pandas", "reading tables", "tables")
    opened = partial(_unpacked, path)
    if path.suffix.lower() == ".xlsx":
        opened = partial(io.BytesIO, _sheet(path))
    with opened() as file:
        start = file.read(2**16)
    wide = start[:2] in (b"\xff\xfe", b"\xfe\xff")  # two bytes for a letter, as Excel writes .txt
    try:
        return _read_text(path, opened, "utf-16" if wide else "utf-8-sig", assign)
    except UnicodeDecodeError:
        if b"\0" in start:
            raise
    found = _read_text(path, opened, OLDER, assign)
    warn(
        f"{path} is not text in UTF-8 and was read as Latin-1 (Windows-1252); check letters such "
        "as é and ß, or save it again as UTF-8.",
        InputWarning,
    )
    return found


def _read_text(path: Path, opened: Callable[[], Any], encoding: str, assign: Assign) -> Contents:
    pd = import_module("pandas")
    separator, names = _names(path, opened, encoding)
    options: dict[str, Any] = {"sep": separator, "encoding": encoding, "index_col": False}
    if int(pd.__version__.split(".")[0]) < 3:  # the last digit of many numbers was wrong
        options["float_precision"] = "round_trip"
    require_room(path, _memory_for_text(opened, separator))
    roles = assign(names)
    if not roles.names:
        _refuse_numbers(path, names)
    # Read in one piece: of several, one could have numbers and another text in a column.
    options |= {"low_memory": False, "dtype": dict.fromkeys(roles.names, str)}
    wanted = [n for n in names if n in {*roles.names, *roles.features}]
    if wanted != names:
        options["usecols"] = wanted  # with which longer lines are no error
    try:
        with opened() as file:
            frame = pd.read_csv(file, header=0, names=names, **options)
    except pd.errors.ParserError as error:
        reason = str(error).strip().removeprefix("Error tokenizing data. C error: ")
        raise InputError(
            f"{path} is not a regular table ({shortened(reason)}); "
            "give every line as many values as the first, and close all quotes."
        ) from None
    if separator != ",":
        _read_decimal_commas(frame, roles.features)
    arrays = {name: as_written(frame[name]) for name in roles.names}
    return _contents(path, arrays, frame, roles)


def _read_decimal_commas(frame: Any, features: list[str]) -> None:
    """Turn numbers such as 1,5 into numbers; what else stands in their columns stays text."""
    for name in features:
        written = frame[name].tolist() if frame[name].dtype.kind not in "iufb" else []
        found = [DECIMAL_COMMA.fullmatch(v) if isinstance(v, str) else None for v in written]
        values = [v.replace(",", ".") if f else v for v, f in zip(written, found, strict=True)]
        if not any(found):
            continue
        try:
            frame[name] = np.array(values, np.float64)
        except ValueError:
            frame[name] = np.array(values, object)


def _sheet(path: Path) -> bytes:
    """The first sheet of a spreadsheet as a .csv file."""
    pd = import_module("pandas")
    require_module("openpyxl", "reading .xlsx files", "tables")
    with zipfile.ZipFile(path) as archive:
        require_room(path, 20 * sum(part.file_size for part in archive.infolist()))
    cells = pd.read_excel(path, header=None, dtype=str, keep_default_na=False, engine="openpyxl")
    text: str = cells.to_csv(index=False, header=False)
    return text.encode()


def _contents(
    path: Path, arrays: Columns, frame: Any, roles: Any, index: NDArray[Any] | None = None
) -> Contents:
    """Divide the features in a data frame into numbers and text; encode categories before."""
    features = roles.features
    for name in roles.encode:
        n_values = frame[name].nunique()
        if not 2 <= n_values <= MOST_CATEGORIES:
            raise InputError(
                f"column {name!r} of {path} has {n_values:,} different values, but "
                f"{option('encode')} needs 2 to {MOST_CATEGORIES}; leave it out with "
                f"{option('drop', [name])}, or write numbers instead."
            )
    if roles.encode:
        dummies = import_module("pandas").get_dummies
        frame = dummies(frame[features], columns=[*roles.encode], prefix_sep="=", dtype=float)
        added = [name for name in frame if name not in features]
        warn(f"categories of {path} became columns of 0 and 1: {listing(added)}.", InputWarning)
        features = list(frame)
    numbers = [name for name in features if frame[name].dtype.kind in "iufb"]
    single = numbers and all(frame[name].dtype == np.float32 for name in numbers)
    X = frame[numbers].to_numpy(np.float32 if single else np.float64, na_value=np.nan)
    text = {name: frame[name].to_numpy() for name in features if name not in numbers}
    # In rows, and writable.
    return Contents(arrays, numbers, np.require(X, None, ["C", "W"]), text, index)


def _memory_for_text(opened: Callable[[], Any], separator: str) -> int:
    """Estimate how many bytes of memory a table needs, by unpacking it piece by piece."""
    limit, needed = available_memory(), 0
    with opened() as file:
        while needed <= limit and (piece := file.read(2**20)):
            n_values = piece.count(separator.encode()) + piece.count(b"\n")
            # The text itself, and where each value begins, its number, and a copy of that.
            needed += 2 * len(piece) + BYTES_PER_VALUE * n_values
    return needed


def _unpacked(path: Path) -> Any:
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _names(path: Path, opened: Callable[[], Any], encoding: str) -> tuple[str, list[str]]:
    """What separates values, and the names of all columns; no line may have more values."""
    usual = "," if ".csv" in path.name.lower() else "\t"
    for separator in (usual, *SEPARATORS, usual):  # the usual one again if none fits
        with opened() as file:
            text = io.TextIOWrapper(file, encoding, newline="")
            lines = (line for line in csv.reader(text, delimiter=separator) if line)
            first, second = next(lines, None), next(lines, [])
        if first is not None and 1 < len(first) >= len(second):
            break
    if first is None:
        raise InputError(f"{path} is empty; write it again.")
    names = [name.strip() for name in first]
    if len(names) == 1 and re.search("[,;\t]", names[0]):
        raise InputError(
            f"{path} seems to have one column, {listing(names)}; "
            "separate values by commas, semicolons or tabs, in every line by the same."
        )
    if len(second) > len(names):
        raise InputError(
            f"{path} has {len(second) - len(names)} more values per line than column names; name "
            "every column in the first line, in R with write.csv."
        )
    names = [name or f"Unnamed: {i}" for i, name in enumerate(names)]
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError(
            f"{path} has more than one column called {listing(repeated)}; "
            "give every column a name of its own."
        )
    return separator, names


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
    numbers = {text: _integer(text) for text in set(values) - {None}}
    # Two ways of writing one number are two names.
    if None not in numbers.values() and len(set(numbers.values())) == len(numbers):
        values = [numbers.get(text) for text in values]
    return np.array(values, dtype=object if None in values else None)


def _integer(text: str) -> int | None:
    number = float(text) if _WHOLE.fullmatch(text) else 0.5
    return int(number) if number.is_integer() and abs(number) < 2**53 else None


# --- parquet and Arrow ----------------------------------------------------------------------------


def read_arrow(path: Path, assign: Assign) -> Contents:
    """Read a .parquet, .arrow or .feather file.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from unsplit.data.readers.columns import Roles
    >>> path = Path(tempfile.mkdtemp()) / "cells.parquet"
    >>> pd.DataFrame({"depth": [1.5, 2.0], "kind": ["u", "v"]}, index=["a", "b"]).to_parquet(path)
    >>> read = read_arrow(path, lambda names: Roles(["kind"], ["depth"]))
    >>> read.X.ravel(), read.arrays, read.index
    (array([1.5, 2. ]), {'kind': array(['u', 'v'], ...)}, array(['a', 'b'], ...))
    """
    require_module("pyarrow", "reading parquet and Arrow files", "tables")
    require_module("pandas", "reading tables", "tables")
    from pyarrow import dataset

    form = "parquet" if path.suffix.lower() == ".parquet" else "ipc"
    source = dataset.dataset(str(path), format=form)
    schema = source.schema
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    stored = [name for name in stored if name in schema.names]
    # An index can be named as the id, like any column.
    roles = assign([name for name in schema.names if name not in stored] + stored)
    wanted = [n for n in schema.names if n in {*roles.names, *roles.features, *stored}]
    require_room(path, BYTES_PER_VALUE * source.count_rows() * len(wanted))
    table = source.to_table(columns=wanted)
    table.validate(full=True)  # places in memory can be wrong in a damaged file
    frame = table.to_pandas(ignore_metadata=True, self_destruct=True)
    del table  # what it held is free already
    arrays = {name: _plain_column(frame[name]) for name in roles.names}
    index = _index(frame[stored[0]]) if len(stored) == 1 else None
    roles = roles._replace(features=[n for n in roles.features if n not in stored])
    return _contents(path, arrays, frame, roles, index)


def _index(column: Any) -> NDArray[Any] | None:
    """The index that pandas stored, if it identifies the rows and does not only count them."""
    counts = np.array_equal(column, np.arange(len(column)))
    if not column.is_unique or column.hasnans or column.dtype.kind == "f":
        return None
    return None if counts and column.name.startswith("__index_level_") else _plain_column(column)


def _plain_column(series: Any) -> NDArray[Any]:
    """A pandas column as numbers, or as strings or objects with None for missing values."""
    if series.dtype.kind in "iufb":
        missing = series.hasnans
        return np.asarray(series.to_numpy(np.float64, na_value=np.nan) if missing else list(series))
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


def held(names: Sequence[str], name: str, plural: str = "columns") -> str:
    """List the names that there are, those that come close to a wrong name first.

    Examples
    --------
    >>> held(["leiden", "donor"], "Leidn")
    "close: 'leiden'; its columns: 'leiden', 'donor'"
    """
    by_small = {other.lower(): other for other in names}
    close = [by_small[small] for small in get_close_matches(name.lower(), by_small)]
    known = f"its {plural}: {listing(names)}" if names else f"it has no named {plural}"
    return f"close: {listing(close)}; {known}" if close else known


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


def require_room(path: Path, needed: int) -> None:
    """Raise an error, before memory is taken, if the content of a file does not fit into it."""
    require_memory(needed, available_memory(), f"the content of {path}", TOO_LARGE)


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
