"""Which observations are trained on, watched, and held out; and in which order they are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Index = NDArray[np.int64]

# With fewer clusters than this, cross-fitting sets rows aside for choosing the epoch.
FEW_CLUSTERS = 4

# A pass over very few rows is too little to see A move.
MIN_STEPS = 10


@dataclass(frozen=True)
class Fold:
    """One network's share of the observations, as row indices.

    ``train`` makes the weights, ``watch`` chooses the epoch, ``test`` is counted.
    """

    train: Index
    watch: Index
    test: Index

    @property
    def watches_test(self) -> bool:
        """Whether the counted rows are the watched ones."""
        return np.array_equal(self.watch, self.test)


def crossfit_folds(clusters: Index, n_folds: int, rng: np.random.Generator) -> list[Fold]:
    """K folds stratified by cluster; every observation is tested once.

    The members of a cluster are dealt to the folds in turn, starting where the last cluster
    stopped, so fold sizes differ by at most one and a cluster smaller than ``n_folds`` is tested
    in as many folds as it has members.  A cluster of one is always trained on, never tested: its
    score would come from a network that never saw it.

    A network is watched on its fold's test rows, because *its* epoch is chosen by the other folds
    (:class:`unsplit.training.Stopping`).  With few clusters that would still favour the pairs that
    are counted, so, if they are large enough, a share of the training rows is watched instead.
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


def balanced_draws(clusters: Index, n_draws: int, rng: np.random.Generator) -> Index:
    """Positions into ``clusters`` that visit every cluster equally often.

    Each run of k draws holds every cluster once; within a cluster, members come in random order
    and none comes again before all have come.  With clusters of one size and
    ``n_draws = len(clusters)`` this is a plain shuffled epoch.
    """
    sizes = np.bincount(clusters)
    present = np.flatnonzero(sizes)
    rounds = -(-n_draws // len(present))
    visits = rng.permuted(np.tile(present, (rounds, 1)), axis=1).ravel()[:n_draws]
    wanted = np.bincount(visits, minlength=len(sizes))
    passes = -(-wanted // np.maximum(sizes, 1))
    # Every member once per pass, passes in turn, members shuffled within each.
    members = np.repeat(np.arange(len(clusters)), passes[clusters])
    turn = np.arange(len(members)) - np.repeat(
        np.cumsum(passes[clusters]) - passes[clusters], passes[clusters]
    )
    members = members[np.lexsort((rng.random(len(members)) + turn, clusters[members]))]
    starts = np.cumsum(passes * sizes) - passes * sizes
    # The t-th visit to a cluster takes the t-th entry of its list.
    by_cluster = np.argsort(visits, kind="stable")
    visit_rank = np.arange(n_draws) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    drawn = np.empty(n_draws, np.int64)
    drawn[by_cluster] = members[starts[visits[by_cluster]] + visit_rank]
    return drawn


def epoch_batches(
    train: Sequence[Index], clusters: Index, batch_size: int, rng: np.random.Generator
) -> Tensor:
    """Row indices (steps, m, b) of one epoch for m networks, each drawing from its own rows."""
    longest = max(len(rows) for rows in train)
    batch_size = min(batch_size, longest)
    steps = max(-(-longest // batch_size), MIN_STEPS)
    draws = [rows[balanced_draws(clusters[rows], steps * batch_size, rng)] for rows in train]
    return torch.from_numpy(np.stack(draws)).unflatten(1, (steps, batch_size)).transpose(0, 1)


def _shuffled_by_cluster(clusters: Index, rng: np.random.Generator) -> Index:
    """Row indices grouped by cluster, in random order within each."""
    return np.lexsort((rng.random(len(clusters)), clusters))


def _share(sizes: Index, fraction: float) -> Index:
    """``fraction`` of each size, at least one, but always leaving one."""
    wanted = np.maximum(np.rint(sizes * fraction).astype(np.int64), 1)
    return np.clip(np.minimum(wanted, sizes - 1), 0, None)
