"""From held-out scores to all pairs at large k, part by part, against the arithmetic's floor.

python -m benchmarks.scale [--clusters 1000 5000] [--per-cluster 10]
"""

import argparse
import time

import numpy as np
import torch

from benchmarks.common import print_table
from unsplit.devices import device_for_sums
from unsplit.pairwise.divergences import (
    HeldoutScores,
    directed_means,
    hit,
    inner_products,
    p_values,
)
from unsplit.pairwise.stored_pairs import count_confusions

WIDTH = 256


def synthetic(k: int, per_cluster: int) -> HeldoutScores:
    """Random scores for k clusters in one fold."""
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(k), per_cluster)
    weights = rng.standard_normal((1, k, WIDTH), dtype=np.float32)
    features = rng.standard_normal((len(clusters), WIDTH), dtype=np.float32)
    return HeldoutScores(
        features=features + weights[0][clusters] / 4,
        weights=weights,
        bias=np.zeros((1, k), np.float32),
        clusters=clusters,
        folds=np.zeros(len(clusters), np.int64),
        rows=np.arange(len(clusters)),
    )


def matrix_rate(device: torch.device) -> float:
    """float32 multiply-adds this device does in a second, counted as two operations each."""
    a = torch.randn(4096, 4096, device=device)
    for timed in (False, True):
        start = time.perf_counter()
        for _ in range(5):
            b = a @ a
        b[0, 0].item()
        if timed:
            return 5 * 2 * 4096**3 / (time.perf_counter() - start)
    raise AssertionError


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clusters", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--per-cluster", type=int, default=10)
    parser.add_argument("--hits-only", action="store_true", help="no overlap and no p-values")
    arguments = parser.parse_args()
    device = device_for_sums()
    rate = matrix_rate(device)
    table = []
    for k in arguments.clusters:
        scores = synthetic(k, arguments.per_cluster)
        m = len(scores.clusters)
        row = [f"{k:,}", f"{m:,}", f"{2 * m * k * WIDTH / rate:.3f}"]
        for part in (
            count_confusions,
            lambda s: directed_means(s, hit),
            lambda s: list(inner_products(s)),
            p_values,
        )[: 2 if arguments.hits_only else None]:
            start = time.perf_counter()
            part(scores)
            row.append(f"{time.perf_counter() - start:.2f}")
        table.append(row)
    head = (
        "k", "held out", "floor: scores alone, s", "confusions (sparse), s", "hits, s",
        "overlap, s", "p-values, s",
    )  # fmt: skip
    print_table(
        f"All pairs on {device.type}, {rate / 1e12:.1f} TFLOP/s float32",
        head[: len(table[0])],
        table,
    )


if __name__ == "__main__":
    main()
