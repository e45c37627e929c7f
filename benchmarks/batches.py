"""Is a batch effect taken for a difference, is a difference still found, and do batches cost much?

python -m benchmarks.batches
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from benchmarks.common import print_table
from unsplit import ClusterMerger, datasets, pairwise_tvd

SEEDS, FEATURES, DRAWS = 12, 10, 3
Problem = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]


def confounded(gap: float, rare: int, seed: int, size: int = 200) -> Problem:
    """Two clusters ``gap`` apart, each with ``rare`` observations in the batch of the other.

    Batches are shifted by 2 standard deviations in two features.
    """
    means = np.zeros((2, FEATURES))
    means[1, 0] = gap
    X, labels = datasets.gaussians(means, size, random_state=seed)
    batch = labels ^ (np.arange(2 * size) % size < rare)
    X[:, 1:3] += 2 * batch[:, None]
    return X, labels, batch


def rows() -> Iterator[tuple[str, ...]]:
    """One row for each gap and imbalance."""
    for gap in (0.0, 1.5):
        exact = datasets.gaussians_tvd(np.array([[0.0], [gap]]))[0, 1]
        for rare in (10, 40):
            found = []
            for seed in range(SEEDS):
                X, labels, batch = confounded(gap, rare, seed)
                plain = pairwise_tvd(X, labels, random_state=seed)
                within = pairwise_tvd(X, labels, batch=batch, random_state=seed)
                # Before it is cut off at 0, or the mean of nothing would be something.
                both = [2 * result.balanced_accuracy[0, 1] - 1 for result in (plain, within)]
                rejected = [result.p_value[0, 1] < 0.05 for result in (plain, within)]
                found.append((*both, *rejected))
            means = np.mean(found, axis=0)
            share = f"{200 - rare} : {rare}"
            yield share, f"{exact:.2f}", *(f"{mean:.2f}" for mean in means)


def meaningless() -> Iterator[tuple[str, ...]]:
    """Digits in batches that were drawn at random: what is left, and how well it agrees."""
    X, digit = load_digits(return_X_y=True)
    labels = KMeans(40, n_init=10, random_state=0).fit_predict(X)
    for n_batches in (1, 2, 4, 8):
        found = []
        for seed in range(1 if n_batches == 1 else DRAWS):
            batch = np.random.default_rng(seed).integers(n_batches, size=len(X))
            merger = ClusterMerger(random_state=0).fit(
                X, initial_labels=labels, batch=None if n_batches == 1 else batch
            )
            found.append((merger.n_clusters_, adjusted_rand_score(digit, merger.labels_)))
        numbers, scores = zip(*found, strict=True)
        yield str(n_batches), ", ".join(map(str, numbers)), ", ".join(f"{s:.2f}" for s in scores)


def main() -> None:
    """Print the tables."""
    header = (
        "in its own batch : the other's", "true TVD", "TVD without", "TVD with",
        "p < 0.05 without", "p < 0.05 with",
    )  # fmt: skip
    title = f"Batches: two clusters of 200, {FEATURES} dimensions, mean of {SEEDS} runs"
    print_table(title, header, list(rows()))
    title = "Digits, cut by k-means into 40, in batches drawn at random"
    print_table(title, ("batches", "clusters left", "ARI"), list(meaningless()))


if __name__ == "__main__":
    main()
