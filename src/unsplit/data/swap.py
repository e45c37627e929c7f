"""What the operating system offers for replacing a whole folder safely: locks and one swap."""

import contextlib
import ctypes
import os
import platform
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from unsplit.errors import InputError

if sys.platform != "win32":
    import fcntl

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # from <fcntl.h> and <linux/fs.h>


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], shown: str) -> Iterator[bool]:
    """Hold a lock file, so that only one run at a time writes to a folder.

    The operating system releases the lock when the process ends, however it ends: the lock file
    of a killed run does not block the next one.

    Parameters
    ----------
    path : str or path
        The lock file; it is removed at the end.
    shown : str
        The folder that the error message names.

    Yields
    ------
    bool
        Whether the lock is held; False where the file system or platform has no locks.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "lock"
    >>> with locked(path, "out/"), locked(path, "out/"):  # doctest: +ELLIPSIS
    ...     print("never here")
    Traceback (most recent call last):
    ...
    unsplit.errors.InputError: out/ is in use by another run (process ...); wait until ...
    """
    if sys.platform == "win32":
        yield False
        return
    while True:
        # Never through a link, which someone else could have put there.
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        except BlockingIOError:
            owner = _owner(file)
            os.close(file)
            raise InputError(
                f"{shown} is in use by another run ({owner}); wait until it has finished, or "
                "choose another --out."
            ) from None
        except OSError:  # some network file systems have no locks
            held = False
        # Another run may have removed the file after we opened it: then the lock is worth nothing.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), os.stat(path)):
                break
        os.close(file)
    try:
        with contextlib.suppress(OSError):  # so that others can use the file if we are killed
            os.fchmod(file, 0o666)
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} on {platform.node()}".encode(), 0)
        yield held
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(file)


@contextlib.contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """Provide an empty hidden file beside a file; it is removed at the end if it is still there.

    What a killed process left beside the same file is removed first: a living one holds a lock.

    Parameters
    ----------
    target : Path

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with temporary_file(target) as path:
    ...     path.name.startswith(".note.tmp-"), path.suffix
    (True, '.txt')
    """
    remove_abandoned(target.parent, target)
    temporary = target.with_name(f".{target.stem}.tmp-{secrets.token_hex(4)}{target.suffix}")
    file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        if sys.platform == "win32":
            os.close(file)
        else:
            with contextlib.suppress(OSError):  # some network file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if sys.platform != "win32":
            os.close(file)


def remove_abandoned(folder: Path, target: Path | None = None) -> None:
    """Remove temporary files of :func:`temporary_file` that no living process holds.

    Parameters
    ----------
    folder : Path
        It may be missing.
    target : Path, optional
        Only the temporary files of this file; by default those of all files in the folder.

    Examples
    --------
    >>> remove_abandoned(Path("missing"))
    """
    if sys.platform == "win32":
        return
    stem, suffix = (re.escape(target.stem), re.escape(target.suffix)) if target else (".+", ".*")
    pattern = re.compile(rf"\.{stem}\.tmp-[0-9a-f]{{8}}{suffix}")
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                _remove_if_free(entry.path)


def _remove_if_free(path: str) -> None:
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError):  # it is held, or it has just become what it was made for
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(file)


def _owner(file: int) -> str:
    """Read who holds a lock; the file is empty for a moment until its owner has written to it."""
    for _ in range(20):
        if owner := os.pread(file, 200, 0).decode(errors="replace"):
            return owner
        time.sleep(0.01)
    return "unknown process"


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Deliver Ctrl-C and SIGTERM that arrive inside the block only after it.

    Examples
    --------
    >>> with contextlib.suppress(KeyboardInterrupt):
    ...     with signals_held():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("not interrupted here")
    ...     print("but before this line")
    not interrupted here
    """
    received: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        received.append(number)

    # Python handles signals in its main thread only; blocking them in this thread would not stop
    # the threads of numerical libraries from receiving them.
    in_main = threading.current_thread() is threading.main_thread()
    both = (signal.SIGINT, signal.SIGTERM) if in_main else ()
    previous = {number: signal.getsignal(number) for number in both}
    for number, handler in previous.items():
        if handler is not None:  # None: installed by C code, which we could not restore
            signal.signal(number, hold)
    try:
        yield
    finally:
        for number, handler in previous.items():
            if handler is not None:
                signal.signal(number, handler)
        for waiting in received:
            signal.raise_signal(waiting)


def exchange(first: Path, second: Path) -> bool:
    """Let two folders exchange their names in one step; False where this is not possible.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> exchange(folder / "missing", folder)
    False
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # not Linux, or an old C library
        return False
    names = os.fsencode(first), os.fsencode(second)
    return bool(renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def to_disk(path: str | os.PathLike[str]) -> None:
    """Wait until a file or the entries of a folder are on the disk, to survive a power cut.

    Examples
    --------
    >>> import tempfile
    >>> to_disk(tempfile.mkdtemp())
    """
    is_folder = os.path.isdir(path)
    if is_folder and sys.platform == "win32":
        return
    # Files of an earlier result may be read-only; only Windows needs more than that.
    file = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError:
        if not is_folder:  # some file systems cannot do this for folders
            raise
    finally:
        os.close(file)
