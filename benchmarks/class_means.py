"""An estimate without training, from the scores of class means."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unsplit._typing import Index
from unsplit.data.labels import encode_labels
from unsplit.merging.neighbours.graph import nearest
from unsplit.networks.training.progress import History
from unsplit.pairwise.divergences import HeldoutScores
from unsplit.pairwise.heldout_scores import crossfit_folds, estimate_of, holdout_fold
from unsplit.pairwise.result import PairwiseTVD

Floats = NDArray[np.float32]

CLUSTERS_A_GROUP = 10
# Standard deviation within groups, whose centres have standard deviation 1.
SPREAD = np.float32(0.7)
# Observations that are compared with the clusters of near groups at a time.
NEAR_ROWS = 20_000


@dataclass(frozen=True)
class Near:
    """Compares observations with the clusters of a few groups, their own and the nearest.

    Parameters
    ----------
    groups : ndarray of shape (k,)
        Group of each cluster; all groups have equally many.
    number : int
        How many groups.
    """

    groups: Index
    number: int

    def misses(self, scores: HeldoutScores) -> sparse.csr_array:
        """How often each cluster is confused with each, shape (k, k)."""
        k, keys = len(self.groups), []
        weights, bias = scores.weights[0], scores.bias[0]
        members = np.argsort(self.groups, kind="stable").reshape(-1, CLUSTERS_A_GROUP)
        others = nearest(weights[members].mean(axis=1), self.number - 1)[0]
        reached = np.concatenate([np.arange(len(members))[:, None], others], axis=1)
        for start in range(0, len(scores.rows), NEAR_ROWS):
            some = slice(start, start + NEAR_ROWS)
            features, own = scores.features[some], scores.clusters[some]
            tried = members[reached[self.groups[own]]].reshape(len(own), -1)
            z = np.einsum("nd,ncd->nc", features, weights[tried]) + bias[tried]
            limit = z[tried == own[:, None]]  # the own cluster is among those of the own group
            row, place = (z > limit[:, None]).nonzero()
            keys.append(own[row] * k + tried[row, place])
        pairs, counts = np.unique(np.concatenate(keys), return_counts=True)
        places = pairs // k, pairs % k
        return sparse.coo_array((counts.astype(np.float64), places), (k, k)).tocsr()


def estimate_by_means(
    X: Floats,
    clusters: Index,
    n_folds: int,
    on_part: Callable[[str], None],
    near: Near | None = None,
) -> PairwiseTVD:
    """The sparse estimate of a linear network whose weights are class means of training rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        From groups with the standard deviation :data:`SPREAD`.
    clusters : ndarray of shape (n,)
    n_folds : int
        1 for a single hold-out.
    on_part : callable
        Is told what was done.
    near : Near, optional
        Compare with few clusters instead of all.
    """
    rng, k = np.random.default_rng(0), int(clusters.max()) + 1
    if n_folds > 1:
        folds = crossfit_folds(clusters, n_folds, rng)
    else:
        folds = [holdout_fold(clusters, 0.3, rng)]
    weights = np.empty((len(folds), k, X.shape[1]), np.float32)
    for fold, place in zip(folds, weights, strict=True):
        n = np.bincount(clusters[fold.train], minlength=k)[:, None]
        for column, values in enumerate(X.T):
            sums = np.bincount(clusters[fold.train], values[fold.train], minlength=k)
            place[:, column] = sums / np.maximum(n[:, 0], 1)
    tests = [fold.test[np.argsort(clusters[fold.test], kind="stable")] for fold in folds]
    rows = np.concatenate(tests)
    scores = HeldoutScores(
        features=X[rows] / SPREAD**2,
        weights=weights,
        bias=-0.5 * (weights**2).sum(axis=2) / SPREAD**2,
        clusters=clusters[rows],
        folds=np.repeat(np.arange(len(folds)), [len(test) for test in tests]),
        rows=rows,
    )
    on_part("class means")
    no_history = History(*(np.zeros(0, kind) for kind in (int, float, float, float, int)))
    labels = encode_labels(clusters)
    if near is None:
        result = estimate_of(scores, labels, no_history, is_sparse=True)
    else:
        result = PairwiseTVD(
            cluster_ids=labels.cluster_ids,
            sizes=np.bincount(clusters),
            n_heldout=scores.counts.sum(axis=0),
            hit_rate=None,
            misses=near.misses(scores),
            capped=np.zeros(k, np.int64),
            scores=scores,
            history=no_history,
        )
    on_part("confusions")
    return result
