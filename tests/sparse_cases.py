"""Estimates of the same scores in both forms, for tests."""

import numpy as np

from unsplit.data.labels import EncodedLabels
from unsplit.networks.training.progress import History
from unsplit.pairwise.divergences import HeldoutScores, directed_means, hit
from unsplit.pairwise.heldout_scores import crossfit_folds, estimate_of, holdout_fold
from unsplit.pairwise.result import PairwiseTVD

NO_HISTORY = History(*(np.zeros(0, kind) for kind in (int, float, float, float, int)))


def scores_of_means(X, clusters, n_folds=3, seed=0):
    """Held-out scores of a linear network whose weights are class means of training rows."""
    rng, k = np.random.default_rng(seed), int(clusters.max()) + 1
    many = n_folds > 1
    folds = crossfit_folds(clusters, n_folds, rng) if many else [holdout_fold(clusters, 0.4, rng)]
    weights = []
    for fold in folds:
        inside = np.eye(k)[clusters[fold.train]]
        sums, counts = inside.T @ X[fold.train], inside.sum(axis=0)[:, None]
        weights.append(sums / np.maximum(counts, 1))
    tests = [fold.test[np.argsort(clusters[fold.test], kind="stable")] for fold in folds]
    weights, rows = np.stack(weights), np.concatenate(tests)
    return HeldoutScores(
        features=X[rows].astype(np.float32),
        weights=weights.astype(np.float32),
        bias=(-0.5 * (weights**2).sum(axis=2)).astype(np.float32),
        clusters=clusters[rows],
        folds=np.repeat(np.arange(len(folds)), [len(test) for test in tests]),
        rows=rows,
    )


def whole_scores(k, per_cluster, n_folds, seed=0):
    """Scores that are small whole numbers, so that many are equal and none is rounded."""
    rng = np.random.default_rng(seed)
    folds = np.repeat(np.arange(n_folds), k * per_cluster)
    clusters = np.tile(np.repeat(np.arange(k), per_cluster), n_folds)
    # Some clusters have fewer observations, and one has none.
    kept = np.flatnonzero((rng.random(len(clusters)) < 0.7) & (clusters != k // 2))
    return HeldoutScores(
        features=rng.integers(-2, 3, size=(len(kept), 4)).astype(np.float32),
        weights=rng.integers(-2, 3, size=(n_folds, k, 4)).astype(np.float32),
        bias=rng.integers(-1, 2, size=(n_folds, k)).astype(np.float32),
        clusters=clusters[kept],
        folds=folds[kept],
        rows=rng.permutation(len(kept)),
    )


def both_forms(scores, most=256):
    """The dense and the sparse estimate of the same scores."""
    k = scores.n_clusters
    n_heldout = scores.counts.sum(axis=0)
    sizes = np.maximum(n_heldout, 1)
    hits = directed_means(scores, hit)
    dense = PairwiseTVD(np.arange(k), sizes, n_heldout, hits, scores, NO_HISTORY)
    labels = EncodedLabels(np.arange(k), np.repeat(np.arange(k), sizes))
    return dense, estimate_of(scores, labels, NO_HISTORY, is_sparse=True, most=most)
