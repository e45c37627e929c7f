"""Names of the merged clusters beside a figure, spread so that they do not overlap."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from unsplit._typing import Index
from unsplit.merging.limits import FEW
from unsplit.merging.tree import MergeTree
from unsplit.plots.style import (
    GREY,
    INK,
    LONGEST_NAME,
    SMALLEST_TEXT,
    fit_names,
    points_per_row,
    short_name,
)

Floats = NDArray[np.float64]

LARGEST_GROUP_TEXT = 8.0
# Names of groups are a little larger than those of rows, but do not move far for it.
USUAL_GROUP_TEXT = 6.5
# Height of a line of text as a multiple of its size, with a little room above.
LINE = 1.25
# Points from the names of the rows to the bars, and from the bars to the names of the groups.
TO_BARS, TO_NAMES = 5.0, 9.0


@dataclass(frozen=True)
class Group:
    """Rows of a figure that have a common name.

    Parameters
    ----------
    name : str
        What is written beside the rows.
    first, last : int
        First and last row.
    size : int
        Number of observations; where room is short, the largest groups are named.
    colour : str
        Colour of the bar beside the rows.
    """

    name: str
    first: int
    last: int
    size: int
    colour: str = INK

    @property
    def centre(self) -> float:
        """The middle of the rows."""
        return (self.first + self.last) / 2


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
    largest = short_name(_largest_member(tree, members))
    return f"{cluster}: {len(members):,} clusters, largest {largest}"


def name_of_several(tree: MergeTree, members: Index) -> str:
    """Name some initial clusters by the largest of them, in 24 characters.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> name_of_several(tree, np.array([1])), name_of_several(tree, np.array([0, 1]))
    ('1', '0 + 1 more')
    """
    rest = f" + {len(members) - 1:,} more" if len(members) > 1 else ""
    return short_name(_largest_member(tree, members), LONGEST_NAME - len(rest)) + rest


def _largest_member(tree: MergeTree, members: Index) -> str:
    return tree.name(int(members[np.argmax(tree.sizes[members])]))


def group_sizes(tree: MergeTree) -> Index:
    """Return the number of observations in each new cluster, shape (n_clusters,)."""
    return np.bincount(tree.groups, weights=tree.sizes).astype(np.int64)


def tiny_clusters(tree: MergeTree) -> NDArray[np.bool_]:
    """Return which initial clusters are too small to be compared well, shape (k,).

    If most clusters are that small, none stands out.
    """
    tiny = tree.sizes < FEW
    return tiny if 2 * tiny.sum() <= len(tiny) else np.zeros(len(tiny), bool)


def spread(wanted: ArrayLike, gap: float, low: float, high: float) -> Floats:
    """Move sorted positions apart as little as possible, to at least ``gap`` from each other.

    Parameters
    ----------
    wanted : array-like of shape (n,)
        Positions in increasing order.
    gap : float
        Smallest difference between two positions.
    low, high : float
        All positions stay between these if there is room for n of them.

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


def write_groups(ax: Any, groups: list[Group]) -> int:
    """Write the names of groups of rows to the right of the axes; return how many have room.

    A bar marks the rows of each group, and a thin line leads from the bar to a name that had to
    move.  Row i must be at y = i, and y must grow downwards.  Call this last, because it needs to
    know the final size of the axes.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    groups : list of Group
        In the order of their rows.
    """
    low, high = sorted(ax.get_ylim())
    # No more names than the whole figure has lines: writing and measuring thousands takes long.
    named = _largest(groups, range(len(groups)), _lines_of_text(ax.figure.bbox.height, ax))
    beside, bars = _beside(ax), _width_of_names(ax) + TO_BARS
    texts = {i: _write(ax, groups[i], bars + TO_NAMES, beside) for i in named}
    _make_layout(ax)
    fit_names(ax)
    shown = _largest(groups, named, _lines_of_text(ax.get_window_extent().height, ax))
    for i in set(named).difference(shown):
        texts[i].remove()
    row = points_per_row(ax, "y", high - low)
    size = float(np.clip(row / LINE, USUAL_GROUP_TEXT, LARGEST_GROUP_TEXT))
    size = min(size, row * (high - low) / LINE / max(len(shown), 1))
    half = LINE * size / row / 2
    centres = [groups[i].centre for i in shown]
    places = spread(centres, 2 * half, low + half, high - half)
    for i, place in zip(shown, places.tolist(), strict=True):
        texts[i].set(fontsize=size, y=place)
    ends = zip(centres, places, strict=True)
    leaders = [[(bars + 2, y), (bars + TO_NAMES - 2.5, place)] for y, place in ends]
    _lines(ax, beside, leaders, colors=GREY, linewidths=0.5)
    rows = [[(bars, group.first - 0.3), (bars, group.last + 0.3)] for group in groups]
    _lines(ax, beside, rows, colors=[group.colour for group in groups], linewidths=2.5)
    return len(shown)


def _write(ax: Any, group: Group, x: float, transform: Any) -> Any:
    look = {"va": "center", "color": INK, "fontsize": LARGEST_GROUP_TEXT, "parse_math": False}
    return ax.text(x, group.centre, group.name, transform=transform, **look)


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


def _make_layout(ax: Any) -> None:
    """Give the axes their final size."""
    figure = ax.figure.figure  # also of a part of a figure
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
    ax.apply_aspect()


def _width_of_names(ax: Any) -> float:
    """Return how many points the names of the rows take to the right of the axes."""
    if ax.yaxis.get_ticks_position() != "right":
        return 0.0
    widths = [label.get_window_extent().width for label in ax.get_yticklabels()]
    # Text is a little wider when it is drawn with another number of dots per inch.
    return 1.08 * max(widths, default=0.0) * 72 / ax.figure.dpi + TO_BARS


def _largest(groups: list[Group], some: Iterable[int], n: int) -> list[int]:
    """Return the positions of the n largest of some groups, in order."""
    by_size = sorted(some, key=lambda i: -groups[i].size)
    return sorted(by_size[:n])
