"""The sections of a page: each function returns the data that its section shows."""

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index
from unsplit.data.array_files import checksum
from unsplit.merging.decision import MUST_LINK, UNCLEAR
from unsplit.merging.review import Merge, Row, members_of_nodes
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.divergences import DIVERGENCES
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots.style import AXIS_LABELS, counted, node_heights, places, short_name
from unsplit.report.collect import Kept, png, sheet, spread

# More leaves than this can neither be drawn nor read on one page.
MOST_LEAVES = 500
LONGEST_NAME = 28
MOST_NAMES = 3
# How many unclear pairs the first paragraph names.
N_FIRST = 3
RANKED_BY = {name: one.caption for name, one in DIVERGENCES.items()} | {
    "distance": "the distances that were passed"
}

# Pairs that can be reviewed on one page, the most urgent ones.
MOST_PAIRS = 150
# Bars of the picture of a border, and observations of each side that it counts.
BARS = 31
MOST_AT_BORDER = 2_000
# Rows whose ids and clusters are part of the page, so that it can write their labels.
MOST_ROWS = 100_000
LONGEST_IDS = 2_000_000  # characters
# Exemplars of a leaf that stands for several clusters.
MOST_TILES_OF_LEAF = 6
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


def group(names: Sequence[object]) -> str:
    r"""The first names of a group, and how many more there are.

    Marks around each keep right-to-left text from turning the words around it.

    Examples
    --------
    >>> group("abcde").replace("\u2068", "").replace("\u2069", "")
    'a + b + c + 2 more'
    """
    found = []
    for name in names[:MOST_NAMES]:
        found.append(f"\u2068{short_name(name, LONGEST_NAME)}\u2069")
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return " + ".join(found + more)


def why_stopped(tree: MergeTree) -> str:
    """By which rule merging stopped, and what ranked the pairs."""
    sentence = f"Merging stopped because {tree.stopped}."
    if tree.strategy == "neighbours":
        return (
            f"{sentence} The clusters seem to be cut out of the same features, where every pair "
            "differs by construction, so nearest neighbours decided. If they come from elsewhere, "
            "such as classes given by hand, merge with --labels-from elsewhere: then tests decide."
        )
    return f"{sentence} Pairs were ranked by {RANKED_BY.get(tree.statistic, tree.statistic)}."


def how_sure(rows: list[Row]) -> str:
    """How many pairs are clear, and how many a person should look at."""
    n, unclear = len(rows), _n_unclear(rows)
    if n == 0:
        return "There was no pair to compare."
    if all(math.isnan(row.pair.tvd) for row in rows):
        return "The distances came without scores, so nothing says how sure each pair is."
    sentence = f"The evidence is clear for all {counted(n, 'compared pair')}."
    if unclear:
        sentence = (
            f"The evidence is clear for {n - unclear:,} of {counted(n, 'compared pair')}; "
            f"{unclear:,} {'is' if unclear == 1 else 'are'} unclear."
        )
    against = [row.told for row in rows if row.against_evidence]
    told, others = sum(against), len(against) - sum(against)
    if told:
        sentence += (
            f" {counted(told, 'pair')} {'was' if told == 1 else 'were'} decided by a link, a cut "
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
    '3 clusters are really 2'
    """
    before, after = counted(tree.n_initial, "cluster"), f"{tree.n_clusters:,}"
    merged = tree.taken.any()
    sentences = [how_sure(tree.reviewed), tree.how_stable, why_stopped(tree)]
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
        "headline": f"{before} are really {after}" if merged else f"All {before} are different",
        "n_initial": tree.n_initial,
        "n_clusters": tree.n_clusters,
        "n_unclear": _n_unclear(tree.reviewed),
        "sentences": [sentence for sentence in sentences if sentence is not None],
        "cards": [
            (f"{tree.n_initial:,} → {after}", "clusters"),
            (f"{int(tree.sizes.sum()) + n_noise:,}", "observations"),
            (f"{int(tree.taken.sum()):,}", "merges made"),
            (f"{_n_unclear(tree.reviewed):,}", "unclear pairs"),
        ],
    }


def look_first(view: View, pairs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The first unclear pairs in words, or the least certain pair, with its place in the review."""
    names = view.tree.cluster_ids.tolist()
    clusters = [[names[i] for leaf in node for i in view.members[leaf]] for node in view.leaves_in]
    return [
        {
            "index": index,
            "about": f"{pair['verdict']}, {pair['done']}",
            "sides": [group(clusters[pair[side]]) for side in ("left", "right")],
        }
        for index, pair in enumerate(pairs[:N_FIRST])
        if pair["verdict"] == UNCLEAR or index == 0
    ]


# --- the tree and the data ------------------------------------------------------------------------


def tree_section(view: View) -> dict[str, Any]:
    """The dendrogram: leaves in order, and every merge with its evidence."""
    tree = view.tree
    names = [str(name) for name in tree.cluster_ids.tolist()]
    linked = sum(merge.stage == MUST_LINK for merge in view.merges)
    # What answers belong to: names, sizes, tree and earlier answers, in a few letters.
    about = [*map(repr, tree.cluster_ids.tolist()), *map(repr, tree.answers)]
    fingerprint = checksum({"about": about}, {"sizes": tree.sizes, "linkage": tree.linkage})
    return {
        "fingerprint": fingerprint[:16],
        "names": [[names[i] for i in members] for members in view.members],
        "sizes": view.sizes.tolist(),
        "order": np.argsort(places(tree)[view.leaves], kind="stable").tolist(),
        "base": float(node_heights(tree)[0]),
        "merges": [merge_entry(merge) for merge in view.merges],
        "taken": tree.taken[view.steps].tolist(),
        "fewest": 1 + tree.n_forbidden,
        "most": len(view.leaves) - linked,
        "n_clusters": tree.n_clusters,
        "n_initial": tree.n_initial,
        "axis": AXIS_LABELS.get(tree.statistic, "distance"),
    }


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
        "n_drawn": len(kept.picture_xy),
        "n_observations": kept.n_observations,
    }


def exemplar_section(view: View, kept: Kept) -> dict[str, Any] | None:
    """Exemplars of every leaf, as one image of which the page shows parts."""
    if not len(kept.tiles):
        return None
    leaf = view.leaf_of[kept.tile_clusters]
    of_leaves = (np.flatnonzero(leaf == one) for one in range(len(view.leaves)))
    chosen = [spread(tiles, MOST_TILES_OF_LEAF) for tiles in of_leaves]
    order = np.concatenate(chosen)
    return {
        "kind": kept.tile_kind,
        "src": png(sheet(kept.tiles[order], SHEET_COLUMNS)),
        "columns": SHEET_COLUMNS,
        "n": len(order),
        "height": kept.tiles.shape[1],
        "width": kept.tiles.shape[2],
        "counts": [len(part) for part in chosen],
    }


def feature_section(view: View, kept: Kept) -> dict[str, Any] | None:
    """Means of the features that differ most, in units of their spread within clusters."""
    if not len(kept.feature_names):
        return None
    means = np.zeros((len(view.leaves), len(kept.feature_names)))
    np.add.at(means, view.leaf_of, view.weights[:, None] * kept.means)
    return {
        "names": kept.feature_names.tolist(),
        "means": [[rounded(value) for value in row] for row in means.tolist()],
        "spread": [rounded(value) for value in kept.spread.tolist()],
    }


def edge_section(view: View, kept: Kept) -> dict[str, Any] | None:
    """Number of edges between leaves in the neighbour graph."""
    if not len(kept.edges):
        return None
    left, right = np.sort(view.leaf_of[kept.edge_pairs], axis=1).T
    outside = left < right
    place, pair = np.unique((len(view.leaves) * left + right)[outside], return_inverse=True)
    totals = np.bincount(pair, kept.edges[outside], len(place))
    return {"place": packed(place, np.uint32), "count": packed(totals, np.uint32)}


def label_section(
    view: View, clusters: Index | None, row_ids: NDArray[Any] | None
) -> dict[str, Any] | None:
    """The rows of the data, so that the page can write the labels of another cut."""
    if clusters is None or len(clusters) > MOST_ROWS:
        return None
    ids = None if row_ids is None else [str(one) for one in row_ids.tolist()]
    if ids == [str(row) for row in range(len(clusters))]:
        ids = None
    if sum(map(len, ids or ())) > LONGEST_IDS:
        return None
    return {"cluster": packed(clusters, np.int32), "ids": ids, "leaf": view.leaf_of.tolist()}


def training_section(distances: PairwiseTVD | None) -> dict[str, Any] | None:
    """Loss and held-out accuracy of every epoch."""
    history = None if distances is None else distances.history
    if history is None or not len(history.epoch):
        return None
    return {
        "epoch": history.epoch.tolist(),
        "loss": [rounded(value) for value in history.loss.tolist()],
        "accuracy": [rounded(value) for value in history.accuracy.tolist()],
        "kept": history.kept_epoch.tolist(),
    }


# --- pairs to review ------------------------------------------------------------------------------


def review_section(view: View, kept: Kept) -> dict[str, Any]:
    """Pairs to review, the most urgent first, with the scores at the border of each."""
    known = {(a, b): place for place, (a, b) in enumerate(kept.border_pairs.tolist())}
    entries = []
    for row, drawn in view.visible(view.tree.reviewed)[:MOST_PAIRS]:
        entry = merge_entry(drawn.pair) | {"done": row.done, "step": drawn.step}
        entry |= {"size_left": row.pair.size_left, "size_right": row.pair.size_right}
        place = known.get((row.pair.left, row.pair.right))
        if place is not None:
            left, right = kept.borders[place].tolist()
            reach = rounded(float(kept.border_reach[place]))
            entry["border"] = {"reach": reach, "left": left, "right": right}
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


def with_borders(kept: Kept, view: View, distances: PairwiseTVD) -> Kept:
    """Add how the scores differ at the border of every pair that can be reviewed."""
    members = members_of_nodes(view.tree.merges, view.tree.n_initial)
    found = []
    for row, _ in view.visible(view.tree.reviewed)[:MOST_PAIRS]:
        sides = (row.pair.left, row.pair.right)
        bars, reach = border(distances, *(members[node] for node in sides))
        if bars.any():
            found.append((sides, bars, reach))
    if not found:
        return kept
    pairs, bars_of, reaches = (np.array(part) for part in zip(*found, strict=True))
    reaches = reaches.astype(np.float32)
    return Kept(**vars(kept) | {"border_pairs": pairs, "borders": bars_of, "border_reach": reaches})


def border(
    distances: PairwiseTVD, left: Sequence[int], right: Sequence[int]
) -> tuple[Index, float]:
    """Count the differences of the two scores of held-out observations of two unions of clusters.

    Observations of the left side should lie right of zero, and those of the right side left of it;
    two heaps that lie on each other are clusters that the network cannot tell apart.  Returns the
    counts of both sides, all zero if one has no held-out observation, and the largest difference
    that is shown.
    """
    scores = distances.scores
    found = []
    for side in (left, right):
        index = spread(np.flatnonzero(np.isin(scores.clusters, side)), MOST_AT_BORDER)
        z = scores.composed(index, (left, right), distances.sizes).astype(np.float64)
        with np.errstate(invalid="ignore"):
            difference = z[:, 0] - z[:, 1]
        found.append(difference[np.isfinite(difference)])
    if not all(map(len, found)):
        return np.zeros((2, BARS), np.int64), 1.0
    reach = float(np.quantile(np.abs(np.concatenate(found)), 0.98)) or 1.0
    limits = (-reach, reach)
    bars = [np.histogram(np.clip(part, *limits), BARS, limits)[0] for part in found]
    return np.stack(bars).astype(np.int64), reach
