"""Structureless data cut into 20, ten Gaussians cut into 100: does *auto* find 1 and 10?

python -m benchmarks.one_and_ten [--runs 100] [--first 0] [--workers 2] [--minutes 60]
    [--ways k-means birch]

Every run is a line in benchmarks/results/one_and_ten.jsonl; what is there is not run again.
"""

import argparse
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_blobs

from benchmarks.common import print_table
from benchmarks.peers.overclusterings import OVERCLUSTERINGS
from benchmarks.peers.task import Problem
from unsplit import ClusterMerger

# Name: (shape, groups, dimensions, clusters it is cut into)
DATA = {
    "one Gaussian, 2-d": ("gaussian", 1, 2, 20),
    "one Gaussian, 10-d": ("gaussian", 1, 10, 20),
    "one Gaussian, 50-d": ("gaussian", 1, 50, 20),
    "uniform noise, 2-d": ("uniform", 1, 2, 20),
    "uniform noise, 10-d": ("uniform", 1, 10, 20),
    "uniform noise, 50-d": ("uniform", 1, 50, 20),
    "ten Gaussians, 10-d": ("gaussian", 10, 10, 100),
}
WAYS = ("k-means", "leiden", "birch", "gaussian mixture")
N = 2000
RESULTS = Path(__file__).parent / "results" / "one_and_ten.jsonl"

# Data, way and seed.
Run = tuple[str, str, int]


def draw(shape: str, n_true: int, d: int, seed: int) -> NDArray[np.float64]:
    """Observations of one shape; ten Gaussians are around centres that are far apart."""
    if n_true > 1:
        return make_blobs(N, d, centers=n_true, center_box=(-10, 10), random_state=seed)[0]
    rng = np.random.default_rng([d, seed])
    return rng.standard_normal((N, d)) if shape == "gaussian" else rng.uniform(size=(N, d))


def number_found(data: str, way: str, seed: int) -> int:
    import torch

    torch.set_num_threads(1)
    shape, n_true, d, k = DATA[data]
    X = draw(shape, n_true, d, seed)
    problem = Problem(data, X, np.zeros(len(X), np.int64))
    labels = OVERCLUSTERINGS[way](problem, k, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        merger = ClusterMerger(device="cpu", random_state=seed)
        merger.fit(X, initial_labels=labels)
    return int(merger.n_clusters_)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin none after that")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    found = known(args.results)
    seeds = range(args.first, args.first + args.runs)
    todo = [(*case, seed) for seed in seeds for case in product(DATA, args.ways)]
    work_off([run for run in todo if run not in found], args)
    print_counts(known(args.results))


def known(results: Path) -> dict[Run, int]:
    """Clusters found in every run so far."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    runs = (json.loads(line) for line in lines)
    return {(run["data"], run["way"], run["seed"]): run["found"] for run in runs}


def work_off(todo: Sequence[Run], args: argparse.Namespace) -> None:
    """Make runs, and write each line as soon as it is there."""
    deadline = time.monotonic() + 60 * args.minutes
    args.results.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(args.workers) as pool, args.results.open("a") as file:
        jobs = {pool.submit(number_found, *run): run for run in todo}
        for job in as_completed(jobs):
            if not job.cancelled():
                data, way, seed = jobs[job]
                line = {"data": data, "way": way, "seed": seed, "found": job.result()}
                print(json.dumps(line), file=file, flush=True)
            if time.monotonic() > deadline:
                for other in jobs:
                    other.cancel()


def print_counts(found: Mapping[Run, int]) -> None:
    """How often the right number was found."""
    rows = []
    for data, way in product(DATA, WAYS):
        counts = Counter(n for run, n in found.items() if run[:2] == (data, way))
        n_true = DATA[data][1]
        others = ", ".join(f"{n} ({times})" for n, times in counts.items() if n != n_true)
        rows.append((data, way, f"{counts[n_true]} of {counts.total()}", others))
    print_table("Found by auto", ("data", "cut by", "right", "otherwise"), rows)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
