"""Check the content of a saved file before an object is made from it."""

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit.errors import InputError

# Shares are averages, and rounding can lift them this far above 1.
ROUNDING = 1e-6


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
    >>> check = ContentCheck("tree.npz", "MergeTree", "make it again")
    >>> check.require(False, "sizes must be positive")
    Traceback (most recent call last):
    unsplit.errors.InputError: tree.npz is not a valid MergeTree: sizes must be positive; make it again.
    """  # noqa: E501

    def __init__(self, path: str | os.PathLike[str], name: str, advice: str) -> None:
        self.path = path
        self.name = name
        self.advice = advice

    def require(self, satisfied: bool | np.bool_, problem: str) -> None:
        """Refuse the file if a condition is not satisfied.

        Parameters
        ----------
        satisfied : bool
        problem : str
            What must be the case, such as "sizes must be positive".

        Examples
        --------
        >>> ContentCheck("tree.npz", "MergeTree", "make it again").require(True, "always fine")
        """
        if not satisfied:
            raise InputError(
                f"{self.path} is not a valid {self.name}: {problem}; {self.advice}."
            ) from None

    def names(self, found: Mapping[str, Any], needed: set[str], optional: set[str]) -> None:
        """Check that all values are there, and no unknown ones.

        Parameters
        ----------
        found : mapping of str to anything
        needed, optional : set of str

        Examples
        --------
        >>> check = ContentCheck("tree.npz", "MergeTree", "make it again")
        >>> check.names({"sizes": [1]}, {"sizes"}, {"p_value"})
        """
        missing = sorted(needed - found.keys())
        self.require(not missing, f"{missing[0] if missing else ''} is missing")
        unknown = sorted(found.keys() - needed - optional)
        self.require(not unknown, f"it has an unknown entry {unknown[0] if unknown else ''!r}")

    def array(
        self, arrays: Mapping[str, Any], name: str, dtype: Any, *shape: int | None
    ) -> NDArray[Any]:
        """Return an array of the given type and shape.

        Parameters
        ----------
        arrays : mapping of str to ndarray
        name : str
        dtype : dtype
        *shape : int or None
            The length along each axis; None for any length.

        Examples
        --------
        >>> check = ContentCheck("tree.npz", "MergeTree", "make it again")
        >>> check.array({"sizes": np.array([3, 4])}, "sizes", np.int64, 2)
        array([3, 4])
        """
        value = arrays.get(name)
        self.require(isinstance(value, np.ndarray), f"the array {name} is missing")
        array: NDArray[Any] = np.asarray(value)
        self.require(
            array.dtype == np.dtype(dtype),
            f"{name} must have dtype {np.dtype(dtype)}, got {array.dtype}",
        )
        fits = array.ndim == len(shape) and all(
            n in (None, m) for n, m in zip(shape, array.shape, strict=True)
        )
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        self.require(fits, f"{name} must have shape ({wanted}), got {array.shape}")
        return array

    def within(
        self, name: str, array: NDArray[Any], low: float, high: float, rounding: float = 0.0
    ) -> None:
        """Check that all values of an array are within [low, high]; NaN is not.

        Parameters
        ----------
        name : str
        array : ndarray of numbers
        low, high : float
        rounding : float
            How far outside a value may be, because averages are rounded.

        Examples
        --------
        >>> check = ContentCheck("tree.npz", "MergeTree", "make it again")
        >>> check.within("hit_rate", np.array([0.5]), 0, 1)
        """
        self.require(
            bool(((array >= low - rounding) & (array <= high + rounding)).all()),
            f"{name} must be {_range(low, high)} everywhere",
        )

    def cluster_ids(self, arrays: Mapping[str, Any], at_least: int) -> NDArray[Any]:
        """Return the names of the clusters, which must be unique.

        Parameters
        ----------
        arrays : mapping of str to ndarray
        at_least : int
            How many clusters there must be.

        Examples
        --------
        >>> check = ContentCheck("tree.npz", "MergeTree", "make it again")
        >>> check.cluster_ids({"cluster_ids": np.array(["a", "b"])}, at_least=2).tolist()
        ['a', 'b']
        """
        ids = arrays.get("cluster_ids")
        self.require(isinstance(ids, np.ndarray), "the array cluster_ids is missing")
        array: NDArray[Any] = np.asarray(ids)
        self.require(
            array.ndim == 1 and array.dtype.kind in "iubU",
            "cluster_ids must be a one-dimensional array of whole numbers or strings, got dtype "
            f"{array.dtype} and shape {array.shape}",
        )
        try:
            different = len(set(array.tolist()))
        except ValueError:  # no such characters
            self.require(False, "cluster_ids must be text")
        self.require(
            len(array) >= at_least, f"it must have at least {at_least} clusters, got {len(array)}"
        )
        self.require(different == len(array), "cluster_ids must be unique")
        return array

    def integer(self, values: Mapping[str, Any], name: str, low: int, high: float) -> int:
        """Return a whole number within [low, high].

        Parameters
        ----------
        values : mapping of str to plain values
        name : str
        low, high : int or infinity

        Examples
        --------
        >>> check = ContentCheck("tree.npz", "MergeTree", "make it again")
        >>> check.integer({"n_noise": 3}, "n_noise", 0, math.inf)
        3
        """
        value = values.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        # Larger numbers do not fit into arrays.
        self.require(
            whole and low <= value <= min(high, 2**62),  # type: ignore[operator]
            f"{name} must be a whole number {_range(low, high)}",
        )
        return int(value)  # type: ignore[arg-type]

    def number(
        self,
        values: Mapping[str, Any],
        name: str,
        low: float,
        high: float,
        unknown: bool = False,
        rounding: float = 0.0,
    ) -> float:
        """Return a number within [low, high].

        Parameters
        ----------
        values : mapping of str to plain values
        name : str
        low, high : float
        unknown : bool
            Whether NaN is possible.
        rounding : float
            How far outside the number may be, because averages are rounded.

        Examples
        --------
        >>> check = ContentCheck("tree.npz", "MergeTree", "make it again")
        >>> check.number({"tvd": 0.5}, "tvd", 0, 1)
        0.5
        """
        value = values.get(name)
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        if fits:
            inside = low - rounding <= value <= high + rounding  # type: ignore[operator]
            fits = inside or (unknown and value != value)
        # Larger whole numbers do not fit into arrays.
        fits = fits and (isinstance(value, float) or abs(value) < 2**62)  # type: ignore[arg-type]
        missing = " or NaN" if unknown else ""
        self.require(fits, f"{name} must be a number {_range(low, high)}{missing}")
        return value  # type: ignore[return-value]

    def text(self, values: Mapping[str, Any], name: str) -> str:
        """Return a text.

        Parameters
        ----------
        values : mapping of str to plain values
        name : str

        Examples
        --------
        >>> check = ContentCheck("tree.npz", "MergeTree", "make it again")
        >>> check.text({"stopped": "as requested"}, "stopped")
        'as requested'
        """
        value = values.get(name)
        self.require(isinstance(value, str), f"{name} must be text")
        return str(value)


def _range(low: float, high: float) -> str:
    if math.isinf(high):
        return "(any)" if math.isinf(low) else f"of at least {low:g}"
    return f"from {low:g} to {high:g}"
