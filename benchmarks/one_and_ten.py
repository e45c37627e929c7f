"""Data without structure cut into 20, ten Gaussians cut into 100: does *auto* find 1 and 10?

python -m benchmarks.one_and_ten [--runs 5] [--first 0] [--workers 2] [--minutes 60]
    [--kinds gaussian ring] [--dimensions 2 10] [--ways k-means birch] [--graph-only]

Every run is a line in benchmarks/results/no_structure.jsonl.gz; what is there is not run again.
``--graph-only`` merges by the neighbour graph without training a network, in a second or less.
"""

import argparse
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_blobs

from benchmarks import results_file
from benchmarks.common import print_table
from benchmarks.peers.overclusterings import OVERCLUSTERINGS
from benchmarks.peers.task import Problem
from unsplit import ClusterMerger, neighbour_graph
from unsplit.merging.neighbours.refine import merge_units

Matrix = NDArray[np.float64]

N = 2000
RHO = 0.9
SPREAD = 0.1  # about a ring, and in the dimensions that a curve has none of its own in
DIMENSIONS = (2, 5, 10, 50)
WAYS = ("k-means", "leiden", "birch", "gaussian mixture")
RESULTS = Path(__file__).parent / "results" / "no_structure.jsonl.gz"


def correlated(rng: np.random.Generator, d: int) -> Matrix:
    """A Gaussian in which any two features are correlated by 0.9."""
    common, own = rng.standard_normal((N, 1)), rng.standard_normal((N, d))
    return np.sqrt(RHO) * common + np.sqrt(1 - RHO) * own


def banana(rng: np.random.Generator, d: int) -> Matrix:
    x = rng.standard_normal(N)
    return embedded(np.column_stack([x, x**2 + 0.3 * rng.standard_normal(N)]), d, rng)


def ring(rng: np.random.Generator, d: int) -> Matrix:
    angle, radius = rng.uniform(0, 2 * np.pi, N), 1 + SPREAD * rng.standard_normal(N)
    return embedded(np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), d, rng)


def embedded(X: Matrix, d: int, rng: np.random.Generator) -> Matrix:
    """A curve in the plane with a little noise in all other dimensions."""
    return np.hstack([X, SPREAD * rng.standard_normal((N, d - X.shape[1]))])


def bars(rng: np.random.Generator, _: int) -> Matrix:
    """An L, evenly dense: one bar lies, and the other stands on its left end."""
    X = rng.uniform(size=(N, 2)) * (3, 1)
    stands = rng.uniform(size=N) < 0.5
    X[stands] = X[stands, ::-1] + (0, 1)
    return X


KINDS: dict[str, Callable[[np.random.Generator, int], Matrix]] = {
    "gaussian": lambda rng, d: rng.standard_normal((N, d)),
    "uniform": lambda rng, d: rng.uniform(size=(N, d)),
    "exponential": lambda rng, d: rng.exponential(size=(N, d)),
    "log-normal": lambda rng, d: rng.lognormal(size=(N, d)),
    "student t": lambda rng, d: rng.standard_t(3, size=(N, d)),
    "correlated": correlated,
    "poisson": lambda rng, d: rng.poisson(3, size=(N, d)).astype(float),
    "banana": banana,
    "ring": ring,
    "bars": bars,
}
TEN = "ten gaussians"


class Run(NamedTuple):
    """One data set, cut in one way and merged."""

    kind: str
    d: int
    way: str
    seed: int
    graph_only: bool

    @property
    def n_true(self) -> int:
        """The right number."""
        return 10 if self.kind == TEN else 1


def exists(kind: str, d: int) -> bool:
    """Whether there are such data: bars are in the plane, and ten Gaussians in ten dimensions."""
    return d == {"bars": 2, TEN: 10}.get(kind, d)


def draw(run: Run) -> Matrix:
    """Observations of one kind; ten Gaussians are around centres that are far apart."""
    if run.kind == TEN:
        return make_blobs(N, run.d, centers=10, center_box=(-10, 10), random_state=run.seed)[0]
    return KINDS[run.kind](np.random.default_rng([*run.kind.encode(), run.d, run.seed]), run.d)


def number_found(run: Run) -> int:
    import torch

    torch.set_num_threads(1)
    X = draw(run)
    problem = Problem(run.kind, X, np.zeros(len(X), np.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        labels = OVERCLUSTERINGS[run.way](problem, 100 if run.kind == TEN else 20, run.seed)
        if run.graph_only:
            graph = neighbour_graph(X, labels, device="cpu")
            return len(np.unique(merge_units(graph, graph.clusters, None)))
        merger = ClusterMerger(device="cpu", random_state=run.seed)
        return int(merger.fit(X, initial_labels=labels).n_clusters_)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    kinds = (*KINDS, TEN)
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--dimensions", nargs="+", type=int, default=DIMENSIONS)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--graph-only", action="store_true", help="train no network")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin none after that")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.runs)
    cases = [case for case in product(args.kinds, args.dimensions, args.ways) if exists(*case[:2])]
    todo = [Run(*case, seed, args.graph_only) for seed in seeds for case in cases]
    found = known(args.results)
    work_off([run for run in todo if run not in found], args)
    wanted = {(run.kind, run.d, run.way, run.graph_only) for run in todo}
    found = known(args.results)
    print_counts({r: n for r, n in found.items() if (r[:3] + r[4:]) in wanted}, args.ways)


def known(results: Path) -> dict[Run, int]:
    """Clusters found in every run so far."""
    lines = results_file.read(results)
    return {Run(*(line[field] for field in Run._fields)): line["found"] for line in lines}


def work_off(todo: Sequence[Run], args: argparse.Namespace) -> None:
    """Make runs, and write each line as soon as it is there."""
    deadline = time.monotonic() + 60 * args.minutes
    with ProcessPoolExecutor(args.workers) as pool:
        jobs = {pool.submit(number_found, run): run for run in todo}
        for job in as_completed(jobs):
            if not job.cancelled():
                results_file.add(args.results, jobs[job]._asdict() | {"found": job.result()})
            if time.monotonic() > deadline:
                for other in jobs:
                    other.cancel()


def print_counts(found: Mapping[Run, int], ways: Sequence[str]) -> None:
    """How often the right number was found."""
    rows = []
    for kind, d in sorted({run[:2] for run in found}):
        runs = {run: n for run, n in found.items() if run[:2] == (kind, d)}
        wrong = Counter((run.way, n) for run, n in runs.items() if n != run.n_true)
        others = ", ".join(f"{n} ({times}, {way})" for (way, n), times in sorted(wrong.items()))
        rows.append((f"{kind}, {d}-d", *(_right(runs, way) for way in ways), others))
    right = sum(n == run.n_true for run, n in found.items())
    title = f"Found by auto: {right:,} of {len(found):,} runs are right"
    print_table(title, ("data", *ways, "otherwise"), rows)


def _right(runs: Mapping[Run, int], way: str) -> str:
    here = [n == run.n_true for run, n in runs.items() if run.way == way]
    return f"{sum(here)} of {len(here)}"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
