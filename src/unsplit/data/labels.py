"""Cluster labels, batches and groups, with noise and missing values; and what is no array."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index
from unsplit.errors import InputError, shown


@dataclass(frozen=True)
class EncodedLabels:
    """Cluster labels as indices.

    Parameters
    ----------
    cluster_ids : ndarray of shape (k,)
        The user's names, sorted.
    clusters : ndarray of shape (n,)
        Index into ``cluster_ids``; −1 for noise.

    Examples
    --------
    >>> encoded = encode_labels(["b", "a", "-1"], 3)
    >>> encoded.cluster_ids.tolist(), encoded.clusters.tolist(), encoded.n_noise
    (['a', 'b'], [1, 0, -1], 1)
    """

    cluster_ids: NDArray[Any]
    clusters: Index

    @property
    def n_noise(self) -> int:
        """Number of observations that belong to no cluster."""
        return int((self.clusters < 0).sum())


def encode_labels(
    labels: ArrayLike | EncodedLabels, n_observations: int | None = None, at_least: int = 2
) -> EncodedLabels:
    """Turn labels into indices; −1, "-1" and missing values mean noise.

    Fewer than ``at_least`` clusters are an error, and so are other than ``n_observations`` labels
    if that number is given.  Labels that are already encoded are returned as they are.

    Examples
    --------
    >>> encode_labels(["b", "a", None, "b"], 4).clusters
    array([ 1,  0, -1,  1])
    """
    values = labels.clusters if isinstance(labels, EncodedLabels) else label_array(labels)
    if values.ndim != 1:
        raise InputError(
            f"labels must be one label per observation, got an array of shape {values.shape}; "
            "pass a one-dimensional array."
        )
    if n_observations is not None and len(values) != n_observations:
        raise InputError(
            f"X has {n_observations} observations but labels has {len(values)}; "
            "pass one label for each row of X."
        )
    if isinstance(labels, EncodedLabels):
        return labels
    noise = is_missing(values)
    if at_least and noise.all():
        raise InputError(
            "every label is noise (-1 or missing), so there is nothing to compare; "
            "pass labels with at least two clusters."
        )
    cluster_ids, inverse = np.unique(_comparable(values[~noise]), return_inverse=True)
    if len(cluster_ids) < at_least:
        raise InputError(
            f"labels hold only one cluster ({cluster_ids[0]!s}), so there is no pair to compare; "
            "pass labels with at least two clusters."
        )
    clusters = np.full(len(values), -1, np.int64)
    clusters[~noise] = inverse
    return EncodedLabels(cluster_ids, clusters)


def as_named(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels with the names that clusters have in results: 1 for 1.0; noise stays as it is.

    Examples
    --------
    >>> as_named(np.array([1.0, np.nan, 0.0]))
    array([1, nan, 0], dtype=object)
    """
    if labels.dtype.kind in "iubU":
        return labels
    encoded, named = encode_labels(labels, at_least=1), labels.astype(object)
    inside = encoded.clusters >= 0
    named[inside] = encoded.cluster_ids[encoded.clusters[inside]].tolist()
    return named


def label_array(labels: ArrayLike, name: str = "labels") -> NDArray[Any]:
    """Return labels as an array in which masked and missing labels mean noise.

    Parameters
    ----------
    labels : array-like of shape (n,)
        May be a masked array, a pandas column or a torch tensor.
    name : str
        The parameter's name, for error messages.

    Examples
    --------
    >>> label_array(np.ma.masked_array([3, 4, 5], mask=[False, True, False]))
    array([3, None, 5], dtype=object)
    """
    if isinstance(labels, str):
        raise InputError(
            f"{name} must be one label per observation, got the text {shown(labels)}; pass the "
            f"column itself, such as df[{shown(labels)}], and leave it out of X."
        )
    if hasattr(labels, "requires_grad"):  # a torch tensor, without needing torch
        labels = cast(Any, labels).detach()
    if isinstance(labels, np.ma.MaskedArray) and np.ma.getmaskarray(labels).any():
        masked, labels = labels, labels.data.astype(object)
        labels[np.ma.getmaskarray(masked)] = None
    try:
        values = np.asarray(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(
            f"{name} must be one integer or string per observation, but cannot be made an array "
            f"({reason}); pass a one-dimensional array."
        ) from None
    if (
        values.dtype.kind in "US"
        and values.ndim == 1
        and isinstance(labels, (list, tuple))
        and not all(isinstance(label, (str, bytes)) for label in labels)
    ):
        values = np.array(labels, object)  # NumPy has turned 1 into "1" and NaN into "nan"
    if values.dtype.kind == "T":  # NumPy's strings of any length, whose missing values are objects
        values = values.astype(object)
    for value in values if values.dtype.kind in "OV" and values.ndim == 1 else ():
        if hasattr(value, "__len__") and not isinstance(value, (str, bytes)):
            raise InputError(
                f"{name} must be integers or strings, got {value!r} of type "
                f"{type(value).__name__}; join the parts of such labels into one string first."
            )
    return values


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which labels mean noise: −1, "-1", empty and missing values.

    Examples
    --------
    >>> is_missing(np.array([3, -1, 0]))
    array([False,  True, False])
    """
    if values.dtype.kind in "iub":
        return values == -1
    if values.dtype.kind == "f":
        return np.isnan(values) | (values == -1)
    if values.dtype.kind in "mM":
        return np.isnat(values)
    return np.array([is_gap(v) or v in _NOISE for v in values.astype(object)], bool)


_NOISE = (-1, "-1", "", b"-1", b"")


def is_gap(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas' NA, without needing pandas.

    Examples
    --------
    >>> is_gap(None), is_gap(float("nan")), is_gap("a")
    (True, True, False)
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and value != value


def _comparable(values: NDArray[Any]) -> NDArray[Any]:
    """Return labels as integers or strings, which can be sorted and stored without pickle."""
    if values.dtype.kind in "iubU":
        return values
    if values.dtype.kind in "mM":  # pandas' dates would be numbers of nanoseconds
        return values.astype(str)
    listed = values.astype(object)
    if all(isinstance(value, (int, float, np.integer, np.floating)) for value in listed):
        for value in listed:
            if not abs(value) < 2**53 or value != int(value):
                raise InputError(
                    f"labels must be integers or strings, got the number {value!s}; "
                    "convert measurements to cluster names first."
                )
        return values.astype(np.int64)
    texts = [v.decode(errors="replace") if isinstance(v, bytes) else _text(v) for v in listed]
    if len(set(texts)) < len(set(listed)):
        raise InputError(
            'labels of different types look the same as text, such as 1 and "1"; convert all '
            "labels to one type first."
        )
    return np.array(texts)


def _text(label: Any) -> str:
    try:
        return str(label)
    except Exception as error:  # whatever the user's own object raises
        raise InputError(
            f"labels of type {type(label).__name__} cannot be written as text "
            f"({type(error).__name__}); pass integers or strings."
        ) from None


@dataclass(frozen=True, eq=False)
class Parts:
    """What of each cluster is in each batch, or in each group.

    Parameters
    ----------
    of_rows : ndarray of shape (n,)
        Part of every row; −1 for noise.
    cluster, batch : ndarrays of shape (C,)
        Cluster and batch (or group) of every part.
    """

    of_rows: Index
    cluster: Index
    batch: Index

    @classmethod
    def cut(cls, clusters: Index, batches: Index | None = None) -> "Parts":
        """Cut clusters by batch; parts are ordered by batch, then by cluster.

        ``clusters`` and ``batches``, by default one, are those of every row, numbered from 0; the
        cluster is −1 for noise.

        Examples
        --------
        >>> parts = Parts.cut(np.array([0, 1, 1, -1]), np.array([0, 0, 1, 1]))
        >>> parts.of_rows, parts.cluster, parts.batch
        (array([ 0,  1,  2, -1]), array([0, 1, 1]), array([0, 0, 1]))
        """
        inside, k = clusters >= 0, int(clusters.max()) + 1
        keys = clusters if batches is None else batches * k + clusters
        occurring, index = np.unique(keys[inside], return_inverse=True)
        of_rows = np.full(len(clusters), -1, np.int64)
        of_rows[inside] = index
        return cls(of_rows, occurring % k, occurring // k)

    def renumbered(self, of_rows: Index) -> "Parts":
        """The same parts with other numbers, given the new part of every row."""
        old = np.zeros(len(self.cluster), np.int64)
        old[of_rows[of_rows >= 0]] = self.of_rows[of_rows >= 0]
        return Parts(of_rows, self.cluster[old], self.batch[old])

    @property
    def n_batches(self) -> int:
        """Number of batches, B."""
        return int(self.batch.max()) + 1

    @cached_property
    def sizes(self) -> Index:
        """Number of observations in each part, shape (C,)."""
        return np.bincount(self.of_rows[self.of_rows >= 0], minlength=len(self.cluster))

    @property
    def table(self) -> Index:
        """Number of observations of each cluster in each batch, shape (B, k)."""
        table = np.zeros((self.n_batches, int(self.cluster.max()) + 1), np.int64)
        table[self.batch, self.cluster] = self.sizes
        return table


def encode_batches(batch: ArrayLike, labels: EncodedLabels, name: str = "batch") -> Index:
    """Number the batches, or the groups, from 0; noise gets −1.

    Parameters
    ----------
    batch : array-like of shape (n,)
    labels : EncodedLabels
    name : str
        The parameter's name, for error messages: "batch" or "groups".

    Examples
    --------
    >>> labels = EncodedLabels(np.arange(2), np.array([0, 1, -1]))
    >>> encode_batches(["run 2", "run 1", "run 3"], labels)
    array([ 1,  0, -1])
    """
    values, inside = label_array(batch, name), labels.clusters >= 0
    if values.ndim != 1 or len(values) != len(inside):
        got = len(values) if values.ndim == 1 else f"shape {values.shape}"
        raise InputError(
            f"X has {len(inside)} observations but {name} has {got}; "
            f"pass one {name.removesuffix('s')} for each row of X."
        )
    missing = is_missing(values) & inside
    if missing.any():
        raise InputError(
            f"{name} is missing (-1, NaN or empty) for {int(missing.sum())} of {len(values)} "
            f"observations, the first in row {int(missing.argmax())}; fill it in, or set their "
            "labels to -1 (noise)."
        )
    comparable = values if values.dtype.kind in "iubfU" else values.astype(str)
    codes = np.full(len(values), -1, np.int64)
    codes[inside] = np.unique(comparable[inside], return_inverse=True)[1]
    return codes


def refuse_other_order(X: Any, **others: Any) -> None:
    """Raise an error if something has the same pandas index as X, but in another order.

    Values are matched by position, as in scikit-learn, and would belong to other rows.

    Parameters
    ----------
    X : object
        Compared only if it is a pandas object.
    **others : object
        What belongs to the rows of X, by the name of the parameter.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"x": [1.5, 2.5]}, index=["a", "b"])
    >>> refuse_other_order(X, labels=pd.Series([7, 8], index=["a", "b"]))
    >>> refuse_other_order(X, labels=pd.Series([8, 7], index=["b", "a"]))
    Traceback (most recent call last):
    unsplit.errors.InputError: labels has the index of X in another order; pass labels.loc[X.index].
    """
    if not hasattr(X, "iloc"):
        return
    for name, other in others.items():
        if not hasattr(other, "iloc") or X.index.equals(other.index):
            continue
        known = X.index.is_unique and other.index.is_unique and len(X.index) == len(other.index)
        if known and other.index.isin(X.index).all():
            raise InputError(
                f"{name} has the index of X in another order; pass {name}.loc[X.index]."
            )


def like(values: Any, given: Any, name: str) -> Any:
    """Return values as a pandas Series with the index of what was given, if that is a Series.

    Parameters
    ----------
    values : ndarray of shape (n,)
    given : object
    name : str
        The name of the Series.

    Examples
    --------
    >>> import pandas as pd
    >>> like([0, 1], pd.Series(["u", "v"], index=["a", "b"]), "cluster").to_dict()
    {'a': 0, 'b': 1}
    >>> like([0, 1], ["u", "v"], "cluster")
    [0, 1]
    """
    if not hasattr(given, "iloc") or getattr(given, "ndim", 0) != 1:
        return values
    return type(given)(values, index=given.index, name=name)


# By name, because none of these packages needs to be installed.  NumPy would take such objects for
# sequences and read them cell by cell, without an end in sight.
CONTAINERS = ("AnnData", "Raw", "BaseCompressedSparseDataset", "MuData", "SpatialData")
PACKAGES = ("anndata", "mudata", "spatialdata")


def refuse_annotated(X: Any, name: str = "X") -> None:
    """Raise an error if X is an AnnData or a similar container, which is not an array.

    Examples
    --------
    >>> refuse_annotated([[1.0, 2.0]])
    >>> class AnnData:
    ...     __module__ = "anndata"
    >>> refuse_annotated(AnnData())
    Traceback (most recent call last):
    unsplit.errors.InputError: X is an AnnData, not an array; write unsplit.anndata.merge(adata, ...
    """
    if any(b.__name__ in CONTAINERS and b.__module__.startswith(PACKAGES) for b in type(X).__mro__):
        kind = type(X).__name__.lstrip("_")
        article = "an" if kind[0] in "AEIOU" else "a"
        raise InputError(
            f"{name} is {article} {kind}, not an array; write unsplit.anndata.merge(adata, "
            "groupby='leiden') to merge the clusters of an AnnData, or pass one of its arrays in "
            "memory, such as adata.obsm['X_pca']."
        )


# --- names of merged clusters ---------------------------------------------------------------------

# Of more members a name has the first ones only.
MOST_NAMED = 4


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Sort key that puts "2" before "10".

    Examples
    --------
    >>> sorted(["10", "2", "b"], key=natural)
    ['2', '10', 'b']
    """
    parts = re.split(r"(\d+)", name)
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def merged_names(names: Sequence[str], groups: Index) -> list[str]:
    """Names of merged clusters after their members in natural order, all different.

    ``groups`` has the number of the merged cluster of each name.  Whatever its number, a merged
    cluster with the same members has the same name.

    Examples
    --------
    >>> merged_names(["10", "2", "3"], np.array([0, 0, 1]))
    ['2 + 10', '3']
    """
    members: list[list[str]] = [[] for _ in range(int(groups.max(initial=-1)) + 1)]
    of_names = zip(names, groups.tolist(), strict=True)
    for name, group in sorted(of_names, key=lambda one: natural(one[0])):
        members[group].append(name)
    for own in members:
        if len(own) > MOST_NAMED:
            own[MOST_NAMED - 1 :] = [f"{len(own) - MOST_NAMED + 1} more"]
    return all_different([" + ".join(own) for own in members])


def all_different(names: Sequence[str]) -> list[str]:
    """Names with a mark added to those that came before: a cluster may be called "a + b" itself.

    Examples
    --------
    >>> all_different(["a", "b", "a"])
    ['a', 'b', "a'"]
    """
    found: dict[str, None] = {}
    for name in names:
        while name in found:
            name += "'"
        found[name] = None
    return list(found)


def named_after_origin(refined: Index, merged: Index) -> tuple[Index, list[int]]:
    """Number refined clusters in the order of the merged clusters that they come from.

    A refined cluster comes from the merged cluster of most of its observations.  Returns the new
    number of every observation's refined cluster, −1 for noise, and the merged cluster that each
    number comes from.

    Examples
    --------
    >>> named_after_origin(np.array([5, 5, 2, -1]), np.array([0, 0, 1, 1]))
    (array([ 0,  0,  1, -1]), [0, 1])
    """
    inside = refined >= 0
    numbers, place = np.unique(refined[inside], return_inverse=True)
    shared = np.zeros((len(numbers), int(merged.max(initial=0)) + 1), np.int64)
    np.add.at(shared, (place, merged[inside]), 1)
    origins = shared.argmax(axis=1)
    order = np.argsort(origins, kind="stable")
    moved = np.full(len(refined), -1, np.int64)
    moved[inside] = np.argsort(order)[place]
    return moved, origins[order].tolist()
