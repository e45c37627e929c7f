"""Files that cannot be read: a few are left out with a warning, many are an error."""

import os
import stat
from collections.abc import Callable, Sequence

from unsplit.data.readers.tables import shortened
from unsplit.errors import InputError, SkippedWarning, is_number, shown, warn

_NAMED = 3


def check_max_broken(max_broken: float) -> None:
    """Refuse a share that is not between 0 and 1.

    Parameters
    ----------
    max_broken : float

    Examples
    --------
    >>> check_max_broken(0.05)
    """
    if not is_number(max_broken) or not 0 <= max_broken <= 1:
        raise InputError(f"max_broken must be a share between 0 and 1, got {shown(max_broken)}.")


def place_in(path: str | os.PathLike[str], start: int, size: int) -> str:
    """Name a part of a file, which :func:`content_of` reads as if it were a file of its own.

    Examples
    --------
    >>> shown_place(place_in("shards/0.tar", 512, 100))
    'the file at byte 512 of shards/0.tar'
    """
    # No file has a null character in its name.
    return f"{os.fspath(path)}\0{start}\0{size}"


def shown_place(path: str) -> str:
    """Say where something is: a path, or the part of a file that :func:`place_in` named."""
    name, *place = path.split("\0")
    return f"the file at byte {place[0]} of {name}" if place else name


def content_of(path: str | os.PathLike[str]) -> bytes:
    """Read a whole file, but only a regular one: opening a named pipe would wait forever.

    Parameters
    ----------
    path : str or path
        Or a part of a file as :func:`place_in` names it.

    Examples
    --------
    >>> content_of(os.devnull)
    Traceback (most recent call last):
    ValueError: it is not a regular file
    """
    name, *place = os.fspath(path).split("\0")
    if not stat.S_ISREG(os.stat(name).st_mode):
        raise ValueError("it is not a regular file")
    with open(name, "rb") as file:
        if not place:
            return file.read()
        start, size = map(int, place)
        file.seek(start)
        data = file.read(size)
    if len(data) < size:
        raise ValueError("it is cut short")
    return data


def size_of(path: str | os.PathLike[str]) -> int:
    """Return the number of bytes in a file; 0 if it has none, as a link to nowhere.

    Examples
    --------
    >>> size_of("nowhere")
    0
    """
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return 0  # reading it says what is wrong


def leave_out(
    broken: Sequence[str], n: int, what: str, why: Callable[[str], str], max_broken: float
) -> None:
    """Warn that broken files are left out, or raise an error if there are too many.

    Parameters
    ----------
    broken : sequence of str
        Names of the files that cannot be read.
    n : int
        Number of all files.
    what : str
        What the files are, as the sentence calls them.
    why : callable
        Says for a name why the file cannot be read; called for the few that are named.
    max_broken : float
        Share of broken files up to which they are left out; all of them are always too many.

    Examples
    --------
    >>> leave_out([], 20, "images", lambda name: "it is empty", 0.05)
    >>> leave_out(["a/1.png"], 2, "images", lambda name: "it is empty", 0.05)
    Traceback (most recent call last):
    unsplit.errors.InputError: 1 of 2 images cannot be read, more than the 5% that may be broken:
    'a/1.png' (it is empty); repair or remove them.
    """
    if not broken:
        return
    named = ", ".join(f"{shortened(repr(name))} ({why(name)})" for name in broken[:_NAMED])
    named += f" and {len(broken) - _NAMED:,} more" if len(broken) > _NAMED else ""
    which = f"{len(broken):,} of {n:,} {what} cannot be read"
    if len(broken) == n:
        raise InputError(f"none of the {n:,} {what} can be read: {named}; repair or replace them.")
    if len(broken) > max_broken * n:
        raise InputError(
            f"{which}, more than the {100 * max_broken:g}% that may be broken: {named}; repair or "
            "remove them."
        )
    warn(f"{which} and are left out: {named}.", SkippedWarning)


def reason(error: Exception) -> str:
    """Say in one line why a file could not be read.

    Parameters
    ----------
    error : Exception
        What reading the file raised.

    Examples
    --------
    >>> reason(ValueError("it is cut short."))
    'it is cut short'
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if type(error).__name__ == "UnidentifiedImageError":
        return "not an image"  # Pillow's own message names an address in memory
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    return shortened(str(error).strip().split("\n")[0].rstrip(".")) or type(error).__name__
