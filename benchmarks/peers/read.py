"""Results as scores that can be compared."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.peers.__main__ import lines
from benchmarks.peers.words import MODES


class Score(NamedTuple):
    """What one method reached on one over-clustering of one problem in one mode."""

    problem: str
    overclustering: str
    factor: float
    seed: int
    method: str
    mode: str
    ari: float
    nmi: float
    number: int
    true: int
    seconds: float
    mebibytes: float

    @property
    def place(self) -> tuple[str, str, float, int]:
        """The over-clustering."""
        return self.problem, self.overclustering, self.factor, self.seed


def read_scores(results: Path) -> list[Score]:
    """Every score; what clusters from scratch counts for every over-clustering of its data."""
    merging: list[Score] = []
    scratch: list[Score] = []
    for line in lines(results):
        for method, found in line.get("scores", {}).items():
            for mode in MODES:
                if mode in found:
                    score = _score(line, method, mode, found)
                    (merging if line["overclustering"] else scratch).append(score)
    places = {score.place for score in merging}
    spread = [
        score._replace(overclustering=place[1], factor=place[2])
        for score in scratch
        for place in places
        if (place[0], place[3]) == (score.problem, score.seed)
    ]
    return merging + spread


def _score(line: dict[str, Any], method: str, mode: str, found: dict[str, Any]) -> Score:
    what = found[mode]
    return Score(
        line["problem"],
        line["overclustering"],
        line["factor"],
        line["seed"],
        method,
        mode,
        what["ari"],
        what["nmi"],
        what["number"],
        line["true"],
        found["seconds"],
        found["mebibytes"] or np.nan,
    )
