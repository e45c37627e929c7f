"""Splits of the observations: trained on, watched, and held out."""

import numpy as np

from unsplit._typing import Index
from unsplit.networks.training.sampling import Fold

# With fewer clusters than this, cross-fitting sets rows aside for choosing the epoch.
FEW_CLUSTERS = 4


def crossfit_folds(clusters: Index, n_folds: int, rng: np.random.Generator) -> list[Fold]:
    """K folds stratified by cluster; every observation is tested once.

    The members of a cluster are dealt to the folds in turn, starting where the last cluster
    stopped, so fold sizes differ by at most one and a cluster smaller than ``n_folds`` is tested
    in as many folds as it has members.  A cluster of one is always trained on, never tested: its
    score would come from a network that never saw it.

    A network is watched on its fold's test rows, because *its* epoch is chosen by the other folds
    (:class:`unsplit.networks.training.loop.Stopping`).  With few clusters that would still favour
    the pairs that are counted, so, if they are large enough, a share of the training rows is
    watched instead.
    """
    order = _shuffled_by_cluster(clusters, rng)
    order = order[np.bincount(clusters)[clusters[order]] > 1]
    fold_of = np.full(len(clusters), -1)
    fold_of[order] = np.arange(len(order)) % n_folds
    folds = []
    for fold in range(n_folds):
        train, test = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        folds.append(Fold(train=train, watch=test, test=test))
    sizes = np.bincount(clusters)
    if len(sizes) < FEW_CLUSTERS and sizes.min() >= 2 * n_folds:
        folds = [watch_inside(fold, clusters, rng) for fold in folds]
    return folds


def watch_inside(fold: Fold, clusters: Index, rng: np.random.Generator) -> Fold:
    """The same test rows, but a fifth of the training rows watched instead of them."""
    inner = holdout_fold(clusters[fold.train], 0.2, rng)
    kept = np.concatenate([inner.train, inner.watch])
    return Fold(train=fold.train[kept], watch=fold.train[inner.test], test=fold.test)


def holdout_fold(clusters: Index, fraction: float, rng: np.random.Generator) -> Fold:
    """One split: ``fraction`` of every cluster to test, as much of the rest to watch.

    At least one observation of each cluster stays in training, and one goes to the test before
    any is watched.
    """
    order = _shuffled_by_cluster(clusters, rng)
    sizes = np.bincount(clusters)
    n_test = _share(sizes, fraction)
    n_watch = _share(sizes - n_test, fraction)
    starts = np.cumsum(sizes) - sizes
    rank = np.arange(len(order)) - np.repeat(starts, sizes)
    bound_test, bound_watch = np.repeat(n_test, sizes), np.repeat(n_test + n_watch, sizes)
    return Fold(
        train=np.sort(order[rank >= bound_watch]),
        watch=np.sort(order[(rank >= bound_test) & (rank < bound_watch)]),
        test=np.sort(order[rank < bound_test]),
    )


def _shuffled_by_cluster(clusters: Index, rng: np.random.Generator) -> Index:
    """Row indices grouped by cluster, in random order within each."""
    return np.lexsort((rng.random(len(clusters)), clusters))


def _share(sizes: Index, fraction: float) -> Index:
    """``fraction`` of each size, at least one, but always leaving one."""
    wanted = np.maximum(np.rint(sizes * fraction).astype(np.int64), 1)
    return np.clip(np.minimum(wanted, sizes - 1), 0, None)
