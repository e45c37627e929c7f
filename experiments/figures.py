"""Figures that more than one experiment draws."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

from experiments.artificial import DIVERGENCES
from experiments.core import Result

# Paul Tol's bright colours: safe for the colour-blind.
COLOURS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB")

# What a figure can show of 1 − Q: one wrong pair of very many is still above it.
FLOOR = 1e-7


def quality_by_size(results: Sequence[Result], path: Path) -> Path:
    """1 − Q on a logarithmic scale and A, by cluster size, one column for every noise.

    Lines: the paper's estimator, and cross-fitting with each divergence.
    """
    noises = sorted({r["noise"] for r in results})
    figure, axes = plt.subplots(
        2, len(noises), figsize=(3.0 + 2.6 * len(noises), 5.2), sharex=True, sharey="row",
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for column, noise in zip(axes.T, noises, strict=True):
        here = [r for r in results if r["noise"] == noise]
        _lines_of_quality(column[0], here)
        for colour, name in zip(COLOURS, ("paper", "cross-fitted"), strict=False):
            xs, ys = _by_size([r for r in here if r["estimator"] == name], lambda r: r["A"])
            column[1].plot(xs, ys, "o-", color=colour, label=name)
        column[0].set(title=f"noise {noise:.0%}", yscale="log")
        column[1].set_xlabel("cluster size s")
    _zero_at_floor(axes[0, 0])
    axes[0, 0].set_ylabel("1 − Q")
    axes[1, 0].set_ylabel("A")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside right center", frameon=False
    )
    return saved(figure, path)


def course(results: Sequence[Result], path: Path) -> Path:
    """Q and A after so many epochs, one panel for every cluster size."""
    sizes = sorted({r["s"] for r in results})
    figure, axes = plt.subplots(
        1, len(sizes), figsize=(3.2 * len(sizes), 2.8), sharey=True, layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for ax, s in zip(axes[0], sizes, strict=True):
        here = sorted((r for r in results if r["s"] == s), key=lambda r: r["epochs"])
        epochs = [r["epochs"] for r in here]
        ax.plot(epochs, [1 - r["1-Q"]["tv"] for r in here], "o-", color=COLOURS[0], label="Q")
        ax.plot(epochs, [r["A"] for r in here], "s--", color=COLOURS[1], label="A")
        ax.set(title=f"s = {s}", xscale="log", xlabel="epochs")
        ax.set_xticks(epochs, [str(epoch) for epoch in epochs])
        ax.minorticks_off()
    axes[0, 0].legend(frameon=False)
    return saved(figure, path)


def networks_by_size(results: Sequence[Result], path: Path) -> Path:
    """1 − Q and A by cluster size, one line for every network."""
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
    for colour, backbone in zip(COLOURS, sorted({r["backbone"] for r in results}), strict=False):
        here = [r for r in results if r["backbone"] == backbone]
        for ax, value in zip(
            axes, (lambda r: max(r["1-Q"]["tv"], FLOOR), lambda r: r["A"]), strict=True
        ):
            ax.plot(*_by_size(here, value), "o-", color=colour, label=backbone)
    axes[0].set(xlabel="cluster size s", ylabel="1 − Q", yscale="log")
    _zero_at_floor(axes[0])
    axes[1].set(xlabel="cluster size s", ylabel="A")
    axes[1].legend(frameon=False, loc="center right")
    return saved(figure, path)


def _lines_of_quality(ax: Any, results: Sequence[Result]) -> None:
    lines = {"paper: hold-out, accuracy": ("paper", "tv")}
    lines |= {f"cross-fitted, {d}": ("cross-fitted", d) for d in DIVERGENCES}
    for colour, (label, (name, divergence)) in zip(COLOURS, lines.items(), strict=False):
        found = [r for r in results if r["estimator"] == name]
        xs, ys = _by_size(found, lambda r, d=divergence: max(r["1-Q"][d], FLOOR))
        ax.plot(xs, ys, "o-", color=colour, markersize=4, label=label)


def _zero_at_floor(ax: Any) -> None:
    """A logarithmic axis has no zero; whatever is at the floor is one."""
    low, high = ax.get_ylim()
    if low < FLOOR * 2:
        powers = range(-6, 1)
        names = ["0", *(f"$10^{{{n}}}$" for n in powers)]
        ax.set_yticks([FLOOR, *(10.0**n for n in powers)], names)
        ax.set_ylim(low, high)


def _by_size(results: Sequence[Result], value: Any) -> tuple[list[float], list[float]]:
    """Mean value at every cluster size."""
    of: dict[float, list[float]] = defaultdict(list)
    for result in results:
        of[result["s"]].append(value(result))
    sizes = sorted(of)
    return sizes, [float(np.mean(of[s])) for s in sizes]


def plain(axis: Any) -> None:
    """Numbers as one writes them, also where a logarithmic scale has less than a decade."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def saved(figure: Any, path: Path) -> Path:
    """Write a figure, and forget it."""
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
