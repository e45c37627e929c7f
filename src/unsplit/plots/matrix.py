"""Heatmap of all distances, with the new clusters as blocks along the diagonal."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index
from unsplit.errors import InputError, numeric_array
from unsplit.merging.limits import FEW
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots import style

OUTLINE = "#0077BB"
# Bars beside the rows take turns, so that neighbours can be told apart.
BARS = (OUTLINE, "#88CCEE")

# Inches; a larger figure is hard to handle.
LARGEST_SIDE = 14.0


@dataclass(frozen=True, eq=False)
class Distances:
    """The data of a heatmap of distances.

    Parameters
    ----------
    order : ndarray of shape (k,)
        Initial clusters in the order of the dendrogram; tiny ones come last, in the same order.
    names : tuple of k str
        Their names, in this order.
    tvd : ndarray of shape (k, k)
        Their distances, in this order.
    blocks : ndarray of shape (b, 2)
        First row of each new cluster, and the row after its last.  A new cluster with tiny members
        has a second block for them.
    block_clusters : ndarray of shape (b,)
        New cluster of each block.
    n_tiny : int
        Number of clusters of fewer than ten observations; 0 if most clusters are that small.
    lowest : float
        Start of the colour scale: the smallest distance between two clusters, rounded down to a
        tenth, at most 0.9.

    Examples
    --------
    >>> import unsplit
    >>> D = [[0, 0.9, 0.1], [0.9, 0, 0.8], [0.1, 0.8, 0]]
    >>> distances_data(unsplit.merge(D, n_clusters=2), D).names
    ('0', '2', '1')
    """

    order: Index
    names: tuple[str, ...]
    tvd: NDArray[np.float64]
    blocks: Index
    block_clusters: Index
    n_tiny: int
    lowest: float


def distances_data(tree: MergeTree, tvd: PairwiseTVD | ArrayLike) -> Distances:
    """Sort the distances as in the dendrogram and find the block of each new cluster.

    Parameters
    ----------
    tree : MergeTree
        The result of a merge.
    tvd : PairwiseTVD or array-like of shape (k, k)
        The distances.  A matrix must have the order of ``tree.cluster_ids`` and values in [0, 1].

    Returns
    -------
    Distances

    Examples
    --------
    >>> import unsplit
    >>> D = [[0, 0.9, 0.1], [0.9, 0, 0.8], [0.1, 0.8, 0]]
    >>> data = distances_data(unsplit.merge(D, n_clusters=2), D)
    >>> data.order, data.blocks.tolist()
    (array([0, 2, 1]), [[0, 2], [2, 3]])
    """
    style.check_tree(tree)
    matrix = _checked(tree, tvd)
    tiny = style.tiny_clusters(tree)
    order = style.leaf_order(tree)
    order = np.concatenate([order[~tiny[order]], order[tiny[order]]])
    large = ~tiny[:, None] & ~tiny & ~np.eye(len(order), dtype=bool)
    smallest = np.nanmin(matrix[large], initial=0.9)
    starts = np.diff(tree.groups[order], prepend=-1) != 0
    starts |= np.diff(tiny[order], prepend=False)
    blocks = np.flatnonzero(starts)
    return Distances(
        order=order,
        names=tuple(tree.name(int(leaf)) for leaf in order),
        tvd=matrix[np.ix_(order, order)],
        blocks=np.stack([blocks, np.append(blocks[1:], len(order))], axis=1),
        block_clusters=tree.groups[order[blocks]],
        n_tiny=int(tiny.sum()),
        lowest=float(np.floor(10 * smallest) / 10),
    )


def distances(tree: MergeTree, tvd: PairwiseTVD | ArrayLike, ax: Any = None) -> Any:
    """Draw a heatmap of all distances in the order of the dendrogram.

    New clusters are outlined and named, unless they consist of one initial cluster.  Names of
    initial clusters are written if there is room.  Clusters of fewer than ten observations come
    last, behind a line: too little is known about them, and they would cut the others apart.  The
    colour scale starts at the smallest distance between two clusters, rounded down to a tenth.

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
    data = distances_data(tree, tvd)
    groups = _groups(tree, data)
    side = float(np.clip(2.5 + 0.11 * tree.n_initial, 5.5, 9.0))
    side = float(np.clip(1.0 + 0.11 * len(groups), side, LARGEST_SIDE))
    # Names stand to the left and below, new clusters and the colour bar to the right.
    names = 0.07 * max(len(style.short_name(name)) for name in data.names)
    ax = style.axes_or_new(ax, side + names + 3.2, side + names)
    image = ax.imshow(data.tvd, cmap="magma", vmin=data.lowest, vmax=1)
    _outline(ax, data)
    _label(ax, data, tree)
    # A pointed colour bar shows that values on the diagonal lie below its range.
    below = "min" if data.lowest > 0 else "neither"
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.7, aspect=30, extend=below)
    bar.set_label(style.axis_label("tv").replace(": ", "\n"), color=style.INK)
    bar.ax.tick_params(colors=style.INK)
    bar.outline.set_visible(False)
    n_named = style.write_groups(ax, groups)
    if n_named < len(groups):
        note = f"named: the {n_named:,} largest of {len(groups):,} merged clusters"
        ax.xaxis.label.set_text(f"{ax.get_xlabel()}\n{note}")
    return ax


def _checked(tree: MergeTree, tvd: PairwiseTVD | ArrayLike) -> NDArray[np.float64]:
    """Return the distances as a matrix; raise an error if they do not fit the tree."""
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


def _groups(tree: MergeTree, data: Distances) -> list[style.Group]:
    """Describe the merged clusters, and the tiny ones as a group of their own."""
    n_members, sizes = np.bincount(tree.groups), style.group_sizes(tree)
    k = tree.n_initial
    blocks: dict[int, tuple[int, int]] = {}
    for cluster, (start, end) in zip(data.block_clusters.tolist(), data.blocks, strict=True):
        if n_members[cluster] > 1:
            blocks.setdefault(cluster, (int(start), int(end) - 1))
    first_tiny = k - data.n_tiny
    groups = [
        style.Group(style.group_name(tree, cluster), *rows, int(sizes[cluster]), BARS[i % 2])
        for i, (cluster, rows) in enumerate(blocks.items())
        if rows[0] < first_tiny
    ]
    if data.n_tiny:
        name = f"{data.n_tiny:,} tiny (fewer than {FEW} observations)"
        # Their rows are those of the tiny ones, so they have no bar of their own.
        inside = [str(cluster) for cluster, rows in blocks.items() if rows[0] >= first_tiny]
        name += f", all of {', '.join(inside)}" if inside else ""
        # With the largest size, so that this name is never left out.
        groups.append(style.Group(name, first_tiny, k - 1, int(tree.sizes.sum()), style.GREY))
    return groups


def _outline(ax: Any, data: Distances) -> None:
    from matplotlib.collections import PolyCollection

    ends = [(a - 0.5, b - 0.5) for a, b in data.blocks.tolist() if b - a > 1]
    squares = [[(a, a), (b, a), (b, b), (a, b)] for a, b in ends]
    thin = len(data.blocks) > 100
    look: dict[str, Any] = {"facecolors": "none", "edgecolors": OUTLINE}
    ax.add_collection(PolyCollection(squares, linewidths=0.8 if thin else 1.6, **look))
    if data.n_tiny:
        border = len(data.order) - data.n_tiny - 0.5
        # Paler, because these distances are rough guesses.
        for line, pale in ((ax.axhline, ax.axhspan), (ax.axvline, ax.axvspan)):
            line(border, color=style.GREY, linewidth=1.5)
            pale(border, len(data.order) - 0.5, facecolor="white", alpha=0.45, linewidth=0)


def _label(ax: Any, data: Distances, tree: MergeTree) -> None:
    style.clean(ax)
    style.write_names(ax, data.names, "x")
    style.write_names(ax, data.names, "y")
    ax.set_xlabel("initial clusters, in the order of the dendrogram", color=style.INK, loc="left")
    ax.set_ylabel("initial clusters, in the same order", color=style.INK)
    merged = f"merged into {tree.n_clusters:,} (blue outlines)"
    title = f"Distances between {tree.n_initial:,} clusters, {merged}"
    ax.set_title(title, loc="left", fontsize=11, color=style.INK)
