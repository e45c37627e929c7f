"""The cells of the benchmark, in the order in which they are worked on."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.peers.methods import FROM_SCRATCH, METHODS, SETTINGS, SLOW
from benchmarks.peers.overclusterings import OVERCLUSTERINGS
from benchmarks.peers.problems import PROBLEMS

# Clusters to start from for every true one.
FACTORS = (4.0, 2.0, 8.0)
# Sensitivity to that number: k-means only.
MORE_FACTORS = (1.5, 3.0, 6.0, 10.0)

# Fewer groups are cut as if they were five: two moons cut into four cannot be put together again.
FEWEST = 5


class Cell(NamedTuple):
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
        """Name of the cell."""
        return "|".join(map(str, self))


def initial_number(n_true: int, factor: float) -> int:
    """Number of clusters to start from.

    Examples
    --------
    >>> initial_number(10, 1.5), initial_number(1, 4.0)
    (15, 20)
    """
    return round(factor * max(n_true, FEWEST))


def cells(
    problems: Sequence[str] = tuple(PROBLEMS),
    overclusterings: Sequence[str] = tuple(OVERCLUSTERINGS),
    works: Sequence[str] = tuple(METHODS),
    seeds: int = 1,
    slow: bool = False,
) -> Iterator[Cell]:
    """All cells, so ordered that an interrupted run has seen a bit of everything."""
    works = [work for work in works if slow or work not in SLOW]
    merging = [work for work in works if work not in FROM_SCRATCH]
    for seed in range(seeds):
        for problem in problems:
            for work in works:
                if work in FROM_SCRATCH:
                    yield Cell(problem, seed, "", 0.0, work)
        for factor in FACTORS + MORE_FACTORS:
            for name in overclusterings:
                if factor in FACTORS or name == "k-means":
                    for problem in problems:
                        for work in merging:
                            if work not in SETTINGS or factor == FACTORS[0]:
                                yield Cell(problem, seed, name, factor, work)
