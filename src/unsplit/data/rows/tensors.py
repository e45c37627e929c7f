"""Observations of one shape in an array: in memory, on the GPU or mapped from disk."""

import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.rows.base import (
    CHUNK_ELEMENTS,
    Rows,
    as_array,
    channel_moments,
    evenly,
    gathered,
    is_mapped,
    keys_of_bytes,
    parts_of,
    prefetched,
    require_kind,
    require_numbers,
)
from unsplit.errors import InputError

# Share of the device's free memory that data may take.
SHARE_FOR_DATA = 0.4


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
        self, values: Any, kind: str, device: torch.device, origin: NDArray[Any] | None = None
    ) -> None:
        self.values = values
        self.kind = kind
        self.device = device
        self.on_device: Tensor | None = None
        if origin is not None:
            self.origin = origin
        if not is_mapped(values) and self._fits():
            self.on_device = torch.from_numpy(self._stored(values)).to(device)

    @classmethod
    def of(cls, X: Any, kind: str, device: torch.device) -> Self:
        """Check X, in any layout, and wrap it without copying it."""
        return cls(_checked(X, kind), kind, device)

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def take(self, index: Tensor) -> Tensor:
        """Return the observations at ``index`` as a network gets them."""
        places = index.ravel()
        if self.on_device is None:
            stored = self._fetched(places).to(self.device)
        else:
            stored = self.on_device[places]
        return self._formed(stored).unflatten(0, index.shape)

    def stream(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield what ``take`` returns for each of the batches, in order."""
        batches = list(batches)
        ready = self._batches([index.ravel() for index in batches])
        for index, stored in zip(batches, ready, strict=True):
            yield self._formed(stored).unflatten(0, index.shape)

    def _batches(self, places: list[Tensor]) -> Iterator[Tensor]:
        """The observations of each batch as they are stored, on the device."""
        if self.on_device is not None:
            return map(self.on_device.__getitem__, places)
        return prefetched(self._fetched, places, self.device)

    def _fetched(self, places: Tensor) -> Tensor:
        return torch.from_numpy(self._stored(gathered(self.values, places.cpu().numpy())))

    def _formed(self, stored: Tensor) -> Tensor:
        """Observations (b, …) as a network gets them."""
        if self.kind == "images":
            return stored.movedim(-1, 1)
        if self.kind == "sequences":
            channels = stored.float().movedim(-1, 1)
            return torch.cat([channels, torch.ones_like(channels[:, :1])], 1)
        return stored.float()

    @cached_property
    def origin(self) -> NDArray[Any]:
        """What is subtracted from every channel before values become float32.

        Map coordinates, for example, have a large common offset, which would use up the digits.
        """
        if np.can_cast(self.values.dtype, np.float32):
            return np.zeros(1)
        return middle_of(self.values[np.argmin(self.keys)])

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
        return self._n_bytes() <= SHARE_FOR_DATA * torch.cuda.mem_get_info(self.device)[0]

    def _n_bytes(self) -> int:
        """Bytes that all observations take as they are stored."""
        return int(self.values.size * self._stored(self.values[:0]).dtype.itemsize)

    def moments(self, index: Index) -> tuple[Tensor, Tensor]:
        """Return mean and scale of channels over some of the rows; clouds have one scale."""
        some = index if self.kind == "vectors" else evenly(index)
        places = [
            torch.from_numpy(part.copy()) for part in parts_of(some, self._width(), CHUNK_ELEMENTS)
        ]
        mean, scale = channel_moments((x.cpu().numpy() for x in self._batches(places)), self.kind)
        return mean.to(self.device), scale.to(self.device)

    def _width(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """A hash of every observation's bytes."""
        return keys_of_bytes(self.values)

    def first(self, n: int) -> Self:
        """Return the first n observations, without the others."""
        return self._with(np.array(self.values[:n]))

    def another(self, X: Any) -> Self:
        """Wrap new observations of the same kind and shape."""
        new = self._with(_checked(X, self.kind))
        require_like(new, self)
        return new

    def _with(self, values: Any) -> Self:
        return type(self)(values, self.kind, self.device, self.origin)


def middle_of(item: NDArray[Any]) -> NDArray[np.float64]:
    """Mean of every channel of one observation."""
    found: NDArray[np.float64] = item.reshape(-1, item.shape[-1]).mean(axis=0, dtype=np.float64)
    return found


def require_like(new: Rows, old: Rows) -> None:
    """Raise an error if new observations have another shape; sequences may differ in length."""
    n_axes = 1 if old.kind == "sequences" else len(old.shape)
    if new.shape[:n_axes] != old.shape[:n_axes]:
        raise InputError(
            f"X has observations of shape {new.shape}, but the network was trained on shape "
            f"{old.shape}; pass observations of that shape."
        )


def as_stored(values: Any, kind: str) -> Any:
    """Return an array or tensor in the axis order in which it is stored, without copying it.

    Examples
    --------
    >>> as_stored(np.zeros((5, 3, 8, 9)), "images").shape
    (5, 8, 9, 3)
    >>> as_stored(np.zeros((5, 100)), "sequences").shape
    (5, 100, 1)
    """
    if (kind, values.ndim) in (("sequences", 2), ("images", 3)):
        return values[..., None]
    if kind == "images" and values.shape[-1] > 4 and values.shape[1] < values.shape[-1]:
        return values.swapaxes(1, 2).swapaxes(2, 3)
    return values


def _checked(X: Any, kind: str) -> NDArray[Any]:
    """Return X as an array of numbers that float32 can hold, in the stored axis order."""
    values = as_array(X)
    require_kind(kind, values.shape)
    require_numbers(values)
    if values.dtype.kind == "f":
        _refuse_gaps(values)
    return as_stored(values, kind)


def _refuse_gaps(values: NDArray[Any]) -> None:
    for part in parts_of(np.arange(len(values)), math.prod(values.shape[1:]), CHUNK_ELEMENTS):
        with np.errstate(over="ignore"):
            narrow = values[part[0] : part[-1] + 1].astype(np.float32, copy=False)
        bad = ~np.isfinite(narrow).reshape(len(part), -1).all(axis=1)
        if bad.any():
            raise InputError(
                f"observation {part[np.argmax(bad)]} of X has values that are NaN, infinite or "
                "beyond single precision; remove such observations or fill in the values first."
            )
