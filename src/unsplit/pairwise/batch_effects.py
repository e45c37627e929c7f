"""Batches: clusters are compared within each, so that a batch effect is no difference.

The network tells *subclusters* apart, the parts of clusters in batches, and an observation of batch
b is scored for cluster i by the output of subcluster (i, b).  Score differences of one batch are
then log density ratios within it, whatever else differs between batches.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index, Matrix
from unsplit.data.labels import EncodedLabels, is_missing
from unsplit.errors import BatchWarning, InputError


@dataclass(frozen=True, eq=False)
class Subclusters:
    """Clusters cut up by batch.  With one batch, subclusters are clusters.

    Parameters
    ----------
    of_rows : ndarray of shape (n,)
        Subcluster of every row; −1 for noise.
    cluster, batch : ndarrays of shape (C,)
        Of every subcluster that occurs, ordered by batch, then by cluster.
    """

    of_rows: Index
    cluster: Index
    batch: Index

    @classmethod
    def cut(cls, clusters: Index, batches: Index) -> "Subclusters":
        """Subclusters of rows with these clusters and batches, both numbered from 0; −1 for noise.

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
        """Subclusters of groups of the clusters, and the new one that each old one is in."""
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
        """Observations of each subcluster, shape (C,)."""
        return np.bincount(self.of_rows[self.of_rows >= 0], minlength=len(self.cluster))

    @property
    def table(self) -> Index:
        """Observations of each cluster in each batch, shape (B, k)."""
        table = np.zeros((self.n_batches, int(self.cluster.max()) + 1), np.int64)
        table[self.batch, self.cluster] = self.sizes
        return table


def encode_batches(batch: ArrayLike, labels: EncodedLabels) -> Index:
    """Turn batches into indices; rows that are noise get −1.

    Examples
    --------
    >>> labels = EncodedLabels(np.arange(2), np.array([0, 1, -1]))
    >>> encode_batches(["run 2", "run 1", "run 3"], labels)
    array([ 1,  0, -1])
    """
    values, inside = np.asarray(batch), labels.clusters >= 0
    if values.ndim != 1 or len(values) != len(inside):
        got = len(values) if values.ndim == 1 else f"shape {values.shape}"
        raise InputError(
            f"X has {len(inside)} observations but batch has {got}; "
            "pass one batch for each row of X."
        )
    missing = is_missing(values) & inside
    if missing.any():
        raise InputError(
            f"batch is missing (-1, NaN or empty) for {int(missing.sum())} observations, the first "
            f"in row {int(missing.argmax())}; fill it in, or make their label noise."
        )
    comparable = values if values.dtype.kind in "iubfU" else values.astype(str)
    codes = np.full(len(values), -1, np.int64)
    codes[inside] = np.unique(comparable[inside], return_inverse=True)[1]
    return codes


def check_overlap(subclusters: Subclusters, names: NDArray[np.generic], consequence: str) -> None:
    """Refuse batches in which no two clusters meet; warn of the consequence if some never do."""
    table = np.where(
        subclusters.table > 1, subclusters.table, 0
    )  # one observation cannot be held out
    unknown = np.argwhere(np.triu(~comparable_pairs(table), 1))
    n_pairs = len(names) * (len(names) - 1) // 2
    if len(unknown) == n_pairs:
        raise InputError(
            "no two clusters have a batch in common with two observations of each, so nothing can "
            "be compared within a batch; leave batch out, or use batches that clusters share."
        )
    if len(unknown):
        named = ", ".join(f"{names[i]}–{names[j]}" for i, j in unknown[:3])
        warnings.warn(
            f"{len(unknown)} of {n_pairs} pairs of clusters have no batch in common with two "
            f"observations of each ({named}{', …' if len(unknown) > 3 else ''}), so {consequence}.",
            BatchWarning,
            stacklevel=5,
        )


def comparable_pairs(counts: Index) -> NDArray[np.bool_]:
    """Whether two clusters meet in some batch, shape (k, k), by their counts (B, k)."""
    return shared_batches(counts) > 0


def shared_batches(counts: Index) -> Index:
    """In how many batches two clusters meet, shape (k, k), by their counts (B, k)."""
    occurs = (counts > 0).astype(np.int64)
    return occurs.T @ occurs


def pair_weights(counts: Index) -> Matrix:
    """What one batch counts for every pair, n_i n_j / (n_i + n_j), by its counts (k,).

    The same for both directions of a pair: a network that leans towards the larger of two
    subclusters gains on one side what it loses on the other, and the mean over batches stays
    without bias.

    Examples
    --------
    >>> pair_weights(np.array([10, 40, 0]))[0]
    array([5., 8., 0.])
    """
    n = counts.astype(float)
    return n[:, None] * n / np.maximum(n[:, None] + n, 1)


def effective_counts(counts: Index) -> Matrix:
    """How many observations of i a mean over batches against j is worth, shape (k, k).

    Weights v_b and n_b observations give a variance of Σ v_b² / n_b, as 1/Σ(v_b²/n_b) would.

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
