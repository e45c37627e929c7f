"""Read files of every supported type as named arrays."""

import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from unsplit.data.memory import available_memory, require_memory
from unsplit.data.readers.arrow import ENDINGS as ARROW_ENDINGS
from unsplit.data.readers.arrow import Streamed, parquet_files, read_arrow
from unsplit.data.readers.broken import reason
from unsplit.data.readers.columns import Assign, all_names
from unsplit.data.readers.isolated import Broken, parse_alone
from unsplit.data.readers.tables import (
    as_written,
    listing,
    memory_for_text,
    read_text_table,
    shortened,
)
from unsplit.errors import InputError

_TEXT_TABLE = re.compile(r"\.(csv|tsv)(\.(gz|bz2|xz|zip))?$")
_SPARSE_KEYS = {"format", "shape", "data"}
TOO_LARGE = "use fewer rows or columns"
# Matrices in .npy files of at least so many bytes stay on disk.
MAPPED_FROM = 2**26


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
    streamed : Streamed or None
        The features, if they were read batch by batch and are not among ``arrays``.

    Examples
    --------
    >>> Contents({"x": np.array([1.5, 2.0])}, is_table=True).arrays["x"]
    array([1.5, 2. ])
    """

    arrays: dict[str, Any]
    is_table: bool = False
    index: NDArray[Any] | None = None
    streamed: Streamed | None = None


def read_file(
    path: Path,
    assign: Assign = all_names,
    progress: Callable[[int, int], None] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Contents:
    r"""Read a file, or a folder of .parquet files; the ending of its name tells its type.

    Parameters
    ----------
    path : Path
    assign : callable
        Decides, given the names of a table's columns, how they are read; by default as names, not
        as measurements.
    progress : callable, optional
        Called with how much of a table has been read so far, and how much there is.
    cache : str or path, optional
        Where to keep features that take much of the free memory, of .parquet and Arrow files.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels.txt"
    >>> _ = path.write_text("b\na\n")
    >>> read_file(path).arrays
    {'labels': array(['b', 'a'], dtype='<U1')}
    """
    parts = parquet_files(path)
    for part in parts or [path]:
        refuse_unreadable(part)
    name = ".parquet" if parts else path.name.lower()
    with reading(path):
        if table := _TEXT_TABLE.search(name):
            separator = "," if table[1] == "csv" else "\t"
            _require_room(path, memory_for_text(path, separator))
            return Contents(read_text_table(path, separator, assign, progress), is_table=True)
        if name.endswith(ARROW_ENDINGS):
            read = read_arrow(path, assign, progress, cache)
            return Contents(read.columns, True, read.index, read)
        if name.endswith(".txt"):
            lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
            return Contents({"labels": as_written(lines)})
        if name.endswith((".npy", ".npz")):
            return Contents(_read_numpy(path))
    raise InputError(
        f"{path} has an unsupported file type; supported are .npy, .npz, .csv, .tsv, .parquet, "
        ".arrow, .feather, .h5ad and, for labels, .txt."
    )


def refuse_unreadable(path: Path) -> None:
    """Raise an error if a path is not a regular file with content that may be read.

    Parameters
    ----------
    path : Path

    Examples
    --------
    >>> refuse_unreadable(Path("nowhere.csv"))
    Traceback (most recent call last):
    unsplit.errors.InputError: there is no file nowhere.csv; check its name and folder.
    """
    if "\0" in str(path):
        raise InputError(
            f"{str(path)!r} is not a file name: it holds a null character; correct it."
        )
    try:
        if path.is_dir():
            raise InputError(
                f"{path} is a folder, but a file with a table or an array is needed; name one."
            )
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is not a regular file; save its content to a file first.")
        with path.open("rb") as file:
            if not file.read(1):
                raise InputError(f"{path} is empty; write it again.")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; check its name and folder.") from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be opened ({reason(error)}); check its name and permissions."
        ) from None


def parsed(path: Path, parser: str) -> Any:
    """Parse a file in a process of its own, or raise an error that names the file.

    Parameters
    ----------
    path : Path
    parser : str
        A function of the path, as "module:name".

    Examples
    --------
    >>> parsed(Path("data/cells.h5"), "os.path:basename")
    'cells.h5'
    """
    found = parse_alone(parser, os.fspath(path))
    refuse_broken(path, found)
    return found


def refuse_broken(path: Path, found: object) -> None:
    """Raise an error that names the file if what another process found is that it is broken.

    Parameters
    ----------
    path : Path
    found : object
        What :func:`unsplit.data.readers.isolated.parse_alone` returned.

    Examples
    --------
    >>> refuse_broken(Path("data/cells.h5"), "content")
    """
    if not isinstance(found, Broken):
        return
    if found.why == reason(MemoryError()):
        raise InputError(f"{path} does not fit into memory; {TOO_LARGE}.")
    raise InputError(
        f"{path} cannot be read ({found.why}); it may be damaged or cut short, so write it again."
    )


def require_module(name: str, what: str, extra: str) -> None:
    """Raise an ImportError that says what to install, if a module is missing.

    Examples
    --------
    >>> require_module("numpy", "reading arrays", "tables")
    """
    if find_spec(name) is None:
        raise ImportError(f"{what} needs {name}: pip install unsplit[{extra}]")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error of a parser into one sentence.

    Parameters
    ----------
    path : Path
        The file that is read.

    Examples
    --------
    >>> with reading(Path("cells.npy")):
    ...     raise EOFError("no data left")
    Traceback (most recent call last):
    unsplit.errors.InputError: cells.npy cannot be read (no data left); it may be damaged or ...
    """
    try:
        yield
    except (InputError, ImportError):
        raise
    except MemoryError:
        raise InputError(f"{path} does not fit into memory; {TOO_LARGE}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8; save it again as UTF-8.") from None
    except Exception as error:  # parsers raise many types of error on damaged files
        told = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
        raise InputError(
            f"{path} cannot be read ({shortened(told)}); it may be damaged or cut short, so write "
            "it again."
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
    _check_headers(path, file)
    if (mapped := _mapped_matrix(path, file)) is not None:
        return {"array": mapped}
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


def _mapped_matrix(path: Path, file: BinaryIO) -> NDArray[Any] | None:
    """Map a large matrix from disk, so that it may be larger than memory; None for others."""
    if file.read(2) == b"PK" or os.fstat(file.fileno()).st_size < MAPPED_FROM:
        file.seek(0)
        return None
    file.seek(0)
    try:
        found = np.load(path, mmap_mode="r")
    except ValueError:  # it holds Python objects, which is refused elsewhere
        return None
    return found if found.ndim == 2 and found.dtype.kind == "f" else None


def check_npy_header(file: BinaryIO | IO[bytes], size: int) -> None:
    """Raise a ValueError if the shape in an .npy header needs more bytes than the file has.

    NumPy itself would first allocate memory for the whole array.

    Parameters
    ----------
    file : binary file, at its start
    size : int
        Number of bytes in the file.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> np.save(file, np.zeros(5))
    >>> check_npy_header(io.BytesIO(file.getvalue()), len(file.getvalue()))
    >>> check_npy_header(io.BytesIO(file.getvalue()), 100)
    Traceback (most recent call last):
    ValueError: its header says shape (5,) of float64, but it is cut short
    """
    version = np.lib.format.read_magic(file)
    header = np.lib.format
    # Version 3 differs from 2 only in the names of fields.
    parse = header.read_array_header_1_0 if version == (1, 0) else header.read_array_header_2_0
    shape, _, dtype = parse(file)
    if any(length < 0 for length in shape):
        raise ValueError(f"its header says shape {shape}")
    held = size - file.tell()
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize > held:
        raise ValueError(f"its header says shape {shape} of {dtype}, but it is cut short")


def _check_headers(path: Path, file: BinaryIO) -> None:
    """Raise an error if arrays are larger than the file or than memory, or are not arrays."""
    if file.read(2) != b"PK":
        file.seek(0)
        check_npy_header(file, os.fstat(file.fileno()).st_size)
    else:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            others = [m.filename for m in members if not m.filename.endswith(".npy")]
            if others:
                raise InputError(
                    f"{path} holds something other than arrays ({listing(others)}); write it with "
                    "numpy.savez."
                )
            _require_room(path, sum(member.file_size for member in members))
            for member in members:
                with archive.open(member) as array:
                    check_npy_header(array, member.file_size)
    file.seek(0)


def _require_room(path: Path, needed: int) -> None:
    """Raise an error, before memory is taken, if the content of a file does not fit into it."""
    require_memory(needed, available_memory(), f"the content of {path}", TOO_LARGE)


def _read_sparse(file: BinaryIO) -> Any:
    matrix = scipy.sparse.load_npz(file)
    # A few bytes can say that there are billions of rows, each of which needs an entry.
    if 8 * matrix.shape[0] > available_memory():
        raise MemoryError
    if hasattr(matrix, "check_format"):
        # An index out of range would read any place in memory.
        matrix.check_format(full_check=True)
    return matrix.tocsr() if matrix.ndim == 2 else matrix
