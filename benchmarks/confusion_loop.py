"""Against the confusion-merging loop: quality at the same number of clusters, and time.

python -m benchmarks.confusion_loop [--seeds 4]
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

import unsplit
from benchmarks.baselines import confusion_merging
from benchmarks.common import print_table


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=4)
    X, y = load_digits(return_X_y=True)
    rows: list[tuple[Any, ...]] = []
    for seed in range(parser.parse_args().seeds):
        labels = KMeans(40, n_init=10, random_state=seed).fit_predict(X)
        start = time.perf_counter()
        loop = confusion_merging(X, labels, random_state=seed, n_jobs=-1)
        between = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", unsplit.errors.PartitionWarning)
            merger = unsplit.ClusterMerger(random_state=seed).fit(X, initial_labels=labels)
        end = time.perf_counter()
        same = merger.tree_.cut(n_clusters=loop.n_clusters).labels(labels)
        rows.append(
            (
                seed,
                loop.n_clusters,
                adjusted_rand_score(y, loop.labels),
                adjusted_rand_score(y, same),
                merger.n_clusters_,
                adjusted_rand_score(y, merger.labels_),
                between - start,
                end - between,
                (between - start) / (end - between),
            )
        )
        print(*rows[-1], flush=True)
    means = np.mean([row[1:] for row in rows], axis=0)
    rows.append(("mean", *(float(value) for value in means)))
    header = (
        "seed", "clusters of the loop", "loop", "ours at that number", "clusters of auto",
        "ours by auto", "seconds, loop", "seconds, ours", "ratio",
    )  # fmt: skip
    print_table("Digits, k-means into 40: adjusted Rand index and time", header, rows)


if __name__ == "__main__":
    main()
