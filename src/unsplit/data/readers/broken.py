"""What is wrong with a file, in one sentence; a few of many are left out with a warning."""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unsplit.data.readers.tables import TOO_LARGE, shortened
from unsplit.errors import InputError, InputWarning, SkippedWarning, warn

# Share of the files of a folder that may be broken.
MOST_BROKEN = 0.05
_NAMED = 3


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
    """Read a whole file, or the part of one that :func:`place_in` names.

    Only regular files are read: opening a named pipe would wait forever.

    Examples
    --------
    >>> content_of(os.devnull)
    Traceback (most recent call last):
    ValueError: it is not a regular file
    """
    name, *place = os.fspath(path).split("\0")
    if not stat.S_ISREG(os.stat(name).st_mode):
        raise ValueError("it is not a regular file")
    start, size = map(int, place or (0, -1))
    with open(name, "rb") as file:
        file.seek(start)
        data = file.read(size)
    if len(data) < size:
        raise ValueError("it is cut short")
    if not data:
        raise ValueError("it is empty")
    return data


def leave_out(why: Mapping[int, str], names: NDArray[np.str_], what: str) -> NDArray[np.bool_]:
    """Warn that broken files are left out, or raise an error if there are too many.

    ``why`` has by position what is wrong with a file.  Returns which files are left.

    Examples
    --------
    >>> leave_out({1: "it is empty"}, np.array(["a/1.png", "a/2.png"]), "images")
    Traceback (most recent call last):
    unsplit.errors.InputError: 1 of 2 images cannot be read, more than the 5% that may be broken:
    'a/2.png' (it is empty); repair or remove them.
    """
    usable = np.ones(len(names), bool)
    if not why:
        return usable
    usable[list(why)] = False
    few = sorted(why)[:_NAMED]
    named = ", ".join(f"{shortened(repr(str(names[i])))} ({why[i]})" for i in few)
    named += f" and {len(why) - _NAMED:,} more" if len(why) > _NAMED else ""
    which = f"{len(why):,} of {len(names):,} {what} cannot be read"
    if len(why) > MOST_BROKEN * len(names):
        raise InputError(
            f"{which}, more than the {100 * MOST_BROKEN:g}% that may be broken: {named}; repair or "
            "remove them."
        )
    warn(f"{which} and are left out: {named}.", SkippedWarning)
    return usable


def reason(error: Exception) -> str:
    """Say in one line why a file could not be read."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if type(error).__name__ == "UnidentifiedImageError":
        return "not an image"  # Pillow's own message names an address in memory
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    return shortened(str(error).strip().split("\n")[0].rstrip(".")) or type(error).__name__


def refuse_unreadable(path: Path) -> None:
    """Raise an error if a path is not a regular file with content that may be read."""
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
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; check its name and folder.") from None
    except (OSError, ValueError) as error:  # such as a null character in its name
        raise cannot_be_opened(path, error) from None


def cannot_be_opened(path: Path, error: Exception) -> InputError:
    """The error for a file or folder that the system does not open."""
    return InputError(
        f"{shortened(str(path))} cannot be opened ({reason(error)}); check its name and "
        "permissions."
    )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error of a parser of this file into one sentence.

    Examples
    --------
    >>> with reading(Path("cells.npy")):
    ...     raise EOFError("no data left")
    Traceback (most recent call last):
    unsplit.errors.InputError: cells.npy cannot be read (no data left); it may be damaged or ...
    """
    try:
        yield
    except (InputError, ImportError, InputWarning):
        raise
    except MemoryError:
        raise InputError(f"{path} does not fit into memory; {TOO_LARGE}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8; save it again as UTF-8.") from None
    except Exception as error:  # parsers raise many types of error on damaged files
        raise InputError(
            f"{path} cannot be read ({reason(error)}); it may be damaged or cut short, so write "
            "it again."
        ) from error
