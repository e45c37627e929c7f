"""Dense clusters of one size, found greedily: Algorithm 1 of the paper.

The definition computes all distances again after every cluster.  That is not necessary: removing
observations can only raise a candidate's mean distance, so an old value is a lower bound, and only
candidates whose bound is below the best known value are computed again.

Distances from a matrix product are fast but rounded, so they are used only as bounds.  The
distances that decide are computed from differences in float64, so the result is the same on every
device.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.labels import refuse_annotated
from unsplit.devices import choose_device
from unsplit.errors import InputError, check_whole, numeric_array, option

# float64 values in the largest block of distances (128 MiB).
BLOCK_ELEMENTS = 2**24

# Candidates looked at again in the first round of a search; each round doubles it.
FIRST_BATCH = 32

# Rounding in a sum of float64 distances, which must not hide a tie.
WHISPER = 1e-9


def greedy_dense(
    R: ArrayLike, n_clusters: int, size: int, *, device: str | torch.device = "auto"
) -> NDArray[np.int64]:
    """Find the densest clusters of exactly ``size`` observations, one after the other.

    Every free observation and its ``size`` − 1 nearest free observations form a candidate.  Its
    density is measured by the mean Euclidean distance from that observation to the others.  The
    densest candidate becomes a cluster, and its members are no longer free.  The remaining
    observations are noise: a partial clustering of the dense regions is purer than a full one.

    Parameters
    ----------
    R : array-like of shape (n, d)
        Representations of the observations.
    n_clusters : int
        How many clusters to find.
    size : int
        Members of each cluster, at least 2.
    device : str or torch.device
        Where matrix products are computed; the result does not depend on it.

    Returns
    -------
    ndarray of shape (n,)
        Clusters 0, 1, … in the order in which they were found, densest first; −1 for noise.  Ties
        go to the observation that comes first.

    Notes
    -----
    The cost is about two products R Rᵀ in float64 (4n²d operations).  Memory holds two float64
    copies of R and blocks of 128 MiB, never an (n, n) array.

    Examples
    --------
    >>> greedy_dense([[0.0], [0.1], [5.0], [5.3], [9.0]], n_clusters=2, size=2)
    array([ 0,  0,  1,  1, -1])
    """
    refuse_annotated(R, "R")
    points = numeric_array("R", R, 2)
    check_whole("size", size, 2, "density is measured between neighbours")
    check_whole("n_clusters", n_clusters, 1)
    if n_clusters * size > len(points):
        raise InputError(
            f"{option('n_clusters', n_clusters)} clusters of {option('size', size)} need "
            f"{n_clusters * size} observations, but R has {len(points)}; pass at most "
            f"{option('n_clusters', len(points) // size)} or a smaller size."
        )
    chosen = choose_device(device)
    if chosen.type == "mps":  # it has no float64
        chosen = torch.device("cpu")
    search = _Search(points, size, chosen)
    labels = np.full(len(points), -1, np.int64)
    for cluster in range(n_clusters):
        labels[search.densest()] = cluster
    return labels


class _Search:
    """A lower bound of every candidate's summed distance to its nearest observations, ``total``.

    It is the value itself where ``exact``.  Candidates that were taken are exact and infinite.
    """

    def __init__(self, points: NDArray[np.float64], size: int, device: torch.device) -> None:
        self.points, self.size = points, size
        # About their mean, because the error grows with the distance from the origin.
        self.centred = torch.from_numpy(points - points.mean(axis=0)).to(device)
        self.squared = self.centred.square().sum(dim=1)
        # Whatever the order of its sum, the product of x and y is off by at most d · eps / 2 times
        # |x||y|, and 2|x||y| ≤ |x|² + |y|²; the few roundings beside it add a small multiple.
        self.error = (points.shape[1] + 16) * torch.finfo(torch.float64).eps / 2
        self.shrunk = self.squared * (1 - self.error)
        self.total = np.empty(len(points))
        self.exact = np.zeros(len(points), bool)
        for some in self._blocks(np.arange(len(points))):
            nearest = self._low(some).topk(size, largest=False, sorted=False).values
            self.total[some] = nearest.clamp_(min=0).sqrt_().sum(dim=1).cpu()

    def densest(self) -> Index:
        """Members of the densest candidate, which are taken."""
        batch = FIRST_BATCH
        while True:
            known = np.where(self.exact, self.total, np.inf)
            best = int(known.argmin())
            promising = self.total * (1 - WHISPER) <= known[best]
            rows = np.flatnonzero(promising & ~self.exact)
            if not len(rows):
                break
            if len(rows) > batch:
                rows = rows[np.argpartition(self.total[rows], batch)[:batch]]
            self.total[rows] = [distances.sum() for _, distances in self._nearest(rows)]
            self.exact[rows] = True
            batch *= 2
        members, _ = next(self._nearest(np.array([best])))
        self.shrunk[torch.from_numpy(members).to(self.shrunk.device)] = torch.inf
        self.total[members] = np.inf
        self.exact = np.isinf(self.total)
        return members

    def _nearest(self, rows: Index) -> Iterator[tuple[Index, NDArray[np.float64]]]:
        """The nearest free observations of each row, by distance, and how far they are."""
        for some in self._blocks(rows):
            low = self._low(some)
            nearest = low.topk(self.size, largest=False, sorted=False)
            norms = self.squared[torch.from_numpy(some).to(low.device), None]
            # Whatever may be as near as the farthest of these is measured in full.
            slack = 2 * self.error * (norms + self.squared[nearest.indices])
            radius = (nearest.values + slack).amax(dim=1, keepdim=True)
            for row, near in zip(some, (low <= radius).cpu().numpy(), strict=True):
                others = np.flatnonzero(near)
                distances = np.linalg.norm(self.points[others] - self.points[row], axis=1)
                order = np.argsort(distances, kind="stable")[: self.size]
                yield others[order], distances[order]

    def _low(self, rows: Index) -> Tensor:
        """Lower bounds of squared distances, shape (len(rows), n); infinite to taken points."""
        index = torch.from_numpy(rows).to(self.shrunk.device)
        low = torch.addmm(self.shrunk, self.centred[index], self.centred.T, alpha=-2)
        return low.add_((self.squared[index] * (1 - self.error))[:, None])

    def _blocks(self, rows: Index) -> Iterator[Any]:
        """``rows`` in parts whose distances to all points fit into a block."""
        step = max(1, BLOCK_ELEMENTS // len(self.points))
        return (rows[start : start + step] for start in range(0, len(rows), step))
