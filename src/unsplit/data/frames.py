"""Columns as a pandas DataFrame, where pandas is installed."""

from collections.abc import Mapping
from typing import Any


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
