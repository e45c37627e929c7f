"""One Gaussian cut into 20, ten Gaussians cut into 100: how often does *auto* find 1 and 10?

python -m benchmarks.one_and_ten [--runs 100] [--workers 2] [--minutes 60]
"""

import argparse
import os
import time
import warnings
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from benchmarks.common import print_table
from unsplit import ClusterMerger

CASES = {
    "one Gaussian, 2-d": (1, 2, 20),
    "one Gaussian, 10-d": (1, 10, 20),
    "one Gaussian, 50-d": (1, 50, 20),
    "ten Gaussians, 10-d": (10, 10, 100),
}
N = 2000


def draw(n_true: int, d: int, seed: int) -> NDArray[np.float64]:
    """Standard normal observations around centres that are far apart."""
    if n_true == 1:
        return np.random.default_rng([d, seed]).standard_normal((N, d))
    return make_blobs(N, d, centers=n_true, center_box=(-10, 10), random_state=seed)[0]


def number_found(case: str, seed: int) -> int:
    import torch

    torch.set_num_threads(1)
    n_true, d, k = CASES[case]
    X = draw(n_true, d, seed)
    labels = KMeans(k, n_init=10, random_state=seed).fit_predict(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        merger = ClusterMerger(device="cpu", random_state=seed)
        merger.fit(X, initial_labels=labels)
    return int(merger.n_clusters_)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin none after that")
    args = parser.parse_args()
    found: dict[str, Counter[int]] = defaultdict(Counter)
    deadline = time.monotonic() + 60 * args.minutes
    with ProcessPoolExecutor(args.workers) as pool:
        jobs = {pool.submit(number_found, c, s): c for s in range(args.runs) for c in CASES}
        for job in as_completed(jobs):
            if not job.cancelled():
                found[jobs[job]][job.result()] += 1
            if time.monotonic() > deadline:
                for other in jobs:
                    other.cancel()
    rows = []
    for case, counts in sorted(found.items()):
        right = counts[CASES[case][0]]
        others = ", ".join(f"{n} ({times})" for n, times in counts.items() if n != CASES[case][0])
        rows.append((case, CASES[case][2], f"{right} of {counts.total()}", others))
    print_table("Found by auto", ("data", "cut into", "right", "otherwise"), rows)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
