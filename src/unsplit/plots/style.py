"""What all figures share: where leaves and merges stand, colours, axes, and names that fit."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unsplit._typing import Index
from unsplit.data.readers.tables import require_module
from unsplit.errors import InputError, check_type, shown
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.divergences import DIVERGENCES

# Paul Tol's ten qualitative colours, safe for the colour-blind, mixed so that neighbours differ.
COLOURS = (
    "#332288", "#CC6677", "#44AA99", "#882255", "#999933",
    "#AA4499", "#117733", "#DDCC77", "#661100", "#88CCEE",
)  # fmt: skip
GREY = "#A6A6A6"
INK = "#333333"

# What the two ends of a distance mean.
ENDS = "0 = same, 1 = never confused"

# Axis labels of the statistics that rank pairs.
AXIS_LABELS = {name: f"{one.caption}: {ENDS}" for name, one in DIVERGENCES.items()} | {
    "tv": f"total variation distance (TVD): {ENDS}",
    "lecam": f"Le Cam distance (soft accuracy): {ENDS}",
    "auc": f"2 · AUC − 1: {ENDS}",
    "overlap": "1 − overlap of the densities: 0 = same, 1 = no overlap",
    "overlap and edges": "mean rank by overlap and edges: 0 = same, 1 = the most different pair",
    "edges": "neighbour graph distance: 0 = same, 0.5 = as by chance, 0.9 or more = no edges",
}

LONGEST_NAME = 24
LARGEST_TEXT, SMALLEST_TEXT = 9.0, 5.0
LARGEST_GROUP_TEXT, SMALLEST_GROUP_TEXT = 8.0, 5.5
# Height of a line of text as a multiple of its size, with a little room above.
LINE = 1.25
# Points from the names of the rows to the bars, and from the bars to the names of the groups.
TO_BARS, TO_NAMES = 5.0, 9.0


# --- the tree -------------------------------------------------------------------------------------


def base_height(tree: MergeTree) -> float:
    """Where leaves are drawn: a little below all merges, which the axis would hide at height zero.

    The axis includes zero unless all merges are far above it.
    """
    heights = tree.linkage[:, 2]
    low, high = float(heights.min()), float(heights.max())
    if low < high / 2 or low >= high:
        low = min(low, 0.0)
    return low - 0.04 * ((high - low) or 1.0)


def node_name(tree: MergeTree, members: Sequence[int]) -> str:
    """Name an initial cluster, or several by the largest of them, in 24 characters.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> node_name(tree, [1]), node_name(tree, [0, 1])
    ('1', '0 + 1 more')
    """
    if len(members) == 1:
        return tree.name(members[0])
    rest = f" + {len(members) - 1:,} more"
    largest = max(sorted(members), key=lambda member: tree.sizes[member])
    return short_name(tree.name(largest), LONGEST_NAME - len(rest)) + rest


def merged_rows(clusters: Index, n_members: Index) -> Index:
    """Find the rows of every new cluster that was merged: cluster, first and last row.

    Each row has a new cluster, or −1, and a number of initial clusters.
    """
    starts = np.flatnonzero(np.diff(clusters, prepend=-2))
    ends = np.append(starts[1:], len(clusters))
    inside = np.add.reduceat(n_members, starts)
    shown = (inside > 1) & (clusters[starts] >= 0)
    return np.stack([clusters[starts], starts, ends - 1], axis=1)[shown]


# --- axes and names -------------------------------------------------------------------------------


def axes_or_new(ax: Any, width: float, height: float) -> Any:
    """The given axes, or axes on a new figure, sized in inches, without pyplot or a display."""
    if ax is not None:
        if not hasattr(ax, "add_collection"):
            raise InputError(f"ax must be matplotlib Axes or None, got {shown(ax)}.")
        return ax
    module = require_module("matplotlib.figure", "drawing a figure", "figures")
    return module.Figure(figsize=(width, height), layout="compressed").add_subplot()


def check_tree(tree: object) -> None:
    """Raise an error unless this is a tree."""
    check_type("tree", tree, MergeTree, "pass what unsplit.merge returns, or merger.tree_")


def short_name(name: object, longest: int = LONGEST_NAME) -> str:
    """Shorten a name to 24 characters, or another number, by leaving out its middle.

    Examples
    --------
    >>> short_name("memory T cells, activated, donor 12")
    'memory T cells… donor 12'
    """
    text = " ".join(str(name).split())
    head = longest * 3 // 5
    tail = longest - head - 1
    return text if len(text) <= longest else f"{text[:head]}…{text[-tail:]}"


def counted(n: int, thing: str) -> str:
    """Join a number and what it counts.

    Examples
    --------
    >>> counted(1, "cluster"), counted(1200, "pair")
    ('1 cluster', '1,200 pairs')
    """
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def axis_label(statistic: str) -> str:
    """Return the label of the axis of a statistic, which says what its values mean.

    Examples
    --------
    >>> axis_label("tv")
    'total variation distance (TVD): 0 = same, 1 = never confused'
    >>> axis_label("euclidean")
    'euclidean: 0 = same'
    """
    return AXIS_LABELS.get(statistic, f"{statistic}: 0 = same")


def clean(ax: Any, *spines: str) -> None:
    """Keep only the named spines, and colour them like the text."""
    ax.spines[:].set_visible(False)
    for name in spines:
        ax.spines[name].set(visible=True, color=INK)
    ax.tick_params(colors=INK, labelsize=LARGEST_TEXT)


def write_names(
    ax: Any,
    tree: MergeTree,
    names: Sequence[str],
    sides: str,
    groups: Index,
    colours: Sequence[str],
) -> None:
    """Write the names of the rows at the axis "y", or "xy", and beside them those of new clusters.

    Groups are rows as :func:`merged_rows` finds them, and a bar marks each.  Where their names
    would overlap, those of the largest are written, and the label of the x axis says so.  Row i
    must be at y = i.  Call this last, because it needs to know the final size of the axes.
    """
    sizes = {side: _write_ticks(ax, names, side) for side in sides}
    ticks, points = ax.yaxis.get_tightbbox(), 72 / ax.figure.dpi
    # Text is a little wider when it is drawn with another number of dots per inch.
    bars = TO_BARS + 1.08 * points * max(0.0, ticks.x1 - ax.bbox.x1 if ticks else 0.0)
    first, last = groups[:, 1:].T
    beside = {"transform": ax.get_yaxis_text2_transform(bars)[0], "clip_on": False}
    ax.vlines(np.ones(len(groups)), first - 0.3, last + 0.3, colours, linewidth=2.5, **beside)
    n_members, centres = np.bincount(tree.groups, tree.sizes)[groups[:, 0]], (first + last) / 2
    # No more names than the whole figure has lines: writing and measuring thousands takes long.
    most = int(ax.figure.bbox.height * points / (LINE * SMALLEST_GROUP_TEXT))
    look = {"va": "center", "color": INK, "parse_math": False, "fontsize": LARGEST_GROUP_TEXT}
    look["transform"] = ax.get_yaxis_text2_transform(bars + TO_NAMES)[0]
    texts = {}
    for i in np.argsort(-n_members, kind="stable")[:most].tolist():
        members = np.flatnonzero(tree.groups == groups[i, 0]).tolist()
        name = f"{groups[i, 0]}: {node_name(tree, members)}"
        texts[i] = ax.text(1, centres[i], name, **look)
    ax.figure.figure.draw_without_rendering()  # gives the axes their final size
    for side, size in sizes.items():
        _write_ticks(ax, names, side, size)
    row = _points_per_row(ax, "y", len(names))
    size = float(np.clip(row / LINE, SMALLEST_GROUP_TEXT, LARGEST_GROUP_TEXT))
    shown: list[int] = []
    for i, text in texts.items():
        if all(abs(centres[i] - centres[j]) * row >= LINE * size for j in shown):
            shown.append(i)
            text.set_fontsize(size)
        else:
            text.remove()
    if len(shown) < len(groups):
        note = f"named: {len(shown):,} of {len(groups):,} merged clusters"
        ax.xaxis.label.set_text(f"{ax.get_xlabel()}\n{note}")


def _write_ticks(ax: Any, names: Sequence[str], side: str, most: float = LARGEST_TEXT) -> float:
    """Write names at the ticks 0, 1, … of an axis if there is room, and return their size."""
    room = _points_per_row(ax, side, len(names))
    size = min(most, 0.85 * room)
    shown = [short_name(name) for name in names] if size >= SMALLEST_TEXT else []
    # A letter is about 0.6 times as wide as it is high.
    horizontal = side == "y" or 0.6 * size * (max(map(len, shown), default=0) + 1) < room
    axis = ax.xaxis if side == "x" else ax.yaxis
    # Names come from the user, so a dollar sign does not start a formula.
    look: dict[str, Any] = {"rotation": 0 if horizontal else 90, "parse_math": False}
    axis.set_ticks(range(len(shown)), shown, fontsize=size, **look)
    axis.set_tick_params(length=0)
    return size


def _points_per_row(ax: Any, side: str, n_rows: int) -> float:
    box = ax.get_window_extent()
    return float((box.width if side == "x" else box.height) * 72 / ax.figure.dpi / n_rows)
