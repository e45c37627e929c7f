"""Any torch Dataset as observations, decoded in worker processes while a network computes."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Subset

from unsplit.data.base import Rows, evenly, never_zero
from unsplit.data.decoding import Decoder
from unsplit.data.tensors import SHARE_FOR_DATA
from unsplit.errors import InputError
from unsplit.sampling import Index

# Of images and the like fewer do than of vectors.
LOOKED_AT = 1024
BATCH = 256
KIND_BY_AXES = {1: "vectors", 2: "sequences", 3: "images"}


class DatasetRows(Rows):
    """Items of a Dataset: images (C, H, W), clouds (p, 3), sequences (L, C) or vectors (d,).

    On a GPU, items that fit there are read once and stay, bytes as bytes.  Otherwise nothing is
    kept: they are read anew in every epoch, and memory does not grow with their number.
    """

    def __init__(self, dataset: Any, kind: str, device: torch.device) -> None:
        self.dataset = dataset
        self.kind = kind
        self.device = device
        self.decoder = Decoder(dataset, pin=device.type == "cuda")
        self.kept: Tensor | None = None

    @classmethod
    def of(cls, dataset: Dataset[Any], device: torch.device, kind: str | None = None) -> Self:
        """Look at the first item and see what kind of data it is."""
        with Decoder(dataset, workers=0) as decoder:
            item = decoder.take(np.array([0]))[0]
        if kind is None:
            cloud = item.ndim == 2 and item.shape[1] == 3
            kind = "points" if cloud else KIND_BY_AXES.get(item.ndim)
        if kind is None:
            raise InputError(
                f"items of the Dataset have shape {tuple(item.shape)} and are none of: vectors "
                "(d,), images (c, h, w), clouds (points, 3), sequences (length, channels)."
            )
        return cls(dataset, kind, device)

    def __len__(self) -> int:
        return len(self.dataset)

    def take(self, index: Tensor) -> Tensor:
        """Items at ``index`` (one-dimensional)."""
        if self.kept is not None:
            return self._formed(self.kept[index])
        return self._formed(self.decoder.take(index.cpu().numpy()).to(self.device))

    def stream(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """What ``take`` gives for each of the batches, in their order."""
        if self.kept is None and self._should_be_kept():
            self.kept = self._read_all()
        if self.kept is not None:
            for index in batches:
                yield self._formed(self.kept[index])
            return
        wanted = (index.cpu().numpy() for index in batches)
        for items in self.decoder.stream(wanted):
            yield self._formed(items.to(self.device, non_blocking=self.decoder.pin))

    def _formed(self, items: Tensor) -> Tensor:
        if self.kind == "images":
            return items
        items = items.float()
        if self.kind == "sequences":
            channels = items.movedim(-1, 1)
            return torch.cat([channels, torch.ones_like(channels[:, :1])], dim=1)
        return items

    def _should_be_kept(self) -> bool:
        if self.device.type != "cuda":
            return False
        size = self._first.nbytes * len(self)
        return size <= SHARE_FOR_DATA * torch.cuda.mem_get_info(self.device)[0]

    def _read_all(self) -> Tensor:
        order = "channels_last" if self.kind == "images" else "contiguous_format"
        layout = getattr(torch, order)
        shape = (len(self), *self._first.shape)
        found = torch.empty(
            shape, dtype=self._first.dtype, device=self.device, memory_format=layout
        )
        places = np.split(np.arange(len(self)), range(BATCH, len(self), BATCH))
        for place, items in zip(places, self.decoder.stream(places), strict=True):
            found[int(place[0]) : int(place[-1]) + 1] = items.to(self.device)
        self.decoder.close()
        return found

    @cached_property
    def _first(self) -> Tensor:
        return self.decoder.take(np.array([0]))[0]

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """What the Dataset calls its ``keys``; otherwise the places, so that order matters."""
        given = getattr(self.dataset, "keys", None)
        return np.arange(len(self), dtype=np.uint64) if given is None else np.asarray(given)

    def moments(self, index: Index) -> tuple[Tensor, Tensor]:
        """Mean and scale of channels over some of the items."""
        some = torch.from_numpy(evenly(index, LOOKED_AT)).to(self.device)
        n, total, square = 0, torch.zeros(()), torch.zeros(())
        for items in self.stream(some.split(BATCH)):
            values = items.double().flatten(2) if self.kind == "images" else items.double()
            axes = (0, 2) if self.kind in ("images", "sequences") else tuple(range(items.ndim - 1))
            n += values.numel() // values.mean(axes).numel()
            total, square = total.to(values) + values.sum(axes), square.to(values)
            square = square + values.square().sum(axes)
        mean = total / n
        scale = (square / n - mean**2).clamp(min=0).sqrt()
        if not torch.isfinite(mean).all():
            raise InputError("items of the Dataset hold NaN or infinite values; remove them first.")
        return self._for_batches(mean.float(), scale.float())

    def _for_batches(self, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        if self.kind == "points":
            scale = torch.cat([scale[:3].square().mean().sqrt().expand(3), scale[3:]])
        if self.kind == "sequences":
            mean, scale = mean.clone(), scale.clone()
            mean[-1], scale[-1] = 0.0, 1.0
        extra = {"images": (1, 1), "sequences": (1,)}.get(self.kind, ())
        return mean.reshape(*mean.shape, *extra), never_zero(scale).reshape(*scale.shape, *extra)

    def first(self, n: int) -> Self:
        """The first n items."""
        few = type(self)(Subset(self.dataset, range(n)), self.kind, self.device)
        few.decoder = Decoder(few.dataset, workers=0)
        return few

    def another(self, X: Any) -> Self:
        """Items of another Dataset."""
        new = type(self).of(X, self.device, self.kind)
        if new.shape != self.shape and self.kind != "sequences":
            raise InputError(
                f"X has items of shape {new.shape}, but {self.shape} were fitted; pass the same."
            )
        return new
