"""What the memory guard expects of an estimate, and what it really takes.

python -m benchmarks.memory_guard [--case "many rows"] [--device cuda]

Each case runs in a process of its own, for one epoch; on a GPU only those with activations, whose
memory is what torch says that it had allocated at most.
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

# Shape, clusters, folds and type.
CASES: dict[str, tuple[tuple[int, ...], int, Any, str]] = {
    "many rows": ((300_000, 50), 300, "auto", "float32"),
    "many features": ((3_000, 20_000), 30, 5, "float32"),
    "five folds": ((100_000, 100), 50, 5, "float64"),
    "many clusters": ((6_000, 20), 2_000, 2, "float32"),
}
# The same, and the backbone.
DEEP: dict[str, tuple[tuple[int, ...], int, Any, str, str]] = {
    "images": ((600, 224, 224, 3), 10, 2, "uint8", "convnet"),
    "images, ResNet-18": ((200, 64, 64, 3), 10, 2, "uint8", "resnet18"),
    "sequences": ((400, 500, 4), 10, 2, "float32", "resnet1d"),
    "clouds": ((200, 1024, 3), 10, 2, "float32", "pointnet++"),
}
ON_GPU = {
    "images": ((2_000, 64, 64, 3), 10, 2, "uint8", "resnet18"),
    "large images": ((1_000, 224, 224, 3), 10, 2, "uint8", "resnet18"),
    "sequences": ((1_000, 2_000, 4), 10, 2, "float32", "resnet1d"),
    "clouds": ((500, 1024, 3), 10, 2, "float32", "pointnet++"),
}
# Rows and features of a neighbour graph.
GRAPHS = {"neighbours": (40_000, 50), "neighbours, many features": (32_000, 300)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()
    if args.case is not None:
        print(json.dumps(of_case(args.case, args.device)))
        return
    rows: list[tuple[Any, ...]] = []
    for name in cases_on(args.device):
        expected, taken = run(name, args.device)
        rows.append((name, described(name, args.device), expected >> 20, taken >> 20))
    print_table(
        f"memory of an estimate and of a graph, {args.device}",
        ("", "data", "expected, MiB", "taken, MiB", "ratio"),
        [(*row, row[-2] / row[-1]) for row in rows],
    )


def cases_on(device: str) -> list[str]:
    """Names of the cases for a device."""
    return list(ON_GPU) if device == "cuda" else [*CASES, *DEEP, *GRAPHS]


def described(name: str, device: str) -> str:
    """The data of a case."""
    if name in GRAPHS:
        return " x ".join(f"{n:,}" for n in GRAPHS[name])
    shape, k, cv, dtype, *backbone = (CASES | DEEP | (ON_GPU if device == "cuda" else {}))[name]
    parts = [" x ".join(f"{n:,}" for n in shape) + f" of {dtype}", *backbone]
    return ", ".join([*parts, f"k = {k:,}", f"cv = {cv}"])


def run(name: str, device: str = "cpu") -> tuple[int, int]:
    """Bytes that the guard expects and that are taken, in a new process."""
    command = [sys.executable, "-m", "benchmarks.memory_guard", "--case", name, "--device", device]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected, taken = json.loads(done.stdout)
    return expected, taken


def of_case(name: str, device: str) -> tuple[int, int]:
    """Bytes that the guard expects and that are taken, in this process."""
    if device == "cuda":
        return measured(*ON_GPU[name], device="cuda")
    if name in GRAPHS:
        return of_graph(*GRAPHS[name])
    return measured(*DEEP[name]) if name in DEEP else measured(*CASES[name])


def measured(
    shape: tuple[int, ...],
    k: int,
    cv: Any,
    dtype: str,
    backbone: str = "auto",
    device: str = "cpu",
) -> tuple[int, int]:
    """Bytes that the guard expects and that are taken, in this process."""
    import torch

    import unsplit
    from unsplit.data.rows import kinds
    from unsplit.pairwise import memory

    warnings.simplefilter("ignore", unsplit.SmallClusterWarning)
    rng = np.random.default_rng(0)
    once: dict[str, Any] = {"epochs": 1, "device": device, "random_state": 0}
    X = rng.integers(0, 256, shape, np.uint8) if dtype == "uint8" else rng.standard_normal(shape)
    X, labels = X.astype(dtype), np.arange(len(X)) % k
    # Whatever is loaded when it is first used.
    unsplit.pairwise_tvd(rng.standard_normal((200, 3)), np.arange(200) % 4, **once)
    # Of the data, of training (the last estimate is the best), and of comparing clusters.
    expected, held = {"X": 0}, 0

    def note(needed: int, available: int, what: str, advice: Any) -> None:
        nonlocal held
        expected[what.split()[0]] = needed
        if device == "cuda":
            held = torch.cuda.memory_allocated()  # the data and the networks are there

    for module in (kinds, memory):
        vars(module)["require_memory"] = note
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        unsplit.pairwise_tvd(X, labels, cv=cv, backbone=backbone, **once)
        return expected["training"], torch.cuda.max_memory_allocated() - held
    with PeakMemory() as peak:
        before = peak.anonymous
        unsplit.pairwise_tvd(X, labels, cv=cv, backbone=backbone, **once)
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
