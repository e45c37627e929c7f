"""Write files so that none is ever left half written."""

import contextlib
import csv
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO
from zipfile import BadZipFile

import numpy as np

from unsplit.errors import InputError


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Provide a temporary file that replaces ``path`` once it is complete.

    If writing fails or is interrupted, the temporary file is removed, and an older file at
    ``path`` stays as it was.

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
    temporary = target.with_name(f".{target.stem}.tmp-{secrets.token_hex(4)}{target.suffix}")
    try:
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise InputError(
            f"cannot write to {path}: {_reason(error)}; choose another location."
        ) from None
    try:
        yield temporary
        if target.exists():
            shutil.copymode(target, temporary)
        _to_disk(temporary)
        os.replace(temporary, target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def output_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Provide a temporary folder whose files appear in ``path`` together, at the end.

    A new folder appears at once with everything in it.  In an existing folder, files of the same
    names are replaced one right after the other, and other files stay.  If writing fails or is
    interrupted, nothing changes.

    Parameters
    ----------
    path : str or path
        The folder to write; folders above it are created too.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "out"
    >>> with output_folder(path) as new:
    ...     write_csv(new / "labels.csv", {"label": ["a", "b"]})
    ...     path.exists()
    False
    >>> sorted(file.name for file in path.iterdir())
    ['labels.csv']
    """
    target = Path(os.path.realpath(path))
    temporary = _folder_for(path, target)
    try:
        yield temporary
        files = sorted(file for file in temporary.rglob("*") if file.is_file())
        for file in files:
            _to_disk(file)
        if target.is_dir():
            _move(path, temporary, files, target)
        else:
            os.rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_csv(path: str | os.PathLike[str], columns: Mapping[str, Iterable[Any]]) -> None:
    """Write columns of equal length; numbers read back the same, NaN and None are left empty.

    Names that cannot be written in UTF-8 get backslashes and digits instead.

    Parameters
    ----------
    path : str or path
    columns : mapping of str to iterable
        Columns by name, in the order in which they are written.

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
        for row in zip(*columns.values(), strict=True):
            writer.writerow(["" if _is_missing(value) else str(value) for value in row])


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write mappings, sequences, arrays and scalars; NaN and infinity become null.

    Parameters
    ----------
    path : str or path
    content : mapping, sequence, array or scalar

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "result.json"
    >>> write_json(path, {"k": np.int64(3), "tvd": np.array([0.5, np.nan])})
    >>> json.loads(path.read_text())
    {'k': 3, 'tvd': [0.5, None]}
    """
    text = json.dumps(_for_json(content), ensure_ascii=False, indent=2, allow_nan=False)
    # A name that is not valid UTF-8 becomes an escape that JSON reads back as the same name.
    Path(path).write_text(text + "\n", "utf-8", errors="backslashreplace", newline="\n")


def _folder_for(path: str | os.PathLike[str], target: Path) -> Path:
    """Create a folder on the same disk as the target: in it, or beside it if it does not exist."""
    place = target if target.is_dir() else target.parent
    temporary = place / f".{target.name}.tmp-{secrets.token_hex(4)}"
    try:
        if target.exists() and not target.is_dir():
            raise NotADirectoryError
        place.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    except OSError as error:
        shown = os.path.join(os.fspath(path), "")
        raise InputError(
            f"cannot write to {shown}: {_reason(error)}; choose another --out."
        ) from None
    return temporary


def _move(
    path: str | os.PathLike[str], temporary: Path, files: Sequence[Path], target: Path
) -> None:
    places = [target / file.relative_to(temporary) for file in files]
    for place in places:
        # Checked before the first file is moved, so that all files are moved or none.
        if place.is_dir():
            raise InputError(
                f"cannot write {place.name} to {os.fspath(path)}: a folder has this name; "
                "remove it or choose another --out."
            )
        place.parent.mkdir(parents=True, exist_ok=True)
    for file, place in zip(files, places, strict=True):
        os.replace(file, place)


class _UnixLines:
    r"""A file whose lines end in \n; csv itself would then not quote a \r in a name."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def write(self, line: str) -> int:
        return self.file.write(line.removesuffix("\r\n") + "\n")


def _to_disk(path: Path) -> None:
    """Wait until the content is on the disk, so that a power cut cannot leave an empty file."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _reason(error: OSError) -> str:
    if isinstance(error, (NotADirectoryError, FileExistsError)):
        return "there is a file where a folder should be"
    return (error.strerror or str(error)).lower()


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def _for_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _for_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_for_json(item) for item in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def save_arrays(
    path: str | os.PathLike[str], kind: str, meta: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write arrays and plain values to one .npz file, without pickle.

    Parameters
    ----------
    path : str or path
    kind : str
        What the file holds and in which version, such as "unsplit.PairwiseTVD/1".
    meta : mapping of str to plain values
        Stored as JSON.
    arrays : mapping of str to ndarray
        None may be called "meta".

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "result.npz"
    >>> save_arrays(path, "unsplit.Example/1", {"seed": 3}, {"tvd": np.zeros(2)})
    >>> load_arrays(path, "unsplit.Example/1")
    ({'format': 'unsplit.Example/1', 'seed': 3}, {'tvd': array([0., 0.])})
    """
    text = json.dumps({"format": kind, **meta})
    with replacing(path) as new, new.open("wb") as file:
        np.savez_compressed(file, meta=np.array(text), **arrays)


def load_arrays(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the plain values and the arrays that :func:`save_arrays` wrote.

    Parameters
    ----------
    path : str or path
    kind : str
        What the file must hold; another kind or version is an error.

    Examples
    --------
    See :func:`save_arrays`.
    """
    name = kind.split("/")[0].removeprefix("unsplit.")
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as content:
            arrays = {key: content[key] for key in content.files}
        meta = json.loads(str(arrays.pop("meta")))
    except FileNotFoundError:
        raise
    except (AttributeError, KeyError, OSError, EOFError, TypeError, ValueError, *_CORRUPT):
        raise InputError(
            f"{path} was not written by {name}.save, or it is damaged; save it again."
        ) from None
    if meta.get("format") != kind:
        raise InputError(
            f"{path} has format {meta.get('format')!r}, this version reads {kind!r}; "
            "save it again, or use the version of unsplit that wrote it."
        )
    return meta, arrays


_CORRUPT = (BadZipFile, zlib.error)
