"""The sections of a page: each function returns the data that its section shows."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index
from unsplit.data.array_files import checksum
from unsplit.data.labels import natural
from unsplit.merging.decision import MUST_LINK, UNCLEAR, Merge
from unsplit.merging.tree import MergeTree, Row, members_of_nodes
from unsplit.pairwise.divergences import DIVERGENCES
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots.style import AXIS_LABELS, base_height, counted
from unsplit.report.collect import PER_CLUSTER, Kept, png, sheet, spread

# More leaves than this can neither be drawn nor read on one page.
MOST_LEAVES = 500
RANKED_BY = {name: one.caption for name, one in DIVERGENCES.items()} | {
    "distance": "the distances that were passed"
}
# Clusters made by k-means, Leiden and the like are the usual case, so this is not a warning.
CUT_OUT_OF_FEATURES = (
    "The clusters look like pieces that k-means or Leiden has cut out of the features. Any two "
    "such pieces can be told apart, so what counted is how closely neighbouring observations "
    "connect them. If the labels come from elsewhere, pass --labels-from elsewhere."
)

# Pairs that can be reviewed on one page, the most urgent ones.
MOST_PAIRS = 150
# Bars of the picture of a border, and observations of each side that it counts.
BARS = 31
MOST_AT_BORDER = 2_000
# Rows whose ids and clusters are part of the page, so that it can write their labels.
MOST_ROWS = 100_000
SHEET_COLUMNS = 40
# The largest 16-bit number means "unknown".
STEPS = 65_534

WORDS = ("verdict", "stage", "why")
NUMBERS = ("tvd", "low", "p_adjusted", "edges", "times_chance", "strength", "stability")


# --- the leaves that are drawn --------------------------------------------------------------------


class View:
    """A tree whose leaves are initial clusters, or clusters that its first merges made.

    Parameters
    ----------
    tree : MergeTree
        The whole tree.
    most : int
        Of a larger tree the first merges are folded, so that about this many leaves are left.  A
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
        k = tree.n_initial
        self.inside = inside = members_of_nodes(tree.merges, k)
        # Steps of the whole tree that are drawn, and its nodes that are the leaves.
        self.steps, roots = _unfolded(tree, most)
        self.leaves = sorted(roots, key=lambda node: min(inside[node]))
        self.members = [sorted(inside[leaf]) for leaf in self.leaves]
        self.folded = len(self.leaves) < k
        self.leaf_of: Index = np.empty(k, np.int64)
        for leaf, members in enumerate(self.members):
            self.leaf_of[members] = leaf
        self.sizes = np.bincount(self.leaf_of, tree.sizes).astype(np.int64)
        # Of each cluster in its leaf: multiplied by values of clusters, it makes means of leaves.
        weights, place = tree.sizes / self.sizes[self.leaf_of], (self.leaf_of, np.arange(k))
        self.mean = scipy.sparse.csr_array((weights, place), (len(self.leaves), k))
        drawn = [*self.leaves, *(k + step for step in self.steps)]
        self.nodes = {node: number for number, node in enumerate(drawn)}
        self.merges = [self.renamed(tree.merges[step]) for step in self.steps]
        self.leaves_in = members_of_nodes(self.merges, len(self.leaves))
        # Pairs to review are those whose two sides are nodes of this view.
        self.reviewed = [
            row for row in tree.reviewed if {row.pair.left, row.pair.right} <= self.nodes.keys()
        ][:MOST_PAIRS]

    def renamed(self, merge: Merge) -> Merge:
        """A merge or pair of the tree with the numbers of its nodes in this view."""
        return replace(merge, left=self.nodes[merge.left], right=self.nodes[merge.right])

    def averaged(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distances between leaves: means over their clusters, weighted by size."""
        if not self.folded:
            return matrix
        found = np.asarray(self.mean @ (self.mean @ np.nan_to_num(matrix, nan=1.0)).T)
        np.fill_diagonal(found, 0.0)
        return found


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


# --- numbers as short text ------------------------------------------------------------------------


def packed(values: ArrayLike, kind: Any = np.uint16) -> str:
    """Whole numbers as base64, little-endian.

    Examples
    --------
    >>> packed([1, 2])
    'AQACAA=='
    """
    array = np.asarray(values).astype(np.dtype(kind).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")


def shares(values: ArrayLike) -> str:
    """Numbers from 0 to 1 as 16-bit numbers in base64; NaN as 65,535.

    Examples
    --------
    >>> base64.b64decode(shares([0, 1, np.nan])).hex()
    '0000feffffff'
    """
    scaled = np.round(STEPS * np.clip(np.asarray(values, np.float64), 0.0, 1.0))
    return packed(np.nan_to_num(scaled, nan=STEPS + 1))


def rounded(value: float) -> float | None:
    """A number with four digits; None for NaN and infinity.

    Examples
    --------
    >>> rounded(0.123456), rounded(float("nan"))
    (0.1235, None)
    """
    return float(f"{value:.4g}") if math.isfinite(value) else None


# --- the answer -----------------------------------------------------------------------------------


def why_stopped(tree: MergeTree) -> str:
    """By which rule merging stopped, and what ranked the pairs."""
    ranked_by = f"Pairs were ranked by {RANKED_BY.get(tree.statistic, tree.statistic)}."
    more = CUT_OUT_OF_FEATURES if tree.strategy == "neighbours" else ranked_by
    return f"Merging stopped because {tree.stopped}. {more}"


def how_sure(rows: list[Row]) -> str:
    """How many pairs are clear, and how many a person should look at."""
    n, unclear = len(rows), _n_unclear(rows)
    if n == 0:
        return "There was no pair to compare."
    if all(math.isnan(row.pair.tvd) for row in rows):
        return "The distances came without scores, so nothing says how sure each pair is."
    clear = f"{n - unclear:,} of" if unclear else "all"
    sentence = f"The evidence is clear for {clear} {counted(n, 'compared pair')}."
    against = [row.by_request for row in rows if row.against_evidence]
    asked, others = sum(against), len(against) - sum(against)
    if asked:
        sentence += (
            f" {counted(asked, 'pair')} {'was' if asked == 1 else 'were'} decided by a link, a cut "
            "or a requested number of clusters against the evidence."
        )
    if others:
        sentence += f" The decision goes against the verdict for {counted(others, 'pair')}."
    return sentence


def _n_unclear(rows: list[Row]) -> int:
    return sum(row.pair.verdict == UNCLEAR for row in rows)


def answer(tree: MergeTree, n_noise: int, folded_to: int | None) -> dict[str, Any]:
    """What happened, by which rule, and how sure; ``folded_to`` leaves if the page shows fewer.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> answer(tree, 0, None)["headline"]
    '3 clusters merge into 2'
    """
    before, after = counted(tree.n_initial, "cluster"), f"{tree.n_clusters:,}"
    merged = tree.taken.any()
    sentences = [tree.how_separated, how_sure(tree.reviewed), tree.how_stable, why_stopped(tree)]
    if n_noise:
        sentences.append(f"{counted(n_noise, 'observation')} labelled as noise stayed noise.")
    if folded_to is not None:
        sentences.append(
            f"This page shows the {before} as {folded_to:,} groups, which the first merges made; "
            "the files of the result have every cluster."
        )
        if tree.n_clusters > folded_to:
            sentences.append(f"The result has more clusters ({after}) than the page can show.")
    return {
        "headline": f"{before} merge into {after}" if merged else f"All {before} stay apart",
        "sentences": [sentence for sentence in sentences if sentence is not None],
        "cards": [
            (f"{tree.n_initial:,} → {after}", "clusters"),
            *([] if tree.stability is None else [(tree.stability.span, "if repeated")]),
            (f"{_n_unclear(tree.reviewed):,}", "unclear pairs"),
            (f"{int(tree.sizes.sum()) + n_noise:,}", "observations"),
        ],
    }


# --- the tree and the data ------------------------------------------------------------------------


def tree_section(view: View) -> dict[str, Any]:
    """The dendrogram: leaves in order, and every merge with its evidence."""
    tree = view.tree
    names = [str(name) for name in tree.cluster_ids.tolist()]
    rank = np.argsort(sorted(range(len(names)), key=lambda i: natural(names[i]))).tolist()
    linked = sum(merge.stage == MUST_LINK for merge in view.merges)
    return {
        "fingerprint": fingerprint(tree),
        "names": [[names[i] for i in members] for members in view.members],
        "ranks": [[rank[i] for i in members] for members in view.members],
        "sizes": view.sizes.tolist(),
        "order": view.leaves_in[-1],
        "base": base_height(tree),
        "merges": [merge_entry(merge) for merge in view.merges],
        "taken": tree.taken[view.steps].tolist(),
        "fewest": 1 + tree.n_forbidden,
        "most": len(view.leaves) - linked,
        "n_clusters": tree.n_clusters,
        "n_initial": tree.n_initial,
        "axis": AXIS_LABELS.get(tree.statistic, "distance"),
        "agreement": agreement(tree),
    }


def fingerprint(tree: MergeTree) -> str:
    """What answers belong to: names, sizes, tree and earlier answers, in a few letters."""
    about = [*map(repr, tree.cluster_ids.tolist()), *map(repr, tree.answers)]
    return checksum({"about": about}, {"sizes": tree.sizes, "linkage": tree.linkage})[:16]


def agreement(tree: MergeTree) -> list[float] | None:
    """Mean adjusted Rand index of the cut into 1, 2, … clusters and the re-merges.

    Numbers of clusters that agree equally well with re-merges of resampled data are equally good.
    None if there were no re-merges.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 40, random_state=0)
    >>> tree = unsplit.merge(unsplit.pairwise_tvd(X, labels, cv=2, random_state=0))
    >>> agreement(tree)[1]
    1.0
    """
    if tree.stability is None:
        return None
    found = np.mean([_rand_indices(tree, groups) for groups in tree.stability.groups], axis=0)
    return [round(value, 4) for value in found[::-1].tolist()]


def _rand_indices(tree: MergeTree, groups: Index) -> NDArray[np.float64]:
    """Adjusted Rand index of one re-merge and the cut into k, k − 1, … clusters."""
    k, n = tree.n_initial, float(tree.sizes.sum())
    # Observations of every node in each cluster of the re-merge.
    shared = np.zeros((2 * k - 1, int(groups.max()) + 1))
    shared[np.arange(k), groups] = tree.sizes
    # How sums of squared sizes grow, of the clusters of the cut and of what they share with others.
    cut, both = [(tree.sizes.astype(float) ** 2).sum()], [(tree.sizes.astype(float) ** 2).sum()]
    for step, merge in enumerate(tree.merges):
        left, right = shared[merge.left], shared[merge.right]
        shared[k + step] = left + right
        cut.append(2 * left.sum() * right.sum())
        both.append(2 * left @ right)
    other = (shared[-1] ** 2).sum()
    pairs_cut, pairs_both, pairs_other = (
        (squares - n) / 2 for squares in (np.cumsum(cut), np.cumsum(both), other)
    )
    chance, most = pairs_cut * pairs_other / (n * (n - 1) / 2), (pairs_cut + pairs_other) / 2
    return np.divide(pairs_both - chance, most - chance, np.ones(k), where=most > chance)


def merge_entry(merge: Merge) -> dict[str, Any]:
    """One merge or pair with the numbers that a reader sees; None for what is unknown."""
    entry = {name: getattr(merge, name) for name in ("left", "right", "height", *WORDS)}
    return entry | {name: rounded(getattr(merge, name)) for name in NUMBERS}


def matrix_section(
    view: View, tvd: NDArray[np.float64] | None, distances: PairwiseTVD | None
) -> dict[str, Any] | None:
    """All distances between leaves, and their lower ends where leaves are single clusters."""
    if tvd is None:
        return None
    upper = np.triu_indices(len(view.leaves), 1)
    between, low = view.averaged(tvd)[upper], None
    if distances is not None and not view.folded:
        low = shares(distances.confidence_interval()[0][upper])
    lowest = float(np.floor(10 * np.nanmin(between, initial=0.9)) / 10)
    return {"tvd": shares(between), "lowest": lowest, "low": low}


def picture_section(view: View, kept: Kept) -> dict[str, Any] | None:
    """Where observations are drawn, and the leaf of each."""
    if not len(kept.picture_xy):
        return None
    return {
        "x": shares(kept.picture_xy[:, 0]),
        "y": shares(kept.picture_xy[:, 1]),
        "leaf": packed(view.leaf_of[kept.picture_clusters]),
        "method": kept.picture_method,
        "n_observations": kept.n_observations,
    }


def exemplar_section(view: View, kept: Kept) -> dict[str, Any] | None:
    """Exemplars of every leaf, as one image of which the page shows parts."""
    if not len(kept.tiles):
        return None
    leaf = view.leaf_of[kept.tile_clusters]
    of_leaves = (np.flatnonzero(leaf == one) for one in range(len(view.leaves)))
    chosen = [spread(tiles, PER_CLUSTER) for tiles in of_leaves]
    order = np.concatenate(chosen)
    return {
        "kind": kept.tile_kind,
        "png": png(sheet(kept.tiles[order], SHEET_COLUMNS)),
        "columns": SHEET_COLUMNS,
        "height": kept.tiles.shape[1],
        "width": kept.tiles.shape[2],
        "counts": [len(part) for part in chosen],
    }


def feature_section(view: View, kept: Kept) -> dict[str, Any] | None:
    """Means of the features that differ most, in units of their spread within clusters."""
    if not len(kept.feature_names):
        return None
    means = (view.mean @ kept.means.astype(np.float64)).tolist()
    return {
        "names": kept.feature_names.tolist(),
        "means": [[rounded(value) for value in row] for row in means],
        "spread": [rounded(value) for value in kept.spread.tolist()],
    }


def label_section(
    view: View, clusters: Index | None, row_ids: NDArray[Any] | None
) -> dict[str, Any] | None:
    """The rows of the data, so that the page can write the labels of another cut."""
    if clusters is None or len(clusters) > MOST_ROWS:
        return None
    ids = None if row_ids is None else [str(one) for one in row_ids.tolist()]
    return {"cluster": packed(clusters, np.int32), "ids": ids, "leaf": view.leaf_of.tolist()}


def training_words(distances: PairwiseTVD | None) -> str:
    """How loss and held-out accuracy changed; nothing without training."""
    history = None if distances is None else distances.history
    if history is None or not len(history.epoch):
        return ""
    loss, accuracy = (
        "unknown" if np.isnan(values).any() else f"{values[0]:.3f} → {values[-1]:.3f}"
        for values in (history.loss, history.accuracy)
    )
    epochs = ", ".join(str(epoch + 1) for epoch in history.kept_epoch.tolist())
    return (
        f"{counted(len(history.epoch), 'epoch')}: training loss {loss}, held-out accuracy "
        f"{accuracy}; networks of epoch {epochs} were kept."
    )


# --- pairs to review ------------------------------------------------------------------------------


def review_section(view: View, distances: PairwiseTVD | None) -> dict[str, Any]:
    """Pairs to review, the most urgent first, with the scores at the border of each."""
    entries = []
    for row in view.reviewed:
        pair = row.pair
        entry = merge_entry(view.renamed(pair)) | {"done": row.done, "border": None}
        entry |= {"size_left": pair.size_left, "size_right": pair.size_right}
        if distances is not None and distances.has_scores:
            entry["border"] = border(distances, view.inside[pair.left], view.inside[pair.right])
        entries.append(entry)
    given = _given_answers(view, entries)
    return {"pairs": entries, "n_pairs": len(view.tree.reviewed), "given": given}


def _given_answers(view: View, pairs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The answers that the merge obeyed, as given, with the leaves and the pair of each."""
    place = {str(name): i for i, name in enumerate(view.tree.cluster_ids.tolist())}
    known = {
        frozenset(frozenset(view.leaves_in[pair[side]]) for side in ("left", "right")): index
        for index, pair in enumerate(pairs)
    }
    found = []
    for one in view.tree.answers:
        names = (one.left, one.right)
        left, right = (sorted({int(view.leaf_of[place[name]]) for name in side}) for side in names)
        entry: dict[str, Any] = {"answer": one.answer, "names": names, "left": left, "right": right}
        found.append(entry | {"pair": known.get(frozenset(map(frozenset, (left, right))))})
    return found


def border(
    distances: PairwiseTVD, left: Sequence[int], right: Sequence[int]
) -> dict[str, Any] | None:
    """Count the differences of the two scores of held-out observations of two unions of clusters.

    Observations of the left side should lie right of zero, and those of the right side left of it;
    two heaps that lie on each other are clusters that the network cannot tell apart.  None if one
    side has no held-out observation.
    """
    scores = distances.scores
    found = []
    for side in (left, right):
        index = spread(np.flatnonzero(np.isin(scores.clusters, side)), MOST_AT_BORDER)
        z = scores.composed(index, (left, right), distances.sizes).astype(np.float64)
        difference = z[:, 0] - z[:, 1]
        found.append(difference[np.isfinite(difference)])
    if not all(map(len, found)):
        return None
    reach = float(np.quantile(np.abs(np.concatenate(found)), 0.98)) or 1.0
    limits = (-reach, reach)
    bars = [np.histogram(np.clip(part, *limits), BARS, limits)[0].tolist() for part in found]
    return {"left": bars[0], "right": bars[1], "reach": rounded(reach)}
