"""Which pairs of small clusters belong together?  Q on digits split at random.

python -m benchmarks.digits [--seeds 3]
"""

import argparse
from typing import Any

import numpy as np

from benchmarks.common import print_table, split_digits
from unsplit import TrainConfig, pairwise_tvd
from unsplit.metrics import majority_categories, purity, quality
from unsplit.pairwise.divergences import DIVERGENCES

SETTINGS: dict[str, dict[str, Any]] = {
    "hold-out 20 %, paper's loss": {"cv": 0.2, "training": TrainConfig(loss="pairwise")},
    "5-fold cross-fit, paper's loss": {"training": TrainConfig(loss="pairwise")},
    "5-fold cross-fit, softmax (default)": {},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    for noise in (0.0, 0.3):
        rows = []
        pure = []
        for name, settings in SETTINGS.items():
            found, accuracy = [], []
            for seed in range(seeds):
                X, clusters, digit = split_digits(10, noise, seed)
                result = pairwise_tvd(X, clusters, random_state=seed, **settings)
                majority = majority_categories(clusters, digit)
                found.append([quality(result.divergence(d), majority) for d in DIVERGENCES])
                accuracy.append(result.mean_accuracy)
                pure.append(purity(clusters, digit))
            means = np.mean(found, axis=0)
            rows.append((name, *(f"{q:.4f}" for q in means), f"{np.mean(accuracy):.3f}"))
        title = (
            f"Q on digits, clusters of 10 (k = {len(majority)}), {noise:.0%} noise "
            f"(purity {np.mean(pure):.2f}), mean of {seeds} seeds"
        )
        print_table(title, ("estimator", *DIVERGENCES, "A"), rows)


if __name__ == "__main__":
    main()
