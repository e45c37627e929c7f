"""Compare clusters within batches, so that batch effects do not count as differences.

The network learns to tell *subclusters* apart: the part of one cluster in one batch.  The score of
an observation of batch b for cluster i is the output for subcluster (i, b).  Differences of such
scores estimate log density ratios within the batch, however much the batches differ.
"""

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index, Matrix
from unsplit.data.labels import Subclusters
from unsplit.errors import BatchWarning, InputError, warn


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
        warn(
            f"{len(unknown)} of {n_pairs} pairs of clusters share no batch with at least two "
            f"observations of each ({named}{', …' if len(unknown) > 3 else ''}), so {consequence}.",
            BatchWarning,
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
