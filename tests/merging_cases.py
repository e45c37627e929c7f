"""Estimates with exact scores, made without training, and slow twins of merging."""

from dataclasses import replace

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from tests import reference
from unsplit.merging.neighbours.evidence import Neighbourhoods
from unsplit.merging.neighbours.graph import Connections, connect
from unsplit.networks.training.progress import History
from unsplit.pairwise.divergences import HeldoutScores
from unsplit.pairwise.result import PairwiseTVD

NO_HISTORY = History(*(np.zeros(0, dtype) for dtype in (int, float, float, float, int)))


def gaussian_estimate(means, sizes, *, scales=1.0, n_folds=3, share=1.0, names=None, seed=0):
    """What a perfect network would say of Gaussian clusters: z_i(x) = log p_i(x).

    Log densities of round Gaussians are linear in (x, |x|²), which are the features.  With one
    fold only ``share`` of every cluster is held out.  Clusters of one observation hold out none.
    Returns the estimate and the observations, shuffled, so that rows of any cluster come first.
    """
    means = np.asarray(means, float).reshape(len(means), -1)
    k, d = means.shape
    sizes, scales = np.broadcast_to(sizes, k), np.broadcast_to(scales, k).astype(float)
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(k), sizes))
    X = means[labels] + scales[labels, None] * rng.standard_normal((len(labels), d))
    weights = np.column_stack([means / scales[:, None] ** 2, -0.5 / scales**2])
    bias = -0.5 * (means**2).sum(1) / scales**2 - d * np.log(scales) - d / 2 * np.log(2 * np.pi)
    folds = np.where(sizes[labels] > 1, rng.integers(n_folds, size=len(labels)), -1)
    folds[rng.random(len(labels)) >= share] = -1
    features = np.column_stack([X, (X**2).sum(1)])
    result = estimate_of(features, weights, bias, labels, folds, n_folds, sizes, names)
    return result, X


def labels_of(result):
    """Cluster of every observation of an estimate; −1 for those that were not held out."""
    labels = np.full(len(result.scores.rows), -1)
    labels[result.scores.rows] = result.scores.clusters
    return labels


def estimate_of(features, weights, bias, labels, folds, n_folds, sizes, names=None):
    """An estimate from one linear map for all folds; fold −1 is not held out."""
    k = len(bias)
    rows = np.flatnonzero(folds >= 0)
    rows = rows[np.lexsort((rows, labels[rows], folds[rows]))]
    scores = HeldoutScores(
        features=np.asarray(features, np.float32)[rows],
        weights=np.tile(np.asarray(weights, np.float32), (n_folds, 1, 1)),
        bias=np.tile(np.asarray(bias, np.float32), (n_folds, 1)),
        clusters=labels[rows].astype(np.int64),
        folds=folds[rows].astype(np.int64),
        rows=rows,
    )
    return PairwiseTVD(
        cluster_ids=np.arange(k) if names is None else np.array(names),
        sizes=np.array(sizes, np.int64),
        n_heldout=scores.counts.sum(axis=0),
        hit_rate=reference.hit_rates(scores.dense(), scores.clusters, k),
        scores=scores,
        history=NO_HISTORY,
    )


def log_density(x, means, sizes, scales):
    """Log density of the mixture of round Gaussians, by SciPy."""
    parts = [
        multivariate_normal(mean, scale**2).logpdf(x)
        for mean, scale in zip(means, scales, strict=True)
    ]
    return logsumexp(np.stack(parts), axis=0, b=(sizes / np.sum(sizes))[:, None])


def union_scores(result, groups):
    """z of every group for all held-out observations, from z_union = log Σ n_i e^{z_i} / Σ n_i."""
    z = result.scores.dense().astype(np.float64)
    columns = []
    for group in range(max(groups) + 1):
        members = np.flatnonzero(np.asarray(groups) == group)
        weights = result.sizes[members] / result.sizes[members].sum()
        columns.append(logsumexp(z[:, members], axis=1, b=weights))
    return np.stack(columns, axis=1)


def regrouped(result, groups):
    """The estimate a perfect network gives after clusters were joined to groups."""
    groups, scores = np.asarray(groups), result.scores
    n = int(scores.rows.max()) + 1
    labels, folds = np.full(n, -1), np.full(n, -1)
    labels[scores.rows], folds[scores.rows] = groups[scores.clusters], scores.folds
    k = int(groups.max()) + 1
    features = np.zeros((n, k))
    features[scores.rows] = union_scores(result, groups)
    sizes = np.bincount(groups, result.sizes)
    return estimate_of(features, np.eye(k), np.zeros(k), labels, folds, scores.n_folds, sizes)


def partition_of(groups):
    """Groups as a set of sets, whatever their numbers."""
    groups = np.asarray(groups).tolist()
    return {frozenset(i for i, g in enumerate(groups) if g == value) for value in set(groups)}


def merged_by_neighbours(X, clusters, batches=None, seed=0):
    """Merge the closest pair that neighbours connect until there is none: a group for each row.

    The loop of the library without networks, links and limits.
    """
    graph = connect(X, clusters, batches)
    ranking, judge = Connections(graph), Neighbourhoods(graph, np.random.default_rng(seed))
    groups = np.arange(graph.n_clusters)

    def closest_first():
        distances = ranking.distances()
        alive = np.unique(groups).tolist()
        return sorted((distances[a, b], a, b) for a in alive for b in alive if a < b)

    found = True
    while found:
        pairs = closest_first()
        found = next(((a, b) for _, a, b in pairs if judge.connection(a, b).strength >= 1), None)
        if found:
            ranking.merge(*found)
            judge.merge(*found)
            groups[groups == found[1]] = found[0]
    return groups[clusters]


def same_merges(tree, other):
    """Whether two trees agree in every merge, NaN being equal to NaN."""
    found = [[replace(m, edges=float(m.edges)) for m in t.merges] for t in (tree, other)]
    return repr(found[0]) == repr(found[1])
