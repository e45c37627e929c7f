"""How often the verdict about a pair of clusters is right, where the true groups are known.

python -m benchmarks.calibration [--halves "chosen on"] [--families real battery simulated]
    [--overclusterings k-means leiden] [--factors 4 3] [--seeds 1] [--workers 2] [--minutes 30]
    [--data ../shared/data]

Every reviewed pair is a line in benchmarks/results/calibration.jsonl.gz; a trial that is there is
not run again.  A pair is the same in truth if both sides have the same majority group.  *Same* and
*probably same* are right if it is, *different* if it is not; of *unclear* pairs, the table says how
many are the same.
"""

import argparse
import math
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import results_file
from benchmarks.common import print_table
from benchmarks.peers.__main__ import prepared
from benchmarks.peers.grid import BATTERY_FACTORS, FACTORS, Trial, trials
from benchmarks.peers.overclusterings import OVERCLUSTERINGS
from benchmarks.peers.problems.families import CHOSEN_ON, FAMILIES, HALVES, family_of, half_of
from unsplit import ClusterMerger, MergeTree
from unsplit.merging.decision import DIFFERENT, UNCLEAR, WORDS
from unsplit.merging.tree import members_of_nodes

RESULTS = Path(__file__).parent / "results" / "calibration.jsonl.gz"
TRIAL = ("problem", "seed", "overclustering", "factor")
EVIDENCE = ("strength", "stability", "tvd", "low", "high", "p_adjusted", "size_left", "size_right")

Line = dict[str, Any]


def judged(trial: Trial, data: Path) -> list[Line]:
    """A line for every reviewed pair of one fit; none where data are missing."""
    import torch

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = prepared(trial.problem, data, trial.seed, trial.overclustering, trial.factor)
        except FileNotFoundError:
            return []
        if found is None:
            return []
        problem, clusters = found
        merger = ClusterMerger(device="cpu", random_state=trial.seed)
        merger.fit(problem.X, initial_labels=clusters)
    place = {field: getattr(trial, field) for field in TRIAL}
    place |= {"half": half_of(trial.problem), "family": family_of(trial.problem)}
    return [place | pair for pair in pairs_of(merger.tree_, clusters, problem.y)]


def pairs_of(tree: MergeTree, clusters: NDArray[Any], y: NDArray[Any]) -> Iterator[Line]:
    """Evidence, verdict and truth of the pairs under review that are not all noise.

    Parameters
    ----------
    tree : MergeTree
    clusters : ndarray of shape (n,)
        Initial clusters, 0 … k−1.
    y : ndarray of shape (n,)
        True groups; −1 for noise.
    """
    counts = np.zeros((tree.n_initial, int(y.max()) + 1), np.int64)
    np.add.at(counts, (np.searchsorted(tree.cluster_ids, clusters[y >= 0]), y[y >= 0]), 1)
    members = members_of_nodes(tree.merges, tree.n_initial)
    for row in tree.reviewed:
        sides = [counts[members[node]].sum(axis=0) for node in (row.pair.left, row.pair.right)]
        if all(side.any() for side in sides):
            evidence = {name: _number(getattr(row.pair, name)) for name in EVIDENCE}
            truth = bool(sides[0].argmax() == sides[1].argmax())
            yield {"verdict": row.pair.verdict, "done": row.done, "same": truth} | evidence


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.6g}")


def main() -> None:
    parser = argparse.ArgumentParser()
    families = [family for family in FAMILIES if family != "structureless"]
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--halves", nargs="+", choices=HALVES, default=[CHOSEN_ON])
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=families)
    parser.add_argument("--problems", nargs="+", help="only these")
    ways = list(OVERCLUSTERINGS)
    parser.add_argument("--overclusterings", nargs="+", choices=ways, default=ways)
    factors = (FACTORS[0], *BATTERY_FACTORS)
    parser.add_argument("--factors", nargs="+", type=float, default=factors)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin none after that")
    args = parser.parse_args()
    known = {tuple(line[field] for field in TRIAL) for line in results_file.read(args.results)}
    work_off([trial for trial in wanted(args) if trial[:4] not in known], args)
    print_calibration(results_file.read(args.results))


def wanted(args: argparse.Namespace) -> Iterator[Trial]:
    """The trials that the arguments name."""
    names = [name for family in args.families for name in FAMILIES[family]]
    names = [name for name in names if half_of(name) in args.halves]
    names = [name for name in names if args.problems is None or name in args.problems]
    for trial in trials(names, args.overclusterings, ["unsplit"], args.seeds):
        if trial.factor in args.factors:
            yield trial


def work_off(todo: Sequence[Trial], args: argparse.Namespace) -> None:
    """Fit, and write all lines of a trial at once."""
    deadline = time.monotonic() + 60 * args.minutes
    left, missing = iter(todo), 0
    with ProcessPoolExecutor(args.workers) as pool:
        running = {pool.submit(judged, trial, args.data) for trial in islice(left, args.workers)}
        while running:
            ready, running = wait(running, return_when=FIRST_COMPLETED)
            for job in ready:
                found = job.result()
                missing += not found
                results_file.add(args.results, *found)
                if time.monotonic() < deadline:
                    running |= {pool.submit(judged, trial, args.data) for trial in islice(left, 1)}
    if missing:
        print(f"{missing} trials left out: no file, or no such over-clustering.")


def print_calibration(found: Sequence[Line]) -> None:
    """How many pairs have each verdict, and how many of them are right."""
    counts = Counter((line["half"], line["verdict"], line["same"]) for line in found)
    rows = []
    for half in HALVES:
        for word in WORDS:
            same, other = counts[half, word, True], counts[half, word, False]
            if n := same + other:
                right = other if word == DIFFERENT else same
                name = "unclear (same in truth)" if word == UNCLEAR else word
                rows.append((half, name, n, right, f"{right / n:.3f}"))
    print_table("Verdicts", ("half", "verdict", "pairs", "right", "share"), rows)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
