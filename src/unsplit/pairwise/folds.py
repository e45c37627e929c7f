"""Which observations are trained on, which choose the epoch (validation), which are held out."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from unsplit._typing import Index
from unsplit.data.labels import Subclusters
from unsplit.errors import InputError, option
from unsplit.networks.training.group import Fold
from unsplit.pairwise.groups import deal_groups

# With fewer clusters than this, cross-fitting sets training rows aside to choose the epoch.
FEW_CLUSTERS = 4

USUAL_FOLDS = 5

# Up to this many observations five folds take little time.
MANY = 20_000
# Of a large cluster a third is held out, a sixth chooses the epoch, and the rest is trained on; at
# most these numbers.  With 200 held out of each, the standard error of a TVD is at most 0.05.
LARGE = 300
TESTED, VALIDATED, TRAINED = 200, 100, 600
# Small clusters that hold less than this share of all observations are not worth five folds.
NEGLIGIBLE = 0.01

# So many folds are possible even if every cluster is smaller.
ALWAYS_POSSIBLE = 10


def crossfit_folds(
    clusters: Index, n_folds: int, rng: np.random.Generator, groups: Index | None = None
) -> list[Fold]:
    """Make K folds, stratified by cluster, in which every observation is tested once.

    The members of a cluster are dealt to the folds in turn, starting where the last cluster
    stopped.  Fold sizes thus differ by at most one, and a cluster smaller than ``n_folds`` is
    tested in as many folds as it has members.  A cluster of one observation, or of one group, is
    always in the training rows and never tested, because its score would come from a network that
    never saw it.

    The accuracy of a network is validated on the test rows of its fold; this is safe because its
    epoch is chosen by the *other* folds (:class:`unsplit.networks.training.loop.Stopping`).  With
    few clusters that could still favour the tested pairs, so a share of the training rows is set
    aside instead, if the clusters are large enough.

    Examples
    --------
    >>> folds = crossfit_folds(np.repeat([0, 1, 2, 3], 3), 3, np.random.default_rng(0))
    >>> [fold.test.tolist() for fold in folds]  # one of every cluster in each fold
    [[2, 3, 8, 11], [1, 4, 6, 10], [0, 5, 7, 9]]
    """
    if groups is None:
        fold_of, sizes = _dealt(clusters, n_folds, rng), np.bincount(clusters)
    else:
        fold_of = deal_groups(clusters, groups, np.full(n_folds, 1 / n_folds))
        sizes = np.bincount(Subclusters.cut(clusters, groups).cluster)
    folds = _folds_of(fold_of, n_folds)
    if groups is not None:
        folds = [fold for fold in folds if len(fold.test)]
    if len(sizes) < FEW_CLUSTERS and sizes.min() >= 2 * n_folds:
        folds = [validated_inside(fold, clusters, rng, groups) for fold in folds]
    return folds


def holdout_fold(
    clusters: Index, share: float, rng: np.random.Generator, groups: Index | None = None
) -> Fold:
    """Make one split: test a share of every cluster, and validate on the same share of the rest.

    At least one observation of each cluster stays in the training rows, and a cluster has a test
    row before it has one for validation.  Groups are held out as a whole.

    Examples
    --------
    >>> fold = holdout_fold(np.repeat([0, 1], 5), 0.2, np.random.default_rng(0))
    >>> len(fold.train), len(fold.validation), len(fold.test)
    (6, 2, 2)
    """
    if groups is not None:
        rest, test = _split_by_group(clusters, groups, share)
        inner, validation = _split_by_group(clusters[rest], groups[rest], share)
        return Fold(rest[inner], rest[validation], test)
    sizes = np.bincount(clusters)
    n_test = _share(sizes, share)
    counts = n_test, _share(sizes - n_test, share), sizes
    test, validation, train = _parts(_shuffled_by_cluster(clusters, rng), sizes, counts)
    return Fold(train, validation, test)


def validated_inside(
    fold: Fold, clusters: Index, rng: np.random.Generator, groups: Index | None = None
) -> Fold:
    """Validate on a fifth of the training rows instead of the test rows."""
    own = clusters[fold.train]
    if groups is not None:
        kept, aside = _split_by_group(own, groups[fold.train], 0.2)
    else:
        inner = holdout_fold(own, 0.2, rng)
        kept, aside = np.concatenate([inner.train, inner.validation]), inner.test
    return Fold(fold.train[kept], fold.train[aside], fold.test)


def folds_by_need(clusters: Index, n_folds: int, rng: np.random.Generator) -> list[Fold]:
    """Make as many folds as the sizes of the clusters ask for.

    Among very many observations, a large cluster is precise enough if a part of it is held out
    once.  If nearly all observations are in large clusters there is one fold, and its network is
    trained on a part of every cluster.  Otherwise small clusters are tested in ``n_folds`` folds,
    as by :func:`crossfit_folds`, and large ones in the first fold alone.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> [len(fold.test) for fold in folds_by_need(np.repeat([0, 1], 20_000), 5, rng)]
    [400]
    >>> [len(fold.test) for fold in folds_by_need(np.repeat(np.arange(4), 50), 5, rng)]
    [40, 40, 40, 40, 40]
    """
    sizes = np.bincount(clusters)
    large = sizes >= LARGE
    if sizes[~large].sum() < NEGLIGIBLE * len(clusters):
        large[:] = True
    few = len(sizes) < FEW_CLUSTERS and not large.all()
    if len(clusters) <= MANY or few or not large.any():
        return crossfit_folds(clusters, n_folds, rng)
    order = _shuffled_by_cluster(clusters, rng)
    order, sizes = order[large[clusters[order]]], sizes[large]
    # Of a cluster of two or three observations one is tested; one alone is trained on.
    n_tested = np.minimum(np.clip(sizes // 3, 1, TESTED), sizes - 1)
    counts = n_tested, np.minimum(sizes // 6, VALIDATED), np.full_like(sizes, TRAINED)
    test, validation, train = _parts(order, sizes, counts)
    if large.all():
        return [Fold(train, validation, test)]
    small, always = np.flatnonzero(~large[clusters]), np.concatenate([train, validation])
    first, *others = [
        Fold(np.concatenate([small[fold.train], always]), small[fold.test], small[fold.test])
        for fold in _folds_of(_dealt(clusters[small], n_folds, rng), n_folds)
    ]
    both = np.concatenate([first.test, test])
    return [Fold(first.train, both, both), *others]


def require_folds(n_folds: int, clusters: Index) -> None:
    """Refuse so many folds that most would hold out next to nothing; ten are always possible."""
    largest = int(np.bincount(clusters[clusters >= 0]).max())
    if n_folds > max(largest, ALWAYS_POSSIBLE):
        raise InputError(
            f"{option('cv')} must be at most {max(largest, ALWAYS_POSSIBLE)}, the size of the "
            f"largest cluster or {ALWAYS_POSSIBLE}, got {n_folds}; 5 is usual."
        )


def _folds_of(fold_of: Index, n_folds: int) -> list[Fold]:
    """Folds that are validated on what they test; −1 is always trained on."""
    tests = [np.flatnonzero(fold_of == fold) for fold in range(n_folds)]
    return [Fold(np.flatnonzero(fold_of != fold), t, t) for fold, t in enumerate(tests)]


def _dealt(clusters: Index, n_folds: int, rng: np.random.Generator) -> Index:
    """Deal the members of every cluster to the folds; −1 for clusters of one."""
    order = _shuffled_by_cluster(clusters, rng)
    order = order[np.bincount(clusters)[clusters[order]] > 1]
    fold_of = np.full(len(clusters), -1)
    fold_of[order] = np.arange(len(order)) % n_folds
    return fold_of


def _split_by_group(clusters: Index, groups: Index, share: float) -> tuple[Index, Index]:
    """Positions to train on, and a share of whole groups to hold out."""
    held_out = deal_groups(clusters, groups, [1 - share, share]) == 1
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _parts(order: Index, sizes: Index, counts: Sequence[Index]) -> list[Index]:
    """Consecutive parts with so many rows of each cluster, from rows grouped by cluster."""
    rank = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    ends = np.repeat(np.cumsum([np.zeros_like(sizes), *counts], 0), sizes, axis=1)
    return [np.sort(order[(rank >= start) & (rank < end)]) for start, end in pairwise(ends)]


def _shuffled_by_cluster(clusters: Index, rng: np.random.Generator) -> Index:
    """Row indices grouped by cluster, in random order within each."""
    return np.lexsort((rng.random(len(clusters)), clusters))


def _share(sizes: Index, fraction: float) -> Index:
    """A share of each size, at least one, but always leaving one."""
    wanted = np.maximum(np.rint(sizes * fraction).astype(np.int64), 1)
    return np.clip(np.minimum(wanted, sizes - 1), 0, None)
