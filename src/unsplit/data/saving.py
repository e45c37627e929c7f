"""Replace a file or a whole folder of results at once, so that none is ever left half written."""

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import platform
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from glob import escape
from itertools import count
from pathlib import Path
from typing import Any

from unsplit.data.text_files import write_json
from unsplit.errors import InputError, KeptWarning, check_path, warn

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MANIFEST = "manifest.json"
MANIFEST_FORMAT = "unsplit.manifest/1"

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # from <fcntl.h> and <linux/fs.h>
# Begins the names of temporary files and folders.
TEMPORARY = ".unsplit-"


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Provide a temporary file that replaces ``path`` once it is complete.

    If writing fails or is interrupted, the temporary file is removed, and an older file at
    ``path`` stays as it was.  After a kill the temporary file stays, hidden.

    Parameters
    ----------
    path : str or path
        The file to write.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with replacing(path) as new:
    ...     _ = new.write_text("done")
    >>> path.read_text()
    'done'
    """
    # As with open(), a link stays and the file it points to changes.
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise InputError(f"cannot write to {path}: it is not a regular file; choose another name.")
    new = _temporary(target.parent, target)
    try:
        new.touch(exist_ok=False)
    except OSError as error:
        raise InputError(
            f"cannot write to {path}: {reason_of(error)}; choose another location."
        ) from None
    try:
        yield new
        if target.exists():
            shutil.copymode(target, new)
        _to_disk(new)
        os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)


@contextlib.contextmanager
def output_folder(
    path: str | os.PathLike[str],
    versions: Mapping[str, str] | None = None,
    removable: Set[str] = frozenset(),
) -> Iterator[Path]:
    """Provide a temporary folder that becomes the result folder ``path`` in one step, at the end.

    An earlier result in ``path`` is replaced as a whole: its files do not stay beside the new
    ones.  All other files in the folder stay; those that have the name of a new file, and those
    that were changed since they were written, under another name, with a warning.  If writing
    fails or is interrupted, nothing changes.  ``manifest.json`` lists the files with their
    checksums; see :func:`verify_folder`.

    A folder that holds other files too cannot be replaced in one step, nor can the current folder,
    a mount point, a folder of another user or group, and any folder on systems other than Linux.
    There, the earlier files are removed and the new ones moved one by one, and
    :func:`verify_folder` recognises a result that was cut off.

    Parameters
    ----------
    path : str or path
        The folder to write; folders above it are created too.  A second run that writes to the
        same folder at the same time is refused.
    versions : mapping of str to str, optional
        Versions of the software, for ``manifest.json``.
    removable : set of str
        Names of files that are removed if they belong to the earlier result only.  Others stay:
        the earlier manifest may come from someone else.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "out"
    >>> with output_folder(path) as new:
    ...     _ = (new / "labels.csv").write_text("a,b")
    ...     path.exists()
    False
    >>> sorted(file.name for file in path.iterdir())
    ['labels.csv', 'manifest.json']
    """
    with _new_result(path) as (new, target, shown):
        yield new
        _publish(new, target, shown, versions or {}, removable, {})


@contextlib.contextmanager
def added_file(path: str | os.PathLike[str], name: str) -> Iterator[Path]:
    """Provide a file that becomes part of a result, which gets a new ``manifest.json``.

    Nobody else changes the result meanwhile.

    Parameters
    ----------
    path : str or path
        A folder that :func:`output_folder` wrote.
    name : str
        The file, which may be there already.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "out"
    >>> with output_folder(path) as new:
    ...     _ = (new / "labels.csv").write_text("a,b")
    >>> with added_file(path, "report.html") as file:
    ...     _ = file.write_text("<p>")
    >>> verify_folder(path)
    ['labels.csv', 'report.html']
    """
    with _new_result(path) as (new, target, shown):
        verify_folder(target, ignore={name})
        yield new / name
        manifest = _manifest_of(target, shown)
        manifest["files"].pop(name, None)
        _publish(new, target, shown, manifest["versions"], frozenset(), manifest["files"])


def verify_folder(path: str | os.PathLike[str], ignore: Set[str] = frozenset()) -> list[str]:
    """Check that a result folder is complete and unchanged, and return the names of its files.

    Parameters
    ----------
    path : str or path
        A folder with results; files that are not listed in its ``manifest.json`` are ignored.
    ignore : set of str
        Names of files that may have changed.

    Returns
    -------
    list of str

    Raises
    ------
    InputError
        If ``manifest.json`` is missing, if it names a file outside the folder, or if a file is
        missing or has changed since it was written.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "out"
    >>> with output_folder(path) as new:
    ...     _ = (new / "labels.csv").write_text("a,b")
    >>> verify_folder(path)
    ['labels.csv']
    >>> _ = (path / "labels.csv").write_text("something else")
    >>> verify_folder(path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    unsplit.errors.InputError: .../out/ is not the complete result of one run, because ...
    """
    check_path("path", path)
    if not isinstance(ignore, Set):
        raise InputError(f"ignore must be a set of file names, got {type(ignore).__name__}.")
    folder, shown = Path(path), os.path.join(os.fspath(path), "")
    if not (folder / MANIFEST).is_file():
        raise InputError(
            f"{shown} has no {MANIFEST}: no run has finished there; run the command again."
        )
    files = _manifest_of(folder, shown)["files"]
    wrong = [
        name
        for name, entry in files.items()
        if name not in ignore and not _is_unchanged(folder / name, entry)
    ]
    if wrong:
        raise InputError(
            f"{shown} is not the complete result of one run, because these files are missing or "
            f"have changed: {', '.join(wrong)}; run the command again."
        )
    return list(files)


def earlier_results(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the files that an earlier run wrote to a folder.

    Parameters
    ----------
    path : str or path
        A folder; it may be missing.

    Examples
    --------
    >>> earlier_results("missing")
    []
    """
    return list(_manifest_of(Path(path), os.path.join(os.fspath(path), ""))["files"])


def reason_of(error: OSError) -> str:
    """Why the system refused, in a few words."""
    if isinstance(error, (NotADirectoryError, FileExistsError)):
        return "there is a file where a folder should be"
    return (error.strerror or str(error)).lower()


def _temporary(folder: Path, target: Path) -> Path:
    return folder / f"{TEMPORARY}{secrets.token_hex(4)}.{target.name}"


@contextlib.contextmanager
def _only_run(lock: Path, shown: str) -> Iterator[bool]:
    """Hold the lock file of a folder, which the system releases however the process ends.

    Whether there are locks here is yielded.
    """
    # Never through a link, which someone else could have put there.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(lock, flags, 0o666), "r+", errors="replace") as file:
        try:
            if held := fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            in_use = os.fstat(file.fileno()).st_nlink == 0  # its owner has just removed it
        except BlockingIOError:
            in_use = True
        except OSError:  # some network file systems have no locks
            held = in_use = False
        if in_use:
            raise InputError(
                f"{shown} is in use by another run ({file.read() or 'which has just begun'}); wait "
                "until it has finished, or choose another --out."
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        try:
            yield held
        finally:
            with contextlib.suppress(OSError):
                lock.unlink()


@contextlib.contextmanager
def _new_result(path: str | os.PathLike[str]) -> Iterator[tuple[Path, Path, str]]:
    """Lock a result folder; yield an empty folder for its next result, its path and its name."""
    target = Path(os.path.realpath(path))
    shown = os.path.join(os.fspath(path), "")
    with contextlib.ExitStack() as stack:
        try:
            place = _place_for(target)
            held = stack.enter_context(_only_run(place / f".{target.name}.unsplit-lock", shown))
            _manifest_of(target, shown)
            # What killed runs left: whoever holds the lock is the only living one.
            for left in place.glob(f"{TEMPORARY}????????.{escape(target.name)}") if held else ():
                shutil.rmtree(left, ignore_errors=True)
            new = _temporary(place, target)
            new.mkdir()
        except OSError as error:
            raise InputError(
                f"cannot write to {shown}: {reason_of(error)}; choose another --out."
            ) from None
        stack.callback(shutil.rmtree, new, ignore_errors=True)  # or, at the end, the earlier result
        yield new, target, shown


def _place_for(target: Path) -> Path:
    """Return where the lock and the temporary folder go: beside the target where possible."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.parent
    if not target.is_dir():
        raise NotADirectoryError
    if not os.access(target, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    beside = os.access(target.parent, os.W_OK) and not os.path.ismount(target)
    return target.parent if beside else target


def _manifest_of(folder: Path, shown: str) -> dict[str, Any]:
    """Read the manifest of a folder, which may come from anyone; without one there are no files."""
    path, root = folder / MANIFEST, os.path.realpath(folder)
    if not os.path.lexists(path):
        return {"files": {}}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        files, versions = dict(content["files"]), dict(content["versions"])
        known = content["format"] == MANIFEST_FORMAT
        # After following links, which may lead anywhere.
        places = {name: Path(os.path.realpath(folder / name)) for name in files}
    except (KeyError, OSError, RecursionError, TypeError, ValueError):
        known = False
    if not known:
        raise InputError(
            f"{shown}{MANIFEST} was not written by this version of unsplit; move it away or use "
            "another folder."
        )
    for name, place in places.items():
        if not place.is_relative_to(root):
            raise InputError(
                f"{shown}{MANIFEST} names {name!r}, which is outside this folder, as in no result "
                "of unsplit; use another folder."
            )
    return {"files": files, "versions": versions}


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    return {"size": path.stat().st_size, "sha256": checksum}


def _is_unchanged(path: Path, entry: Mapping[str, Any]) -> bool:
    try:
        same_size = path.is_file() and path.stat().st_size == entry["size"]
        return same_size and _entry(path) == entry
    except (KeyError, OSError, TypeError):
        return False


def _publish(
    new: Path,
    target: Path,
    shown: str,
    versions: Mapping[str, str],
    removable: Set[str],
    stay: Mapping[str, Any],
) -> None:
    """Complete a new result, and put it in the place of the earlier one; some files stay."""
    names = {file.relative_to(new).as_posix() for file in new.rglob("*") if file.is_file()}
    files = {**stay, **{name: _entry(new / name) for name in names}}
    listed = {"versions": versions, "files": dict(sorted(files.items()))}
    write_json(new / MANIFEST, {"format": MANIFEST_FORMAT, **listed})
    for file in [*new.rglob("*"), new]:
        _to_disk(file)
    # In a thread of its own, Ctrl-C does not interrupt it; leaving the block waits for its end.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(_put_in_place, new, names, removable - stay.keys(), target, shown).result()


def _put_in_place(
    new: Path, names: Set[str], removable: Set[str], target: Path, shown: str
) -> None:
    """Replace the earlier result in the target by the new one."""
    if not target.is_dir():
        os.rename(new, target)
        _to_disk(target.parent)
        return
    for name in sorted(names):
        # Checked before anything is replaced, so that all files are replaced or none.
        if (target / name).is_dir():
            raise InputError(
                f"cannot write {name} to {shown}: a folder has this name; remove it or choose "
                "another --out."
            )
    listed, known = _manifest_of(target, shown)["files"], names | removable
    # A file that was changed after it was written is no longer ours to replace or to remove.
    ours = {name for name in listed if name in known and _is_unchanged(target / name, listed[name])}
    if _holds_only(target, ours) and exchange(new, target):
        _to_disk(target.parent)
        for entry in new.iterdir():
            if entry.name not in ours | {MANIFEST}:  # it appeared since
                shutil.move(entry, target / entry.name)
        return
    kept = _move(new, [MANIFEST, *sorted(names)], ours, target)
    _to_disk(target)
    if kept:
        told = ", ".join(f"{name} is now {other}" for name, other in kept.items())
        warn(
            f"{shown} had files with the names of new results that no run had written, or that "
            f"were changed since; they are kept: {told}.",
            KeptWarning,
        )


def _holds_only(target: Path, ours: Set[str]) -> bool:
    """Whether a folder holds only a result, and another may take its place and its name."""
    with contextlib.suppress(FileNotFoundError):  # the current folder may have been removed
        if Path.cwd().is_relative_to(target):
            return False
    return {entry.name for entry in target.iterdir()} <= ours | {MANIFEST}


def exchange(new: Path, target: Path) -> bool:
    """Let two folders of one user exchange their names in one step; False if that is impossible.

    The new one gets the permissions of the target.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "new").mkdir()
    >>> exchange(folder / "new", folder)  # which is in it
    False
    """
    one, other = new.stat(), target.stat()
    if new.parent == target or (one.st_uid, one.st_gid) != (other.st_uid, other.st_gid):
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # not Linux, or an old C library
        return False
    shutil.copymode(target, new)
    names = os.fsencode(new), os.fsencode(target)
    return bool(renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def _move(new: Path, names: list[str], ours: Set[str], target: Path) -> dict[str, str]:
    """Remove the earlier files and move the new ones; until all are there, the manifest is false.

    Files of the user are given other names, which are returned.
    """
    for name in ours:
        (target / name).unlink()
    kept = {}
    for name in names:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_file() and name != MANIFEST:
            numbered = (place.with_stem(f"{place.stem}.kept-{n}") for n in count(1))
            other = next(other for other in numbered if not os.path.lexists(other))
            os.rename(place, other)
            kept[name] = other.name
        shutil.move(new / name, place)
    return kept


def _to_disk(path: Path) -> None:
    """Wait until a file or the entries of a folder are on the disk, to survive a power cut."""
    if sys.platform == "win32":
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError:
        if not path.is_dir():  # some file systems cannot do this for folders
            raise
    finally:
        os.close(file)
