"""One piece of work on one trial: what comes out, how good it is, what it costs."""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from benchmarks.peers.task import Method, Outcome, Task

Scores = dict[str, Any]

# Best cuts are looked for up to here; no problem has a quarter as many groups.
MOST_GROUPS = 100

# Name of the work that is no method, as it looks at the answer.
BOUND = "pieces to their majority"


def scored(work: Method, task: Task, y: NDArray[np.int64]) -> dict[str, Scores]:
    """Scores of every method that the work answers for, by name."""
    _forget_peak()
    start = time.process_time()
    outcomes = work(task)
    seconds = time.process_time() - start
    memory = _peak_mebibytes()
    return {
        name: _scores(outcome, task, y, seconds) | {"mebibytes": memory}
        for name, outcome in outcomes.items()
        if outcome.automatic is not None or outcome.at is not None
    }


def bound(task: Task, y: NDArray[np.int64]) -> dict[str, Scores]:
    """What merging could reach if it knew the answer: each cluster takes its majority's group.

    No way to merge puts more observations into their own groups.
    """
    found = {"bound": _agreement(_majorities(task, y), y), "seconds": 0.0, "mebibytes": None}
    return {BOUND: found}


def _majorities(task: Task, y: NDArray[np.int64]) -> NDArray[np.int64]:
    counted = y >= 0
    table = np.zeros((task.k, int(y.max()) + 1), np.int64)
    np.add.at(table, (task.clusters[counted], y[counted]), 1)
    return table.argmax(axis=1)[task.clusters]


def _scores(outcome: Outcome, task: Task, y: NDArray[np.int64], seconds: float) -> Scores:
    found: Scores = {}
    if outcome.automatic is not None:
        found["automatic"] = _agreement(outcome.automatic, y)
    if outcome.at is not None:
        start = time.process_time()
        given = outcome.at(min(len(np.unique(y[y >= 0])), task.k))
        seconds += time.process_time() - start  # some do all their work only now
        found["given"] = _agreement(given, y)
        if outcome.tree:
            cuts = (outcome.at(n) for n in range(1, min(task.k, MOST_GROUPS) + 1))
            found["best cut"] = _agreement(max(cuts, key=lambda cut: _index(cut, y)), y)
    return {"seconds": round(outcome.seconds or seconds, 3)} | found


def _agreement(labels: NDArray[np.int64], y: NDArray[np.int64]) -> Scores:
    """How well labels agree with the groups, over all observations that are not noise."""
    counted = y >= 0
    nmi = normalized_mutual_info_score(y[counted], labels[counted])
    return {
        "ari": round(_index(labels, y), 4),
        "nmi": round(float(nmi), 4),
        "number": len(np.unique(labels[counted])),
    }


def _index(labels: NDArray[np.int64], y: NDArray[np.int64]) -> float:
    """Adjusted Rand index of the observations that are not noise."""
    counted = y >= 0
    return float(adjusted_rand_score(y[counted], labels[counted]))


def _forget_peak() -> None:
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")


def _peak_mebibytes() -> int | None:
    """Most memory of this process since the peak was forgotten; known on Linux only."""
    if sys.platform != "linux":
        return None
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024
