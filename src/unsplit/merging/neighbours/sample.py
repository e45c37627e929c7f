"""Which observations the neighbour graph connects if there are very many."""

import numpy as np

from unsplit._typing import Index

# Of more observations than the first number, the graph connects a sample: as many as the second, or
# the third for each cluster if that is more, but at most about as many as the fourth, so that time
# and memory are bounded.  docs/scale.md says what this changes.
MOST_CONNECTED = 500_000
SAMPLED = 100_000
SAMPLED_A_CLUSTER = 20
MOST_SAMPLED = 5_000_000


def sample_of(clusters: Index, with_noise: bool) -> tuple[Index | slice, int | None]:
    """Choose the same share of every cluster if there are very many observations.

    Parameters
    ----------
    clusters : ndarray of shape (n,)
        Cluster of every observation; −1 for noise.  The first of each cluster are chosen, so the
        order should depend on nothing but the observations.
    with_noise : bool
        Whether noise is sampled as well.

    Returns
    -------
    chosen : ndarray or slice
        Positions of the chosen observations.
    n : int or None
        The number of observations that they were chosen from; None if all are chosen.

    Examples
    --------
    >>> sample_of(np.array([0, 0, 1, 1]), with_noise=False)
    (slice(None, None, None), None)
    >>> chosen, n = sample_of(np.repeat([0, 1], [10, 999_990]), with_noise=False)
    >>> len(chosen), n
    (100009, 1000000)
    """
    n = len(clusters) if with_noise else int((clusters >= 0).sum())
    if n <= MOST_CONNECTED:
        return slice(None), None
    sizes = np.bincount(clusters + 1)  # noise first
    k = len(sizes) - 1
    most = min(max(SAMPLED, SAMPLED_A_CLUSTER * k), MOST_SAMPLED)
    of_each = min(SAMPLED_A_CLUSTER, max(1, most // max(1, k)))
    share = np.ceil(sizes * min(1.0, most / n)).astype(np.int64)
    wanted = np.maximum(share, np.minimum(sizes, of_each))
    wanted[0] = share[0] if with_noise else 0
    order = np.argsort(clusters, kind="stable")
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen = np.sort(order[rank < np.repeat(wanted, sizes)])
    return (slice(None), None) if len(chosen) == n else (chosen, n)
