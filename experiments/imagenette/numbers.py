"""Results, sorted: which merges were right, where, and by which way."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.core import Result
from experiments.imagenet_realistic.numbers import NAMES
from experiments.imagenet_realistic.variants import AUGMENTED, USUAL

Table = NDArray[np.float64]

# Merges that the paper looks at, and those where clusters become hard to tell apart.
FEW, MANY = 7, 12

# Augmentation as a reader sees it: more of it has become the default of a ResNet-18.
DEFAULT, LESS = AUGMENTED, USUAL
VARIANTS = {DEFAULT: "more augmentation: the default", LESS: "less augmentation"}

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
    """Where something was measured, and with how much augmentation."""

    representation: str
    categories: str
    s: int
    side: int
    variant: str = DEFAULT

    def __str__(self) -> str:
        half = "" if self.categories == "all" else f", {self.categories} half"
        return f"{NAMES[self.representation]}, {self.short}{half}"

    @property
    def short(self) -> str:
        """Size and pixels, for tables of one representation."""
        less = f", {VARIANTS[LESS]}" if self.variant == LESS else ""
        return f"s = {self.s}, {self.side} px{less}"

    @property
    def headline(self) -> bool:
        """Features of the paper's quality, all ten categories: k = 20."""
        return (self.representation, self.categories) == ("sscd", "all")


def place_of(result: Result) -> Place:
    """Where a result was measured."""
    return Place(*(result[name] for name in Place._fields))


def trained(results: Sequence[Result], seed: int = 0) -> list[Result]:
    """Results of one cross-fitted training each."""
    return [r for r in results if r["method"] == "cross-fitted" and r["seed"] == seed]


def places(results: Sequence[Result], variant: str) -> list[Place]:
    """Where anything was trained and merged: SSCD and all categories first."""
    return _sorted({place_of(r) for r in trained(results) if r["variant"] == variant})


def shown(results: Sequence[Result]) -> list[Place]:
    """All places with at least two draws: by the default if it was measured there, else by less."""
    by_default, by_less = (
        {
            place._replace(variant=DEFAULT): place
            for place in places(results, variant)
            if len(curves(results, place, NETWORK)) > 1
        }
        for variant in (DEFAULT, LESS)
    )
    return _sorted((by_less | by_default).values())


def _sorted(some: Iterable[Place]) -> list[Place]:
    order = list(NAMES)
    return sorted(some, key=lambda place: (order.index(place.representation), *place[1:]))


def curves(
    results: Sequence[Result], place: Place, way: str, seed: int = 0
) -> dict[int, list[int]]:
    """CM(1), CM(2), … by draw.

    What needs no network has no pixels; the paper's method has its own augmentation, which is
    less.  Both have one seed.
    """
    same = {
        "features": (place._replace(side=0, variant=LESS), 0),
        "paper": (place._replace(variant=LESS), 0),
        "cross-fitted": (place, seed),
    }
    return {
        r["draw"]: r["CM"][way]
        for r in results
        if way in r.get("CM", {}) and (place_of(r), r["seed"]) == same[r["method"]]
    }


class Compared(NamedTuple):
    """CM of two ways on the same cases, each of shape (cases, merges), and the cases' draws."""

    ours: Table
    other: Table
    draws: NDArray[np.int64]

    def gap(self) -> Table:
        """By how much ours is above the other, shape (draws, merges).

        All cases of a draw are over-clusterings of the same images, so their mean counts once.
        """
        gap = self.ours - self.other
        some = [gap[self.draws == draw].mean(axis=0) for draw in np.unique(self.draws)]
        return np.array(some).reshape(len(some), gap.shape[1])


def paired(
    results: Sequence[Result],
    some: Sequence[Place],
    way: str,
    other: str = EUCLIDEAN,
    draws: Sequence[int] | None = None,
    seed: int = 0,
) -> Compared:
    """CM of two ways where both were made; places that are compared at once have the same k."""
    cases = [
        (draw, one[draw][:MANY], two[draw][:MANY])
        for place in some
        for one, two in [[curves(results, place, which, seed) for which in (way, other)]]
        for draw in sorted(one.keys() & two.keys())
        if draws is None or draw in draws
    ]
    length = min((len(curve) for _, *both in cases for curve in both), default=0)
    ours, others = (
        np.array([row[:length] for row in rows], np.float64).reshape(len(cases), length)
        for rows in ([one for _, one, _ in cases], [two for *_, two in cases])
    )
    return Compared(ours, others, np.array([draw for draw, *_ in cases], np.int64))


def mean_and_error(values: Table) -> tuple[float, float]:
    """Mean, and its standard error over the cases.

    Examples
    --------
    >>> mean_and_error(np.array([1.0, 3.0]))
    (2.0, 1.0)
    """
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return float(values.mean()), float(error)


def signed(values: Table) -> str:
    """Mean and standard error of differences, as a reader sees them.

    Examples
    --------
    >>> signed(np.array([1.0, 3.0]))
    '+2.00 ± 1.00'
    """
    mean, error = mean_and_error(values)
    return f"{mean:+.2f} ± {error:.2f}"


def numbers_below(gap: Table) -> int:
    """At how many of the first seven numbers of merges the mean is below zero.

    Examples
    --------
    >>> numbers_below(np.array([[0.0, -1.0, 2.0], [0.0, 0.0, 2.0]]))
    1
    """
    return int((gap[:, :FEW].mean(axis=0) < -1e-9).sum())  # means of thirds are not exactly zero


def regime(results: Sequence[Result], variant: str = DEFAULT) -> list[Place]:
    """Images and clusters as large as the paper's: at least 75 images of at least 96 pixels."""
    return [p for p in places(results, variant) if p.headline and p.s >= 75 and p.side >= 96]


def complete(results: Sequence[Result], variant: str = DEFAULT) -> list[Place]:
    """Of these, the two sizes at 96 pixels that all six draws have."""
    return [p for p in regime(results, variant) if p.s <= 100 and p.side == 96]
