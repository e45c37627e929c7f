"""Train networks, and score observations that they were not trained on.

Observations are for training, for choosing the epoch (validation), or held out.  The held-out
scores are then calibrated: networks rank observations well, but their scores are too confident or
not confident enough, because training stops early and weights are averaged.  Score differences are
used as log density ratios, so their scale matters.  All scores are multiplied by the factor with
the largest likelihood of the held-out labels (temperature scaling: Guo et al. 2017, "On calibration
of modern neural networks").
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.labels import EncodedLabels, Parts
from unsplit.data.rows.base import Rows
from unsplit.devices import (
    ALONE,
    Generators,
    Ranks,
    current,
    device_for_sums,
    one_thread,
    usual_settings,
)
from unsplit.errors import ConfusionWarning, InputError, is_whole, option, warn
from unsplit.networks.backbones.classifiers import handed_on
from unsplit.networks.network import Network
from unsplit.networks.training.group import Fold, one_is_enough
from unsplit.networks.training.loop import TrainConfig, Training, judge_of
from unsplit.networks.training.progress import History
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.divergences import HeldoutScores, directed_means, hit
from unsplit.pairwise.groups import deal_groups, shared_batches
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.stored_pairs import MOST_CONFUSIONS, count_confusions

log = logging.getLogger("unsplit")


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

    ``outputs`` says which cluster, within which batch, each output of the networks stands for.
    """

    rows: Rows
    outputs: Parts
    result: PairwiseTVD
    trained: Trained

    @usual_settings()
    @torch.no_grad()
    def log_posterior(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log posterior of each cluster for new observations, averaged over the networks, (n, k).

        All clusters have the same prior.  With batches, the density of a cluster is the mixture of
        its densities in the batches, weighted by size.
        """
        new = self.rows.another(X)
        index = np.arange(len(new))
        total = np.zeros((len(new), self.result.n_clusters))
        for network in self.trained.networks:
            # A user's network may draw, which here too must not touch torch's own generator.
            with Generators(0).lent(new.device):
                scores = _scores_of_rows(network, new, index).double()
            total += self._of_clusters(scores / self.result.temperature).cpu().numpy()
        return total / len(self.trained.networks)

    def _of_clusters(self, scores: Tensor) -> Tensor:
        """Turn scores of the outputs into log posteriors (n, k) of the clusters."""
        k, of_outputs = self.result.n_clusters, self.outputs.cluster
        clusters = torch.from_numpy(of_outputs).to(scores.device)
        log_shares = np.log(self.outputs.sizes / self.result.sizes[of_outputs])
        scores = scores + torch.from_numpy(log_shares).to(scores.device)
        joint = torch.stack([scores[:, clusters == c].logsumexp(dim=1) for c in range(k)], dim=1)
        return torch.log_softmax(joint, dim=1)

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
        if len(small) == 0 or self.outputs.n_batches > 1 or result.scores.groups is not None:
            return assigned
        clusters = np.append(self.outputs.cluster, -1)[self.outputs.of_rows]
        index = np.flatnonzero(np.isin(clusters, small))
        known = torch.from_numpy(~result.too_small)
        share = np.zeros((len(index), int(known.sum())))
        for network in self.trained.networks:
            scores = _scores_of_rows(network, self.rows, index).cpu()
            in_order = scores[:, self.outputs.cluster.argsort()].double()[:, known]
            share += torch.softmax(in_order / result.temperature, dim=1).numpy()
        share /= len(self.trained.networks)
        sure = share.max(axis=1) > 0.5
        best = np.flatnonzero(~result.too_small)[share.argmax(axis=1)]
        assigned[clusters[index[sure]]] = best[sure]
        return assigned


def _scores_of_rows(network: Network, rows: Rows, index: Index) -> Tensor:
    """Scores of some rows for all outputs of a network."""
    features = np.empty((len(index), network.head.in_features), np.float32)
    with one_thread(one_is_enough([network], rows)):
        network.features_of(rows, index, features)
        return network.head(torch.from_numpy(features).to(rows.device))


def heldout_scores(training: Training, outputs: Parts) -> tuple[HeldoutScores, History]:
    """Train the network of each fold and use it to score the ``test`` rows of its fold."""
    history = training.run()
    tests = [fold.test for fold in training.folds]
    return scores_of(training.networks, training.rows, outputs, tests, current()), history


def scores_of(
    networks: Sequence[Network],
    rows: Rows,
    outputs: Parts,
    tests: Sequence[Index],
    ranks: Ranks = ALONE,
) -> HeldoutScores:
    """Score the test rows of every network for all outputs; several processes score together.

    Rows are ordered by fold, batch and cluster, as :func:`of_clusters` needs them.
    """
    # Sorted before and not after scoring, because sorting would copy all features.  Within a
    # cluster rows stay in the order of their content, so that sums do not depend on that of X.
    place = np.lexsort((outputs.cluster, outputs.batch)).argsort()
    tests = [test[np.argsort(place[outputs.of_rows[test]], kind="stable")] for test in tests]
    test_rows = np.concatenate(tests)
    features = np.empty((len(test_rows), networks[0].head.in_features), np.float32)
    of_tests = np.split(features, np.cumsum([len(test) for test in tests])[:-1])
    with one_thread(one_is_enough(networks, rows)):
        for network, test, part in zip(networks, tests, of_tests, strict=True):
            # Several processes compute a part each, and tell the others.
            mine = ranks.part(len(test))
            network.features_of(rows, test[mine], part[mine])
            part[:] = ranks.joined(torch.from_numpy(part[mine]), len(test)).numpy()
    return HeldoutScores(
        features=features,
        weights=np.stack([n.head.weight.detach().cpu().numpy() for n in networks]),
        bias=np.stack([n.head.bias.detach().cpu().numpy() for n in networks]),
        clusters=outputs.of_rows[test_rows],
        folds=np.repeat(np.arange(len(tests)), [len(test) for test in tests]),
        rows=test_rows,
    )


def of_clusters(scores: HeldoutScores, outputs: Parts, factor: float = 1.0) -> HeldoutScores:
    """Turn scores for outputs into scores for clusters, and multiply them by a factor.

    With batches, the scores of an observation are those for the clusters within its own batch.
    """
    n_folds, n_batches, k = scores.n_folds, outputs.n_batches, int(outputs.cluster.max()) + 1
    width = scores.features.shape[1]
    weights = np.zeros((n_folds, n_batches, k, width), np.float32)
    bias = np.full((n_folds, n_batches, k), -np.inf, np.float32)
    weights[:, outputs.batch, outputs.cluster] = scores.weights * factor
    bias[:, outputs.batch, outputs.cluster] = scores.bias * factor
    return replace(
        scores,
        weights=weights.reshape(-1, k, width),
        bias=bias.reshape(-1, k),
        clusters=outputs.cluster[scores.clusters],
        batches=outputs.batch[scores.clusters] if n_batches > 1 else None,
        batch_sizes=outputs.table if n_batches > 1 else None,
    )


def validation_accuracy(
    networks: Sequence[Network], folds: Sequence[Fold], rows: Rows, outputs: Parts
) -> NDArray[np.float64]:
    """A of each network on its validation rows, compared within batches.

    It is the ``mean_accuracy`` of the estimate that the networks would give.
    """
    found = []
    for network, fold in zip(networks, folds, strict=True):
        scores = of_clusters(scores_of([network], rows, outputs, [fold.validation]), outputs)
        hit_rate = directed_means(scores, hit)
        comparable = shared_batches(scores.batch_counts) > 0
        found.append(stats.mean_accuracy((hit_rate + hit_rate.T) / 2, comparable))
    return np.array(found)


def best_of(
    candidates: Sequence[Trained], rows: Rows, outputs: Parts, folds: Sequence[Fold]
) -> Trained:
    """Choose among candidates by A, as training chooses the epoch.

    What scores the test rows of a fold is chosen by the A of the other folds, or on rows set aside.
    Of equally good candidates the first is chosen.
    """
    judge = judge_of(folds)
    accuracy = [
        judge(validation_accuracy(one.networks, folds, rows, outputs)) for one in candidates
    ]
    chosen = np.nan_to_num(accuracy, nan=-1.0).argmax(axis=0)
    most = candidates[int(np.bincount(chosen).argmax())]
    if (chosen == chosen[0]).all():
        return most
    # Calibrated each by itself, because scores of one kind are compared with those of another.
    factors = [best_factor(one.scores) for one in candidates]
    networks = [
        Network(one.networks[fold], handed_on(len(outputs.cluster), factor).to(rows.device))
        for fold, (one, factor) in enumerate((candidates[c], factors[c]) for c in chosen)
    ]
    scores = scores_of(networks, rows, outputs, [fold.test for fold in folds], current())
    name = " and ".join(candidates[c].name for c in np.unique(chosen))
    return replace(most, name=name, networks=networks, scores=scores)


def estimate_of(
    scores: HeldoutScores,
    labels: EncodedLabels,
    history: History,
    temperature: float = 1.0,
    is_sparse: bool = False,
) -> PairwiseTVD:
    """Compute the hit rates of all pairs, or count confusions and warn if there are too many."""
    hit_rate, misses, capped = None, None, None
    if is_sparse:
        misses, capped = count_confusions(scores, current())
    else:
        hit_rate = directed_means(scores, hit, current())
    result = PairwiseTVD(
        cluster_ids=labels.cluster_ids,
        sizes=np.bincount(labels.clusters[labels.clusters >= 0]),
        n_heldout=scores.counts.sum(axis=0),
        hit_rate=hit_rate,
        scores=scores,
        history=history,
        n_noise=labels.n_noise,
        temperature=temperature,
        misses=misses,
        capped=capped,
    )
    if capped is not None and capped.any():
        share = capped / np.maximum(result.n_heldout, 1)
        largest: list[float] = np.sort(share)[-2:].tolist()
        most = MOST_CONFUSIONS
        warn(
            f"{int(capped.sum()):,} of {int(result.n_heldout.sum()):,} held-out observations "
            f"score higher for more than {most} other clusters than for their own, and only {most} "
            f"of these are kept: a TVD may be too large, by up to {min(1.0, sum(largest)):.2g} for "
            "the worst pair (see tvd_error); train longer or with a larger network if that is "
            "much.",
            ConfusionWarning,
        )
    return result


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
    # One of every ``step``, the same observations whatever their order and names.
    by_content = np.argsort(scores.features[:, 0], kind="stable")
    part, device = scores.some(np.sort(by_content[::step])), device_for_sums()
    weight = torch.from_numpy(1 / np.maximum(part.counts.sum(axis=0), 1)).to(device)

    def cross_entropy(logarithm: float) -> float:
        total = 0.0
        for block, clusters in part.blocks(device):
            block = block.double() * float(np.exp(logarithm))
            own = block.gather(1, clusters[:, None])[:, 0]
            total += float((weight[clusters] * (block.logsumexp(dim=1) - own)).sum())
        return total

    found = minimize_scalar(cross_entropy, bounds=(LEAST, MOST), options={"xatol": PRECISION})
    # Rounded, so that the order of summation, which depends on cluster names, has no effect.
    return float(np.exp(round(float(found.x), 2)))


# --- folds ----------------------------------------------------------------------------------------

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

# This many folds are possible even if every cluster is smaller.
ALWAYS_POSSIBLE = 10


def make_folds(
    cv: float | str, clusters: Index, rng: np.random.Generator, groups: Index | None
) -> list[Fold]:
    """Make the folds that ``cv`` of :func:`unsplit.pairwise_tvd` asks for."""
    if cv == "auto" and groups is None:
        return folds_by_need(clusters, USUAL_FOLDS, rng)
    if cv == "auto" or is_whole(cv):
        return crossfit_folds(clusters, USUAL_FOLDS if cv == "auto" else int(cv), rng, groups)
    return [holdout_fold(clusters, float(cv), rng, groups)]


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
        sizes = np.bincount(Parts.cut(clusters, groups).cluster)
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
    """Refuse folds of which most would hold out next to nothing; ten are always possible."""
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
    """Consecutive parts, each with some rows of each cluster, from rows grouped by cluster."""
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
