"""The page that the results make: docs/benchmark.md and its figures.

python -m benchmarks.peers.page [--results benchmarks/peers/results]
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.peers.__main__ import RESULTS, lines
from benchmarks.peers.grid import FACTORS
from benchmarks.peers.overclusterings import OVERCLUSTERINGS
from benchmarks.peers.problems import PROBLEMS
from benchmarks.peers.words import ABOUT, HEAD, MODES

DOCS = Path(__file__).parents[2] / "docs"
OURS = "unsplit"


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


def how_far(scores: Sequence[Score]) -> str:
    """How much of the grid, one seed, has been run."""
    ran = {score.place for score in scores if score.method == OURS and score.factor in FACTORS}
    wanted = len(PROBLEMS) * len(OVERCLUSTERINGS) * len(FACTORS)
    return f"So far {len(ran)} of about {wanted} cells have been run."


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    texts = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    texts += ["| " + " | ".join(map(_text, row)) + " |" for row in rows]
    return "\n".join(texts)


def _text(cell: Any) -> str:
    if isinstance(cell, float):
        return "" if np.isnan(cell) else f"{cell:.3f}"
    return str(cell)


def overview(scores: Sequence[Score], mode: str) -> str:
    """All methods in one mode, best first, with ours on the very same over-clusterings."""
    of_method: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        if score.mode == mode and score.factor in FACTORS:
            of_method[score.method].append(score)
    ours = {score.place: score for score in of_method[OURS]}
    rows = []
    for method, found in of_method.items():
        both = [(score, ours[score.place]) for score in found if score.place in ours]
        if both:
            rows.append((method, len(both), *_means(both)))
    rows.sort(key=lambda row: -float(row[2] - row[3]))
    header = ["method", "cells", "ARI", "ours there", "NMI", "number / true", "seconds", "MiB"]
    return table(header, rows)


def _means(both: Sequence[tuple[Score, Score]]) -> tuple[Any, ...]:
    found = [score for score, _ in both]
    ratio = np.exp(np.mean(np.log([score.number / score.true for score in found])))
    return (
        float(np.mean([score.ari for score in found])),
        float(np.mean([ours.ari for _, ours in both])),
        float(np.mean([score.nmi for score in found])),
        f"{ratio:.2f}",
        f"{np.median([score.seconds for score in found]):.1f}",
        f"{np.median([score.mebibytes for score in found]):.0f}",
    )


def by(scores: Sequence[Score], what: Callable[[Score], str], title: str) -> str:
    """Our automatic mode, our bounds and the best automatic peer, by problem or the like."""
    groups: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        if score.factor in FACTORS:
            groups[what(score)].append(score)
    rows = []
    for name, found in groups.items():
        ours = [
            _mean([s.ari for s in found if s.method == OURS and s.mode == mode]) for mode in MODES
        ]
        rows.append((name, *ours, *_best_peer(found, "automatic"), *_best_peer(found, "given")))
    header = [title, "auto", "given the number", "best cut", "best automatic peer", "", "given", ""]
    return table(header, rows)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _best_peer(scores: Sequence[Score], mode: str) -> tuple[str, float]:
    """The peer with the highest mean, of those that ran wherever ours did."""
    n_ours = sum(s.method == OURS and s.mode == mode for s in scores)
    of_method: dict[str, list[float]] = defaultdict(list)
    for s in scores:
        if s.mode == mode and not s.method.startswith(OURS):
            of_method[s.method].append(s.ari)
    means = {name: float(np.mean(v)) for name, v in of_method.items() if len(v) >= n_ours}
    if not means:
        return "", float("nan")
    best = max(means, key=means.__getitem__)
    return best, means[best]


def draw_sensitivity(scores: Sequence[Score], path: Path) -> None:
    """Index against the initial number of clusters, k-means over-clusterings."""
    import matplotlib.pyplot as plt

    shown = [OURS, "confusion loop", "CHOIR", "SCCAF", "FINCH of clusters", "HDBSCAN"]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for method in shown:
        found: dict[float, list[float]] = defaultdict(list)
        for s in scores:
            if (s.method, s.mode, s.overclustering) == (method, "automatic", "k-means"):
                found[s.factor].append(s.ari)
        if found:
            factors = sorted(found)
            means = [np.mean(found[factor]) for factor in factors]
            axes.plot(factors, means, "o-", label=method, lw=2.5 if method == OURS else 1.2)
    axes.set(xscale="log", xlabel="initial clusters for every true one", ylabel="mean ARI")
    axes.set_xticks([1.5, 2, 3, 4, 6, 8, 10], ["1.5", "2", "3", "4", "6", "8", "10"])
    axes.minorticks_off()
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    args = parser.parse_args()
    scores = read_scores(args.results)
    parts = [HEAD, how_far(scores)]
    for mode, title in MODES.items():
        parts += [f"## {title}", overview(scores, mode)]
    parts += ["## By data", by(scores, lambda s: s.problem, "data")]
    parts += ["## By over-clustering", by(scores, lambda s: s.overclustering, "made by")]
    if len({score.factor for score in scores}) > 2:  # a line needs some points
        draw_sensitivity(scores, args.docs / "images" / "initial_number.png")
        parts += ["## How many clusters to start from", "![](images/initial_number.png)"]
    parts += [ABOUT]
    (args.docs / "benchmark.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
