"""One piece of work on one cell: what comes out, how good it is, what it costs."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from benchmarks.peers.task import Method, Outcome, Task

Scores = dict[str, Any]

# Best cuts are looked for up to here; no problem has a quarter as many groups.
MOST_GROUPS = 100


def scored(work: Method, task: Task, y: NDArray[np.int64]) -> dict[str, Scores]:
    """Scores of every method that the work answers for, by name."""
    _forget_peak()
    start = time.process_time()
    outcomes = work(task)
    seconds = time.process_time() - start
    memory = _peak_mebibytes()
    return {
        name: _scores(outcome if outcome.seconds else replace(outcome, seconds=seconds), task, y)
        | {"mebibytes": memory}
        for name, outcome in outcomes.items()
        if outcome.automatic is not None or outcome.at is not None
    }


def _scores(outcome: Outcome, task: Task, y: NDArray[np.int64]) -> Scores:
    found: Scores = {"seconds": round(outcome.seconds or 0.0, 3)}
    if outcome.automatic is not None:
        found["automatic"] = _agreement(outcome.automatic, y)
    if outcome.at is not None:
        n_true = len(np.unique(y))
        found["given"] = _agreement(outcome.at(min(n_true, task.k)), y)
        if outcome.tree:
            cuts = (outcome.at(n) for n in range(1, min(task.k, MOST_GROUPS) + 1))
            best = max(cuts, key=lambda cut: float(adjusted_rand_score(y, cut)))
            found["best cut"] = _agreement(best, y)
    return found


def _agreement(labels: NDArray[np.int64], y: NDArray[np.int64]) -> Scores:
    return {
        "ari": round(float(adjusted_rand_score(y, labels)), 4),
        "nmi": round(float(normalized_mutual_info_score(y, labels)), 4),
        "number": len(np.unique(labels)),
    }


def _forget_peak() -> None:
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")


def _peak_mebibytes() -> int | None:
    """Most memory of this process since the peak was forgotten; known on Linux only."""
    if sys.platform != "linux":
        return None
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024
