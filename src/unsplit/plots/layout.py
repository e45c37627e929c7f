"""What figures show of a tree: where leaves and merges stand, and how clusters are named."""

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.merging.limits import FEW
from unsplit.merging.tree import MergeTree
from unsplit.plots.style import LONGEST_NAME, short_name

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


def group_name(tree: MergeTree, cluster: int) -> str:
    """Return the number of a new cluster and what it was made of.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> group_name(tree, 0)
    '0: 2 clusters, largest 0'
    """
    members = np.flatnonzero(tree.groups == cluster)
    largest = short_name(_largest_member(tree, members))
    return f"{cluster}: {len(members):,} clusters, largest {largest}"


def name_of_several(tree: MergeTree, members: Index) -> str:
    """Name some initial clusters by the largest of them, in 24 characters.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> name_of_several(tree, np.array([1])), name_of_several(tree, np.array([0, 1]))
    ('1', '0 + 1 more')
    """
    rest = f" + {len(members) - 1:,} more" if len(members) > 1 else ""
    return short_name(_largest_member(tree, members), LONGEST_NAME - len(rest)) + rest


def _largest_member(tree: MergeTree, members: Index) -> str:
    return tree.name(int(members[np.argmax(tree.sizes[members])]))


def group_sizes(tree: MergeTree) -> Index:
    """Return the number of observations in each new cluster, shape (n_clusters,)."""
    return np.bincount(tree.groups, weights=tree.sizes).astype(np.int64)


def tiny_clusters(tree: MergeTree) -> NDArray[np.bool_]:
    """Return which initial clusters are too small to be compared well, shape (k,).

    If most clusters are that small, none stands out.
    """
    tiny = tree.sizes < FEW
    return tiny if 2 * tiny.sum() <= len(tiny) else np.zeros(len(tiny), bool)
