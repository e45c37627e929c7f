"""Results, sorted: which merges were right, where, and by which way."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.core import Result
from experiments.imagenet_realistic.numbers import NAMES
from experiments.imagenet_realistic.variants import USUAL

Table = NDArray[np.float64]

# Merges that the paper looks at, and those where clusters become hard to tell apart.
FEW, MANY = 7, 12

# Odd draws alone lead to the default; it is shown on the even ones apart.
ODD, EVEN = (1, 3, 5), (2, 4, 6)

EUCLIDEAN, PAPER, NETWORK, BOTH = (
    "euclidean",
    "paper",
    "average overlap",
    "average overlap + graph",
)

# Every way to merge, as a reader of the table sees it.
WAYS = {
    EUCLIDEAN: "Euclidean distance of the features",
    "graph of features": "neighbour graph of the features",
    PAPER: "the paper: trained anew before each merge",
    "paper, once": "the paper, trained once",
    NETWORK: "overlap: our default for images alone",
    BOTH: "overlap and edges: our default with features",
    "average overlap + euclidean": "overlap and Euclidean distance",
    "compose": "composed scores",
    "average lecam": "Le Cam distance",
    "average tv": "TVD",
    "graph of scores": "neighbour graph of the scores",
}


class Place(NamedTuple):
    """A representation, the chosen categories, images of a cluster, and pixels of an image."""

    representation: str
    categories: str
    s: int
    side: int

    def __str__(self) -> str:
        name = f"{NAMES[self.representation]}, s = {self.s}, {self.side} px"
        return name if self.categories == "all" else f"{name}, {self.categories} half"


def place_of(result: Result) -> Place:
    """Where a result was measured."""
    return Place(result["representation"], result["categories"], result["s"], result["side"])


def trained(results: Sequence[Result], variant: str = USUAL) -> list[Result]:
    """Results of one cross-fitted training each, with the first seed."""
    return [
        r
        for r in results
        if r["method"] == "cross-fitted" and r["variant"] == variant and r["seed"] == 0
    ]


def places(results: Sequence[Result], variant: str = USUAL) -> list[Place]:
    """Where anything was trained and merged: SSCD and all categories first."""
    found = {place_of(r) for r in trained(results, variant)}
    order = list(NAMES)
    return sorted(found, key=lambda p: (order.index(p.representation), p.categories, p.s, p.side))


def curves(
    results: Sequence[Result], place: Place, way: str, variant: str = USUAL
) -> dict[int, list[int]]:
    """CM(1), CM(2), … by draw; what needs no network has no pixels."""
    found = {}
    for r in results:
        if way not in r.get("CM", {}) or r["seed"] != 0:
            continue
        same = place_of(r) == place and r["variant"] == variant
        without = r["method"] == "features" and place_of(r) == place._replace(side=0)
        if same or without:
            found[r["draw"]] = r["CM"][way]
    return found


def paired(
    results: Sequence[Result],
    some: Sequence[Place],
    way: str,
    other: str = EUCLIDEAN,
    draws: Sequence[int] | None = None,
) -> tuple[Table, Table]:
    """CM of two ways where both were made, shape (cases, merges); all places have k = 20."""
    rows: tuple[list[list[int]], list[list[int]]] = ([], [])
    for place in some:
        one, two = (curves(results, place, which) for which in (way, other))
        for draw in sorted(one.keys() & two.keys()):
            if draws is None or draw in draws:
                rows[0].append(one[draw][:MANY])
                rows[1].append(two[draw][:MANY])
    length = min((len(row) for side in rows for row in side), default=0)
    first, second = (
        np.array([row[:length] for row in side], np.float64).reshape(len(side), length)
        for side in rows
    )
    return first, second


def mean_and_error(values: Table) -> tuple[float, float]:
    """Mean, and its standard error over the cases.

    Examples
    --------
    >>> mean_and_error(np.array([1.0, 3.0]))
    (2.0, 1.0)
    """
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return float(values.mean()), float(error)


def regime(results: Sequence[Result]) -> list[Place]:
    """The paper's own regime: at least 75 images of at least 96 pixels in a cluster."""
    large = [p for p in places(results) if p.s >= 75 and p.side >= 96 and p.side != 112]
    return [p for p in large if (p.representation, p.categories) == ("sscd", "all")]
