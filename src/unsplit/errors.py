"""Errors and warnings of Unsplit, and the checks of arguments that raise them."""

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from inspect import signature
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np

__all__ = [
    "BatchWarning",
    "CheckpointWarning",
    "ConfusionWarning",
    "DependenceWarning",
    "FeatureWarning",
    "InputError",
    "InputWarning",
    "KeptWarning",
    "LabelsWarning",
    "OutOfMemoryWarning",
    "PartitionWarning",
    "SkippedWarning",
    "SmallClusterWarning",
]


class InputError(ValueError):
    """The input cannot be used; the message says what is wrong and what to do."""


class InputWarning(UserWarning):
    """The input may not be what it seems, or is not used as it is written; the message says how."""


class SmallClusterWarning(UserWarning):
    """Some clusters are too small to hold any observation out; they are marked in the result."""


class BatchWarning(UserWarning):
    """Some pairs of clusters share no batch, so they cannot be compared."""


class DependenceWarning(UserWarning):
    """Observations that follow each other resemble each other, so they are not independent."""


class PartitionWarning(UserWarning):
    """Every pair of clusters is separable by construction; distances say little about merging."""


class ConfusionWarning(UserWarning):
    """Some observations are confused with more clusters than are kept in a sparse estimate."""


class SkippedWarning(UserWarning):
    """Some of the files or columns are not used; the message names them."""


class FeatureWarning(UserWarning):
    """A column that is used as a feature may not be a measurement, or drowns all others."""


class LabelsWarning(UserWarning):
    """Labels were passed where they are not used."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the run goes on, and cannot continue from there."""


class KeptWarning(UserWarning):
    """Of files that were there already, some are kept under another name, or removed."""


class OutOfMemoryWarning(UserWarning):
    """Memory ran out in training, which goes on in smaller parts."""


class _Typed:
    """What the command line knows: that parameters are options, and the ids of rows in a file."""

    as_options = False
    data = ""
    row_ids: Any = None


@contextmanager
def on_the_command_line() -> Iterator[None]:
    """Let messages name the options of the command line instead of parameters."""
    before, _Typed.as_options = _Typed.as_options, True
    try:
        yield
    finally:
        _Typed.as_options, _Typed.data, _Typed.row_ids = before, "", None


def name_observations(data: str, row_ids: Any) -> None:
    """Let messages name observations by their ids in a file until the command has ended."""
    _Typed.data, _Typed.row_ids = data, row_ids


def observation(row: int) -> str:
    """An observation as a message names it: by its number in X, or its id in a file.

    Examples
    --------
    >>> observation(3)
    'observation 3 of X'
    >>> with on_the_command_line():
    ...     name_observations("cells.csv", ["a", "b"])
    ...     observation(1)
    "observation 'b' of cells.csv"
    """
    if _Typed.row_ids is None:
        return f"observation {row} of X"
    (name,) = np.asarray(_Typed.row_ids)[[row]].tolist()
    return f"observation {shown(name)} of {_Typed.data}"


def option(name: str, value: object = None) -> str:
    """A parameter as the user wrote it, in Python or on the command line.

    Examples
    --------
    >>> option("use_rep"), option("drop", ["age"]), option("rank_by", "tv")
    ('use_rep', "drop=['age']", 'rank_by="tv"')
    >>> with on_the_command_line():
    ...     option("use_rep"), option("drop", ["age"]), option("rank_by", "tv")
    ('--use-rep', '--drop age', '--rank-by tv')
    """
    if _Typed.as_options:
        name = f"--{name.replace('_', '-')}"
        given = ",".join(value) if isinstance(value, list) else value
        return name if value is None else f"{name} {given}"
    if value is None:
        return name
    if isinstance(value, str):
        return f'{name}="{value}"'
    return f"{name}={value if is_number(value) else shown(value)}"


P = ParamSpec("P")
R = TypeVar("R")


def refuses_old_options(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function say what to write instead of options that it once had."""
    known = signature(function).parameters.keys()

    @wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        unknown = options.keys() - known
        if unknown:
            import_module("unsplit.old_names").refuse_options(sorted(unknown))
        return function(*args, **options)

    return checked


_PACKAGE = os.path.dirname(__file__) + os.sep


def warn(message: str, category: type[Warning]) -> None:
    """Warn of something in the line of the user's code that called Unsplit.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("look at this.", SkippedWarning)
    >>> str(caught[0].message)
    'look at this.'
    """
    level, frame = 1, sys._getframe()
    # A function whose decorator is a context manager is called by contextlib.
    ours = (_PACKAGE, contextlib.__file__)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


# Characters of a value that a message shows.
_MOST = 200


def shown(value: object) -> str:
    """Return a value as a message shows it: in one line, and cut if it is long.

    Examples
    --------
    >>> shown("a"), len(shown("a" * 10_000))
    ("'a'", 201)
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number; True and False are not numbers.

    Examples
    --------
    >>> is_whole(np.int64(3)), is_whole(3.0), is_whole(True)
    (True, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether a value is a number other than NaN; True and False are not numbers.

    Examples
    --------
    >>> is_number(0.5), is_number("0.5"), is_number(float("nan"))
    (True, False, False)
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        return False
    return value == value


def check_whole(name: str, value: object, least: int, advice: str = "") -> None:
    """Raise an error unless a parameter is a whole number of at least ``least``.

    Parameters
    ----------
    name : str
        Of the parameter.
    value : object
    least : int
    advice : str
        What to do, without a full stop.

    Examples
    --------
    >>> check_whole("cv", 1, 2, "5 is usual")
    Traceback (most recent call last):
    unsplit.errors.InputError: cv must be a whole number of at least 2, got 1; 5 is usual.
    """
    if not is_whole(value) or value < least:  # type: ignore[operator]
        end = f"; {advice}." if advice else "."
        raise InputError(
            f"{option(name)} must be a whole number of at least {least}, got {shown(value)}{end}"
        )


def check_flag(name: str, value: object, otherwise: str = "") -> None:
    """Raise an error unless a parameter is True or False.

    Parameters
    ----------
    name : str
        Of the parameter.
    value : object
    otherwise : str
        What else it may be, for the message.

    Examples
    --------
    >>> check_flag("progress", "no")
    Traceback (most recent call last):
    unsplit.errors.InputError: progress must be True or False, got 'no'; pass one of them.
    """
    if not isinstance(value, (bool, np.bool_)):
        allowed = f"True, False or {otherwise}" if otherwise else "True or False"
        raise InputError(f"{name} must be {allowed}, got {shown(value)}; pass one of them.")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise an error unless a parameter is one of several words.

    Examples
    --------
    >>> check_choice("loss", "hinge", ["softmax", "pairwise"])
    Traceback (most recent call last):
    unsplit.errors.InputError: loss must be one of softmax, pairwise, got 'hinge'.
    """
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(choices)
        raise InputError(f"{option(name)} must be one of {known}, got {shown(value)}.")


def check_path(name: str, value: object) -> None:
    """Raise an error unless a parameter is a path; a number would be taken for an open file.

    Examples
    --------
    >>> check_path("path", 1)
    Traceback (most recent call last):
    unsplit.errors.InputError: path must be the name of a file or folder, got 1; pass a str or Path.
    """
    if not isinstance(value, (str, os.PathLike)):
        raise InputError(
            f"{name} must be the name of a file or folder, got {shown(value)}; pass a str or Path."
        )


def check_type(name: str, value: object, wanted: type, advice: str) -> None:
    """Raise an error unless a parameter is an object of a class.

    Examples
    --------
    >>> check_type("tree", "tree.npz", dict, "pass what unsplit.merge returns")
    Traceback (most recent call last):
    unsplit.errors.InputError: tree must be a dict, got 'tree.npz'; pass what unsplit.merge returns.
    """
    if not isinstance(value, wanted):
        raise InputError(f"{name} must be a {wanted.__name__}, got {shown(value)}; {advice}.")


def numeric_array(name: str, values: Any, n_axes: int) -> np.typing.NDArray[np.float64]:
    """Return finite real numbers as an array with a number of axes, or raise an error.

    Parameters
    ----------
    name : str
        Of the parameter.
    values : array-like
    n_axes : int

    Examples
    --------
    >>> numeric_array("means", [[0, 1]], 2)
    array([[0., 1.]])
    >>> numeric_array("means", [0, 1], 2)
    Traceback (most recent call last):
    unsplit.errors.InputError: means must be an array of numbers with 2 axes, got [0, 1]; ...
    """
    try:
        found = np.asarray(values)
        usable = found.dtype.kind in "fiub" and found.ndim == n_axes and found.size > 0
    except (TypeError, ValueError):  # such as rows of different lengths
        usable = False
    if not usable or not np.isfinite(found).all():
        axes = "one axis" if n_axes == 1 else f"{n_axes} axes"
        raise InputError(
            f"{name} must be an array of numbers with {axes}, got {shown(values)}; pass finite "
            "numbers in rows of one length."
        )
    return found.astype(np.float64)
