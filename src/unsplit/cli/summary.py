"""What the commands say at the end, in a few lines."""

from collections.abc import Sequence

import numpy as np

from unsplit._typing import Index
from unsplit.merging.review import BEYOND, UNCLEAR, Merge, members_of_nodes
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.result import PairwiseTVD

CLOSEST = 8
FIRST = 3


def of_merge(tree: MergeTree, n_noise: int) -> list[str]:
    """How many became how many, why no fewer, and how close the call was.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], max_tvd=0.5)
    >>> of_merge(tree, n_noise=0)[0]
    '3 clusters became 2, because every remaining pair has a TVD above 0.5.'
    """
    noise = f" {count(n_noise, 'observation')} stayed noise." if n_noise else ""
    n_taken = int(tree.taken.sum())
    became = f"became {tree.n_clusters:,}" if n_taken else "stayed apart"
    lines = [f"{count(tree.n_initial, 'cluster')} {became}, because {tree.stopped}.{noise}", ""]
    if n_taken:
        lines += _with_reason("last merge", tree, tree.merges[n_taken - 1])
    if n_taken < len(tree.merges):
        lines += _with_reason("not merged", tree, tree.merges[n_taken])
    return lines


def of_review(tree: MergeTree) -> list[str]:
    """How many pairs are unclear, and the first of them.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], max_tvd=0.5)
    >>> of_review(tree)[0]
    '2 of 2 pairs are unclear and come first in review.csv:'
    """
    unclear = [row for row in tree.reviewed if row.pair.verdict == UNCLEAR]
    of_all = f"of {count(len(tree.reviewed), 'pair')}"
    if not unclear:
        return [f"None {of_all} is unclear."]
    are = "is unclear and comes" if len(unclear) == 1 else "are unclear and come"
    lines = [f"{len(unclear):,} {of_all} {are} first in review.csv:"]
    return lines + [f"  {row.done:10}   {_of_step(tree, row.pair)}" for row in unclear[:FIRST]]


def of_distances(distances: PairwiseTVD) -> list[str]:
    """How many pairs there are, and a table of the closest."""
    k = distances.n_clusters
    table = distances.table()
    names = [
        f"{shortened(a)} – {shortened(b)}"
        for a, b in zip(table["cluster_a"][:CLOSEST], table["cluster_b"][:CLOSEST], strict=True)
    ]
    width = max(map(len, ["closest pairs", *names]))
    lines = [
        f"{count(k * (k - 1) // 2, 'pair')} of {count(k, 'cluster')}; mean accuracy "
        f"A {distances.mean_accuracy:.3f}.",
        "",
        f"  {'closest pairs':{width}}   TVD    95 % interval   adjusted p",
    ]
    for row, name in enumerate(names):
        tvd, low, high, p = (table[c][row] for c in ("tvd", "low", "high", "p_adjusted"))
        lines.append(f"  {name:{width}}   {tvd:.3f}  {low:.3f} – {high:.3f}   {p:.2g}")
    return lines


def of_overclustering(labels: Index) -> str:
    """How many clusters of which sizes.

    Examples
    --------
    >>> of_overclustering(np.array([0, 0, 1, -1, 1, 1]))
    '6 observations in 2 clusters of 2 to 3, 1 noise.'
    """
    sizes = np.unique(labels[labels >= 0], return_counts=True)[1]
    spread = f"{sizes.min():,}" + (f" to {sizes.max():,}" if sizes.min() < sizes.max() else "")
    n_noise = int((labels < 0).sum())
    return (
        f"{count(len(labels), 'observation')} in {count(len(sizes), 'cluster')} of {spread}"
        f"{f', {n_noise:,} noise' if n_noise else ''}."
    )


def count(n: int, thing: str) -> str:
    """A number and what it counts.

    Examples
    --------
    >>> count(1, "cluster"), count(1200, "pair")
    ('1 cluster', '1,200 pairs')
    """
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def shortened(name: object, most: int = 24) -> str:
    """A name that leaves room for others on the line."""
    text = str(name)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _of_step(tree: MergeTree, merge: Merge) -> str:
    members = members_of_nodes(tree.merges, tree.n_initial)
    left, right = (_side(tree, members[node]) for node in (merge.left, merge.right))
    return f"TVD {merge.tvd:.3f} ({merge.low:.3f} – {merge.high:.3f})   {left}  and  {right}"


def _with_reason(what: str, tree: MergeTree, merge: Merge) -> list[str]:
    indent = " " * (len(what) + 5)
    why = merge.why.removeprefix(BEYOND)
    return [f"  {what}   {_of_step(tree, merge)}", f"{indent}{why}"]


def _side(tree: MergeTree, members: Sequence[int]) -> str:
    names = [shortened(tree.cluster_ids[member]) for member in sorted(members)]
    return " + ".join(names[:3]) + (f" + {len(names) - 3} more" if len(names) > 3 else "")
