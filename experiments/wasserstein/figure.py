"""Bounds against true distances, and how tight they are as more clusters share a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments.core import Result
from experiments.figures import COLOURS, saved
from experiments.wasserstein.reading import METHODS, families_of, mean_over_seeds, of_part

MARKERS = "os^Dv<>"

# Smaller distances, and bounds of zero, are drawn here.
FLOOR = 0.05

SAMPLES = {"digits": (COLOURS[0], "o"), "Gaussians": (COLOURS[1], "s")}


def draw_bounds(results: Sequence[Result], path: Path) -> Path:
    """Every point a pair: bound against the true distance, and against exact transport."""
    figure, (known, digits) = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
    here = of_part(results, "known")
    for colour, marker, family in zip(COLOURS, MARKERS, families_of(here), strict=False):
        pairs = [p for r in here if r["family"] == family for p in r["shown"]]
        _points(known, pairs, colour, marker, family)
    for name, (colour, marker) in SAMPLES.items():
        found = of_part(results, "digits")
        pairs = [p for r in found for p in r[name]["shown"]]
        label = "clusters of digits" if name == "digits" else "Gaussians with the same means"
        _points(digits, pairs, colour, marker, label)
    known.set(xlabel="true distance", ylabel="bound", xscale="log", yscale="log")
    digits.set(xlabel="exact transport between the samples (too large)", ylabel="bound")
    for ax in (known, digits):
        _diagonal(ax)
    return saved(figure, path)


def draw_sharing(results: Sequence[Result], path: Path) -> Path:
    """Bound over truth for the same pairs, by how many clusters share the network."""
    here = of_part(results, "sharing")
    families = families_of(here)
    figure, axes = plt.subplots(
        1, len(families), figsize=(1.0 + 3.1 * len(families), 3.4), sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for ax, family in zip(axes[0], families, strict=True):
        mine = [r for r in here if r["family"] == family]
        ks = sorted({r["k"] for r in mine})
        for colour, marker, method in zip(COLOURS, MARKERS, METHODS, strict=False):
            ys = [mean_over_seeds(mine, k, method) for k in ks]
            ax.plot(ks, ys, f"{marker}-", color=colour, label=METHODS[method])
        ax.axhline(1.0, color="#444444", linewidth=1, linestyle="--")
        ax.set(title=f"{family}, d = {mine[0]['d']}", xscale="log", xlabel="clusters k")
        ax.set_xticks(ks, [str(k) for k in ks])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    axes[0, 0].set(ylabel="bound / true distance", ylim=(0, None))
    lines = axes[0, 0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=3, frameon=False)
    return saved(figure, path)


def _points(
    ax: Any, pairs: Sequence[Sequence[float]], colour: str, marker: str, label: str
) -> None:
    if pairs:
        x, y = np.array(pairs).T
        ax.plot(
            x,
            np.maximum(y, FLOOR),
            marker,
            color=colour,
            label=label,
            markersize=3.5,
            alpha=0.6,
            linestyle="none",
        )


def _diagonal(ax: Any) -> None:
    bottom = FLOOR if ax.get_xscale() == "log" else 0.0
    top = max(ax.get_xlim()[1], ax.get_ylim()[1])
    ax.plot([bottom, top], [bottom, top], color="#444444", linewidth=1, linestyle="--", zorder=0)
    ax.set(xlim=(0.9 * bottom, top), ylim=(0.9 * bottom, top), aspect="equal")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=8, loc="upper left")
