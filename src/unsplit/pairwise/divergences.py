"""Compute divergences between all pairs of clusters from the held-out scores.

A margin is the score of an observation for its own cluster minus its score for another cluster;
it estimates a log density ratio.  The mean of a function of the margin over the held-out
observations of two clusters, both with weight one half, is therefore an f-divergence of the pair.
All results are symmetric (k, k) arrays in [0, 1] with a zero diagonal.

A cluster without held-out observations counts as if every margin were zero: there is no evidence
either way.

With batches, pairs are compared within each batch in which both clusters have held-out
observations, and the results are averaged over these batches.  Pairs without such a batch get the
distance 1.

Of very many clusters, confusions are counted instead, without any (n, k) or (k, k) array.
An observation is confused with every cluster for which it scores at least as high as for its own.
Scores are computed in blocks of observations × clusters and compared with the own score; only what
is confused is kept.  The rest is known without storing it: the classifier of a pair that is never
confused makes no mistake on the held-out observations.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn import functional as F

from unsplit._typing import Index, Matrix
from unsplit.devices import ALONE, BLOCK_ELEMENTS, Ranks, device_for_sums
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.groups import pair_weights
from unsplit.pairwise.scores import HeldoutScores, StratumScores


def hit(margin: Tensor) -> Tensor:
    """1 if the own cluster has the higher score, 1/2 for a tie: the mean is balanced accuracy."""
    return (margin > 0).float() + (margin == 0).float() / 2


def _log2_sigmoid(margin: Tensor) -> Tensor:
    return F.logsigmoid(margin) / math.log(2)


def _sech_of_half(margin: Tensor) -> Tensor:
    return 1 / torch.cosh(margin / 2)


# name: (function of the margin, how the divergence follows from its balanced mean)
OF_MARGINS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Matrix], Any]]] = {
    # Total variation: sup |P(Z) − Q(Z)|.
    "tv": (hit, lambda mean: 2 * mean - 1),
    # Le Cam / triangular: ½∫(p − q)²/(p + q), from soft accuracy.
    "lecam": (torch.sigmoid, lambda mean: 2 * mean - 1),
    # Jensen–Shannon in bits, from the logistic loss.
    "js": (_log2_sigmoid, lambda mean: 1 + mean),
    # Hellinger: √(1 − ∫√(pq)); bounded terms, since √(pq)/((p+q)/2) = sech of half the log ratio.
    "hellinger": (_sech_of_half, lambda mean: np.sqrt(np.clip(1 - mean, 0, 1))),
}


# Numbers that are whole or half are added without rounding in single precision below this.
LARGEST_EXACT = 2**22


# Only this many confusions of one observation are kept, those with the highest scores.  A network
# that has learned nothing confuses each observation with half of all clusters.
MOST_CONFUSIONS = 256

# Scores in a block: 64 MiB, or half a gibibyte on a GPU.
BLOCKS = {"cpu": 2**24, "cuda": 2**27}


def divergence(scores: HeldoutScores, name: str, device: torch.device | None = None) -> Matrix:
    """Compute one divergence for every pair of clusters."""
    device = device_for_sums() if device is None else device
    if name in OF_MARGINS:
        function, transform = OF_MARGINS[name]
        directed = directed_means(scores, function, device)
        return _as_distance(transform((directed + directed.T) / 2))
    if name == "overlap":
        return _as_distance(overlap_distance(scores, device))
    return _as_distance(2 * _area(scores, device) - 1)


def directed_means(
    scores: HeldoutScores,
    function: Callable[[Tensor], Tensor],
    device: torch.device,
    ranks: Ranks = ALONE,
) -> Matrix:
    """Average function(z_i − z_j) over the held-out observations of cluster i, at [i, j].

    Of several ``ranks``, each takes a part of the observations.
    """
    if scores.subclusters is None:
        return _means(scores, function, device, ranks=ranks)
    same, different = (
        float(function(torch.tensor(margin, device=device))) for margin in (0.0, math.inf)
    )
    means = mean_over_batches(
        scores, lambda b: _means(scores, function, device, b, ranks), different
    )
    np.fill_diagonal(means, same)
    return means


def mean_over_batches(
    scores: HeldoutScores, of_batch: Callable[[int], Matrix], unknown: float
) -> Matrix:
    """Average a (k, k) matrix over the batches; ``unknown`` for pairs that share no batch."""
    k = scores.n_clusters
    total, weight = np.zeros((k, k)), np.zeros((k, k))
    for batch, counts in enumerate(scores.batch_counts):
        weights = pair_weights(counts)
        total += weights * of_batch(batch)
        weight += weights
    return np.divide(total, weight, out=np.full((k, k), unknown), where=weight > 0)


def _means(
    scores: HeldoutScores,
    function: Callable[[Tensor], Tensor],
    device: torch.device,
    batch: int | None = None,
    ranks: Ranks = ALONE,
) -> Matrix:
    """:func:`directed_means` of one batch, or of all observations."""
    k, counts = scores.n_clusters, _counts(scores, batch)
    # Sums of halves are exact in single precision up to here, in half of the memory.
    exact = function is hit and counts.max(initial=0) < LARGEST_EXACT
    kind = torch.float32 if exact else torch.float64
    sums = torch.zeros(k, k, dtype=kind, device=device)
    part = scores if ranks.size == 1 else scores.some(ranks.part(len(scores.rows)))
    for block, clusters in part.blocks(device, batch):
        own = block.gather(1, clusters[:, None])
        # Rows are ordered by cluster, so runs can be summed: unlike index_add, this gives the
        # same sums every time, also on a GPU.
        present, lengths = torch.unique_consecutive(clusters, return_counts=True)
        sums[present] += torch.segment_reduce(function(own - block), "sum", lengths=lengths)
    sums = ranks.sum(sums)
    means = np.divide(sums.cpu().numpy(), np.maximum(counts, 1)[:, None], dtype=np.float64)
    means[counts == 0] = float(function(torch.zeros((), device=device)))
    return means


def _counts(scores: HeldoutScores, batch: int | None) -> Index:
    return scores.counts.sum(axis=0) if batch is None else scores.batch_counts[batch]


def overlap_distance(scores: HeldoutScores, device: torch.device) -> Matrix:
    """1 − ⟨p_i, p_j⟩ / √(⟨p_i, p_i⟩⟨p_j, p_j⟩), not yet limited to [0, 1]."""
    if scores.subclusters is None:
        return 1 - _cosine(inner_products(scores, device))
    return mean_over_batches(
        scores, lambda batch: 1 - _cosine(inner_products(scores, device, batch)), 1.0
    )


def inner_products(scores: HeldoutScores, device: torch.device, batch: int | None = None) -> Matrix:
    """Inner products ⟨p_i, p_j⟩ of the densities, estimated from all held-out observations.

    With π the softmax of the scores, this is the mean of π_i π_j, in which every cluster has the
    same weight.  It uses all observations, not only those of clusters i and j.
    """
    k = scores.n_clusters
    total = torch.zeros(k, k, dtype=torch.float64, device=device)
    counts = torch.from_numpy(_counts(scores, batch)).to(device)
    for block, clusters in scores.blocks(device, batch):
        share = torch.softmax(block, dim=1)
        total += (share / counts[clusters][:, None]).T @ share
    return total.cpu().numpy()


def p_values(scores: HeldoutScores, device: torch.device | None = None) -> Matrix:
    """Test every pair for "same distribution"; small clusters are compared across folds."""
    counts, n_folds = scores.counts, scores.n_folds
    small = stats.across_folds(counts.sum(axis=0), len(counts), n_folds)
    return stats.rank_sum_p_value(rank_sums(scores, device, small), counts, n_folds)


def rank_sums(
    scores: HeldoutScores,
    device: torch.device | None = None,
    small: NDArray[np.bool_] | None = None,
) -> Matrix:
    """Compute the Mann–Whitney U of every pair (i, j), summed over the strata.

    Within a stratum, observations of i are compared with observations of j by the score
    difference z_i − z_j.  U counts how often that of i is higher; a tie counts one half.

    Clusters that are ``small`` are compared with each other across all strata.
    """
    device = device_for_sums() if device is None else device
    across = torch.zeros(scores.n_clusters, dtype=torch.bool, device=device)
    if small is not None:
        across |= torch.from_numpy(small).to(device)
    once = torch.arange(scores.n_clusters, device=device)[~across]
    U = torch.zeros(scores.n_clusters, scores.n_clusters, dtype=torch.float64, device=device)
    if len(once):
        for stratum in scores.on(device):
            _add_rank_sums(U, [stratum], once)
    n_added = (~across).double() + (~across).double()[:, None]
    U = (U + U.T) / n_added.clamp(min=1)
    strata = [s.among(across) for s in scores.on(device)] if across.any() else []
    strata = [stratum for stratum in strata if len(stratum.clusters)]
    if strata:
        k_small = len(U) - len(once)
        among = torch.zeros(k_small, k_small, dtype=torch.float64, device=device)
        _add_rank_sums(among, strata, torch.arange(k_small, device=device), once_each=True)
        U[across[:, None] & across] = (among.triu() + among.triu(1).T).flatten()
    return U.cpu().numpy()


def _add_rank_sums(
    U: Tensor, strata: list[StratumScores], clusters: Tensor, once_each: bool = False
) -> None:
    """Add U between ``clusters`` and all clusters, observations compared across the strata.

    If each pair is needed once only, clusters are compared with those that are not before them.
    """
    own = [torch.cat([z.gather(1, c[:, None])[:, 0] for z, c in s.blocks()]) for s in strata]
    step = max(1, BLOCK_ELEMENTS // (8 * max(len(U), sum(len(part) for part in own))))
    for some in clusters.split(step):
        first = int(some[0]) if once_each else 0
        U[some, first:] += _rank_sums_of(strata, own, some, first)


def _rank_sums_of(
    strata: list[StratumScores], own: list[Tensor], some: Tensor, first: int
) -> Tensor:
    """Compute U between the clusters ``some`` and all clusters from ``first`` on."""
    k, n_some, device = len(strata[0].bias) - first, len(some), some.device
    clusters, local, below, above = [], [], [], []
    for stratum, z in zip(strata, own, strict=True):
        mine = torch.isin(stratum.clusters, some).nonzero()[:, 0]
        others = slice(int(torch.searchsorted(stratum.clusters, first)), None)
        clusters.append(stratum.clusters[others] - first)
        local.append(torch.searchsorted(some, stratum.clusters[mine]))
        # z_i − z_j for i in some: of the observations of j (below), and of those of i (above).
        below.append(stratum.of(others, some).T - z[others])
        above.append(z[mine][:, None] - stratum.of(mine, slice(first, None)))
    pair_below = torch.arange(n_some, device=device)[:, None] * k + torch.cat(clusters)
    pair_above = torch.cat(local)[:, None] * k + torch.arange(k, device=device)
    # One integer key orders by pair, then by value, so that one search counts all pairs.
    values = torch.cat([torch.cat(below, dim=1).flatten(), torch.cat(above).flatten()])
    _, rank = torch.unique(values, return_inverse=True)
    key = torch.cat([pair_below.flatten(), pair_above.flatten()]) * len(values) + rank
    key_below, key_above = key.split([pair_below.numel(), pair_above.numel()])
    key_below = key_below.sort().values
    start = torch.searchsorted(key_below, pair_above.flatten() * len(values))
    lower = torch.searchsorted(key_below, key_above) - start
    upper = torch.searchsorted(key_below, key_above, right=True) - start
    # Halves are added without rounding, in any order.
    won = ((lower + upper).double() / 2).view(-1, k)
    result = torch.zeros(n_some, k, dtype=torch.float64, device=device)
    return result.index_add(0, torch.cat(local), won)


def _area(scores: HeldoutScores, device: torch.device) -> Matrix:
    n_pairs = np.einsum("fi,fj->ij", scores.counts, scores.counts).astype(float)
    U = rank_sums(scores, device)
    # Without batches, a cluster without held-out observations counts as a coin toss.
    unknown = 0.5 if scores.subclusters is None else 1.0
    return np.where(n_pairs > 0, U / np.maximum(n_pairs, 1), unknown)


def _cosine(inner: Matrix) -> Matrix:
    length = np.sqrt(np.maximum(np.diag(inner), np.finfo(float).tiny))
    return inner / length / length[:, None]


def _as_distance(values: Matrix) -> Matrix:
    values = np.clip((values + values.T) / 2, 0.0, 1.0)
    np.fill_diagonal(values, 0.0)
    return values


# --- confusions ---------------------------------------------------------------------------------


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

    At most ``most`` of one observation are kept; ``block`` scores are in memory at a time.  Each of
    several ``ranks`` counts a part.

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
