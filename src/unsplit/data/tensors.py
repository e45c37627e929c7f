"""Arrays of any shape, in memory, on the GPU or mapped from disk: images, clouds, sequences."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsplit.data.base import Rows, evenly, never_zero
from unsplit.data.hashing import keys_of_bytes
from unsplit.data.prefetching import prefetched
from unsplit.errors import InputError
from unsplit.sampling import Index

# What of the GPU's free memory data may take.
SHARE_FOR_DATA = 0.4


class TensorRows(Rows):
    """An array whose first axis is observations.

    Images are stored (n, H, W, C), the order in which networks are fastest, and handed out
    (b, C, H, W), bytes as bytes; clouds are (n, p, 3 + features), sequences (n, L, C).  What fits
    lies on the device; what does not stays where it is, and batches are fetched ahead.
    """

    def __init__(self, values: NDArray[Any], kind: str, device: torch.device) -> None:
        self.values = values
        self.kind = kind
        self.device = device
        self.on_device = None
        if not isinstance(_root(values), np.memmap) and _fits(values, device):
            self.on_device = torch.from_numpy(_storable(values)).to(device)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: Tensor) -> Tensor:
        """Observations at ``index`` as a network gets them."""
        if self.on_device is not None:
            return self._formed(self.on_device[index], len(index.shape))
        return self._formed(self._fetched(index).to(self.device), len(index.shape))

    def stream(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """What ``take`` gives for each of the batches, in their order."""
        if self.on_device is not None:
            yield from super().stream(batches)
            return
        sizes: list[int] = []

        def fetch(index: Tensor) -> Tensor:
            sizes.append(index.ndim)
            return self._fetched(index)

        for stored in prefetched(fetch, batches, self.device):
            yield self._formed(stored, sizes.pop(0))

    def _fetched(self, index: Tensor) -> Tensor:
        place = index.cpu().numpy()
        # In increasing order, which a disk likes better.
        order = np.argsort(place.ravel(), kind="stable")
        found = np.empty((place.size, *self.values.shape[1:]), _storable(self.values[:0]).dtype)
        found[order] = self.values[place.ravel()[order]]
        return torch.from_numpy(found).unflatten(0, place.shape)

    def _formed(self, stored: Tensor, n_axes: int) -> Tensor:
        if self.kind == "images":
            return stored.movedim(-1, n_axes)
        if self.kind == "sequences":
            channels = stored.float().movedim(-1, n_axes)
            return torch.cat([channels, torch.ones_like(channels.narrow(n_axes, 0, 1))], n_axes)
        return stored.float()

    def moments(self, index: Index) -> tuple[Tensor, Tensor]:
        """Mean and scale of channels; clouds have one scale, so that their shape stays."""
        some = np.asarray(self.values[evenly(index)]).astype(np.float64)
        axes = tuple(range(some.ndim - 1))
        mean, scale = some.mean(axes), some.std(axes)
        if self.kind == "points":
            mean[3:], scale[:3] = 0.0, np.sqrt((scale[:3] ** 2).mean())
            scale[3:] = np.where(scale[3:] > 0, scale[3:], 1.0)
        if self.kind == "sequences":
            mean, scale = np.append(mean, 0.0), np.append(scale, 1.0)
        tensors = (torch.from_numpy(v).float().to(self.device) for v in (mean, scale))
        extra = {"images": (1, 1), "sequences": (1,)}.get(self.kind, ())
        mean_, scale_ = (t.reshape(*t.shape, *extra) for t in tensors)
        return mean_, never_zero(scale_)

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """A hash of every observation's bytes."""
        return keys_of_bytes(self.values)

    def first(self, n: int) -> Self:
        """The first n observations."""
        return type(self)(self.values[:n], self.kind, self.device)

    def another(self, X: Any) -> Self:
        """New observations of the same kind and shape."""
        values = as_stored(np.asarray(X), self.kind)
        if values.shape[1:] != self.values.shape[1:]:
            raise InputError(
                f"X has observations of shape {values.shape[1:]}, but {self.values.shape[1:]} were "
                "fitted; pass the same kind of data."
            )
        return type(self)(values, self.kind, self.device)


def as_stored(values: NDArray[Any], kind: str) -> NDArray[Any]:
    """An array in the order in which it is stored, without copying it.

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


def _storable(values: NDArray[Any]) -> NDArray[Any]:
    """Bytes as bytes, everything else as float32 or, if it is that already, float16."""
    if values.dtype in (np.uint8, np.bool_):
        return np.ascontiguousarray(values, np.uint8)
    kept = np.float16 if values.dtype == np.float16 else np.float32
    return np.ascontiguousarray(values, kept)


def _root(values: NDArray[Any]) -> Any:
    """The array that a view looks into."""
    while isinstance(values.base, np.ndarray) and not isinstance(values, np.memmap):
        values = values.base
    return values


def _fits(values: NDArray[Any], device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    size = values.size * _storable(values[:0]).dtype.itemsize
    return size <= SHARE_FOR_DATA * torch.cuda.mem_get_info(device)[0]
