"""Read HDF5 files; imported by the processes that parse files, so without torch."""

from contextlib import suppress
from typing import Any

import numpy as np

from unsplit.data.memory import available_memory

# Bytes that are read at once to try a file out.
PIECE = 2**26


def arrays_in(path: str) -> dict[str, Any]:
    """Read all arrays of an HDF5 file in this process, by name; text becomes strings.

    One column, of shape (n, 1), becomes (n,).

    Parameters
    ----------
    path : str

    Examples
    --------
    >>> import h5py, tempfile
    >>> path = tempfile.mkdtemp() + "/clouds.h5"
    >>> with h5py.File(path, "w") as file:
    ...     file["label"] = [[7], [9]]
    >>> arrays_in(path)
    {'label': array([7, 9])}
    """
    import h5py

    found: dict[str, Any] = {}
    room = available_memory()

    def look(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            nonlocal room
            # Half, because a copy goes to the process that asked.
            room -= 2 * item.nbytes
            if room < 0:
                raise MemoryError
            text = h5py.check_string_dtype(item.dtype) is not None
            array = np.asarray(item.asstr()[()]).astype(str) if text else np.asarray(item[()])
            found[name] = array.ravel() if array.shape[1:] == (1,) else array

    with h5py.File(path) as file:
        file.visititems(look)
    return found


def read_through(request: tuple[str, list[list[str]]]) -> None:
    """Read what is wanted of a file piece by piece and forget it, to see whether that crashes.

    Ordinary errors are left to the reader, which knows how to tell them.

    Parameters
    ----------
    request : tuple of str and list
        The path and what is wanted: of each list of names the first that exists.
    """
    import h5py

    def look(_: str, item: Any) -> None:
        with suppress(Exception):
            dict(item.attrs)
            n_rows = max(1, len(item) * PIECE // max(1, item.nbytes))
            # What does not fit into memory is refused by the reader.
            for first in range(0, len(item) if item.nbytes < available_memory() else 0, n_rows):
                item[first : first + n_rows]

    path, wanted = request
    with suppress(Exception), h5py.File(path, "r") as file:
        for names in wanted:
            with suppress(Exception):
                item = file[next(name for name in names if name in file)]
                look("", item)
                item.visititems(look)
