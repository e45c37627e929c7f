"""Results, sorted: which merges were right, where, and by which method."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.core import Result
from experiments.imagenet_realistic.variants import AUGMENTED, USUAL

Table = NDArray[np.float64]

# Of the paper's ten subsets.
PAPER_PURITY = (0.912, 0.918, 0.903, 0.928, 0.945, 0.917, 0.890, 0.894, 0.953, 0.963)
PAPER_UNIQUE = (8, 8, 6, 7, 7, 9, 9, 8, 8, 7)

NAMES = {
    "sscd": "SSCD",
    "deepcluster": "DeepCluster",
    "deepcluster-small": "small DeepCluster",
}

# All that one has: the training that A prefers, and both distances.
BEST = "best"
BEST_RANKING = "average overlap + euclidean"


class Place(NamedTuple):
    """A representation and a size of the initial clusters."""

    representation: str
    s: int

    def __str__(self) -> str:
        return f"{NAMES[self.representation]} s = {self.s}"


def usual(results: Sequence[Result], place: Place) -> Iterator[Result]:
    """What was merged there, trained as usual."""
    return trained(results, place, USUAL)


def trained(results: Sequence[Result], place: Place, variant: str) -> Iterator[Result]:
    """What was merged there, trained in this way."""
    for r in results:
        if r.get("variant") == variant and (r["representation"], r["s"]) == place:
            yield r


def places(results: Sequence[Result]) -> list[Place]:
    """Where anything was merged, the stored representation first."""
    found = {Place(r["representation"], r["s"]) for r in results if r.get("variant") == USUAL}
    return sorted(found, key=lambda place: (list(NAMES).index(place.representation), place.s))


def described(results: Sequence[Result], place: Place, what: str) -> dict[int, float]:
    """Purity, or another number of the over-clustering, by subset."""
    return {r["subset"]: r[what] for r in usual(results, place)}


def curves(results: Sequence[Result], place: Place, name: str) -> dict[int, list[int]]:
    """CM(1), CM(2), … by subset."""
    if name == BEST:
        return _curves(trained(results, place, AUGMENTED), BEST_RANKING)
    return _curves(usual(results, place), name)


def _curves(some: Iterable[Result], name: str) -> dict[int, list[int]]:
    return {r["subset"]: r["CM"][name] for r in some if name in r["CM"]}


def rankings(results: Sequence[Result]) -> list[str]:
    """All ways to merge that were tried, in the order of their first appearance."""
    names = dict.fromkeys(name for r in results for name in r.get("CM", {}))
    augmented = any(r.get("variant") == AUGMENTED for r in results)
    return [*names, BEST] if augmented else list(names)


def paired(
    results: Sequence[Result], place: Place, name: str, other: str = "euclidean"
) -> tuple[Table, Table]:
    """CM of two ways to merge on the subsets that have both, shape (subsets, merges)."""
    one, two = (curves(results, place, which) for which in (name, other))
    subsets = sorted(one.keys() & two.keys())
    length = min((len(curve[s]) for curve in (one, two) for s in subsets), default=0)
    first, second = (
        np.array([curve[s][:length] for s in subsets], np.float64).reshape(len(subsets), length)
        for curve in (one, two)
    )
    return first, second


def mean_after(results: Sequence[Result], place: Place, name: str, merges: int) -> float:
    """CM(merges), averaged over subsets; NaN if nobody merged so often."""
    found = [c[merges - 1] for c in curves(results, place, name).values() if len(c) >= merges]
    return float(np.mean(found)) if found else float("nan")


def mean_possible(results: Sequence[Result], place: Place, merges: int) -> float:
    """The most that CM(merges) can be, averaged over subsets."""
    possible = described(results, place, "possible").values()
    return float(np.mean([min(merges, n) for n in possible])) if possible else float("nan")


def nearest_in_purity(
    results: Sequence[Result], name: str, among: Sequence[Place] | None = None
) -> Place | None:
    """Where this way to merge was compared, on over-clusterings as pure as the paper's."""

    def gap(place: Place) -> float:
        pure = list(described(results, place, "purity").values())
        return abs(float(np.mean(pure)) - float(np.mean(PAPER_PURITY)))

    there = places(results) if among is None else among
    compared = [place for place in there if paired(results, place, name)[0].size]
    return min(compared, key=gap, default=None)
