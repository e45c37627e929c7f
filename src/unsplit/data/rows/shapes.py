"""What an array can hold by its shape."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unsplit.errors import InputError

# A cloud of fewer points is more likely a table of three columns.
LEAST_POINTS = 8

SHAPES = {
    "vectors": "(n, d)",
    "images": "(n, h, w) or (n, h, w, c)",
    "points": "(n, points, 3)",
    "sequences": "(n, length) or (n, length, channels)",
}


def as_array(X: Any) -> NDArray[Any]:
    """X as an array; one that is mapped from disk stays so.

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
            "the observations in X differ in shape; give all of them the same."
        ) from None


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


def require_kind(kind: str, shape: tuple[int, ...]) -> None:
    """Refuse a shape (n, …) that cannot hold this kind of observations.

    Examples
    --------
    >>> require_kind("points", (100, 1024, 2))
    Traceback (most recent call last):
    unsplit.errors.InputError: points must have shape (n, points, 3), got (100, 1024, 2); ...
    """
    n_axes = {"vectors": (2,), "images": (3, 4), "points": (3,), "sequences": (2, 3)}[kind]
    if len(shape) not in n_axes or (kind == "points" and shape[2] < 3):
        raise InputError(f"{kind} must have shape {SHAPES[kind]}, got {shape}; reshape X.")
