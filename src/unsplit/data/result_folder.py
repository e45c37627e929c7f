"""Write a folder of results in one step, with a manifest that says whether it is complete."""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import count
from pathlib import Path
from typing import Any

from unsplit.data.saving import reason_of, replacing, write_json
from unsplit.data.swap import exchange, locked, remove_abandoned, signals_held, to_disk
from unsplit.errors import InputError, KeptWarning, check_path, warn

MANIFEST = "manifest.json"
MANIFEST_FORMAT = "unsplit.manifest/1"
# In a manifest, while files are replaced one by one: those of the earlier result.
REPLACED = "replaced"


@contextlib.contextmanager
def output_folder(
    path: str | os.PathLike[str], versions: Mapping[str, str] | None = None
) -> Iterator[Path]:
    """Provide a temporary folder that becomes the result folder ``path`` in one step, at the end.

    An earlier result in ``path`` is replaced as a whole: its files do not stay beside the new
    ones.  All other files in the folder stay; those that have the name of a new file, and those
    that were changed since they were written, under another name, with a warning.  If writing
    fails or is interrupted, nothing changes.  ``manifest.json`` lists the files with their
    checksums; see :func:`verify_folder`.

    Some folders cannot be replaced in one step: the current folder, a mount point, a folder of
    another user, and any folder on systems other than Linux.  Nor is a folder that has subfolders
    but no results yet.  There, files are replaced one by one, and
    :func:`verify_folder` recognises a result that was cut off.

    Parameters
    ----------
    path : str or path
        The folder to write; folders above it are created too.  A second run that writes to the
        same folder at the same time is refused.
    versions : mapping of str to str, optional
        Versions of the software, for ``manifest.json``.

    Examples
    --------
    >>> import tempfile
    >>> from unsplit.data.saving import write_csv
    >>> path = Path(tempfile.mkdtemp()) / "out"
    >>> with output_folder(path) as new:
    ...     write_csv(new / "labels.csv", {"label": ["a", "b"]})
    ...     path.exists()
    False
    >>> sorted(file.name for file in path.iterdir())
    ['labels.csv', 'manifest.json']
    """
    with _new_result(path) as (temporary, target, shown):
        yield temporary
        _publish(temporary, target, shown, versions or {})


@contextlib.contextmanager
def _new_result(path: str | os.PathLike[str]) -> Iterator[tuple[Path, Path, str]]:
    """Lock a result folder; yield an empty folder for its next result, its path and its name."""
    target = Path(os.path.realpath(path))
    shown = os.path.join(os.fspath(path), "")
    with contextlib.ExitStack() as stack:
        try:
            place = _place_for(target)
            held = stack.enter_context(locked(place / f".{target.name}.unsplit-lock", shown))
            _earlier_files(target, shown)
            if held:
                _remove_leftovers(place, target.name)
                remove_abandoned(target)
            temporary = _new_folder(place, target)
        except OSError as error:
            raise InputError(
                f"cannot write to {shown}: {reason_of(error)}; choose another --out."
            ) from None
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        yield temporary, target, shown


def _publish(temporary: Path, target: Path, shown: str, versions: Mapping[str, str]) -> None:
    """Complete a new result and put it in the place of the earlier one."""
    names = _names_in(temporary)
    write_json(temporary / MANIFEST, _manifest(temporary, names, versions))
    for file in [*temporary.rglob("*"), temporary]:
        to_disk(file)
    with signals_held():
        _put_in_place(temporary, [*names, MANIFEST], target, shown)
        to_disk(target.parent)
        shutil.rmtree(temporary, ignore_errors=True)  # the earlier result


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
        If ``manifest.json`` is missing, or if a file is missing or has changed since it was
        written.

    Examples
    --------
    >>> import tempfile
    >>> from unsplit.data.saving import write_csv
    >>> path = Path(tempfile.mkdtemp()) / "out"
    >>> with output_folder(path) as new:
    ...     write_csv(new / "labels.csv", {"label": ["a", "b"]})
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
    files = _earlier_files(folder, shown)
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


@contextlib.contextmanager
def added_file(path: str | os.PathLike[str], name: str) -> Iterator[Path]:
    """Provide a file that becomes part of a result in one step, with a new ``manifest.json``.

    Until then nobody else changes the result, which can be read meanwhile.

    Parameters
    ----------
    path : str or path
        A folder that :func:`output_folder` wrote.
    name : str
        The file, which may be there already.

    Examples
    --------
    >>> import tempfile
    >>> from unsplit.data.saving import write_csv
    >>> path = Path(tempfile.mkdtemp()) / "out"
    >>> with output_folder(path) as new:
    ...     write_csv(new / "labels.csv", {"label": ["a", "b"]})
    >>> with added_file(path, "report.html") as file:
    ...     _ = file.write_text("<p>")
    >>> verify_folder(path)
    ['labels.csv', 'report.html']
    """
    with _new_result(path) as (temporary, target, shown):
        others = [other for other in verify_folder(target, ignore={name}) if other != name]
        yield temporary / name
        for other in others:
            _link_or_copy(target / other, temporary / other)
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
        _publish(temporary, target, shown, manifest["versions"])


def _link_or_copy(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, place)
    except OSError:  # no hard links on this file system, or not to files of others
        shutil.copy2(file, place)


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
    return list(_earlier_files(Path(path), os.path.join(os.fspath(path), "")))


def _place_for(target: Path) -> Path:
    """Return where the lock and the temporary folder go: beside the target where possible."""
    if target.exists() and not target.is_dir():
        raise NotADirectoryError
    if target.is_dir() and not os.access(target, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if target.is_dir() and (os.path.ismount(target) or not os.access(target.parent, os.W_OK)):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.parent


def _new_folder(place: Path, target: Path) -> Path:
    """Create a temporary folder with the group and permissions of the target."""
    temporary = place / f".{target.name}.new-{secrets.token_hex(4)}"
    temporary.mkdir()
    if target.is_dir():
        with contextlib.suppress(OSError, AttributeError):  # Windows has no groups
            os.chown(temporary, -1, target.stat().st_gid)
            temporary.chmod(target.stat().st_mode & 0o7777 | 0o700)
    return temporary


def _remove_leftovers(place: Path, name: str) -> None:
    """Remove temporary folders of killed runs; whoever holds the lock is the only live run."""
    pattern = re.compile(re.escape(f".{name}.new-") + "[0-9a-f]{8}")
    for entry in place.iterdir():
        if pattern.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)


def _names_in(folder: Path) -> list[str]:
    return sorted(
        file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()
    )


def _manifest(folder: Path, names: Sequence[str], versions: Mapping[str, str]) -> dict[str, Any]:
    files = {name: _entry(folder / name) for name in names}
    return {"format": MANIFEST_FORMAT, "versions": versions, "files": files}


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    return {"size": path.stat().st_size, "sha256": checksum}


def _is_unchanged(path: Path, entry: Mapping[str, Any]) -> bool:
    try:
        return path.stat().st_size == entry["size"] and _entry(path) == entry
    except (KeyError, OSError, TypeError):
        return False


def _earlier_files(folder: Path, shown: str) -> dict[str, dict[str, Any]]:
    """Return what the manifest of a folder lists; nothing if it has none."""
    path = folder / MANIFEST
    if not os.path.lexists(path):
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        files = dict(content["files"])
        inside = all(".." not in Path(name).parts and not os.path.isabs(name) for name in files)
        if content["format"] == MANIFEST_FORMAT and inside:
            return files
    except (KeyError, OSError, TypeError, ValueError):
        pass
    raise InputError(
        f"{shown}{MANIFEST} was not written by this version of unsplit; move it away or use "
        "another folder."
    )


def _replaced_files(folder: Path) -> dict[str, Any]:
    """Return what a run that was killed was about to replace."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return dict(content[REPLACED])
    except (KeyError, OSError, TypeError, ValueError):
        return {}


def _put_in_place(temporary: Path, names: Sequence[str], target: Path, shown: str) -> None:
    """Replace the earlier result in the target by the new one; ``names`` ends with the manifest."""
    if not target.is_dir():
        os.rename(temporary, target)
        return
    for name in names:
        # Checked before anything is replaced, so that all files are replaced or none.
        if (target / name).is_dir():
            raise InputError(
                f"cannot write {name} to {shown}: a folder has this name; remove it or choose "
                "another --out."
            )
    known = _replaced_files(target), _earlier_files(target, shown)
    # A file that was changed after it was written is no longer ours to replace or to remove.
    ours = {
        name
        for entries in known
        for name, entry in entries.items()
        if _is_unchanged(target / name, entry)
    }
    kept = _keep([name for name in names if name not in ours and name != MANIFEST], target)
    unused = sorted(ours.difference(names))
    if not _swap(temporary, {*names, *unused}, target):
        _move(temporary, names, unused, target, {**known[0], **known[1]})
    if kept:
        told = ", ".join(f"{name} is now {other}" for name, other in kept.items())
        warn(
            f"{shown} had files with the names of new results that no run had written, or that "
            f"were changed since; they are kept: {told}.",
            KeptWarning,
        )


def _keep(names: Sequence[str], target: Path) -> dict[str, str]:
    """Give files that would be replaced a second name; return the second by the first."""
    kept = {}
    for name in names:
        file = target / name
        if file.is_file():
            numbered = (file.with_name(f"{file.stem}.kept-{n}{file.suffix}") for n in count(1))
            other = next(other for other in numbered if not os.path.lexists(other))
            _link_or_copy(file, other)
            kept[name] = other.name
    return kept


def _swap(temporary: Path, ours: Set[str], target: Path) -> bool:
    """Exchange the two folders in one step; False if that is not possible."""
    has_results = any(os.path.lexists(target / name) for name in ours)
    if not has_results and any(entry.is_dir() for entry in target.iterdir()):
        return False  # a user's own folder, perhaps a large one, without results to mix up
    if temporary.parent == target or target.stat().st_uid != temporary.stat().st_uid:
        return False
    with contextlib.suppress(FileNotFoundError):  # the current folder may have been removed
        here = Path.cwd()
        if target in (here, *here.parents):
            return False

    def ignored(folder: str, entries: list[str]) -> list[str]:
        inner = Path(folder).relative_to(target)
        return [name for name in entries if (inner / name).as_posix() in ours]

    try:
        # Hard links: a user's own files are in both folders, whenever the process is killed.
        shutil.copytree(target, temporary, True, ignored, copy_function=os.link, dirs_exist_ok=True)
    except OSError:  # for example no hard links on this file system
        return False
    if not exchange(temporary, target):
        return False
    for file in temporary.rglob("*"):  # files that appeared since they were linked
        name = file.relative_to(temporary).as_posix()
        if name not in ours and not file.is_dir() and not _is_same(file, target / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target / name)
    return True


def _is_same(file: Path, other: Path) -> bool:
    try:
        return os.path.samestat(file.lstat(), other.lstat()) or file.readlink() == other.readlink()
    except OSError:
        return False


def _move(
    temporary: Path,
    names: Sequence[str],
    unused: Sequence[str],
    target: Path,
    earlier: Mapping[str, Any],
) -> None:
    """Replace files one by one; until all are there, :func:`verify_folder` fails.

    Until then the manifest also lists the files that are replaced, so that the next run knows them
    if this one is killed.
    """
    *files, manifest = names
    content = json.loads((temporary / manifest).read_text(encoding="utf-8"))
    first = temporary / f".{manifest}"
    write_json(first, content | {REPLACED: earlier})
    to_disk(first)
    _move_file(first, target / manifest)
    for name in unused:
        (target / name).unlink()
    for name in files:
        _move_file(temporary / name, target / name)
    to_disk(target)
    _move_file(temporary / manifest, target / manifest)


def _move_file(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.replace(file, place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with replacing(place) as new:  # the target is mounted from elsewhere
            shutil.copyfile(file, new)
