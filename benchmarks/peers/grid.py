"""The trials of the benchmark, in the order in which they are worked on."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from benchmarks.peers.methods import FROM_SCRATCH, METHODS, SETTINGS, SLOW
from benchmarks.peers.overclusterings import OVERCLUSTERINGS
from benchmarks.peers.problems import PROBLEMS
from benchmarks.peers.problems.families import family_of
from benchmarks.peers.scoring import BOUND

# Clusters to start from for every true one.
FACTORS = (4.0, 2.0, 8.0)
# Sensitivity to that number: k-means and the first seed only.
MORE_FACTORS = (1.5, 3.0, 6.0, 10.0)
# There are many batteries, so each is over-clustered in fewer ways.
BATTERY_FACTORS = (3.0, 6.0)
BATTERY_OVERCLUSTERINGS = ("k-means", "leiden")
# All of them, in the order in which they are worked on.
_ORDER = (4.0, 3.0, 2.0, 6.0, 8.0, 1.5, 10.0)

# What can be done with an over-clustering: the methods, and the bound for all that merge.
WORKS = (*METHODS, BOUND)

# Fewer groups are cut as if they were five: two moons cut into four cannot be put together again.
FEWEST = 5
# Clusters of fewer observations on average say nothing.
SMALLEST_MEAN = 6


class Trial(NamedTuple):
    """A problem, how it was over-clustered, and a piece of work on it.

    ``overclustering`` is empty and ``factor`` 0 for what clusters from scratch.
    """

    problem: str
    seed: int
    overclustering: str
    factor: float
    work: str

    @property
    def key(self) -> str:
        """Name of the trial."""
        return "|".join(map(str, self))


def initial_number(n_true: int, factor: float, n: int) -> int:
    """Number of clusters to start from, for n observations.

    Examples
    --------
    >>> initial_number(10, 1.5, 1000), initial_number(1, 4.0, 1000), initial_number(6, 6.0, 214)
    (15, 20, 35)
    """
    return min(round(factor * max(n_true, FEWEST)), n // SMALLEST_MEAN)


def factors_of(family: str) -> tuple[float, ...]:
    """Clusters to start from for every true one, where all methods run; the first is timed."""
    return BATTERY_FACTORS if family == "battery" else FACTORS


def seeds_of(problem: str, seeds: int) -> range:
    """Seeds that a problem is run with; data without structure are drawn once."""
    return range(min(seeds, 1) if family_of(problem) == "structureless" else seeds)


def is_run(problem: str, overclustering: str, factor: float, seed: int) -> bool:
    """Whether a problem is over-clustered in this way."""
    if family_of(problem) == "battery":
        return factor in BATTERY_FACTORS and overclustering in BATTERY_OVERCLUSTERINGS
    return factor in FACTORS or (
        factor in MORE_FACTORS and overclustering == "k-means" and seed == 0
    )


def trials(
    problems: Sequence[str] = tuple(PROBLEMS),
    overclusterings: Sequence[str] = tuple(OVERCLUSTERINGS),
    works: Sequence[str] = WORKS,
    seeds: int = 2,
    slow: bool = False,
) -> Iterator[Trial]:
    """All trials, so ordered that an interrupted run has seen a bit of everything."""
    works = [work for work in works if slow or work not in SLOW]
    for seed in range(seeds):
        here = [problem for problem in problems if seed in seeds_of(problem, seeds)]
        for problem, work in product(here, works):
            if work in FROM_SCRATCH:
                yield Trial(problem, seed, "", 0.0, work)
        for factor, name, problem in product(_ORDER, overclusterings, here):
            if is_run(problem, name, factor, seed):
                for work in works:
                    if work not in FROM_SCRATCH and _is_wanted(work, factor, seed):
                        yield Trial(problem, seed, name, factor, work)


def _is_wanted(work: str, factor: float, seed: int) -> bool:
    """Other settings of the training are compared once for every over-clustering."""
    return work not in SETTINGS or (factor == FACTORS[0] and seed == 0)
