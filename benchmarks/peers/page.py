"""The page that the results make: docs/benchmark.md and its figures.

python -m benchmarks.peers.page [--results benchmarks/peers/results]
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import markdown
from benchmarks.peers.__main__ import RESULTS
from benchmarks.peers.grid import FACTORS
from benchmarks.peers.overclusterings import OVERCLUSTERINGS
from benchmarks.peers.problems import PROBLEMS
from benchmarks.peers.read import Score, read_scores
from benchmarks.peers.words import ABOUT, HEAD, MODES, SETTINGS, TRIED

table = partial(markdown.table, number=".3f")

DOCS = Path(__file__).parents[2] / "docs"
OURS = "unsplit"
# What ours is called with something changed.
CHANGED = f"{OURS}, "
# Where every method ran on one machine, one core each.
TIMED = 4.0


def summary(scores: Sequence[Score]) -> str:
    """The answer in three sentences."""
    ours = {mode: _mean([s.ari for s in scores if _is_ours(s, mode)]) for mode in MODES}
    best = {mode: _best_peer([s for s in scores if s.factor in FACTORS], mode) for mode in MODES}
    n = len({s.place for s in scores if _is_ours(s, "automatic")})
    wanted = len(PROBLEMS) * len(OVERCLUSTERINGS) * len(FACTORS)
    return (
        f"{n} cells of at most {wanted} have been run. Mean ARI of `auto`: "
        f"**{ours['automatic']:.3f}**; of the best automatic peer that ran on all of them, "
        f"{best['automatic'][0]}: {best['automatic'][1]:.3f}. Given the true number: "
        f"**{ours['given']:.3f}**; {best['given'][0]}: {best['given'][1]:.3f}. The best cut along "
        f"our own tree, for which one would have to know the answer: {ours['best cut']:.3f}, so "
        f"not knowing the number costs {1 - ours['automatic'] / ours['best cut']:.1%}."
    )


def _is_ours(score: Score, mode: str) -> bool:
    return score.method == OURS and score.mode == mode and score.factor in FACTORS


def overview(scores: Sequence[Score], mode: str) -> str:
    """All methods in one mode, best first, with ours on the very same over-clusterings."""
    compared = _settings(scores)
    of_method: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        if score.mode == mode and score.factor in FACTORS and score.method not in compared:
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
        _median([score.seconds for score in found if score.factor == TIMED], ".1f"),
        _median([score.mebibytes for score in found if score.factor == TIMED], ".0f"),
    )


def _median(values: Sequence[float], style: str) -> str:
    return format(np.median(values), style) if values else ""


def _settings(scores: Sequence[Score]) -> list[str]:
    """Ours with one setting changed, by name."""
    return sorted({s.method for s in scores if s.method.startswith(CHANGED) and "=" in s.method})


def settings(scores: Sequence[Score]) -> str:
    """What changing one setting changes: mean difference and its standard error, cell by cell."""
    of: dict[tuple[str, str], dict[Any, float]] = defaultdict(dict)
    for s in scores:
        if s.factor in FACTORS:
            of[s.method, s.mode][s.place] = s.ari
    rows = []
    for method in _settings(scores):
        cells = [_difference(of[method, mode], of[OURS, mode]) for mode in MODES]
        rows.append((f"`{method.removeprefix(CHANGED)}`", len(of[method, "automatic"]), *cells))
    return table(["instead of the default", "cells", "auto", "given the number", "best cut"], rows)


def _difference(other: dict[Any, float], ours: dict[Any, float]) -> str:
    """Mean and standard error of what another is better by, where both ran."""
    better = np.array([ari - ours[place] for place, ari in other.items() if place in ours])
    if not len(better):
        return ""
    error = better.std(ddof=1) / np.sqrt(len(better)) if len(better) > 1 else np.nan
    return f"{better.mean():+.3f} ± {error:.3f}"


def by(scores: Sequence[Score], what: Callable[[Score], str], title: str) -> str:
    """Our automatic mode, our bounds and the best peers, by problem or the like.

    *Of the loss*: the share of all that lies between the automatic cuts and the best ones.
    """
    groups: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        if score.factor in FACTORS:
            groups[what(score)].append(score)
    lost = {
        name: _sum(found, "best cut") - _sum(found, "automatic") for name, found in groups.items()
    }
    total = sum(lost.values())
    rows = []
    for name, found in groups.items():
        ours = [_mean([s.ari for s in found if _is_ours(s, mode)]) for mode in MODES]
        peers = (*_best_peer(found, "automatic"), *_best_peer(found, "given"))
        rows.append((name, *ours, f"{lost[name] / total:.0%}" if total > 0 else "", *peers))
    header = [title, "auto", "given the number", "best cut", "of the loss"]
    return table([*header, "best automatic peer", "", "given", ""], rows)


def _sum(scores: Sequence[Score], mode: str) -> float:
    return sum(s.ari for s in scores if _is_ours(s, mode))


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

    shown = [OURS, "HDBSCAN, hundredths", "SCCAF", "FINCH of clusters", "CHOIR", "confusion loop"]
    of: dict[tuple[str, float], list[float]] = defaultdict(list)
    for s in scores:
        if (s.mode, s.overclustering) == ("automatic", "k-means"):
            of[s.method, s.factor].append(s.ari)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for method in shown:
        # Means over fewer data sets could not be compared.
        found = {
            factor: values
            for (name, factor), values in of.items()
            if name == method and len(values) == len(of[OURS, factor])
        }
        if found:
            factors = sorted(found)
            means = [np.mean(found[factor]) for factor in factors]
            axes.plot(factors, means, "o-", label=method, lw=2.5 if method == OURS else 1.2)
    axes.set(
        xscale="log",
        xlabel="initial clusters for every true one",
        ylabel="mean ARI of the data sets",
    )
    axes.set_xticks([1.5, 2, 3, 4, 6, 8, 10], ["1.5", "2", "3", "4", "6", "8", "10"])
    axes.minorticks_off()
    figure.legend(loc="outside right center", frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    args = parser.parse_args()
    scores = read_scores(args.results)
    parts = [HEAD, summary(scores), TRIED]
    for mode, title in MODES.items():
        parts += [f"## {title}", overview(scores, mode)]
    parts += ["## By data", by(scores, lambda s: s.problem, "data")]
    parts += ["## By over-clustering", by(scores, lambda s: s.overclustering, "made by")]
    if len({score.factor for score in scores}) > 2:  # a line needs some points
        draw_sensitivity(scores, args.docs / "images" / "initial_number.png")
        parts += ["## How many clusters to start from", "![](images/initial_number.png)"]
    parts += ["## Settings", SETTINGS, settings(scores), ABOUT]
    (args.docs / "benchmark.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
