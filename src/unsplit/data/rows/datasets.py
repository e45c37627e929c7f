"""Any torch Dataset as observations, decoded in worker processes while a network trains."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.memory import available_memory
from unsplit.data.rows.base import LOOKED_AT, Rows, channel_moments, evenly, kind_of, require_kind
from unsplit.data.rows.ragged import FAR
from unsplit.data.rows.tensors import SHARE_FOR_DATA
from unsplit.data.rows.workers import Decoder
from unsplit.errors import InputError

BATCH = 256

# The most bytes of decoded items to keep in main memory: thousands of photographs, which would
# take longer to decode in every epoch than a small network takes to learn from them.
KEPT_ON_CPU = 2**29

# Types of pixels that a network can standardise without conversion.
PIXELS = (torch.uint8, torch.float16, torch.float32)


# Types with numbers that float32 cannot hold, and a size from which it rounds to more than 1/1000.
WIDE = (torch.float64, torch.int64, torch.int32)
FAR_VALUE = 2.0**13


class DatasetRows(Rows):
    """Items of a Dataset: images (C, H, W), clouds (p, 3), sequences (L, C) or vectors (d,).

    On a GPU, items that fit into its memory are read once and kept there, bytes as bytes; on a CPU,
    so are items of up to 512 MiB.  Otherwise nothing is kept: items are read again in every epoch,
    and memory does not grow with their number.

    Examples
    --------
    >>> rows = DatasetRows.of([torch.zeros(3, 8, 8)] * 5, torch.device("cpu"))
    >>> len(rows), rows.kind, rows.shape
    (5, 'images', (3, 8, 8))
    """

    def __init__(
        self, dataset: Any, kind: str, device: torch.device, origin: Tensor | None = None
    ) -> None:
        self.dataset = dataset
        self.kind = kind
        self.device = device
        self.decoder = Decoder(dataset, pin=device.type == "cuda")
        self.kept: Tensor | None = None
        self._given_origin = origin

    @classmethod
    def of(cls, dataset: Any, device: torch.device, kind: str | None = None) -> Self:
        """Wrap a Dataset; if ``kind`` is None, its first item tells what kind of data it is."""
        with Decoder(dataset, workers=0) as decoder:
            item = decoder.take(np.array([0]))[0]
        shape = (len(dataset), *item.shape)
        if kind is None:
            small = item.dtype in (torch.uint8, torch.bool)
            kind = kind_of(shape, np.uint8 if small else np.float32)
        if kind == "counts":
            raise InputError(
                'counts cannot be read from a Dataset; pass a sparse matrix, or use backbone="mlp".'
            )
        require_kind(kind, shape if kind != "vectors" or item.ndim < 2 else shape[:2])
        return cls(dataset, kind, device)

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one item as a network gets it."""
        return tuple(self._first.shape)

    def take(self, index: Tensor) -> Tensor:
        """Return the items at ``index`` as a network gets them, shape (*index.shape, ...)."""
        if self.kept is not None:
            return self.kept[index]
        items = self._moved(self.decoder.take(index.cpu().numpy().ravel())).to(self.device)
        return self._formed(items).unflatten(0, index.shape)

    def stream(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield what ``take`` returns for each of the batches, in order."""
        if self.kept is None and self._should_be_kept():
            self.kept = self._read_all()
        if self.kept is not None:
            yield from super().stream(batches)
            return
        batches = list(batches)
        # All at once: copying each from the GPU in turn would make it wait every time.
        wanted = [index.cpu().numpy().ravel() for index in batches]
        for index, items in zip(batches, self.decoder.stream(wanted), strict=True):
            items = self._moved(items).to(self.device, non_blocking=self.decoder.pin)
            yield self._formed(items).unflatten(0, index.shape)

    def _formed(self, items: Tensor) -> Tensor:
        """Items (b, …) as a network gets them."""
        if self.kind == "images":
            items = items.byte() if items.dtype == torch.bool else items
            return _channels_first(items if items.dtype in PIXELS else items.float())
        items = items.float()
        if self.kind == "sequences":
            channels = items.unsqueeze(1) if items.ndim == 2 else items.movedim(-1, 1)
            return torch.cat([channels, torch.ones_like(channels[:, :1])], dim=1)
        return items if self.kind == "points" else items.flatten(1)

    def _should_be_kept(self) -> bool:
        size = self._first.nbytes * len(self)
        if self.device.type == "cpu":
            return size <= min(KEPT_ON_CPU, SHARE_FOR_DATA * available_memory())
        if self.device.type != "cuda":
            return False
        return size <= SHARE_FOR_DATA * torch.cuda.mem_get_info(self.device)[0]

    def _read_all(self) -> Tensor:
        order = "channels_last" if self.kind == "images" else "contiguous_format"
        layout = getattr(torch, order)
        shape, dtype = (len(self), *self.shape), self._first.dtype
        found = torch.empty(shape, dtype=dtype, device=self.device, memory_format=layout)
        places = np.split(np.arange(len(self)), range(BATCH, len(self), BATCH))
        for place, items in zip(places, self.decoder.stream(places), strict=True):
            found[int(place[0]) : int(place[-1]) + 1] = self._formed(
                self._moved(items).to(self.device)
            )
        self.decoder.close()
        return found

    @cached_property
    def _first(self) -> Tensor:
        return self._formed(self._moved(self.decoder.take(np.array([0]))))[0]

    def _moved(self, items: Tensor) -> Tensor:
        """Items without their large common offset, which would use up float32's digits."""
        if self.kind == "images" or items.dtype not in WIDE or not self.origin.any():
            return items
        return (items.double() - self.origin).float()

    @cached_property
    def origin(self) -> Tensor:
        """What is subtracted from every channel, or from every feature of vectors; often zero."""
        if self._given_origin is not None or self.kind == "images":
            return torch.zeros(1) if self._given_origin is None else self._given_origin
        item = self.decoder.take(np.array([int(np.argmin(self.keys))]))[0]
        if item.dtype not in WIDE:
            return torch.zeros(1, dtype=torch.float64)
        item = item.double()
        if self.kind == "vectors":
            return torch.where(item.abs() > FAR_VALUE, item, 0.0)
        middle, width = item.mean(dim=0), item.amax(dim=0) - item.amin(dim=0)
        return torch.where((middle.abs() > FAR * width) & (width > 0), middle, 0.0)

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """The Dataset's ``keys`` if it has any; otherwise positions, so that the order matters."""
        given = getattr(self.dataset, "keys", None)
        if given is None or callable(given):
            return np.arange(len(self), dtype=np.uint64)
        keys = np.asarray(given)
        if keys.shape != (len(self),):
            raise InputError(
                f"the keys of the Dataset have shape {keys.shape}, but it has {len(self)} items; "
                "give each item one number that depends only on its content."
            )
        return keys.astype(np.uint64)

    def moments(self, index: Index) -> tuple[Tensor, Tensor]:
        """Return mean and scale of channels over some of the items."""
        mean, scale = channel_moments(self._looked_at(evenly(index, LOOKED_AT)), self.kind)
        return mean.to(self.device), scale.to(self.device)

    def _looked_at(self, index: Index) -> Iterator[NDArray[Any]]:
        """Batches with channels last and no mask."""
        places = torch.from_numpy(index).to(self.device).split(BATCH)
        for place, items in zip(places, self.stream(places), strict=True):
            bad = ~torch.isfinite(items).flatten(1).all(dim=1)
            if bad.any():
                raise InputError(
                    f"item {int(place[bad][0])} of the Dataset has values that are NaN or "
                    "infinite; remove such items or fill in the values first."
                )
            values = items[:, :-1] if self.kind == "sequences" else items
            first = self.kind in ("images", "sequences")
            yield (values.movedim(1, -1) if first else values).cpu().numpy()

    def first(self, n: int) -> Self:
        """Return the first n items, without the Dataset."""
        return type(self)(
            list(self.decoder.take(np.arange(n))), self.kind, self.device, self.origin
        )

    def another(self, X: Any) -> Self:
        """Wrap the items of another Dataset."""
        new = type(self).of(X, self.device, self.kind)
        new._given_origin = self.origin
        # Sequences may be longer or shorter.
        n_axes = 1 if self.kind == "sequences" else len(self.shape)
        if new.shape[:n_axes] != self.shape[:n_axes]:
            raise InputError(
                f"X has items of shape {new.shape}, but the network was trained on items of shape "
                f"{self.shape}; pass items of that shape."
            )
        return new


def _channels_first(images: Tensor) -> Tensor:
    """Images (b, C, H, W) from (b, H, W), (b, C, H, W), or (b, H, W, C) as Pillow has them."""
    if images.ndim == 3:
        return images.unsqueeze(1)
    return images.movedim(-1, 1) if images.shape[-1] <= 4 < images.shape[1] else images
