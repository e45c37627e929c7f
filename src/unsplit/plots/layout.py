"""Where the leaves and branches of a tree stand, from left to right."""

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.merging.tree import MergeTree

Floats = NDArray[np.float64]


def places(tree: MergeTree, n_folded: int = 0) -> Index:
    """Leftmost place below every node, shape (2k − 1,), left side of a merge first as in SciPy.

    What the first ``n_folded`` merges made counts as one leaf; nodes inside it have −1.  Two loops
    and no recursion: a chain of thousands of merges is as deep as it is long.
    """
    k = tree.n_initial
    steps = range(n_folded, k - 1)
    width, first = np.ones(2 * k - 1, np.int64), np.full(2 * k - 1, -1)
    for step in steps:
        merge = tree.merges[step]
        width[k + step] = width[merge.left] + width[merge.right]
    first[-1] = 0
    for step in reversed(steps):
        merge = tree.merges[step]
        first[merge.left] = first[k + step]
        first[merge.right] = first[k + step] + width[merge.left]
    return first


def leaf_order(tree: MergeTree) -> Index:
    """Initial clusters from left to right, shape (k,)."""
    return np.argsort(places(tree)[: tree.n_initial])


def new_clusters(tree: MergeTree) -> Index:
    """New cluster that every node lies in, shape (2k − 1,); −1 for nodes beyond the cut."""
    k = tree.n_initial
    clusters = np.append(tree.groups, np.full(k - 1, -1))
    for step in np.flatnonzero(tree.taken):
        clusters[k + step] = clusters[tree.merges[step].left]
    return clusters


def node_heights(tree: MergeTree) -> Floats:
    """Height of every node, shape (2k − 1,); the leaves hang a little below everything else.

    Otherwise merges at zero, the surest of all, would vanish in the axis.  Zero is shown unless
    all merges are far from it: then the leaves hang from the first.
    """
    heights = np.array([merge.height for merge in tree.merges])
    low, high = heights.min(initial=np.inf), heights.max(initial=0.0)
    if low < high / 2 or low >= high:
        low = min(low, 0.0)
    base = low - 0.04 * ((high - low) or 1.0)
    return np.append(np.full(tree.n_initial, base), heights)
