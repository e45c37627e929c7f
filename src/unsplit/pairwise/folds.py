"""Split observations into those for training, for choosing the epoch (watched) and held out."""

import numpy as np

from unsplit._typing import Index
from unsplit.errors import InputError
from unsplit.networks.training.sampling import Fold

# With fewer clusters than this, cross-fitting sets training rows aside to choose the epoch.
FEW_CLUSTERS = 4

# So many folds are possible even if every cluster is smaller.
ALWAYS_POSSIBLE = 10


def crossfit_folds(clusters: Index, n_folds: int, rng: np.random.Generator) -> list[Fold]:
    """Make K folds, stratified by cluster, in which every observation is tested once.

    The members of a cluster are dealt to the folds in turn, starting where the last cluster
    stopped.  Fold sizes thus differ by at most one, and a cluster smaller than ``n_folds`` is
    tested in as many folds as it has members.  A cluster of one observation is always in the
    training rows and never tested, because its score would come from a network that never saw it.

    The accuracy of a network is watched on the test rows of its fold; this is safe because its
    epoch is chosen by the *other* folds (:class:`unsplit.networks.training.loop.Stopping`).  With
    few clusters that could still favour the tested pairs, so a share of the training rows is
    watched instead, if the clusters are large enough.

    Parameters
    ----------
    clusters : ndarray of shape (n,)
        Cluster of every row, numbered from 0.
    n_folds : int
    rng : numpy.random.Generator

    Examples
    --------
    >>> folds = crossfit_folds(np.repeat([0, 1, 2, 3], 3), 3, np.random.default_rng(0))
    >>> [fold.test.tolist() for fold in folds]  # one of every cluster in each fold
    [[2, 3, 8, 11], [1, 4, 6, 10], [0, 5, 7, 9]]
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


def require_folds(n_folds: int, clusters: Index) -> None:
    """Raise an error if there are so many folds that most of them would hold out next to nothing.

    Up to ten folds are always possible.

    Parameters
    ----------
    n_folds : int
    clusters : ndarray of shape (n,)
        Cluster of every observation; −1 for noise.

    Examples
    --------
    >>> require_folds(1000, np.repeat([0, 1], 30))
    Traceback (most recent call last):
    unsplit.errors.InputError: cv must be at most 30, the size of the largest cluster, got 1000; ...
    """
    largest = int(np.bincount(clusters[clusters >= 0]).max())
    if n_folds > max(largest, ALWAYS_POSSIBLE):
        why = "the size of the largest cluster"
        if largest < ALWAYS_POSSIBLE:
            why = f"because the largest cluster has {largest} observations"
        raise InputError(
            f"cv must be at most {max(largest, ALWAYS_POSSIBLE)}, {why}, got {n_folds}; 5 is usual."
        )


def watch_inside(fold: Fold, clusters: Index, rng: np.random.Generator) -> Fold:
    """Watch a fifth of the training rows instead of the test rows."""
    inner = holdout_fold(clusters[fold.train], 0.2, rng)
    kept = np.concatenate([inner.train, inner.watch])
    return Fold(train=fold.train[kept], watch=fold.train[inner.test], test=fold.test)


def holdout_fold(clusters: Index, fraction: float, rng: np.random.Generator) -> Fold:
    """Make one split: test ``fraction`` of every cluster, and watch the same share of the rest.

    At least one observation of each cluster stays in the training rows, and a cluster has a test
    row before it has a watched one.

    Examples
    --------
    >>> fold = holdout_fold(np.repeat([0, 1], 5), 0.2, np.random.default_rng(0))
    >>> len(fold.train), len(fold.watch), len(fold.test)
    (6, 2, 2)
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
