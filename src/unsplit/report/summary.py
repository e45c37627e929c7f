"""What a command or a notebook says about a result: the result, the reason, what to check."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from unsplit._typing import Index
from unsplit.data.labels import encode_labels
from unsplit.data.readers.tables import listing
from unsplit.merging.decision import UNCLEAR, Merge
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.tree import MergeTree, members_of_nodes
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots.style import counted, short_name
from unsplit.report.sections import CUT_OUT_OF_FEATURES

if TYPE_CHECKING:
    from unsplit.data.readers.observations import Observations

N_CLOSEST = 8
N_FEATURES = 8


def of_merge(
    tree: MergeTree, n_noise: int, requested: bool = False, where: str = "review.csv"
) -> list[str]:
    """Say how many clusters became how many, and then why, how stable and how clear that is.

    ``requested`` is whether the user said how many clusters there should be, ``where`` the table of
    pairs to check.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], max_tvd=0.5)
    >>> for line in of_merge(tree, n_noise=0):
    ...     print(line)
    Merged 3 clusters into 2.
      Merging stopped because every remaining pair has a TVD above 0.5.
      2 of 2 pairs are unclear and come first in review.csv: look at 0 and 1 (merged).
    """
    as_requested = ", as requested" if requested else ""
    headline = f"Merged {tree.n_initial:,} clusters into {tree.n_clusters:,}{as_requested}."
    if not tree.taken.any():
        apart = counted(tree.n_initial, "cluster")
        headline = f"Merged nothing: all {apart} stayed apart{as_requested}."
    lines = [] if requested else [f"Merging stopped because {tree.stopped}."]
    lines += [known for known in (tree.how_separated, tree.how_stable) if known is not None]
    lines.append(_of_review(tree, where))
    if tree.strategy == "neighbours":
        lines.append(CUT_OUT_OF_FEATURES)
    if n_noise:
        lines.append(
            f"{counted(n_noise, 'observation')} labelled as noise stayed noise (label -1)."
        )
    return [headline, *(f"  {line}" for line in lines)]


def _of_review(tree: MergeTree, where: str) -> str:
    """Say how many pairs are unclear, and name the first of them."""
    unclear = [row for row in tree.reviewed if row.pair.verdict == UNCLEAR]
    n_pairs = counted(len(tree.reviewed), "pair")
    if not unclear:
        return f"The evidence is clear for all {n_pairs} in {where}."
    come = "is unclear and comes" if len(unclear) == 1 else "are unclear and come"
    first = unclear[0]
    return (
        f"{len(unclear):,} of {n_pairs} {come} first in {where}: look at "
        f"{_pair(tree, first.pair)} ({first.done})."
    )


def of_cells(read: "Observations") -> str:
    """Say by which matrix cells were compared."""
    n, d = read.X.shape
    return f"Compared {n:,} cells by {read.representation} ({d:,} features)."


def of_sample(graph: NeighbourGraph | None) -> list[str]:
    """Say that edges were counted on a sample, and what is left out because of it.

    Examples
    --------
    >>> of_sample(None)
    []
    """
    if graph is None or graph.sampled_from is None:
        return []
    return [
        f"Neighbours were found in a sample of {graph.counted} observations, so labels.csv has no "
        "column of refined labels."
    ]


def of_data(read: "Observations") -> list[str]:
    """Say what was read, before the work begins.

    Examples
    --------
    >>> from unsplit.data.readers.observations import Observations
    >>> of_data(Observations(np.eye(3), ["x", "y", "z"], np.arange(3), np.array([1, 1, 2])))[0]
    'Read 3 observations in 2 clusters.'
    """
    n_clusters = len(encode_labels(np.asarray(read.labels)).cluster_ids)
    counts = f"{counted(len(read.row_ids), 'observation')} in {counted(n_clusters, 'cluster')}"
    return [f"Read {counts}.", *of_features(read, "Using")]


def of_features(read: "Observations", verb: str = "Used") -> list[str]:
    """Name the columns of a table that were used as features, shortened if there are many.

    Examples
    --------
    >>> from unsplit.data.readers.observations import Observations
    >>> read = Observations(np.eye(3), ["x", "y", "z"], np.arange(3), None, left_out=("kind",))
    >>> of_features(read)
    ["Used 3 features: 'x', 'y', 'z'; left out: 'kind'."]
    """
    if read.feature_names is None:
        return []
    names = read.feature_names
    first = listing(names[:N_FEATURES], N_FEATURES)
    between = "" if len(names) <= N_FEATURES + 1 else " …,"
    last = f",{between} {listing(names[-1:])}" if len(names) > N_FEATURES else ""
    left_out = f"; left out: {listing(read.left_out)}" if read.left_out else ""
    return [f"{verb} {counted(len(names), 'feature')}: {first}{last}{left_out}."]


def of_distances(distances: PairwiseTVD) -> list[str]:
    """Say how many pairs were compared, and list the closest."""
    k = distances.n_clusters
    table = distances.table()
    names = [
        f"{short_name(a)} and {short_name(b)}"
        for a, b in zip(table["cluster_a"][:N_CLOSEST], table["cluster_b"][:N_CLOSEST], strict=True)
    ]
    width = max(map(len, ["closest pairs", *names]))
    lines = [
        f"Compared {counted(k * (k - 1) // 2, 'pair')} of {counted(k, 'cluster')}.",
        f"The network tells two clusters apart with a mean accuracy of "
        f"{distances.mean_accuracy:.3f} (0.5 is chance).",
        "",
        f"  {'closest pairs':{width}}   TVD    95% interval     adjusted p",
    ]
    if distances.is_sparse:
        stored = f"{counted(len(distances.pairs), 'pair')} are ever confused and stored"
        lines.insert(1, f"{stored}; all others have the TVD 1.")
    for row, name in enumerate(names):
        tvd, low, high, p = (table[c][row] for c in ("tvd", "low", "high", "p_adjusted"))
        lines.append(f"  {name:{width}}   {tvd:.3f}  {low:.3f} to {high:.3f}   {p:.2g}")
    return lines


def of_overclustering(labels: Index) -> str:
    """Say how many clusters were made, and of which sizes.

    Examples
    --------
    >>> of_overclustering(np.array([0, 0, 1, -1, 1, 1]))
    'Cut 6 observations into 2 clusters of 2 to 3 observations; 1 is in no cluster.'
    """
    sizes = np.unique(labels[labels >= 0], return_counts=True)[1]
    smallest, largest = sizes.min(), sizes.max()
    spread = "" if smallest == largest else f"{smallest:,} to "
    n_noise = int((labels < 0).sum())
    left_out = f"; {n_noise:,} {'is' if n_noise == 1 else 'are'} in no cluster" if n_noise else ""
    clusters = f"{counted(len(sizes), 'cluster')} of {spread}{counted(int(largest), 'observation')}"
    return f"Cut {counted(len(labels), 'observation')} into {clusters}{left_out}."


def _pair(tree: MergeTree, merge: Merge) -> str:
    members = members_of_nodes(tree.merges, tree.n_initial)
    return " and ".join(_side(tree, members[node]) for node in (merge.left, merge.right))


def _side(tree: MergeTree, members: Sequence[int]) -> str:
    names = [short_name(tree.cluster_ids[member]) for member in sorted(members)]
    more = f" + {len(names) - 3} more" if len(names) > 3 else ""
    together = " + ".join(names[:3]) + more
    return f"({together})" if len(names) > 1 else together
