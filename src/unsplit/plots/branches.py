"""Dendrogram of all merges; the merges that were made are coloured."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.errors import check_whole
from unsplit.merging.tree import MergeTree
from unsplit.plots.layout import new_clusters, node_heights, places
from unsplit.plots.style import (
    AXIS_LABELS,
    GREY,
    INK,
    check_drawing,
    clean,
    colours_of,
    new_axes,
    write_names,
)

Floats = NDArray[np.float64]

MOST_LEAVES = 200

# More numbers than this would overlap.
MOST_NUMBERS = 40


@dataclass(frozen=True, eq=False)
class Dendrogram:
    """The coordinates of a dendrogram; leaf i is at x = i.

    Parameters
    ----------
    names : tuple of m str
        Names of the leaves: initial clusters, or ``"(12)"`` for twelve of them shown as one leaf.
    n_members : ndarray of shape (m,)
        Number of initial clusters in each leaf.
    leaf_clusters : ndarray of shape (m,)
        New cluster of each leaf; −1 if its initial clusters belong to several.
    leaf_heights : ndarray of shape (m,)
        ``base``, or the height of the last merge inside the leaf.
    x, y : ndarrays of shape (b, 4)
        Each merge is a bracket: up from its left side, across, down to its right side.
    branch_clusters : ndarray of shape (b,)
        New cluster of each merge; −1 for merges that were not made.
    tops : ndarray of shape (c, 3)
        New cluster, x and y of the last merge in each new cluster, from left to right.
    base : float
        Height at which the leaves begin, a little below the lowest merge or zero.
    cut : float
        Height between the merges that were made and the others; NaN if there is no such height.
    n_folded : int
        Number of merges that are hidden inside leaves.
    """

    names: tuple[str, ...]
    n_members: Index
    leaf_clusters: Index
    leaf_heights: Floats
    x: Floats
    y: Floats
    branch_clusters: Index
    tops: Floats
    base: float
    cut: float
    n_folded: int


def dendrogram_data(tree: MergeTree, *, most_leaves: int = MOST_LEAVES) -> Dendrogram:
    """Compute the coordinates of the dendrogram, without drawing it.

    Parameters
    ----------
    tree : MergeTree
        The result of a merge.
    most_leaves : int
        Maximum number of leaves.  In a larger tree the first merges are hidden, and the clusters
        that they made are the leaves.

    Returns
    -------
    Dendrogram

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> data = dendrogram_data(tree)
    >>> data.names, data.branch_clusters
    (('0', '1', '2'), array([ 0, -1]))
    """
    check_drawing(tree, None)
    check_whole("most_leaves", most_leaves, 2, f"the default is {MOST_LEAVES}")
    k = tree.n_initial
    n_folded = max(0, k - most_leaves)
    first, heights, clusters = places(tree, n_folded), node_heights(tree), new_clusters(tree)
    leaves = np.flatnonzero(first[: k + n_folded] >= 0)
    leaves = leaves[np.argsort(first[leaves])]
    members = np.append(np.ones(k), tree.linkage[:, 3]).astype(np.int64)
    centres, x, y = _brackets(tree, n_folded, first, heights)
    return Dendrogram(
        names=tuple(tree.name(i) if i < k else f"({members[i]:,})" for i in leaves.tolist()),
        n_members=members[leaves],
        leaf_clusters=clusters[leaves],
        leaf_heights=heights[leaves],
        x=x,
        y=y,
        branch_clusters=clusters[k + n_folded :],
        tops=_tops(clusters, centres, heights, k),
        base=float(heights[0]),
        cut=_cut_height(tree),
        n_folded=n_folded,
    )


def dendrogram(tree: MergeTree, ax: Any = None, *, most_leaves: int = MOST_LEAVES) -> Any:
    """Draw the dendrogram of all merges.

    Merges that were made have the colour of their new cluster, whose number is written on top.
    Merges that were not made are grey.  A dashed line marks the cut if one height separates the
    two kinds; after :meth:`~unsplit.MergeTree.undo` there may be no such height.  Leaves are
    named if there is room.

    Parameters
    ----------
    tree : MergeTree
        The result of a merge.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.
    most_leaves : int
        Maximum number of leaves.  In a larger tree the first merges are drawn as wedges, which
        are grey if they contain more than one new cluster.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> dendrogram(tree).get_title(loc="left")
    '3 clusters merged into 2'
    """
    check_drawing(tree, ax)
    data = dendrogram_data(tree, most_leaves=most_leaves)
    n_leaves = len(data.names)
    if ax is None:
        ax = new_axes(float(np.clip(1.5 + 0.13 * n_leaves, 6.0, 14.0)), 4.5)
    colours = {-1: GREY} | colours_of(data.tops[:, 0].astype(int).tolist())
    _draw_branches(ax, data, colours)
    _draw_wedges(ax, data, colours)
    if len(data.tops) <= MOST_NUMBERS:
        _write_numbers(ax, data)
    if np.isfinite(data.cut):
        ax.axhline(data.cut, color=INK, linewidth=0.8, dashes=(4, 3), zorder=1)
    highest = data.y.max(initial=data.base)
    room = 0.06 * (highest - data.base or 1.0)
    ax.set(xlim=(-0.7, n_leaves - 0.3), ylim=(data.base, highest + room))
    _label(ax, data, tree)
    return ax


def _brackets(
    tree: MergeTree, n_folded: int, first: Index, heights: Floats
) -> tuple[Floats, Floats, Floats]:
    """Compute x of every node, and x and y of every bracket."""
    k = tree.n_initial
    centres = first.astype(np.float64)
    x, y = np.empty((2, k - 1 - n_folded, 4))
    for row, merge in enumerate(tree.merges[n_folded:]):
        sides = [merge.left, merge.right]
        centres[k + n_folded + row] = centres[sides].mean()
        x[row] = centres[sides].repeat(2)
        y[row] = heights[merge.left], merge.height, merge.height, heights[merge.right]
    return centres, x, y


def _tops(clusters: Index, centres: Floats, heights: Floats, k: int) -> Floats:
    """Find the last merge of every new cluster, if it is visible."""
    last = {int(clusters[node]): node for node in range(k, len(clusters)) if clusters[node] >= 0}
    tops = [(c, centres[node], heights[node]) for c, node in last.items() if centres[node] >= 0]
    return np.array(sorted(tops, key=lambda top: top[1])).reshape(-1, 3)


def _cut_height(tree: MergeTree) -> float:
    heights = np.array([merge.height for merge in tree.merges])
    if tree.taken.all() or not tree.taken.any():
        return float("nan")
    last, next_one = heights[tree.taken].max(), heights[~tree.taken].min()
    return float((last + next_one) / 2) if last < next_one else float("nan")


def _draw_branches(ax: Any, data: Dendrogram, colours: dict[int, str]) -> None:
    from matplotlib.collections import LineCollection

    # Grey first, so that coloured branches stay visible where two share a height.
    order = np.argsort(data.branch_clusters, kind="stable")
    lines = LineCollection(
        list(np.stack([data.x, data.y], axis=2)[order]),
        colors=[colours[cluster] for cluster in data.branch_clusters[order].tolist()],
        linewidths=1.4 if len(data.names) <= 100 else 0.9,
        joinstyle="miter",
        zorder=2,
    )
    ax.add_collection(lines)


def _draw_wedges(ax: Any, data: Dendrogram, colours: dict[int, str]) -> None:
    from matplotlib.collections import PolyCollection

    at = np.flatnonzero(data.n_members > 1).tolist()
    base, heights = data.base, data.leaf_heights
    wedges = [[(x - 0.4, base), (x, heights[x]), (x + 0.4, base)] for x in at]
    # Without an edge the tips would be too thin to see.
    faces = [colours[cluster] for cluster in data.leaf_clusters[at].tolist()]
    ax.add_collection(
        PolyCollection(wedges, facecolors=faces, edgecolors=faces, linewidths=0.8, zorder=2)
    )


def _write_numbers(ax: Any, data: Dendrogram) -> None:
    from matplotlib.patheffects import withStroke

    halo = withStroke(linewidth=1.5, foreground=ax.get_facecolor())
    for cluster, x, y in data.tops.tolist():
        ax.annotate(
            f"{cluster:.0f}", (x, y), xytext=(2.5, 2.0), textcoords="offset points",
            color=INK, fontsize=8, fontweight="bold", path_effects=[halo],
        )  # fmt: skip


def _label(ax: Any, data: Dendrogram, tree: MergeTree) -> None:
    clean(ax, "left")
    write_names(ax, data.names, "x")
    ax.set_ylabel(AXIS_LABELS.get(tree.statistic, tree.statistic), color=INK)
    ax.set_title(
        f"{tree.n_initial:,} clusters merged into {tree.n_clusters:,}",
        loc="left", fontsize=11, color=INK,
    )  # fmt: skip
    if data.n_folded:
        ax.set_xlabel(f"wedges stand for the first {data.n_folded:,} merges", color=INK)
