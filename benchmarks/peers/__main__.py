"""Everything people use today to merge over-clusterings, on the same data.

python -m benchmarks.peers [--data ../shared/data] [--seeds 2] [--slow] [--workers 2] [--minutes 60]

Peers are optional: ``pip install -e ".[peers]"``, and what is not there is left out and counted.
Every result is a line in benchmarks/peers/results.jsonl.gz; a run that was interrupted, or
ended by ``--minutes``, goes on where it was.  ``python -m benchmarks.peers.page`` writes the page.
"""

import argparse
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from benchmarks import results_file
from benchmarks.peers.grid import WORKS, Trial, initial_number, trials
from benchmarks.peers.methods import METHODS
from benchmarks.peers.overclusterings import OVERCLUSTERINGS, overclusterings_of, restricted
from benchmarks.peers.problems import PROBLEMS
from benchmarks.peers.scoring import BOUND, bound, scored
from benchmarks.peers.task import Problem, Task

RESULTS = Path(__file__).parent / "results.jsonl.gz"


@lru_cache(maxsize=4)
def _problem(name: str, data: Path, seed: int) -> Problem:
    return PROBLEMS[name](data, seed)


@lru_cache(maxsize=4)
def prepared(name: str, data: Path, seed: int, overclustering: str, factor: float) -> Any:
    """The problem and its clusters; None where this over-clustering makes no sense."""
    problem = _problem(name, data, seed)
    if not overclustering:
        return problem, np.arange(len(problem.X))
    if overclustering not in overclusterings_of(problem):
        return None
    k = initial_number(problem.n_true, factor, len(problem.X))
    return restricted(problem, OVERCLUSTERINGS[overclustering](problem, k, seed))


def done(trial: Trial, data: Path) -> dict[str, Any]:
    """The line that a trial becomes."""
    import torch

    torch.set_num_threads(1)
    line: dict[str, Any] = dict(trial._asdict())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = prepared(trial.problem, data, trial.seed, trial.overclustering, trial.factor)
            if found is None:
                return line | {"absent": "makes no sense here"}
            problem, clusters = found
            line |= {"n": len(problem.X), "true": problem.n_true, "k": int(clusters.max()) + 1}
            task = Task(problem.X, clusters, trial.seed)
            if trial.work == BOUND:
                return line | {"scores": bound(task, problem.y)}
            return line | {"scores": scored(METHODS[trial.work], task, problem.y)}
    except (ImportError, FileNotFoundError) as error:
        return line | {"absent": str(error)}
    except Exception as error:  # a peer that fails is a result, not the end of the benchmark
        return line | {"failed": f"{type(error).__name__}: {error}"[:300]}


def key_of(line: dict[str, Any]) -> str:
    """The key of the trial that a line is about."""
    return Trial(*(line[field] for field in Trial._fields)).key


def work_off(todo: Sequence[Trial], args: argparse.Namespace) -> None:
    """Work on trials, each line written as soon as it is there."""
    deadline = time.monotonic() + 60 * args.minutes
    left = iter(todo)
    counts: dict[str, int] = defaultdict(int)
    with ProcessPoolExecutor(args.workers) as pool, tqdm(total=len(todo), unit=" trials") as bar:
        running = {pool.submit(done, trial, args.data) for trial in islice(left, 2 * args.workers)}
        while running:
            ready, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ready:
                line = future.result()
                if "absent" in line:  # not written, so that it is tried again where it can be had
                    counts[line["absent"]] += 1
                else:
                    results_file.add(args.results, line)
                bar.update()
                if time.monotonic() < deadline:
                    more = islice(left, 1)
                    running |= {pool.submit(done, trial, args.data) for trial in more}
    for reason, count in counts.items():
        print(f"{count} trials left out: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    names = list(OVERCLUSTERINGS)
    parser.add_argument("--overclusterings", nargs="+", choices=names, default=names)
    parser.add_argument("--methods", nargs="+", choices=WORKS, default=WORKS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--slow", action="store_true", help="the methods that take minutes as well")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin none after that")
    args = parser.parse_args()
    grid = trials(args.problems, args.overclusterings, args.methods, args.seeds, args.slow)
    known = {key_of(line) for line in results_file.read(args.results)}
    work_off([trial for trial in grid if trial.key not in known], args)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
