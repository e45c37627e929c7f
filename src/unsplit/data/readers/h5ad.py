"""Read and extend .h5ad files without loading what is not needed."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from unsplit.data.cells import groups_in, matrix_of, require_key
from unsplit.data.readers.broken import reading, refuse_unreadable
from unsplit.data.readers.columns import RowIds
from unsplit.data.readers.observations import BATCH_NAMES, LABEL_NAMES, Observations, values_of_rows
from unsplit.data.readers.tables import require_module
from unsplit.devices import available_memory
from unsplit.errors import InputError


class _Elements(Mapping[str, Any]):
    """Elements of a group, read one by one."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def __getitem__(self, name: str) -> Any:
        return _read(self._group[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._group)

    def __len__(self) -> int:
        return len(self._group)

    def __contains__(self, name: object) -> bool:
        return name in self._group

    @property
    def X(self) -> Any:  # noqa: N802
        """The main matrix; None if there is none."""
        return self.get("X")


class CellFile(_Elements):
    """An open .h5ad file with the attributes of an AnnData; each is read when it is asked for.

    AnnData's own backed mode leaves only X on disk, and would read all layers.
    """

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.obs = _read(file["obs"])
        self.obsm, self.layers, self.uns = (
            _Elements(file.get(name, {})) for name in ("obsm", "layers", "uns")
        )
        self.raw = _Elements(file["raw"]) if "raw" in file else None

    @property
    def var_names(self) -> list[str]:
        """Names of the genes."""
        return [str(name) for name in self["var"].index]


@contextmanager
def open_cells(path: Path) -> Iterator[CellFile]:
    """Open an .h5ad file; any error of the parser becomes one sentence."""
    refuse_unreadable(path)
    _io()
    import h5py

    with reading(path), h5py.File(path, "r") as file:
        if "obs" not in file:
            raise InputError(
                f"{path} is an HDF5 file but not an .h5ad file, because it has no obs; write "
                "it with adata.write_h5ad."
            )
        yield CellFile(file)


def read_cells(
    path: Path,
    labels: str | None = None,
    batch: str | None = None,
    use_rep: str | None = None,
) -> Observations:
    """Read a matrix of an .h5ad file, and the cluster and batch of each cell.

    Parameters
    ----------
    path : Path
    labels, batch : str, optional
        A column of ``obs``, or another file.
    use_rep : str, optional
        Which matrix; by default "X_pca" if there is one, otherwise "X".

    Returns
    -------
    Observations

    Examples
    --------
    >>> import anndata, tempfile
    >>> import pandas as pd
    >>> path = Path(tempfile.mkdtemp()) / "cells.h5ad"
    >>> obs = pd.DataFrame({"leiden": pd.Categorical([0, 1])}, index=["a", "b"])
    >>> adata = anndata.AnnData(obs=obs, obsm={"X_pca": np.eye(2)})
    >>> adata.write_h5ad(path)
    >>> found = read_cells(path, "leiden")
    >>> found.X.shape, found.labels.tolist(), found.representation
    ((2, 2), ['0', '1'], 'X_pca')
    """
    with open_cells(path) as cells:
        for name in (labels, batch):
            if name is not None and name not in cells.obs and not Path(name).is_file():
                require_key("column", name, cells.obs.columns, f"obs of {path}", "columns")
        X, used = matrix_of(cells, use_rep, str(path))
        names = cells.obs.index.astype(str).to_numpy().astype(str)
        named = len(np.unique(names)) == len(names)
        rows = RowIds(path, names if named else np.arange(len(names)), named)
        own: dict[str, Any] = {}
        if batch is not None and batch in cells.obs:
            own[batch] = np.asarray(cells.obs[batch])
        within = values_of_rows(own, batch, rows, BATCH_NAMES)
        if labels is not None and labels in cells.obs:
            own[labels] = groups_in(cells.obs[labels]).labels
        found = values_of_rows(own, labels, rows, LABEL_NAMES)
    return Observations(X, None, rows.ids, found, within, representation=used)


def write_extended(
    source: Path, target: Path, columns: Mapping[str, Any], uns: Mapping[str, Any]
) -> None:
    """Copy an .h5ad file and add columns to ``obs`` and entries to ``uns``.

    Everything else is copied byte by byte, so that no matrix is loaded.

    Parameters
    ----------
    source, target : Path
    columns : mapping of str to Categorical
        New columns; a column of the same name is replaced.
    uns : mapping of str to what an .h5ad file can hold
        New entries; an entry of the same name is replaced.
    """
    import h5py

    shutil.copyfile(source, target)
    write = _io().write_elem
    with h5py.File(target, "r+") as file:
        obs = file["obs"]
        if not isinstance(obs, h5py.Group):
            raise InputError(
                f"{source} was written by a version of anndata before 0.7 and cannot be extended; "
                "read it and write it again with adata.write_h5ad."
            )
        order = [str(name) for name in obs.attrs["column-order"]]
        for name, column in columns.items():
            write(obs, name, column)
            order += [] if name in order else [name]
        obs.attrs.create("column-order", np.array(order, object), dtype=h5py.string_dtype())
        if "uns" not in file:
            write(file, "uns", {})
        for name, entry in uns.items():
            write(file["uns"], name, entry)


def _read(element: Any) -> Any:
    """Read an element, unless it says that it is larger than the free memory."""
    import h5py

    sizes = [getattr(element, "nbytes", 0)]
    if isinstance(element, h5py.Group):
        element.visititems(lambda _, item: sizes.append(getattr(item, "nbytes", 0)))
    if sum(sizes) > available_memory():
        raise MemoryError
    return _io().read_elem(element)


def _io() -> Any:
    return require_module("anndata.io", "reading .h5ad files", "cells")
