"""Slopes, tables and the figure of what benchmarks.growth measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from benchmarks import markdown, plan
from benchmarks.common import print_table
from unsplit.merging.neighbours.graph import MOST_FOR_EXACT
from unsplit.plots.style import COLOURS, GREY, INK, clean

PAGE = Path(__file__).parent / "results" / "scale.md"
FIGURE = Path(__file__).parents[1] / "docs" / "images" / "scale" / "growth.png"

Record = Mapping[str, Any]

# A power is fitted to the upper two decades, without sizes at which fixed costs dominate: where the
# value is less than four times that of the smallest size.
ABOVE_FIXED, SPAN = 4, 100
FEWEST = 3

# What is measured, against what, and its title.
SERIES = {
    ("training step", "k"): "training step",
    ("counting", "k"): "counting confusions",
    ("merging", "k"): "merging",
    ("counting", "n"): "counting confusions",
    ("neighbour graph", "n"): "neighbour graph",
}


@dataclass(frozen=True)
class Slope:
    """The exponent of a power that fits values of sizes from ``first`` to ``last``."""

    exponent: float
    first: float
    last: float


def slope(sizes: ArrayLike, values: ArrayLike) -> Slope:
    """Fit a power to the sizes at which fixed costs no longer dominate, at least the last three.

    Parameters
    ----------
    sizes, values : array-like of shape (m,)
        Sizes from small to large.

    Examples
    --------
    >>> slope([1, 10, 100, 1000, 10_000, 100_000], [5, 5, 5, 50, 500, 5000])
    Slope(exponent=1.0, first=1000.0, last=100000.0)
    """
    x, y = np.asarray(sizes, float), np.asarray(values, float)
    used = (y >= ABOVE_FIXED * y[0]) & (x >= x[-1] / SPAN)
    used[-FEWEST:] = True
    x, y = x[used], y[used]
    exponent = np.polyfit(np.log(x), np.log(y), 1)[0] if len(x) > 1 else np.nan
    return Slope(round(float(exponent), 3), float(x[0]), float(x[-1]))


def series(records: Sequence[Record]) -> Iterator[tuple[str, str, str, list[Record]]]:
    """What, against what, the device, and the records from small to large."""
    devices = dict.fromkeys(record["device"] for record in records)
    for what, against in SERIES:
        for device in devices:
            wanted = {"what": what, "against": against, "device": device}.items()
            found = [record for record in records if wanted <= record.items()]
            if found:
                yield what, against, device, sorted(found, key=lambda record: record["size"])


def alike(found: Sequence[Record]) -> list[Record]:
    """Those of a series that are computed in the same way as the largest."""
    return [record for record in found if many(record) == many(found[-1])]


def many(record: Record) -> bool:
    """Whether there are so many clusters or observations that they are treated otherwise."""
    if record["what"] == "training step":
        return plan.in_blocks(plan.run_of(record))
    return record["what"] == "neighbour graph" and record["n"] > MOST_FOR_EXACT


def fits(found: Sequence[Record]) -> tuple[Slope, Slope]:
    """How time and memory of a series grow."""
    found = alike(found)
    sizes = [record["size"] for record in found]
    seconds = [record["seconds"] for record in found]
    return slope(sizes, seconds), slope(sizes, [memory_of(record) for record in found])


def memory_of(record: Record) -> int:
    """Bytes of the GPU and of main memory together."""
    return int(record["main_bytes"] + record["device_bytes"])


HEADER = [
    "", "device", "against", "time grows with", "fitted", "memory grows with", "fitted",
    "largest", "seconds", "GiB",
]  # fmt: skip


def slopes(records: Sequence[Record]) -> Iterator[list[str]]:
    """A row for each line of the figure."""
    for what, against, device, found in series(records):
        grown = [
            text
            for fit in fits(found)
            for text in (f"{against}^{fit.exponent:.2f}", f"{number(fit.first)}–{number(fit.last)}")
        ]
        last = found[-1]
        size = f"{against} = {last['size']:,}"
        taken = f"{last['seconds']:.3g}", f"{memory_of(last) / 2**30:.2g}"
        yield [SERIES[what, against], device, setting(last, against), *grown, size, *taken]


def setting(record: Record, against: str) -> str:
    """What varies and what is fixed."""
    fixed = [f"{name} = {record[name]:,}" for name in ("k", "n", "batch") if name in record]
    fixed = {"merging": ["n = 10·k"], "neighbour graph": ["k = n/100"]}.get(record["what"], fixed)
    return ", ".join([against, *(text for text in fixed if not text.startswith(f"{against} "))])


def number(value: float) -> str:
    """A power of ten, or a multiple of it.

    Examples
    --------
    >>> number(100.0), number(3e5)
    ('10²', '3·10⁵')
    """
    power = int(np.floor(np.log10(value) + 1e-9))
    text = "10" + str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    factor = round(value / 10**power, 2)
    return text if factor == 1 else f"{factor:g}·{text}"


def print_slopes(records: Sequence[Record]) -> None:
    """Print the table."""
    print_table("Growth", HEADER, list(slopes(records)))


def write_page(records: Sequence[Record]) -> None:
    """Draw the figure, and write the tables between their marks on the page."""
    draw(records, FIGURE)
    text = PAGE.read_text("utf-8")
    text = between(text, "growth", markdown.table(HEADER, slopes(records)))
    planned = plan.rows(plan.options().parse_args([]))
    text = between(text, "plan", markdown.table(plan.HEADINGS, planned))
    text = between(text, "steps", markdown.table(plan.COMPARED, plan.compared(records)))
    PAGE.write_text(text, "utf-8")


def between(text: str, name: str, table: str) -> str:
    r"""Replace what stands between the marks of this name.

    Examples
    --------
    >>> between("a <!-- x -->old<!-- end of x --> b", "x", "new")
    'a <!-- x -->\nnew\n<!-- end of x --> b'
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw time and memory of every series, one column each, and a line for each device."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(SERIES), sharex="col", sharey="row")
    devices = list(dict.fromkeys(record["device"] for record in records))
    for what, against, device, found in series(records):
        column = axes.T[list(SERIES).index((what, against))]
        sizes = [record["size"] for record in found]
        seconds = [record["seconds"] for record in found]
        gibibytes = [memory_of(record) / 2**30 for record in found]
        for ax, values, fit in zip(column, (seconds, gibibytes), fits(found), strict=True):
            draw_line(ax, sizes, values, fit, device, devices.index(device))
    for column, (what, against) in zip(axes.T, SERIES, strict=True):
        column[0].set_title(SERIES[what, against], fontsize=11, color=INK)
        column[1].set_xlabel("clusters k" if against == "k" else "observations n", color=INK)
    for ax in axes.flat:
        ax.set(xscale="log", yscale="log")
        ax.grid(color=GREY, alpha=0.3, linewidth=0.6)
        ax.margins(0.1, 0.1)
        clean(ax, "left", "bottom")
        ax.tick_params(which="minor", length=0)
    axes[0, 0].set_ylabel("seconds", color=INK)
    axes[1, 0].set_ylabel("GiB", color=INK)
    lines = {line.get_label(): line for ax in axes.flat for line in ax.lines}
    figure.legend(
        [lines[name] for name in (*devices, LINEAR)], [*devices, "linear"],
        loc="outside lower center", ncols=len(devices) + 1, frameon=False, labelcolor=INK,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


LINEAR = "linear"


def draw_line(
    ax: Any,
    sizes: Sequence[float],
    values: Sequence[float],
    fit: Slope,
    device: str,
    place: int,
) -> None:
    """Draw a series, its exponent at its end, and what would be linear through its last point."""
    colour = COLOURS[place]
    x, y = np.array(sizes, float), np.array(values, float)
    linear = y[-1] * x / x[-1]
    shown = x >= fit.first
    ax.plot(x[shown], linear[shown], "--", color=GREY, linewidth=1, label=LINEAR, zorder=1)
    ax.plot(x, y, "o-", color=colour, markersize=3.5, linewidth=1.4, label=device)
    # The first device is usually the slower one, so its line is above the others.
    below = place > 0
    ax.annotate(
        f"{fit.exponent:.2f}", (x[-1], y[-1]), color=colour, fontsize=9,
        xytext=(5, -13) if below else (-6, 3), textcoords="offset points",
        ha="right", va="top" if below else "bottom",
    )  # fmt: skip
