"""Sequences of different lengths in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.rows.base import plain_array, scrambled
from unsplit.errors import InputError

# Number of samples that are processed at once.
CHUNK_ELEMENTS = 2**22

# An offset this many times as large as the range of the values is subtracted from them.  A smaller
# one costs float32 so few of its digits that the values are kept as they are.
FAR = 16


@dataclass(frozen=True, eq=False)
class Ragged:
    """Sequences joined into one array; made and checked by :meth:`of` or :meth:`of_flat`.

    Parameters
    ----------
    flat : ndarray of shape (total, C), float32 or int16
        All samples, less ``origin``.
    offsets : ndarray of shape (n + 1,)
        Sequence i is ``flat[offsets[i]:offsets[i + 1]]``.
    origin : ndarray of shape (C,), optional
        A large offset of every channel, such as that of map coordinates or time stamps, which would
        use up float32's digits; None if there is none.

    Examples
    --------
    >>> sequences = Ragged.of([[1, 2, 3], [4, 5]])
    >>> len(sequences), sequences.lengths.tolist(), sequences.n_channels
    (2, [3, 2], 1)
    """

    flat: NDArray[Any]
    offsets: Index
    origin: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, sequences: Sequence[ArrayLike]) -> "Ragged":
        """Join sequences, each of shape (L,) or (L, C) with the same C.

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
        parts = [_samples(i, sequence) for i, sequence in enumerate(sequences)]
        channels = np.array([part.shape[1] for part in parts])
        if (channels != channels[0]).any():
            odd = int(np.argmax(channels != channels[0]))
            raise InputError(
                f"sequence {odd} has {channels[odd]} channels, but sequence 0 has {channels[0]}; "
                "give all sequences the same number of channels."
            )
        lengths = [len(part) for part in parts]
        origin = _origin(parts)
        flat = np.concatenate([_narrow(part, origin) for part in parts])
        return cls(flat, np.cumsum([0, *lengths]), origin)._checked()

    @classmethod
    def of_flat(cls, flat: NDArray[Any], offsets: NDArray[Any]) -> "Ragged":
        """Take sequences that are already joined, shape (total,) or (total, C).

        Examples
        --------
        >>> Ragged.of_flat(np.array([1.0, 2.0, 3.0]), np.array([0, 1, 3])).lengths
        array([1, 2])
        """
        flat = _samples(None, flat)
        offsets = _checked_offsets(offsets, len(flat))
        origin = _origin([flat])
        return cls(_narrow(flat, origin), offsets, origin)._checked()

    def _checked(self) -> "Ragged":
        """Return the same sequences, or raise an error that names one with unusable values."""
        bad = np.flatnonzero(~np.isfinite(self.flat).all(axis=1))
        if len(bad):
            which = np.searchsorted(self.offsets, bad[0], side="right") - 1
            raise InputError(
                f"sequence {which} has values that are NaN, infinite or beyond single precision; "
                "remove the sequence or fill in the values first."
            )
        return self

    def moved(self, origin: NDArray[np.float64] | None) -> "Ragged":
        """Return the same sequences with another origin.

        Examples
        --------
        >>> Ragged.of([[10**6, 10**6 + 1], [10**6]]).moved(np.array([999_999.0])).flat.ravel()
        array([1., 2., 1.], dtype=float32)
        """
        if self.origin is None and origin is None:
            return self
        zero = np.zeros(self.n_channels)
        move = (zero if self.origin is None else self.origin) - (zero if origin is None else origin)
        flat = (self.flat + move).astype(np.float32) if move.any() else self.flat
        return Ragged(flat, self.offsets, origin)

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

    def moments(self, index: Index) -> tuple[Tensor, Tensor]:
        """Return mean and scale (C,) of every channel over the sequences at ``index``.

        The scale is never zero.
        """
        scaler = StandardScaler()
        for chunk in self._chunks(index):
            scaler.partial_fit(self._joined(chunk))
        mean, scale = scaler.mean_, scaler.scale_
        return torch.from_numpy(mean).float(), torch.from_numpy(scale).float()

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """A 64-bit hash of each sequence, which depends only on its content."""
        parts = [self._keys_of(chunk) for chunk in self._chunks(np.arange(len(self)))]
        return np.concatenate(parts)

    def cropped(self, longest: int) -> "Ragged":
        """Return the same sequences; of those longer than ``longest``, only the middle.

        A batch is padded to its longest sequence, so a single long one makes all of them long.

        Examples
        --------
        >>> Ragged.of([[1, 2, 3, 4, 5], [6, 7]]).cropped(3).flat.ravel()
        array([2., 3., 4., 6., 7.], dtype=float32)
        """
        if longest < 1:
            raise InputError(f"longest must be at least 1, got {longest!r}.")
        lengths = np.minimum(self.lengths, longest)
        starts = self.offsets[:-1] + (self.lengths - lengths) // 2
        return Ragged(self.flat[_runs(starts, lengths)], np.cumsum([0, *lengths]), self.origin)

    def _joined(self, index: Index) -> NDArray[np.float64]:
        """Return all samples of the sequences at ``index``, shape (total, C)."""
        places = _runs(self.offsets[index], self.lengths[index])
        return self.flat[places].astype(np.float64)

    def _chunks(self, index: Index) -> Iterator[Index]:
        """Split the index into parts of about :data:`CHUNK_ELEMENTS` samples."""
        total = np.cumsum(self.lengths[index]) * self.n_channels
        part = total // CHUNK_ELEMENTS
        yield from np.split(index, np.flatnonzero(np.diff(part)) + 1)

    def _keys_of(self, index: Index) -> NDArray[np.uint64]:
        lengths = self.lengths[index]
        starts = np.cumsum(lengths) - lengths
        place = _runs(np.zeros_like(lengths), lengths).astype(np.uint64)
        channel = np.arange(self.n_channels, dtype=np.uint64)
        # Adding zero turns -0.0 into 0.0, so that equal values have equal bits.
        bits = scrambled((self._joined(index) + 0.0).view(np.uint64))
        # An odd multiplier for every position, so that the order of values matters.
        odd = scrambled(place[:, None] * np.uint64(self.n_channels) + channel + np.uint64(1))
        terms = (bits * (odd | np.uint64(1))).sum(axis=1, dtype=np.uint64)
        return np.add.reduceat(terms, starts) + scrambled(lengths.astype(np.uint64))


def _samples(which: int | None, values: ArrayLike) -> NDArray[Any]:
    """Return samples as an array of numbers, shape (length, channels)."""
    name = "the array of samples" if which is None else f"sequence {which}"
    try:
        array = np.asarray(plain_array(values))
    except InputError as error:
        raise InputError(str(error).replace("X", name, 1)) from None
    except ValueError:
        raise InputError(
            f"{name} is not rectangular; give every sample the same number of values."
        ) from None
    if array.ndim not in (1, 2) or array.shape[1:] == (0,):
        raise InputError(
            f"{name} must have shape (length,) or (length, channels), got {array.shape}; reshape "
            "it."
        )
    if not len(array):
        raise InputError(f"{name} is empty; remove it.")
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"{name} must hold numbers, got values of type {array.dtype}; encode them as numbers "
            "first."
        )
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


def _checked_offsets(offsets: NDArray[Any], total: int) -> Index:
    right = offsets.ndim == 1 and offsets.dtype.kind in "iu" and len(offsets) > 1
    if not right or offsets[0] != 0 or offsets[-1] != total:
        raise InputError(
            f"offsets must be whole numbers from 0 to the number of samples, {total:,}; write "
            "where each sequence starts, then where the last one ends."
        )
    offsets = offsets.astype(np.int64)
    short = np.flatnonzero(np.diff(offsets) <= 0)
    if len(short):
        raise InputError(f"sequence {short[0]} is empty (offsets must rise); remove it.")
    return offsets


def _runs(starts: Index, lengths: Index) -> Index:
    """Join all runs ``start, start + 1, …, start + length − 1``."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
