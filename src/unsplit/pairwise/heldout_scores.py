"""Train networks and score observations that they were not trained on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.labels import EncodedLabels
from unsplit.data.rows.base import Rows
from unsplit.devices import device_for_sums
from unsplit.networks.training.group import Group, Network, refuse_gaps
from unsplit.networks.training.history import History
from unsplit.networks.training.loop import MAX_EPOCHS, TrainConfig, train
from unsplit.networks.training.progress import Reporter
from unsplit.networks.training.sampling import Fold
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.batch_effects import Subclusters, comparable_pairs
from unsplit.pairwise.calibration import best_factor, scaled
from unsplit.pairwise.divergences import directed_means, hit
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.scores import HeldoutScores


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
    networks: list[Network]
    names: Index
    subclusters: Subclusters
    result: PairwiseTVD
    config: TrainConfig
    recipe_name: str

    @property
    def scorer(self) -> "Scorer":
        """The networks, ready to score new observations; the training data are not kept."""
        shares = self.subclusters.sizes / self.result.sizes[self.subclusters.cluster]
        subclusters = self.subclusters.cluster[self.names], np.log(shares[self.names])
        return Scorer(self.networks, *subclusters, self.rows.first(1), self.result.temperature)

    @torch.no_grad()
    def homes(self) -> Index:
        """For each cluster that is too small to hold anything out, the cluster it belongs to.

        This is the larger cluster to which the networks give more than half of the probability,
        if all larger clusters are equally likely at first.  Shape (k,); −1 if there is no such
        cluster, and for all clusters that are large enough.
        """
        result = self.result
        homes = np.full(result.n_clusters, -1, np.int64)
        small = np.flatnonzero(result.too_small)
        if len(small) == 0 or self.subclusters.n_batches > 1:
            return homes
        index = np.flatnonzero(np.isin(self.subclusters.of_rows, small))
        known = torch.from_numpy(~result.too_small)
        share = np.zeros((len(index), int(known.sum())))
        for network in self.networks:
            features = np.empty((len(index), network.head.in_features), np.float32)
            _write_features(features, network, self.rows, index)
            scores = network.head(torch.from_numpy(features).to(self.rows.device)).cpu()
            in_order = scores[:, np.argsort(self.names)].double()[:, known] / result.temperature
            share += torch.softmax(in_order, dim=1).numpy() / len(self.networks)
        sure = share.max(axis=1) > 0.5
        best = np.flatnonzero(~result.too_small)[share.argmax(axis=1)]
        homes[self.subclusters.of_rows[index[sure]]] = best[sure]
        return homes


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
            features = np.empty((len(new), network.head.in_features), np.float32)
            _write_features(features, network, new, index)
            scores = network.head(torch.from_numpy(features).to(new.device)).double()
            scores = scores / self.temperature
            total += self._of_clusters(scores).cpu().numpy()
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
) -> tuple[HeldoutScores, History]:
    """Train one network per fold and use it to score the ``test`` rows of its fold.

    In the scores, output c of the networks is cluster ``names[c]``; by default, cluster c.
    """
    on_device = torch.from_numpy(clusters).to(next(networks[0].parameters()).device)
    history = train(networks, rows, on_device, folds, config, rng, reporter, epochs)
    names = np.arange(networks[0].head.n_clusters) if names is None else names
    return scores_of(networks, rows, clusters, [fold.test for fold in folds], names), history


def scores_of(
    networks: Sequence[Network],
    rows: Rows,
    clusters: Index,
    tests: Sequence[Index],
    names: Index,
) -> HeldoutScores:
    """Score the test rows of every network."""
    device = next(networks[0].parameters()).device
    # Sorted before and not after scoring, because sorting would copy all features.
    tests = [test[np.lexsort((test, names[clusters[test]]))] for test in tests]
    test_rows = np.concatenate(tests)
    features = np.empty((len(test_rows), networks[0].head.in_features), np.float32)
    places = np.split(features, np.cumsum([len(test) for test in tests])[:-1])
    for network, test, place in zip(networks, tests, places, strict=True):
        _write_features(place, network, rows, test)
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
    found = []
    for network, fold in zip(group.averaged(), group.folds, strict=True):
        scores = scores_of([network], rows, subclusters.of_rows, [fold.watch], names)
        scores = within_batches(scores, subclusters)
        hit_rate = directed_means(scores, hit, device_for_sums())
        comparable = comparable_pairs(scores.batch_counts)
        found.append(stats.mean_accuracy(stats.balanced_accuracy(hit_rate), comparable))
    return np.array(found)


def summarize(
    scores: HeldoutScores, subclusters: Subclusters, history: History, labels: EncodedLabels
) -> PairwiseTVD:
    """Calibrate the scores and compute the hit rates of all pairs."""
    factor = best_factor(scores)
    scores = within_batches(scaled(scores, factor), subclusters)
    return PairwiseTVD(
        cluster_ids=labels.cluster_ids,
        sizes=np.bincount(labels.clusters[labels.clusters >= 0]),
        n_heldout=scores.counts.sum(axis=0),
        hit_rate=directed_means(scores, hit, device_for_sums()),
        scores=scores,
        history=history,
        n_noise=labels.n_noise,
        temperature=1 / factor,
    )


@torch.no_grad()
def _write_features(found: NDArray[np.float32], network: Network, rows: Rows, index: Index) -> None:
    """Write the features of the rows at ``index`` into ``found``."""
    places = torch.from_numpy(index).to(rows.device)
    batches = [batch for batch in places.split(network.most_at_once) if len(batch)]
    done = 0
    for batch, x in zip(batches, rows.stream(batches), strict=True):
        features = network.backbone(x).float()
        refuse_gaps(features, batch)
        found[done : done + len(batch)] = features.cpu().numpy()
        done += len(batch)
