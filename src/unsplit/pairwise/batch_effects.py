"""Compare clusters within batches, so that batch effects do not count as differences.

The network learns to tell *subclusters* apart: the part of one cluster in one batch.  The score of
an observation of batch b for cluster i is the output for subcluster (i, b).  Differences of such
scores estimate log density ratios within the batch, however much the batches differ.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index, Matrix
from unsplit.data.labels import EncodedLabels, is_missing, label_array
from unsplit.errors import BatchWarning, InputError


@dataclass(frozen=True, eq=False)
class Subclusters:
    """The parts of clusters in batches.  With one batch, subclusters are the clusters.

    Parameters
    ----------
    of_rows : ndarray of shape (n,)
        Subcluster of every row; −1 for noise.
    cluster, batch : ndarrays of shape (C,)
        Cluster and batch of every subcluster, ordered by batch, then by cluster.
    """

    of_rows: Index
    cluster: Index
    batch: Index

    @classmethod
    def cut(cls, clusters: Index, batches: Index) -> "Subclusters":
        """Cut clusters by batch.

        Parameters
        ----------
        clusters, batches : ndarrays of shape (n,)
            Cluster and batch of every row, numbered from 0; the cluster is −1 for noise.

        Examples
        --------
        >>> subclusters = Subclusters.cut(np.array([0, 1, 1, -1]), np.array([0, 0, 1, 1]))
        >>> subclusters.of_rows, subclusters.cluster, subclusters.batch
        (array([ 0,  1,  2, -1]), array([0, 1, 1]), array([0, 0, 1]))
        """
        inside = clusters >= 0
        k = int(clusters.max()) + 1
        occurring, index = np.unique((batches * k + clusters)[inside], return_inverse=True)
        of_rows = np.full(len(clusters), -1, np.int64)
        of_rows[inside] = index
        return cls(of_rows, occurring % k, occurring // k)

    def joined(self, groups: Index) -> tuple["Subclusters", Index]:
        """Merge clusters into groups; the new subclusters, and where each old one went.

        ``groups`` has the new cluster of each cluster, numbered from 0.
        """
        k = int(groups.max()) + 1
        key = self.batch * k + groups[self.cluster]
        occurring, index = np.unique(key, return_inverse=True)
        of_rows = np.where(self.of_rows < 0, -1, index[self.of_rows])
        return Subclusters(of_rows, occurring % k, occurring // k), index

    @property
    def n_batches(self) -> int:
        """Number of batches, B."""
        return int(self.batch.max()) + 1

    @cached_property
    def sizes(self) -> Index:
        """Number of observations in each subcluster, shape (C,)."""
        return np.bincount(self.of_rows[self.of_rows >= 0], minlength=len(self.cluster))

    @property
    def table(self) -> Index:
        """Number of observations of each cluster in each batch, shape (B, k)."""
        table = np.zeros((self.n_batches, int(self.cluster.max()) + 1), np.int64)
        table[self.batch, self.cluster] = self.sizes
        return table


def encode_batches(batch: ArrayLike, labels: EncodedLabels) -> Index:
    """Number the batches from 0; noise gets −1.

    Parameters
    ----------
    batch : array-like of shape (n,)
    labels : EncodedLabels

    Examples
    --------
    >>> labels = EncodedLabels(np.arange(2), np.array([0, 1, -1]))
    >>> encode_batches(["run 2", "run 1", "run 3"], labels)
    array([ 1,  0, -1])
    """
    values, inside = label_array(batch, "batch"), labels.clusters >= 0
    if values.ndim != 1 or len(values) != len(inside):
        got = len(values) if values.ndim == 1 else f"shape {values.shape}"
        raise InputError(
            f"X has {len(inside)} observations but batch has {got}; "
            "pass one batch for each row of X."
        )
    missing = is_missing(values) & inside
    if missing.any():
        raise InputError(
            f"batch is missing (-1, NaN or empty) for {int(missing.sum())} of {len(values)} "
            f"observations, the first in row {int(missing.argmax())}; fill it in, or set their "
            "labels to -1 (noise)."
        )
    comparable = values if values.dtype.kind in "iubfU" else values.astype(str)
    codes = np.full(len(values), -1, np.int64)
    codes[inside] = np.unique(comparable[inside], return_inverse=True)[1]
    return codes


def check_overlap(
    subclusters: Subclusters, names: NDArray[np.generic], consequence: str, required: bool = True
) -> None:
    """Raise an error if no two clusters share a batch; warn if some pairs do not.

    Parameters
    ----------
    subclusters : Subclusters
    names : ndarray of shape (k,)
        Names of the clusters.
    consequence : str
        The end of the warning: what this means for such pairs.
    required : bool
        Whether it is an error that no two clusters share a batch.
    """
    # A single observation cannot be held out, so it does not count.
    table = np.where(subclusters.table > 1, subclusters.table, 0)
    unknown = np.argwhere(np.triu(~comparable_pairs(table), 1))
    n_pairs = len(names) * (len(names) - 1) // 2
    if len(unknown) == n_pairs and required:
        raise InputError(
            "no two clusters share a batch with at least two observations of each, so no pair can "
            "be compared within a batch; leave batch out, or use batches that clusters share."
        )
    if len(unknown):
        named = ", ".join(f"{names[i]}–{names[j]}" for i, j in unknown[:3])
        warnings.warn(
            f"{len(unknown)} of {n_pairs} pairs of clusters share no batch with at least two "
            f"observations of each ({named}{', …' if len(unknown) > 3 else ''}), so {consequence}.",
            BatchWarning,
            stacklevel=5,
        )


def comparable_pairs(counts: Index) -> NDArray[np.bool_]:
    """Whether two clusters share a batch, shape (k, k), given their counts (B, k)."""
    return shared_batches(counts) > 0


def shared_batches(counts: Index) -> Index:
    """Number of batches that two clusters share, shape (k, k), given their counts (B, k)."""
    occurs = (counts > 0).astype(np.int64)
    return occurs.T @ occurs


def pair_weights(counts: Index) -> Matrix:
    """Weight of one batch for every pair, n_i n_j / (n_i + n_j), given its counts (k,).

    Both directions of a pair have the same weight.  A network that favours the larger of two
    subclusters then gains on one side what it loses on the other, and the mean over batches is
    unbiased.

    Examples
    --------
    >>> pair_weights(np.array([10, 40, 0]))[0]
    array([5., 8., 0.])
    """
    n = counts.astype(float)
    return n[:, None] * n / np.maximum(n[:, None] + n, 1)


def effective_counts(counts: Index) -> Matrix:
    """Effective number of observations of i in the comparison with j, shape (k, k).

    A weighted mean over batches, with weights v_b that sum to 1 and n_b observations, has the
    variance Σ v_b² / n_b: the same as a plain mean of 1 / Σ(v_b² / n_b) observations.

    Examples
    --------
    >>> float(effective_counts(np.array([[10, 10], [10, 10]]))[0, 1])  # as without batches
    20.0
    """
    k = counts.shape[1]
    total, squares = np.zeros((k, k)), np.zeros((k, k))
    for n in counts:
        weights = pair_weights(n)
        total += weights
        squares += weights**2 / np.maximum(n, 1)[:, None]
    return np.divide(total**2, squares, out=np.zeros((k, k)), where=squares > 0)
