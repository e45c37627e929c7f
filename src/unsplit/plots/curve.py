"""Merge curve: the distance between the two clusters of every merge."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.merging.tree import MergeTree
from unsplit.plots import style

# Up to this many merges, a line helps to follow them one by one.
FEW_MERGES = 60


@dataclass(frozen=True, eq=False)
class MergeCurve:
    """The data of a merge curve, in the order of the merges; all arrays have shape (k − 1,).

    Parameters
    ----------
    n_left : ndarray
        Number of clusters left after each merge: k − 1 … 1.
    tvd, low, high : ndarrays
        TVD between the two merged clusters and its 95% interval; NaN for a tree from a matrix.
    statistic : ndarray
        The statistic that ranked the pair.
    taken : ndarray
        Whether the merge was made.
    cut : float
        Position just after the last merge that was made, on the scale of ``n_left``.
    n_left_out : int
        Number of merges before the cut that were not made.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> merge_curve_data(tree).statistic
    array([0.1 , 0.85])
    """

    n_left: Index
    tvd: style.Floats
    low: style.Floats
    high: style.Floats
    statistic: style.Floats
    taken: NDArray[np.bool_]
    cut: float
    n_left_out: int


def merge_curve_data(tree: MergeTree) -> MergeCurve:
    """Compute the distance of every merge and where merging stopped, without drawing.

    Parameters
    ----------
    tree : MergeTree
        The result of a merge.

    Returns
    -------
    MergeCurve

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> data = merge_curve_data(tree)
    >>> data.n_left, data.taken, data.cut
    (array([2, 1]), array([ True, False]), 1.5)
    """
    style.check_tree(tree)
    k = tree.n_initial
    columns = {
        name: np.array([getattr(merge, name) for merge in tree.merges], np.float64)
        for name in ("tvd", "low", "high", "statistic")
    }
    n_before = int(np.flatnonzero(tree.taken).max(initial=-1)) + 1
    return MergeCurve(
        n_left=np.arange(k - 1, 0, -1),
        **columns,
        taken=tree.taken,
        cut=k - n_before - 0.5,
        n_left_out=n_before - int(tree.taken.sum()),
    )


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
    data = merge_curve_data(tree)
    ax = style.axes_or_new(ax, 8.0, 4.6)
    style.clean(ax, "left", "bottom")
    if np.isnan(data.tvd).all():
        _draw_statistic(ax, data, style.axis_label(tree.statistic), style.COLOURS[0])
    else:
        _draw_both(ax, data, style.axis_label(tree.statistic))
    _draw_left_out(ax, data)
    _mark_cut(ax, data, tree.n_clusters)
    _name_merges(ax, data, tree)
    _set_x_axis(ax, data)
    return ax


def _draw_both(ax: Any, data: MergeCurve, statistic: str) -> None:
    """Draw the TVD and the statistic that ranked the pairs."""
    _draw_tvd(ax, data)
    if np.array_equal(data.tvd, data.statistic):
        ax.set_ylabel(style.axis_label("tv").replace(": ", "\n"), color=style.INK)
    else:
        _draw_statistic(ax, data, statistic, style.COLOURS[1])
        ax.set_ylabel(f"distance between the two merged clusters\n{style.ENDS}", color=style.INK)
    # Below the axes, where it hides nothing.
    ax.legend(
        loc="upper left", bbox_to_anchor=(0, -0.16), borderaxespad=0, frameon=False,
        labelcolor=style.INK, fontsize=style.LARGEST_TEXT,
    )  # fmt: skip


def _draw_tvd(ax: Any, data: MergeCurve) -> None:
    n = len(data.n_left)
    bar = min(3.0, max(0.5, 150 / max(n, 1)))
    ends: dict[str, Any] = {"color": style.COLOURS[0], "alpha": 0.3, "linewidth": bar}
    dots: dict[str, Any] = {
        "color": style.COLOURS[0],
        "linestyle": "",
        "marker": "o",
        "markersize": 1.5 + 0.6 * bar,
        "markeredgewidth": 0,
    }
    if n <= FEW_MERGES:  # a line through very many points is hard to read
        ax.plot(data.n_left, data.tvd, color=style.COLOURS[0], linewidth=1.2)
    ax.vlines(data.n_left, data.low, data.high, **ends)
    ax.plot(data.n_left, data.tvd, label="TVD with 95% interval", **dots)
    values = np.append(data.statistic, [0, 1])
    ax.set_ylim(values.min() - 0.02, values.max() + 0.02)


def _draw_statistic(ax: Any, data: MergeCurve, name: str, colour: str) -> None:
    dot = 2.5 if len(data.n_left) <= FEW_MERGES else 0.0
    look: dict[str, Any] = {"color": colour, "linewidth": 0.9, "marker": "o", "markersize": dot}
    ax.plot(data.n_left, data.statistic, label=name, **look)
    ax.set_ylabel(name, color=colour)


def _draw_left_out(ax: Any, data: MergeCurve) -> None:
    left_out = ~data.taken & (data.n_left > data.cut)
    y = np.where(np.isnan(data.tvd), data.statistic, data.tvd)
    look: dict[str, Any] = {"facecolors": "white", "edgecolors": style.COLOURS[0], "zorder": 3}
    size = 25 if len(data.n_left) <= FEW_MERGES else 8
    ax.scatter(data.n_left[left_out], y[left_out], s=size, **look)


def _mark_cut(ax: Any, data: MergeCurve, n_clusters: int) -> None:
    text = f"stopped at {style.counted(n_clusters, 'cluster')}"
    if data.n_left_out:
        text += f", {style.counted(data.n_left_out, 'earlier merge')} not made"
    ax.axvline(data.cut, color=style.INK, linewidth=0.8, dashes=(4, 3), zorder=1)
    ax.annotate(
        text, (data.cut, 1.0), xytext=(0, 3), color=style.INK, fontsize=style.LARGEST_TEXT,
        xycoords=("data", "axes fraction"), textcoords="offset points", ha="center",
    )  # fmt: skip


def _name_merges(ax: Any, data: MergeCurve, tree: MergeTree) -> None:
    """Write the title: which two clusters were merged last, and which two would be next."""
    n_before = int((data.n_left > data.cut).sum())
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


def _set_x_axis(ax: Any, data: MergeCurve) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    n = len(data.n_left)
    if n > FEW_MERGES and data.cut < n / 20:
        ax.set_xscale("log")
        ax.set_xlim(1.05 * n, min(0.9, 0.9 * data.cut))
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        ax.set_xlim(n + 0.7, 0.3)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("clusters left (merging goes from left to right)", color=style.INK)
