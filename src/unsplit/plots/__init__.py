"""Figures of a merge; for each, one function computes the data and another one draws them."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from unsplit.data.saving import reason_of, replacing
from unsplit.errors import InputError, check_path, shown
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots.branches import Dendrogram, dendrogram, dendrogram_data
from unsplit.plots.curve import MergeCurve, merge_curve, merge_curve_data
from unsplit.plots.matrix import Distances, distances, distances_data

__all__ = [
    "Dendrogram",
    "Distances",
    "MergeCurve",
    "dendrogram",
    "dendrogram_data",
    "distances",
    "distances_data",
    "merge_curve",
    "merge_curve_data",
    "save_figures",
]

# Metadata that would make the same figure differ between days or versions of matplotlib.
_NO_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}


def save_figures(
    folder: str | os.PathLike[str],
    tree: MergeTree,
    tvd: PairwiseTVD | ArrayLike | None = None,
    formats: Sequence[str] = ("png",),
) -> list[Path]:
    """Save the dendrogram, the merge curve and, if the distances are given, their heatmap.

    The same input gives the same bytes with the same version of matplotlib and the same fonts.

    Parameters
    ----------
    folder : path
        Created if it does not exist; files of the same names are replaced, others stay.
    tree : MergeTree
        The result of a merge.
    tvd : PairwiseTVD or array-like of shape (k, k), optional
        The distances that the tree was made from.
    formats : sequence of {"png", "pdf", "svg"}
        File formats; each figure is saved in all of them.

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
    if not isinstance(formats, (list, tuple)) or not set(formats) <= set(_NO_METADATA):
        raise InputError(
            f"formats must be a list of some of {', '.join(_NO_METADATA)}, got {shown(formats)}."
        )
    axes = {"dendrogram": dendrogram(tree), "merge_curve": merge_curve(tree)}
    if tvd is not None:
        axes["distances"] = distances(tree, tvd)
    names = [f"{figure}.{suffix}" for figure in axes for suffix in formats]
    paths = [Path(folder) / name for name in names]
    from matplotlib import rc_context

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {reason_of(error)}; choose another folder."
        ) from None
    # Without a salt the identifiers in an SVG file are random.
    with rc_context({"svg.hashsalt": "unsplit"}):
        for path in paths:
            suffix = path.suffix[1:]
            with replacing(path) as new:
                figure = axes[path.stem].figure
                figure.savefig(new, dpi=150, format=suffix, metadata=_NO_METADATA[suffix])
    return paths
