"""pandas objects, where pandas is installed: tables of results, and the index of inputs."""

from collections.abc import Mapping
from typing import Any

from unsplit.errors import InputError


def data_frame(columns: Mapping[str, Any], method: str, without: str) -> Any:
    """Make a pandas DataFrame of columns of the same length.

    Parameters
    ----------
    columns : mapping from str to sequence
    method : str
        What the user called, for the message if pandas is missing.
    without : str
        What the user can call instead, which needs no pandas.

    Returns
    -------
    pandas.DataFrame

    Examples
    --------
    >>> data_frame({"cluster": ["a", "b"], "size": [3, 4]}, "to_frame", "table").shape
    (2, 2)
    """
    try:
        import pandas as pd
    except ImportError:
        raise ImportError(
            f"{method} needs pandas: pip install unsplit[tables], or call {without}(), which "
            "returns the same columns without pandas."
        ) from None
    return pd.DataFrame(columns)


def refuse_other_order(X: Any, **others: Any) -> None:
    """Raise an error if something has the same pandas index as X, but in another order.

    Values are matched by position, as in scikit-learn, and would belong to other rows.

    Parameters
    ----------
    X : object
        Compared only if it is a pandas object.
    **others : object
        What belongs to the rows of X, by the name of the parameter.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"x": [1.5, 2.5]}, index=["a", "b"])
    >>> refuse_other_order(X, labels=pd.Series([7, 8], index=["a", "b"]))
    >>> refuse_other_order(X, labels=pd.Series([8, 7], index=["b", "a"]))
    Traceback (most recent call last):
    unsplit.errors.InputError: labels has the index of X in another order; pass labels.loc[X.index].
    """
    if not hasattr(X, "iloc"):
        return
    for name, other in others.items():
        if not hasattr(other, "iloc") or X.index.equals(other.index):
            continue
        known = X.index.is_unique and other.index.is_unique and len(X.index) == len(other.index)
        if known and other.index.isin(X.index).all():
            raise InputError(
                f"{name} has the index of X in another order; pass {name}.loc[X.index]."
            )


def like(values: Any, given: Any, name: str) -> Any:
    """Return values as a pandas Series with the index of what was given, if that is a Series.

    Parameters
    ----------
    values : ndarray of shape (n,)
    given : object
    name : str
        The name of the Series.

    Examples
    --------
    >>> import pandas as pd
    >>> like([0, 1], pd.Series(["u", "v"], index=["a", "b"]), "cluster").to_dict()
    {'a': 0, 'b': 1}
    >>> like([0, 1], ["u", "v"], "cluster")
    [0, 1]
    """
    if not hasattr(given, "iloc") or getattr(given, "ndim", 0) != 1:
        return values
    return type(given)(values, index=given.index, name=name)
