"""Count which clusters held-out observations are confused with, without any (n, k) or (k, k) array.

An observation is confused with every cluster for which it scores at least as high as for its own.
Scores are computed in blocks of observations × clusters and compared with the own score; only what
is confused is kept.  The rest is known without storing it: the classifier of a pair that is never
confused makes no mistake on the held-out observations.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from unsplit._typing import Index
from unsplit.devices import ALONE, Ranks, device_for_sums
from unsplit.pairwise.scores import HeldoutScores, StratumScores

# Only this many confusions of one observation are kept, those with the highest scores.  A network
# that has learned nothing confuses each observation with half of all clusters.
MOST_CONFUSIONS = 256

# Scores in a block: 64 MiB, or half a gibibyte on a GPU.
BLOCKS = {"cpu": 2**24, "cuda": 2**27}


class Confusions(NamedTuple):
    """How often the observations of one cluster are confused with another.

    ``misses[i, j]``: how many held-out observations of i score higher for j than for i; ties count
    one half.  ``capped[i]``: how many of them had more confusions than are kept.
    """

    misses: sparse.csr_array
    capped: Index


def count_confusions(
    scores: HeldoutScores,
    device: torch.device | None = None,
    most: int = MOST_CONFUSIONS,
    block: int | None = None,
    ranks: Ranks = ALONE,
) -> Confusions:
    """Count the confusions of all held-out observations.

    Parameters
    ----------
    scores : HeldoutScores
        Without batches.
    device : torch.device, optional
        None: CUDA if there is one, otherwise the CPU.
    most : int
        Largest number of confusions that are kept of one observation.
    block : int, optional
        Number of scores in memory at a time; chosen by the device if None.
    ranks : Ranks
        Processes that count a part of the observations each.

    Examples
    --------
    >>> z = np.array([[2, 1, 0], [0, 1, 1], [0, 3, 1]], np.float32)  # of an observation of each
    >>> weights, bias = np.eye(3, dtype=np.float32)[None], np.zeros((1, 3), np.float32)
    >>> index = np.arange(3)
    >>> scores = HeldoutScores(z, weights, bias, index, 0 * index, index)
    >>> count_confusions(scores).misses.toarray()
    array([[0. , 0. , 0. ],
           [0. , 0. , 0.5],
           [0. , 1. , 0. ]])
    """
    device = device_for_sums() if device is None else device
    block = BLOCKS[device.type] if block is None else block
    k = scores.n_clusters
    misses, capped = sparse.csr_array((k, k)), np.zeros(k, np.int64)
    part = scores if ranks.size == 1 else scores.some(ranks.part(len(scores.rows)))
    for stratum in part.on(device):
        found, too_many = _of_stratum(stratum, most, block)
        misses = misses + found
        capped += too_many
    if ranks.size > 1:
        first, *others = ranks.gathered(misses)
        misses = sum(others, start=first)
        capped = ranks.sum(torch.from_numpy(capped)).numpy()
    misses.sort_indices()
    return Confusions(misses, capped)


def _of_stratum(stratum: StratumScores, most: int, block: int) -> tuple[sparse.csr_array, Index]:
    k, n = len(stratum.bias), len(stratum.clusters)
    keys: list[NDArray[np.int64]] = []
    doubled: list[NDArray[np.int64]] = []
    capped = torch.zeros(k, dtype=torch.int64, device=stratum.bias.device)
    for start in range(0, n, max(1, block // k)):
        rows = slice(start, start + max(1, block // k))
        own = stratum.clusters[rows]
        row, other, weight, too_many = _confused(stratum.of(rows, slice(None)), own, most)
        # One number for each pair of clusters, so that equal ones can be added up.
        key, place = torch.unique(own[row] * k + other, return_inverse=True)
        sums = torch.zeros(len(key), dtype=torch.int64, device=key.device)
        keys.append(key.cpu().numpy())
        doubled.append(sums.index_add_(0, place, weight).cpu().numpy())
        capped += torch.bincount(own[too_many], minlength=k)
    key, values = np.concatenate(keys), np.concatenate(doubled)
    # The rows of a cluster may be in two blocks; the conversion adds up what they have in common.
    counted = sparse.coo_array((values / 2, (key // k, key % k)), (k, k)).tocsr()
    return counted, capped.cpu().numpy()


def _confused(z: Tensor, own: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Row, cluster and twice the miss of each confusion, and the rows that had too many.

    Of these the confusions with the highest scores are kept.
    """
    mine = z.gather(1, own[:, None])
    confused = (z >= mine).scatter_(1, own[:, None], value=False)
    row, other = confused.nonzero(as_tuple=True)
    counts = torch.bincount(row, minlength=len(own))
    too_many = counts > most
    score = z[row, other]
    if too_many.any():
        order = score.argsort(descending=True, stable=True)
        order = order[row[order].argsort(stable=True)]
        rank = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row[order]]
        order = order[rank < most]
        row, other, score = row[order], other[order], score[order]
    return row, other, 1 + (score > mine[row, 0]).long(), too_many
