"""Count which clusters held-out observations are confused with, without any (n, k) or (k, k) array.

An observation is confused with every cluster for which it scores at least as high as for its own.
Scores are computed in blocks of observations × clusters and compared with the own score; only what
is confused is kept.  The rest is known without storing it: the classifier of a pair that is never
confused makes no mistake on the held-out observations.
"""

import logging
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.labels import EncodedLabels
from unsplit.devices import ALONE, Ranks, current, device_for_sums
from unsplit.errors import ConfusionWarning, warn
from unsplit.networks.training.progress import History
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.scores import HeldoutScores, StratumScores

log = logging.getLogger("unsplit")

# Only this many confusions of one observation are kept, those with the highest scores.  A network
# that has learned nothing confuses each observation with half of all clusters.
MOST_CONFUSIONS = 256

# Fewer rows than this would make the matrix product of a block slow.
FEWEST_ROWS = {"cpu": 2048, "cuda": 4096}
# Scores in a block: eight mebibytes, which stay in a processor's cache; one gibibyte on a GPU.
BLOCKS = {"cpu": 2**21, "cuda": 2**28}


@dataclass(frozen=True, eq=False)
class Confusions:
    """How often the observations of one cluster are confused with another.

    Parameters
    ----------
    misses : sparse matrix of shape (k, k)
        At [i, j], how many held-out observations of i score higher for j than for i; ties count
        one half.
    capped : ndarray of shape (k,)
        How many held-out observations of a cluster had more confusions than are kept.
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


def sparse_estimate(
    scores: HeldoutScores,
    labels: EncodedLabels,
    history: History,
    temperature: float = 1.0,
    most: int = MOST_CONFUSIONS,
) -> PairwiseTVD:
    """Count confusions, and say so if there were too many to keep.

    Parameters
    ----------
    scores : HeldoutScores
        Calibrated, and without batches.
    labels : EncodedLabels
    history : History
    temperature : float
        What the scores were divided by.
    most : int
        Largest number of confusions that are kept of one observation.
    """
    found = count_confusions(scores, most=most, ranks=current())
    result = PairwiseTVD(
        cluster_ids=labels.cluster_ids,
        sizes=np.bincount(labels.clusters[labels.clusters >= 0]),
        n_heldout=scores.counts.sum(axis=0),
        hit_rate=None,
        misses=found.misses,
        capped=found.capped,
        scores=scores,
        history=history,
        n_noise=labels.n_noise,
        temperature=temperature,
    )
    log.info("sparse estimate: %s confused pairs are stored", f"{len(result.pairs):,}")
    if found.capped.any():
        _warn_of_cap(result, found.capped, most)
    return result


def _warn_of_cap(result: PairwiseTVD, capped: Index, most: int) -> None:
    share = capped / np.maximum(result.n_heldout, 1)
    largest: list[float] = np.sort(share)[-2:].tolist()
    warn(
        f"{int(capped.sum()):,} of {int(result.n_heldout.sum()):,} held-out observations "
        f"score higher for more than {most} other clusters than for their own, and only {most} of "
        f"these are kept: a TVD may be too large, by up to {min(1.0, sum(largest)):.2g} for the "
        "worst pair (see tvd_error); train longer or with a larger network if that is much.",
        ConfusionWarning,
    )


def _of_stratum(stratum: StratumScores, most: int, block: int) -> tuple[sparse.csr_array, Index]:
    k, n = len(stratum.bias), len(stratum.clusters)
    n_rows = min(n, max(1, block // k, min(FEWEST_ROWS[stratum.bias.device.type], block)))
    width = max(1, block // n_rows)
    keys: list[NDArray[np.int64]] = []
    doubled: list[NDArray[np.int64]] = []
    capped = torch.zeros(k, dtype=torch.int64, device=stratum.bias.device)
    for start in range(0, n, n_rows):
        rows = slice(start, min(start + n_rows, n))
        found = _Block(stratum, rows, width, most)
        for first in range(0, k, width):
            found.add(slice(first, min(first + width, k)))
        own = stratum.clusters[rows]
        row, other, weight, too_many = found.kept()
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


class _Block:
    """The confusions of a block of rows, gathered over blocks of clusters."""

    def __init__(self, stratum: StratumScores, rows: slice, width: int, most: int) -> None:
        self.stratum, self.rows, self.most = stratum, rows, most
        self.clusters = stratum.clusters[rows]
        self.own = self._own_scores(width)
        empty = torch.zeros(0, dtype=torch.int64, device=self.clusters.device)
        # Row within the block, cluster, twice the miss, and score.
        self.parts = [(empty, empty, empty, empty.float())]
        self.too_many = torch.zeros(len(self.clusters), dtype=torch.bool, device=empty.device)
        self.n_gathered = 0

    def add(self, some: slice) -> None:
        """Compare the scores for some clusters with the own scores."""
        z = self.stratum.of(self.rows, some)
        own = self.own
        row, column = (z >= own[:, None]).nonzero(as_tuple=True)
        other = column + some.start
        different = other != self.clusters[row]
        row, column, other = row[different], column[different], other[different]
        score = z[row, column]
        self.parts.append((row, other, 1 + (score > own[row]).long(), score))
        self.n_gathered += len(row)
        if self.n_gathered > 4 * self.most * len(self.clusters):
            self._drop_lowest()

    def kept(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Row, cluster and twice the miss of each confusion, and the rows that had too many."""
        self._drop_lowest()
        row, other, weight, _ = self.parts[0]
        return row, other, weight, self.too_many

    def _own_scores(self, width: int) -> Tensor:
        """Scores for the own clusters, from the same blocks as all others, so that ties stay."""
        own = torch.empty(len(self.clusters), device=self.clusters.device)
        block = self.clusters // width
        for n in torch.unique_consecutive(block).tolist():
            some = slice(n * width, min((n + 1) * width, len(self.stratum.bias)))
            inside = (block == n).nonzero()[:, 0]
            column = self.clusters[inside] - some.start
            own[inside] = self.stratum.of(self.rows, some)[inside, column]
        return own

    def _drop_lowest(self) -> None:
        """Keep the confusions with the highest scores of rows that have too many."""
        row, other, weight, score = (torch.cat(parts) for parts in zip(*self.parts, strict=True))
        counts = torch.bincount(row, minlength=len(self.clusters))
        if len(row) and int(counts.max()) > self.most:
            self.too_many |= counts > self.most
            order = score.argsort(descending=True, stable=True)
            order = order[row[order].argsort(stable=True)]
            starts = counts.cumsum(0) - counts
            rank = torch.arange(len(row), device=row.device) - starts[row[order]]
            order = order[rank < self.most]
            row, other, weight, score = row[order], other[order], weight[order], score[order]
        self.parts = [(row, other, weight, score)]
        self.n_gathered = len(row)
