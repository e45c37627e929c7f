"""Merge the clusters of cells in an AnnData, in the manner of scanpy.

>>> import unsplit
>>> unsplit.anndata.merge(adata, groupby="leiden")  # doctest: +SKIP
>>> sc.pl.umap(adata, color=["leiden", "unsplit"])  # doctest: +SKIP
"""

import builtins
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import dendrogram
from scipy.sparse import csr_array, issparse

from unsplit._typing import Index
from unsplit.data.array_files import ContentCheck
from unsplit.data.cells import (
    USUAL,
    Groups,
    groups_in,
    in_memory,
    matrix_of,
    require_key,
)
from unsplit.data.labels import all_different, merged_names, named_after_origin
from unsplit.errors import InputError, check_flag, check_whole, is_whole
from unsplit.estimator import ClusterMerger, refined_labels_of
from unsplit.merging.saved_merges import FORMAT as TREE_FORMAT
from unsplit.merging.saved_merges import content_of_tree, fields_of_tree
from unsplit.merging.tree import APART, MergeTree, members_of_nodes
from unsplit.report.api import Content, Report, clusters_of, make_page
from unsplit.report.collect import (
    MOST_AVERAGED,
    Source,
    averaging,
    collect,
    drawn_rows,
    means_and_spread,
)
from unsplit.report.summary import of_merge

__all__ = ["markers", "merge", "report", "tree"]


# Pictures that scanpy writes, and that people already know their cells by.
PICTURES = ("X_umap", "X_tsne")

# Clusters in a dendrogram; nobody can read more, and SciPy's function calls itself for each branch.
MOST_DRAWN = 500

# A marker is detected in this share of the cells of its cluster, and in so many of them.
LEAST_SHARE, FEWEST_DETECTED = 0.1, 3
COLUMNS = ["cluster", "other", "gene", "score", "share", "share_other", "log2_fold_change"]


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
            :func:`tree`), ``n_clusters``, ``stopped`` and ``params``; ``how_separated`` is there
            only if the cells hardly look like separated groups.
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
    if adata.isbacked and adata.is_view and not copy:
        raise InputError(
            "adata is a view of a file, to which nothing can be written; pass "
            "adata.to_memory(), or copy=True."
        )
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
        where, requested = f'adata.uns["{key_added}"]["review"]', is_whole(merger.n_clusters)
        lines = of_merge(merger.tree_, merger.pairwise_.n_noise, requested, where)
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
        values = X.data if issparse(X) else X
        if values.dtype.kind in "biuf" and np.isfinite(values).all():
            source = replace(source, shown=X, feature_names=cells.var_names)
    return source


def markers(
    adata: Any,
    key: str = "unsplit",
    *,
    layer: str | None = None,
    use_raw: bool | None = None,
    n_genes: int = 10,
) -> Any:
    """List the genes that tell merged clusters apart, for each pair that was kept apart.

    These are the pairs of ``adata.uns[key]["review"]``: those of each merged cluster and its ten
    nearest.

    Parameters
    ----------
    adata : AnnData
        After :func:`merge`, with log-normalised expression.
    key : str
        The ``key_added`` of :func:`merge`.
    layer : str, optional
        The layer of ``adata`` that holds the expression, instead of ``adata.X``.
    use_raw : bool, optional
        Whether ``adata.raw`` holds it; by default it does if there is one and no ``layer`` is
        named, as in scanpy.
    n_genes : int
        How many genes to list at most for each side of a pair.

    Returns
    -------
    pandas.DataFrame
        The closest pairs come first, and of each side the genes with the highest score.

        ``cluster``, ``other``
            The side that has more of the gene, and the other one.
        ``gene``
            Detected in a tenth of the cells of ``cluster`` at least, and in three of them.
        ``score``
            The difference of the two means in standard deviations within clusters, as on the page
            of a result: of all clusters, and at least a quarter of that of all cells.
        ``share``, ``share_other``
            The share of the cells of each side in which the gene is detected.
        ``log2_fold_change``
            Of the mean expression, as in ``scanpy.tl.rank_genes_groups``.

    Examples
    --------
    >>> import anndata, numpy as np, unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
    >>> counts = np.random.default_rng(0).poisson(np.where(labels[:, None] == 2, [4, 1], [1, 4]))
    >>> adata = anndata.AnnData(np.log1p(counts), {"leiden": labels.astype(str)})
    >>> adata.var_names, adata.obsm["X_pca"] = ["CD3E", "CD19"], X
    >>> unsplit.anndata.merge(adata)
    >>> unsplit.anndata.markers(adata)[["cluster", "other", "gene"]]
      cluster  other  gene
    0   0 + 1      2  CD19
    1       2  0 + 1  CD3E
    """
    import pandas as pd

    check_whole("n_genes", n_genes, 1)
    stored, old = tree(adata, key), adata.uns[key]["mapping"]
    column, sizes = (
        pd.Categorical(_column(adata, key)),
        old.groupby("new", sort=False)["n_cells"].sum(),
    )
    if {*column.categories} == {*sizes.index}:  # otherwise they were renamed
        column = column.reorder_categories(sizes.index)
    codes, names = column.codes.astype(np.int64), column.categories
    if np.bincount(codes + 1)[1:].tolist() != sizes.tolist():
        raise InputError(
            f"adata.obs[{key!r}] no longer holds the clusters that the merge left; pass all cells "
            "that were merged, or merge again."
        )
    place_of = dict(zip(old["old"], pd.factorize(old["new"])[0], strict=True))
    sides = [
        place_of[str(stored.cluster_ids[members[0]])]
        for members in members_of_nodes(stored.merges, stored.n_initial)
    ]
    kept = [row.pair for row in stored.reviewed if row.done == APART]
    rows = drawn_rows(codes, MOST_AVERAGED)
    values, genes = _expression(adata, rows, layer, use_raw)
    average = averaging(codes[rows], len(names))
    means, spread, _ = means_and_spread(values, average)
    shares = csr_array(average @ (values > 0).astype(np.float64)).toarray()
    levels, n_cells = np.expm1(means) + 1e-9, np.diff(average.indptr)
    found = []
    for pair in sorted(kept, key=lambda pair: pair.statistic):
        for a, b in permutations((sides[pair.left], sides[pair.right])):
            score = (means[a] - means[b]) / spread
            least = max(LEAST_SHARE, (FEWEST_DETECTED - 0.5) / n_cells[a])
            usable = np.flatnonzero((score > 0) & (shares[a] >= least))
            top = usable[np.argsort(-score[usable], kind="stable")[:n_genes]]
            change = np.log2(levels[a] / levels[b])
            of_genes = (genes, score, shares[a], shares[b], change)
            sides_of = names[a], names[b]
            found += [(*sides_of, *(known[gene] for known in of_genes)) for gene in top]
    return pd.DataFrame(found, columns=COLUMNS)


def _expression(
    adata: Any, rows: Index, layer: str | None, use_raw: bool | None
) -> tuple[Any, NDArray[Any]]:
    """Log-normalised expression of some cells, and the names of the genes."""
    where, source, found = "X", adata, adata.X
    if layer is not None:
        require_key("layer", layer, adata.layers.keys(), "adata", "layers")
        where, found = f"layer {layer!r}", adata.layers[layer]
    elif use_raw or (use_raw is None and adata.raw is not None):
        where, source, found = "raw", adata.raw, getattr(adata.raw, "X", None)
    if layer is not None and use_raw:
        raise InputError("layer and use_raw name two sources of the expression; pass one of them.")
    if found is None:
        raise InputError(f"adata has no {where}; name the layer with log-normalised expression.")
    values = in_memory(found)[rows]
    present = values.data if isinstance(values, csr_array) else values
    if not (np.isfinite(present) & (present >= 0)).all() or (present == np.rint(present)).all():
        raise InputError(
            f"{where} of adata must hold log-normalised expression, but it has negative, missing "
            "or only whole numbers; call sc.pp.normalize_total and sc.pp.log1p first, or pass "
            "another layer."
        )
    return values, np.asarray(source.var_names, object)


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
    names = merged_names(groups.names, new)
    sizes = np.bincount(groups.codes[groups.codes >= 0], minlength=len(order))
    codes = np.where(groups.codes < 0, -1, new[groups.codes])
    merged = [names[g] for g in new]
    review = tree.review_table()
    entry: dict[str, Any] = {
        "params": _plain_params(params),
        "n_clusters": len(names),
        "stopped": tree.stopped,
        "mapping": _frame({"old": groups.names, "new": merged, "n_cells": sizes}),
        "review": _frame(review),
        "tree": _stored(tree),
    }
    if tree.how_separated is not None:
        entry["how_separated"] = tree.how_separated
    # A sparse estimate of very many clusters has no matrix of all pairs.
    if isinstance(tvd, np.ndarray):
        entry["tvd"] = tvd[np.ix_(order, order)]
    colours = _colours(uns.get(f"{groupby}_colors"), groups, members, sizes)
    found: dict[str, Any] = {key_added: entry}
    if colours is not None:
        found[f"{key_added}_colors"] = np.array(colours, object)
    obs = {key_added: pd.Categorical.from_codes(codes, pd.Index(names, dtype=object))}
    if refined is not None:
        moved, origins = named_after_origin(refined, codes)
        name = f"{key_added}_refined"
        called = pd.Index(all_different([names[g] for g in origins]), dtype=object)
        obs[name] = pd.Categorical.from_codes(moved, called)
        if colours is not None:
            found[f"{name}_colors"] = np.array([colours[g] for g in origins], object)
    whole = _relabelled(tree.linkage, np.argsort(order))
    if len(order) <= MOST_DRAWN:
        found[f"{key_added}_dendrogram"] = _dendrogram(whole, groups.names, groupby)
    if 1 < len(names) <= MOST_DRAWN:
        upper = _above_the_cut(whole, tree.taken, new)
        found[f"dendrogram_{key_added}"] = _dendrogram(upper, names, key_added)
    each = np.arange(len(order))
    for name, of in ((f"{key_added}_dendrogram", each), (f"dendrogram_{key_added}", new)):
        if name in found and "tvd" in entry:  # what scanpy.pl.correlation_matrix shows
            found[name]["correlation_matrix"] = 1 - _mean_tvd(entry["tvd"], of, sizes)
    return obs, found


def _column(adata: Any, name: str) -> Any:
    require_key("column", name, adata.obs.columns, "adata.obs", "columns")
    return adata.obs[name]


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


def _mean_tvd(
    tvd: NDArray[np.float64], groups: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Mean distances between groups of clusters, where larger clusters count more."""
    weights = (groups == np.arange(groups.max() + 1)[:, None]) * sizes
    weights = weights / weights.sum(axis=1, keepdims=True)
    found = weights @ np.nan_to_num(tvd, nan=1.0) @ weights.T  # what cannot be compared is apart
    np.fill_diagonal(found, 0.0)
    return found


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
