"""Vectors in a file on disk: rows are read when they are needed, and the file may be large."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.memory import available_memory
from unsplit.data.rows.base import BLOCK, is_mapped

# Rows that are needed in every epoch are kept in memory if they take at most this share of it.
SHARE_FOR_HELD = 0.25


def parts_of(index: Index, width: int) -> list[Index]:
    """Split row indices so that the rows of each part, ``width`` numbers each, fit into the cache.

    Examples
    --------
    >>> [part.tolist() for part in parts_of(np.arange(3), 2**17)]
    [[0, 1], [2]]
    """
    step = max(1, BLOCK // max(1, width))
    return np.split(index, range(step, len(index), step))


def gathered(values: NDArray[Any], index: Index) -> NDArray[Any]:
    """Return rows of an array in memory; they are read in the order in which they lie on disk.

    Parameters
    ----------
    values : ndarray of shape (n, d)
    index : ndarray of shape (m,)

    Examples
    --------
    >>> gathered(np.array([[1.0], [2.0], [3.0]]), np.array([2, 0, 2])).ravel()
    array([3., 1., 3.])
    """
    if not is_mapped(values):
        return values[index]
    order = np.argsort(index, kind="stable")
    found = np.empty((len(index), *values.shape[1:]), values.dtype)
    for some in parts_of(order, values.shape[1]):
        found[some] = values[index[some]]
    return found


class MappedVectors:
    """Rows of a mapped matrix as float32 tensors, minus an origin.

    Parameters
    ----------
    values : ndarray of shape (n, d)
        Mapped from a file.
    origin : ndarray of shape (d,)
        Subtracted from every row.
    device : torch.device

    Examples
    --------
    >>> vectors = MappedVectors(np.eye(3), np.ones(3), torch.device("cpu"))
    >>> vectors.hold(np.array([2, 0]))
    >>> vectors.take(torch.tensor([2, 0]))
    tensor([[-1., -1.,  0.],
            [ 0., -1., -1.]])
    """

    def __init__(self, values: NDArray[Any], origin: NDArray[Any], device: torch.device) -> None:
        self.values = values
        self.origin = origin
        self.device = device
        self.places: Tensor | None = None
        self.held: Tensor | None = None

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at ``index``, shape (*index.shape, d)."""
        if self.held is not None and self.places is not None:
            place = torch.searchsorted(self.places, index.contiguous()).clamp_(
                max=len(self.places) - 1
            )
            if bool((self.places[place] == index).all()):
                return self.held[place]
        rows = self.shifted(index.cpu().numpy().ravel())
        return torch.from_numpy(rows).to(self.device).unflatten(0, index.shape)

    def shifted(self, index: Index) -> NDArray[np.float32]:
        """Read rows and subtract the origin, shape (m, d)."""
        # In the precision in which an array in memory would be shifted.
        rows = gathered(self.values, index).astype(self.origin.dtype, copy=False)
        return (rows - self.origin).astype(np.float32, copy=False)

    def hold(self, *parts: Index) -> None:
        """Read these rows into memory if they fit; others are still read from the file."""
        places = np.unique(np.concatenate(parts))
        if 4 * len(places) * self.values.shape[1] > SHARE_FOR_HELD * available_memory():
            return
        held = np.empty((len(places), self.values.shape[1]), np.float32)
        for block in parts_of(np.arange(len(places)), self.values.shape[1]):
            held[block] = self.shifted(places[block])
        self.places = torch.from_numpy(places).to(self.device)
        self.held = torch.from_numpy(held).to(self.device)
