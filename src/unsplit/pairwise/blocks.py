"""Distances of all pairs written to disk block by block, so that they never are in memory at once.

The file is a plain .npy: ``numpy.load(path, mmap_mode="r")`` reads any part of it, and it needs no
further package, as HDF5 would.
"""

import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unsplit.data.saving import replacing
from unsplit.devices import BLOCK_ELEMENTS, device_for_sums
from unsplit.pairwise.divergences import hit
from unsplit.pairwise.scores import HeldoutScores

# Rows and columns of the part of a matrix that is in memory.
TILE = 2_048


def write_tvd(path: str | os.PathLike[str], result: Any) -> None:
    """Write the total variation distances of all pairs as float32, shape (k, k).

    Parameters
    ----------
    path : str or path
        An existing file is replaced once the new one is complete.
    result : PairwiseTVD

    Examples
    --------
    >>> import tempfile, unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
    >>> result = unsplit.pairwise_tvd(X, labels, cv=2, random_state=0)
    >>> path = tempfile.mkdtemp() + "/tvd.npy"
    >>> write_tvd(path, result)
    >>> np.load(path, mmap_mode="r").shape
    (2, 2)
    """
    k = result.n_clusters
    with replacing(path) as new:
        out = np.lib.format.open_memmap(new, "w+", np.float32, (k, k))
        # With batches, pairs are averaged over those they share, which is done in memory; with
        # groups, some pairs cannot be compared.
        if result.has_scores and result.scores.subclusters is None and result.n_groups is None:
            _add_hits(out, result.scores)
            _symmetrize(out, result.scores.counts.sum(axis=0))
        else:
            for start in range(0, k, TILE):
                out[start : start + TILE] = result.tvd[start : start + TILE]
        out.flush()


@torch.no_grad()
def _add_hits(out: NDArray[np.float32], scores: HeldoutScores) -> None:
    """Add up, in row i and column j, how often observations of i score higher for i than for j."""
    step = max(1, BLOCK_ELEMENTS // scores.n_clusters)
    for stratum in scores.on(device_for_sums()):
        for start in range(0, len(stratum.clusters), step):
            rows = slice(start, start + step)
            clusters, block = stratum.clusters[rows], stratum.of(rows, slice(None))
            own = block.gather(1, clusters[:, None])
            present, counts = torch.unique_consecutive(clusters, return_counts=True)
            sums = torch.segment_reduce(hit(own - block), "sum", lengths=counts)
            out[present.cpu().numpy()] += sums.cpu().numpy()


def _symmetrize(out: NDArray[np.float32], n_heldout: NDArray[np.int64]) -> None:
    """Turn sums of hits into distances, a tile and its mirror image at a time."""
    k = len(out)
    for top in range(0, k, TILE):
        for left in range(top, k, TILE):
            rows, columns = slice(top, top + TILE), slice(left, left + TILE)
            above = _rates(out[rows, columns], n_heldout[rows])
            below = _rates(out[columns, rows], n_heldout[columns])
            tvd = np.clip(above + below.T - 1, 0.0, 1.0)
            if top == left:
                np.fill_diagonal(tvd, 0.0)
            out[rows, columns], out[columns, rows] = tvd, tvd.T


def _rates(sums: NDArray[np.float32], n_heldout: NDArray[np.int64]) -> NDArray[np.float64]:
    """Shares of hits; a cluster without held-out observations counts as a coin toss."""
    count = n_heldout[:, None]
    return np.where(count > 0, sums / np.maximum(count, 1), 0.5)
