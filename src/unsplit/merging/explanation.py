"""Why two initial clusters are together or apart, for one pair that a reader asks about."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unsplit.errors import InputError, shown
from unsplit.merging.decision import BEYOND
from unsplit.merging.review import Merge

MOST_NAMES = 8


@dataclass(frozen=True)
class Explanation:
    """Why two initial clusters are together or apart.

    Parameters
    ----------
    a, b : str
        Their names.
    together : bool
        Whether they are in the same cluster of this cut.
    step : int
        The merge of the tree that joins them, made or not.
    left, right : tuple of str
        The initial clusters on both sides of the pair that was judged; ``a`` is on the left.
    pair : Merge
        The evidence about that pair.
    reason : str
        Why it was merged or kept apart, in words.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> found = tree.why(1, 2)
    >>> found.together, found.step, found.left, found.right
    (False, 1, ('0', '1'), ('2',))
    """

    a: str
    b: str
    together: bool
    step: int
    left: tuple[str, ...]
    right: tuple[str, ...]
    pair: Merge
    reason: str

    @property
    def verdict(self) -> str:
        """The evidence in a word: same, probably same, unclear or different."""
        return self.pair.verdict

    def __str__(self) -> str:
        where = "one cluster" if self.together else "different clusters"
        done = f"step {self.step} merged" if self.together else "kept apart"
        lines = [
            f"{self.a} and {self.b} are in {where}",
            f"{done}: {_listed(self.left)} and {_listed(self.right)}",
            f"reason: {self.reason}",
            f"verdict: {self.verdict}",
        ]
        if not math.isnan(self.pair.stability):
            lines.append(f"stability: together in {self.pair.stability:.0%} of the re-merges")
        if not self.together:
            lines.append(f"step {self.step} of the tree would merge them")
        return "\n  ".join(lines)


def explained(
    tree: Any, known: Mapping[frozenset[int], tuple[Merge, bool]], a: Any, b: Any
) -> Explanation:
    """Do what :meth:`unsplit.MergeTree.why` does.

    Parameters
    ----------
    tree : MergeTree
    known : mapping of sets of two nodes to pairs
        The pairs of which the evidence is known, and whether merging had merged them.
    a, b : str or int
        Names of two initial clusters.
    """
    leaves = _leaf(tree, "a", a), _leaf(tree, "b", b)
    if leaves[0] == leaves[1]:
        raise InputError(f"a and b are both cluster {shown(a)}; name two different clusters.")
    step = _joining_step(tree, leaves)
    roots = [_root(tree, leaf) for leaf in leaves]
    together = roots[0] == roots[1]
    # A pair of clusters of this cut, if it was compared; otherwise the pair that joins them.
    joining = frozenset((tree.merges[step].left, tree.merges[step].right))
    pair, was_merged = known.get(frozenset(roots), known[joining])
    if together:
        pair = tree.merges[step]
    sides = sorted((pair.left, pair.right), key=lambda node: leaves[0] not in _below(tree, node))
    names = [tuple(str(tree.cluster_ids[i]) for i in sorted(_below(tree, n))) for n in sides]
    reason = _reason(pair, together, was_merged and not together)
    return Explanation(str(a), str(b), together, step, names[0], names[1], pair, reason)


def _reason(pair: Merge, together: bool, taken_apart: bool) -> str:
    if pair.stage == BEYOND:
        return f"{pair.because}; merged by this cut" if together else pair.because
    return f"{pair.why}; taken apart by a cut or an undo" if taken_apart else pair.why


def _leaf(tree: Any, name: str, cluster: Any) -> int:
    names = [str(one) for one in tree.cluster_ids.tolist()]
    if str(cluster) not in names:
        first = f"{', '.join(names[:MOST_NAMES])}{', …' if len(names) > MOST_NAMES else ''}"
        raise InputError(
            f"{name} names {shown(cluster)}, which is not a cluster of the tree; the clusters are "
            f"{first}."
        )
    return names.index(str(cluster))


def _joining_step(tree: Any, leaves: tuple[int, int]) -> int:
    """The first merge of the tree that has both leaves below it."""
    nodes, k = set(leaves), tree.n_initial
    for step, merge in enumerate(tree.merges):
        sides = {merge.left, merge.right}
        if nodes == sides:
            return step
        if nodes & sides:
            nodes = nodes - sides | {k + step}
    raise AssertionError("a tree joins all its clusters")


def _root(tree: Any, node: int) -> int:
    """The node of this cut that holds a node."""
    for step in np.flatnonzero(tree.taken).tolist():
        if node in (tree.merges[step].left, tree.merges[step].right):
            node = tree.n_initial + step
    return node


def _below(tree: Any, node: int) -> set[int]:
    """The initial clusters in a node."""
    found, nodes = set(), [node]
    while nodes:
        node = nodes.pop()
        if node < tree.n_initial:
            found.add(node)
        else:
            merge = tree.merges[node - tree.n_initial]
            nodes += [merge.left, merge.right]
    return found


def _listed(names: tuple[str, ...]) -> str:
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return " + ".join([*names[:MOST_NAMES], *more])
