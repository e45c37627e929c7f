"""What Unsplit takes from an AnnData or an .h5ad file: a matrix, clusters and batches."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.data.labels import is_gap, is_missing
from unsplit.data.readers.tables import held
from unsplit.errors import InputError

# The representation that scanpy's own functions use if they are given none.
USUAL = "X_pca"
# What ``use_rep`` says beside a key of ``obsm``: raw counts in ``raw``, or in a layer.
RAW, LAYER = "raw", "layers/"


def matrix_of(cells: Any, use_rep: str | None, where: str) -> tuple[Any, str]:
    """The matrix that cells are compared by, and its name.

    Parameters
    ----------
    cells : AnnData or CellFile
    use_rep : str, optional
        A key of ``obsm``, "X", or for raw counts "raw" or "layers/" and the name of a layer.
        None means "X_pca" if there is one, otherwise "X".
    where : str
        What to call the cells in messages.

    Returns
    -------
    ndarray or CSR array of shape (n, d)
        Raw counts are always a CSR array.
    str
        Such as "X_pca", "layers/counts" or "raw".
    """
    name = use_rep or (USUAL if USUAL in cells.obsm else "X")
    if name.startswith(LAYER):
        layer = name.removeprefix(LAYER)
        require_key("layer", layer, cells.layers.keys(), where, "layers")
        found = cells.layers[layer]
    elif name == RAW:
        if cells.raw is None:
            raise InputError(
                f"{where} has no raw; name a representation or a layer with raw counts instead "
                f"({held(list(cells.layers), RAW, 'layers')})."
            )
        found = cells.raw.X
    elif name == "X":
        found = cells.X
    else:
        known = [*cells.obsm.keys(), "X"]
        require_key("representation", name, known, where, "representations")
        found = cells.obsm[name]
    if found is None:
        raise InputError(f"{where} has no X; name a representation in obsm, such as {USUAL}.")
    values = _in_memory(found)
    if name != RAW and not name.startswith(LAYER):
        return values, name
    _check_counts(values, name, where)
    return scipy.sparse.csr_array(values), name


@dataclass(frozen=True, eq=False)
class Groups:
    """The clusters in a column: their names in order, and the place of every cell's cluster.

    Parameters
    ----------
    names : list of str
        In the order of the categories, or in natural order ("2" before "10") without categories.
    codes : ndarray of shape (n,)
        Index into ``names``; −1 for noise.
    categories : list of str
        All categories of the column, also noise and those without cells; scanpy has a colour for
        each.
    """

    names: list[str]
    codes: Index
    categories: list[str]

    @property
    def labels(self) -> NDArray[Any]:
        """The name of every cell's cluster; None for noise."""
        return np.array([*self.names, None], object)[self.codes]


def groups_in(column: Any, where: str) -> Groups:
    """Find the clusters in a column of ``obs``; "-1" and missing values are noise.

    Parameters
    ----------
    column : pandas.Series, Categorical or array
        Its categories set the order of the clusters; those without cells are left out.
    where : str
        What to call the column in messages.

    Examples
    --------
    >>> groups = groups_in(np.array(["10", "2", "-1", None], object), "adata.obs['leiden']")
    >>> groups.names, groups.codes.tolist()
    (['2', '10'], [1, 0, -1, -1])
    """
    kinds = getattr(getattr(column, "dtype", None), "categories", None)
    values = np.asarray(column).astype(object)
    noise = is_missing(values)
    if noise.all():
        raise InputError(f"{where} is missing for every cell; name a column of clusters.")
    names = _names(values[~noise], where)
    found = set(names)
    categories = list(map(_as_text, sorted(found, key=natural) if kinds is None else kinds))
    order = [name for name in categories if name in found]
    if len(order) < 2:
        raise InputError(
            f"{where} has only one cluster ({order[0]!r}), so there is nothing to merge; cluster "
            "at a higher resolution first, or name another column."
        )
    place = {name: i for i, name in enumerate(order)}
    codes = np.full(len(values), -1, np.int64)
    codes[~noise] = [place[name] for name in names]
    return Groups(order, codes, categories)


def batches_in(column: Any) -> NDArray[Any]:
    """Return the batch of every cell as text; None where it is missing.

    Parameters
    ----------
    column : pandas.Series or array

    Examples
    --------
    >>> batches_in(np.array(["donor 1", None], object)).tolist()
    ['donor 1', None]
    """
    values = np.asarray(column).astype(object)
    return np.array([None if is_gap(value) else _as_text(value) for value in values], object)


def require_key(what: str, name: str, known: Iterable[Any], where: str, plural: str) -> None:
    """Raise an error if a name is not known; list those that are, and say which come close.

    Parameters
    ----------
    what, plural : str
        What the name is for, as one and as many.
    name : str
    known : iterable of str
    where : str
        What to call the data in messages.

    Examples
    --------
    >>> require_key("column", "Leidn", ["leiden", "donor"], "adata.obs", "columns")
    Traceback (most recent call last):
    unsplit.errors.InputError: adata.obs has no column 'Leidn' (close: 'leiden'; its columns: ...
    """
    names = [str(key) for key in known]
    if name not in names:
        raise InputError(f"{where} has no {what} {name!r} ({held(names, name, plural)}).")


def clusterings_in(obs: Any) -> list[str]:
    """Columns of ``obs`` that look like clusterings, those named like one first.

    Parameters
    ----------
    obs : pandas.DataFrame

    Examples
    --------
    >>> import pandas as pd
    >>> clusterings_in(pd.DataFrame({"x": [0.5, 1.5], "phase": ["S", "G1"], "louvain": [0, 1]}))
    ['louvain', 'phase']
    """
    found = []
    for name in obs.columns:
        column = obs[name]
        if column.dtype.kind in "OSUiub" and 2 <= column.nunique() <= max(2, len(column) // 4):
            found.append(str(name))
    return sorted(found, key=lambda name: not re.search("leiden|louvain|cluster", name.lower()))


def _in_memory(values: Any) -> Any:
    """Read what is backed by a file, and turn frames and views into plain arrays."""
    for method in ("to_memory", "compute", "to_numpy"):  # sparse on disk, dask, data frames
        if hasattr(values, method):
            values = getattr(values, method)()
    return scipy.sparse.csr_array(values) if scipy.sparse.issparse(values) else np.asarray(values)


def _check_counts(values: Any, name: str, where: str) -> None:
    present = values.data if scipy.sparse.issparse(values) else values.ravel()
    wrong = (present < 0) | (present != np.rint(present))
    if not wrong.any():
        return
    raise InputError(
        f"{name} of {where} holds values that are not counts, such as {present[wrong][0]:.4g}; "
        f"name the layer that has the raw counts, or use a representation such as {USUAL}."
    )


def _names(values: NDArray[Any], where: str) -> list[str]:
    """Labels as text; measurements are refused."""
    for value in values:
        if isinstance(value, (float, np.floating)) and value != np.rint(value):
            raise InputError(
                f"{where} holds measurements, such as {value:.4g}, instead of clusters; name a "
                "column of clusters."
            )
    return [_as_text(value) for value in values]


def _as_text(value: Any) -> str:
    """Text as it is, and whole numbers without a decimal point: a gap makes integers floats."""
    whole = isinstance(value, (float, np.floating)) and value == np.rint(value)
    return str(int(value)) if whole else str(value)


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Sort key that puts "2" before "10".

    Examples
    --------
    >>> sorted(["10", "2", "b"], key=natural)
    ['2', '10', 'b']
    """
    parts = re.split(r"(\d+)", name)
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
