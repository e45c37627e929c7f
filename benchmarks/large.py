"""Half a million observations in 500 clusters, end to end.

python -m benchmarks.large [--n 500000] [--k 500] [--device auto]
"""

import argparse
import logging
import resource
import sys
import time
import warnings

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics import adjusted_rand_score

import unsplit
from benchmarks.common import print_table
from unsplit.estimator import merge_overclustering
from unsplit.merging.options import MergeOptions
from unsplit.networks.training.history import EpochRecord
from unsplit.pairwise.api import Settings

DIMENSIONS, GROUPS = 50, 50


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=500_000)
    parser.add_argument("--k", type=int, default=500)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    rng = np.random.default_rng(0)
    centres = 1.2 * rng.normal(size=(GROUPS, DIMENSIONS))
    y = rng.integers(GROUPS, size=args.n)
    X = (centres[y] + rng.normal(size=(args.n, DIMENSIONS))).astype(np.float32)
    start = time.perf_counter()
    kmeans = MiniBatchKMeans(args.k, random_state=0, n_init=1, batch_size=8192)
    labels = kmeans.fit_predict(X)
    clustered = time.perf_counter()
    trained = clustered

    def note(record: EpochRecord) -> None:
        nonlocal trained
        trained = time.perf_counter()
        print(
            f"{trained - clustered:7.1f} s, epoch {record.epoch}: A {record.accuracy:.4f}",
            flush=True,
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", unsplit.PartitionWarning)
        settings = Settings(device=args.device)
        merged = merge_overclustering(X, labels, MergeOptions(), settings, 0, note)
    end = time.perf_counter()
    index = adjusted_rand_score(y, merged.tree.labels(labels))
    unit = 2**20 if sys.platform == "darwin" else 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    rows = [
        ("k-means", clustered - start),
        ("training", trained - clustered),
        ("scores, neighbours and merging", end - trained),
        ("all", end - start),
    ]
    title = f"{args.n:,} x {DIMENSIONS}, k = {args.k}: {merged.tree.n_clusters} clusters found"
    print_table(f"{title}, {GROUPS} true, ARI {index:.3f}, {peak:,.0f} MiB", ("", "seconds"), rows)


if __name__ == "__main__":
    main()
