"""Dendrogram of all merges; the merges that were made are coloured."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unsplit._typing import Index
from unsplit.errors import check_whole
from unsplit.merging.tree import MergeTree
from unsplit.plots import style

# Merges are hidden in larger trees, but those between new clusters only in much larger ones.
MOST_LEAVES = 200
MOST_CLUSTERS = 500

# Leaves that take more inches than this are hard to find without numbers at both ends.
TALL = 10.0


@dataclass(frozen=True, eq=False)
class Dendrogram:
    """The coordinates of a dendrogram; leaf i is at x = i.

    Parameters
    ----------
    names : tuple of m str
        Names of the leaves: initial clusters, or ``"NK + 11 more"`` for twelve of them shown as
        one leaf, of which NK is the largest.
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
    groups : ndarray of shape (c, 3)
        New clusters that were merged, with their first and last leaf, from left to right.
    base : float
        Height at which the leaves begin, a little below the lowest merge or zero.
    cut : float
        Height between the merges that were made and the others; NaN if there is no such height.
    n_folded : int
        Number of merges that are hidden inside leaves.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> dendrogram_data(tree).groups
    array([[0, 0, 1]])
    """

    names: tuple[str, ...]
    n_members: Index
    leaf_clusters: Index
    leaf_heights: style.Floats
    x: style.Floats
    y: style.Floats
    branch_clusters: Index
    groups: Index
    base: float
    cut: float
    n_folded: int


def dendrogram_data(tree: MergeTree, *, most_leaves: int | None = None) -> Dendrogram:
    """Compute the coordinates of the dendrogram, without drawing it.

    Parameters
    ----------
    tree : MergeTree
        The result of a merge.
    most_leaves : int, optional
        Maximum number of leaves.  In a larger tree the first merges are hidden, and the clusters
        that they made are the leaves.  By default 200, or the number of new clusters if that is
        larger, but at most 500.

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
    style.check_tree(tree)
    if most_leaves is None:
        most_leaves = max(MOST_LEAVES, min(tree.n_clusters, MOST_CLUSTERS))
    check_whole("most_leaves", most_leaves, 2, f"the default is {MOST_LEAVES}")
    k = tree.n_initial
    n_folded = max(0, k - most_leaves)
    first, clusters = style.places(tree, n_folded), style.new_clusters(tree)
    heights = style.node_heights(tree)
    leaves = np.flatnonzero(first[: k + n_folded] >= 0)
    leaves = leaves[np.argsort(first[leaves])]
    members = np.append(np.ones(k), tree.linkage[:, 3]).astype(np.int64)
    x, y = _brackets(tree, n_folded, first, heights)
    return Dendrogram(
        names=tuple(style.node_name(tree, leaf) for leaf in leaves.tolist()),
        n_members=members[leaves],
        leaf_clusters=clusters[leaves],
        leaf_heights=heights[leaves],
        x=x,
        y=y,
        branch_clusters=clusters[k + n_folded :],
        groups=style.merged_rows(clusters[leaves], members[leaves]),
        base=float(heights[0]),
        cut=_cut_height(tree),
        n_folded=n_folded,
    )


def dendrogram(tree: MergeTree, ax: Any = None, *, most_leaves: int | None = None) -> Any:
    """Draw the dendrogram of all merges, from the initial clusters on the right to the left.

    Merges that were made have the colour of their new cluster, whose number and largest member
    are written beside its initial clusters.  Merges that were not made are grey.  A dashed line
    marks the cut if one height separates the two kinds; after :meth:`~unsplit.MergeTree.undo`
    there may be no such height.  Leaves are named if there is room.

    Parameters
    ----------
    tree : MergeTree
        The result of a merge.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure, with as much room as the names need.
    most_leaves : int, optional
        Maximum number of leaves.  In a larger tree the first merges are drawn as wedges, which
        are grey if they contain more than one new cluster.  By default 200, or the number of new
        clusters if that is larger, but at most 500.

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
    data = dendrogram_data(tree, most_leaves=most_leaves)
    n_leaves = len(data.names)
    height = 1.5 + n_leaves * float(np.clip(5 / n_leaves, 0.1, 0.24))
    ax = style.axes_or_new(ax, 9.0, height)
    colours = {-1: style.GREY} | style.colours_of(data.groups[:, 0].tolist())
    # A cluster that was not merged has no colour of its own.
    colours = dict.fromkeys(data.leaf_clusters.tolist(), style.GREY) | colours
    _draw_branches(ax, data, colours)
    _draw_wedges(ax, data, colours)
    if np.isfinite(data.cut):
        ax.axvline(data.cut, color=style.INK, linewidth=0.8, dashes=(4, 3), zorder=1)
    highest = data.y.max(initial=data.base)
    room = 0.04 * (highest - data.base or 1.0)
    ax.set(xlim=(highest + room, data.base), ylim=(n_leaves - 0.3, -0.7))
    _label(ax, data, tree)
    of_groups = [colours[cluster] for cluster in data.groups[:, 0].tolist()]
    _explain(ax, data, style.write_groups(ax, tree, data.groups, of_groups))
    return ax


def _brackets(
    tree: MergeTree, n_folded: int, first: Index, heights: style.Floats
) -> tuple[style.Floats, style.Floats]:
    """Compute x and y of every bracket."""
    k = tree.n_initial
    centres = first.astype(np.float64)
    x, y = np.empty((2, k - 1 - n_folded, 4))
    for row, merge in enumerate(tree.merges[n_folded:]):
        sides = [merge.left, merge.right]
        centres[k + n_folded + row] = centres[sides].mean()
        x[row] = centres[sides].repeat(2)
        y[row] = heights[merge.left], merge.height, merge.height, heights[merge.right]
    return x, y


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
    lines = list(np.stack([data.y, data.x], axis=2)[order])
    colors = [colours[cluster] for cluster in data.branch_clusters[order].tolist()]
    width = 1.4 if len(data.names) <= 100 else 0.9
    look: dict[str, Any] = {"linewidths": width, "joinstyle": "miter", "zorder": 2}
    ax.add_collection(LineCollection(lines, colors=colors, **look))


def _draw_wedges(ax: Any, data: Dendrogram, colours: dict[int, str]) -> None:
    from matplotlib.collections import PolyCollection

    many = np.flatnonzero(data.n_members > 1).tolist()
    base, heights = data.base, data.leaf_heights
    wedges = [[(base, at - 0.4), (heights[at], at), (base, at + 0.4)] for at in many]
    # Without an edge the tips would be too thin to see.
    faces = [colours[cluster] for cluster in data.leaf_clusters[many].tolist()]
    ax.add_collection(
        PolyCollection(wedges, facecolors=faces, edgecolors=faces, linewidths=0.8, zorder=2)
    )


def _label(ax: Any, data: Dendrogram, tree: MergeTree) -> None:
    style.clean(ax, "bottom")
    ax.yaxis.tick_right()
    style.write_names(ax, data.names, "y")
    if ax.get_window_extent().height / ax.figure.dpi > TALL:
        ax.tick_params(axis="x", top=True, labeltop=True)
    ax.set_xlabel(style.axis_label(tree.statistic), color=style.INK, loc="left")
    ax.set_title(
        f"{tree.n_initial:,} clusters merged into {tree.n_clusters:,}",
        loc="left", fontsize=11, color=style.INK,
    )  # fmt: skip


def _explain(ax: Any, data: Dendrogram, named: str) -> None:
    """Say below the axis what is not shown, or shown in another way."""
    notes = ["grey lines: merges that were not made"] if (data.branch_clusters < 0).any() else []
    if data.n_folded:
        notes.append(f"wedges: the first {data.n_folded:,} merges")
    if (data.leaf_clusters < 0).any():
        notes.append("grey wedges: several new clusters")
    if named:
        notes.append(named)
    ax.xaxis.label.set_text("\n".join([ax.get_xlabel(), "; ".join(notes)]).strip())
