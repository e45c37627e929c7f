"""Heatmap of all distances, with the new clusters as blocks along the diagonal."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index
from unsplit.errors import InputError, shown
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots.layout import leaf_order
from unsplit.plots.style import INK, check_drawing, clean, new_axes, write_names


@dataclass(frozen=True, eq=False)
class Distances:
    """The data of a heatmap of distances.

    Parameters
    ----------
    order : ndarray of shape (k,)
        Initial clusters in the order of the dendrogram.
    names : tuple of k str
        Their names, in this order.
    tvd : ndarray of shape (k, k)
        Their distances, in this order.
    blocks : ndarray of shape (n_clusters, 2)
        First row of each new cluster, and the row after its last.
    lowest : float
        Start of the colour scale: the smallest distance between two clusters, rounded down to a
        tenth, at most 0.9.
    """

    order: Index
    names: tuple[str, ...]
    tvd: NDArray[np.float64]
    blocks: Index
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
    check_drawing(tree, None)
    matrix = _checked(tree, tvd)
    order = leaf_order(tree)
    smallest = np.nanmin(matrix[~np.eye(len(order), dtype=bool)], initial=0.9)
    ends = np.flatnonzero(np.diff(tree.groups[order], append=-1)) + 1
    return Distances(
        order=order,
        names=tuple(tree.name(int(leaf)) for leaf in order),
        tvd=matrix[np.ix_(order, order)],
        blocks=np.stack([np.append(0, ends[:-1]), ends], axis=1),
        lowest=float(np.floor(10 * smallest) / 10),
    )


def distances(tree: MergeTree, tvd: PairwiseTVD | ArrayLike, ax: Any = None) -> Any:
    """Draw a heatmap of all distances in the order of the dendrogram.

    New clusters are outlined, unless they consist of one initial cluster.  Names are written if
    there is room.  The colour scale starts at the smallest distance between two clusters, rounded
    down to a tenth.

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
    check_drawing(tree, ax)
    data = distances_data(tree, tvd)
    k = tree.n_initial
    if ax is None:
        side = float(np.clip(2.5 + 0.11 * k, 5.5, 9.0))
        ax = new_axes(side + 0.8, side)
    image = ax.imshow(data.tvd, cmap="magma", vmin=data.lowest, vmax=1)
    # A pointed colour bar shows that values on the diagonal lie below its range.
    below = "min" if data.lowest > 0 else "neither"
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.7, aspect=30, extend=below)
    bar.set_label("total variation distance (TVD)", color=INK)
    bar.ax.tick_params(colors=INK)
    bar.outline.set_visible(False)
    _outline(ax, data.blocks)
    _label(ax, data, tree)
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
        return tvd.tvd
    try:
        matrix = np.asarray(tvd, np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"tvd must be a PairwiseTVD or a matrix of numbers, got {shown(tvd)}; pass the "
            "distances that the tree was made from."
        ) from None
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


def _outline(ax: Any, blocks: Index) -> None:
    from matplotlib.collections import PolyCollection

    ends = [(a - 0.5, b - 0.5) for a, b in blocks.tolist() if b - a > 1]
    squares = [[(a, a), (b, a), (b, b), (a, b)] for a, b in ends]
    thin = len(blocks) > 100
    outlines = PolyCollection(
        squares, facecolors="none", edgecolors="#0077BB", linewidths=0.8 if thin else 1.6
    )
    ax.add_collection(outlines)


def _label(ax: Any, data: Distances, tree: MergeTree) -> None:
    clean(ax)
    write_names(ax, data.names, "x")
    write_names(ax, data.names, "y")
    merged = f"merged into {tree.n_clusters:,} (blue outlines)"
    title = f"Distances between {tree.n_initial:,} clusters, {merged}"
    ax.set_title(title, loc="left", fontsize=11, color=INK)
