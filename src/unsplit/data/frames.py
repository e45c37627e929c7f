"""What other packages keep data in: pandas' frames, and containers that are no arrays."""

from collections.abc import Mapping
from typing import Any

from unsplit.errors import InputError

# Classes by package and name, because none of these packages needs to be installed.  NumPy would
# take such an object for a sequence and read it cell by cell, without an end in sight.
INSTEAD = {
    ("anndata", "AnnData"): "write unsplit.anndata.merge(adata, groupby='leiden') to merge its "
    "clusters, or pass one of its arrays, such as adata.obsm['X_pca']",
    ("anndata", "Raw"): "pass its matrix, adata.raw.X",
    ("anndata", "BaseCompressedSparseDataset"): "read it into memory first with X.to_memory()",
    ("mudata", "MuData"): "write unsplit.anndata.merge(mdata.mod['rna'], groupby='leiden'), with "
    "the name of one of its modalities",
    ("spatialdata", "SpatialData"): "write unsplit.anndata.merge(sdata.tables['table'], "
    "groupby='leiden'), with the name of one of its tables",
}


def refuse_annotated(X: Any, name: str = "X") -> None:
    """Raise an error if X is an AnnData or a similar container, which is not an array.

    Parameters
    ----------
    X : object
    name : str
        The parameter's name, for the message.

    Examples
    --------
    >>> refuse_annotated([[1.0, 2.0]])
    >>> class AnnData:
    ...     __module__ = "anndata"
    >>> refuse_annotated(AnnData())
    Traceback (most recent call last):
    unsplit.errors.InputError: X is an AnnData, not an array; write unsplit.anndata.merge(adata, ...
    """
    for base in type(X).__mro__[:-1]:
        advice = INSTEAD.get((base.__module__.split(".")[0], base.__name__))
        if advice is not None:
            kind = type(X).__name__.lstrip("_")
            article = "an" if kind[0] in "AEIOU" else "a"
            raise InputError(f"{name} is {article} {kind}, not an array; {advice}.")


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
