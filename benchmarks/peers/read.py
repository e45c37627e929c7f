"""Results as scores that can be compared."""

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import results_file
from benchmarks.peers.grid import factors_of
from benchmarks.peers.problems.families import family_of, half_of
from benchmarks.peers.texts import MODES


class Score(NamedTuple):
    """What one method reached on one over-clustering of one problem in one mode."""

    problem: str
    overclustering: str
    factor: float
    seed: int
    method: str
    mode: str
    ari: float
    number: int
    true: int
    seconds: float

    @property
    def place(self) -> tuple[str, str, float, int]:
        """The over-clustering."""
        return self.problem, self.overclustering, self.factor, self.seed

    @property
    def family(self) -> str:
        """Family of the problem."""
        return family_of(self.problem)

    @property
    def half(self) -> str:
        """Whether rules were chosen on the problem or it was held back."""
        return half_of(self.problem)

    @property
    def is_main(self) -> bool:
        """Whether all methods run there, not only those that are compared by initial number."""
        return self.factor in factors_of(self.family)

    @property
    def is_timed(self) -> bool:
        """Whether it counts for the seconds."""
        return self.factor == factors_of(self.family)[0]


def read_scores(results: Path) -> list[Score]:
    """Every score; what clusters from scratch counts for every over-clustering of its data."""
    merging: list[Score] = []
    scratch: list[Score] = []
    for line in results_file.read(results):
        for method, found in line.get("scores", {}).items():
            for mode in (*MODES, "bound"):
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
        what["number"],
        line["true"],
        found["seconds"],
    )
