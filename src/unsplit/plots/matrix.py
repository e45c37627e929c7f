"""Heatmap of all distances, with the new clusters as blocks along the diagonal."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit.errors import InputError, numeric_array
from unsplit.merging.review import members_of_nodes
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots import style

OUTLINE = "#0077BB"
# Bars beside the rows take turns, so that neighbours can be told apart.
BARS = (OUTLINE, "#88CCEE")


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
    colours = [BARS[i % 2] for i in range(len(groups))]
    style.write_names(ax, tree, names, "xy", groups, colours)
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
