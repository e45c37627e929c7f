"""Merge curve: the distance between the two clusters of every merge."""

from typing import Any

import numpy as np

from unsplit.merging.review import members_of_nodes
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
    n = len(tree.merges)
    n_left = np.arange(n, 0, -1)
    tvd, low, high, statistic = (
        np.array([getattr(merge, name) for merge in tree.merges], np.float64)
        for name in ("tvd", "low", "high", "statistic")
    )
    label, curves = style.axis_label(tree.statistic), {}
    if not np.isnan(tvd).all():
        curves["TVD with 95% interval"] = tvd
        bar = min(3.0, max(0.5, 150 / n))
        ax.vlines(n_left, low, high, color=style.COLOURS[0], alpha=0.3, linewidth=bar)
        ax.set_ylim(min(statistic.min(), 0) - 0.02, max(statistic.max(), 1) + 0.02)
    if not np.array_equal(tvd, statistic):
        curves[label] = statistic
    dots, size = ("o-", 3) if n <= FEW_MERGES else ("o", 1.5)
    for colour, (name, values) in zip(style.COLOURS, curves.items(), strict=False):
        ax.plot(n_left, values, dots, label=name, color=colour, markersize=size, linewidth=1.2)
    if len(curves) == 2:
        label = f"distance between the two merged clusters: {style.ENDS}"
    ax.set_ylabel(label.replace(": ", "\n"), color=style.INK)
    # Below the axes, where it hides nothing.
    ax.legend(
        loc="upper left", bbox_to_anchor=(0, -0.16), borderaxespad=0, frameon=False,
        labelcolor=style.INK, fontsize=style.LARGEST_TEXT,
    )  # fmt: skip
    n_before = int(np.flatnonzero(tree.taken).max(initial=-1)) + 1
    left_out = np.flatnonzero(~tree.taken[:n_before])
    heights = np.where(np.isnan(tvd), statistic, tvd)
    look: dict[str, Any] = {"facecolors": "white", "edgecolors": style.COLOURS[0], "zorder": 3}
    ax.scatter(n_left[left_out], heights[left_out], s=25 if n <= FEW_MERGES else 8, **look)
    _mark_cut(ax, n - n_before + 0.5, tree.n_clusters, len(left_out))
    _name_merges(ax, n_before, tree)
    _set_x_axis(ax, n, n - n_before + 0.5)
    return ax


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
    members, lines = members_of_nodes(tree.merges, tree.n_initial), []
    for name, step in (("last merge", n_before - 1), ("first not made", n_before)):
        if 0 <= step < len(tree.merges):
            sides = members[tree.merges[step].left], members[tree.merges[step].right]
            pair = " with ".join(style.node_name(tree, side) for side in sides)
            lines.append(f"{name}: {pair}")
    look: dict[str, Any] = {"fontsize": style.LARGEST_TEXT, "color": style.INK, "parse_math": False}
    ax.set_title("\n".join(lines), loc="left", pad=20, **look)


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
