"""Images that are made when they are asked for: 1.3 million of 224 pixels would take 196 GB."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

from experiments.scaling.timings import Laps
from unsplit.data.rows.base import Rows, evenly

# Squares along a side of what is then blown up, and how far their colours reach from grey.
GRID, REACH = 8, 60
VALUES = 3 * GRID * GRID

# Rows whose colours tell the scale of all.
LOOKED_AT = 256


@dataclass(frozen=True)
class Pictures:
    """Clusters of blurred colours: a pattern that its category shares, and as much of its own.

    Image i is in cluster i // size, and cluster c in category c % categories.  What an image shows
    depends on i alone.

    Examples
    --------
    >>> pictures = Pictures(clusters=4, size=3, categories=2, pixels=16)
    >>> pictures.drawn(torch.tensor([0, 11])).shape
    torch.Size([2, 3, 16, 16])
    >>> pictures.labels, pictures.category
    (array([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]), array([0, 1, 0, 1]))
    """

    clusters: int
    size: int
    categories: int
    pixels: int

    def __len__(self) -> int:
        return self.clusters * self.size

    @property
    def labels(self) -> NDArray[np.int64]:
        """Cluster of every image."""
        return np.arange(len(self)) // self.size

    @property
    def category(self) -> NDArray[np.int64]:
        """Category of every cluster."""
        return np.arange(self.clusters) % self.categories

    def drawn(self, index: Tensor) -> Tensor:
        """Images (b, 3, pixels, pixels) at ``index`` (b,), as bytes, on its device."""
        category = index // self.size % self.categories
        shared, own = _values(category), _values(self.categories + index)
        coarse = (128 + REACH * (shared + own)).view(-1, 3, GRID, GRID)
        fine = F.interpolate(coarse, (self.pixels, self.pixels), mode="bilinear")
        # In the order in memory in which images lie that are kept on a device.
        return fine.to(torch.uint8, memory_format=torch.channels_last)


class PictureRows(Rows):
    """Pictures as the library takes observations, made on the device, with a watch on them.

    Whenever the library has gone through a stream of batches, that is a lap.
    """

    kind = "images"

    def __init__(self, pictures: Pictures, device: torch.device, laps: Laps) -> None:
        self.pictures, self.device, self.laps = pictures, device, laps
        self.n = len(pictures)

    def __len__(self) -> int:
        return self.n

    def take(self, index: Tensor) -> Tensor:
        """Images at ``index``."""
        return self.pictures.drawn(index.flatten()).unflatten(0, index.shape)

    def stream(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """What ``take`` gives for each of the batches."""
        listed = list(batches)
        self.laps.end("preparing")
        yield from map(self.take, listed)
        name = "training" if torch.is_grad_enabled() else "trying"
        self.laps.end(name, sum(map(len, listed)), len(listed))

    @property
    def keys(self) -> NDArray[np.uint64]:
        """The places, as images are made of nothing else."""
        return np.arange(len(self), dtype=np.uint64)

    def moments(self, index: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Mean and scale of the channels over some images."""
        images = self.take(torch.from_numpy(evenly(index, LOOKED_AT)).to(self.device)).float()
        scale, mean = torch.std_mean(images, dim=(0, 2, 3))
        return mean.view(-1, 1, 1), scale.view(-1, 1, 1)

    def first(self, n: int) -> Self:
        """The first n rows."""
        some = self.another(self.pictures)
        some.n = n
        return some

    def another(self, X: Pictures) -> Self:
        """Other pictures."""
        return type(self)(X, self.device, self.laps)


class PictureDataset(Dataset[Tensor]):
    """The same pictures one by one, for worker processes."""

    def __init__(self, pictures: Pictures) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, i: int) -> Tensor:
        return self.pictures.drawn(torch.tensor([i]))[0]


def _values(which: Tensor) -> Tensor:
    """Numbers in [−1, 1), shape (b, VALUES), that depend on ``which`` (b,) and look random."""
    bits = which[:, None] * VALUES + torch.arange(VALUES, device=which.device)
    # The last steps of splitmix64, in signed numbers, whose shifts have to be cut off.
    bits = (bits ^ ((bits >> 30) & (2**34 - 1))) * -0x40A7B892E31B1A47
    bits = (bits ^ ((bits >> 27) & (2**37 - 1))) * -0x6B2FB644ECCEEE15
    bits = bits ^ ((bits >> 31) & (2**33 - 1))
    return (bits >> 40).float() / 2**23
