"""Colours, labels and axes that all figures share."""

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

from unsplit.errors import InputError, check_type, shown
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.scores import DIVERGENCES

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
AXIS_LABELS = {name: f"{words}: {ENDS}" for name, words in DIVERGENCES.items()} | {
    "tv": f"total variation distance (TVD): {ENDS}",
    "lecam": f"Le Cam distance (soft accuracy): {ENDS}",
    "auc": f"2 · AUC − 1: {ENDS}",
    "overlap": "1 − overlap of the densities: 0 = same, 1 = no overlap",
    "overlap and edges": "mean rank by overlap and edges: 0 = same, 1 = the most different pair",
    "edges": "neighbour graph distance: 0 = same, 0.5 = as by chance, 0.9 or more = no edges",
}

LARGEST_TEXT, SMALLEST_TEXT = 9.0, 5.0
LONGEST_NAME = 24


def new_axes(width: float, height: float) -> Any:
    """Create axes on a new figure, sized in inches, without pyplot or a display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib: pip install unsplit[figures]") from None
    figure = Figure(figsize=(width, height), layout="compressed")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def check_drawing(tree: object, ax: object) -> None:
    """Raise an error unless this is a tree, and axes or None.

    Examples
    --------
    >>> import unsplit
    >>> check_drawing(unsplit.merge([[0, 0.1], [0.1, 0]], n_clusters=1), None)
    """
    check_type("tree", tree, MergeTree, "pass what unsplit.merge returns, or merger.tree_")
    if ax is not None and not hasattr(ax, "add_collection"):
        raise InputError(
            f"ax must be the axes of a matplotlib figure, got {shown(ax)}; leave it out for a new "
            "figure."
        )


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
    """Write names at the ticks 0, 1, … of an axis, unless there are too many to read.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    names : sequence of str
        One name per tick.
    side : {"x", "y"}
        Which axis.
    """
    room = points_per_row(ax, side, len(names))
    size = min(LARGEST_TEXT, 0.85 * room)
    shown = [short_name(name) for name in names] if size >= SMALLEST_TEXT else []
    # A letter is about 0.6 times as wide as it is high.
    horizontal = side == "y" or 0.6 * size * (max(map(len, shown), default=0) + 1) < room
    axis = ax.xaxis if side == "x" else ax.yaxis
    # Names come from the user, so a dollar sign does not start a formula.
    look: dict[str, Any] = {
        "fontsize": size,
        "rotation": 0 if horizontal else 90,
        "parse_math": False,
    }
    axis.set_ticks(range(len(shown)), shown, **look)
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
