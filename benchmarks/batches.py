"""Is a batch effect taken for a difference, and is a difference still found?

python -m benchmarks.batches
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import print_table
from unsplit import datasets, pairwise_tvd

SEEDS, FEATURES = 12, 10
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


def main() -> None:
    """Print the table."""
    header = (
        "in its own batch : the other's", "true TVD", "TVD without", "TVD with",
        "p < 0.05 without", "p < 0.05 with",
    )  # fmt: skip
    title = f"Batches: two clusters of 200, {FEATURES} dimensions, mean of {SEEDS} runs"
    print_table(title, header, list(rows()))


if __name__ == "__main__":
    main()
