"""Choose the rows that fit observations of any type."""

from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch.utils.data import Dataset

from unsplit.data.rows.base import Rows, as_array, kind_of
from unsplit.data.rows.datasets import DatasetRows
from unsplit.data.rows.ragged import Ragged
from unsplit.data.rows.sequences import Audio, RaggedRows
from unsplit.data.rows.tensors import TensorRows
from unsplit.data.rows.vectors import CountRows, VectorRows, flat, numeric_matrix
from unsplit.errors import InputError


def observations(X: Any, device: torch.device, kind: str | None = None) -> Rows:
    """Wrap observations of any type as rows that a network can take.

    Parameters
    ----------
    X : array-like, SciPy sparse matrix, list of sequences, Audio, torch Dataset or Rows
    device : torch.device
    kind : str, optional
        What they are, such as "images"; if None,
        :func:`unsplit.data.rows.base.kind_of` decides.

    Examples
    --------
    >>> observations(np.zeros((5, 8, 8), np.uint8), torch.device("cpu")).kind
    'images'
    """
    if isinstance(X, Rows):
        return X
    if isinstance(X, Dataset):
        return DatasetRows.of(X, device, kind)
    if scipy.sparse.issparse(X):
        rows = CountRows if kind in (None, "counts") else VectorRows
        return rows(numeric_matrix(X), device)
    if isinstance(X, Audio):
        return RaggedRows(X.sounds, device, X.rate)
    if kind == "points" and differ_in_length(X):
        sizes = sorted({len(cloud) for cloud in X})
        raise InputError(
            f"point clouds differ in their number of points ({sizes[0]} to {sizes[-1]}); take the "
            "same number of points from each."
        )
    if isinstance(X, Ragged) or differ_in_length(X):
        return RaggedRows(X if isinstance(X, Ragged) else Ragged.of(X), device)
    values = as_array(list(X) if _is_list(X) else X)
    if kind is None and values.ndim > 2:
        kind = kind_of(values.shape, values.dtype)
    if kind in ("images", "points", "sequences"):
        return TensorRows.of(values, kind, device)
    matrix = numeric_matrix(flat(values))
    if kind == "counts":
        return CountRows(numeric_matrix(scipy.sparse.csr_array(matrix)), device)
    return VectorRows(matrix, device)


def differ_in_length(X: Any) -> bool:
    """Return whether X is a list of sequences that do not fit into one array.

    Parameters
    ----------
    X : object
        Only a list, a tuple or a 1-D object array can hold such sequences.

    Examples
    --------
    >>> differ_in_length([[1, 2], [3]]), differ_in_length([[1, 2], [3, 4]])
    (True, False)
    """
    if not _is_list(X) or not all(hasattr(x, "__len__") for x in X):
        return False
    try:
        return len({np.shape(x) for x in X}) > 1
    except ValueError:  # one of the sequences is itself irregular
        return True


def _is_list(X: Any) -> bool:
    """Return whether X is a list, or a 1-D object array of sequences."""
    return isinstance(X, (list, tuple)) or (
        isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1
    )
