"""Cluster labels: integers or strings, with noise and missing values."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index
from unsplit.errors import InputError


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
    values = labels.clusters if isinstance(labels, EncodedLabels) else np.asarray(labels)
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
    if noise.all():
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


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which labels mean noise: −1, "-1", empty and missing values.

    Parameters
    ----------
    values : ndarray of shape (n,)

    Examples
    --------
    >>> is_missing(np.array([3, -1, 0]))
    array([False,  True, False])
    """
    if values.dtype.kind in "iub":
        return values == -1
    if values.dtype.kind == "f":
        return np.isnan(values) | (values == -1)
    return np.array([_is_gap(v) or v in _NOISE for v in values.astype(object)], bool)


_NOISE = (-1, "-1", "", b"-1", b"")


def _is_gap(value: Any) -> bool:
    # None, NaN, NaT and pandas' NA, without needing pandas.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and value != value


def _comparable(values: NDArray[Any]) -> NDArray[Any]:
    """Return labels as integers or strings, which can be sorted and stored without pickle."""
    if values.dtype.kind in "iubU":
        return values
    if values.dtype.kind == "S":
        return values.astype(str)
    if all(isinstance(v, (int, float, np.integer, np.floating)) for v in values.astype(object)):
        return _whole_numbers(values)
    if values.dtype.kind == "c":
        raise InputError("labels must be integers or strings, got complex numbers.")
    return values.astype(str)


def _whole_numbers(values: NDArray[Any]) -> NDArray[np.int64]:
    for value in values:
        if not abs(value) < 2**53 or value != int(value):
            raise InputError(
                f"labels must be integers or strings, got the number {value!s}; "
                "convert measurements to cluster names first."
            )
    return values.astype(np.int64)
