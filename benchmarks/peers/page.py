"""The pages that the results make: docs/benchmark.md with its figures, and every table.

python -m benchmarks.peers.page [--results FILE] [--out docs/benchmark.md] [--tables FILE]
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
from benchmarks.peers.figure import draw_held_back, draw_initial_number, of_initial_number
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
    READING,
    REAL,
    SETTINGS,
    SPLITS,
    TABLES,
    TRIED,
    WHY,
)

DOCS = Path(__file__).parents[2] / "docs"
# Problems that the first benchmark did not have.
LATER = frozenset((*FAMILIES["battery"], *MORE_REAL, "uniform, 50-d"))
# Families of which some data sets were held back.
SHOWN_FAMILIES = ("real", "battery", "simulated")
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
            f"Given the true number, it reaches **{_number(given)}**.",
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
    return f"In ARI, {above} of {n_cuts:,} best cuts exceed it."


def _beside(scores: Sequence[Score], mode: str) -> str:
    best = best_peer(scores, mode)
    if best is None:
        return "No peer has been run on as many trials."
    return (
        f"On the same trials {best.name}, the best peer, has {best.ari:.3f}, ours {best.ours:.3f}."
    )


def _number(value: float, style: str = ".3f") -> str:
    return "–" if value != value else format(value, style)


def summary_of_structureless(scores: Sequence[Score]) -> str:
    """How often one is left where there is one."""
    ours = [s for s in scores if (s.method, s.mode) == (OURS, "automatic")]
    whole = sum(s.number == 1 for s in ours)
    return (
        f"Where there is no structure, one cluster is left in {whole} of {len(ours)} trials, as it "
        f"should be."
    )


def summary_of_splits(scores: Sequence[Score]) -> str:
    """How well splits of the true groups are put together again."""
    parts = []
    for kind in sorted({s.overclustering for s in scores}):
        here = [s for s in scores if s.overclustering == kind and s.family != "structureless"]
        auto, refined = (mean_of(here, name, "automatic") for name in (OURS, REFINED))
        cut = _number(mean_of(here, BOUND, "bound"))
        parts.append(f"{kind}s {_number(auto)}, refined {_number(refined)} (the bound: {cut})")
    return f"Mean ARI of `auto` where there are groups: {'; '.join(parts)}."


def family_section(family: str, scores: Sequence[Score]) -> list[str]:
    """What was found for one family, with folded tables."""
    title = f"## {FAMILY_TITLES[family]}"
    if not any(s.method == OURS for s in scores):
        return [title, "Ours has not been run here."]
    parts = [title, *([ABOUT_FAMILY[family]] if family in ABOUT_FAMILY else [])]
    parts += [(summary_of_structureless if family == "structureless" else summary)(scores)]
    parts += [folded(MODES["automatic"], overview(scores, "automatic", brief=True))]
    return [*parts, *where_short(family, scores)]


def folded(title: str, text: str) -> str:
    """Text that is shown by a click."""
    return f'<details markdown="1"><summary>{title}</summary>\n\n{text}\n\n</details>'


def family_tables(family: str, scores: Sequence[Score]) -> list[str]:
    """All tables of one family, and what was tried where a peer is ahead."""
    modes = ["automatic"] if family == "structureless" else list(MODES)
    parts = [f"## {FAMILY_TITLES[family]}"]
    for mode in modes:
        parts += [f"### {MODES[mode]}", overview(scores, mode)]
    parts += ["### By data set", by_problem(scores)]
    return [*parts, *(["### What was tried", TRIED[family]] if family in TRIED else [])]


def where_short(family: str, scores: Sequence[Score]) -> list[str]:
    """On which sets the best peer is ahead, and why."""
    best = best_peer(scores, "automatic")
    if family not in WHY or best is None:
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
    return ["### Where it falls short", sentence, WHY[family]]


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


def answer(scores: Sequence[Score]) -> str:
    """The three sentences at the top, about data held back when rules were chosen."""
    held = [s for s in scores if s.half == HELD_BACK]
    here = [[s for s in held if s.family == family] for family in SHOWN_FAMILIES]
    found = [(mean_of(part, REFINED, "automatic"), best_peer(part, "automatic")) for part in here]
    names = [FAMILY_TITLES[family].lower() for family in SHOWN_FAMILIES]
    ours = ", ".join(f"{_number(x)} on {name}" for (x, _), name in zip(found, names, strict=True))
    peers = "; ".join(
        f"{best.name} ({_number(best.ari)}) on {name}"
        for (_, best), name in zip(found, names, strict=True)
        if best is not None
    )
    free = [s for s in scores if s.family == "structureless"]
    return (
        f"On data that were held back when its rules were chosen, Unsplit without any setting and "
        f"with refined labels reaches a mean adjusted Rand index of {ours}. The best of the others "
        f"there: {peers}; most of the others cluster from scratch, without an over-clustering to "
        f"respect. {summary_of_structureless(free)}"
    )


def sorted_out(scores: Sequence[Score]) -> tuple[list[Score], list[Score]]:
    """Scores of the main grid: of clusterings that were found, and of splits of the true groups."""
    main = [s for s in scores if s.is_main]
    found = [s for s in main if s.overclustering not in FROM_GROUPS]
    return found, [s for s in main if s.overclustering in FROM_GROUPS]


def page(scores: Sequence[Score], images: Path) -> str:
    """The page for readers; its figures go into the folder of images."""
    found, split = sorted_out(scores)
    draw_held_back(found, images / "held_back.png")
    parts = [HEAD, answer(found), f"{READING} {about_bound(found + split)}".strip()]
    for family in FAMILIES:
        parts += family_section(family, [s for s in found if s.family == family])
    parts += ["## Random and noisy splits", SPLITS, summary_of_splits(split)]
    if len({s.factor for s in of_initial_number(scores)}) > 2:  # a line needs some points
        draw_initial_number(scores, images / "initial_number.png")
        title, picture = "How many clusters to start from", "images/initial_number.png"
        parts += [f"## {title}", f"![{title}]({picture})"]
    parts += [
        "## Settings",
        SETTINGS,
        folded("Other values of one setting", settings(found + split)),
    ]
    return (
        "\n\n".join([*parts, "## What was compared", folded("The methods, one by one", ABOUT)])
        + "\n"
    )


def every_table(scores: Sequence[Score]) -> str:
    """All tables."""
    found, split = sorted_out(scores)
    parts = [TABLES]
    for family in FAMILIES:
        here = [s for s in found if s.family == family]
        parts += family_tables(family, here) if here else []
    return "\n\n".join([*parts, *first_benchmark(scores), *splits(split)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=DOCS / "benchmark.md")
    parser.add_argument("--tables", type=Path, default=Path(__file__).parent / "README.md")
    args = parser.parse_args()
    scores = read_scores(args.results)
    args.out.write_text(page(scores, args.out.parent / "images"), encoding="utf-8")
    args.tables.write_text(every_table(scores), encoding="utf-8")


if __name__ == "__main__":
    main()
