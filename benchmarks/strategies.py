"""Correct merges of every ranking on artificial over-clusterings of digits.

python -m benchmarks.strategies [--size 20] [--noise 0 0.3] [--skip-retrain]
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

import unsplit
from benchmarks import baselines
from benchmarks.common import print_table, split_digits
from unsplit import metrics

Tree = unsplit.MergeTree
Matrix = NDArray[np.float64]


def strategies(
    X: Matrix, labels: NDArray[np.int64], result: unsplit.PairwiseTVD, with_retraining: bool
) -> Iterator[tuple[str, Callable[[], Tree]]]:
    """Name, and how to get the whole tree once the initial estimate is there."""
    whole = partial(unsplit.merge, result, n_clusters=1)
    for statistic in ("tv", "lecam", "overlap"):
        yield f"average linkage, {statistic}", partial(whole, rank_by=statistic)
    if with_retraining:
        paper = partial(unsplit.paper, X, labels, n_clusters=1, random_state=0)
        yield "paper", lambda: paper()[0]
    for baseline in (baselines.euclidean, baselines.centroid, baselines.energy):
        name = f"{baseline.__name__} distance, average linkage"
        yield name, partial(by_baseline, baseline, X, labels)


def by_baseline(
    baseline: Callable[..., Matrix], X: Matrix, labels: NDArray[np.int64]
) -> unsplit.MergeTree:
    return unsplit.merge(baseline(X, labels), n_clusters=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=20)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.3])
    parser.add_argument("--skip-retrain", action="store_true")
    args = parser.parse_args()
    for noise in args.noise:
        X, labels, digit = split_digits(args.size, noise, 0)
        start = time.perf_counter()
        result = unsplit.pairwise_tvd(X, labels, random_state=0)
        estimate = time.perf_counter() - start
        counts = metrics.category_counts(labels, digit)
        k = len(counts)
        rows = []
        for name, run in strategies(X, labels, result, not args.skip_retrain):
            start = time.perf_counter()
            tree = run()
            seconds = time.perf_counter() - start
            first = [(merge.left, merge.right) for merge in tree.merges[: k - 10]]
            right = int(metrics.correct_merges(first, counts)[-1])
            rows.append((name, f"{right} of {k - 10}", f"{seconds:.2f}"))
            print(noise, *rows[-1], flush=True)
        print_table(
            f"Correct merges down to 10 clusters: digits, clusters of {args.size} (k = {k}), "
            f"{noise:.0%} noise; the estimate before took {estimate:.1f} s",
            ("ranked by", "correct", "seconds for the whole tree"),
            rows,
        )


if __name__ == "__main__":
    main()
