"""All results as .npz files: arrays, plain values and a checksum, checked when they are read.

Nothing in such a file could run.  Its content may have been written by hand, so nothing is known
about it before it has been compared with a table of what it must be.
"""

import hashlib
import json
import math
import os
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unsplit.data.saving import reason_of, replacing
from unsplit.errors import InputError, check_path

# Shares are averages, and rounding can lift them this far above 1.
ROUNDING = 1e-6
# No count is larger, and sums of counts stay within 64 bits.
LARGEST = 2**40
# In single precision too.
FINITE = float(np.finfo(np.float32).max)


class Array(NamedTuple):
    """What an array in a file must be.

    Parameters
    ----------
    dtype : str
        "U" for strings of any length, "ids" for names of clusters.
    shape : tuple of str or int
        Lengths along the axes; equal names stand for equal lengths.  Empty for a single value.
    low, high : float
        Between which all values lie; ``low`` is the smallest number of names of clusters.
    rounding : float
        How far outside a value may be, because averages are rounded.
    or_nan : bool
        Whether values may be NaN.
    among : tuple of str
        The only texts that it may hold; empty for any.
    """

    dtype: str
    shape: tuple[str | int, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    rounding: float = 0.0
    or_nan: bool = False
    among: tuple[str, ...] = ()


def checksum(values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> str:
    """Compute the SHA-256 of plain values, except an entry "sha256", and of arrays.

    Values are hashed as JSON with sorted keys; of arrays, names, types, shapes and bytes.

    Examples
    --------
    >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1}) != checksum({"a": 1, "b": 3})
    True
    """
    rest = {name: value for name, value in values.items() if name != "sha256"}
    fingerprint = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name, array in sorted((arrays or {}).items()):
        array = np.asarray(array, order="C")
        fingerprint.update(f"\n{name!r} {array.dtype.str}{array.shape}".encode())
        fingerprint.update(array.reshape(-1).view(np.uint8).data)
    return fingerprint.hexdigest()


def digest(values: Any) -> str:
    """Compute a fingerprint of the shape, type and values of an array.

    Examples
    --------
    >>> digest(np.arange(3)) == digest(np.arange(3)), digest(np.arange(3)) == digest(np.arange(4))
    (True, False)
    """
    return checksum({}, {"": values})


def save_arrays(
    path: str | os.PathLike[str],
    kind: str,
    meta: Mapping[str, Any],
    arrays: Mapping[str, Any],
    compressed: bool = True,
) -> None:
    """Write arrays and plain values to one .npz file, without pickle and with a checksum.

    ``kind`` says what the file holds and in which version, such as "unsplit.PairwiseTVD/1".
    ``meta`` is stored as JSON; no array may have this name.  Compressing takes long for what is
    large and random.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/result.npz"
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

    A file that is damaged, was changed, or is of another kind or version is refused, with advice.
    """
    check_path("path", path)
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
            f"{path} is not a {_name(kind)} saved by unsplit, or it is damaged; {advice}."
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
    del meta["format"]
    return meta, arrays


def load_checked(
    path: str | os.PathLike[str],
    kind: str,
    table: Mapping[str, Array],
    optional: Collection[str] = (),
    advice: str = "make it again",
) -> tuple[dict[str, Any], "ContentCheck"]:
    """Return the arrays that :func:`save_arrays` wrote, compared with a table.

    Single values are no arrays any more.  The second result is for further checks of the file.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/result.npz"
    >>> save_arrays(path, "unsplit.Example/1", {}, {"seed": 3, "tvd": np.zeros(2)})
    >>> table = {"seed": Array("i8"), "tvd": Array("f8", ("k",))}
    >>> load_checked(path, "unsplit.Example/1", table)[0]
    {'seed': 3, 'tvd': array([0., 0.])}
    """
    meta, arrays = load_arrays(path, kind, advice)
    check = ContentCheck(path, kind, advice)
    return check.content(meta | arrays, table, optional), check


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


class ContentCheck:
    """Refuses a saved file of a kind in one sentence, with advice, if its content cannot be true.

    Examples
    --------
    >>> check = ContentCheck("tree.npz", "unsplit.MergeTree/6")
    >>> check.content({"sizes": np.array([3, 0])}, {"sizes": Array("i8", ("k",), 1)})
    Traceback (most recent call last):
    unsplit.errors.InputError: tree.npz is not a valid MergeTree: sizes must be at least 1; make ...
    """

    def __init__(
        self, path: str | os.PathLike[str], kind: str, advice: str = "make it again"
    ) -> None:
        self.path, self.name, self.advice = path, _name(kind), advice

    def require(self, satisfied: bool | np.bool_, problem: str) -> None:
        """Refuse the file unless a condition is satisfied; the words say what must be the case."""
        if not satisfied:
            raise InputError(
                f"{self.path} is not a valid {self.name}: {problem}; {self.advice}."
            ) from None

    def content(
        self, found: Mapping[str, Any], table: Mapping[str, Array], optional: Collection[str] = ()
    ) -> dict[str, Any]:
        """Check all arrays, and return them in the order of the table; single ones as values."""
        for name in sorted(table.keys() - found.keys() - set(optional)):
            self.require(False, f"{name} is missing")
        for name in sorted(found.keys() - table.keys()):
            self.require(False, f"it has an unknown entry {name!r}")
        content, lengths = {}, dict[str, int]()
        for name in [name for name in table if name in found]:
            array, wanted = np.asarray(found[name]), table[name]
            if array.dtype.kind in "OT":  # text from an .h5ad file or a .zarr folder
                array = array.astype(object).astype(str)
            self._check(name, array, wanted, lengths)
            content[name] = array if wanted.shape else array.item()
        return content

    def _check(
        self, name: str, array: NDArray[Any], wanted: Array, lengths: dict[str, int]
    ) -> None:
        """Check the type, shape and limits of an array."""
        kinds = {"ids": "iubU", "U": "U"}.get(wanted.dtype, "")
        same = array.dtype.kind in kinds if kinds else array.dtype == np.dtype(wanted.dtype)
        self.require(same, f"{name} must have dtype {wanted.dtype}, got {array.dtype}")
        for axis, length in zip(wanted.shape, array.shape, strict=False):
            lengths.setdefault(str(axis), length if isinstance(axis, str) else axis)
        shape = tuple(lengths.get(str(axis), axis) for axis in wanted.shape)
        words = f"({', '.join(map(str, shape))}), got {array.shape}"
        self.require(array.shape == shape, f"{name} must have shape {words}")
        fits, words = _fits(array, wanted)
        self.require(fits, f"{name} must be {words}")


def _name(kind: str) -> str:
    return kind.split("/")[0].removeprefix("unsplit.")


def _fits(array: NDArray[Any], wanted: Array) -> tuple[bool, str]:
    """Whether all values are what they must be, and that in words."""
    low, high = wanted.low, wanted.high
    if wanted.dtype == "ids":
        try:
            different = len(set(array.tolist()))
        except ValueError:  # no such characters
            different = -1
        return low <= different == len(array), f"unique and at least {low:g}"
    if wanted.among:
        return bool(np.isin(array, wanted.among).all()), f"one of {', '.join(wanted.among)}"
    if array.dtype.kind == "U" or low == -math.inf:
        return True, ""
    inside = (array >= low - wanted.rounding) & (array <= high + wanted.rounding)
    words = f"from {low:g} to {high:g}"
    if high == FINITE:
        words = "finite" if low == -FINITE else f"finite and at least {low:g}"
    elif high == math.inf:
        words = f"at least {low:g}"
    if wanted.or_nan:
        return bool((inside | np.isnan(array)).all()), f"{words}, or NaN"
    return bool(inside.all()), words


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
