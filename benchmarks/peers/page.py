"""The page that the results make: docs/benchmark.md and its figure.

python -m benchmarks.peers.page [--results FILE] [--out docs/benchmark.md]
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.peers.__main__ import RESULTS
from benchmarks.peers.compare import (
    OURS,
    REFINED,
    above_bound,
    best_peer,
    differences,
    mean,
    mean_of,
    sets_behind,
)
from benchmarks.peers.figure import draw_initial_number, of_initial_number
from benchmarks.peers.grid import FACTORS
from benchmarks.peers.overclusterings import FROM_GROUPS
from benchmarks.peers.problems.families import CHOSEN_ON, FAMILIES, HELD_BACK
from benchmarks.peers.problems.real import MORE_REAL
from benchmarks.peers.read import Score, read_scores
from benchmarks.peers.scoring import BOUND
from benchmarks.peers.tables import by, by_problem, overview, releases, settings
from benchmarks.peers.texts import (
    ABOUT,
    BATTERY,
    FAMILY_TITLES,
    FIRST,
    HEAD,
    MODES,
    REAL,
    SETTINGS,
    SPLITS,
    TRIED,
)

DOCS = Path(__file__).parents[2] / "docs"
# Problems that the first benchmark did not have.
LATER = frozenset((*FAMILIES["battery"], *MORE_REAL, "uniform, 50-d"))
ABOUT_FAMILY = {"real": REAL, "battery": BATTERY}


def summary(scores: Sequence[Score]) -> str:
    """The answer for one family, in a few sentences."""
    ours = [s for s in scores if (s.method, s.mode) == (OURS, "automatic")]
    auto = mean(s.ari for s in ours)
    halves = {half: mean(s.ari for s in ours if s.half == half) for half in (CHOSEN_ON, HELD_BACK)}
    given, cut = mean_of(scores, OURS, "given"), mean_of(scores, OURS, "best cut")
    return " ".join(
        (
            f"{len(ours)} trials of {len({s.problem for s in ours})} data sets. `auto` reaches a "
            f"mean ARI of **{auto:.3f}**: {_number(halves[CHOSEN_ON])} on the sets that rules were "
            f"chosen on, **{_number(halves[HELD_BACK])}** on those held back.",
            _beside(scores, "automatic"),
            f"Given the true number, ours reaches **{_number(given)}**.",
            _beside(scores, "given"),
            f"Refined, `auto` reaches **{_number(mean_of(scores, REFINED, 'automatic'))}** "
            f"({_halves(scores, REFINED)} on the halves), and "
            f"**{_number(mean_of(scores, REFINED, 'given'))}** given the number.",
            f"The best cut along our own tree would reach {_number(cut)}, so not knowing the "
            f"number costs {_number(1 - auto / cut, '.1%')}; the bound for all that merge is "
            f"{_number(mean_of(scores, BOUND, 'bound'))}.",
        )
    )


def _halves(scores: Sequence[Score], method: str) -> str:
    """Means of a method that stops by itself, on both halves."""
    parts = ([s for s in scores if s.half == half] for half in (CHOSEN_ON, HELD_BACK))
    return " and ".join(_number(mean_of(part, method, "automatic")) for part in parts)


def about_bound(scores: Sequence[Score]) -> str:
    """How good a bound it is for the index, which it does not maximise."""
    above, n_cuts = above_bound(scores)
    if not n_cuts:
        return ""
    return f"Its ARI is exceeded by {above} of {n_cuts} best cuts."


def _beside(scores: Sequence[Score], mode: str) -> str:
    best = best_peer(scores, mode)
    if best is None:
        return "No peer has been run on as many trials."
    return f"The best peer, {best.name}, reaches {best.ari:.3f} where ours has {best.ours:.3f}."


def _number(value: float, style: str = ".3f") -> str:
    return "–" if value != value else format(value, style)


def summary_of_structureless(scores: Sequence[Score]) -> str:
    """How often one is left where there is one."""
    ours = [s for s in scores if (s.method, s.mode) == (OURS, "automatic")]
    whole = sum(s.number == 1 for s in ours)
    return (
        f"There is one group, so the ARI is 1 where one cluster is left and else 0. `auto` leaves "
        f"one in {whole} of {len(ours)} trials."
    )


def family_section(family: str, scores: Sequence[Score]) -> list[str]:
    """All tables of one family."""
    title = f"## {FAMILY_TITLES[family]}"
    if not any(s.method == OURS for s in scores):
        return [title, "Ours has not been run here."]
    if family == "structureless":
        mode = "automatic"
        return [title, summary_of_structureless(scores), overview(scores, mode), by_problem(scores)]
    parts = [title, *([ABOUT_FAMILY[family]] if family in ABOUT_FAMILY else [])]
    parts += [summary(scores)]
    for mode, name in MODES.items():
        parts += [f"### {name}", overview(scores, mode)]
    parts += ["### By data set", by_problem(scores)]
    return [*parts, *where_short(family, scores)]


def where_short(family: str, scores: Sequence[Score]) -> list[str]:
    """On which sets the best peer is ahead, and what was tried."""
    best = best_peer(scores, "automatic")
    if family not in TRIED or best is None:
        return []
    behind = [
        f"{b.problem.removeprefix('battery: ')} by {b.by:.2f} ({b.number:.1f})"
        for b in sets_behind(scores, best.name)
    ]
    sentence = (
        f"{best.name} is ahead of `auto`, refined, by more than 0.01 on {len(behind)} of "
        f"{len({s.problem for s in scores})} data sets (in brackets, how many clusters ours leaves "
        f"for one true group): {', '.join(behind)}."
    )
    by = np.array([behind.by for behind in differences(scores, best.name)])
    error = by.std(ddof=1) / len(by) ** 0.5
    side = "ahead" if by.mean() > 0 else "behind"
    sentence += (
        f" Over all data sets it is {side} by {abs(by.mean()):.3f} ± {error:.3f} (standard error)."
    )
    return ["### Where it falls short", sentence, TRIED[family]]


def first_benchmark(scores: Sequence[Score]) -> list[str]:
    """All trials that the last release was measured on."""
    first = [s for s in scores if is_of_first(s)]
    parts = ["## Over all trials of the first benchmark", FIRST, releases(first)]
    return [*parts, by(first, lambda s: s.overclustering, "over-clustered by")]


def is_of_first(score: Score) -> bool:
    """Whether the first benchmark had this trial."""
    return score.problem not in LATER and score.factor in FACTORS and score.seed == 0


def splits(scores: Sequence[Score]) -> list[str]:
    """Random and noisy splits of the true groups."""
    parts = ["## Random and noisy splits", SPLITS]
    parts += [by(scores, lambda s: f"{s.overclustering}, {s.family}", "trials")]
    for mode in ("automatic", "given"):
        parts += [f"### {MODES[mode]}, splits", overview(scores, mode)]
    return parts


def page(scores: Sequence[Score], images: Path) -> str:
    """The whole page; its figure goes into the folder of images."""
    main = [s for s in scores if s.is_main]
    found = [s for s in main if s.overclustering not in FROM_GROUPS]
    parts = [f"{HEAD} {about_bound(main)}"]
    for family in FAMILIES:
        parts += family_section(family, [s for s in found if s.family == family])
    parts += first_benchmark(scores)
    parts += splits([s for s in main if s.overclustering in FROM_GROUPS])
    if len({s.factor for s in of_initial_number(scores)}) > 2:  # a line needs some points
        draw_initial_number(scores, images / "initial_number.png")
        parts += ["## How many clusters to start from", "![](images/initial_number.png)"]
    return "\n\n".join([*parts, "## Settings", SETTINGS, settings(main), ABOUT]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=DOCS / "benchmark.md")
    args = parser.parse_args()
    text = page(read_scores(args.results), args.out.parent / "images")
    args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
