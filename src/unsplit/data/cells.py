"""What Unsplit takes from an AnnData or an .h5ad file: a matrix, and clusters."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.data.labels import as_named, encode_labels, natural
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
    values = in_memory(found)
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


def groups_in(column: Any) -> Groups:
    """Find the clusters in a column of ``obs``; "-1" and missing values are noise.

    Parameters
    ----------
    column : pandas.Series, Categorical or array
        Its categories set the order of the clusters; those without cells are left out.

    Examples
    --------
    >>> groups = groups_in(np.array(["10", "2", "-1", None], object))
    >>> groups.names, groups.codes.tolist()
    (['2', '10'], [1, 0, -1, -1])
    """
    encoded = encode_labels(np.asarray(column))
    found = list(map(str, encoded.cluster_ids.tolist()))
    kinds = getattr(getattr(column, "dtype", None), "categories", None)
    if kinds is None:
        categories = sorted(found, key=natural)
    else:
        categories = list(map(str, as_named(np.asarray(kinds)).tolist()))
    used = set(found)
    names = [name for name in categories if name in used]
    place = {name: i for i, name in enumerate(names)}
    codes = np.array([*(place[name] for name in found), -1])
    return Groups(names, codes[encoded.clusters], categories)


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


def in_memory(values: Any) -> Any:
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
