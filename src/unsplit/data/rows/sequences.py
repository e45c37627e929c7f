"""Sequences of different lengths, sound among them, as observations."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.rows.base import Rows, evenly
from unsplit.data.rows.prefetching import prefetched
from unsplit.data.rows.ragged import Ragged
from unsplit.errors import InputError


@dataclass(frozen=True, eq=False)
class Audio:
    """Sounds, with the label and the id of each.

    Parameters
    ----------
    sounds : Ragged of n sequences
        One channel each; int16, or float32 in the same units.
    labels : ndarray of str of shape (n,), or None
        The cluster of each sound; None if it is not known.
    row_ids : ndarray of shape (n,)
        Paths relative to a folder, or 0, 1, …, n − 1.
    rate : int or None
        Samples per second; None if it is not known.
    broken : dict of str to str
        Files that could not be read: the path of each, and why.

    Examples
    --------
    >>> audio = Audio(Ragged.of([[1, 2, 3], [4, 5]]), None, np.arange(2), 8000, {})
    >>> audio.sounds.lengths, audio.rate
    (array([3, 2]), 8000)
    """

    sounds: Ragged
    labels: NDArray[np.str_] | None
    row_ids: NDArray[Any]
    rate: int | None
    broken: dict[str, str]


class RaggedRows(Rows):
    """Sequences, padded to the longest of each batch, with a mask as last channel.

    Examples
    --------
    >>> rows = RaggedRows(Ragged.of([[1, 2, 3], [4, 5]]), torch.device("cpu"))
    >>> rows.take(torch.tensor([1]))
    tensor([[[4., 5.],
             [1., 1.]]])
    """

    kind = "sequences"
    ragged = True

    def __init__(self, sequences: Ragged, device: torch.device, rate: int | None = None) -> None:
        self.sequences = sequences
        self.device = device
        self.rate = rate

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of channels, including the mask, and the median length."""
        return self.sequences.n_channels + 1, int(np.median(self.sequences.lengths))

    @property
    def largest(self) -> int:
        """The longest sequence."""
        return int(np.argmax(self.sequences.lengths))

    def take(self, index: Tensor) -> Tensor:
        """Return the sequences at ``index`` (one-dimensional), shape (b, C + 1, longest)."""
        return self._padded(index).to(self.device)

    def stream(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield what ``take`` returns for each of the batches, in order."""
        return prefetched(self._padded, batches, self.device)

    def _padded(self, index: Tensor) -> Tensor:
        return self.sequences.batch(index.cpu().numpy())

    @property
    def keys(self) -> NDArray[np.uint64]:
        """A hash of every sequence."""
        return self.sequences.keys

    def moments(self, index: Index) -> tuple[Tensor, Tensor]:
        """Return mean and scale of every channel without padding, and 0 and 1 for the mask."""
        mean, scale = self.sequences.moments(evenly(index))
        parts = torch.cat([mean, torch.zeros(1)]), torch.cat([scale, torch.ones(1)])
        mean, scale = (part.to(self.device)[:, None] for part in parts)
        return mean, scale

    def first(self, n: int) -> Self:
        """Return the first n sequences, without the others."""
        offsets = self.sequences.offsets[: n + 1].copy()
        few = Ragged(self.sequences.flat[: offsets[-1]].copy(), offsets, self.sequences.origin)
        return type(self)(few, self.device, self.rate)

    def another(self, X: Any) -> Self:
        """Wrap new sequences with the same channels."""
        if isinstance(X, Audio) and X.rate != self.rate:
            raise InputError(
                f"X has {X.rate} samples per second, but the network was trained on {self.rate}; "
                "resample X."
            )
        new = X.sounds if isinstance(X, Audio) else X
        new = new if isinstance(new, Ragged) else Ragged.of(new)
        if new.n_channels != self.sequences.n_channels:
            raise InputError(
                f"X has sequences with {new.n_channels} channels, but the network was trained on "
                f"{self.sequences.n_channels}; pass the same channels."
            )
        return type(self)(new.moved(self.sequences.origin), self.device, self.rate)
