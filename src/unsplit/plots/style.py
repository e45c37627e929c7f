"""What all figures share: where leaves and merges stand, colours, axes, and names that fit."""

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from unsplit._typing import Index
from unsplit.errors import InputError, check_type, shown
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.divergences import DIVERGENCES

Floats = NDArray[np.float64]

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

LARGEST_TEXT, SMALLEST_TEXT = 9.0, 5.0
LONGEST_NAME = 24

LARGEST_GROUP_TEXT = 8.0
# Names of groups are a little larger than those of rows, but do not move far for it.
USUAL_GROUP_TEXT = 6.5
# Height of a line of text as a multiple of its size, with a little room above.
LINE = 1.25
# Points from the names of the rows to the bars, and from the bars to the names of the groups.
TO_BARS, TO_NAMES = 5.0, 9.0


# --- the tree -------------------------------------------------------------------------------------


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
    """The initial clusters from left to right, shape (k,)."""
    return np.argsort(places(tree)[: tree.n_initial])


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
    return f"{cluster}: {len(members):,} clusters, largest {short_name(_largest(tree, members))}"


def node_name(tree: MergeTree, node: int) -> str:
    """Name an initial cluster, or several by the largest of them, in 24 characters.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> node_name(tree, 1), node_name(tree, 3)
    ('1', '0 + 1 more')
    """
    k, members, open_nodes = tree.n_initial, [], [node]
    while open_nodes:
        inside = open_nodes.pop()
        if inside < k:
            members.append(inside)
        else:
            open_nodes += [tree.merges[inside - k].left, tree.merges[inside - k].right]
    if len(members) == 1:
        return tree.name(node)
    rest = f" + {len(members) - 1:,} more"
    return short_name(_largest(tree, np.sort(members)), LONGEST_NAME - len(rest)) + rest


def _largest(tree: MergeTree, members: Index) -> str:
    return tree.name(int(members[np.argmax(tree.sizes[members])]))


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
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib: pip install unsplit[figures]") from None
    figure = Figure(figsize=(width, height), layout="compressed")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def check_tree(tree: object) -> None:
    """Raise an error unless this is a tree."""
    check_type("tree", tree, MergeTree, "pass what unsplit.merge returns, or merger.tree_")


def colours_of(clusters: Iterable[int]) -> dict[int, str]:
    """Assign a colour to each cluster, from left to right; colours repeat after ten.

    Readers cannot tell more than ten colours apart, and clusters of one colour are far apart.

    Examples
    --------
    >>> colours_of([4, 1])
    {4: '#332288', 1: '#CC6677'}
    """
    return dict(zip(clusters, cycle(COLOURS), strict=False))


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


def points_per_row(ax: Any, side: str, n_rows: float) -> float:
    """Return the room for each of ``n_rows`` along an axis, in points."""
    box = ax.get_window_extent()
    return float((box.width if side == "x" else box.height) * 72 / ax.figure.dpi / n_rows)


def write_names(ax: Any, names: Sequence[str], side: str) -> None:
    """Write names at the ticks 0, 1, … of the axis "x" or "y", unless there are too many."""
    room = points_per_row(ax, side, len(names))
    size = min(LARGEST_TEXT, 0.85 * room)
    shown = [short_name(name) for name in names] if size >= SMALLEST_TEXT else []
    # A letter is about 0.6 times as wide as it is high.
    horizontal = side == "y" or 0.6 * size * (max(map(len, shown), default=0) + 1) < room
    axis = ax.xaxis if side == "x" else ax.yaxis
    # Names come from the user, so a dollar sign does not start a formula.
    look: dict[str, Any] = {"rotation": 0 if horizontal else 90, "parse_math": False}
    axis.set_ticks(range(len(shown)), shown, fontsize=size, **look)
    axis.set_tick_params(length=0)


def fit_names(ax: Any) -> None:
    """Make names smaller, or remove them, if the axes became smaller after they were written."""
    from matplotlib.ticker import FixedLocator

    for side, axis, limits in (("x", ax.xaxis, ax.get_xlim()), ("y", ax.yaxis, ax.get_ylim())):
        if not isinstance(axis.get_major_locator(), FixedLocator):
            continue  # numbers
        size = 0.85 * points_per_row(ax, side, abs(limits[1] - limits[0]))
        for label in axis.get_ticklabels():
            label.set_fontsize(min(size, label.get_fontsize()))
        if size < SMALLEST_TEXT:
            axis.set_ticks([])


def clean(ax: Any, *spines: str) -> None:
    """Keep only the named spines, and colour them like the text."""
    for name, spine in ax.spines.items():
        spine.set_visible(name in spines)
        spine.set_color(INK)
    ax.tick_params(colors=INK, labelsize=LARGEST_TEXT)


def spread(wanted: ArrayLike, gap: float, low: float, high: float) -> Floats:
    """Move sorted positions apart as little as possible, to at least ``gap`` from each other.

    All stay between ``low`` and ``high`` if there is room for them.

    Examples
    --------
    >>> spread([0, 4, 4, 9], gap=2, low=0, high=10)
    array([0., 3., 5., 9.])
    """
    wanted = np.asarray(wanted, np.float64)
    steps = gap * np.arange(len(wanted))
    if not len(wanted):
        return wanted
    level = isotonic_regression(wanted - steps).x
    return np.clip(level, low, max(low, high - steps[-1])) + steps


def write_groups(ax: Any, tree: MergeTree, groups: Index, colours: Sequence[str]) -> str:
    """Write the names of merged clusters, as :func:`merged_rows` finds them, beside the axes.

    A bar marks the rows of each group, and a thin line leads from the bar to a name that had to
    move.  Where room is short, the largest groups are named, and a note about it is returned.
    Row i must be at y = i, and y must grow downwards.  Call this last, because it needs to know the
    final size of the axes.
    """
    low, high = sorted(ax.get_ylim())
    sizes = np.bincount(tree.groups, tree.sizes)[groups[:, 0]]
    by_size, centres = np.argsort(-sizes, kind="stable"), groups[:, 1:].mean(axis=1)
    # No more names than the whole figure has lines: writing and measuring thousands takes long.
    named = by_size[: _lines_of_text(ax.figure.bbox.height, ax)].tolist()
    beside, bars = _beside(ax), _width_of_names(ax) + TO_BARS
    look = {"va": "center", "color": INK, "parse_math": False, "transform": beside}
    x, look["fontsize"] = bars + TO_NAMES, LARGEST_GROUP_TEXT
    texts = {i: ax.text(x, centres[i], group_name(tree, int(groups[i, 0])), **look) for i in named}
    figure = ax.figure.figure  # also of a part of a figure
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)  # gives the axes their final size
    ax.apply_aspect()
    fit_names(ax)
    n_shown = _lines_of_text(ax.get_window_extent().height, ax)
    for i in named[n_shown:]:
        texts[i].remove()
    shown = sorted(named[:n_shown])
    row = points_per_row(ax, "y", high - low)
    size = float(np.clip(row / LINE, USUAL_GROUP_TEXT, LARGEST_GROUP_TEXT))
    size = min(size, row * (high - low) / LINE / max(len(shown), 1))
    half = LINE * size / row / 2
    places = spread(centres[shown], 2 * half, low + half, high - half).tolist()
    leaders = []
    for i, place in zip(shown, places, strict=True):
        texts[i].set(fontsize=size, y=place)
        leaders.append([(bars + 2, centres[i]), (x - 2.5, place)])
    _lines(ax, beside, leaders, colors=GREY, linewidths=0.5)
    rows = [[(bars, first - 0.3), (bars, last + 0.3)] for _, first, last in groups.tolist()]
    _lines(ax, beside, rows, colors=colours, linewidths=2.5)
    if len(shown) == len(groups):
        return ""
    return f"named: the {len(shown):,} largest of {len(groups):,} merged clusters"


def _lines_of_text(height: float, ax: Any) -> int:
    """Return how many names can stand below each other in a height given in pixels."""
    return int(height * 72 / ax.figure.dpi / (LINE * SMALLEST_TEXT))


def _beside(ax: Any) -> Any:
    """Return coordinates with x in points from the right end of the axes, and y as in the data."""
    from matplotlib.transforms import Affine2D, ScaledTranslation, blended_transform_factory

    points = Affine2D().scale(1 / 72) + ax.figure.dpi_scale_trans
    return blended_transform_factory(points + ScaledTranslation(1, 0, ax.transAxes), ax.transData)


def _lines(ax: Any, transform: Any, lines: list[Any], **look: Any) -> None:
    from matplotlib.collections import LineCollection

    drawn = LineCollection(lines, transform=transform, clip_on=False, capstyle="butt", **look)
    ax.add_collection(drawn, autolim=False)


def _width_of_names(ax: Any) -> float:
    """Return how many points the names of the rows take to the right of the axes."""
    if ax.yaxis.get_ticks_position() != "right":
        return 0.0
    widths = [label.get_window_extent().width for label in ax.get_yticklabels()]
    # Text is a little wider when it is drawn with another number of dots per inch.
    return 1.08 * max(widths, default=0.0) * 72 / ax.figure.dpi + TO_BARS
