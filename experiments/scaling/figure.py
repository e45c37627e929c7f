"""Memory and time by k, and the parts of the whole run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from experiments.core import Result
from experiments.figures import COLOURS, plain, saved
from experiments.scaling.config import GIB, PAPER_CLUSTERS, PAPER_NAIVE
from experiments.scaling.reading import NAMES, gibibytes, of_part


def draw_growth(results: Sequence[Result], path: Path) -> Path:
    """Memory and time of a training step of the last layer, by k, for both."""
    heads = of_part(results, "heads")
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for colour, marker, head in zip(COLOURS, "os", heads, strict=False):
        k = [row["k"] for row in head["growth"]]
        label = f"{NAMES[head['outputs']]} outputs"
        for ax, values in zip(axes, (_gigabytes(head), _milliseconds(head)), strict=True):
            ax.plot(k, values, f"{marker}-", color=colour, label=label, markersize=4)
    budget = heads[0]["budget"] / GIB
    axes[0].axhline(budget, color="#444444", linewidth=1, linestyle="--")
    axes[0].annotate(
        f"{budget:.2g} GiB", (0.01, budget), xycoords=("axes fraction", "data"),
        xytext=(0, 3), textcoords="offset points",
    )  # fmt: skip
    measured = all(head["measured memory"] for head in heads)
    axes[0].set_ylabel(
        "peak memory of a step, GiB" if measured else "memory of a step at least, GiB"
    )
    axes[1].set_ylabel("time of a step, ms")
    for ax in axes:
        ax.set(xscale="log", yscale="log", xlabel="clusters k")
        plain(ax.yaxis)
        _mark(ax, PAPER_NAIVE, f"paper, k²: < {PAPER_NAIVE}")
        _mark(ax, PAPER_CLUSTERS, f"paper, k: {PAPER_CLUSTERS:,}")
        ax.grid(alpha=0.3)
    lines = axes[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=2, frameon=False)
    return saved(figure, path)


def draw_parts(results: Sequence[Result], path: Path) -> Path:
    """Seconds of every part as bars, with the peak memory beside them."""
    run = max(of_part(results, "whole"), key=lambda r: r["k"])
    parts = run["parts"]
    figure, ax = plt.subplots(figsize=(8, 0.9 + 0.42 * len(parts)), layout="constrained")
    names = list(parts)
    seconds = [parts[name]["seconds"] for name in names]
    ax.barh(names, seconds, color=COLOURS[0])
    for i, name in enumerate(names):
        ax.annotate(
            _beside(parts[name]), (seconds[i], i), xytext=(4, 0), textcoords="offset points",
            va="center", fontsize=9,
        )  # fmt: skip
    ax.invert_yaxis()
    ax.set_xlim(0, 1.45 * max(seconds))  # room for the words
    ax.set_xlabel("seconds; beside them the peak memory of the GPU")
    ax.set_title(f"{run['k']:,} clusters, {run['n']:,} images, {run['distances']:,} distances")
    ax.spines[["top", "right"]].set_visible(False)
    return saved(figure, path)


def _beside(part: dict[str, Any]) -> str:
    words = [f"{part['seconds']:.1f} s"]
    if part["images"]:
        words.append(f"{part['images'] / part['seconds']:,.0f} images/s")
    if part["bytes"]:
        words.append(f"{gibibytes(part['bytes'])} GiB")
    return ", ".join(words)


def _mark(ax: Any, k: int, words: str) -> None:
    ax.axvline(k, color="#666666", linewidth=1, linestyle=":")
    ax.annotate(
        words, (k, 1.02), xycoords=("data", "axes fraction"), ha="center", fontsize=9,
        color="#444444",
    )  # fmt: skip


def _gigabytes(head: Result) -> list[float]:
    return [row["bytes"] / GIB for row in head["growth"]]


def _milliseconds(head: Result) -> list[float]:
    return [row["ms"] for row in head["growth"]]
