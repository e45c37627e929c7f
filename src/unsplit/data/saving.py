"""Write files so that none is ever left half written, and read back those of arrays."""

import contextlib
import csv
import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

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
    with open(path, "w", encoding="utf-8", newline="") as file:
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
    text = json.dumps(plain_values(content), ensure_ascii=False, indent=2, allow_nan=False)
    Path(path).write_text(text + "\n", encoding="utf-8", newline="\n")


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


def plain_values(value: Any) -> Any:
    """Turn mappings, sequences, arrays and scalars into what JSON has; NaN becomes None.

    Parameters
    ----------
    value : mapping, sequence, array or scalar

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


def checksum(values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> str:
    """Compute the SHA-256 of plain values and arrays.

    Parameters
    ----------
    values : mapping of str to plain values
        Hashed as JSON with sorted keys, without the entry "sha256".
    arrays : mapping of str to ndarray, optional
        Names, types, shapes and bytes are hashed.

    Examples
    --------
    >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1}) != checksum({"a": 1, "b": 3})
    True
    """
    rest = {name: value for name, value in values.items() if name != "sha256"}
    fingerprint = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name, array in sorted((arrays or {}).items()):
        fingerprint.update(f"\n{name!r} ".encode())
        hash_array(fingerprint, array)
    return fingerprint.hexdigest()


def hash_array(fingerprint: Any, array: NDArray[Any]) -> None:
    """Add the type, shape and values of an array to a hash.

    Parameters
    ----------
    fingerprint : hash object of hashlib
    array : ndarray of numbers or strings

    Examples
    --------
    >>> one, other = hashlib.sha256(), hashlib.sha256()
    >>> hash_array(one, np.arange(4))
    >>> hash_array(other, np.arange(4).reshape(2, 2))
    >>> one.hexdigest() == other.hexdigest()
    False
    """
    array = np.asarray(array, order="C")
    fingerprint.update(f"{array.dtype.str}{array.shape}".encode())
    fingerprint.update(array.reshape(-1).view(np.uint8).data)


def save_arrays(
    path: str | os.PathLike[str], kind: str, meta: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write arrays and plain values to one .npz file, without pickle and with a checksum.

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
    ({'seed': 3}, {'tvd': array([0., 0.])})
    """
    content: dict[str, Any] = {"format": kind, **meta}
    # The same values make the same file, however they lie in memory.
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(content | {"sha256": checksum(content, arrays)})
    with replacing(path) as new, new.open("wb") as file:
        np.savez_compressed(file, meta=np.array(text), **arrays)


def load_arrays(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the plain values and the arrays that :func:`save_arrays` wrote.

    A file that is damaged or was changed is refused.

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
        with open(path, "rb") as file, ZipFile(file) as content:
            members = _members(content, os.fstat(file.fileno()).st_size)
            meta = _meta(_array(content, members.pop("meta")))
            arrays = {}
            if meta["format"] == kind:
                arrays = {key: _array(content, member) for key, member in members.items()}
                found = checksum(meta, arrays)
    except FileNotFoundError:
        raise
    except (PermissionError, IsADirectoryError) as error:
        raise InputError(
            f"{path} cannot be opened ({_reason(error)}); check its name and permissions and load "
            "it again."
        ) from None
    except MemoryError:
        raise InputError(
            f"{path} does not fit into memory; load it on a machine with more memory."
        ) from None
    except Exception:  # damaged files make zipfile, json and NumPy raise nearly anything
        raise InputError(
            f"{path} was not written by {name}.save, or it is damaged; save it again."
        ) from None
    if meta["format"] != kind:
        raise InputError(
            f"{path} has format {meta['format']!r}, this version reads {kind!r}; "
            "save it again, or use the version of unsplit that wrote it."
        )
    if meta.get("sha256") != found:
        raise InputError(
            f"{path} has been changed since {name}.save wrote it, because its checksum does not "
            "match its content; make the file again."
        )
    return {key: meta[key] for key in meta if key not in ("format", "sha256")}, arrays


# Deflate, the compression of .npz files, makes nothing smaller than this.
_LARGEST_RATIO = 1040


def _members(content: ZipFile, file_size: int) -> dict[str, ZipInfo]:
    """The members of a zip file by name, if they can be what np.savez_compressed wrote."""
    members = {info.filename.removesuffix(".npy"): info for info in content.infolist()}
    _require(len(members) == len(content.infolist()))
    # Members that share their bytes could unpack to far more than the file holds.
    _require(sum(info.compress_size for info in members.values()) <= file_size)
    for info in members.values():
        _require(info.filename.endswith(".npy"))
        _require(info.compress_type in (ZIP_STORED, ZIP_DEFLATED))
        _require(0 <= info.file_size <= _LARGEST_RATIO * (info.compress_size + 1))
    return members


def _array(content: ZipFile, info: ZipInfo) -> NDArray[Any]:
    """Read one member; memory is only taken for bytes that are really there."""
    with content.open(info) as member:
        version = np.lib.format.read_magic(member)
        _require(version in ((1, 0), (2, 0)))
        one = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if one else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(member)
        _require(dtype.kind in "biufU" and dtype.itemsize > 0)
        _require(all(type(n) is int and n >= 0 for n in shape))
        size = math.prod(shape) * dtype.itemsize
        _require(size <= info.file_size)
        data = bytearray(member.read(size))
        # Reading on to the end makes zipfile check the CRC.
        _require(len(data) == size and not member.read(1))
    # Not from an empty buffer, which frombuffer refuses.
    flat = np.frombuffer(data, dtype) if size else np.empty(0, dtype)
    return np.asarray(flat.reshape(shape, order="F" if by_columns else "C"), order="C")


def _meta(array: NDArray[Any]) -> dict[str, Any]:
    _require(array.ndim == 0 and array.dtype.kind == "U")
    meta = json.loads(str(array))
    _require(isinstance(meta, dict) and isinstance(meta["format"], str))
    _require(len(meta["format"]) <= 100)
    return meta


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError
