"""Which clusters will be merged if no rule objects, so that evidence can be computed in advance.

Under average, single and complete linkage, two clusters that are each other's nearest will be
merged, whatever is merged elsewhere before.  So all such pairs are merged at once, and again, until
the nearest are too far apart.  This gives the tree of the closest pairs in a few rounds of NumPy.
"""

from dataclasses import dataclass

import numpy as np

from unsplit._typing import Index, Matrix
from unsplit.merging.sparse.rankings import Ranked


@dataclass(frozen=True, eq=False)
class Foreseen:
    """Merges in the order of their distances; each makes the next node, as in a SciPy linkage.

    Parameters
    ----------
    left, right : ndarrays of shape (m,)
        Nodes; the first k are slots.
    """

    left: Index
    right: Index


def foreseen_merges(n_clusters: int, pairs: Ranked, method: str, limit: float) -> Foreseen:
    """The merges of pairs that are nearer than a limit.

    Parameters
    ----------
    n_clusters : int
    pairs : Ranked
        Distances of initial clusters; all other pairs have the distance 1.
    method : {"average", "single", "complete"}
    limit : float

    Examples
    --------
    >>> pairs = Ranked(np.array([0, 0, 2]), np.array([1, 2, 3]), np.array([0.1, 0.6, 0.2]))
    >>> found = foreseen_merges(4, pairs, "average", 0.5)
    >>> found.left, found.right
    (array([0, 2]), array([1, 3]))
    """
    left, right = pairs.left, pairs.right
    values, counts = _values(pairs.distances, method), np.ones(len(left))
    n_members, node = np.ones(n_clusters), np.arange(n_clusters)
    height = np.zeros(n_clusters)
    merges: list[tuple[Index, Index, Matrix]] = []
    n_nodes = n_clusters
    while True:
        distances = _distances(values, counts, n_members[left] * n_members[right], method)
        a, b, at = _mutual(n_clusters, left, right, distances, limit)
        if len(a) == 0:
            break
        at = np.maximum(at, np.maximum(height[a], height[b]))
        merges.append((node[a], node[b], at))
        node[a] = n_nodes + np.arange(len(a))
        n_nodes += len(a)
        n_members[a] += n_members[b]
        height[a] = at
        slot = np.arange(n_clusters)
        slot[b] = a
        left, right, values, counts = _joined(slot[left], slot[right], values, counts, method)
    return _in_order(merges, n_clusters)


def _values(distances: Matrix, method: str) -> Matrix:
    return 1 - distances if method == "average" else distances


def _distances(values: Matrix, counts: Matrix, n_pairs: Matrix, method: str) -> Matrix:
    if method == "average":
        return 1 - values / n_pairs
    return values if method == "single" else np.where(counts == n_pairs, values, 1.0)


def _mutual(
    k: int, left: Index, right: Index, distances: Matrix, limit: float
) -> tuple[Index, Index, Matrix]:
    """Pairs nearer than the limit that are each other's nearest, and their distances."""
    near = np.flatnonzero(distances < limit)
    sides = np.concatenate([left[near], right[near]])
    others = np.concatenate([right[near], left[near]])
    both = np.tile(distances[near], 2)
    # Among equals the pair that comes first, as in the search for the closest pair.
    order = np.lexsort((np.maximum(sides, others), np.minimum(sides, others), both, sides))
    first = order[np.concatenate([[True], np.diff(sides[order]) > 0])[: len(order)]]
    nearest = np.full(k, -1)
    nearest[sides[first]] = others[first]
    mutual = first[(nearest[others[first]] == sides[first]) & (sides[first] < others[first])]
    return sides[mutual], others[mutual], both[mutual]


def _joined(
    left: Index, right: Index, values: Matrix, counts: Matrix, method: str
) -> tuple[Index, Index, Matrix, Matrix]:
    """The pairs of merged slots, each once."""
    apart = left != right
    left, right, values, counts = left[apart], right[apart], values[apart], counts[apart]
    left, right = np.minimum(left, right), np.maximum(left, right)
    order = np.lexsort((right, left))
    left, right = left[order], right[order]
    first = np.flatnonzero(
        np.concatenate([[True], (np.diff(left) > 0) | (np.diff(right) > 0)])[: len(left)]
    )
    if len(first) == 0:
        return left, right, values, counts
    add = {"average": np.add, "single": np.minimum, "complete": np.maximum}[method]
    sums = np.add.reduceat(counts[order], first)
    return left[first], right[first], add.reduceat(values[order], first), sums


def _in_order(merges: list[tuple[Index, Index, Matrix]], k: int) -> Foreseen:
    """Put the merges of all rounds in the order of their heights, and number nodes again."""
    if not merges:
        return Foreseen(np.zeros(0, np.int64), np.zeros(0, np.int64))
    left, right, height = (np.concatenate(parts) for parts in zip(*merges, strict=True))
    order = np.argsort(height, kind="stable")  # later rounds stay behind those they build on
    number = np.concatenate([np.arange(k), np.empty(len(order), np.int64)])
    number[k + order] = k + np.arange(len(order))
    return Foreseen(number[left[order]], number[right[order]])
