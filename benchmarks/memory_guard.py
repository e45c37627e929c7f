"""What the memory guard expects of an estimate, and what it really takes.

python -m benchmarks.memory_guard [--case "many rows"]

Each case runs in a process of its own, on the CPU, for one epoch.
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

# Rows, features, clusters, folds and type.
CASES: dict[str, tuple[int, int, int, Any, str]] = {
    "many rows": (300_000, 50, 300, "auto", "float32"),
    "many features": (3_000, 20_000, 30, 5, "float32"),
    "five folds": (100_000, 100, 50, 5, "float64"),
    "many clusters": (6_000, 20, 2_000, 2, "float32"),
}
# Rows and features of a neighbour graph.
GRAPHS = {"neighbours": (40_000, 50), "neighbours, many features": (32_000, 300)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=[*CASES, *GRAPHS])
    args = parser.parse_args()
    if args.case is not None:
        graph = args.case in GRAPHS
        found = of_graph(*GRAPHS[args.case]) if graph else measured(*CASES[args.case])
        print(json.dumps(found))
        return
    rows: list[tuple[Any, ...]] = []
    for name, (n, d, k, cv, dtype) in CASES.items():
        expected, taken = run(name)
        what = f"{n:,} x {d:,} of {dtype}, k = {k:,}, cv = {cv}"
        rows.append((name, what, expected >> 20, taken >> 20, expected / taken))
    for name, (n, d) in GRAPHS.items():
        expected, taken = run(name)
        rows.append((name, f"{n:,} x {d:,}", expected >> 20, taken >> 20, expected / taken))
    print_table(
        "memory of an estimate and of a graph",
        ("", "data", "expected, MiB", "taken, MiB", "ratio"),
        rows,
    )


def run(name: str) -> tuple[int, int]:
    """Bytes that the guard expects and that are taken, in a new process."""
    command = [sys.executable, "-m", "benchmarks.memory_guard", "--case", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected, taken = json.loads(done.stdout)
    return expected, taken


def measured(n: int, d: int, k: int, cv: Any, dtype: str) -> tuple[int, int]:
    """Bytes that the guard expects and that are taken, in this process."""
    import unsplit
    from unsplit.data.rows import kinds
    from unsplit.networks import registry
    from unsplit.pairwise import api

    warnings.simplefilter("ignore", unsplit.SmallClusterWarning)
    rng = np.random.default_rng(0)
    once: dict[str, Any] = {"epochs": 1, "device": "cpu", "random_state": 0}
    # Whatever is loaded when it is first used.
    unsplit.pairwise_tvd(rng.standard_normal((200, 3)), np.arange(200) % 4, **once)
    X, labels = rng.standard_normal((n, d)).astype(dtype), np.arange(n) % k
    expected = []

    def note(needed: int, *_: Any) -> None:
        expected.append(needed)

    for module in (kinds, registry, api):
        vars(module)["require_memory"] = note
    with PeakMemory() as memory:
        before = memory.anonymous
        unsplit.pairwise_tvd(X, labels, cv=cv, **once)
    return sum(expected), memory.anonymous - before


def of_graph(n: int, d: int) -> tuple[int, int]:
    """Bytes that the guard expects of a neighbour graph and that are taken, in this process."""
    import unsplit
    from unsplit.merging.neighbours import graph

    X = np.random.default_rng(0).standard_normal((n, d), np.float32)
    unsplit.neighbour_graph(X[:100], np.arange(100) % 50, device="cpu")
    expected = []
    vars(graph)["require_memory"] = lambda needed, *_: expected.append(needed)
    with PeakMemory() as memory:
        before = memory.anonymous
        unsplit.neighbour_graph(X, np.arange(n) % 50, device="cpu")
    return sum(expected), memory.anonymous - before


if __name__ == "__main__":
    main()
