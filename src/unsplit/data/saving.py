"""Results as text and data frames; files and folders of results, replaced when complete."""

import contextlib
import csv
import hashlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from glob import escape
from itertools import count
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from filelock import FileLock, Timeout

from unsplit.data.readers.tables import require_module
from unsplit.errors import InputError, KeptWarning, check_path, warn

MANIFEST = "manifest.json"
MANIFEST_FORMAT = "unsplit.manifest/1"
# Begins the names of temporary files and folders.
TEMPORARY = ".unsplit-"


# --- text and frames ------------------------------------------------------------------------------


def write_csv(path: str | os.PathLike[str], columns: Mapping[str, Iterable[Any]]) -> None:
    """Write columns of equal length; numbers read back the same, NaN and None are left empty.

    Names that cannot be written in UTF-8 get backslashes and digits instead.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "pairs.csv"
    >>> write_csv(path, {"pair": ["a–b", "a–c"], "tvd": np.array([0.1, np.nan])})
    >>> print(path.read_text(encoding="utf-8"))
    pair,tvd
    a–b,0.1
    a–c,
    """
    with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(_UnixLines(file))
        writer.writerow(columns)
        writer.writerows(zip(*map(_written, columns.values()), strict=True))


def _written(column: Iterable[Any]) -> list[Any]:
    """Values as they are written; those of arrays of whole numbers or names need no check."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iuU":
        return column.tolist()
    return ["" if _is_missing(value) else str(value) for value in column]


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


class _UnixLines:
    r"""A file whose lines end in \n; csv itself would then not quote a \r in a name."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def write(self, line: str) -> int:
        return self.file.write(line.removesuffix("\r\n") + "\n")


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write mappings, sequences, arrays and scalars; NaN and infinity become null.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "result.json"
    >>> write_json(path, {"k": np.int64(3), "tvd": np.array([0.5, np.nan])})
    >>> json.loads(path.read_text())
    {'k': 3, 'tvd': [0.5, None]}
    """
    text = json.dumps(plain_values(content), ensure_ascii=False, indent=2, allow_nan=False)
    # A name that is not valid UTF-8 becomes an escape that JSON reads back as the same name.
    Path(path).write_text(text + "\n", "utf-8", errors="backslashreplace", newline="\n")


def plain_values(value: Any) -> Any:
    """Turn mappings, sequences, arrays and scalars into what JSON has; NaN becomes None.

    Examples
    --------
    >>> plain_values({"k": np.int64(3), "tvd": (0.5, np.nan)})
    {'k': 3, 'tvd': [0.5, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def data_frame(columns: Mapping[str, Any]) -> Any:
    """Make a pandas DataFrame of columns of the same length.

    Examples
    --------
    >>> data_frame({"cluster": ["a", "b"], "size": [3, 4]}).shape
    (2, 2)
    """
    return require_module("pandas", "a data frame", "tables").DataFrame(columns)


# --- one file -------------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Provide a temporary file that replaces the file ``path`` once it is complete.

    If writing fails or is interrupted, the temporary file is removed, and an older file at
    ``path`` stays as it was.  After a kill the temporary file stays, hidden.

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


def reason_of(error: OSError) -> str:
    """Why the system refused, in a few words."""
    if isinstance(error, (NotADirectoryError, FileExistsError)):
        return "there is a file where a folder should be"
    return (error.strerror or str(error)).lower()


def _temporary(folder: Path, target: Path) -> Path:
    return folder / f"{TEMPORARY}{secrets.token_hex(4)}.{target.name}"


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


# --- a folder of results --------------------------------------------------------------------------


@contextlib.contextmanager
def output_folder(
    path: str | os.PathLike[str],
    versions: Mapping[str, str] | None = None,
    removable: Set[str] = frozenset(),
) -> Iterator[Path]:
    """Provide a temporary folder whose files become those of the result folder ``path`` at the end.

    A new folder appears in one step.  In a folder that is there already, files of an earlier result
    are removed and the new ones moved one by one; :func:`verify_folder` recognises a result that
    was cut off then.  All other files stay; those that have the name of a new file, and those that
    were changed since they were written, under another name, with a warning.  If writing fails or
    is interrupted, nothing changes.  ``manifest.json`` lists the files with their checksums.

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

    The file may be there already.  Nobody else changes the result meanwhile.

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
    """Return the names of the files that an earlier run wrote to a folder, which may be missing."""
    return list(_manifest_of(Path(path), os.path.join(os.fspath(path), ""))["files"])


@contextlib.contextmanager
def _new_result(path: str | os.PathLike[str]) -> Iterator[tuple[Path, Path, str]]:
    """Lock a result folder; yield an empty folder for its next result, its path and its name."""
    target = Path(os.path.realpath(path))
    shown = os.path.join(os.fspath(path), "")
    place = target if target.is_dir() else target.parent
    lock = place / f".{target.name}.unsplit-lock"
    with contextlib.ExitStack() as stack:
        try:
            if target.exists() and not target.is_dir():
                raise NotADirectoryError
            place.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(lock, timeout=0))
            stack.callback(lock.unlink, missing_ok=True)
            _manifest_of(target, shown)
            # What killed runs left: whoever holds the lock is the only living one.
            for left in place.glob(f"{TEMPORARY}????????.{escape(target.name)}"):
                shutil.rmtree(left, ignore_errors=True)
            new = _temporary(place, target)
            new.mkdir()
        except Timeout:
            raise InputError(
                f"{shown} is in use by another run; wait until it has finished, or choose another "
                "--out."
            ) from None
        except OSError as error:
            raise InputError(
                f"cannot write to {shown}: {reason_of(error)}; choose another --out."
            ) from None
        stack.callback(shutil.rmtree, new, ignore_errors=True)
        yield new, target, shown


def _manifest_of(folder: Path, shown: str) -> dict[str, Any]:
    """Read the manifest of a folder, which may come from anyone; without one there are no files."""
    path, root = folder / MANIFEST, os.path.realpath(folder)
    if not os.path.lexists(path):
        return {"files": {}}
    try:
        if not path.is_file():  # such as a device, which has no end
            raise ValueError
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
    ours = [n for n in listed if n in known and _is_unchanged(target / n, listed[n])]
    for name in ours:
        (target / name).unlink()
    kept = {}
    # Until all files are there, the manifest is false.
    for name in [MANIFEST, *sorted(names)]:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_file() and name != MANIFEST:
            numbered = (place.with_stem(f"{place.stem}.kept-{n}") for n in count(1))
            other = next(other for other in numbered if not os.path.lexists(other))
            os.rename(place, other)
            kept[name] = other.name
        os.replace(new / name, place)
    _to_disk(target)
    if gone := [name for name in ours if name not in names]:
        warn(f"removed from {shown}, as of an earlier result: {', '.join(gone)}.", KeptWarning)
    if kept:
        renamed = ", ".join(f"{name} is now {other}" for name, other in kept.items())
        warn(
            f"{shown} had files with the names of new results that no run had written, or that "
            f"were changed since; they are kept: {renamed}.",
            KeptWarning,
        )
