"""Arrays in .npz files with a format, a checksum and nothing that could run when they are read."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from unsplit.data.saving import reason_of, replacing
from unsplit.errors import InputError, check_path


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


def digest(values: Any) -> str:
    """Compute a fingerprint of the shape, type and values of an array.

    Examples
    --------
    >>> digest(np.arange(3)) == digest(np.arange(3)), digest(np.arange(3)) == digest(np.arange(4))
    (True, False)
    """
    fingerprint = hashlib.sha256()
    hash_array(fingerprint, values)
    return fingerprint.hexdigest()


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
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "result.npz"
    >>> save_arrays(path, "unsplit.Example/1", {"seed": 3}, {"tvd": np.zeros(2)})
    >>> load_arrays(path, "unsplit.Example/1")
    ({'seed': 3}, {'tvd': array([0., 0.])})
    """
    check_path("path", path)
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
    check_path("path", path)
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
            f"{path} cannot be opened ({reason_of(error)}); check its name and permissions and "
            "load it again."
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


def saved_kind(path: str | os.PathLike[str]) -> str | None:
    """What a file of :func:`save_arrays` holds and in which version; None if that is unclear.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/result.npz"
    >>> save_arrays(path, "unsplit.Example/1", {}, {"tvd": np.zeros(2)})
    >>> saved_kind(path)
    'unsplit.Example/1'
    """
    try:
        with open(path, "rb") as file, ZipFile(file) as content:
            members = _members(content, os.fstat(file.fileno()).st_size)
            return str(_meta(_array(content, members["meta"]))["format"])
    except Exception:  # loading it says what is wrong
        return None


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
