"""Figures of a merge: the dendrogram, the merge curve and the distances."""

import os
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster import hierarchy

from unsplit.data.saving import replacing
from unsplit.errors import InputError, check_path, check_whole, numeric_array
from unsplit.merging.tree import MergeTree, members_of_nodes
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots import style

# Merges are hidden in larger trees, but those between new clusters only in much larger ones, of
# which SciPy could not compute the coordinates, because it goes down a chain by recursion.
MOST_LEAVES = 200
MOST_CLUSTERS = 500

# Up to this many merges, a line helps to follow them one by one.
FEW_MERGES = 60

# Of merged clusters among the distances.
OUTLINE = "#0077BB"


def save_figures(
    folder: str | os.PathLike[str],
    tree: MergeTree,
    tvd: PairwiseTVD | ArrayLike | None = None,
) -> list[Path]:
    """Save the dendrogram, the merge curve and, if the distances are given, their heatmap.

    The files are .png; for other formats call ``figure.savefig`` of the axes that each function
    returns.  The same input gives the same bytes with the same version of matplotlib and the same
    fonts.

    Parameters
    ----------
    folder : path
        Created if it does not exist; files of the same names are replaced, others stay.
    tree : MergeTree
        The result of a merge.
    tvd : PairwiseTVD or array-like of shape (k, k), optional
        The distances that the tree was made from.

    Returns
    -------
    list of Path
        The files that were written.

    Examples
    --------
    >>> import tempfile
    >>> import unsplit
    >>> D = [[0, 0.9, 0.1], [0.9, 0, 0.8], [0.1, 0.8, 0]]
    >>> tree = unsplit.merge(D, n_clusters=2)
    >>> [path.name for path in save_figures(tempfile.mkdtemp(), tree, D)]
    ['dendrogram.png', 'merge_curve.png', 'distances.png']
    """
    check_path("folder", folder)
    axes = {"dendrogram": dendrogram(tree), "merge_curve": merge_curve(tree)}
    if tvd is not None:
        axes["distances"] = distances(tree, tvd)
    figures = {Path(folder) / f"{name}.png": drawn.figure for name, drawn in axes.items()}
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path, figure in figures.items():
        with replacing(path) as new:
            # Without the version of matplotlib, which would make the same figure differ.
            figure.savefig(new, dpi=150, format="png", metadata={"Software": None})
    return list(figures)


# --- all merges; those that were made are coloured ------------------------------------------------


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


# --- the distance between the two clusters of every merge -----------------------------------------


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
    _mark_end(ax, n - n_before + 0.5, tree.n_clusters, len(left_out))
    _name_merges(ax, n_before, tree)
    _set_x_axis(ax, n, n - n_before + 0.5)
    return ax


def _mark_end(ax: Any, cut: float, n_clusters: int, n_left_out: int) -> None:
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
    title = ax.set_title("\n".join(lines), loc="left", pad=20, parse_math=False)
    title.set(fontsize=style.LARGEST_TEXT, color=style.INK)


def _set_x_axis(ax: Any, n: int, cut: float) -> None:
    if n > FEW_MERGES and cut < n / 20:
        ax.set_xscale("log", subs=[])
        ax.set_xlim(1.05 * n, min(0.9, 0.9 * cut))
    else:
        ax.set_xlim(n + 0.7, 0.3)
        ax.locator_params(axis="x", integer=True, min_n_ticks=1)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("clusters left (merging goes from left to right)", color=style.INK)


# --- all distances, with the new clusters as blocks along the diagonal ----------------------------


def distances(tree: MergeTree, tvd: PairwiseTVD | ArrayLike, ax: Any = None) -> Any:
    """Draw a heatmap of all distances in the order of the dendrogram.

    New clusters are outlined and named, unless they consist of one initial cluster.  Names of
    initial clusters are written if there is room.  The colour scale starts at the smallest distance
    between two clusters, rounded down to a tenth.

    Parameters
    ----------
    tree : MergeTree
        The result of a merge.
    tvd : PairwiseTVD or array-like of shape (k, k)
        The distances.  A matrix must have the order of ``tree.cluster_ids`` and values in [0, 1].
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import unsplit
    >>> D = [[0, 0.9, 0.1], [0.9, 0, 0.8], [0.1, 0.8, 0]]
    >>> ax = distances(unsplit.merge(D, n_clusters=2), D)
    >>> [name.get_text() for name in ax.get_xticklabels()]
    ['0', '2', '1']
    """
    style.check_tree(tree)
    matrix = matrix_of(tree, tvd)
    order = members_of_nodes(tree.merges, tree.n_initial)[-1]  # as in the dendrogram
    names = [tree.name(cluster) for cluster in order]
    groups = style.merged_rows(tree.groups[order], np.ones_like(order))
    between = matrix[~np.eye(len(matrix), dtype=bool)]
    lowest = float(np.floor(10 * np.nanmin(between, initial=0.9)) / 10)
    side = float(np.clip(2.5 + 0.11 * tree.n_initial, 5.5, 9.0))
    # Names stand to the left and below, new clusters and the colour bar to the right.
    room = 0.07 * max(len(style.short_name(name)) for name in names)
    ax = style.axes_or_new(ax, side + room + 3.2, side + room)
    image = ax.imshow(matrix[np.ix_(order, order)], cmap="magma", vmin=lowest, vmax=1)
    for first, last in groups[:, 1:].tolist():
        a, b = first - 0.5, last + 0.5
        thick = 1.6 if len(groups) <= 100 else 0.8
        ax.plot([a, b, b, a, a], [a, a, b, b, a], color=OUTLINE, linewidth=thick)
    style.clean(ax)
    ax.set_xlabel("initial clusters, in the order of the dendrogram", color=style.INK, loc="left")
    ax.set_ylabel("initial clusters, in the same order", color=style.INK)
    merged = f"merged into {tree.n_clusters:,} (blue outlines)"
    title = f"Distances between {tree.n_initial:,} clusters, {merged}"
    ax.set_title(title, loc="left", fontsize=11, color=style.INK)
    # A pointed colour bar shows that values on the diagonal lie below its range.
    below = "min" if lowest > 0 else "neither"
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.7, aspect=30, extend=below)
    bar.set_label(style.axis_label("tv").replace(": ", "\n"), color=style.INK)
    bar.ax.tick_params(colors=style.INK)
    bar.outline.set_visible(False)
    style.write_names(ax, tree, names, "xy", groups, [OUTLINE] * len(groups))
    return ax


def matrix_of(tree: MergeTree, tvd: PairwiseTVD | ArrayLike) -> NDArray[np.float64]:
    """The distances as a matrix; raises an error if they do not fit the tree."""
    k = tree.n_initial
    if isinstance(tvd, PairwiseTVD):
        if not np.array_equal(tvd.cluster_ids, tree.cluster_ids):
            raise InputError(
                f"tvd must have the {k} clusters of the tree, got {tvd.n_clusters} clusters or "
                "other names; pass the result that the tree was made from."
            )
        return tvd.tvd.toarray() if tvd.is_sparse else tvd.tvd
    matrix = numeric_array("tvd", tvd, 2)
    if matrix.shape != (k, k):
        raise InputError(
            f"tvd must have shape ({k}, {k}), one row per cluster of the tree, got {matrix.shape}; "
            "pass the distances that the tree was made from."
        )
    low, high = np.nanmin(matrix, initial=0.0), np.nanmax(matrix, initial=0.0)
    if low < 0 or high > 1:
        raise InputError(
            f"tvd must lie in [0, 1], got {low:g} to {high:g}; divide the distances by the largest "
            "possible one."
        )
    return matrix
