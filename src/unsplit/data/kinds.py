"""What kind of data is this?"""

from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from unsplit.data.arrays import CountRows, VectorRows, numeric_matrix
from unsplit.data.audio import Audio
from unsplit.data.base import Rows
from unsplit.data.ragged import Ragged
from unsplit.data.sequences import RaggedRows
from unsplit.data.streams import DatasetRows
from unsplit.data.tensors import TensorRows, as_stored
from unsplit.errors import InputError

# A cloud of fewer points is more likely a table of three columns.
LEAST_POINTS = 8


def observations(X: Any, device: torch.device, kind: str | None = None) -> Rows:
    """Observations of any type as rows that a network can take.

    Parameters
    ----------
    X : array-like, SciPy sparse matrix, list of sequences, torch Dataset or Rows
    device : torch.device
    kind : str, optional
        What they are; otherwise :func:`kind_of` decides.

    Examples
    --------
    >>> observations(np.zeros((5, 8, 8), np.uint8), torch.device("cpu")).kind
    'images'
    """
    if isinstance(X, Rows):
        return X
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
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
            f"clouds differ in their number of points ({sizes[0]} to {sizes[-1]}); take as many "
            "points from each."
        )
    if isinstance(X, Ragged) or differ_in_length(X):
        return RaggedRows(X if isinstance(X, Ragged) else Ragged.of(X), device)
    if not hasattr(X, "__array__"):
        X = np.asarray(X)
    # A memory-mapped array stays one; a table keeps its own checks.
    values = X if isinstance(X, np.ndarray) else None
    if values is None or values.ndim <= 2:
        return _from_table(X, device, kind)
    return _from_array(values, device, kind or kind_of(values.shape, values.dtype))


def kind_of(shape: tuple[int, ...], dtype: Any) -> str:
    """What an array of this shape (n, …) most probably holds.

    Examples
    --------
    >>> kind_of((100, 1024, 3), np.float32), kind_of((100, 64, 64, 3), np.uint8)
    ('points', 'images')
    >>> kind_of((100, 28, 28), np.uint8), kind_of((100, 500, 6), np.float32)
    ('images', 'sequences')
    """
    if len(shape) == 2:
        return "vectors"
    if len(shape) == 4:
        return "images"
    if len(shape) == 3 and shape[2] == 3 and shape[1] >= LEAST_POINTS:
        return "points"
    if len(shape) == 3:
        return "images" if np.dtype(dtype) in (np.uint8, np.bool_) else "sequences"
    raise InputError(
        f"an array of shape {shape} is none of: vectors (n, d), images (n, h, w) or (n, h, w, c), "
        "clouds (n, points, 3), sequences (n, length, channels); reshape it."
    )


def _from_table(X: Any, device: torch.device, kind: str | None) -> Rows:
    matrix = numeric_matrix(X)
    if kind == "sequences":
        return TensorRows(as_stored(matrix, kind), kind, device)
    if kind == "counts":
        return CountRows(numeric_matrix(scipy.sparse.csr_array(matrix)), device)
    if kind in ("images", "points"):
        raise InputError(f"X of shape {matrix.shape} does not hold {kind}; reshape it.")
    return VectorRows(matrix, device)


def _from_array(values: NDArray[Any], device: torch.device, kind: str) -> Rows:
    if 0 in values.shape:
        raise InputError(f"X is empty (shape {values.shape}); pass at least two observations.")
    if values.dtype.kind not in "fiub":
        raise InputError(f"X must hold numbers, got values of type {values.dtype}.")
    if kind in ("vectors", "counts"):
        return _from_table(values.reshape(len(values), -1), device, kind)
    if kind == "points" and values.shape[-1] < 3:
        raise InputError(
            f"clouds must have shape (n, points, 3), got {values.shape}; add a third coordinate."
        )
    _refuse_gaps(values)
    return TensorRows(as_stored(values, kind), kind, device)


def _refuse_gaps(values: NDArray[Any]) -> None:
    if values.dtype.kind != "f":
        return
    step = max(1, 2**24 // int(np.prod(values.shape[1:])))
    for start in range(0, len(values), step):
        chunk = values[start : start + step]
        bad = ~np.isfinite(chunk).reshape(len(chunk), -1).all(axis=1)
        if bad.any():
            raise InputError(
                f"observation {start + int(np.argmax(bad))} of X has values that are NaN or "
                "infinite; remove such observations or fill in the values first."
            )


def differ_in_length(X: Any) -> bool:
    """Whether X is a list of sequences that do not fit into one array."""
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1:
        X = list(X)
    if not isinstance(X, (list, tuple)) or not X:
        return False
    shapes = {np.shape(x) for x in X} if all(hasattr(x, "__len__") for x in X) else set()
    return len(shapes) > 1
