"""Sequences of different lengths, sound among them, as observations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.rows.base import (
    CHUNK_ELEMENTS,
    Rows,
    channel_moments,
    evenly,
    plain_array,
    require_numbers,
    scrambled,
)
from unsplit.errors import InputError

# An offset this many times as large as the range of the values is subtracted from them.  A smaller
# one costs float32 so few of its digits that the values are kept as they are.
FAR = 16


@dataclass(frozen=True, eq=False)
class Ragged:
    """Sequences joined into one array; made and checked by :meth:`of`.

    Parameters
    ----------
    flat : ndarray of shape (total, C), float32 or int16
        All samples, less ``origin``.
    offsets : ndarray of shape (n + 1,)
        Sequence i is ``flat[offsets[i]:offsets[i + 1]]``.
    origin : ndarray of shape (C,), optional
        A large offset of every channel, such as that of map coordinates or time stamps, which would
        use up float32's digits; None if there is none.
    rate : int, optional
        Samples per second of sound, which has one channel in units of 16 bits; None for others.

    Examples
    --------
    >>> sequences = Ragged.of([[1, 2, 3], [4, 5]])
    >>> len(sequences), sequences.lengths.tolist(), sequences.n_channels
    (2, [3, 2], 1)
    """

    flat: NDArray[Any]
    offsets: Index
    origin: NDArray[np.float64] | None = None
    rate: int | None = None

    @classmethod
    def of(
        cls, sequences: Sequence[ArrayLike], rate: int | None = None, like: "Ragged | None" = None
    ) -> "Ragged":
        """Join sequences, each of shape (L,) or (L, C) with the same C; with the origin of others.

        Examples
        --------
        >>> sequences = Ragged.of([[1, 2, 3], [4, 5]])
        >>> sequences.batch(np.array([1, 0]))
        tensor([[[4., 5., 0.],
                 [1., 1., 0.]],
        <BLANKLINE>
                [[1., 2., 3.],
                 [1., 1., 1.]]])
        """
        if not len(sequences):
            raise InputError("there are no sequences; pass at least two.")
        parts = [_samples(f"sequence {i}", sequence) for i, sequence in enumerate(sequences)]
        channels = np.array([part.shape[1] for part in parts])
        if (channels != channels[0]).any():
            odd = int(np.argmax(channels != channels[0]))
            raise InputError(
                f"sequence {odd} has {channels[odd]} channels, but sequence 0 has {channels[0]}; "
                "give all sequences the same number of channels."
            )
        if like is not None and like.n_channels != channels[0]:
            raise InputError(
                f"X has sequences with {channels[0]} channels, but the network was trained on "
                f"{like.n_channels}; pass the same channels."
            )
        origin = _origin(parts) if like is None else like.origin
        flat = np.concatenate([_narrow(part, origin) for part in parts])
        found = cls(flat, np.cumsum([0, *map(len, parts)]), origin, rate)
        bad = np.flatnonzero(~np.isfinite(flat).all(axis=1))
        if len(bad):
            which = np.searchsorted(found.offsets, bad[0], side="right") - 1
            raise InputError(
                f"sequence {which} has values that are NaN, infinite or beyond single precision; "
                "remove the sequence or fill in the values first."
            )
        return found

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_channels(self) -> int:
        """Number of channels, C."""
        return int(self.flat.shape[1])

    @property
    def lengths(self) -> Index:
        """Length of every sequence, shape (n,)."""
        return np.diff(self.offsets)

    def batch(self, index: Index) -> Tensor:
        """Return the sequences at ``index``, padded with zeros, as float32 (b, C + 1, L).

        L is the length of the longest; the last channel is a mask, 1 for samples and 0 for
        padding.
        """
        lengths = self.lengths[index]
        place = np.arange(lengths.max())
        real = place < lengths[:, None]
        samples = self.flat[np.where(real, self.offsets[index][:, None] + place, 0)]
        padded = torch.empty(len(index), self.n_channels + 1, len(place))
        mask = torch.from_numpy(real)
        padded[:, :-1] = torch.from_numpy(samples).movedim(2, 1).float() * mask[:, None]
        padded[:, -1] = mask
        return padded

    def chunks(self, index: Index) -> Iterator[Index]:
        """Split the index into parts of about :data:`CHUNK_ELEMENTS` samples."""
        part = np.cumsum(self.lengths[index]) * self.n_channels // CHUNK_ELEMENTS
        yield from np.split(index, np.flatnonzero(np.diff(part)) + 1)

    def joined(self, index: Index) -> NDArray[np.float64]:
        """Return all samples of the sequences at ``index``, shape (total, C)."""
        return self.flat[_runs(self.offsets[index], self.lengths[index])].astype(np.float64)

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """A 64-bit hash of each sequence, which depends only on its content."""
        return np.concatenate([self._keys_of(chunk) for chunk in self.chunks(np.arange(len(self)))])

    def _keys_of(self, index: Index) -> NDArray[np.uint64]:
        lengths = self.lengths[index]
        place = _runs(np.zeros_like(lengths), lengths).astype(np.uint64)
        channel = np.arange(self.n_channels, dtype=np.uint64)
        # Adding zero turns -0.0 into 0.0, so that equal values have equal bits.
        bits = scrambled((self.joined(index) + 0.0).view(np.uint64))
        # An odd multiplier for every position, so that the order of values matters.
        odd = scrambled(place[:, None] * np.uint64(self.n_channels) + channel + np.uint64(1))
        terms = (bits * (odd | np.uint64(1))).sum(axis=1, dtype=np.uint64)
        starts = np.cumsum(lengths) - lengths
        return np.add.reduceat(terms, starts) + scrambled(lengths.astype(np.uint64))


def _samples(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return samples as an array of numbers, shape (length, channels)."""
    try:
        array = np.asarray(plain_array(values))
    except InputError as error:
        raise InputError(str(error).replace("X", name, 1)) from None
    except ValueError:
        raise InputError(
            f"{name} is not rectangular; give every sample the same number of values."
        ) from None
    if array.ndim not in (1, 2) or 0 in array.shape:
        raise InputError(
            f"{name} must have shape (length,) or (length, channels), got {array.shape}; reshape "
            "or remove it."
        )
    require_numbers(array, name)
    return array.reshape(len(array), -1)


def _narrow(samples: NDArray[Any], origin: NDArray[np.float64] | None) -> NDArray[Any]:
    """Return samples as int16 if that can hold every value of their type, else as float32."""
    small = samples.dtype.kind in "iu" and np.can_cast(samples.dtype, np.int16)
    with np.errstate(over="ignore"):  # values that overflow are refused together with NaN
        if origin is not None:
            return (samples - origin).astype(np.float32)
        return np.ascontiguousarray(samples.astype(np.int16 if small else np.float32, copy=False))


def _origin(parts: Sequence[NDArray[Any]]) -> NDArray[np.float64] | None:
    """Return what to subtract from every channel before values become float32, if anything.

    It is halfway between the smallest and the largest value, which do not depend on the order of
    the sequences, and only where it is far larger than the difference of the two.
    """
    if all(np.can_cast(part.dtype, np.float32) for part in parts):
        return None
    low = np.min([part.min(axis=0) for part in parts], axis=0).astype(np.float64)
    high = np.max([part.max(axis=0) for part in parts], axis=0).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are refused later
        middle = low / 2 + high / 2
        far = np.isfinite(middle) & (np.abs(middle) > FAR * (high - low))
    # A channel that never varies carries no digits that could be lost.
    far &= high > low
    return np.where(far, middle, 0.0) if far.any() else None


def _runs(starts: Index, lengths: Index) -> Index:
    """Join all runs ``start, start + 1, …, start + length − 1``."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)


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

    def __init__(self, sequences: Ragged, device: torch.device) -> None:
        self.sequences = sequences
        self.device = device
        self.rate = sequences.rate
        self.on_device = None

    def __len__(self) -> int:
        return len(self.sequences)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of channels, including the mask, and the median length."""
        return self.sequences.n_channels + 1, int(np.median(self.sequences.lengths))

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """A hash of every sequence."""
        return self.sequences.keys

    def _fetched(self, places: Tensor) -> Tensor:
        return self.sequences.batch(places.cpu().numpy())

    def _formed(self, stored: Tensor) -> Tensor:
        return stored

    def moments(self, index: Index) -> tuple[Tensor, Tensor]:
        """Return mean and scale of every channel without padding, and 0 and 1 for the mask."""
        chunks = self.sequences.chunks(evenly(index))
        mean, scale = channel_moments(map(self.sequences.joined, chunks), self.kind)
        return mean.to(self.device), scale.to(self.device)

    def first(self, n: int) -> Self:
        """Return the first n sequences, without the others."""
        offsets = self.sequences.offsets[: n + 1].copy()
        flat = self.sequences.flat[: offsets[-1]].copy()
        return type(self)(replace(self.sequences, flat=flat, offsets=offsets), self.device)

    def another(self, X: Any) -> Self:
        """Wrap new sequences with the same channels."""
        new = X if isinstance(X, Ragged) else Ragged.of(X, self.rate, like=self.sequences)
        if new.rate != self.rate:
            raise InputError(
                f"X has {new.rate} samples per second, but the network was trained on {self.rate}; "
                "resample X."
            )
        return type(self)(new, self.device)
