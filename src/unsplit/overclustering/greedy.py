"""Dense clusters of one size, found greedily: Algorithm 1 of the paper.

The definition computes all distances again after every cluster.  Two facts make that unnecessary
without changing the result.

Removing observations can only raise a candidate's mean distance, so an old value is a lower bound.
So is a value corrected for the observations that were removed from within the candidate's old
radius.  Only candidates whose bound is below the best known value are computed again.

Distances from a matrix product are fast but rounded, so they are used only as bounds
(:class:`unsplit.overclustering.bounds.DistanceBounds`).  The distances that decide are computed
from differences in float64, so the result is the same on every device.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from unsplit.data.annotated import refuse_annotated
from unsplit.devices import choose_device
from unsplit.errors import InputError, check_whole, option
from unsplit.overclustering.bounds import DistanceBounds, fast_dtype

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
    The cost is about one product R Rᵀ (2n²d operations).  Memory holds one float64 copy of R and
    blocks of 64 or 128 MiB, never an (n, n) array.  Clusters tighter than a hundredth of the whole
    extent cannot be ranked in single precision; then the cost is three times higher.

    Examples
    --------
    >>> greedy_dense([[0.0], [0.1], [5.0], [5.3], [9.0]], n_clusters=2, size=2)
    array([ 0,  0,  1,  1, -1])
    """
    points = _checked_points(R)
    _check_counts(len(points), n_clusters, size)
    chosen = choose_device(device)
    if chosen.type == "mps":  # it has no float64
        chosen = torch.device("cpu")
    search = _Search(points, size, chosen)
    labels = np.full(len(points), -1, np.int64)
    for cluster in range(n_clusters):
        members = search.densest()
        labels[members] = cluster
        search.take(members)
    return labels


class _Search:
    """What is known of every candidate.

    ``total`` is a lower bound of the summed distance to its nearest observations, ``reach`` one of
    the largest of these distances; where ``exact``, both are the values themselves.  Candidates
    that were taken are exact and infinite.
    """

    def __init__(self, points: NDArray[Any], size: int, device: torch.device) -> None:
        self.size = size
        self.total = np.empty(len(points))
        self.reach = np.empty(len(points))
        self.exact = np.zeros(len(points), bool)
        self._first_look(points, device)
        self.bounds = DistanceBounds(points, torch.float64, device)

    def _first_look(self, points: NDArray[Any], device: torch.device) -> None:
        """Bounds for every candidate: nearly all of the work."""
        bounds = DistanceBounds(points, fast_dtype(device), device)
        for some in bounds.blocks(np.arange(len(points))):
            low = bounds.low(some).topk(self.size, largest=False, sorted=False).values
            distances = low.double().clamp_(min=0).sqrt_()
            self.total[some] = distances.sum(dim=1).cpu()
            self.reach[some] = distances.amax(dim=1).cpu()

    def densest(self) -> NDArray[np.int64]:
        """Members of the densest candidate."""
        batch = FIRST_BATCH
        while True:
            known = np.where(self.exact, self.total, np.inf)
            best = int(known.argmin())
            promising = self.total * (1 - WHISPER) <= known[best]
            rows = np.flatnonzero(promising & ~self.exact)
            if not len(rows):
                members, _ = next(self._nearest(np.array([best])))
                return members
            if len(rows) > batch:
                rows = rows[np.argpartition(self.total[rows], batch)[:batch]]
            self._look_again(rows)
            batch *= 2

    def _look_again(self, rows: NDArray[np.int64]) -> None:
        for row, (_, distances) in zip(rows, self._nearest(rows), strict=True):
            self.total[row] = distances.sum()
            self.reach[row] = distances[-1]
            self.exact[row] = True

    def _nearest(
        self, rows: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """The nearest free observations of each row, by distance, and how far they are."""
        for some in self.bounds.blocks(rows):
            low = self.bounds.low(some)
            nearest = low.topk(self.size, largest=False, sorted=False)
            slack = self.bounds.slack(some, nearest.indices)
            # Whatever may be as near as the farthest of these is measured in full.
            radius = (nearest.values + slack).amax(dim=1, keepdim=True)
            for row, near in zip(some, (low <= radius).cpu().numpy(), strict=True):
                yield self._sorted_by_distance(int(row), np.flatnonzero(near))

    def _sorted_by_distance(
        self, row: int, others: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        distances = self.bounds.distances(row, others)
        order = np.argsort(distances, kind="stable")[: self.size]
        return others[order], distances[order]

    def take(self, members: NDArray[np.int64]) -> None:
        """Remove the members and correct the bounds of those they were near to.

        Each member within a candidate's reach gives way to an observation at that reach or beyond.
        """
        reach = torch.from_numpy(self.reach).to(self.bounds.device)
        for some in self.bounds.blocks(members):
            low = self.bounds.low(some)
            near = (low <= reach.square()).any(dim=0).nonzero().squeeze(1)
            high = (low[:, near] + self.bounds.slack(some, near)).clamp_(min=0)
            gain = (reach[near] - high.sqrt_()).clamp_(min=0).sum(dim=0)
            touched = near.cpu().numpy()
            self.total[touched] += gain.cpu().numpy()
            self.exact[touched] = False
        self.bounds.hide(members)
        self.total[members] = np.inf
        self.exact[members] = True


def _checked_points(R: ArrayLike) -> NDArray[Any]:
    refuse_annotated(R, "R")
    try:
        points = np.asarray(R)
        kept = np.float32 if points.dtype in (np.float32, np.float16) else np.float64
        points = points.astype(kept, casting="same_kind", copy=False)
    except (TypeError, ValueError):
        raise InputError(
            "R must be a dense table of numbers with rows of one length; convert it to an array of "
            "shape (observations, features) first."
        ) from None
    if points.ndim != 2 or points.size == 0:
        raise InputError(
            f"R must be a table with one row per observation, got shape {points.shape}; "
            "reshape it to (observations, features)."
        )
    largest = float(np.maximum(points.max(), -points.min()))
    if not np.isfinite(largest):
        n_bad = points.size - int(np.isfinite(points).sum())
        raise InputError(
            f"R has {n_bad} values that are NaN or infinite; remove those rows or fill in the "
            "values first."
        )
    if largest > 1e150:
        raise InputError(
            f"R has values as large as {largest:.0e}, whose squares are too large to compute with; "
            "rescale the features first."
        )
    return points


def _check_counts(n: int, n_clusters: int, size: int) -> None:
    check_whole("size", size, 2, "density is measured between neighbours")
    check_whole("n_clusters", n_clusters, 1)
    if n_clusters * size > n:
        raise InputError(
            f"{option('n_clusters', n_clusters)} clusters of {option('size', size)} need "
            f"{n_clusters * size} observations, but R has {n}; pass at most "
            f"{option('n_clusters', n // size)} or a smaller size."
        )
