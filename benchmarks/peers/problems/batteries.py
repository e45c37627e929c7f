"""Small sets of public clustering batteries: shapes, rings, chains, blobs and a few of UCI.

All come from one file, see gagolews/clustering-data-v1.  Group −1 is noise: it is clustered with
the rest, but not scored.
"""

from collections.abc import Callable
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


def battery(name: str, of: str) -> Callable[[Path, int], Problem]:
    """One set as a problem; the seed changes nothing about the data."""

    def load(folder: Path, _: int) -> Problem:
        with np.load(find(folder, FILE)) as data:
            X, y = data[f"{of}.X"].astype(np.float64), data[f"{of}.y"].astype(np.int64)
        return Problem(name, np.ascontiguousarray(X), y)

    return load


BATTERIES = {f"battery: {of}": battery(f"battery: {of}", of) for of in SETS}
