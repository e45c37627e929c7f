"""Half a million observations in 500 clusters, end to end; with --mapped, from a file on disk.

python -m benchmarks.large [--n 500000] [--k 500] [--device auto] [--mapped] [--sampled 100000]
"""

import argparse
import logging
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics import adjusted_rand_score

import unsplit
from benchmarks.common import print_table
from benchmarks.peak_memory import PeakMemory
from unsplit.merging.neighbours import graph as graphs
from unsplit.networks.training.progress import EpochRecord, Reporter

DIMENSIONS, GROUPS = 50, 50
BLOCK = 100_000
# k-means for a file on disk sees so many of its rows.
LEARNED_FROM = 200_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=500_000)
    parser.add_argument("--k", type=int, default=500)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--mapped", action="store_true", help="write X to a temporary file")
    parser.add_argument("--folder", help="where that file is written")
    parser.add_argument("--sampled", type=int, help="sample so many for the neighbour graph")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if args.sampled is not None:
        graphs.MOST_CONNECTED = graphs.SAMPLED = args.sampled
    with data(args) as (X, y):
        run(args, X, y)


@contextmanager
def data(args: argparse.Namespace) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """The observations, in memory or mapped from a file that is deleted afterwards."""
    rng = np.random.default_rng(0)
    centres = 1.2 * rng.normal(size=(GROUPS, DIMENSIONS))
    y = rng.integers(GROUPS, size=args.n)
    if not args.mapped:
        yield (centres[y] + rng.normal(size=(args.n, DIMENSIONS))).astype(np.float32), y
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder, "x.npy")
        shape = (args.n, DIMENSIONS)
        X = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        for start in range(0, args.n, BLOCK):
            some = slice(start, start + BLOCK)
            X[some] = centres[y[some]] + rng.normal(size=(len(y[some]), DIMENSIONS))
        X.flush()
        del X
        yield np.load(path, mmap_mode="r"), y


def overclustered(X: Any, k: int, mapped: bool) -> NDArray[np.int64]:
    """Labels by k-means; those of a file by centres found in a part of it."""
    kmeans = MiniBatchKMeans(k, random_state=0, n_init=1, batch_size=8192)
    if not mapped:
        return np.asarray(kmeans.fit_predict(X))
    kmeans.fit(np.array(X[:: max(1, len(X) // LEARNED_FROM)]))
    blocks = range(0, len(X), BLOCK)
    return np.concatenate([kmeans.predict(np.array(X[i : i + BLOCK])) for i in blocks])


class Clock(Reporter):
    """Notes when each phase begins."""

    def __init__(self) -> None:
        self.begun = [("k-means", time.perf_counter())]

    def on_phase(self, name: str) -> None:
        """Note the time."""
        self.begun.append((name, time.perf_counter()))

    def on_epoch(self, record: EpochRecord) -> None:
        """Print A."""
        seconds = time.perf_counter() - self.begun[0][1]
        print(f"{seconds:7.1f} s, epoch {record.epoch}: A {record.accuracy:.4f}", flush=True)

    def rows(self) -> list[tuple[str, float]]:
        """Seconds of each phase, and of all."""
        ends = [start for _, start in self.begun[1:]] + [time.perf_counter()]
        each = [(name, end - start) for (name, start), end in zip(self.begun, ends, strict=True)]
        return [*each, ("all", ends[-1] - self.begun[0][1])]


def run(args: argparse.Namespace, X: Any, y: NDArray[np.int64]) -> None:
    with PeakMemory() as memory, warnings.catch_warnings():
        warnings.simplefilter("ignore", unsplit.errors.PartitionWarning)
        clock = Clock()
        labels = overclustered(X, args.k, args.mapped)
        merger = unsplit.ClusterMerger(device=args.device, random_state=0, progress=clock)
        merger.fit(X, initial_labels=labels)
        rows = clock.rows()
    assert merger.neighbours_ is not None
    index = adjusted_rand_score(y, merger.labels_)
    title = (
        f"{args.n:,} x {DIMENSIONS}, k = {args.k}: {merger.n_clusters_} clusters found, "
        f"{GROUPS} true, ARI {index:.4f}; graph of {merger.neighbours_.counted}; "
        f"data {X.nbytes / 2**20:,.0f} MiB, peak {memory.anonymous / 2**20:,.0f} MiB "
        f"({memory.resident / 2**20:,.0f} MiB with what is mapped)"
    )
    print_table(title, ("", "seconds"), rows)


if __name__ == "__main__":
    main()
