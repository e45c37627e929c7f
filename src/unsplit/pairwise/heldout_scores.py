"""Train networks, and score observations that they were not trained on.

Observations are split into those for training, for choosing the epoch (watched) and held out.  The
scores are then calibrated: networks rank observations well, but their scores are too confident or
not confident enough, because training stops early and weights are averaged.  Score differences are
used as log density ratios, so their scale matters.  All scores are multiplied by the factor with
the largest likelihood of the held-out labels (temperature scaling: Guo et al. 2017, "On calibration
of modern neural networks").
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from unsplit._typing import Index
from unsplit.data.labels import EncodedLabels, Subclusters
from unsplit.data.rows.base import Rows
from unsplit.devices import ALONE, Ranks, current, device_for_sums
from unsplit.errors import InputError
from unsplit.networks.backbones.classifiers import handed_on
from unsplit.networks.network import Network
from unsplit.networks.training.checkpoint import TrainingFile
from unsplit.networks.training.group import Fold, Group
from unsplit.networks.training.history import History
from unsplit.networks.training.loop import MAX_EPOCHS, Reporter, TrainConfig, judge_of, train
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.batch_effects import comparable_pairs
from unsplit.pairwise.divergences import directed_means, hit
from unsplit.pairwise.groups import deal_groups
from unsplit.pairwise.result import PairwiseTVD, by_groups
from unsplit.pairwise.scorer import Scorer
from unsplit.pairwise.scores import HeldoutScores
from unsplit.pairwise.sparse.confusions import sparse_estimate
from unsplit.pairwise.sparse.result import SparsePairwiseTVD


@dataclass(frozen=True, eq=False)
class Trained:
    """The networks of all folds, and what they found."""

    name: str
    config: TrainConfig
    networks: list[Network]
    scores: HeldoutScores
    history: History


@dataclass(frozen=True, eq=False)
class Fitted:
    """Trained networks, the data they were trained on, and the estimate they gave.

    ``clusters`` has the number of the network output for every row; ``names`` turns these numbers
    into those of ``subclusters``, which are ordered by batch, then by cluster as in
    ``result.cluster_ids``.
    """

    rows: Rows
    clusters: Index
    folds: list[Fold]
    names: Index
    subclusters: Subclusters
    result: Any  # PairwiseTVD, or SparsePairwiseTVD of very many clusters
    trained: Trained

    @property
    def networks(self) -> list[Network]:
        """One for each fold."""
        return self.trained.networks

    @property
    def scorer(self) -> Scorer:
        """The networks, ready to score new observations; the training data are not kept."""
        shares = self.subclusters.sizes / self.result.sizes[self.subclusters.cluster]
        subclusters = self.subclusters.cluster[self.names], np.log(shares[self.names])
        return Scorer(self.networks, *subclusters, self.rows.first(1), self.result.temperature)

    @torch.no_grad()
    def assigned(self) -> Index:
        """For each cluster that is too small to hold anything out, the cluster it belongs to.

        This is the larger cluster to which the networks give more than half of the probability,
        if all larger clusters are equally likely at first.  Shape (k,); −1 if there is no such
        cluster, and for all clusters that are large enough.
        """
        result = self.result
        assigned = np.full(result.n_clusters, -1, np.int64)
        small = np.flatnonzero(result.too_small)
        if len(small) == 0 or self.subclusters.n_batches > 1 or result.scores.groups is not None:
            return assigned
        index = np.flatnonzero(np.isin(self.subclusters.of_rows, small))
        known = torch.from_numpy(~result.too_small)
        share = np.zeros((len(index), int(known.sum())))
        for network in self.networks:
            features = np.empty((len(index), network.head.in_features), np.float32)
            network.features_of(self.rows, index, features)
            scores = network.head(torch.from_numpy(features).to(self.rows.device)).cpu()
            in_order = scores[:, np.argsort(self.names)].double()[:, known] / result.temperature
            share += torch.softmax(in_order, dim=1).numpy() / len(self.networks)
        sure = share.max(axis=1) > 0.5
        best = np.flatnonzero(~result.too_small)[share.argmax(axis=1)]
        assigned[self.subclusters.of_rows[index[sure]]] = best[sure]
        return assigned


# With fewer clusters than this, cross-fitting sets training rows aside to choose the epoch.
FEW_CLUSTERS = 4

USUAL_FOLDS = 5

# Up to this many observations five folds take little time.
MANY = 20_000
# Of a large cluster a third is held out, a sixth chooses the epoch, and the rest is trained on; at
# most these numbers.  With 200 held out of each, the standard error of a TVD is at most 0.05.
LARGE = 300
TESTED, WATCHED, TRAINED = 200, 100, 600
# Small clusters that hold less than this share of all observations are not worth five folds.
NEGLIGIBLE = 0.01

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
    folds = [Fold(train, test, test) for train, test in _dealt(clusters, n_folds, rng)]
    sizes = np.bincount(clusters)
    if len(sizes) < FEW_CLUSTERS and sizes.min() >= 2 * n_folds:
        folds = [watch_inside(fold, clusters, rng) for fold in folds]
    return folds


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
    order = order[large[clusters[order]]]
    test, watch, train = _parts(order, sizes[large])
    if large.all():
        return [Fold(train, watch, test)]
    small = np.flatnonzero(~large[clusters])
    always = np.concatenate([train, watch])
    folds = [
        Fold(np.concatenate([small[rows], always]), small[tested], small[tested])
        for rows, tested in _dealt(clusters[small], n_folds, rng)
    ]
    first = np.concatenate([folds[0].test, test])
    return [Fold(folds[0].train, first, first), *folds[1:]]


def group_folds(
    clusters: Index, groups: Index, n_folds: int, holdout: float | None = None
) -> list[Fold]:
    """Make folds in which whole groups are held out, or one of them with a share of all groups.

    A cluster that is a single group is always in the training rows.

    Examples
    --------
    >>> folds = group_folds(np.repeat([0, 1], 4), np.repeat([0, 1, 2, 3], 2), 2)
    >>> [fold.test.tolist() for fold in folds]
    [[0, 1, 4, 5], [2, 3, 6, 7]]
    """
    if holdout is not None:
        train, test = _split_by_group(clusters, groups, holdout)
        inner, watch = _split_by_group(clusters[train], groups[train], holdout)
        return [Fold(train[inner], train[watch], test)]
    fold_of = deal_groups(clusters, groups, np.full(n_folds, 1 / n_folds))
    tests = [np.flatnonzero(fold_of == fold) for fold in range(n_folds)]
    everything = np.arange(len(clusters))
    folds = [Fold(np.setdiff1d(everything, test), test, test) for test in tests if len(test)]
    fewest = np.bincount(np.unique(np.stack([clusters, groups]), axis=1)[0]).min()
    if int(clusters.max()) + 1 < FEW_CLUSTERS and fewest >= 2 * n_folds:
        for place, fold in enumerate(folds):
            inner, watch = _split_by_group(clusters[fold.train], groups[fold.train], 0.2)
            folds[place] = Fold(fold.train[inner], fold.train[watch], fold.test)
    return folds


def _split_by_group(clusters: Index, groups: Index, share: float) -> tuple[Index, Index]:
    """Positions to train on, and a share of whole groups to hold out."""
    held_out = deal_groups(clusters, groups, [1 - share, share]) == 1
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _parts(order: Index, sizes: Index) -> list[Index]:
    """Rows to test, to watch and to train on, from rows grouped by cluster.

    Of a cluster of two or three observations one is tested; one alone is trained on.
    """
    n_tested = np.minimum(np.clip(sizes // 3, 1, TESTED), sizes - 1)
    n_watched = np.minimum(sizes // 6, WATCHED)
    ends = np.cumsum([np.zeros_like(sizes), n_tested, n_watched, np.full_like(sizes, TRAINED)], 0)
    rank = _ranks(sizes)
    each = (np.repeat(end, sizes) for end in ends)
    return [np.sort(order[(rank >= start) & (rank < end)]) for start, end in pairwise(each)]


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
    rank = _ranks(sizes)
    bound_test, bound_watch = np.repeat(n_test, sizes), np.repeat(n_test + n_watch, sizes)
    return Fold(
        train=np.sort(order[rank >= bound_watch]),
        watch=np.sort(order[(rank >= bound_test) & (rank < bound_watch)]),
        test=np.sort(order[rank < bound_test]),
    )


def _dealt(
    clusters: Index, n_folds: int, rng: np.random.Generator
) -> Iterator[tuple[Index, Index]]:
    """Deal the members of every cluster to the folds; the training and test rows of each fold."""
    order = _shuffled_by_cluster(clusters, rng)
    order = order[np.bincount(clusters)[clusters[order]] > 1]
    fold_of = np.full(len(clusters), -1)
    fold_of[order] = np.arange(len(order)) % n_folds
    for fold in range(n_folds):
        yield np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)


def _ranks(sizes: Index) -> Index:
    """Position of every row within its cluster, if rows are grouped by cluster."""
    starts = np.cumsum(sizes) - sizes
    return np.arange(int(sizes.sum())) - np.repeat(starts, sizes)


def _shuffled_by_cluster(clusters: Index, rng: np.random.Generator) -> Index:
    """Row indices grouped by cluster, in random order within each."""
    return np.lexsort((rng.random(len(clusters)), clusters))


def _share(sizes: Index, fraction: float) -> Index:
    """``fraction`` of each size, at least one, but always leaving one."""
    wanted = np.maximum(np.rint(sizes * fraction).astype(np.int64), 1)
    return np.clip(np.minimum(wanted, sizes - 1), 0, None)


def heldout_scores(
    networks: Sequence[Network],
    rows: Rows,
    clusters: Index,
    folds: Sequence[Fold],
    config: TrainConfig,
    rng: np.random.Generator,
    reporter: Reporter | None = None,
    names: Index | None = None,
    epochs: int = MAX_EPOCHS,
    checkpoint: TrainingFile | None = None,
) -> tuple[HeldoutScores, History]:
    """Train one network per fold and use it to score the ``test`` rows of its fold.

    Parameters
    ----------
    networks, rows, folds, config, rng, reporter, epochs, checkpoint
        As for :func:`unsplit.networks.training.loop.train`.
    clusters : ndarray of shape (n,)
        Cluster of every row, as numbered for the networks.
    names : ndarray of shape (k,), optional
        In the scores, output c of the networks is cluster ``names[c]``; by default, cluster c.
    """
    on_device = torch.from_numpy(clusters).to(next(networks[0].parameters()).device)
    history = train(networks, rows, on_device, folds, config, rng, reporter, epochs, checkpoint)
    names = np.arange(networks[0].head.n_clusters) if names is None else names
    tests = [fold.test for fold in folds]
    return scores_of(networks, rows, clusters, tests, names, current()), history


def scores_of(
    networks: Sequence[Network],
    rows: Rows,
    clusters: Index,
    tests: Sequence[Index],
    names: Index,
    ranks: Ranks = ALONE,
) -> HeldoutScores:
    """Score the test rows of every network.

    Parameters
    ----------
    networks : sequence of Network
        One per fold.
    rows : Rows
    clusters : ndarray of shape (n,)
        Cluster of every row, as numbered for the networks.
    tests : sequence of ndarrays
        The rows that each network scores.
    names : ndarray of shape (k,)
        In the scores, output c of the networks is cluster ``names[c]``.
    ranks : Ranks
        The processes that score together.
    """
    device = next(networks[0].parameters()).device
    # Sorted before and not after scoring, because sorting would copy all features.  Within a
    # cluster rows stay in the order of their content, so that sums do not depend on that of X.
    tests = [test[np.argsort(names[clusters[test]], kind="stable")] for test in tests]
    test_rows = np.concatenate(tests)
    features = np.empty((len(test_rows), networks[0].head.in_features), np.float32)
    places = np.split(features, np.cumsum([len(test) for test in tests])[:-1])
    for network, test, place in zip(networks, tests, places, strict=True):
        # Several processes compute a part each, and tell the others.
        mine = ranks.part(len(test))
        network.features_of(rows, test[mine], place[mine])
        place[:] = ranks.joined(torch.from_numpy(place[mine]), len(test)).numpy()
    columns = torch.from_numpy(np.argsort(names)).to(device)
    return HeldoutScores(
        features=features,
        weights=np.stack([n.head.weight[columns].detach().cpu().numpy() for n in networks]),
        bias=np.stack([n.head.bias[columns].detach().cpu().numpy() for n in networks]),
        clusters=names[clusters[test_rows]],
        folds=np.repeat(np.arange(len(tests)), [len(test) for test in tests]),
        rows=test_rows,
    )


def within_batches(scores: HeldoutScores, subclusters: Subclusters) -> HeldoutScores:
    """Turn scores for subclusters into scores for clusters.

    The scores of an observation are those for the subclusters of its own batch.  Subclusters are
    ordered by batch, then by cluster, so rows need not be sorted again.
    """
    if subclusters.n_batches == 1:
        return scores
    n_folds, n_batches, k = (
        scores.n_folds,
        subclusters.n_batches,
        int(subclusters.cluster.max()) + 1,
    )
    width = scores.features.shape[1]
    weights = np.zeros((n_folds, n_batches, k, width), np.float32)
    bias = np.full((n_folds, n_batches, k), -np.inf, np.float32)
    weights[:, subclusters.batch, subclusters.cluster] = scores.weights
    bias[:, subclusters.batch, subclusters.cluster] = scores.bias
    return replace(
        scores,
        weights=weights.reshape(-1, k, width),
        bias=bias.reshape(-1, k),
        clusters=subclusters.cluster[scores.clusters],
        batches=subclusters.batch[scores.clusters],
        subclusters=subclusters.table,
    )


def accuracy_within_batches(
    group: Group, rows: Rows, subclusters: Subclusters
) -> NDArray[np.float64]:
    """Mean pairwise accuracy A of each network on its ``watch`` rows, compared within batches.

    It is the ``mean_accuracy`` of the estimate that the networks would give with their averaged
    weights.  Their outputs are numbered as ``subclusters``.
    """
    names = np.arange(len(subclusters.cluster))
    clusters = subclusters.of_rows
    return _watched_accuracy(group.averaged(), group.folds, rows, clusters, names, subclusters)


def _watched_accuracy(
    networks: Sequence[Network],
    folds: Sequence[Fold],
    rows: Rows,
    clusters: Index,
    names: Index,
    subclusters: Subclusters,
) -> NDArray[np.float64]:
    """A of each network on its ``watch`` rows; clusters and names are those of the networks."""
    found = []
    for network, fold in zip(networks, folds, strict=True):
        scores = scores_of([network], rows, clusters, [fold.watch], names)
        scores = within_batches(scores, subclusters)
        hit_rate = directed_means(scores, hit, device_for_sums())
        comparable = comparable_pairs(scores.batch_counts)
        found.append(stats.mean_accuracy(stats.balanced_accuracy(hit_rate), comparable))
    return np.array(found)


def best_of(
    candidates: Sequence[Trained],
    rows: Rows,
    clusters: Index,
    folds: Sequence[Fold],
    names: Index,
    subclusters: Subclusters,
) -> Trained:
    """Choose among candidates by A, as training chooses the epoch.

    What scores the test rows of a fold is chosen by the A of the other folds, or on rows set aside.
    Of equally good candidates the first is chosen.
    """
    judge = judge_of(folds, candidates[0].config)
    accuracy = [
        judge(_watched_accuracy(one.networks, folds, rows, clusters, names, subclusters))
        for one in candidates
    ]
    chosen = np.nan_to_num(accuracy, nan=-1.0).argmax(axis=0)
    most = candidates[int(np.bincount(chosen).argmax())]
    if (chosen == chosen[0]).all():
        return most
    # Calibrated each by itself, because scores of one kind are compared with those of another.
    factors = [best_factor(one.scores) for one in candidates]
    networks = [
        Network(one.networks[fold], handed_on(names.size, factor).to(rows.device))
        for fold, (one, factor) in enumerate((candidates[c], factors[c]) for c in chosen)
    ]
    scores = scores_of(networks, rows, clusters, [f.test for f in folds], names, current())
    name = " and ".join(candidates[c].name for c in np.unique(chosen))
    return replace(most, name=name, networks=networks, scores=scores)


def summarize(
    scores: HeldoutScores,
    subclusters: Subclusters,
    history: History,
    labels: EncodedLabels,
    is_sparse: bool = False,
    groups: Index | None = None,
) -> PairwiseTVD | SparsePairwiseTVD:
    """Calibrate the scores and compute the hit rates of all pairs, or of confused ones only.

    Parameters
    ----------
    scores : HeldoutScores
        For subclusters, which are the clusters themselves if there is one batch.
    subclusters : Subclusters
    history : History
        How training went.
    labels : EncodedLabels
        The over-clustering, with the names of the clusters.
    is_sparse : bool
        Whether only confused pairs are kept.
    groups : ndarray of shape (n,), optional
        Group of every row of the data.
    """
    factor = best_factor(scores)
    scores = within_batches(scaled(scores, factor), subclusters)
    if is_sparse:
        return sparse_estimate(scores, labels, history, 1 / factor)
    result = PairwiseTVD(
        cluster_ids=labels.cluster_ids,
        sizes=np.bincount(labels.clusters[labels.clusters >= 0]),
        n_heldout=scores.counts.sum(axis=0),
        hit_rate=directed_means(scores, hit, device_for_sums(), current()),
        scores=scores,
        history=history,
        n_noise=labels.n_noise,
        temperature=1 / factor,
    )
    return result if groups is None else by_groups(result, groups[scores.rows])


# This many observations are enough to find the factor.
MOST_OBSERVATIONS = 10_000
# Bounds of the logarithm of the factor: beyond them, scores say nothing or are never wrong.
LEAST, MOST = np.log(1 / 20), np.log(20)
PRECISION = 0.001


def best_factor(scores: HeldoutScores) -> float:
    """Find the factor that calibrates the scores; 1 if nothing was held out.

    Every cluster has the same weight, whatever its size.
    """
    step = -(-len(scores.rows) // MOST_OBSERVATIONS)
    if step == 0:
        return 1.0
    part = _every(scores, step)
    weights = 1 / np.maximum(part.counts.sum(axis=0), 1)

    def cross_entropy(logarithm: float) -> float:
        return _cross_entropy(part, float(np.exp(logarithm)), weights)

    found = minimize_scalar(cross_entropy, bounds=(LEAST, MOST), options={"xatol": PRECISION})
    # Rounded, so that the order of summation, which depends on cluster names, has no effect.
    return float(np.exp(round(float(found.x), 2)))


def scaled(scores: HeldoutScores, factor: float) -> HeldoutScores:
    """Multiply all scores by a factor."""
    kind = np.float32
    return replace(
        scores,
        weights=(scores.weights * factor).astype(kind),
        bias=(scores.bias * factor).astype(kind),
    )


def _every(scores: HeldoutScores, step: int) -> HeldoutScores:
    """Keep one of every ``step`` observations, the same ones whatever their order and names."""
    by_content = np.argsort(scores.features[:, 0], kind="stable")
    return scores.some(np.sort(by_content[::step]))


def _cross_entropy(
    scores: HeldoutScores, factor: float, weights: np.typing.NDArray[np.float64]
) -> float:
    """Cross-entropy of the held-out labels, with scores multiplied by the factor."""
    device = device_for_sums()
    weight = torch.from_numpy(weights).to(device)
    total = 0.0
    for block, clusters in scores.blocks(device):
        block = block.double() * factor
        own = block.gather(1, clusters[:, None])[:, 0]
        total += float((weight[clusters] * (block.logsumexp(dim=1) - own)).sum())
    return total
