"""What every source of observations can do."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsplit._typing import Index

# Rows that are looked at to learn the scale of channels.
LOOKED_AT = 1024


class Rows(ABC):
    """Observations, handed out in batches on the training device.

    ``kind`` says what they are: "vectors", "counts" (sparse), "images", "points" or "sequences";
    ``rate`` is the number of samples per second of sound, None for everything else; ``stackable``
    says whether batches of several networks can be taken at once, with an index of two axes.
    """

    kind: str
    device: torch.device
    rate: int | None = None
    stackable: bool = False

    @abstractmethod
    def __len__(self) -> int:
        """Number of observations."""

    @abstractmethod
    def take(self, index: Tensor) -> Tensor:
        """Observations at ``index``, shape (*index.shape, ...), as a network gets them."""

    @property
    @abstractmethod
    def keys(self) -> NDArray[np.uint64]:
        """A number for each row that depends on its content alone, where it can be known."""

    @abstractmethod
    def moments(self, index: Index) -> tuple[Tensor, Tensor]:
        """Mean and scale over the rows at ``index``, to be subtracted from and to divide a batch.

        The scale is never zero.
        """

    @abstractmethod
    def first(self, n: int) -> Self:
        """The first n rows, measured as all are."""

    @abstractmethod
    def another(self, X: Any) -> Self:
        """New observations as a network sees them that was trained on these."""

    def stream(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """What ``take`` gives for each of the batches, in their order."""
        for index in batches:
            yield self.take(index)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation as a network gets it."""
        return tuple(self.take(torch.zeros(1, dtype=torch.long, device=self.device)).shape[1:])


def evenly(index: Index, n: int = LOOKED_AT) -> Index:
    """At most n of the entries, evenly spaced, in the order they have.

    Sorting them would make what is looked at depend on the order of the rows.

    Examples
    --------
    >>> evenly(np.array([7, 1, 5, 0, 2]), 3)
    array([7, 5, 2])
    """
    return index[:: -(-len(index) // n)]


def channel_moments(parts: Iterable[NDArray[Any]], kind: str) -> tuple[Tensor, Tensor]:
    """Mean and scale of the last axis over all others, to fit batches as a network gets them.

    Clouds have one scale for x, y and z, so that they keep their shape; sequences have 0 and 1
    for the mask.  The scale is 1 where nothing varies.

    Examples
    --------
    >>> clouds = np.array([[[0.0, 0.0, 5.0], [2.0, 4.0, 5.0]]])
    >>> channel_moments([clouds], "points")[1] ** 2  # of the variances 1, 4 and 0
    tensor([1.6667, 1.6667, 1.6667])
    """
    mean, variance = _mean_and_variance(parts)
    variance[variance <= (1e-8 * mean) ** 2] = 0.0  # nothing but rounding
    if kind == "points":
        variance[:3] = variance[:3].mean()
    scale = np.where(variance > 0, np.sqrt(variance), 1.0)
    if kind == "sequences":
        mean, scale = np.append(mean, 0.0), np.append(scale, 1.0)
    extra = {"images": (1, 1), "sequences": (1,)}.get(kind, ())
    mean_, scale_ = (torch.from_numpy(v).float().reshape(-1, *extra) for v in (mean, scale))
    return mean_, scale_


def _mean_and_variance(
    parts: Iterable[NDArray[Any]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    shift: Any = None
    n, first, second = 0, 0.0, 0.0
    for part in parts:
        values = part.reshape(-1, part.shape[-1]).astype(np.float64)
        # From somewhere in their midst, or squares would take the digits.
        shift = values.mean(axis=0) if shift is None else shift
        values -= shift
        n += len(values)
        first = first + values.sum(axis=0)
        second = second + np.einsum("ij,ij->j", values, values)
    mean = np.asarray(first) / n
    return mean + shift, np.maximum(second / n - mean**2, 0.0)
