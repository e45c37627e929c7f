"""All distances in the order of the tree, with the new clusters along the diagonal."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index
from unsplit.errors import InputError
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots.layout import leaf_order
from unsplit.plots.style import INK, clean, new_axes, write_names


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances ready to be drawn.

    Parameters
    ----------
    order : ndarray of shape (k,)
        Initial clusters in the order of the tree's leaves.
    names : tuple of k str
    tvd : ndarray of shape (k, k)
        In this order.
    blocks : ndarray of shape (n_clusters, 2)
        First row of each new cluster and the row after its last.
    lowest : float
        Smallest distance between two clusters, rounded down to a tenth below one.
    """

    order: Index
    names: tuple[str, ...]
    tvd: NDArray[np.float64]
    blocks: Index
    lowest: float


def distances_data(tree: MergeTree, tvd: PairwiseTVD | ArrayLike) -> Distances:
    """The distances in the order of the tree, and where its new clusters begin and end.

    Parameters
    ----------
    tree : MergeTree
    tvd : PairwiseTVD or array-like of shape (k, k)
        A matrix has the order of ``tree.cluster_ids`` and values in [0, 1].

    Examples
    --------
    >>> import unsplit
    >>> D = [[0, 0.9, 0.1], [0.9, 0, 0.8], [0.1, 0.8, 0]]
    >>> data = distances_data(unsplit.merge(D, n_clusters=2), D)
    >>> data.order, data.blocks.tolist()
    (array([0, 2, 1]), [[0, 2], [2, 3]])
    """
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
    """Draw all distances in the order of the tree's leaves, new clusters outlined.

    New clusters of a single old one have no outline.  Names stand where they can be read.
    Colours begin at the smallest distance between two clusters, rounded down to a tenth.

    Parameters
    ----------
    tree : MergeTree
    tvd : PairwiseTVD or array-like of shape (k, k)
        A matrix has the order of ``tree.cluster_ids`` and values in [0, 1].
    ax : matplotlib.axes.Axes, optional
        By default one on a new figure.

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
    k = tree.n_initial
    if ax is None:
        side = float(np.clip(2.5 + 0.11 * k, 5.5, 9.0))
        ax = new_axes(side + 0.8, side)
    image = ax.imshow(data.tvd, cmap="magma", vmin=data.lowest, vmax=1)
    # The point of the bar says that the diagonal lies below.
    below = "min" if data.lowest > 0 else "neither"
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.7, aspect=30, extend=below)
    bar.set_label("TVD", color=INK)
    bar.ax.tick_params(colors=INK)
    bar.outline.set_visible(False)
    _outline(ax, data.blocks)
    _label(ax, data, tree)
    return ax


def _checked(tree: MergeTree, tvd: PairwiseTVD | ArrayLike) -> NDArray[np.float64]:
    """The matrix, if it can belong to the tree."""
    k = tree.n_initial
    if isinstance(tvd, PairwiseTVD):
        if not np.array_equal(tvd.cluster_ids, tree.cluster_ids):
            raise InputError(
                f"tvd has other clusters than the tree ({tvd.n_clusters} and {k}, or other names); "
                "pass the result that the tree was made from."
            )
        return tvd.tvd
    matrix = np.asarray(tvd, np.float64)
    if matrix.shape != (k, k):
        raise InputError(f"tvd must have shape ({k}, {k}) as the tree has, got {matrix.shape}.")
    low, high = np.nanmin(matrix, initial=0.0), np.nanmax(matrix, initial=0.0)
    if low < 0 or high > 1:
        raise InputError(
            f"tvd must lie in [0, 1], got {low:g} to {high:g}; divide by the largest value there "
            "can be."
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
    ax.set_title(
        f"{tree.n_initial:,} clusters in the order of the tree, {tree.n_clusters:,} after merging",
        loc="left", fontsize=11, color=INK,
    )  # fmt: skip
