"""Groups of observations that depend on each other, and batches with effects of their own.

**Groups**, such as tracks, sessions and documents, are independent, the observations of one group
are not.  So whole groups are held out, and errors and tests count groups.  A cluster that is a
single group cannot be held out and trained on at once: nothing is known about it from other groups.

**Within batches** clusters are compared so that batch effects do not count as differences.  The
network has one output for each part of a cluster in a batch.  The score of an observation of batch
b for cluster i is the output for the part (i, b).  Differences of such scores estimate log density
ratios within the batch, however much the batches differ.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import gammaln, ndtr

from unsplit._typing import Index, Matrix
from unsplit.data.labels import Parts
from unsplit.pairwise.divergences import HeldoutScores
from unsplit.pairwise.statistics import (
    CROSSFIT_VARIANCE,
    across_folds,
    rank_sum_p_value_of_pairs,
    ranks_within,
)


def has_several_groups(clusters: Index, groups: Index) -> NDArray[np.bool_]:
    """Whether each cluster has observations of at least two groups, shape (k,)."""
    parts = Parts.cut(clusters, groups)
    return np.bincount(parts.cluster, minlength=int(clusters.max()) + 1) > 1


def separate_groups(clusters: Index, groups: Index) -> Index:
    """The groups between which edges may be drawn; −1 where all may.

    A cluster that is a single group keeps the edges within it, or all of them would leave it.

    Examples
    --------
    >>> separate_groups(np.array([0, 0, 1, 1]), np.array([5, 6, 7, 7]))
    array([ 5,  6, -1, -1])
    """
    several = np.append(has_several_groups(clusters, groups), True)  # the last is noise
    return np.where(several[clusters], groups, -1)


# --- folds ----------------------------------------------------------------------------------------


def deal_groups(clusters: Index, groups: Index, shares: ArrayLike) -> Index:
    """Deal whole groups to folds so that every cluster is spread over them as evenly as can be.

    The groups that hold the largest shares of clusters are dealt first, each to the fold that has
    least of the same clusters so far.

    ``shares`` of every cluster, which sum to 1, should be in each fold.  Found is −1 if all of a
    cluster would be in one, as all of a cluster that is a single group.

    Examples
    --------
    >>> deal_groups(np.repeat([0, 1], 4), np.array([0, 0, 1, 2, 3, 3, 4, 4]), [0.5, 0.5])
    array([0, 0, 1, 1, 1, 1, 0, 0])
    """
    parts = Parts.cut(clusters, groups)
    cluster, group, sizes = parts.cluster, parts.batch, parts.sizes
    k, share = int(clusters.max()) + 1, np.asarray(shares, float)
    n_groups = np.bincount(cluster, minlength=k)
    portion = sizes / np.bincount(clusters, minlength=k)[cluster]
    # A fold should get a group of every cluster, and leave one to the others.
    least = 1 / np.maximum(n_groups, 2)
    wanted = np.clip(share[:, None], np.minimum(least, 1 / len(share)), 1 - least)
    kept = n_groups[cluster] > 1
    cluster, group, portion, sizes = cluster[kept], group[kept], portion[kept], sizes[kept]
    weight = np.bincount(group, portion**2)
    starts = np.searchsorted(group, np.arange(len(weight) + 1))
    held, load = np.zeros(wanted.shape), np.zeros(len(share))
    fold_of_group = np.full(int(groups.max()) + 1, -1)
    for number in np.argsort(-weight, kind="stable"):
        part = slice(starts[number], starts[number + 1])
        of, more = cluster[part], portion[part]
        cost = ((2 * held[:, of] + more) * more / wanted[:, of]).sum(axis=1)
        fold = np.lexsort((load / share, cost.round(9)))[0]
        held[fold, of] += more
        load[fold] += sizes[part].sum()
        fold_of_group[number] = fold
    fold_of = np.where(n_groups[clusters] > 1, fold_of_group[groups], -1)
    whole = held.max(axis=0) > 1 - 1e-9
    return np.where(whole[clusters], -1, fold_of)


# --- errors ---------------------------------------------------------------------------------------


def effective_counts_of_groups(scores: HeldoutScores, hit_rate: Matrix) -> tuple[Index, Matrix]:
    """Number of groups of each cluster that were held out (k,), and effective numbers (k, k).

    The effective number of held-out observations of i in the comparison with j is how many
    independent ones would have the same standard error; 0 where a pair cannot be compared.
    """
    import torch

    assert scores.groups is not None
    k, parts = scores.n_clusters, Parts.cut(scores.clusters, scores.groups)
    sums = torch.zeros(len(parts.cluster), k, dtype=torch.float64)
    done = 0
    for block, clusters in scores.blocks():
        margin = block.gather(1, clusters[:, None]) - block
        hits = torch.heaviside(margin, torch.tensor(0.5)).double()
        sums.index_add_(0, torch.from_numpy(parts.of_rows[done : done + len(block)]), hits)
        done += len(block)
    rates = sums.numpy() / parts.sizes[:, None]
    n_groups = np.bincount(parts.cluster, minlength=k)
    return n_groups, effective_numbers(rates, parts, hit_rate)


def counts_of_pair(
    values: NDArray[np.float64], of_a: NDArray[np.bool_], groups: Index, hit_rate: Matrix
) -> Matrix:
    """:func:`effective_counts_of_groups` of one pair, from its score differences; shape (2, 2)."""
    parts = Parts.cut((~of_a).astype(np.int64), groups)
    won = np.where(of_a, values > 0, values < 0) + (values == 0) / 2
    hits = np.bincount(parts.of_rows, won) / parts.sizes
    both = np.where(parts.cluster[:, None] == np.arange(2), 0.5, hits[:, None])
    return effective_numbers(both, parts, hit_rate)


def effective_numbers(hits: Matrix, parts: Parts, hit_rate: Matrix) -> Matrix:
    """:func:`effective_counts_of_groups` from the hit rates of the parts of clusters in groups.

    The variance of a hit rate is that of a mean over groups.  As with the uniform prior of
    :func:`unsplit.pairwise.statistics.tvd_stderr`, there are two groups more, one of hits and one
    of misses; so a few groups that happen to agree do not look certain.  If every observation is
    its own group, the result is the number of observations.  Groups that occur in both clusters of
    a pair widen its error if their hit rates rise and fall together.

    ``hits`` (c, k) are the hit rates of each part against every cluster; parts are described by
    ``cluster``, ``group`` and ``sizes`` (c,).
    """
    cluster, group, sizes = parts.cluster, parts.batch, parts.sizes
    k, c = len(hit_rate), len(cluster)
    n = np.bincount(cluster, sizes, k)
    squares = np.bincount(cluster, sizes**2.0, k)
    known = n > 0
    # Groups of unequal size count as fewer (Kish 1965).
    G = np.divide(n**2, squares, out=np.zeros(k), where=known)[:, None]
    rate = (G * hit_rate + 1) / (G + 2)
    apart = (hits - rate[cluster]) * sizes[:, None]
    member = sparse.csr_array((np.ones(c), (cluster, np.arange(c))), (k, c))
    spread = (member @ apart**2) / np.maximum(squares, 1)[:, None]
    variance = (G * spread + (1 - rate) ** 2 + rate**2) / ((G + 2) * (G + 3))
    shared = np.zeros((k, k))
    order = np.argsort(group, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        if len(part) > 1:
            of = cluster[part]
            both = apart[np.ix_(part, of)] / n[of][:, None]
            shared[np.ix_(of, of)] += both * both.T
    widening = 1 + 2 * np.maximum(shared, 0) / (variance + variance.T)
    found = G * rate * (1 - rate) / ((G + 3) * variance * widening)
    return np.where(known & known[:, None], np.minimum(found, n[:, None]), 0.0)


# --- test of "same distribution" ------------------------------------------------------------------


def group_p_values(scores: HeldoutScores) -> Matrix:
    """One-sided p-values of all pairs, by :func:`group_p_value`; shape (k, k)."""
    # By content, because sums round otherwise in another order.
    place = scores.clusters_by_content().argsort()
    scores = scores.renamed(place)
    assert scores.groups is not None
    k, z = scores.n_clusters, scores.dense().astype(np.float64)
    members = [np.flatnonzero(scores.clusters == cluster) for cluster in range(k)]
    p = np.ones((k, k))
    for i, j in zip(*np.triu_indices(k, 1), strict=True):
        rows = np.concatenate([members[i], members[j]])
        of_i = np.arange(len(rows)) < len(members[i])
        parts = of_i, scores.folds[rows], scores.groups[rows], scores.n_folds
        p[i, j] = p[j, i] = group_p_value(z[rows, i] - z[rows, j], *parts)
    return p[np.ix_(place, place)]


def group_p_value(
    values: Matrix, of_a: NDArray[np.bool_], folds: Index, groups: Index, n_folds: int
) -> float:
    """One-sided p-value of one pair from score differences, small if a and b differ.

    Observations are ranked within each fold, or all together if there are few groups and none
    occurs in both clusters; each group has one mean of ranks in each of the two clusters, and these
    are ranked again.  If both clusters come from one distribution, the labels
    of groups that occur in one of them are exchangeable, and so are the two means of a group that
    occurs in both.  Mean and variance of the rank sum under such permutations give its normal
    approximation, which is no smaller than one over the number of permutations.  Where no group
    occurs in both this is the rank-sum test.

    ``values`` are z_a − z_b of the held-out observations of both; every group is in one fold.

    Examples
    --------
    >>> values, of_a = np.array([3.0, 4, 1, 2, 0, 0]), np.array([1, 1, 1, 0, 0, 0], bool)
    >>> one_fold, groups = np.zeros(6, int), np.array([0, 0, 1, 2, 3, 3])
    >>> round(group_p_value(values, of_a, one_fold, groups, 1), 3)  # 2 groups against 2
    0.333
    """
    if of_a.all() or not of_a.any():
        return 1.0
    parts = Parts.cut((~of_a).astype(np.int64), groups)
    part, side, group, sizes = parts.of_rows, parts.cluster, parts.batch, parts.sizes
    fold = folds[np.unique(part, return_index=True)[1]]
    first, single = side == 0, np.bincount(group)[group] == 1
    counts = np.stack([np.bincount(fold[some], minlength=n_folds) for some in (first, ~first)], 1)
    if single.all() and across_folds(counts.sum(axis=0).max(), n_folds, n_folds):
        folds, fold = np.zeros_like(folds), np.zeros_like(fold)
    # Not means of scores: those of small groups would differ in skewness from those of large ones.
    rank = ranks_within(np.bincount(part, ranks_within(values, folds)) / sizes, fold)
    n, n_first = (
        np.bincount(fold[some], minlength=n_folds).astype(float)
        for some in (single, single & first)
    )
    middle = np.bincount(fold[single], rank[single], n_folds) / np.maximum(n, 1)
    apart = rank - middle[fold]
    # Parts are ordered by group, so both sides have the same groups in the same order.
    halves = (rank[~single & first] - rank[~single & ~first]) / 2
    excess = float(apart[single & first].sum() + halves.sum())
    if not len(halves):
        U = excess + float((n_first * (n - n_first)).sum()) / 2
        sides = counts[:, :1], counts[:, 1:]
        return float(rank_sum_p_value_of_pairs(np.array([U]), *sides, n_folds)[0])
    squares = np.bincount(fold[single], apart[single] ** 2, n_folds)
    of_single = n_first * (n - n_first) / np.maximum(n * (n - 1), 1) * squares
    variance = float((halves**2).sum() + of_single.sum())
    variance *= CROSSFIT_VARIANCE if n_folds > 1 else 1.0
    permutations = gammaln(n + 1) - gammaln(n_first + 1) - gammaln(n - n_first + 1)
    fewest = np.exp(-len(halves) * np.log(2) - permutations.sum())
    return float(max(fewest, ndtr(-(excess - 0.5) / np.sqrt(max(variance, 1 / 12)))))


# --- batches --------------------------------------------------------------------------------------


def shared_batches(counts: Index) -> Index:
    """Number of batches that two clusters share, shape (k, k), given their counts (B, k)."""
    occurs = (counts > 0).astype(np.int64)
    return occurs.T @ occurs
