"""Figures of a merge: the dendrogram, the merge curve and the distances."""

import os
from pathlib import Path

from numpy.typing import ArrayLike

from unsplit.data.saving import replacing
from unsplit.errors import check_path
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots.branches import dendrogram
from unsplit.plots.curve import merge_curve
from unsplit.plots.matrix import distances

__all__ = [
    "dendrogram",
    "distances",
    "merge_curve",
    "save_figures",
]


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
    paths = [Path(folder) / f"{name}.png" for name in axes]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path in paths:
        with replacing(path) as new:
            # Without the version of matplotlib, which would make the same figure differ.
            figure = axes[path.stem].figure
            figure.savefig(new, dpi=150, format="png", metadata={"Software": None})
    return paths
