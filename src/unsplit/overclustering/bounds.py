"""Bounds of Euclidean distances from matrix products, and the distances themselves."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Elements of the largest block of distances held at once (64 MiB in float32).
BLOCK_ELEMENTS = 2**24


class DistanceBounds:
    """Squared distances |x|² + |y|² − 2xy, less all that rounding may have added.

    The product of x and y is off by at most d·u·|x||y| whatever the order of its sum (u the unit
    roundoff), and 2|x||y| ≤ |x|² + |y|²; the few roundings beside it add a small multiple of u.
    Shrinking the squared norms by this relative error therefore gives a lower bound.  The error
    grows with the distance from the origin, so the points are centred first.

    Points are scaled by a power of two, which rounds nothing, so that no square overflows; all
    distances here are in that scale.

    Parameters
    ----------
    points : ndarray of shape (n, d)
    dtype : torch.dtype
        What the products are computed in.
    device : torch.device
    """

    def __init__(self, points: NDArray[Any], dtype: torch.dtype, device: torch.device) -> None:
        self.points = points
        self.device = device
        centred, self.scale = _centred(points, dtype)
        squared = np.einsum("ij,ij->i", centred, centred, dtype=np.float64)
        limits, n_features = torch.finfo(dtype), points.shape[1]
        self.error = (n_features + 16) * limits.eps / 2
        self.smallest = 4 * n_features * limits.tiny  # for products too small for the dtype
        self.centred = torch.from_numpy(centred).to(device)
        self.squared = torch.from_numpy(squared).to(device)
        self.shrunk = (self.squared * (1 - self.error) - self.smallest).to(dtype)
        # Used again and again: fresh memory would cost a tenth of the time.
        n = len(points)
        self.step = min(n, max(1, BLOCK_ELEMENTS // n))
        self.block = torch.empty(self.step, n, dtype=dtype, device=device)

    def blocks(self, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """``rows`` in parts whose distances to all points fit into a block."""
        for start in range(0, len(rows), self.step):
            yield rows[start : start + self.step]

    def low(self, rows: NDArray[np.int64]) -> Tensor:
        """Lower bounds of squared distances, shape (len(rows), n); infinite to hidden points.

        The next call overwrites them.
        """
        index = torch.from_numpy(rows).to(self.device)
        low = self.block[: len(rows)]
        torch.addmm(self.shrunk, self.centred[index], self.centred.T, alpha=-2, out=low)
        return low.add_(self.shrunk[index, None])

    def slack(self, rows: NDArray[np.int64], others: Tensor) -> Tensor:
        """How far an upper bound is above :meth:`low`, shape (len(rows), number of others)."""
        index = torch.from_numpy(rows).to(self.device)
        norms = self.squared[index, None] + self.squared[others]
        return norms.mul_(2 * self.error).add_(2 * self.smallest)

    def hide(self, rows: NDArray[np.int64]) -> None:
        """Put points out of everybody's reach."""
        self.shrunk[torch.from_numpy(rows).to(self.device)] = torch.inf

    def distances(self, row: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances as differences in float64, the slow and careful way."""
        differences = np.subtract(self.points[others], self.points[row], dtype=np.float64)
        differences /= self.scale
        return np.sqrt(np.einsum("ij,ij->i", differences, differences))


def fast_dtype(device: torch.device) -> torch.dtype:
    """float32 where its products are true to it, else float64.

    GPUs may round the factors to TF32, and a CPU to bfloat16 where the user allows it.
    """
    probe = torch.full((64, 64), 1 + 2.0**-20)
    true = device.type == "cpu" and torch.equal(probe @ torch.eye(64), probe)
    return torch.float32 if true else torch.float64


def _centred(points: NDArray[Any], dtype: torch.dtype) -> tuple[NDArray[Any], float]:
    """The points about their mean, divided by a power of two that leaves them within [−1, 1]."""
    mean = points.mean(axis=0, dtype=np.float64)
    farthest = max((points.max(axis=0) - mean).max(), (mean - points.min(axis=0)).max())
    scale = float(np.ldexp(1.0, int(np.frexp(farthest)[1])))
    centred = np.empty(points.shape, np.float32 if dtype == torch.float32 else np.float64)
    step = max(1, BLOCK_ELEMENTS // points.shape[1])
    for start in range(0, len(points), step):
        some = slice(start, start + step)
        centred[some] = (points[some] - mean) / scale  # in float64, rounded last
    return centred, scale
