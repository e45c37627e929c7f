"""Small sets of public clustering batteries: shapes, rings, chains, blobs and a few of UCI.

They come from two files, see gagolews/clustering-data-v1, and features are used as they are.  Group
−1 is noise: it is clustered with the rest, but not scored.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.peers.problems.files import find
from benchmarks.peers.task import Problem

FILE = "batteries-28.npz"
SETS = (
    "a1",
    "atom",
    "chainlink",
    "circles",
    "compound",
    "cross",
    "fuzzyx",
    "glass",
    "hdbscan",
    "jain",
    "labirynth",
    "line",
    "mk4",
    "olympic",
    "parabolic",
    "pathbased",
    "ring",
    "ring_outliers",
    "s1",
    "s3",
    "sonar",
    "spiral",
    "stripes",
    "tetra",
    "wdbc",
    "windows",
    "wingnut",
    "z2",
)

# Added later: nobody looked at them before 2026-11-18.  The file has three real sets as well.
MORE_FILE = "more-33.npz"
MORE_SETS = (
    "fcps__engytime",
    "fcps__hepta",
    "fcps__lsun",
    "fcps__target",
    "fcps__twodiamonds",
    "graves__dense",
    "graves__ring_noisy",
    "graves__zigzag",
    "graves__zigzag_noisy",
    "graves__zigzag_outliers",
    "other__square",
    "sipu__a2",
    "sipu__aggregation",
    "sipu__d31",
    "sipu__flame",
    "sipu__r15",
    "sipu__s2",
    "sipu__s4",
    "uci__ecoli",
    "uci__ionosphere",
    "uci__statlog",
    "uci__yeast",
    "wut__graph",
    "wut__mk1",
    "wut__mk2",
    "wut__mk3",
    "wut__smile",
    "wut__trapped_lovers",
    "wut__twosplashes",
    "wut__z3",
)


def stored(name: str, file: str, of: str) -> Callable[[Path, int], Problem]:
    """One set of a file as a problem; the seed changes nothing about the data."""

    def load(folder: Path, _: int) -> Problem:
        with np.load(find(folder, file)) as data:
            X, y = data[f"{of}.X"].astype(np.float64), data[f"{of}.y"].astype(np.int64)
        return Problem(name, np.ascontiguousarray(X), y)

    return load


def _batteries(file: str, sets: Sequence[str]) -> dict[str, Callable[[Path, int], Problem]]:
    """The sets of a file by the name of their problem, which leaves out that of the battery."""
    names = {f"battery: {of.split('__')[-1]}": of for of in sets}
    return {name: stored(name, file, of) for name, of in names.items()}


BATTERIES = _batteries(FILE, SETS)
MORE_BATTERIES = _batteries(MORE_FILE, MORE_SETS)
