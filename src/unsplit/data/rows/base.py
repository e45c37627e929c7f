"""The interface that all kinds of observations share."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsplit._typing import Index

# Number of rows from which the scale of channels is estimated.
LOOKED_AT = 1024


class Rows(ABC):
    """Observations, handed out in batches on the training device.

    ``kind`` says what they are: "vectors", "counts" (sparse), "images", "points" or "sequences";
    ``rate`` is the number of samples per second of sound, None for everything else; ``stackable``
    says whether batches of several networks can be taken at once, with an index of two axes.

    Examples
    --------
    >>> from unsplit.data import observations
    >>> rows = observations([[1.0, 2.0], [3.0, 5.0]], torch.device("cpu"))
    >>> len(rows), rows.kind, rows.shape
    (2, 'vectors', (2,))
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
        """Return observations as a network gets them, shape (*index.shape, ...)."""

    @property
    @abstractmethod
    def keys(self) -> NDArray[np.uint64]:
        """One number per row that depends only on its content, where the content is known."""

    @abstractmethod
    def moments(self, index: Index) -> tuple[Tensor, Tensor]:
        """Return the mean and the scale of the rows at ``index``, to standardise batches with.

        The scale is never zero.
        """

    @abstractmethod
    def first(self, n: int) -> Self:
        """Return the first n rows, with the origin that all rows have."""

    @abstractmethod
    def another(self, X: Any) -> Self:
        """Wrap new observations for a network that was trained on these."""

    def stream(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield what ``take`` returns for each of the batches, in order."""
        for index in batches:
            yield self.take(index)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation as a network gets it."""
        return tuple(self.take(torch.zeros(1, dtype=torch.long, device=self.device)).shape[1:])


def evenly(index: Index, n: int = LOOKED_AT) -> Index:
    """Return at most n evenly spaced entries, in their order.

    They are not sorted first: then the choice would depend on the order of the rows.

    Parameters
    ----------
    index : ndarray of shape (m,)
    n : int

    Examples
    --------
    >>> evenly(np.array([7, 1, 5, 0, 2]), 3)
    array([7, 5, 2])
    """
    return index[:: -(-len(index) // n)]


def channel_moments(parts: Iterable[NDArray[Any]], kind: str) -> tuple[Tensor, Tensor]:
    """Return mean and scale of the last axis, shaped to fit the batches that a network gets.

    Point clouds have one scale for x, y and z, so that they keep their shape; the mask of
    sequences has mean 0 and scale 1.  The scale is 1 where nothing varies.

    Parameters
    ----------
    parts : iterable of arrays of shape (…, channels)
        The observations, in parts that fit into memory.
    kind : str
        "vectors", "images", "points" or "sequences".

    Examples
    --------
    >>> clouds = np.array([[[0.0, 0.0, 5.0], [2.0, 4.0, 5.0]]])
    >>> channel_moments([clouds], "points")[1] ** 2  # of the variances 1, 4 and 0
    tensor([1.6667, 1.6667, 1.6667])
    """
    mean, variance = _mean_and_variance(parts)
    variance[variance <= (1e-8 * mean) ** 2] = 0.0  # only rounding error
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
        # Centred roughly first, because squares of large numbers would lose digits.
        shift = values.mean(axis=0) if shift is None else shift
        values -= shift
        n += len(values)
        first = first + values.sum(axis=0)
        second = second + np.einsum("ij,ij->j", values, values)
    mean = np.asarray(first) / n
    return mean + shift, np.maximum(second / n - mean**2, 0.0)
