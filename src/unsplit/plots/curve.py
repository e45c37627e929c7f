"""Merge curve: the distance between the two clusters of every merge."""

from typing import Any

import numpy as np

from unsplit._typing import Index
from unsplit.merging.tree import MergeTree
from unsplit.plots import style

# Up to this many merges, a line helps to follow them one by one.
FEW_MERGES = 60


def merge_curve(tree: MergeTree, ax: Any = None) -> Any:
    """Draw the TVD of every merge with its 95% interval, and where merging stopped.

    Merging goes from left to right.  A thin line shows the statistic that ranked the pairs; a tree
    from a matrix has only this line.  Merges before the cut that were not made are hollow.  The
    last merge before the cut and the first after it are named.  The axis is logarithmic if there
    are many merges and the cut is among the last of them.

    Parameters
    ----------
    tree : MergeTree
        The result of a merge.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> merge_curve(tree).get_xlabel()
    'clusters left (merging goes from left to right)'
    """
    style.check_tree(tree)
    ax = style.axes_or_new(ax, 8.0, 4.6)
    style.clean(ax, "left", "bottom")
    n_left = np.arange(len(tree.merges), 0, -1)
    tvd, statistic = _column(tree, "tvd"), _column(tree, "statistic")
    name, ranked = style.axis_label(tree.statistic), (n_left, statistic)
    if np.isnan(tvd).all():
        _draw_statistic(ax, *ranked, name, style.COLOURS[0])
    else:
        _draw_tvd(ax, n_left, tvd, tree)
        ax.set_ylim(min(statistic.min(), 0) - 0.02, max(statistic.max(), 1) + 0.02)
        if np.array_equal(tvd, statistic):
            ax.set_ylabel(style.axis_label("tv").replace(": ", "\n"), color=style.INK)
        else:
            _draw_statistic(ax, *ranked, name, style.COLOURS[1])
            both = f"distance between the two merged clusters\n{style.ENDS}"
            ax.set_ylabel(both, color=style.INK)
        # Below the axes, where it hides nothing.
        ax.legend(
            loc="upper left", bbox_to_anchor=(0, -0.16), borderaxespad=0, frameon=False,
            labelcolor=style.INK, fontsize=style.LARGEST_TEXT,
        )  # fmt: skip
    n_before = int(np.flatnonzero(tree.taken).max(initial=-1)) + 1
    left_out = np.flatnonzero(~tree.taken[:n_before])
    _draw_left_out(ax, n_left, np.where(np.isnan(tvd), statistic, tvd), left_out)
    cut = len(tree.merges) - n_before + 0.5
    _mark_cut(ax, cut, tree.n_clusters, len(left_out))
    _name_merges(ax, n_before, tree)
    _set_x_axis(ax, len(tree.merges), cut)
    return ax


def _column(tree: MergeTree, name: str) -> style.Floats:
    return np.array([getattr(merge, name) for merge in tree.merges], np.float64)


def _draw_tvd(ax: Any, n_left: Index, tvd: style.Floats, tree: MergeTree) -> None:
    n, colour = len(n_left), style.COLOURS[0]
    bar = min(3.0, max(0.5, 150 / max(n, 1)))
    look: dict[str, Any] = {"linestyle": "", "marker": "o", "markeredgewidth": 0}
    if n <= FEW_MERGES:  # a line through very many points is hard to read
        ax.plot(n_left, tvd, color=colour, linewidth=1.2)
    ends = _column(tree, "low"), _column(tree, "high")
    ax.vlines(n_left, *ends, color=colour, alpha=0.3, linewidth=bar)
    size = 1.5 + 0.6 * bar
    ax.plot(n_left, tvd, color=colour, label="TVD with 95% interval", markersize=size, **look)


def _draw_statistic(
    ax: Any, n_left: Index, statistic: style.Floats, name: str, colour: str
) -> None:
    dot = 2.5 if len(n_left) <= FEW_MERGES else 0.0
    look: dict[str, Any] = {"color": colour, "linewidth": 0.9, "marker": "o", "markersize": dot}
    ax.plot(n_left, statistic, label=name, **look)
    ax.set_ylabel(name, color=colour)


def _draw_left_out(ax: Any, n_left: Index, y: style.Floats, left_out: Index) -> None:
    look: dict[str, Any] = {"facecolors": "white", "edgecolors": style.COLOURS[0], "zorder": 3}
    size = 25 if len(n_left) <= FEW_MERGES else 8
    ax.scatter(n_left[left_out], y[left_out], s=size, **look)


def _mark_cut(ax: Any, cut: float, n_clusters: int, n_left_out: int) -> None:
    text = f"stopped at {style.counted(n_clusters, 'cluster')}"
    if n_left_out:
        text += f", {style.counted(n_left_out, 'earlier merge')} not made"
    ax.axvline(cut, color=style.INK, linewidth=0.8, dashes=(4, 3), zorder=1)
    ax.annotate(
        text, (cut, 1.0), xytext=(0, 3), color=style.INK, fontsize=style.LARGEST_TEXT,
        xycoords=("data", "axes fraction"), textcoords="offset points", ha="center",
    )  # fmt: skip


def _name_merges(ax: Any, n_before: int, tree: MergeTree) -> None:
    """Write the title: which two clusters were merged last, and which two would be next."""
    lines = []
    if n_before:
        lines.append(f"last merge: {_pair(tree, n_before - 1)}")
    if n_before < len(tree.merges):
        lines.append(f"first not made: {_pair(tree, n_before)}")
    look: dict[str, Any] = {"fontsize": style.LARGEST_TEXT, "color": style.INK, "parse_math": False}
    ax.set_title("\n".join(lines), loc="left", pad=20, **look)


def _pair(tree: MergeTree, step: int) -> str:
    """Name the two sides of a merge, the larger clusters by their largest members."""
    sides = tree.merges[step].left, tree.merges[step].right
    return " with ".join(style.short_name(style.node_name(tree, node)) for node in sides)


def _set_x_axis(ax: Any, n: int, cut: float) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    if n > FEW_MERGES and cut < n / 20:
        ax.set_xscale("log")
        ax.set_xlim(1.05 * n, min(0.9, 0.9 * cut))
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        ax.set_xlim(n + 0.7, 0.3)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("clusters left (merging goes from left to right)", color=style.INK)
