"""Groups and merges by method, the course of training, and the learning rate."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt

from experiments.core import Result
from experiments.discussion.config import WAYS, Case
from experiments.discussion.merging import STATISTICS
from experiments.discussion.summary import cases, error, in_words, mean, of_case, trained, where
from experiments.figures import COLOURS, plain, saved

# What a logarithmic scale can show of 1 − Q where it is 0.
FLOOR = 1e-4


def merging(results: Sequence[Result], path: Path) -> Path:
    """ARI of spectral clustering against linkage; correct merges against processor time."""
    spectral, merges = where(results, part="spectral"), where(results, part="merging")
    found = cases(merges)
    widths = [1.7] * bool(spectral) + [1] * len(found)
    figure, axes = plt.subplots(
        1, len(widths), figsize=(1.0 + 3.2 * sum(widths), 3.6), layout="constrained",
        squeeze=False, width_ratios=widths,
    )  # fmt: skip
    panels = list(axes[0])
    if spectral:
        _groups(panels.pop(0), spectral)
    for ax, case in zip(panels, found, strict=True):
        _prices(ax, of_case(merges, case))
        ax.set_title(_in_lines(case), fontsize=9)
        ax.set(xscale="log", ylim=(-0.03, 1.06), xlabel="processor seconds, whole tree")
        plain(ax.xaxis)
        ax.set_ylabel("share of correct merges")
    if panels:
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside right center", frameon=False)
    return saved(figure, path)


def _groups(ax: Any, spectral: Sequence[Result]) -> None:
    """A pair of dots for every case and statistic: linkage open, spectral filled."""
    found = cases(spectral)
    for place, case in enumerate(found):
        for offset, (name, colour) in enumerate(zip(STATISTICS, COLOURS, strict=False)):
            x = place + 0.25 * (offset - 1)
            level = [
                mean(r["ARI"][w][name] for r in of_case(spectral, case))
                for w in ("linkage", "spectral")
            ]
            ax.plot([x, x], level, color=colour, linewidth=1)
            ax.plot(x, level[0], "o", color=colour, markerfacecolor="white")
            ax.plot(x, level[1], "o", color=colour, label=name if place == 0 else None)
    ax.plot([], [], "o", color="black", markerfacecolor="white", label="linkage")
    ax.plot([], [], "o", color="black", label="spectral")
    ax.set_xticks(range(len(found)), [_in_lines(case) for case in found], fontsize=7)
    ax.set(ylabel="ARI at the number of majority categories", ylim=(0, 1.02))
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="lower right")


def _prices(ax: Any, merges: Sequence[Result]) -> None:
    for colour, strategy in zip(COLOURS, WAYS, strict=False):
        some = where(merges, strategy=strategy)
        if some:
            right = [r["correct"] / r["merges"] for r in some]
            price = [r["CPU seconds"] for r in some]
            ax.plot(price, right, ".", color=colour, alpha=0.5)
            ax.plot(mean(price), mean(right), "D", color=colour, label=strategy)


def stopping(results: Sequence[Result], path: Path) -> Path:
    """1 − Q and A after so many epochs, and where A ended training."""
    found = where(results, part="stopping")
    columns = [
        (case, estimator, where(of_case(found, case), estimator=estimator))
        for estimator in ("paper", "cross-fitted")
        for case in cases(where(found, estimator=estimator))
    ]
    figure, axes = _two_rows(len(columns))
    for column, (case, estimator, some) in zip(axes.T, columns, strict=True):
        title = _in_lines(case) + ("" if estimator == "paper" else "\ncross-fitted")
        column[0].set_title(title, fontsize=9)
        lines = [(r["fixed"], lambda one: one["epochs run"], [r]) for r in some]
        _curves(column, lines, "where A ends training")
        column[1].set_xlabel("epochs")
        plain(column[1].xaxis)
    return _finished(figure, axes, path)


def rates(results: Sequence[Result], path: Path) -> Path:
    """1 − Q and A by learning rate, and the rate that A chooses."""
    found = where(results, part="choosing", setting="learning rate")
    figure, axes = _two_rows(len(cases(found)))
    for column, case in zip(axes.T, cases(found), strict=True):
        column[0].set_title(_in_lines(case), fontsize=9)
        lines = [
            (
                trained(r),
                lambda one: one["value"],
                [one for one in r["tried"] if one["value"] == r["chosen"]],
            )
            for r in of_case(found, case)
        ]
        _curves(column, lines, "chosen by A")
        column[1].set_xlabel("learning rate")
    return _finished(figure, axes, path)


Line = tuple[Sequence[Result], Callable[[Result], float], Sequence[Result]]


def _curves(column: Any, lines: Sequence[Line], marked: str) -> None:
    """One line for each seed, 1 − Q of two statistics above and A below, some points marked."""
    for seed, (points, x, stars) in enumerate(lines):
        xs, chosen = [x(one) for one in points], [x(one) for one in stars]
        for colour, name in zip(COLOURS, ("tv", "lecam"), strict=False):
            above = [max(error(one, name), FLOOR) for one in points]
            label = f"1 − Q, {name}" if seed == 0 else None
            column[0].plot(xs, above, "-", color=colour, alpha=0.7, label=label)
            at = [max(error(one, name), FLOOR) for one in stars]
            star = marked if seed == 0 and name == "lecam" else None
            column[0].plot(chosen, at, "*", color=colour, ms=10, mec="black", mew=0.6, label=star)
        label = "A" if seed == 0 else None
        column[1].plot(
            xs, [one["A"] for one in points], "-", color=COLOURS[2], alpha=0.7, label=label
        )
        column[1].plot(
            chosen, [one["A"] for one in stars], "*", color=COLOURS[2], ms=10, mec="black", mew=0.6
        )
    column[0].set(xscale="log", yscale="log")
    plain(column[0].yaxis)


def _two_rows(n_columns: int) -> tuple[Any, Any]:
    return plt.subplots(
        2, n_columns, figsize=(1.0 + 2.3 * n_columns, 5), sharex="col", layout="constrained",
        squeeze=False,
    )  # fmt: skip


def _finished(figure: Any, axes: Any, path: Path) -> Path:
    axes[0, 0].set_ylabel("1 − Q")
    axes[1, 0].set_ylabel("A")
    handles = [ax.get_legend_handles_labels() for ax in axes[:, 0]]
    figure.legend(
        [h for some, _ in handles for h in some], [label for _, some in handles for label in some],
        loc="outside lower center", ncols=4, frameon=False,
    )  # fmt: skip
    return saved(figure, path)


def _in_lines(case: Case) -> str:
    return in_words(case).replace(", ", "\n")
