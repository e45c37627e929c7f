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
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.labels import EncodedLabels, Subclusters
from unsplit.data.rows.base import Rows
from unsplit.devices import ALONE, Generators, Ranks, current, device_for_sums, usual_settings
from unsplit.errors import ConfusionWarning, warn
from unsplit.networks.backbones.classifiers import handed_on
from unsplit.networks.network import Network
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.networks.training.group import Fold
from unsplit.networks.training.loop import MAX_EPOCHS, TrainConfig, Training, judge_of
from unsplit.networks.training.progress import History, Reporter
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.divergences import HeldoutScores, directed_means, hit
from unsplit.pairwise.groups import shared_batches
from unsplit.pairwise.result import PairwiseTVD, by_groups
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
class Scorer:
    """Networks that score new observations of the same kind as those in ``like``.

    Output c of a network belongs to cluster ``clusters[c]`` and stands for a share of it, whose
    logarithm is ``log_shares[c]``.  Scores are divided by the ``temperature`` to calibrate them,
    as the held-out scores were.
    """

    networks: list[Network]
    clusters: Index
    log_shares: NDArray[np.float64]
    like: Rows
    temperature: float = 1.0

    @usual_settings()
    @torch.no_grad()
    def log_posterior(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log posterior of each cluster, averaged over the networks, shape (n, k).

        All clusters have the same prior.  With batches, the density of a cluster is the mixture of
        its densities in the batches, weighted by size.  Columns are in the order of
        ``PairwiseTVD.cluster_ids``.
        """
        new = self.like.another(X)
        index = np.arange(len(new))
        total = np.zeros((len(new), int(self.clusters.max()) + 1))
        for network in self.networks:
            # A user's network may draw, which here too must not touch torch's own generator.
            with Generators(0).lent(new.device):
                scores = _scores_of_rows(network, new, index).double()
            total += self._of_clusters(scores / self.temperature).cpu().numpy()
        return total / len(self.networks)

    def _of_clusters(self, scores: Tensor) -> Tensor:
        """Turn scores of the outputs into log posteriors (n, k) of the clusters."""
        k = int(self.clusters.max()) + 1
        clusters = torch.from_numpy(self.clusters).to(scores.device)
        if len(clusters) == k:
            return torch.log_softmax(scores, dim=1)[:, clusters.argsort()]
        scores = scores + torch.from_numpy(self.log_shares).to(scores.device)
        joint = torch.stack([scores[:, clusters == c].logsumexp(dim=1) for c in range(k)], dim=1)
        return torch.log_softmax(joint, dim=1)


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
    result: PairwiseTVD
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
            scores = _scores_of_rows(network, self.rows, index).cpu()
            in_order = scores[:, np.argsort(self.names)].double()[:, known] / result.temperature
            share += torch.softmax(in_order, dim=1).numpy() / len(self.networks)
        sure = share.max(axis=1) > 0.5
        best = np.flatnonzero(~result.too_small)[share.argmax(axis=1)]
        assigned[self.subclusters.of_rows[index[sure]]] = best[sure]
        return assigned


def _scores_of_rows(network: Network, rows: Rows, index: Index) -> Tensor:
    """Scores of some rows for all outputs of a network."""
    features = np.empty((len(index), network.head.in_features), np.float32)
    network.features_of(rows, index, features)
    found: Tensor = network.head(torch.from_numpy(features).to(rows.device))
    return found


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
    checkpoint: Checkpoint | None = None,
) -> tuple[HeldoutScores, History]:
    """Train one network per fold and use it to score the ``test`` rows of its fold.

    In the scores, output c of the networks is cluster ``names[c]``; by default, cluster c.
    """
    on_device = torch.from_numpy(clusters).to(next(networks[0].parameters()).device)
    training = Training(
        networks, rows, on_device, folds, config, rng,
        epochs=epochs, reporter=reporter, checkpoint=checkpoint, ranks=current(),
    )  # fmt: skip
    history = training.run()
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

    In the scores, output c of the networks is cluster ``names[c]``; clusters are numbered as for
    the networks.  Several processes score together.
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
        batch_sizes=subclusters.table,
    )


def validation_accuracy(
    networks: Sequence[Network],
    folds: Sequence[Fold],
    rows: Rows,
    subclusters: Subclusters,
    clusters: Index | None = None,
    names: Index | None = None,
) -> NDArray[np.float64]:
    """A of each network on its validation rows, compared within batches.

    It is the ``mean_accuracy`` of the estimate that the networks would give.  Clusters and names
    are those of the networks, if their outputs are not numbered as ``subclusters``.
    """
    clusters = subclusters.of_rows if clusters is None else clusters
    names = np.arange(len(subclusters.cluster)) if names is None else names
    found = []
    for network, fold in zip(networks, folds, strict=True):
        scores = scores_of([network], rows, clusters, [fold.validation], names)
        scores = within_batches(scores, subclusters)
        hit_rate = directed_means(scores, hit)
        comparable = shared_batches(scores.batch_counts) > 0
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
    judge = judge_of(folds)
    accuracy = [
        judge(validation_accuracy(one.networks, folds, rows, subclusters, clusters, names))
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
) -> PairwiseTVD:
    """Calibrate the scores and compute the hit rates of all pairs, or of confused ones only.

    ``groups`` has the group of every row of the data.
    """
    factor = best_factor(scores)
    scores = within_batches(scaled(scores, factor), subclusters)
    result = estimate_of(scores, labels, history, 1 / factor, is_sparse)
    return result if groups is None else by_groups(result, groups[scores.rows])


def estimate_of(
    scores: HeldoutScores,
    labels: EncodedLabels,
    history: History,
    temperature: float = 1.0,
    is_sparse: bool = False,
    most: int = MOST_CONFUSIONS,
) -> PairwiseTVD:
    """Compute hit rates, or count at most so many confusions of one observation, and say so."""
    known: dict[str, Any] = {
        "cluster_ids": labels.cluster_ids,
        "sizes": np.bincount(labels.clusters[labels.clusters >= 0]),
        "n_heldout": scores.counts.sum(axis=0),
        "scores": scores,
        "history": history,
        "n_noise": labels.n_noise,
        "temperature": temperature,
    }
    if not is_sparse:
        return PairwiseTVD(hit_rate=directed_means(scores, hit, current()), **known)
    misses, capped = count_confusions(scores, most=most, ranks=current())
    result = PairwiseTVD(hit_rate=None, misses=misses, capped=capped, **known)
    log.info("sparse estimate: %s confused pairs are stored", f"{len(result.pairs):,}")
    if capped.any():
        share = capped / np.maximum(result.n_heldout, 1)
        largest: list[float] = np.sort(share)[-2:].tolist()
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
