"""Correct merges by their number, and where the network is worth its training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from experiments.core import Result, folder_of, results_in
from experiments.figures import COLOURS, saved
from experiments.imagenet_realistic import numbers as tiny
from experiments.imagenette.numbers import (
    BOTH,
    EUCLIDEAN,
    FEW,
    LESS,
    MANY,
    NETWORK,
    PAPER,
    VARIANTS,
    Place,
    Table,
    curves,
    mean_and_error,
    paired,
    place_of,
    places,
    shown,
)

LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    EUCLIDEAN: ("Euclidean distance", {"color": COLOURS[3], "linestyle": "--", "marker": "s"}),
    PAPER: ("paper: retrained, less augmentation",
            {"color": COLOURS[1], "linestyle": "-", "marker": "^"}),
    NETWORK: ("overlap, trained once", {"color": COLOURS[0], "linestyle": "-", "marker": "o"}),
    BOTH: ("overlap and edges", {"color": COLOURS[2], "linestyle": "-.", "marker": "D"}),
}  # fmt: skip


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write what there are numbers for."""
    merged = [r for r in results if "CM" in r]
    # The quick form has small images and less augmentation alone.
    there = [p for p in shown(merged) or places(merged, LESS) if p.headline]
    if not there:
        return []
    large = [p for p in there if p.side == 96] or there
    return [
        averaged(merged, large, folder / "imagenette.png"),
        border(merged, folder / "imagenette_border.png"),
    ]


def averaged(results: Sequence[Result], there: Sequence[Place], path: Path) -> Path:
    """Wrong merges by number of merges, a panel for every size; the paper looks at the first 7."""
    figure, axes = plt.subplots(
        1, len(there), figsize=(1.2 + 2.7 * len(there), 3.6), sharey=True, layout="constrained",
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
        less = f", {VARIANTS[LESS]}" if place.variant == LESS else ""
        ax.set(xlabel="merges", xticks=range(0, MANY + 1, 2))
        features = tiny.NAMES[place.representation]
        title = f"{features}, s = {place.s}, {place.side} pixels\n{len(draws)} draws{less}"
        ax.set_title(title, fontsize=10)
    axes[0, 0].set_ylabel("wrong merges, mean over draws")
    lines = {line.get_label(): line for ax in axes[0] for line in ax.get_lines()}
    labels = [label for label, _ in LOOKS.values() if label in lines]
    handles = [lines[label] for label in labels]
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return saved(figure, path)


class Point(NamedTuple):
    """Mean purity, correct merges beyond Euclidean distance with their error, and how trained."""

    s: int
    purity: float
    mean: float
    error: float
    less: bool


def border(results: Sequence[Result], path: Path) -> Path:
    """Correct merges beyond Euclidean distance, by images in a cluster and by purity."""
    figure, axes = plt.subplots(1, 3, figsize=(11.4, 4.2), sharey=True, layout="constrained")
    for ax, way in zip(axes[:2], (NETWORK, BOTH), strict=True):
        for colour, shift, side in zip(COLOURS, (-1.5, 0.0, 1.5), (64, 96, 112), strict=False):
            here = [p for p in shown(results) if p.headline and p.side == side]
            _by_size(ax, [_point(results, p, way) for p in here], colour, f"{side} pixels", shift)
        _by_size(ax, _tiny(way), COLOURS[5], "Tiny ImageNet, 64 pixels")
        ax.set(title=f"{LOOKS[way][0]}, by size", xlabel="images in a cluster, s")
    _by_purity(axes[2], results)
    for ax in axes:
        ax.axhline(0, color="0.5", linewidth=1, zorder=0)
    axes[0].plot(
        [], [], "o", color="0.3", markerfacecolor="white", label=f"hollow: {VARIANTS[LESS]}"
    )
    axes[0].set_ylabel(f"correct merges of {MANY}\nbeyond Euclidean distance")
    for ax in (axes[0], axes[2]):
        ax.legend(frameon=False, fontsize=8, loc="upper left")
    return saved(figure, path)


def _by_purity(ax: Any, results: Sequence[Result]) -> None:
    """Every place of ours that has a standard error; the paper's range is grey."""
    kinds = (
        ("ten categories, SSCD", COLOURS[2], [p for p in shown(results) if p.headline]),
        ("half of the categories (k = 10), SSCD", COLOURS[3],
         [p for p in shown(results) if p.categories != "all"]),
        ("ten categories, DeepCluster", COLOURS[1],
         [p for p in shown(results) if p.representation == "deepcluster"]),
    )  # fmt: skip
    low, high = min(tiny.PAPER_PURITY), max(tiny.PAPER_PURITY)
    ax.axvspan(100 * low, 100 * high, color="0.93", zorder=0, label="purity in the paper")
    for name, colour, there in kinds:
        _scattered(ax, [_point(results, p, BOTH) for p in there], colour, name)
    _scattered(ax, _tiny(BOTH), COLOURS[5], "Tiny ImageNet, SSCD")
    ax.set(title=f"{LOOKS[BOTH][0]}, by purity", xlabel="mean purity of the clusters, %")


def _point(results: Sequence[Result], place: Place, way: str) -> Point:
    here = [r["purity"] for r in results if place_of(r) == place and r["method"] == "cross-fitted"]
    gap = paired(results, [place], way).gap()
    return _of_gap(place.s, here, gap, place.variant == LESS)


def _of_gap(s: int, purity: Sequence[float], gap: Table, less: bool) -> Point:
    return Point(s, 100 * float(np.mean(purity)), *mean_and_error(gap[:, -1]), less)


def _by_size(ax: Any, points: Sequence[Point], colour: str, label: str, shift: float = 0) -> None:
    """Joined by lines; shifted a little, so that errors do not cover each other."""
    if points:
        x = [p.s + shift for p in points]
        ax.plot(x, [p.mean for p in points], color=colour, linewidth=1.2, label=label, marker="o")
        _marked(ax, x, points, colour)


def _scattered(ax: Any, points: Sequence[Point], colour: str, label: str) -> None:
    if points:
        ax.plot([], [], "o", color=colour, label=label)
        _marked(ax, [p.purity for p in points], points, colour)


def _marked(ax: Any, x: Sequence[float], points: Sequence[Point], colour: str) -> None:
    """Means with their errors, hollow where there was less augmentation."""
    for at, p in zip(x, points, strict=True):
        face = "white" if p.less else colour
        ax.errorbar(at, p.mean, p.error, color=colour, marker="o", capsize=3, markerfacecolor=face)


def _tiny(way: str) -> list[Point]:
    results = results_in(folder_of("imagenet-realistic") / "results")
    points = []
    for place in (tiny.Place("sscd", s) for s in (20, 40)):
        ours, other = tiny.paired(results, place, way)
        purity = list(tiny.described(results, place, "purity").values())
        points.append(_of_gap(place.s, purity, (ours - other)[:, :MANY], True))
    return points
