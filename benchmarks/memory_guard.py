"""What the memory guard expects of an estimate, and what it really takes.

python -m benchmarks.memory_guard [--case "many rows"]

Each case runs in a process of its own, for one epoch.
"""

import argparse
import json
import subprocess
import sys
import warnings
from typing import Any

import numpy as np

from benchmarks.common import print_table
from benchmarks.peak_memory import PeakMemory
from unsplit import TrainConfig

# Shape, clusters, folds and type.
CASES: dict[str, tuple[tuple[int, ...], int, Any, str]] = {
    "many rows": ((300_000, 50), 300, "auto", "float32"),
    "many features": ((3_000, 20_000), 30, 5, "float32"),
    "five folds": ((100_000, 100), 50, 5, "float64"),
    "many clusters": ((6_000, 20), 2_000, 2, "float32"),
}
# Rows and features of a neighbour graph.
GRAPHS = {"neighbours": (40_000, 50), "neighbours, many features": (32_000, 300)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case")
    args = parser.parse_args()
    if args.case is not None:
        print(json.dumps(of_case(args.case)))
        return
    rows: list[tuple[Any, ...]] = []
    for name in [*CASES, *GRAPHS]:
        expected, taken = run(name)
        rows.append((name, described(name), expected >> 20, taken >> 20))
    print_table(
        "memory of an estimate and of a graph",
        ("", "data", "expected, MiB", "taken, MiB", "ratio"),
        [(*row, row[-2] / row[-1]) for row in rows],
    )


def described(name: str) -> str:
    """The data of a case."""
    if name in GRAPHS:
        return " x ".join(f"{n:,}" for n in GRAPHS[name])
    shape, k, cv, dtype = CASES[name]
    return " x ".join(f"{n:,}" for n in shape) + f" of {dtype}, k = {k:,}, cv = {cv}"


def run(name: str) -> tuple[int, int]:
    """Bytes that the guard expects and that are taken, in a new process."""
    command = [sys.executable, "-m", "benchmarks.memory_guard", "--case", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected, taken = json.loads(done.stdout)
    return expected, taken


def of_case(name: str) -> tuple[int, int]:
    """Bytes that the guard expects and that are taken, in this process."""
    return of_graph(*GRAPHS[name]) if name in GRAPHS else measured(*CASES[name])


def measured(shape: tuple[int, ...], k: int, cv: Any, dtype: str) -> tuple[int, int]:
    """Bytes that the guard expects and that are taken, in this process."""
    import unsplit
    from unsplit.data.rows import kinds
    from unsplit.pairwise import api as pairwise_api

    warnings.simplefilter("ignore", unsplit.errors.SmallClusterWarning)
    rng = np.random.default_rng(0)
    once: dict[str, Any] = {"training": TrainConfig(epochs=1), "device": "cpu", "random_state": 0}
    X, labels = rng.standard_normal(shape).astype(dtype), np.arange(shape[0]) % k
    # Whatever is loaded when it is first used.
    unsplit.pairwise_tvd(rng.standard_normal((200, 3)), np.arange(200) % 4, **once)
    # Of the data, of training, and of comparing clusters.
    expected = {"X": 0}

    def note(needed: int, available: int, what: str, advice: Any) -> None:
        expected[what.split()[0]] = needed

    for module in (kinds, pairwise_api):
        vars(module)["require_memory"] = note
    with PeakMemory() as peak:
        before = peak.anonymous
        unsplit.pairwise_tvd(X, labels, cv=cv, **once)
    later = max(expected["training"], expected["comparing"])
    return expected["X"] + later, peak.anonymous - before


def of_graph(n: int, d: int) -> tuple[int, int]:
    """Bytes that the guard expects of a neighbour graph and that are taken, in this process."""
    import unsplit
    from unsplit.merging.neighbours import graph

    X = np.random.default_rng(0).standard_normal((n, d), np.float32)
    unsplit.neighbour_graph(X[:100], np.arange(100) % 50, device="cpu")
    expected = []
    vars(graph)["require_memory"] = lambda needed, *_: expected.append(needed)
    with PeakMemory() as peak:
        before = peak.anonymous
        unsplit.neighbour_graph(X, np.arange(n) % 50, device="cpu")
    return sum(expected), peak.anonymous - before


if __name__ == "__main__":
    main()
