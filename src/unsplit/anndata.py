"""Merge the clusters of cells in an AnnData, in the manner of scanpy.

>>> import unsplit
>>> unsplit.anndata.merge(adata, groupby="leiden")  # doctest: +SKIP
>>> sc.pl.umap(adata, color=["leiden", "unsplit"])  # doctest: +SKIP
"""

import builtins
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.cluster.hierarchy import dendrogram
from sklearn.metrics.cluster import contingency_matrix

from unsplit.data.array_files import ContentCheck
from unsplit.data.cells import (
    USUAL,
    Groups,
    groups_in,
    matrix_of,
    natural,
    require_key,
)
from unsplit.errors import InputError, check_flag, is_whole
from unsplit.estimator import ClusterMerger, refined_labels_of
from unsplit.merging.saved_merges import FORMAT as TREE_FORMAT
from unsplit.merging.saved_merges import content_of_tree, fields_of_tree
from unsplit.merging.tree import MergeTree
from unsplit.report.api import Content, Report, clusters_of, make_page
from unsplit.report.collect import Source, collect
from unsplit.report.summary import of_merge, of_review

__all__ = ["merge", "report", "tree"]

# A merged group is called after its members; of more than four, only three are named.
MOST_NAMED = 4

# Pictures that scanpy writes, and that people already know their cells by.
PICTURES = ("X_umap", "X_tsne")

# Clusters in a dendrogram; nobody can read more, and SciPy's function calls itself for each branch.
MOST_DRAWN = 500


def merge(
    adata: Any,
    groupby: str = "leiden",
    use_rep: str | None = USUAL,
    batch_key: str | None = None,
    key_added: str = "unsplit",
    copy: bool = False,
    *,
    random_state: Any = 0,
    groups_key: str | None = None,
    verbose: bool = True,
    **options: Any,
) -> Any:
    """Merge the clusters of cells that a classifier cannot tell apart.

    Parameters
    ----------
    adata : AnnData
        In memory, backed by a file, or a view.
    groupby : str
        The column of ``adata.obs`` with the over-clustering.  Cells without a value, or with "-1",
        are noise.
    use_rep : str, optional
        By what the cells are compared: a key of ``adata.obsm``, "X", or for raw counts "raw" or
        "layers/" and the name of a layer.  None means "X_pca" if there is one, otherwise "X".
    batch_key : str, optional
        A column of ``adata.obs``, such as the donor: clusters are compared within each batch.
    key_added : str
        Where the results go; see below.
    copy : bool
        Return a changed copy, and leave ``adata`` as it is.
    random_state : int, Generator, RandomState or None
        The same seed gives the same result.
    groups_key : str, optional
        A column of ``adata.obs``, such as the donor, whose cells resemble each other: whole groups
        are held out, and errors and tests count groups.  Not together with ``batch_key``.
    verbose : bool
        Say what was merged, why merging stopped, and which pairs to check.  As scanpy's messages
        this goes below the cell of a notebook, and elsewhere to standard error.
    **options
        Options of :class:`unsplit.ClusterMerger`, such as ``n_clusters``, ``constraints`` or
        ``device``.

    Returns
    -------
    AnnData or None
        The copy if ``copy``, otherwise None.  These fields are set:

        ``.obs[key_added]``
            The merged cluster of every cell, a Categorical.  A cluster that was merged with
            nothing keeps its name; others are called after their members, such as "0 + 3".
        ``.obs[f"{key_added}_refined"]``
            The same after cells have moved to the cluster that most of their neighbours are in
            (:func:`unsplit.refine`); not if there are more than 500,000 cells.
        ``.uns[key_added]``
            ``mapping`` (old and new clusters), ``review`` (the pairs to check, unclear ones
            first), ``tvd`` (the distances between the old clusters), ``tree`` (read it with
            :func:`tree`), ``n_clusters``, ``stopped`` and ``params``.
        ``.uns[f"{key_added}_colors"]``
            Each merged cluster has the colour of its largest member; not if the old clusters have
            no colours.
        ``.uns[f"dendrogram_{key_added}"]``, ``.uns[f"{key_added}_dendrogram"]``
            The tree of the merged and of the old clusters, in the form of
            ``scanpy.tl.dendrogram``.  Scanpy finds the first by itself; pass the name of the
            second as ``dendrogram_key`` or ``dendrogram``.  Of up to 500 clusters.

    Examples
    --------
    >>> import anndata, unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
    >>> adata = anndata.AnnData(obsm={"X_pca": X}, obs={"leiden": labels.astype(str)})
    >>> unsplit.anndata.merge(adata, groupby="leiden")
    >>> adata.obs["unsplit"].value_counts().to_dict()
    {'0 + 1': 200, '2': 100}
    """
    if not hasattr(adata, "obsm") or not hasattr(adata, "obs"):
        raise InputError(
            f"adata must be an AnnData, got {type(adata).__name__}; use "
            "unsplit.ClusterMerger for arrays."
        )
    if key_added == groupby:
        raise InputError(
            f"key_added must differ from groupby, got {groupby!r} for both; otherwise the clusters "
            "that are merged would be lost."
        )
    check_flag("verbose", verbose)
    groups = groups_in(_column(adata, groupby))
    batch, of_cells = (
        None if key is None else np.asarray(_column(adata, key)) for key in (batch_key, groups_key)
    )
    X, used = matrix_of(adata, use_rep, "adata")
    merger = ClusterMerger(random_state=random_state, **options)
    merger.fit(X, initial_labels=groups.labels, batch=batch, groups=of_cells)
    params = {"groupby": groupby, "representation": used, "batch_key": batch_key}
    params |= {"groups_key": groups_key, "random_state": random_state} | options
    obs, uns = annotations(merger, groups, key_added, groupby, params, adata.uns)
    if copy:
        adata = adata.to_memory() if adata.isbacked else adata.copy()
    # What only an earlier merge had.
    refined_column, ends = f"{key_added}_refined", ("_colors", "_refined_colors", "_dendrogram")
    if refined_column in adata.obs and refined_column not in obs:
        del adata.obs[refined_column]
    for name in (f"dendrogram_{key_added}", *(key_added + end for end in ends)):
        adata.uns.pop(name, None)
    for name, column in obs.items():
        adata.obs[name] = column
    adata.uns.update(uns)
    if verbose:
        lines = of_merge(merger.tree_, merger.pairwise_.n_noise, is_whole(merger.n_clusters))
        lines += ["", *of_review(merger.tree_, f'adata.uns["{key_added}"]["review"]')]
        print(*lines, sep="\n", file=_where_scanpy_prints())
    return adata if copy else None


def _where_scanpy_prints() -> Any:
    return sys.stdout if hasattr(builtins, "__IPYTHON__") else sys.stderr


def tree(adata: Any, key: str = "unsplit") -> MergeTree:
    """Return the tree that :func:`merge` stored, to cut it elsewhere or to undo a merge.

    Parameters
    ----------
    adata : AnnData
    key : str
        The ``key_added`` of :func:`merge`.

    Returns
    -------
    MergeTree

    Examples
    --------
    >>> import anndata, unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
    >>> adata = anndata.AnnData(obsm={"X_pca": X}, obs={"leiden": labels.astype(str)})
    >>> unsplit.anndata.merge(adata)
    >>> unsplit.anndata.tree(adata).cut(n_clusters=3).mapping
    {'0': 0, '1': 1, '2': 2}
    """
    stored = adata.uns.get(key)
    if not isinstance(stored, Mapping) or "tree" not in stored:
        raise InputError(
            f"adata.uns has no merge under {key!r}; call unsplit.anndata.merge(adata, "
            f"key_added={key!r}) first."
        )
    check = ContentCheck(f"adata.uns[{key!r}]", TREE_FORMAT, "call unsplit.anndata.merge again")
    return MergeTree(**fields_of_tree(stored["tree"], check))


def report(adata: Any, key: str = "unsplit") -> Report:
    """Make the page of a merge: the answer, the tree, the cells, and pairs to review.

    Cells are drawn where ``X_umap`` or ``X_tsne`` has them, and those genes of ``adata.X`` that
    differ most stand beside the clusters.

    Parameters
    ----------
    adata : AnnData
        After :func:`merge`.
    key : str
        The ``key_added`` of :func:`merge`.

    Returns
    -------
    unsplit.report.Report
        A notebook shows it; ``save(path)`` writes it to one HTML file.

    Examples
    --------
    >>> import anndata, unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
    >>> adata = anndata.AnnData(obsm={"X_pca": X}, obs={"leiden": labels.astype(str)})
    >>> unsplit.anndata.merge(adata)
    >>> unsplit.anndata.report(adata)
    Report: ... MB of HTML; write it with save(path)
    """
    stored, entry = tree(adata, key), adata.uns[key]
    column, used = (entry["params"][name] for name in ("groupby", "representation"))
    X, _ = matrix_of(adata, used, "adata")
    clusters = clusters_of(stored, X, groups_in(_column(adata, column)).labels)
    source = shown_cells(Source(X, clusters, stored.n_initial), adata, "adata")
    old = list(map(str, entry["mapping"]["old"]))
    order = [old.index(str(name)) for name in stored.cluster_ids.tolist()]
    tvd = np.asarray(entry["tvd"])[np.ix_(order, order)] if "tvd" in entry else None
    names = np.asarray(adata.obs_names, str)
    again = f'unsplit.anndata.merge(adata, {column!r}, constraints="unsplit-review.json")'
    return make_page(Content(stored, tvd, collect(source), clusters, names, {"again": again}))


def shown_cells(source: Source, cells: Any, called: str) -> Source:
    """Add what the page of cells can show: the user's own picture, and genes instead of components.

    ``cells`` is an AnnData or an .h5ad file that was opened, and ``called`` its name.
    """
    for name in PICTURES if source.picture is None else ():
        xy = np.asarray(cells.obsm[name]) if name in cells.obsm else np.zeros(0)
        if xy.shape == (len(source.clusters), 2) and np.isfinite(xy).all():
            source = replace(source, picture=xy, picture_method=f"{name} of {called}")
            break
    with suppress(MemoryError, InputError):  # of X, which only the page would show
        X, _ = matrix_of(cells, "X", called)
        values = X.data if scipy.sparse.issparse(X) else X
        if values.dtype.kind in "biuf" and np.isfinite(values).all():
            source = replace(source, shown=X, feature_names=cells.var_names)
    return source


def annotations(
    merger: ClusterMerger,
    groups: Groups,
    key_added: str,
    groupby: str,
    params: Mapping[str, Any],
    uns: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What :func:`merge` adds to ``obs`` and ``uns``, in types that an .h5ad file can hold.

    ``groups`` are the over-clustering, and ``groupby`` its column; ``params`` says how the merge
    was made, and ``uns`` has the colours of the old clusters.
    """
    import pandas as pd

    tree, tvd, refined = merger.tree_, merger.tvd_, refined_labels_of(merger)
    place = {str(name): i for i, name in enumerate(tree.cluster_ids.tolist())}
    order = np.array([place[name] for name in groups.names])
    new = pd.factorize(tree.groups[order])[0]
    members = [np.flatnonzero(new == g) for g in range(new.max() + 1)]
    names = _merged_names(groups.names, members)
    sizes = np.bincount(groups.codes[groups.codes >= 0], minlength=len(order))
    codes = np.where(groups.codes < 0, -1, new[groups.codes])
    merged = [names[g] for g in new]
    review = tree.review_table()
    name_of = dict(zip(tree.groups[order].tolist(), merged, strict=True))
    for side in ("new_left", "new_right"):  # not the tree's numbers, which are nowhere else
        review[side] = [name_of[number] for number in review[side]]
    entry: dict[str, Any] = {
        "params": _plain_params(params),
        "n_clusters": len(names),
        "stopped": tree.stopped,
        "mapping": _frame({"old": groups.names, "new": merged, "n_cells": sizes}),
        "review": _frame(review),
        "tree": _stored(tree),
    }
    # A sparse estimate of very many clusters has no matrix of all pairs.
    if isinstance(tvd, np.ndarray):
        entry["tvd"] = tvd[np.ix_(order, order)]
    colours = _colours(uns.get(f"{groupby}_colors"), groups, members, sizes)
    found: dict[str, Any] = {key_added: entry}
    if colours is not None:
        found[f"{key_added}_colors"] = np.array(colours, object)
    obs = {key_added: pd.Categorical.from_codes(codes, pd.Index(names, dtype=object))}
    if refined is not None:
        moved, origins = _named_after_origin(refined, codes)
        name = f"{key_added}_refined"
        called = pd.Index(_merged_names(names, [[g] for g in origins]), dtype=object)
        obs[name] = pd.Categorical.from_codes(moved, called)
        if colours is not None:
            found[f"{name}_colors"] = np.array([colours[g] for g in origins], object)
    whole = _relabelled(tree.linkage, np.argsort(order))
    if len(order) <= MOST_DRAWN:
        found[f"{key_added}_dendrogram"] = _dendrogram(whole, groups.names, groupby)
        if "tvd" in entry:  # what scanpy.pl.correlation_matrix shows
            found[f"{key_added}_dendrogram"]["correlation_matrix"] = 1 - entry["tvd"]
    if 1 < len(names) <= MOST_DRAWN:
        upper = _above_the_cut(whole, tree.taken, new)
        found[f"dendrogram_{key_added}"] = _dendrogram(upper, names, key_added)
    return obs, found


def _column(adata: Any, name: str) -> Any:
    require_key("column", name, adata.obs.columns, "adata.obs", "columns")
    return adata.obs[name]


def _named_after_origin(
    refined: NDArray[np.int64], codes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[int]]:
    """Number refined clusters in the order of the merged clusters that they come from.

    A refined cluster comes from the merged cluster of most of its cells.  Returns the new number of
    every cell's refined cluster, and the merged cluster that each number comes from.
    """
    inside = refined >= 0
    shared = contingency_matrix(refined[inside], codes[inside])
    origins = np.unique(codes[inside])[shared.argmax(axis=1)]
    order = np.argsort(origins, kind="stable")
    moved = np.full(len(refined), -1, np.int64)
    moved[inside] = np.argsort(order)[np.unique(refined[inside], return_inverse=True)[1]]
    return moved, origins[order].tolist()


def _merged_names(names: Sequence[str], members: Sequence[Iterable[int]]) -> list[str]:
    """Names of merged clusters after their members in natural order, all different."""
    found: list[str] = []
    for group in members:
        own = sorted((names[i] for i in group), key=natural)
        if len(own) > MOST_NAMED:
            own = [*own[: MOST_NAMED - 1], f"{len(own) - MOST_NAMED + 1} more"]
        name = " + ".join(own)
        while name in found:  # a cluster may be called "a + b" itself
            name += "'"
        found.append(name)
    return found


def _colours(
    old: Any, groups: Groups, members: Sequence[NDArray[np.int64]], sizes: NDArray[np.int64]
) -> list[str] | None:
    """The colour of the largest member of each group; scanpy has one for each category."""
    if old is None or len(old) != len(groups.categories):
        return None
    of_category = dict(zip(groups.categories, map(str, old), strict=True))
    return [of_category[groups.names[group[sizes[group].argmax()]]] for group in members]


def _plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers and text as they are, everything else as text; what is None is left out."""
    plain = (bool, int, float, str)
    return {
        name: value if isinstance(value, plain) else repr(value)
        for name, value in params.items()
        if value is not None
    }


def _frame(columns: Mapping[str, Any]) -> Any:
    """A data frame that any version of anndata can write: text as objects, gaps as Int64."""
    import pandas as pd

    frame = pd.DataFrame(columns)
    frame.index = frame.index.astype(str).astype(object)
    frame.columns = frame.columns.astype(object)
    for name in frame:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            frame[name] = frame[name].astype(object)
    return frame.astype({"step": "Int64"}) if "step" in frame else frame


def _stored(tree: MergeTree) -> dict[str, Any]:
    """The tree as in a file, with texts as objects, which any version of anndata can write."""
    content = content_of_tree(tree) | {"cluster_ids": tree.cluster_ids.astype(str)}
    return {
        name: value.astype(object) if getattr(value, "dtype", np.dtype(int)).kind == "U" else value
        for name, value in content.items()
    }


def _relabelled(linkage: NDArray[np.float64], place: NDArray[np.int64]) -> NDArray[np.float64]:
    """The same linkage with leaf i called ``place[i]``."""
    table = linkage.copy()
    leaves = table[:, :2] < len(place)
    table[:, :2][leaves] = place[table[:, :2][leaves].astype(int)]
    return table


def _above_the_cut(
    linkage: NDArray[np.float64], taken: NDArray[np.bool_], groups: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The merges that were not made, as a linkage of the merged clusters."""
    k, n_groups = len(groups), int(groups.max()) + 1
    node = np.concatenate([groups, np.zeros(k - 1, np.int64)])
    leaves = [1.0] * n_groups
    rows: list[list[float]] = []
    for step, (left, right, height, _) in enumerate(linkage):
        a, b = node[int(left)], node[int(right)]
        if taken[step]:
            node[k + step] = a
            continue
        node[k + step] = n_groups + len(rows)
        leaves.append(leaves[a] + leaves[b])
        rows.append([a, b, height, leaves[-1]])
    return np.array(rows)


def _dendrogram(linkage: NDArray[np.float64], names: Sequence[str], groupby: str) -> dict[str, Any]:
    """A linkage in the form of ``scanpy.tl.dendrogram``."""
    drawn = dendrogram(linkage, labels=names, no_plot=True, above_threshold_color="C0")
    info: dict[str, Any] = {name: np.array(drawn[name]) for name in ("icoord", "dcoord", "leaves")}
    info |= {name: np.array(drawn[name], object) for name in ("ivl", "color_list")}
    return {
        "linkage": linkage,
        "groupby": np.array([groupby], object),
        "use_rep": "unsplit",
        "cor_method": "unsplit",
        "linkage_method": "unsplit",
        "categories_ordered": info["ivl"],
        "categories_idx_ordered": info["leaves"],
        "dendrogram_info": info,
    }
