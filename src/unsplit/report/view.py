"""The tree that a page draws: the whole one, or one whose first merges are folded."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.merging.review import Merge, Row, members_of_nodes
from unsplit.merging.tree import MergeTree

# More leaves than this can neither be drawn nor read on one page.
MOST_LEAVES = 500


class View:
    """A tree whose leaves are initial clusters, or clusters that its first merges made.

    Parameters
    ----------
    tree : MergeTree
        The whole tree.
    most : int
        Of a larger tree the first merges are folded, so that about so many leaves are left.  A
        merge that was undone is never folded, nor what was built on it.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> view = View(tree, most=2)
    >>> view.members, view.merges[0].left, view.merges[0].right
    ([[0, 1], [2]], 0, 1)
    """

    def __init__(self, tree: MergeTree, most: int = MOST_LEAVES) -> None:
        self.tree = tree
        k, inside = tree.n_initial, members_of_nodes(tree.merges, tree.n_initial)
        # Steps of the whole tree that are drawn, and its nodes that are the leaves.
        self.steps, roots = _unfolded(tree, most)
        self.leaves = sorted(roots, key=lambda node: min(inside[node]))
        self.members = [sorted(inside[leaf]) for leaf in self.leaves]
        self.folded = len(self.leaves) < k
        self.leaf_of: Index = np.empty(k, np.int64)
        for leaf, members in enumerate(self.members):
            self.leaf_of[members] = leaf
        self.sizes = np.bincount(self.leaf_of, tree.sizes).astype(np.int64)
        self.weights = tree.sizes / self.sizes[self.leaf_of]  # of each cluster in its leaf
        drawn = [*self.leaves, *(k + step for step in self.steps)]
        self.nodes = {node: number for number, node in enumerate(drawn)}
        self.merges = [self._renamed(tree.merges[step]) for step in self.steps]
        self.leaves_in = members_of_nodes(self.merges, len(self.leaves))

    def visible(self, rows: Iterable[Row]) -> list[tuple[Row, Row]]:
        """Those pairs whose two sides are nodes of this view, each as it is and renumbered."""
        return [
            (row, replace(row, pair=self._renamed(row.pair), step=self._drawn(row.step)))
            for row in rows
            if row.pair.left in self.nodes and row.pair.right in self.nodes
        ]

    def averaged(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distances between leaves: means over their clusters, weighted by size."""
        if not self.folded:
            return matrix
        place = (self.leaf_of, np.arange(len(matrix)))
        mean = scipy.sparse.csr_array((self.weights, place), (len(self.leaves), len(matrix)))
        found = np.asarray(mean @ (mean @ np.nan_to_num(matrix, nan=1.0)).T)
        np.fill_diagonal(found, 0.0)
        return found

    def _renamed(self, merge: Merge) -> Merge:
        return replace(merge, left=self.nodes[merge.left], right=self.nodes[merge.right])

    def _drawn(self, step: int | None) -> int | None:
        k = self.tree.n_initial
        return None if step is None else self.nodes[k + step] - len(self.leaves)


def _unfolded(tree: MergeTree, most: int) -> tuple[list[int], list[int]]:
    """The steps that are not folded, and the nodes that they join first."""
    k, last = tree.n_initial, int(np.flatnonzero(tree.taken).max(initial=-1))
    whole = [True] * k  # nodes of which every merge is folded
    for step, merge in enumerate(tree.merges):
        undone = step < last and not tree.taken[step]
        whole.append(step < k - most and whole[merge.left] and whole[merge.right] and not undone)
    steps = [step for step in range(k - 1) if not whole[k + step]]
    below = {node for t in steps for node in (tree.merges[t].left, tree.merges[t].right)}
    return steps, [node for node in below if whole[node]] or [2 * k - 2]
