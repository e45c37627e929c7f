"""What is measured in each part of the experiment."""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from experiments.core import Result
from experiments.texts import together
from experiments.wasserstein.baselines import FOLDS, Array, Index, means_alone, one_network
from experiments.wasserstein.config import Config
from experiments.wasserstein.families import drawn
from experiments.wasserstein.transport import exact_distances, same_size, value_of_best_function
from unsplit import pairwise_wasserstein
from unsplit.pairwise.wasserstein import PairwiseWasserstein

# Of two clusters there is but one pair, so it is drawn several times.
PAIRS_OF_TWO = 3

# Sharing is looked at for all pairs of the first clusters, which stay the same as k grows.
SAME_CLUSTERS = 4

# The best function is found anew for every pair and fold, so for some pairs only.
SOME_PAIRS = 20

SHOWN = 60


def known(family: str, k: int, seed: int, config: Config, device: str) -> Result:
    """Bounds, means and exact transport of samples against true distances."""
    repeats = PAIRS_OF_TWO if k == 2 else 1
    found = [_known(family, k, 1000 * seed + r, config, device) for r in range(repeats)]
    truth, bound, stderr, means, exact = np.concatenate(found, axis=1)
    return {
        "n": config.size,
        "d": drawn(family, 1, 1, seed).X.shape[1],
        "truth": truth.mean(),
        "of truth": {
            "bound": bound.mean() / truth.mean(),
            "means": means.mean() / truth.mean(),
            "exact transport of samples": exact.mean() / truth.mean(),
        },
        "standard error of truth": stderr.mean() / truth.mean(),
        "rank correlation": together(bound.tolist(), truth.tolist()),
        "too large": float((bound > truth + 2 * stderr).mean()),
        "pairs": len(truth),
        "shown": _some(truth, bound),
    }


def _known(family: str, k: int, seed: int, config: Config, device: str) -> Array:
    X, clusters, truth = drawn(family, k, config.size, seed)
    result = bounds(X, clusters, seed, config, device)
    exact = exact_distances(X, clusters, np.random.default_rng(seed))
    matrices = truth, result.distance, result.stderr, means_alone(X, clusters, seed), exact
    return np.array([matrix[np.triu_indices(k, 1)] for matrix in matrices])


def sharing(family: str, k: int, seed: int, config: Config, device: str) -> Result:
    """Bounds for the same pairs, of the same observations, from a network for k clusters.

    With k = 2 every pair has networks of its own.
    """
    X, clusters, truth = drawn(family, max(k, SAME_CLUSTERS), config.size, seed)
    pairs = list(zip(*np.triu_indices(SAME_CLUSTERS, 1), strict=True))
    groups = [np.array(pair) for pair in pairs] if k == 2 else [np.arange(k)]
    many, one, means = np.zeros_like(truth), np.zeros_like(truth), np.zeros_like(truth)
    for group in groups:
        rows, at = np.isin(clusters, group), np.ix_(group, group)
        x, y = X[rows], np.searchsorted(group, clusters[rows])
        many[at] = bounds(x, y, seed, config, device).distance
        one[at] = one_network(x, y, config.plain_steps, seed)
        means[at] = means_alone(x, y, seed)
    upper = tuple(np.array(pairs).T)
    total = truth[upper].sum()
    return {
        "n": config.size,
        "d": X.shape[1],
        "of truth": {
            "many maps": many[upper].sum() / total,
            "one network": one[upper].sum() / total,
            "means": means[upper].sum() / total,
        },
    }


def digits(k: int, seed: int, config: Config, device: str) -> Result:
    """Clusters of handwritten digits against exact transport, and Gaussians that lie like them."""
    X = load_digits().data
    clusters = KMeans(k, n_init=3, random_state=seed).fit_predict(X).astype(np.int64)
    rng = np.random.default_rng(seed)
    means, twin = _gaussian_twin(X, clusters, rng)
    upper = np.triu_indices(k, 1)
    return {
        "n": int(np.bincount(clusters).mean()),
        "d": X.shape[1],
        "digits": _against_transport(X, clusters, seed, config, device),
        "Gaussians": _against_transport(twin, clusters, seed, config, device)
        | {"truth": np.linalg.norm(means[:, None] - means, axis=2)[upper].mean()},
    }


def _against_transport(
    X: Array, clusters: Index, seed: int, config: Config, device: str
) -> dict[str, object]:
    rng = np.random.default_rng(seed)
    k = int(clusters.max()) + 1
    upper = np.triu_indices(k, 1)
    result = bounds(X, clusters, seed, config, device)
    bound, exact = result.distance[upper], exact_distances(X, clusters, rng)[upper]
    means = means_alone(X, clusters, seed)[upper]
    some = rng.permutation(len(bound))[:SOME_PAIRS]
    best = [best_heldout(X, clusters, (upper[0][p], upper[1][p]), rng) for p in some]
    return {
        "bound": bound.mean(),
        "means": means.mean(),
        "exact": exact.mean(),
        "of exact": bound.mean() / exact.mean(),
        "rank correlation": together(bound.tolist(), exact.tolist()),
        "of some pairs": {"bound": bound[some].mean(), "best function": float(np.mean(best))},
        "shown": _some(exact, bound),
    }


def best_heldout(
    X: Array, clusters: Index, pair: tuple[int, int], rng: np.random.Generator
) -> float:
    """What exact transport's own function is worth on observations that did not make it."""
    parts = [rng.permutation(X[clusters == c]) for c in pair]
    values = []
    for f in range(FOLDS):
        train = same_size([part[np.arange(len(part)) % FOLDS != f] for part in parts], rng)
        values.append(value_of_best_function(train, [part[f::FOLDS] for part in parts]))
    return float(np.mean(values))


def bounds(
    X: Array, clusters: Index, seed: int, config: Config, device: str
) -> PairwiseWasserstein:
    """What the library says."""
    return pairwise_wasserstein(X, clusters, epochs=config.epochs, device=device, random_state=seed)


def _gaussian_twin(X: Array, clusters: Index, rng: np.random.Generator) -> tuple[Array, Array]:
    """Means of the clusters, and Gaussians around them, all with the clusters' mean covariance.

    As they are translations of each other, distances are those of the means.
    """
    means = np.array([X[clusters == c].mean(axis=0) for c in range(int(clusters.max()) + 1)])
    covariance = np.cov((X - means[clusters]).T)
    noise = rng.multivariate_normal(np.zeros(X.shape[1]), covariance, len(X), method="eigh")
    return means, means[clusters] + noise


def _some(truth: Array, bound: Array) -> list[list[float]]:
    """Some of the pairs, for a figure."""
    some = np.random.default_rng(0).permutation(len(truth))[:SHOWN]
    return [[round(float(a[p]), 4) for a in (truth, bound)] for p in sorted(some)]
