"""Read files of every supported type as named arrays."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from unsplit.data.readers.tables import as_written, read_parquet, read_text_table
from unsplit.errors import InputError

_TEXT_TABLE = re.compile(r"\.(csv|tsv)(\.(gz|bz2|xz|zip))?$")
_SPARSE_KEYS = {"format", "shape", "data"}


@dataclass(frozen=True, eq=False)
class Contents:
    """What a file holds.

    Parameters
    ----------
    arrays : dict of str to ndarray or sparse matrix
        Arrays by name; for a table, its columns, all of shape (n,).
    is_table : bool
    index : ndarray of shape (n,) or None
        Names of the rows, if the file keeps them apart from the columns, as parquet does.

    Examples
    --------
    >>> Contents({"x": np.array([1.5, 2.0])}, is_table=True).arrays["x"]
    array([1.5, 2. ])
    """

    arrays: dict[str, Any]
    is_table: bool = False
    index: NDArray[Any] | None = None


def read_file(path: Path, keep_text: Callable[[str], bool]) -> Contents:
    r"""Read a file; the ending of its name tells its type.

    Parameters
    ----------
    keep_text : callable
        Says, given a column's name, whether a text file has names (such as ids or labels) in
        that column rather than measurements.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels.txt"
    >>> _ = path.write_text("b\na\n")
    >>> read_file(path, lambda name: True).arrays
    {'labels': array(['b', 'a'], dtype='<U1')}
    """
    name = path.name.lower()
    _refuse_unreadable(path)
    with _reading(path):
        if table := _TEXT_TABLE.search(name):
            separator = "," if table[1] == "csv" else "\t"
            return Contents(read_text_table(path, separator, keep_text), is_table=True)
        if name.endswith(".parquet"):
            columns, index = read_parquet(path)
            return Contents(columns, True, index)
        if name.endswith(".txt"):
            lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
            return Contents({"labels": as_written(lines)})
        if name.endswith((".npy", ".npz")):
            return Contents(_read_numpy(path))
    raise InputError(
        f"{path} has an unsupported file type; supported are .npy, .npz, .csv, .tsv, .parquet and, "
        "for labels, .txt."
    )


def _refuse_unreadable(path: Path) -> None:
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; pass a file in it.")
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is not a regular file; save its content to a file first.")
        with path.open("rb") as file:
            if not file.read(1):
                raise InputError(f"{path} is empty; write it again.")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; check its name and folder.") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(
            f"{path} cannot be opened ({reason}); check its name and permissions."
        ) from None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn any error of a parser into one sentence."""
    try:
        yield
    except (InputError, ImportError):
        raise
    except MemoryError:
        raise InputError(f"{path} does not fit into memory; use fewer rows or columns.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8; save it again as UTF-8.") from None
    except Exception as error:  # parsers raise many types of error on damaged files
        reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
        raise InputError(
            f"{path} cannot be read ({reason}); it may be damaged or cut short, so write it again."
        ) from error


def _read_numpy(path: Path) -> dict[str, Any]:
    # Opened here because NumPy leaves a damaged file open.
    with path.open("rb") as file:
        start = file.read(6)
        # NumPy treats unknown content as a pickle.
        if start != b"\x93NUMPY" and start[:4] != b"PK\x03\x04":
            raise InputError(
                f"{path} is not a NumPy file; write it with numpy.save or numpy.savez."
            )
        file.seek(0)
        return _arrays_in(path, file)


def _arrays_in(path: Path, file: BinaryIO) -> dict[str, Any]:
    try:
        content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return {"array": content}
        if set(content.files) >= _SPARSE_KEYS:
            file.seek(0)
            return {"matrix": _read_sparse(file)}
        return {name: content[name] for name in content.files}
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise InputError(
            f"{path} holds Python objects, which are not read because they could run any code; "
            "save arrays of numbers or strings only."
        ) from None


def _read_sparse(file: BinaryIO) -> Any:
    matrix = scipy.sparse.load_npz(file)
    if hasattr(matrix, "check_format"):
        # An index out of range would read any place in memory.
        matrix.check_format(full_check=True)
    return matrix.tocsr() if matrix.ndim == 2 else matrix
