"""The .h5ad file that ``unsplit merge --h5ad`` writes."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import scipy.sparse

from unsplit.anndata import annotations
from unsplit.data.cells import groups_in
from unsplit.data.readers.h5ad import open_cells, write_extended
from unsplit.data.readers.observations import Observations
from unsplit.estimator import Merged
from unsplit.merging.options import MergeOptions
from unsplit.report.collect import Source

MERGED = "merged.h5ad"
# Pictures that scanpy writes, and that people already know their cells by.
PICTURES = ("X_umap", "X_tsne")
KEY = "unsplit"
# The old clusters, if they are from another file and so have no column yet.
INITIAL = "unsplit_initial"


def require_h5ad(data: str) -> None:
    """Raise an error if there is no .h5ad file to copy.

    Examples
    --------
    >>> require_h5ad("cells.H5AD")
    """
    if not data.lower().endswith(".h5ad"):
        raise click.UsageError(f"--h5ad works only with .h5ad files, got {data}; leave it out.")


def write_merged(
    path: Path, data: str, labels: str, read: Observations, merged: Merged, params: dict[str, Any]
) -> None:
    """Write a copy of the data with what :func:`unsplit.anndata.merge` adds.

    Parameters
    ----------
    path : Path
        The file to write.
    data : str
        The .h5ad file that was read.
    labels : str
        A column of ``obs``, or the file that has the old clusters.
    read : Observations
    merged : Merged
    params : dict
        How the merge was made.
    """
    import pandas as pd

    colours = f"{labels}_colors"
    with open_cells(Path(data), [f"uns/{colours}"]) as cells:
        known = labels in cells.obs
        column = cells.obs[labels] if known else read.labels
        groups = groups_in(column, f"labels of {data}")
        uns = {colours: cells.uns.get(colours)}
    params = {"groupby": labels, "representation": read.representation} | params
    groupby, tvd = labels if known else INITIAL, merged.fitted.result.tvd
    made = groups, merged.tree, tvd, merged.refined_labels
    found = annotations(*made, KEY, groupby, params, uns)
    columns = dict(found.obs)
    if not known:
        names = pd.Index(groups.names, dtype=object)
        columns[INITIAL] = pd.Categorical.from_codes(groups.codes, categories=names)
    write_extended(Path(data), path, columns, found.uns)


def with_genes(source: Source, data: str) -> Source:
    """Add what the page of cells can show: the user's own picture, and genes instead of components.

    Parameters
    ----------
    source : Source
        The cells as they were compared.
    data : str
        The .h5ad file that they were read from.
    """
    n = len(source.clusters)
    try:
        pictures = [f"obsm/{name}" for name in PICTURES]
        with open_cells(Path(data), pictures, ["X"], ["var"]) as cells:
            for name in PICTURES if source.picture is None else ():
                xy = np.asarray(cells.obsm[name]) if name in cells.obsm else np.zeros(0)
                if xy.shape == (n, 2) and np.isfinite(xy).all():
                    source = replace(source, picture=xy, picture_method=f"{name} of {data}")
                    break
            X = cells.X
            if X is None:
                return source
            X = scipy.sparse.csr_array(X) if scipy.sparse.issparse(X) else np.asarray(X)
            values: Any = X.data if scipy.sparse.issparse(X) else X
            if values.dtype.kind in "biuf" and np.isfinite(values).all():
                source = replace(source, shown=X, feature_names=cells.var_names)
    except MemoryError:  # of X, which only the page would show
        pass
    return source


def chosen(options: MergeOptions) -> dict[str, Any]:
    """Return the options that differ from the default.

    Examples
    --------
    >>> chosen(MergeOptions(n_clusters=3))
    {'n_clusters': 3}
    """
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    usual = MergeOptions()
    return {n: v for n, v in given.items() if not np.array_equal(v, getattr(usual, n))}
