"""Evaluate the functions of all pairs on held-out observations."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from unsplit._typing import Index
from unsplit.networks.training.group import Fold
from unsplit.networks.training.loop import mean_of_others, own
from unsplit.pairwise.statistics import CROSSFIT_VARIANCE, NULL_REACH
from unsplit.pairwise.wasserstein.cluster_means import (
    NO_LENGTH,
    ROWS_AT_ONCE,
    Array,
    ClusterMeans,
    row_masks,
)
from unsplit.pairwise.wasserstein.maps import LipschitzMaps


def choose_maps(
    maps: LipschitzMaps, x: Tensor, clusters: Index, folds: Sequence[Fold], means: ClusterMeans
) -> Index:
    """Which map to use for each pair in each fold, shape (K, k, k); 0 is the identity.

    Trained maps look better on training rows than they are, wide maps most of all.  So a map is
    used only if its gain over the identity on training rows is larger than what the best maps of
    its kind lose, on average over pairs, on new rows: the rows of the other folds, or rows that
    were set aside.

    Parameters
    ----------
    maps : LipschitzMaps
        Trained, one set for each fold.
    x : Tensor of shape (n, d)
    clusters : ndarray of shape (n,)
    folds : sequence of Fold
    means : ClusterMeans
        Of the training rows.
    """
    k, y = means.n_clusters, torch.from_numpy(clusters).to(x.device)
    watched = ClusterMeans.of(maps, x, y, row_masks([f.watch for f in folds], x), k)
    judge = mean_of_others if all(fold.watches_test for fold in folds) else own
    chosen, best_gain = np.zeros((len(folds), k, k), np.int64), np.zeros((len(folds), k, k))
    for kind in means.kinds():
        longest, gain, lost = _best_of_kind(kind, means, watched)
        gain -= judge(lost)[:, None, None]
        better = gain > best_gain  # False where the loss is unknown (NaN)
        chosen[better], best_gain[better] = longest[better], gain[better]
    chosen = np.triu(chosen, 1)
    return chosen + chosen.swapaxes(1, 2)  # ties must not be broken differently for [j, i]


def _best_of_kind(
    kind: Index, means: ClusterMeans, watched: ClusterMeans
) -> tuple[Index, Array, Array]:
    """The map of a kind that moves each pair furthest apart, and its gain over the identity.

    Both have shape (K, k, k).  The third result, of shape (K,), is how much of that gain is lost on
    the watched rows, on average over pairs; NaN where no pair is watched.
    """
    n_folds, k = len(means.raw), means.n_clusters
    best, gain = np.empty((n_folds, k, k), np.int64), np.empty((n_folds, k, k))
    seen, lost = watched.counts > 0, np.zeros(n_folds)
    for rows in means.parts():
        length = means.lengths(rows)
        watched_length = means.products(watched, rows) / np.maximum(length, NO_LENGTH)
        longest = kind[length[:, kind].argmax(axis=1)]
        gained, kept = (
            np.take_along_axis(part, longest[:, None], 1)[:, 0] - part[:, 0]
            for part in (length, watched_length)
        )
        lost += ((gained - kept) * (seen[:, rows, None] & seen[:, None])).sum(axis=(1, 2))
        best[:, rows], gain[:, rows] = longest, gained
    n_seen = seen.sum(axis=1)
    return best, gain, lost / np.where(n_seen > 1, n_seen * (n_seen - 1), np.nan)


@torch.no_grad()
def heldout_sums(
    maps: LipschitzMaps,
    x: Tensor,
    clusters: Index,
    folds: Sequence[Fold],
    means: ClusterMeans,
    choice: Index,
) -> tuple[Array, Array, Index]:
    """Sums over held-out rows of the functions f_ij of all pairs.

    f_ij is zero halfway between the training means, and f_ji = −f_ij.

    Parameters
    ----------
    maps, x, clusters, folds, means
        As for :func:`choose_maps`.
    choice : ndarray of shape (K, k, k)
        What :func:`choose_maps` gives.

    Returns
    -------
    first : ndarray of shape (K, k, k)
        At [i, j], the sum of f_ij over the held-out rows of cluster i in each fold.
    second : ndarray of shape (k, k)
        At [i, j], the sum of its square over all folds.
    counts : ndarray of shape (K, k)
        Held-out rows.
    """
    k, fold_of = means.n_clusters, np.full(len(clusters), -1)
    for f, fold in enumerate(folds):
        fold_of[fold.test] = f
    first, second = np.zeros((len(folds), k, k)), np.zeros((k, k))
    counts = np.stack([np.bincount(clusters[f.test], minlength=k) for f in folds])
    for i in range(k):
        members = torch.from_numpy(np.flatnonzero((clusters == i) & (fold_of >= 0)))
        for part in members.split(ROWS_AT_ONCE):
            rows = x[part.to(x.device)]
            raw, mapped = (t.cpu().double().numpy() for t in (rows, maps(rows[None])))
            for f in np.unique(fold_of[part]):
                at = fold_of[part] == f
                values = _values(raw[at], mapped[f][:, at], means, choice[f, i], (int(f), i))
                first[f, i] += values.sum(axis=0)
                second[i] += np.square(values).sum(axis=0)
    return first, second, counts


def _values(
    raw: Array, mapped: Array, means: ClusterMeans, choice: Index, at: tuple[int, int]
) -> Array:
    """f_ij of some rows for all j, shape (n, k); ``at`` is the fold, whose model is used, and i."""
    f, i = at
    mine, others = means.mapped[f, choice, i], means.mapped[f, choice, np.arange(len(choice))]
    along = means.keeps[choice, None] * (means.raw[f, i] - means.raw[f])
    across = means.signs[choice] * (mine - others)
    lengths = (along * (means.raw[f, i] - means.raw[f])).sum(1) + (across * (mine - others)).sum(1)
    doubled = (along * (means.raw[f, i] + means.raw[f])).sum(1) + (across * (mine + others)).sum(1)
    values = raw @ along.T - doubled / 2
    for b in np.unique(choice[choice > 0]):
        j = np.flatnonzero(choice == b)
        values[:, j] += mapped[b - 1] @ across[j].T
    return values / np.maximum(np.sqrt(np.maximum(lengths, 0.0)), NO_LENGTH)


def combine_folds(first: Array, second: Array, counts: Index) -> tuple[Array, Array]:
    """Bounds and their standard errors, (k, k), from what :func:`heldout_sums` gives.

    Both clusters of a pair have the same weight in a fold, n_i n_j / (n_i + n_j), because functions
    of different folds differ by constants.  Errors are widened as those of TVDs are, since folds
    share training data (docs/statistics.md).
    """
    n = counts[:, :, None].astype(float)
    other = n.swapaxes(1, 2)
    weight = n * other / np.maximum(n + other, 1.0)
    side, total = first / np.maximum(n, 1.0), weight.sum(axis=0)
    known = total > 0
    total = np.maximum(total, 0.25)
    value = (weight * (side + side.swapaxes(1, 2))).sum(axis=0) / total
    size = np.maximum(n.sum(axis=0), 2.0)
    spread = np.maximum(second - first.sum(axis=0) ** 2 / size, 0.0) / (size - 1)
    variance = spread * (weight**2 / np.maximum(n, 1.0)).sum(axis=0) / total**2
    stderr = np.sqrt(variance + variance.T)
    z = value / np.maximum(stderr, NO_LENGTH)
    stderr *= np.sqrt(1 + (CROSSFIT_VARIANCE - 1) * np.exp(-0.5 * (z / NULL_REACH) ** 2))
    stderr[~known] = np.inf
    np.fill_diagonal(stderr, 0.0)
    return value, stderr
