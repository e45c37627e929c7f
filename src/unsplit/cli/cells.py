"""The .h5ad file that ``unsplit merge --h5ad`` writes."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import numpy as np

from unsplit.anndata import annotations
from unsplit.data.cells import groups_in
from unsplit.data.readers.h5ad import open_cells, write_extended
from unsplit.data.readers.tables_and_arrays import Observations
from unsplit.estimator import Merged
from unsplit.merging.options import MergeOptions

MERGED = "merged.h5ad"
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
    found = annotations(groups, merged.tree, tvd, KEY, groupby, params, uns)
    columns = {KEY: found.column}
    if not known:
        names = pd.Index(groups.names, dtype=object)
        columns[INITIAL] = pd.Categorical.from_codes(groups.codes, categories=names)
    write_extended(Path(data), path, columns, found.uns)


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
