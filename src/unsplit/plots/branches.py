"""Dendrogram of all merges; the merges that were made are coloured."""

from itertools import cycle
from typing import Any

import numpy as np
from scipy.cluster import hierarchy

from unsplit.errors import check_whole
from unsplit.merging.review import members_of_nodes
from unsplit.merging.tree import MergeTree
from unsplit.plots import style

# Merges are hidden in larger trees, but those between new clusters only in much larger ones, of
# which SciPy could not compute the coordinates, because it goes down a chain by recursion.
MOST_LEAVES = 200
MOST_CLUSTERS = 500


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
        Maximum number of leaves, at most 500.  In a larger tree the first merges are drawn as
        wedges, which are grey if they contain more than one new cluster.  By default 200, or the
        number of new clusters if that is larger.

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
    style.check_tree(tree)
    if most_leaves is None:
        most_leaves = max(MOST_LEAVES, tree.n_clusters)
    check_whole("most_leaves", most_leaves, 2, f"the default is {MOST_LEAVES}")
    k, base = tree.n_initial, style.base_height(tree)
    found = hierarchy.dendrogram(
        tree.linkage - [0, 0, base, 0],  # SciPy refuses heights below zero
        min(most_leaves, MOST_CLUSTERS),
        "lastp",
        no_plot=True,
        link_color_func=str,
    )
    leaves, branches = np.array(found["leaves"]), np.array(found["color_list"], int)
    members = members_of_nodes(tree.merges, k)
    n_members = np.array([len(members[leaf]) for leaf in leaves])
    # New cluster of every node; −1 for merges that were not made.
    made = np.append(np.full(k, True), tree.taken)
    clusters = np.where(made, tree.groups[[inside[0] for inside in members]], -1)
    groups = style.merged_rows(clusters[leaves], n_members)
    # Readers cannot tell more than ten colours apart, and clusters of one colour are far apart.
    colours = dict(zip(groups[:, 0].tolist(), cycle(style.COLOURS), strict=False))
    look = np.array([colours.get(cluster, style.GREY) for cluster in clusters.tolist()])

    n_leaves = len(leaves)
    ax = style.axes_or_new(ax, 9.0, 1.5 + n_leaves * float(np.clip(5 / n_leaves, 0.1, 0.24)))
    node_heights = np.append(np.full(k, base), tree.linkage[:, 2])
    # SciPy has leaves at 5, 15, … and at height zero; here they end where their wedge does.
    rows, heights = np.array(found["icoord"]) / 10 - 0.5, np.array(found["dcoord"]) + base
    at_leaf = np.array(found["dcoord"]) == 0
    heights[at_leaf] = node_heights[leaves[rows[at_leaf].astype(np.int64)]]
    # Grey first, so that coloured branches stay visible where two share a height.
    width = 1.4 if n_leaves <= 100 else 0.9
    for i in np.argsort(clusters[branches], kind="stable"):
        drawn = {"color": look[branches[i]], "linewidth": width, "solid_joinstyle": "miter"}
        ax.plot(heights[i], rows[i], **drawn)
    for row, leaf in enumerate(leaves):
        if leaf >= k:  # with an edge, or the tip would be too thin to see
            wedge = [base, node_heights[leaf], base], [row - 0.4, row, row + 0.4]
            ax.fill(*wedge, color=look[leaf], linewidth=0.8, zorder=2)
    room = 0.04 * (node_heights.max() - base)
    ax.set(xlim=(node_heights.max() + room, base), ylim=(n_leaves - 0.3, -0.7))
    _mark_cut(ax, tree)
    _label(ax, tree, k - n_leaves, several=bool((clusters[leaves] < 0).any()))
    names = [style.node_name(tree, members[leaf]) for leaf in leaves]
    style.write_names(ax, tree, names, "y", groups, list(colours.values()))
    return ax


def _mark_cut(ax: Any, tree: MergeTree) -> None:
    """Draw a line between the merges that were made and the others, if a height separates them."""
    made, others = tree.linkage[tree.taken, 2], tree.linkage[~tree.taken, 2]
    if len(made) and len(others) and made.max() < others.min():
        cut = (made.max() + others.min()) / 2
        ax.axvline(cut, color=style.INK, linewidth=0.8, dashes=(4, 3), zorder=1)


def _label(ax: Any, tree: MergeTree, n_folded: int, several: bool) -> None:
    """Write the title, and below the axis what is not shown, or shown in another way."""
    style.clean(ax, "bottom")
    ax.yaxis.tick_right()
    title = f"{tree.n_initial:,} clusters merged into {tree.n_clusters:,}"
    ax.set_title(title, loc="left", fontsize=11, color=style.INK)
    notes = {
        "grey lines: merges that were not made": not tree.taken[n_folded:].all(),
        f"wedges: the first {n_folded:,} merges": n_folded > 0,
        "grey wedges: several new clusters": several,
    }
    shown = "; ".join(note for note, applies in notes.items() if applies)
    label = f"{style.axis_label(tree.statistic)}\n{shown}".strip()
    ax.set_xlabel(label, color=style.INK, loc="left")
