"""Which clusters will be merged if no rule objects, so that evidence can be computed in advance.

All pairs of clusters that are each other's nearest are merged at once, and again, until the nearest
are too far apart.  This gives the tree of the closest pairs in a few rounds of NumPy.
"""

from dataclasses import dataclass

import numpy as np

from unsplit._typing import Index, Matrix
from unsplit.merging.sparse.rounds import PairTable


@dataclass(frozen=True, eq=False)
class Foreseen:
    """Merges in the order of their distances; each makes the next node, as in a SciPy linkage.

    Parameters
    ----------
    left, right : ndarrays of shape (m,)
        Nodes; the first k are slots.
    heights : ndarray of shape (m,)
        The distances; never less than those of the merges below.
    """

    left: Index
    right: Index
    heights: Matrix


def foreseen_merges(table: PairTable, limit: float) -> Foreseen:
    """The merges of pairs that are nearer than a limit.

    Parameters
    ----------
    table : PairTable
        It is not changed.
    limit : float

    Examples
    --------
    >>> from unsplit.merging.sparse.rounds import pair_table
    >>> left, right, distances = np.array([[0, 1, 0.1], [0, 2, 0.6], [2, 3, 0.2]]).T
    >>> table = pair_table(4, left.astype(int), right.astype(int), distances, "average")
    >>> found = foreseen_merges(table, 0.5)
    >>> found.left, found.right
    (array([0, 2]), array([1, 3]))
    """
    table, k = table.copy(), len(table.n_members)
    node, height = np.arange(k), np.zeros(k)
    merges: list[tuple[Index, Index, Matrix]] = []
    n_nodes = k
    while len(pairs := table.mutual(limit)):
        a, b = table.left[pairs], table.right[pairs]
        at = np.maximum(table.distances[pairs], np.maximum(height[a], height[b]))
        merges.append((node[a], node[b], at))
        node[a] = n_nodes + np.arange(len(a))
        n_nodes += len(a)
        height[a] = at
        table.merge(a, b)
    return _in_order(merges, k)


def _in_order(merges: list[tuple[Index, Index, Matrix]], k: int) -> Foreseen:
    """Put the merges of all rounds in the order of their heights, and number nodes again."""
    if not merges:
        return Foreseen(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    left, right, height = (np.concatenate(parts) for parts in zip(*merges, strict=True))
    order = np.argsort(height, kind="stable")  # later rounds stay behind those they build on
    number = np.concatenate([np.arange(k), np.empty(len(order), np.int64)])
    number[k + order] = k + np.arange(len(order))
    return Foreseen(number[left[order]], number[right[order]], height[order])
