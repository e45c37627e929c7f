"""All results as .npz files: arrays, plain values and a checksum, and nothing that could run."""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

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
    path: str | os.PathLike[str],
    kind: str,
    meta: Mapping[str, Any],
    arrays: Mapping[str, Any],
    compressed: bool = True,
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
    compressed : bool
        Compressing takes long for what is large and random.

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
    save = np.savez_compressed if compressed else np.savez
    with replacing(path) as new, new.open("wb") as file:
        save(file, meta=np.array(text), **arrays)


def load_arrays(
    path: str | os.PathLike[str], kind: str, advice: str = "make it again"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the plain values and the arrays that :func:`save_arrays` wrote.

    A file that is damaged or was changed is refused.

    Parameters
    ----------
    path : str or path
    kind : str
        What the file must hold; another kind or version is an error.
    advice : str
        What to do about a file that is refused.

    Examples
    --------
    See :func:`save_arrays`.
    """
    check_path("path", path)
    name = kind.split("/")[0].removeprefix("unsplit.")
    try:
        meta, arrays = _read(path, everything=True)
        found = checksum(meta, arrays)
    except FileNotFoundError:
        raise
    except (PermissionError, IsADirectoryError) as error:
        raise InputError(f"{path} cannot be opened ({reason_of(error)}); {advice}.") from None
    except MemoryError:
        raise InputError(f"{path} does not fit into memory; {advice}, or get more.") from None
    except Exception:  # damaged files make zipfile, json and NumPy raise nearly anything
        raise InputError(
            f"{path} is not a {name} saved by unsplit, or it is damaged; {advice}."
        ) from None
    if meta["format"] != kind:
        raise InputError(
            f"{path} has format {meta['format']!r}, this version reads {kind!r}; {advice}, or use "
            "the version of unsplit that wrote it."
        )
    if meta.pop("sha256", None) != found:
        raise InputError(
            f"{path} has been changed since unsplit wrote it, because its checksum does not match "
            f"its content; {advice}."
        )
    return {key: meta[key] for key in meta if key != "format"}, arrays


def saved_meta(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the plain values of a file of :func:`save_arrays` quickly; none if that is impossible.

    "format" is what the file holds and in which version.  The checksum is not tested.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/result.npz"
    >>> save_arrays(path, "unsplit.Example/1", {}, {"tvd": np.zeros(2)})
    >>> saved_meta(path)["format"]
    'unsplit.Example/1'
    """
    try:
        return _read(path, everything=False)[0]
    except Exception:  # loading it says what is wrong
        return {}


def _read(
    path: str | os.PathLike[str], everything: bool
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read the plain values and, on demand, the arrays, without unpickling anything."""
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as content:
        meta = json.loads(str(content["meta"]))
        if not isinstance(meta["format"], str) or len(meta["format"]) > 100:
            raise ValueError
        names = [name for name in content.files if everything and name != "meta"]
        return dict(meta), {name: np.asarray(content[name], order="C") for name in names}
