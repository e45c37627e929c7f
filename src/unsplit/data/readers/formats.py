"""Read files of every supported type as named arrays."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse

from unsplit.data.memory import available_memory, require_memory
from unsplit.data.readers.arrow import ENDINGS as ARROW_ENDINGS
from unsplit.data.readers.arrow import parquet_files, read_arrow
from unsplit.data.readers.broken import TOO_LARGE, reading, refuse_unreadable
from unsplit.data.readers.columns import Assign, all_names
from unsplit.data.readers.isolated import parsed
from unsplit.data.readers.tables import (
    Contents,
    as_written,
    listing,
    memory_for_text,
    read_text_table,
    require_module,
)
from unsplit.errors import InputError

_TEXT_TABLE = re.compile(r"\.(csv|tsv)(\.(gz|bz2|xz|zip))?$")
_SPARSE_KEYS = {"format", "shape", "data"}
# Matrices in .npy files of at least this many bytes stay on disk, as do arrays of more axes.
MAPPED_FROM = 2**26


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
            return read_text_table(path, separator, assign, progress)
        if name.endswith(ARROW_ENDINGS):
            return read_arrow(path, assign, progress, cache)
        if name.endswith(".txt"):
            lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
            return Contents({"labels": as_written(lines)})
        if name.endswith((".npy", ".npz")):
            return Contents(_read_numpy(path))
        if name.endswith((".h5", ".hdf5")):
            require_module("h5py", "reading HDF5", "points")
            return Contents(parsed(path, "unsplit.data.readers.hdf5:arrays_in"))
    raise InputError(
        f"{path} has an unsupported file type; supported are .npy, .npz, .csv, .tsv, .parquet, "
        ".arrow, .feather, .h5, .hdf5, .h5ad and, for labels, .txt."
    )


def _read_numpy(path: Path) -> dict[str, Any]:
    try:
        # Opened here because NumPy leaves a damaged file open.
        with path.open("rb") as file:
            is_archive = file.read(2) == b"PK"
            file.seek(0)
            if is_archive:
                return _arrays_in(path, file)
        found = np.load(path, mmap_mode="r")
    except ValueError as error:
        if "pickle" not in str(error) and "Python objects" not in str(error):
            raise
        raise InputError(
            f"{path} is not a NumPy file, or holds Python objects, which are not read because they "
            "could run any code; save arrays of numbers or strings with numpy.save or numpy.savez."
        ) from None
    large = found.ndim == 2 and found.dtype.kind == "f" and found.nbytes >= MAPPED_FROM
    return {"array": found if large or found.ndim > 2 else np.array(found)}


def _arrays_in(path: Path, file: BinaryIO) -> dict[str, Any]:
    content = np.load(file)
    _require_room(path, sum(member.file_size for member in content.zip.infolist()))
    if set(content.files) >= _SPARSE_KEYS:
        file.seek(0)
        return {"matrix": _read_sparse(file)}
    arrays = {name: content[name] for name in content.files}
    others = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if others:
        raise InputError(
            f"{path} holds something other than arrays ({listing(others)}); write it with "
            "numpy.savez."
        )
    return arrays


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
