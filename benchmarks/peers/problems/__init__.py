"""Data whose groups are known: name → (data folder, seed) → problem.

The seed draws the sample where the data are simulated and the subset where there are more of them
than are used; digits, cells, batteries and what came with the later ones are always the
same.  Files are looked for in the data
folder and in :data:`benchmarks.peers.problems.files.CACHE`;
``python -m benchmarks.peers.problems.fetch`` puts there what a package registry has.
"""

from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.problems.batteries import BATTERIES, MORE_BATTERIES
from benchmarks.peers.problems.real import MORE_REAL, REAL
from benchmarks.peers.problems.simulated import DRAWS, as_problem
from benchmarks.peers.task import Problem

PROBLEMS: dict[str, Callable[[Path, int], Problem]] = {
    **REAL,
    **{name: as_problem(name, draw) for name, draw in DRAWS.items()},
    **BATTERIES,
    **MORE_REAL,
    **MORE_BATTERIES,
}
