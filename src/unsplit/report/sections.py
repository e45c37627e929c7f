"""The sections of a page: each function returns the data that its section shows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.data.array_files import checksum
from unsplit.merging.decision import MUST_LINK, UNCLEAR
from unsplit.merging.review import Merge, members_of_nodes
from unsplit.networks.training.history import History
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots.layout import node_heights, places
from unsplit.plots.style import AXIS_LABELS
from unsplit.report.encode import packed, png, shares, sheet
from unsplit.report.kept import Kept
from unsplit.report.picture import spread
from unsplit.report.view import View
from unsplit.report.words import N_FIRST, group

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

NUMBERS = ("tvd", "low", "p_adjusted", "edges", "times_chance", "strength", "stability")


def tree_section(view: View) -> dict[str, Any]:
    """The dendrogram: leaves in order, and every merge with its evidence."""
    tree = view.tree
    names = [str(name) for name in tree.cluster_ids.tolist()]
    heights = node_heights(tree)
    linked = sum(merge.stage == MUST_LINK for merge in view.merges)
    return {
        "fingerprint": fingerprint(view),
        "names": [[names[i] for i in members] for members in view.members],
        "sizes": view.sizes.tolist(),
        "order": np.argsort(places(tree)[view.leaves], kind="stable").tolist(),
        "base": float(heights[0]),
        "merges": [merge_entry(merge) for merge in view.merges],
        "taken": view.taken,
        "fewest": 1 + tree.n_forbidden,
        "most": len(view.leaves) - linked,
        "n_clusters": tree.n_clusters,
        "n_initial": tree.n_initial,
        "axis": AXIS_LABELS.get(tree.statistic, "distance"),
    }


def merge_entry(merge: Merge) -> dict[str, Any]:
    """One merge or pair with the numbers that a reader sees; None for what is unknown."""
    entry: dict[str, Any] = {
        "left": merge.left,
        "right": merge.right,
        "height": float(merge.height),
        "verdict": merge.verdict,
        "stage": merge.stage,
        "why": merge.why,
    }
    return entry | {name: rounded(getattr(merge, name)) for name in NUMBERS}


def rounded(value: float, digits: int = 4) -> float | None:
    """A number with few digits; None for NaN and infinity.

    Examples
    --------
    >>> rounded(0.123456), rounded(float("nan"))
    (0.1235, None)
    """
    return float(f"{value:.{digits}g}") if np.isfinite(value) else None


def fingerprint(view: View) -> str:
    """What answers belong to: names, sizes, tree and earlier answers, in a few letters."""
    tree = view.tree
    about = [*map(repr, tree.cluster_ids.tolist()), *map(repr, tree.answers)]
    return checksum({"about": about}, {"sizes": tree.sizes, "linkage": tree.linkage})[:16]


def matrix_section(
    view: View, tvd: NDArray[np.float64] | None, distances: PairwiseTVD | None
) -> dict[str, Any] | None:
    """All distances between leaves, and their lower ends where leaves are single clusters."""
    if tvd is None:
        return None
    upper = np.triu_indices(len(view.leaves), 1)
    averaged = view.averaged(tvd)
    section: dict[str, Any] = {
        "tvd": shares(averaged[upper]),
        "lowest": float(np.floor(10 * np.nanmin(averaged[upper], initial=0.9)) / 10),
        "low": None,
    }
    if distances is not None and not view.folded:
        section["low"] = shares(distances.confidence_interval()[0][upper])
    return section


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
    chosen = [
        spread(np.flatnonzero(leaf == one), MOST_TILES_OF_LEAF) for one in range(len(view.leaves))
    ]
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
    weights = view.tree.sizes / view.sizes[view.leaf_of]
    means = np.zeros((len(view.leaves), len(kept.feature_names)))
    np.add.at(means, view.leaf_of, weights[:, None] * kept.means)
    return {
        "names": [str(name) for name in kept.feature_names],
        "means": [[rounded(value) for value in row] for row in means.tolist()],
        "spread": [rounded(value) for value in kept.spread.tolist()],
    }


def edge_section(view: View, kept: Kept) -> dict[str, Any] | None:
    """Number of edges between leaves in the neighbour graph."""
    if not len(kept.edges):
        return None
    pairs = np.sort(view.leaf_of[kept.edge_pairs], axis=1)
    outside = pairs[:, 0] < pairs[:, 1]
    n = len(view.leaves)
    places_, counts = np.unique(pairs[outside] @ np.array([n, 1]), return_inverse=True)
    totals = np.bincount(counts, kept.edges[outside], len(places_))
    return {"place": packed(places_, np.uint32), "count": packed(totals, np.uint32)}


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
    given = given_answers(view, entries)
    return {"pairs": entries, "n_pairs": len(view.tree.reviewed), "given": given}


def given_answers(view: View, pairs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The answers that the merge obeyed, as given, with the leaves and the pair of each."""
    place = {str(name): i for i, name in enumerate(view.tree.cluster_ids.tolist())}
    inside = members_of_nodes(view.merges, len(view.leaves))
    known = {
        frozenset(frozenset(inside[pair[side]]) for side in ("left", "right")): index
        for index, pair in enumerate(pairs)
    }
    found = []
    for one in view.tree.answers:
        names = (one.left, one.right)
        sides = [sorted({int(view.leaf_of[place[name]]) for name in side}) for side in names]
        pair = known.get(frozenset(map(frozenset, sides)))
        entry: dict[str, Any] = {"answer": one.answer, "pair": pair, "names": names}
        found.append(entry | {"left": sides[0], "right": sides[1]})
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
    pairs, borders, reaches = zip(*found, strict=True)
    return replace(
        kept,
        border_pairs=np.array(pairs, np.int64),
        borders=np.array(borders, np.int64),
        border_reach=np.array(reaches, np.float32),
    )


def border(
    distances: PairwiseTVD, left: Sequence[int], right: Sequence[int]
) -> tuple[Index, float]:
    """Count the differences of the two scores of held-out observations of both sides.

    Observations of the left side should lie right of zero, and those of the right side left of it;
    two heaps that lie on each other are clusters that the network cannot tell apart.

    Parameters
    ----------
    distances : PairwiseTVD
    left, right : sequences of int
        The initial clusters of both sides.

    Returns
    -------
    ndarray of shape (2, bars), float
        The counts of both sides, all zero if one has no held-out observation; and the largest
        difference that is shown.
    """
    scores = distances.scores
    found = []
    for side in (left, right):
        index = spread(np.flatnonzero(np.isin(scores.clusters, side)), MOST_AT_BORDER)
        z = [scores.composed(index, list(one), distances.sizes) for one in (left, right)]
        with np.errstate(invalid="ignore"):
            difference = z[0].astype(np.float64) - z[1]
        found.append(difference[np.isfinite(difference)])
    if not all(map(len, found)):
        return np.zeros((2, BARS), np.int64), 1.0
    reach = float(np.quantile(np.abs(np.concatenate(found)), 0.98)) or 1.0
    limits = (-reach, reach)
    bars = [np.histogram(np.clip(part, *limits), BARS, limits)[0] for part in found]
    return np.stack(bars).astype(np.int64), reach


def label_section(
    view: View, clusters: Index | None, row_ids: NDArray[Any] | None
) -> dict[str, Any] | None:
    """The rows of the data, so that the page can write the labels of another cut."""
    if clusters is None or len(clusters) > MOST_ROWS:
        return None
    ids = None
    if row_ids is not None and not np.array_equal(row_ids, np.arange(len(clusters))):
        ids = [str(one) for one in row_ids.tolist()]
        if sum(map(len, ids)) > LONGEST_IDS:
            return None
    return {"cluster": packed(clusters, np.int32), "ids": ids, "leaf": view.leaf_of.tolist()}


def training_section(history: History | None) -> dict[str, Any] | None:
    """Loss and held-out accuracy of every epoch."""
    if history is None or not len(history.epoch):
        return None
    return {
        "epoch": history.epoch.tolist(),
        "loss": [rounded(value) for value in history.loss.tolist()],
        "accuracy": [rounded(value) for value in history.accuracy.tolist()],
        "kept": history.kept_epoch.tolist(),
    }


def look_first(view: View, review: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The first unclear pairs in words, or the least certain pair, with its place in the review."""
    names = view.tree.cluster_ids.tolist()
    inside = members_of_nodes(view.merges, len(view.leaves))
    found = []
    for index, pair in enumerate(review["pairs"][:N_FIRST]):
        if pair["verdict"] == UNCLEAR or index == 0:
            sides = [
                group([names[i] for leaf in inside[pair[side]] for i in view.members[leaf]])
                for side in ("left", "right")
            ]
            about = f"{pair['verdict']}, {pair['done']}"
            found.append({"index": index, "about": about, "sides": sides})
    return found
