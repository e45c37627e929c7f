"""Data whose groups are known: name → (data folder, seed) → problem.

The seed draws the sample where the data are simulated and the subset where there are more of them
than are used; digits and cells are always the same.  Files are looked for in the data folder and
in :data:`benchmarks.peers.problems.files.CACHE`; ``python -m benchmarks.peers.problems.fetch``
puts there what a package registry has.
"""

from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.problems import real, simulated
from benchmarks.peers.task import Problem

PROBLEMS: dict[str, Callable[[Path, int], Problem]] = {
    "digits": real.digits,
    "bladder cells": real.bladder_cells,
    "pbmc68k": real.pbmc68k,
    "fashion-mnist": real.fashion_mnist,
    "imagenet": real.imagenet,
    "modelnet40": real.modelnet,
    "spoken digits": real.spoken_digits,
    **{name: simulated.as_problem(name, draw) for name, draw in simulated.DRAWS.items()},
}
