"""Arrays of any shape, in memory, on the GPU or mapped from disk: images, clouds, sequences."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.rows.base import (
    Rows,
    as_array,
    channel_moments,
    evenly,
    is_mapped,
    keys_of_bytes,
    require_kind,
)
from unsplit.data.rows.prefetching import prefetched
from unsplit.errors import InputError

# Share of the GPU's free memory that data may take.
SHARE_FOR_DATA = 0.4

CHUNK_ELEMENTS = 2**22


class TensorRows(Rows):
    """An array whose first axis is observations, made and checked by :meth:`of`.

    Images are stored (n, H, W, C), the order in which networks are fastest, and handed out
    (b, C, H, W), bytes as bytes; clouds are (n, p, 3 + features), sequences (n, L, C).  An array
    that fits is copied to the device; a larger one stays where it is, and batches are fetched
    ahead.

    Examples
    --------
    >>> rows = TensorRows.of(np.zeros((5, 8, 8), np.uint8), "images", torch.device("cpu"))
    >>> rows.take(torch.tensor([0, 3])).shape
    torch.Size([2, 1, 8, 8])
    """

    def __init__(
        self,
        values: NDArray[Any],
        kind: str,
        device: torch.device,
        origin: NDArray[np.float64] | None = None,
    ) -> None:
        self.values = values
        self.kind = kind
        self.device = device
        self.origin = self._own_origin() if origin is None else origin
        self.on_device = None
        if not is_mapped(values) and self._fits():
            self.on_device = torch.from_numpy(self._stored(values)).to(device)

    @classmethod
    def of(cls, X: Any, kind: str, device: torch.device) -> Self:
        """Check X, in any layout, and wrap it without copying it."""
        return cls(_checked(X, kind), kind, device)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: Tensor) -> Tensor:
        """Return the observations at ``index`` as a network gets them."""
        if self.on_device is not None:
            return self._formed(self.on_device[index])
        return self._formed(self._fetched(index).to(self.device))

    def stream(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield what ``take`` returns for each of the batches, in order."""
        if self.on_device is not None:
            return super().stream(batches)
        return map(self._formed, prefetched(self._fetched, batches, self.device))

    def _fetched(self, index: Tensor) -> Tensor:
        # Each once and in increasing order, which is faster on a disk.
        places, where = np.unique(index.cpu().numpy().ravel(), return_inverse=True)
        found = torch.from_numpy(self._stored(self.values[places]))
        return found[torch.from_numpy(where)].unflatten(0, index.shape)

    def _formed(self, stored: Tensor) -> Tensor:
        n_axes = stored.ndim - self.values.ndim + 1  # of the index
        if self.kind == "images":
            return stored.movedim(-1, n_axes)
        if self.kind == "sequences":
            channels = stored.float().movedim(-1, n_axes)
            return torch.cat([channels, torch.ones_like(channels.narrow(n_axes, 0, 1))], n_axes)
        return stored.float()

    def _own_origin(self) -> NDArray[np.float64]:
        """Return what is subtracted from every channel before values become float32."""
        if np.can_cast(self.values.dtype, np.float32):
            return np.zeros(1)
        # Map coordinates, for example, have a large common offset.
        one = self.values[np.argmin(self.keys)]
        return one.reshape(-1, one.shape[-1]).mean(axis=0, dtype=np.float64)

    def _stored(self, values: NDArray[Any]) -> NDArray[Any]:
        """Keep bytes and float16 as they are; subtract the origin from others, as float32."""
        if self.origin.any():
            out = np.empty(values.shape, np.float32)
            return np.subtract(values, self.origin, out, dtype=np.float64, casting="same_kind")
        kept: Any = np.float16 if values.dtype == np.float16 else np.float32
        if values.dtype in (np.uint8, np.bool_):
            kept = np.uint8
        # Writable, because torch warns about read-only arrays.
        return np.require(values, kept, ["C", "W"])

    def _fits(self) -> bool:
        if self.device.type != "cuda":
            return True
        size = self.values.size * self._stored(self.values[:0]).dtype.itemsize
        return size <= SHARE_FOR_DATA * torch.cuda.mem_get_info(self.device)[0]

    def moments(self, index: Index) -> tuple[Tensor, Tensor]:
        """Return mean and scale of channels over some of the rows; clouds have one scale."""
        chunks = _chunks(evenly(index), self.values.shape)
        parts = (self.values[chunk] - self.origin for chunk in chunks)
        mean, scale = channel_moments(parts, self.kind)
        return mean.to(self.device), scale.to(self.device)

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """A hash of every observation's bytes."""
        return keys_of_bytes(self.values)

    def first(self, n: int) -> Self:
        """Return the first n observations, without the others."""
        return type(self)(np.array(self.values[:n]), self.kind, self.device, self.origin)

    def another(self, X: Any) -> Self:
        """Wrap new observations of the same kind and shape."""
        values = _checked(X, self.kind)
        if values.shape[1:] != self.values.shape[1:]:
            raise InputError(
                f"X has observations of shape {values.shape[1:]}, but the network was trained on "
                f"shape {self.values.shape[1:]}; pass observations of that shape."
            )
        return type(self)(values, self.kind, self.device, self.origin)


def as_stored(values: NDArray[Any], kind: str) -> NDArray[Any]:
    """Return an array in the axis order in which it is stored, without copying it.

    Parameters
    ----------
    values : ndarray of shape (n, …)
    kind : str

    Examples
    --------
    >>> as_stored(np.zeros((5, 3, 8, 9)), "images").shape
    (5, 8, 9, 3)
    >>> as_stored(np.zeros((5, 100)), "sequences").shape
    (5, 100, 1)
    """
    if kind == "sequences" and values.ndim == 2:
        return values[:, :, None]
    if kind == "images" and values.ndim == 3:
        return values[:, :, :, None]
    if kind == "images" and values.shape[-1] > 4 and values.shape[1] < values.shape[-1]:
        return np.moveaxis(values, 1, -1)
    return values


def _checked(X: Any, kind: str) -> NDArray[Any]:
    """Return X as an array of numbers that float32 can hold, in the stored axis order."""
    values = as_array(X)
    require_kind(kind, values.shape)
    if 0 in values.shape:
        raise InputError(f"X is empty (shape {values.shape}); pass at least two observations.")
    if values.dtype.kind not in "fiub":
        raise InputError(
            f"X must hold numbers, got values of type {values.dtype}; encode them as numbers first."
        )
    if values.dtype.kind == "f":
        for chunk in _chunks(np.arange(len(values)), values.shape):
            _refuse_gaps(values[chunk[0] : chunk[-1] + 1], int(chunk[0]))
    return as_stored(values, kind)


def _refuse_gaps(values: NDArray[Any], start: int) -> None:
    with np.errstate(over="ignore"):
        narrow = values.reshape(len(values), -1).astype(np.float32, copy=False)
    bad = ~np.isfinite(narrow).all(axis=1)
    if bad.any():
        raise InputError(
            f"observation {start + int(np.argmax(bad))} of X has values that are NaN, infinite or "
            "beyond single precision; remove such observations or fill in the values first."
        )


def _chunks(index: Index, shape: tuple[int, ...]) -> list[Index]:
    """Split the index into parts, so that the rows of each fit easily into memory."""
    step = max(1, CHUNK_ELEMENTS // int(np.prod(shape[1:])))
    return np.split(index, range(step, len(index), step))
