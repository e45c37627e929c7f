"""Which kind of data an array holds, judged by its shape."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unsplit.errors import InputError

# With fewer points, an array is more likely a sequence of three channels.
LEAST_POINTS = 8

SHAPES = {
    "vectors": "(n, d)",
    "images": "(n, h, w) or (n, h, w, c)",
    "points": "(n, points, 3)",
    "sequences": "(n, length) or (n, length, channels)",
}


def as_array(X: Any) -> NDArray[Any]:
    """Return X as an array; an array that is mapped from disk stays mapped.

    Parameters
    ----------
    X : array-like or Tensor

    Examples
    --------
    >>> as_array(torch.ones(2, dtype=torch.bfloat16))
    array([1., 1.], dtype=float32)
    """
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu()
        return (X.float() if X.dtype == torch.bfloat16 else X).numpy()
    if isinstance(X, np.ndarray):
        return X
    try:
        return np.asarray(X)
    except ValueError:
        raise InputError(
            "the observations in X differ in shape; give all of them the same shape."
        ) from None


def kind_of(shape: tuple[int, ...], dtype: Any) -> str:
    """Return which kind of data an array of this shape (n, …) most likely holds.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype or type
        Bytes and booleans of three axes are images, other numbers sequences.

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
        f"X has the unsupported shape {shape}; reshape it to vectors (n, d), images (n, h, w) or "
        "(n, h, w, c), point clouds (n, points, 3) or sequences (n, length, channels)."
    )


def require_kind(kind: str, shape: tuple[int, ...]) -> None:
    """Raise an error if a shape (n, …) cannot hold this kind of observations.

    Parameters
    ----------
    kind : str
        "vectors", "images", "points" or "sequences".
    shape : tuple of int

    Examples
    --------
    >>> require_kind("points", (100, 1024, 2))
    Traceback (most recent call last):
    unsplit.errors.InputError: points must have shape (n, points, 3), got (100, 1024, 2); ...
    """
    n_axes = {"vectors": (2,), "images": (3, 4), "points": (3,), "sequences": (2, 3)}[kind]
    if len(shape) not in n_axes or (kind == "points" and shape[2] < 3):
        raise InputError(f"{kind} must have shape {SHAPES[kind]}, got {shape}; reshape X.")
