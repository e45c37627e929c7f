"""What every source of observations can do."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsplit.sampling import Index

# Rows that are looked at to learn the scale of features.
LOOKED_AT = 4096


class Rows(ABC):
    """Observations, handed out in batches on the training device.

    ``kind`` says what they are: "vectors", "counts" (sparse), "images", "points" or "sequences";
    ``rate`` is the number of samples per second of sound, None for everything else.
    """

    kind: str
    device: torch.device
    rate: int | None = None

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
    """At most n of the entries, evenly spaced, in increasing order.

    Examples
    --------
    >>> evenly(np.arange(10), 5)
    array([0, 2, 4, 6, 8])
    """
    return np.sort(index)[:: -(-len(index) // n)]


def never_zero(scale: Tensor) -> Tensor:
    """The scale, with 1 where nothing varies."""
    return torch.where(scale > 0, scale, torch.ones_like(scale))
