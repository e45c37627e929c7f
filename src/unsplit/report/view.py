"""The tree that a page draws: the whole one, or one whose first merges are folded."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.merging.review import Merge, Row, members_of_nodes
from unsplit.merging.tree import MergeTree

# More leaves than this can neither be drawn nor read on one page.
MOST_LEAVES = 500


@dataclass(frozen=True, eq=False)
class View:
    """A tree whose leaves are initial clusters, or clusters that its first merges made.

    Parameters
    ----------
    tree : MergeTree
        The whole tree.
    leaves : ndarray of shape (l,)
        Node of the whole tree that each leaf stands for.
    steps : ndarray of shape (l − 1,)
        Step of the whole tree for each merge that is drawn.
    """

    tree: MergeTree
    leaves: Index
    steps: Index

    @property
    def folded(self) -> bool:
        """Whether leaves stand for several clusters."""
        return len(self.leaves) < self.tree.n_initial

    @cached_property
    def members(self) -> list[list[int]]:
        """Initial clusters in each leaf, in order."""
        inside = members_of_nodes(self.tree.merges, self.tree.n_initial)
        return [sorted(inside[leaf]) for leaf in self.leaves.tolist()]

    @cached_property
    def leaf_of(self) -> Index:
        """Leaf of each initial cluster, shape (k,)."""
        found = np.empty(self.tree.n_initial, np.int64)
        for leaf, members in enumerate(self.members):
            found[members] = leaf
        return found

    @cached_property
    def nodes(self) -> dict[int, int]:
        """Number of each node in this view, by its number in the whole tree."""
        k = self.tree.n_initial
        found = {node: leaf for leaf, node in enumerate(self.leaves.tolist())}
        return found | {k + t: len(self.leaves) + i for i, t in enumerate(self.steps.tolist())}

    @cached_property
    def sizes(self) -> Index:
        """Observations in each leaf, shape (l,)."""
        return np.bincount(self.leaf_of, self.tree.sizes).astype(np.int64)

    @cached_property
    def merges(self) -> list[Merge]:
        """The merges that are drawn, with the nodes of this view."""
        return [self._renamed(self.tree.merges[step]) for step in self.steps.tolist()]

    @cached_property
    def taken(self) -> list[bool]:
        """Whether each merge that is drawn is part of the result."""
        return [bool(self.tree.taken[step]) for step in self.steps.tolist()]

    def visible(self, rows: Iterable[Row]) -> list[tuple[Row, Row]]:
        """Those pairs whose two sides are nodes of this view, each as it is and renumbered."""
        step_of = {step: i for i, step in enumerate(self.steps.tolist())}
        return [
            (row, Row(self._renamed(row.pair), None if row.step is None else step_of[row.step]))
            for row in rows
            if row.pair.left in self.nodes and row.pair.right in self.nodes
        ]

    def averaged(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distances between leaves: means over their clusters, weighted by size."""
        if not self.folded:
            return matrix
        weights = self.tree.sizes / self.sizes[self.leaf_of]
        k = self.tree.n_initial
        mean = scipy.sparse.csr_array(
            (weights, (self.leaf_of, np.arange(k))), (len(self.leaves), k)
        )
        found = np.asarray(mean @ (mean @ np.nan_to_num(matrix, nan=1.0)).T)
        np.fill_diagonal(found, 0.0)
        return found

    def _renamed(self, merge: Merge) -> Merge:
        return replace(merge, left=self.nodes[merge.left], right=self.nodes[merge.right])


def view_of(tree: MergeTree, most: int = MOST_LEAVES) -> View:
    """Fold the first merges of a large tree, so that at most about ``most`` leaves are left.

    A merge that was undone is never folded, nor what was built on it.

    Parameters
    ----------
    tree : MergeTree
    most : int

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> view = view_of(tree, most=2)
    >>> view.members, view.merges[0].left, view.merges[0].right
    ([[0, 1], [2]], 0, 1)
    """
    k = tree.n_initial
    last = int(np.flatnonzero(tree.taken).max(initial=-1))
    whole = np.ones(2 * k - 1, bool)  # nodes of which every merge is folded
    whole[k:] = False
    for step in range(max(0, k - most)):
        merge = tree.merges[step]
        undone = step < last and not tree.taken[step]
        whole[k + step] = whole[merge.left] and whole[merge.right] and not undone
    drawn = np.flatnonzero(~whole[k:])
    below = {node for step in drawn.tolist() for node in _sides(tree.merges[step])}
    roots = [node for node in range(2 * k - 1) if whole[node] and node in below]
    inside = members_of_nodes(tree.merges, k)
    roots.sort(key=lambda node: min(inside[node]))
    return View(tree, np.array(roots or [2 * k - 2], np.int64), drawn)


def _sides(merge: Merge) -> tuple[int, int]:
    return merge.left, merge.right
