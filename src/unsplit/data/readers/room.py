"""Room for a matrix that is read piece by piece: in memory, or in a temporary file on disk."""

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit.data.memory import available_memory
from unsplit.errors import InputError, option

# A matrix that takes a larger share of the free memory is kept on disk.
SHARE_IN_MEMORY = 0.25


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
        if size > shutil.disk_usage(folder).free or not _reserved(file.fileno(), size):
            gib = 2**30
            raise InputError(
                f"{what} takes {size / gib:,.1f} GiB, more than memory ({free / gib:,.1f} GiB) and "
                f"the folder for temporary files, {folder}, have room for "
                f"({shutil.disk_usage(folder).free / gib:,.1f} GiB); name a folder with more room "
                f"with {option('cache')}, or use fewer columns."
            )
        return np.memmap(file, dtype, "r+", shape=shape)


def _reserved(file: int, size: int) -> bool:
    """Reserve room on the disk: a mapped file on a full disk would end the process."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)
            return True
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)):
            return False
    os.truncate(file, size)  # where disks cannot reserve room
    return True
