"""Correct merges by their number, and where the network is worth its training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments.core import Result, folder_of, results_in
from experiments.figures import COLOURS, saved
from experiments.imagenet_realistic import numbers as tiny
from experiments.imagenette.numbers import (
    BOTH,
    EUCLIDEAN,
    FEW,
    MANY,
    NETWORK,
    PAPER,
    Place,
    curves,
    mean_and_error,
    paired,
    places,
)

LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    EUCLIDEAN: ("Euclidean distance", {"color": COLOURS[3], "linestyle": "--", "marker": "s"}),
    PAPER: ("paper: retrained", {"color": COLOURS[1], "linestyle": "-", "marker": "^"}),
    NETWORK: ("overlap, trained once", {"color": COLOURS[0], "linestyle": "-", "marker": "o"}),
    BOTH: ("overlap and edges", {"color": COLOURS[2], "linestyle": "-.", "marker": "D"}),
}


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write what there are numbers for."""
    merged = [r for r in results if "CM" in r]
    there = [p for p in places(merged) if (p.representation, p.categories) == ("sscd", "all")]
    if not there:
        return []
    large = [p for p in there if p.side == 96] or there  # the quick form has small images
    return [
        averaged(merged, large, folder / "imagenette.png"),
        border(merged, folder / "imagenette_border.png"),
    ]


def averaged(results: Sequence[Result], there: Sequence[Place], path: Path) -> Path:
    """Wrong merges by number of merges, a panel for every size; the paper looks at the first 7."""
    figure, axes = plt.subplots(
        1, len(there), figsize=(1.2 + 3.2 * len(there), 3.4), sharey=True, layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for ax, place in zip(axes[0], there, strict=True):
        draws = curves(results, place, NETWORK).keys()
        for way, (label, look) in LOOKS.items():
            found = [c[:MANY] for d, c in curves(results, place, way).items() if d in draws]
            if found:
                merges = np.arange(1, min(map(len, found)) + 1)
                wrong = merges - np.mean([c[: len(merges)] for c in found], axis=0)
                ax.plot(merges, wrong, label=label, markersize=3, **look)
        ax.axvspan(0.5, FEW + 0.5, color="0.93", zorder=0)
        ax.set(title=f"s = {place.s}, {place.side} pixels", xlabel="merges")
    axes[0, 0].set_ylabel("wrong merges, mean over draws")
    handles, labels = axes[0, -1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return saved(figure, path)


def border(results: Sequence[Result], path: Path) -> Path:
    """Correct merges beyond Euclidean distance after 12, by images in a cluster."""
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.4), sharey=True, layout="constrained")
    for ax, way in zip(axes, (NETWORK, BOTH), strict=True):
        ax.axhline(0, color="0.5", linewidth=1)
        for colour, side in zip(COLOURS, (64, 96), strict=False):
            here = [p for p in places(results) if _shown(p, side)]
            _points(ax, [(p.s, paired(results, [p], way)) for p in here], colour, f"{side} pixels")
        _points(ax, _tiny(way), COLOURS[5], "Tiny ImageNet, 64 pixels")
        ax.set(title=LOOKS[way][0], xlabel="images in a cluster, s")
    axes[0].set_ylabel("correct merges of 12\nbeyond Euclidean distance")
    axes[0].legend(frameon=False, fontsize=8)
    return saved(figure, path)


def _shown(place: Place, side: int) -> bool:
    return (place.representation, place.categories, place.side) == ("sscd", "all", side)


def _points(ax: Any, found: Sequence[tuple[int, Any]], colour: str, label: str) -> None:
    rows = [
        (s, *mean_and_error((ours - euclidean)[:, -1]))
        for s, (ours, euclidean) in found
        if len(ours) > 1
    ]
    if rows:
        s, mean, error = np.array(rows).T
        ax.errorbar(s, mean, error, color=colour, marker="o", capsize=3, label=label)


def _tiny(way: str) -> list[tuple[int, Any]]:
    results = results_in(folder_of("imagenet-realistic") / "results")
    there = [tiny.Place("sscd", s) for s in (20, 40)]
    found = [(place.s, tiny.paired(results, place, way)) for place in there]
    return [(s, (ours[:, :MANY], other[:, :MANY])) for s, (ours, other) in found]
