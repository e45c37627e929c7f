"""Read what is wanted of an HDF5 file once in a process of its own, where a crash does no harm.

A damaged file can crash the HDF5 library or make it read without end.  Cells are too large to be
parsed in another process and copied, so that process only tries: if it gets to the end, so will
this one.  Ordinary errors are left to the reader, which knows how to tell them.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from unsplit.data.memory import available_memory
from unsplit.data.readers.formats import refuse_broken
from unsplit.data.readers.isolated import parse_alone

# Bytes that are read at once.
PIECE = 2**26


def try_out(path: Path, wanted: Sequence[Sequence[str]]) -> None:
    """Raise an error if reading an HDF5 file crashes or does not end.

    Parameters
    ----------
    path : Path
    wanted : sequence of sequences of str
        What will be read; of each sequence of names the first that exists.

    Examples
    --------
    >>> import h5py, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "cells.h5ad"
    >>> with h5py.File(path, "w") as file:
    ...     file["X"] = [7, 9]
    >>> try_out(path, [["X_pca", "X"]])
    """
    parser = "unsplit.data.readers.hdf5_trial:read_through"
    refuse_broken(path, parse_alone(parser, os.fspath(path), [list(names) for names in wanted]))


def read_through(request: tuple[str, list[list[str]]]) -> None:
    """Look at everything in a file, and read what is wanted piece by piece, in this process.

    Parameters
    ----------
    request : tuple of str and list
        The path and what is wanted.

    Examples
    --------
    See :func:`try_out`.
    """
    import h5py

    path, wanted = request
    with suppress(Exception), h5py.File(path, "r") as file:
        with suppress(Exception):
            file.visititems(_look)
        for names in wanted:
            with suppress(Exception):
                _read(file[next(name for name in names if name in file)])


def _look(_: str, item: Any) -> None:
    with suppress(Exception):
        dict(item.attrs), getattr(item, "shape", None), getattr(item, "dtype", None)


def _read(element: Any) -> None:
    """Read all of a group or dataset, and forget it."""
    for item in element.values() if hasattr(element, "values") else ():
        with suppress(Exception):
            _read(item)
    if not getattr(element, "shape", None):
        return
    size = element.size * element.dtype.itemsize
    if size > available_memory():
        return  # the reader refuses it
    rows = max(1, len(element) * PIECE // max(size, 1))
    for first in range(0, len(element), rows):
        element[first : first + rows]
