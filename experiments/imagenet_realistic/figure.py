"""Correct merges by their number: on average, subset by subset, and by purity."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments.core import Result
from experiments.figures import COLOURS, saved
from experiments.imagenet_realistic.numbers import (
    BEST,
    PAPER_PURITY,
    Place,
    curves,
    described,
    mean_possible,
    nearest_in_purity,
    places,
)
from experiments.imagenet_realistic.reading import FEW, MANY

# Ways to merge that are worth a line, and how they look.
LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "euclidean": ("Euclidean distance", {"color": COLOURS[3], "linestyle": "--", "marker": "s"}),
    "paper": ("paper: retrained", {"color": COLOURS[1], "linestyle": "-", "marker": "^"}),
    "default": ("default, trained once", {"color": COLOURS[0], "linestyle": "-", "marker": "o"}),
    BEST: (
        "best: more augmentation, both distances",
        {"color": COLOURS[2], "linestyle": "-.", "marker": "D"},
    ),
    "compose": ("compose, same training", {"color": COLOURS[5], "linestyle": ":"}),
}
MAIN = ("euclidean", "paper", "default", BEST)
COLUMNS = 5


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write what there are numbers for."""
    there = [place for place in places(results) if curves(results, place, "default")]
    if not there:
        return []
    paths = [
        averaged(results, there, folder / "imagenet_realistic.png"),
        averaged(results, there, folder / "imagenet_realistic_wrong.png", wrong=True),
    ]
    for representation in dict.fromkeys(place.representation for place in there):
        place = _shown(results, representation)
        name = f"imagenet_realistic_{representation}_subsets.png"
        paths.append(by_subset(results, place, folder / name))
    return [*paths, by_purity(results, folder / "imagenet_realistic_purity.png")]


def averaged(
    results: Sequence[Result], there: Sequence[Place], path: Path, wrong: bool = False
) -> Path:
    """Mean CM by number of merges, a panel for every representation and size.

    Or what is left of them: the ``wrong`` merges, where lines are farther from each other.
    """
    rows = list(dict.fromkeys(place.representation for place in there))
    columns = sorted({place.s for place in there})
    figure, axes = plt.subplots(
        len(rows), len(columns), figsize=(1.8 + 3.2 * len(columns), 1.2 + 2.8 * len(rows)),
        sharex=True, sharey=True, squeeze=False, layout="constrained",
    )  # fmt: skip
    for ax in axes.flat:
        ax.set_visible(False)
    for place in there:
        ax = axes[rows.index(place.representation), columns.index(place.s)]
        ax.set_visible(True)
        pure = np.mean(list(described(results, place, "purity").values()))
        _panel(ax, f"{place} (purity {pure:.0%})")
        _mean_lines(ax, results, place, wrong)
        ax.set(xlabel="merges", ylabel=f"{'wrong' if wrong else 'correct'} merges, mean")
        ax.tick_params(labelbottom=True, labelleft=True)
    return _with_legend(figure, path)


def _mean_lines(ax: Any, results: Sequence[Result], place: Place, wrong: bool) -> None:
    def shown(values: Any) -> Any:
        return np.arange(1, len(values) + 1) - values if wrong else values

    for name, (label, look) in LINES.items():
        found = list(curves(results, place, name).values())
        if found:
            length = min(MANY, *map(len, found))
            _line(ax, shown(np.mean([curve[:length] for curve in found], axis=0)), label, look)
    numbers = range(1, _longest(results) + 1)
    _limit(ax, shown(np.array([mean_possible(results, place, m) for m in numbers])))


def by_subset(results: Sequence[Result], place: Place, path: Path) -> Path:
    """CM by number of merges, a panel for every subset."""
    possible = described(results, place, "possible")
    rows = -(-len(possible) // COLUMNS)
    figure, axes = plt.subplots(
        rows, min(COLUMNS, len(possible)), figsize=(12, 0.8 + 2.4 * rows), sharex=True,
        sharey=True, squeeze=False, layout="constrained",
    )  # fmt: skip
    for ax in axes.flat[len(possible) :]:
        ax.set_visible(False)
    for ax, subset in zip(axes.flat, sorted(possible), strict=False):
        pure = described(results, place, "purity")[subset]
        _panel(ax, f"subset {subset} (purity {pure:.0%})")
        for name in MAIN:
            if subset in (found := curves(results, place, name)):
                _line(ax, found[subset][:MANY], *LINES[name])
        _limit(ax, [min(m, possible[subset]) for m in range(1, _longest(results) + 1)])
        ax.set(xlabel="merges", ylabel="correct merges")
        ax.label_outer()
    figure.suptitle(str(place))
    return _with_legend(figure, path)


def by_purity(results: Sequence[Result], path: Path) -> Path:
    """Share of the correct merges that were possible, by purity.

    Small points are subsets, large ones the mean of a representation and size.
    """
    figure, ax = plt.subplots(figsize=(6.8, 4.2), layout="constrained")
    ax.axvspan(min(PAPER_PURITY), max(PAPER_PURITY), color="0.93", label="the paper's purity")
    for name in MAIN:
        label, look = LINES[name]
        means = []
        for place in places(results):
            points = np.array(_shares(results, place, name)).reshape(-1, 2)
            ax.plot(*points.T, look["marker"], color=look["color"], alpha=0.3, markersize=3)
            means += [points.mean(axis=0)] if len(points) else []
        if means:
            ax.plot(*np.array(sorted(map(tuple, means))).T, **look, label=label)
    ax.set(xlabel="purity of the over-clustering", ylabel=f"share right after {MANY} merges")
    ax.legend(frameon=False, loc="upper left")
    return saved(figure, path)


def _shares(results: Sequence[Result], place: Place, name: str) -> list[tuple[float, float]]:
    """Purity of every subset, and how many of the correct merges that were possible it has."""
    pure, possible = (described(results, place, what) for what in ("purity", "possible"))
    return [
        (pure[subset], curve[m - 1] / min(m, possible[subset]))
        for subset, curve in curves(results, place, name).items()
        for m in [min(MANY, len(curve))]
        if possible[subset]
    ]


def _shown(results: Sequence[Result], representation: str) -> Place:
    """Of its sizes the one nearest to the paper's purity, among those where all was done."""
    mine = [r for r in results if r["representation"] == representation]
    for name in ("paper", "default", "euclidean"):
        place = nearest_in_purity(mine, name)
        if place is not None:
            return place
    return places(mine)[0]


def _panel(ax: Any, title: str) -> None:
    ax.axvspan(0.5, FEW + 0.5, color="0.93", zorder=0)
    ax.set_title(title, fontsize=9)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.yaxis.get_major_locator().set_params(integer=True)


def _line(ax: Any, values: Sequence[float], label: str, look: dict[str, Any]) -> None:
    ax.plot(range(1, len(values) + 1), values, label=label, markersize=3, linewidth=1.4, **look)


def _limit(ax: Any, values: Sequence[float]) -> None:
    ax.plot(
        range(1, len(values) + 1), values, color="0.6", linewidth=1, label="best possible", zorder=1
    )


def _longest(results: Sequence[Result]) -> int:
    longest = max(len(curve) for r in results for curve in r.get("CM", {}).values())
    return min(MANY, longest)


def _with_legend(figure: Any, path: Path) -> Path:
    """One legend for all panels; the shaded numbers of merges are those of the paper."""
    named: dict[str, Any] = {}
    for ax in figure.axes:
        handles, labels = ax.get_legend_handles_labels()
        named.update(zip(labels, handles, strict=True))
    columns = 3 if figure.get_figwidth() > 8 else 2
    place = "outside lower center"
    figure.legend(named.values(), named.keys(), loc=place, ncols=columns, frameon=False)
    return saved(figure, path)
