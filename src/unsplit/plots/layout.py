"""Positions of the leaves and merges of a tree, from left to right."""

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.merging.tree import MergeTree

Floats = NDArray[np.float64]


def places(tree: MergeTree, n_folded: int = 0) -> Index:
    """Return the position of the leftmost leaf of every node, shape (2k − 1,).

    The left side of a merge comes first, as in SciPy.  A cluster made by the first ``n_folded``
    merges counts as one leaf; nodes inside it have −1.  There is no recursion, because a tree can
    be thousands of merges deep.
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
    """Return the initial clusters from left to right, shape (k,)."""
    return np.argsort(places(tree)[: tree.n_initial])


def members_of(tree: MergeTree, node: int) -> Index:
    """Return the initial clusters in a node, sorted."""
    k, found, open_nodes = tree.n_initial, [], [node]
    while open_nodes:
        node = open_nodes.pop()
        if node < k:
            found.append(node)
        else:
            open_nodes += [tree.merges[node - k].left, tree.merges[node - k].right]
    return np.sort(found)


def new_clusters(tree: MergeTree) -> Index:
    """Return the new cluster of every node, shape (2k − 1,); −1 for merges not made."""
    k = tree.n_initial
    clusters = np.append(tree.groups, np.full(k - 1, -1))
    for step in np.flatnonzero(tree.taken):
        clusters[k + step] = clusters[tree.merges[step].left]
    return clusters


def node_heights(tree: MergeTree) -> Floats:
    """Return the height of every node, shape (2k − 1,); leaves lie a little below all merges.

    Otherwise merges at height zero would be hidden by the axis.  The axis includes zero unless all
    merges are far above it.
    """
    heights = np.array([merge.height for merge in tree.merges])
    low, high = heights.min(initial=np.inf), heights.max(initial=0.0)
    if low < high / 2 or low >= high:
        low = min(low, 0.0)
    base = low - 0.04 * ((high - low) or 1.0)
    return np.append(np.full(tree.n_initial, base), heights)
