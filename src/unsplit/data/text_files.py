"""Write tables and plain values as text, so that they read back the same."""

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

ROWS_AT_ONCE = 65_536


def write_csv(path: str | os.PathLike[str], columns: Mapping[str, Iterable[Any]]) -> None:
    """Write columns of equal length; numbers read back the same, NaN and None are left empty.

    Names that cannot be written in UTF-8 get backslashes and digits instead.

    Parameters
    ----------
    path : str or path
    columns : mapping of str to iterable
        Columns by name, in the order in which they are written.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "pairs.csv"
    >>> write_csv(path, {"pair": ["a–b", "a–c"], "tvd": np.array([0.1, np.nan])})
    >>> print(path.read_text(encoding="utf-8"))
    pair,tvd
    a–b,0.1
    a–c,
    """
    with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(_UnixLines(file))
        writer.writerow(columns)
        writer.writerows(zip(*map(_written, columns.values()), strict=True))


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write mappings, sequences, arrays and scalars; NaN and infinity become null.

    Parameters
    ----------
    path : str or path
    content : mapping, sequence, array or scalar

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "result.json"
    >>> write_json(path, {"k": np.int64(3), "tvd": np.array([0.5, np.nan])})
    >>> json.loads(path.read_text())
    {'k': 3, 'tvd': [0.5, None]}
    """
    text = json.dumps(plain_values(content), ensure_ascii=False, indent=2, allow_nan=False)
    # A name that is not valid UTF-8 becomes an escape that JSON reads back as the same name.
    Path(path).write_text(text + "\n", "utf-8", errors="backslashreplace", newline="\n")


def _written(column: Iterable[Any]) -> Iterator[Any]:
    """Values as they are written; those of large columns of numbers or names without a check."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iuU":
        for start in range(0, len(column), ROWS_AT_ONCE):
            yield from column[start : start + ROWS_AT_ONCE].tolist()
        return
    for value in column:
        yield "" if _is_missing(value) else str(value)


class _UnixLines:
    r"""A file whose lines end in \n; csv itself would then not quote a \r in a name."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def write(self, line: str) -> int:
        return self.file.write(line.removesuffix("\r\n") + "\n")


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def plain_values(value: Any) -> Any:
    """Turn mappings, sequences, arrays and scalars into what JSON has; NaN becomes None.

    Parameters
    ----------
    value : mapping, sequence, array or scalar

    Examples
    --------
    >>> plain_values({"k": np.int64(3), "tvd": (0.5, np.nan)})
    {'k': 3, 'tvd': [0.5, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return os.fspath(value) if isinstance(value, os.PathLike) else value
