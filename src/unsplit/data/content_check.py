"""Check the content of a saved file before an object is made from it."""

import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unsplit.errors import InputError

# Shares are averages, and rounding can lift them this far above 1.
ROUNDING = 1e-6
# No count is larger, and sums of counts stay within 64 bits.
LARGEST = 2**40
# In single precision too.
FINITE = float(np.finfo(np.float32).max)


class Array(NamedTuple):
    """What an array must be.

    Parameters
    ----------
    dtype : str
        "U" for strings of any length; empty for an array that is checked by itself.
    shape : tuple of str or int
        Lengths along the axes; equal names stand for equal lengths.
    low, high : float
        Between which all values lie.
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


# The types of plain values that fill an array, and how to call them.
_PLAIN = {
    "f8": ((int, float), "a number"),
    "i8": ((int,), "a whole number"),
    "?": ((bool,), "true or false"),
    "U": ((str,), "text"),
}


class ContentCheck:
    """Refuses a saved file in one sentence if its content cannot be true.

    The content may have been written by hand, so nothing is known about it.

    Parameters
    ----------
    path : str or path
        The file, for the sentence.
    name : str
        What the file should hold, such as "PairwiseTVD".
    advice : str
        What to do about a file that is refused.

    Examples
    --------
    >>> check = ContentCheck("tree.npz", "MergeTree")
    >>> check.require(False, "sizes must be positive")
    Traceback (most recent call last):
    unsplit.errors.InputError: tree.npz is not a valid MergeTree: sizes must be positive; make it again.
    """  # noqa: E501

    def __init__(
        self, path: str | os.PathLike[str], name: str, advice: str = "make it again"
    ) -> None:
        self.path, self.name, self.advice = path, name, advice

    def require(self, satisfied: bool | np.bool_, problem: str) -> None:
        """Refuse the file if a condition is not satisfied.

        Parameters
        ----------
        satisfied : bool
        problem : str
            What must be the case, such as "sizes must be positive".

        Examples
        --------
        >>> ContentCheck("tree.npz", "MergeTree").require(True, "always fine")
        """
        if not satisfied:
            raise InputError(
                f"{self.path} is not a valid {self.name}: {problem}; {self.advice}."
            ) from None

    def names(
        self, found: Mapping[str, Any], needed: Mapping[str, Any], optional: tuple[str, ...] = ()
    ) -> None:
        """Check that all entries are there, and no unknown ones.

        Parameters
        ----------
        found, needed : mapping of str to anything
        optional : tuple of str
            Which of those needed may be missing.

        Examples
        --------
        >>> ContentCheck("tree.npz", "MergeTree").names({"sizes": [1]}, {"sizes": int})
        """
        for name in sorted(needed.keys() - found.keys() - set(optional)):
            self.require(False, f"{name} is missing")
        for name in sorted(found.keys() - needed.keys()):
            self.require(False, f"it has an unknown entry {name!r}")

    def arrays(
        self,
        found: Mapping[str, NDArray[Any]],
        needed: Mapping[str, Array],
        optional: tuple[str, ...] = (),
        **lengths: int,
    ) -> dict[str, int]:
        """Check that arrays are those of a table, and return the lengths that its names stand for.

        Parameters
        ----------
        found : mapping of str to ndarray
        needed : mapping of str to Array
        optional : tuple of str
            Which of them may be missing.
        **lengths : int
            Those that are known.

        Examples
        --------
        >>> check = ContentCheck("tree.npz", "MergeTree")
        >>> check.arrays({"sizes": np.array([3, 4])}, {"sizes": Array("i8", ("k",), 1)})
        {'k': 2}
        """
        self.names(found, needed, optional)
        for name, wanted in needed.items():
            if name not in found or not wanted.dtype:
                continue
            array, dtype = found[name], np.dtype(wanted.dtype)
            same = array.dtype.kind == "U" == dtype.kind or array.dtype == dtype
            self.require(same, f"{name} must have dtype {dtype}, got {array.dtype}")
            for axis, length in zip(wanted.shape, array.shape, strict=False):
                lengths.setdefault(str(axis), length if isinstance(axis, str) else axis)
            shape = tuple(lengths.get(str(axis), axis) for axis in wanted.shape)
            words = f"({', '.join(map(str, shape))}), got {array.shape}"
            self.require(array.shape == shape, f"{name} must have shape {words}")
            fits, words = _fits(array, wanted)
            self.require(fits.all(), f"{name} must be {words}")
        return lengths

    def rows(self, found: Any, needed: Mapping[str, Array], name: str) -> None:
        """Check mappings of plain values, all of them at once.

        Parameters
        ----------
        found : anything
            Should be a list of mappings.
        needed : mapping of str to Array
            What the values of each entry must be.
        name : str
            What the list is called.

        Examples
        --------
        >>> table = {"tvd": Array("f8", ("n",), 0, 1), "note": Array("U", ("n",))}
        >>> ContentCheck("tree.npz", "MergeTree").rows([{"tvd": 0.5, "note": ""}], table, "pairs")
        """
        mappings = isinstance(found, list) and all(isinstance(row, dict) for row in found)
        self.require(mappings, f"{name} must be a list of mappings")
        for row in found:
            self.names(row, needed)
        columns = {}
        for entry, wanted in needed.items():
            values = [row[entry] for row in found]
            types, words = _PLAIN[wanted.dtype]
            # Larger whole numbers do not fit into arrays.
            fits = all(type(v) in types and (type(v) is not int or abs(v) < 2**62) for v in values)
            self.require(fits, f"{entry} must be {words}")
            columns[entry] = np.array(values, wanted.dtype)
        self.arrays(columns, needed)

    def cluster_ids(self, arrays: Mapping[str, NDArray[Any]], at_least: int) -> int:
        """Check that the names of the clusters are unique, and return how many there are.

        Parameters
        ----------
        arrays : mapping of str to ndarray
        at_least : int
            How many clusters there must be.

        Examples
        --------
        >>> check = ContentCheck("tree.npz", "MergeTree")
        >>> check.cluster_ids({"cluster_ids": np.array(["a", "b"])}, at_least=2)
        2
        """
        names = arrays.get("cluster_ids", np.empty(()))
        self.require(
            names.ndim == 1 and names.dtype.kind in "iubU",
            "cluster_ids must be a one-dimensional array of whole numbers or strings",
        )
        try:
            different = len(set(names.tolist()))
        except ValueError:  # no such characters
            different = -1
        self.require(different == len(names), "cluster_ids must be unique")
        self.require(different >= at_least, f"it must have at least {at_least} clusters")
        return different


def _fits(array: NDArray[Any], wanted: Array) -> tuple[NDArray[np.bool_], str]:
    """Where values are what they must be, and that in words."""
    low, high = wanted.low, wanted.high
    if wanted.among:
        return np.isin(array, wanted.among), f"one of {', '.join(wanted.among)}"
    if array.dtype.kind == "U" or low == -math.inf:
        return np.ones(1, bool), ""
    inside = (array >= low - wanted.rounding) & (array <= high + wanted.rounding)
    words = f"from {low:g} to {high:g}"
    if high == FINITE:
        words = "finite" if low == -FINITE else f"finite and at least {low:g}"
    elif high == math.inf:
        words = f"at least {low:g}"
    if wanted.or_nan:
        return inside | np.isnan(array), f"{words}, or NaN"
    return inside, words
