"""Which columns of a table are ids, labels, batches and features; and how rows are found by id."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.data.labels import is_gap
from unsplit.data.readers.tables import MOST_CATEGORIES, NUMBER, UNNAMED, Columns, held, listing
from unsplit.data.rows.base import refuse_gaps_in_columns
from unsplit.errors import InputError, InputWarning, SkippedWarning, option, shown, warn

# Names of id columns, most important first; none of them is a feature unless it is asked for.
ID_NAMES = ("id", "row_id", "index", UNNAMED.lower())

# A column of text is a feature with mistakes in it if more than this share of it are numbers.
MOSTLY_NUMBERS = 0.5

_DECIMAL = re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class ColumnChoice:
    """The columns of a table that a person has named.

    Parameters
    ----------
    id : str or None
        The column that names the rows.
    features : tuple of str or None
        The only columns that are features; None means all columns of numbers.
    drop : tuple of str
        Columns that are not features.
    scale : bool
        Whether features are divided by their standard deviations.
    encode : tuple of str
        Columns of categories, which become columns of 0 and 1.
    missing : str or None
        What is done with missing values: "drop", "median", or None for an error.

    Examples
    --------
    >>> ColumnChoice(id="cell", drop=("age",)).features is None
    True
    """

    id: str | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    scale: bool = False
    encode: tuple[str, ...] = ()
    missing: str | None = None

    def __post_init__(self) -> None:
        if self.features is not None and self.drop:
            raise InputError(
                f"{option('features')} and {option('drop')} cannot be combined; name the columns "
                "to use, or the columns to leave out, but not both."
            )

    @property
    def given(self) -> list[str]:
        """The names of the choices that were made."""
        return [name for name, value in vars(self).items() if value]


class Roles(NamedTuple):
    """How the columns of a table are read.

    ``names`` are columns that hold names (ids, labels, batches), which are kept as they are
    written; ``features`` are those that should hold numbers, or categories if they are also among
    ``encode``.
    """

    names: list[str]
    features: list[str]
    encode: Sequence[str] = ()


def assign_roles(
    path: Path, names: Sequence[str], wanted: Sequence[str | None], choice: ColumnChoice
) -> Roles:
    """Decide what each column of a table is.

    ``wanted`` are the labels and the batches: names of columns, or of other files.

    Examples
    --------
    >>> assign_roles(Path("d.csv"), ["id", "x", "y", "c"], ["c"], ColumnChoice(drop=("y",)))
    Roles(names=['id', 'c'], features=['x'], encode=())
    """
    for name in wanted:
        if name is not None and name not in names and not os.path.isfile(name):
            raise InputError(no_column(path, name, names))
    check_choice(path, names, wanted, choice)
    chosen = choice.features
    ids = [n for n in names if n == choice.id or n.lower() in ID_NAMES]
    ids = [n for n in ids if n not in choice.drop and n not in (chosen or ())]
    own = [n for n in names if n in wanted and n not in ids]
    left = [n for n in names if n not in {*ids, *own, *choice.drop}]
    features = left if chosen is None else [n for n in left if n in {*chosen, *choice.encode}]
    if not features:
        raise InputError(
            f"{path} has no feature columns left; {option('drop')} names all of them."
            if choice.drop
            else f"{path} has no feature columns; add columns of numbers."
        )
    return Roles(ids + own, features, tuple(dict.fromkeys(choice.encode)))


def refuse_choice(path: Path, given: Sequence[str]) -> None:
    """Raise an error if something is said of columns where there are none."""
    if given:
        options = " and ".join(map(option, given))
        raise InputError(
            f"{path} is not a table, so it has no columns that {options} could be about; leave "
            f"{options} out."
        )


def check_choice(
    path: Path, names: Sequence[str], wanted: Sequence[str | None], choice: ColumnChoice
) -> None:
    """Raise an error if a choice names columns that do not exist or that have another use.

    Examples
    --------
    >>> check_choice(Path("d.csv"), ["depth", "c"], ["c"], ColumnChoice(features=("dept",)))
    Traceback (most recent call last):
    unsplit.errors.InputError: d.csv has no column 'dept', which features names; ...
    """
    one, features = [choice.id] if choice.id else [], choice.features or ()
    encode = [name for name in choice.encode if name not in features]
    listed = {"id": one, "drop": choice.drop, "features": features, "encode": encode}
    for use, given in listed.items():
        unknown = [name for name in given if name not in names]
        if unknown:
            missing, there_are = ", ".join(map(shown, unknown)), held(names, unknown[0])
            raise InputError(
                f"{path} has no column {missing}, which {option(use)} names; {there_are}."
            )
    uses = [("labels", wanted[:1]), ("batch", wanted[1:]), ("id", one), ("features", features)]
    uses += [("encode", encode), ("drop", [name for name in choice.drop if name in encode])]
    for name in {*one, *features, *encode}:
        twice = [option(use) for use, of in uses if name in of]
        if len(twice) > 1:
            raise InputError(
                f"column {name!r} of {path} is named by {' and '.join(twice)}, but a column can "
                "have only one use; name another column, or leave one of them out."
            )


def no_column(path: Path, name: str, names: Sequence[str]) -> str:
    """Say that neither a column nor a file has this name.

    Examples
    --------
    >>> no_column(Path("d.csv"), "leiden", ["x", "y"])
    "there is no column 'leiden' in d.csv (its columns: 'x', 'y') and no file of that name; ..."
    """
    return (
        f"there is no column {shown(name)} in {path} ({held(names, name)}) and no file of that "
        "name; check the name."
    )


def leave_out_text(
    path: Path, text: Columns, choice: ColumnChoice, any_numbers: bool = True
) -> None:
    """Warn of columns that are not numbers, or raise an error if they should be.

    Parameters
    ----------
    path : Path
        The file, for messages.
    text : dict of str to ndarray of shape (n,)
        The columns; without values if they were not read.
    choice : ColumnChoice
    any_numbers : bool
        Whether there are other columns, which are numbers.

    Examples
    --------
    >>> import numpy as np
    >>> leave_out_text(Path("d.csv"), {"depth": np.array(["1.5", "2", "?"])}, ColumnChoice())
    Traceback (most recent call last):
    unsplit.errors.InputError: column 'depth' of d.csv holds numbers, but also '?' (row 3); ...
    """
    if choice.features is not None and text:
        raise InputError(
            f"{option('features')} names columns of {path} that are not numbers "
            f"({listing(list(text))}); make columns of 0 and 1 of categories with "
            f"{option('encode', list(text)[:1])}, or leave them out."
        )
    for name, values in text.items():
        _refuse_mistakes(path, name, values)
    if not any_numbers:
        raise InputError(
            f"{path} has no feature columns, because {listing(list(text))} do not hold numbers; "
            "add columns of numbers."
        )
    if text:
        n_values = {n: len(set(map(str, v))) for n, v in text.items() if v.dtype.kind in "OU"}
        few = [name for name, number in n_values.items() if 2 <= number <= MOST_CATEGORIES]
        advice = "if they are measurements or dates, write numbers instead, such as days"
        if few:
            advice = f"{option('encode', few[:1])} makes columns of 0 and 1 of categories"
        warn(
            f"left out of {path}: {listing(list(text))}, which do not hold numbers; {advice}.",
            SkippedWarning,
        )


def _refuse_mistakes(path: Path, name: str, values: NDArray[Any]) -> None:
    """Raise an error if a column of text seems to be one of numbers with mistakes in it."""
    given = [(row, v) for row, v in enumerate(values.tolist(), 1) if not is_gap(v)]
    odd = [(row, v) for row, v in given if isinstance(v, str) and not NUMBER.fullmatch(v.strip())]
    n_text = sum(isinstance(v, str) for _, v in given)
    if odd and n_text == len(given) and len(odd) < (1 - MOSTLY_NUMBERS) * len(given):
        row, value = odd[0]
        raise InputError(
            f"column {name!r} of {path} holds numbers, but also {value!r} (row {row:,}); correct "
            f"such values, or leave the column out with {option('drop', [name])}."
        )


def without_gaps(
    path: Path, X: NDArray[Any], names: Sequence[str], missing: str | None
) -> NDArray[np.bool_]:
    """Say which rows have no missing values, or fill them in, or raise an error if there are any.

    Parameters
    ----------
    path : Path
        The file, for messages.
    X : ndarray of shape (n, d)
        Changed if missing values are filled in.
    names : sequence of d str
        Of its columns.
    missing : {"drop", "median"} or None

    Examples
    --------
    >>> import warnings
    >>> X = np.array([[1.0], [3.0], [np.nan], [2.0]])
    >>> with warnings.catch_warnings(action="ignore"):
    ...     without_gaps(Path("d.csv"), X, ["x"], "drop")
    array([ True,  True, False,  True])
    """
    gaps = np.isnan(X)
    n_gaps, kept = gaps.sum(axis=0), np.ones(len(X), bool)
    if missing is None or not n_gaps.any():
        advice = f", or use {option('missing', 'drop')} or {option('missing', 'median')}"
        refuse_gaps_in_columns(X, names, str(path), advice if n_gaps.any() else "")
        return kept
    whole, worst = ~gaps.any(axis=1), int(n_gaps.argmax())
    if n_gaps[worst] == len(X) or (missing == "drop" and not whole.any()):
        raise InputError(
            f"{path} has too many missing values for {option('missing', missing)}, most of them in "
            f"column {names[worst]!r}; leave it out with {option('drop', [names[worst]])}."
        )
    columns = [f"{n_gaps[j]:,} in {names[j]!r}" for j in np.flatnonzero(n_gaps).tolist()]
    where = f"({', '.join(columns[:5])}{', …' if len(columns) > 5 else ''})"
    if missing == "median":
        X[gaps] = np.broadcast_to(np.nanmedian(X, axis=0), X.shape)[gaps]
        said = f"missing values of {path} {where} are filled in with the medians of their columns"
    else:
        kept = whole
        said = (
            f"{(~kept).sum():,} of {len(X):,} rows of {path} have missing values {where} and are "
        )
        said += "left out; results list them as noise (-1)"
    warn(f"{said}.", InputWarning)
    refuse_gaps_in_columns(X[kept], names, str(path))
    return kept


# --- ids of rows ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RowIds:
    """Ids of the rows that labels are matched to.

    Parameters
    ----------
    path : Path
        The file that has the rows, for messages.
    ids : ndarray of shape (n,)
        Integers or strings.
    named : bool
        True if the ids come from the file; False if they only count the rows, so that labels
        with other ids are matched by order.
    column : str or None
        The column that the user named as the one with the ids; a file of labels may have it too.
    """

    path: Path
    ids: NDArray[Any]
    named: bool
    column: str | None = None


def ids_in(
    path: Path, columns: Columns, index: NDArray[Any] | None, chosen: str | None
) -> NDArray[Any] | None:
    """Return the ids in the columns of a file, or None if there are none.

    The column that the user has chosen comes first, then an index that the file keeps apart from
    its columns, then a column with a usual name; but not a first column without a name that only
    counts the rows from zero, as pandas writes it.
    """
    if chosen in columns:
        return _checked_ids(path, chosen, columns[chosen], chosen=True)
    if index is not None:
        return _checked_ids(path, "index", index)
    for usual in ID_NAMES:
        for name, values in columns.items():
            counts = name == UNNAMED and np.array_equal(values, np.arange(len(values)))
            if name.lower() == usual and not counts:
                return _checked_ids(path, name, values)
    return None


def _checked_ids(path: Path, name: str, values: NDArray[Any], chosen: bool = False) -> NDArray[Any]:
    """Return ids as integers or strings; raise if they are not unique or not whole numbers."""
    if values.dtype.kind == "f" and np.array_equal(values, np.rint(values)):
        values = values.astype(np.int64)
    texts = ["nan" if value is None else str(value) for value in values]
    repeated = [text for text, times in Counter(texts).items() if times > 1]
    wrong = ""
    if "nan" in texts:
        wrong = "some are missing"
    elif texts and all(_DECIMAL.fullmatch(text) for text in texts):
        wrong = f"{texts[0]} is not a whole number"
    elif repeated:
        wrong = f"{repeated[0]!r} occurs more than once"
    if wrong:
        advice = "remove the column, or rename it if it is a feature"
        if chosen:
            advice = "name a column with a different value in every row"
        raise InputError(f"column {name!r} of {path} should hold row ids, but {wrong}; {advice}.")
    return values if values.dtype.kind in "iu" else np.array(texts)


def places_of(wanted: NDArray[Any], ids: NDArray[Any]) -> tuple[Index, list[str]]:
    """Find rows by id as text: the place of each wanted id, or −1, and those that have none.

    Examples
    --------
    >>> places_of(np.array([7, 9]), np.array(["8", "7"]))
    (array([ 1, -1]), ['9'])
    """
    place = {str(value): i for i, value in enumerate(ids.tolist())}
    names = [str(value) for value in wanted.tolist()]
    lacking = [name for name in names if name not in place]
    return np.array([place.get(name, -1) for name in names], np.int64), lacking
