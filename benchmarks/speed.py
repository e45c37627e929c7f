"""One network against a loop over pairs, and folds together against folds one by one.

    python -m benchmarks.speed [--device cuda] [--only-folds]

The loops are timed on a sample of pairs and extrapolated to all of them.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.common import print_table, run, split_digits
from benchmarks.known_truth import spread_means
from unsplit import pairwise_tvd
from unsplit.datasets import gaussians
from unsplit.devices import choose_device
from unsplit.metrics import majority_categories, quality
from unsplit.networks.training.loop import TrainConfig
from unsplit.pairwise.heldout_scores import crossfit_folds

PAIRS = 200


def sampled_pairs(majority: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
    """Half of one digit, half of two, so that Q can be computed on the sample."""
    pairs = np.column_stack(np.triu_indices(len(majority), 1))
    same = majority[pairs[:, 0]] == majority[pairs[:, 1]]
    halves = [rng.permutation(np.flatnonzero(part))[: PAIRS // 2] for part in (same, ~same)]
    return pairs[np.concatenate(halves)]


def pair_accuracy(X: NDArray[Any], y: NDArray[np.int64], make: Callable[[], Any]) -> float:
    """Five-fold balanced accuracy of one pair's own classifier."""
    hits = np.zeros(len(y))
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        model = make_pipeline(StandardScaler(), make()).fit(X[train], y[train])
        hits[test] = model.predict(X[test]) == y[test]
    return float(np.mean([hits[y == c].mean() for c in (0, 1)]))


def q_of_sample(values: NDArray[Any], majority: NDArray[Any], pairs: NDArray[np.int64]) -> float:
    """Q over the sampled pairs only."""
    one_digit = majority[pairs[:, 0]] == majority[pairs[:, 1]]
    below = values[one_digit][:, None] - values[~one_digit]
    return float(np.mean((below < 0) + 0.5 * (below == 0)))


def one_network_against_all_pairs() -> None:
    X, clusters, digit = split_digits(10, 0.0, 0)
    majority = majority_categories(clusters, digit)
    start = time.perf_counter()
    result = pairwise_tvd(X, clusters, random_state=0)
    ours = time.perf_counter() - start
    k = len(majority)
    n_pairs = k * (k - 1) // 2
    pairs = sampled_pairs(majority, np.random.default_rng(0))
    rows = [
        (
            "one network, 5 folds",
            f"{ours:.1f}",
            "1",
            f"{q_of_sample(result.tvd[pairs[:, 0], pairs[:, 1]], majority, pairs):.4f}",
        )
    ]
    loops: dict[str, Callable[[], Any]] = {
        "LogisticRegression a pair": LogisticRegression,
        "MLPClassifier(64) a pair": lambda: MLPClassifier((64,), max_iter=400, random_state=0),
    }
    for name, make in loops.items():
        start = time.perf_counter()
        accuracy = []
        for i, j in pairs:
            rows_of_pair = np.flatnonzero((clusters == i) | (clusters == j))
            y = (clusters[rows_of_pair] == j).astype(np.int64)
            accuracy.append(pair_accuracy(X[rows_of_pair], y, make))
        seconds = (time.perf_counter() - start) / len(pairs) * n_pairs
        q = q_of_sample(np.array(accuracy), majority, pairs)
        rows.append((name, f"{seconds:,.0f}", f"{seconds / ours:,.0f}", f"{q:.4f}"))
    print_table(
        f"All {n_pairs:,} pairs of {k} clusters of 10 digits "
        f"(loops extrapolated from {len(pairs)} pairs; Q of 2·BA − 1 on those pairs)",
        ("method", "seconds", "ratio", "Q"),
        rows,
    )
    print(f"\nQ of ours over all pairs: {quality(result.tvd, majority):.4f}")


def folds_together(device: torch.device) -> None:
    digits = split_digits(10, 0.0, 0)[:2]
    blobs = gaussians(spread_means(10), 500)
    table = []
    for name, (X, y) in {"digits, k = 176": digits, "8 Gaussians in 10-d": blobs}.items():
        folds = crossfit_folds(y, 5, np.random.default_rng(0))
        for batch_size in (32, 256):
            seconds = {}
            for together in (True, False):
                config = TrainConfig(batch_size=batch_size, batch_folds=together)
                history = run(X, y, folds, 0, config, device, epochs=8).history
                seconds[together] = history.seconds[-1] - history.seconds[0]
            table.append(
                (
                    name,
                    batch_size,
                    f"{seconds[True]:.2f}",
                    f"{seconds[False]:.2f}",
                    f"{seconds[False] / seconds[True]:.2f}",
                )
            )
    print_table(
        f"Five folds stacked against one by one, seven epochs, on {device.type}",
        ("data", "batch", "stacked, s", "one by one, s", "ratio"),
        table,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", help="for the folds; pairs are on the CPU")
    parser.add_argument("--only-folds", action="store_true")
    arguments = parser.parse_args()
    if not arguments.only_folds:
        one_network_against_all_pairs()
    folds_together(choose_device(arguments.device))


if __name__ == "__main__":
    main()
