"""The tables of the page."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks import markdown
from benchmarks.peers.compare import CHANGED, OURS, REFINED, difference, mean, mean_of, with_ours
from benchmarks.peers.problems.families import HALVES, HELD_BACK
from benchmarks.peers.read import Score
from benchmarks.peers.scoring import BOUND
from benchmarks.peers.texts import LAST_RELEASE, LAST_RELEASE_TRIALS, MODES

table = partial(markdown.table, number=".3f")

# Columns beside ours in the tables by data set: title, method, mode.
BESIDE = (
    ("auto, refined", REFINED, "automatic"),
    ("given, refined", REFINED, "given"),
    ("bound", BOUND, "bound"),
    ("Leiden", "Leiden", "automatic"),
    ("HDBSCAN (hundredths)", "HDBSCAN, hundredths", "automatic"),
    ("Genie (given the number)", "Genie", "given"),
)


def overview(scores: Sequence[Score], mode: str, *, brief: bool = False) -> str:
    """All methods in one mode, best first, with ours on the very same over-clusterings.

    The halves have columns of their own where both are there; a brief table has only the half that
    was held back, and no costs.
    """
    changed = changed_settings(scores)
    pairs = {name: found for name, found in with_ours(scores, mode).items() if name not in changed}
    both = len({s.half for s in scores}) == len(HALVES)
    halves = [half for half in HALVES if both and (half == HELD_BACK or not brief)]
    rows = [
        (name, len(found), *_aris(found, halves), *(() if brief else _costs(found)))
        for name, found in sorted(pairs.items(), key=lambda item: -difference(item[1]))
    ]
    costs = [] if brief else ["number / true", "seconds"]
    return table(["method", "trials", "ARI", *halves, "unsplit, same trials", *costs], rows)


def _aris(pairs: Sequence[tuple[Score, Score]], halves: Sequence[str]) -> list[float]:
    found = [score for score, _ in pairs]
    return [
        mean(s.ari for s in found),
        *(mean(s.ari for s in found if s.half == half) for half in halves),
        mean(ours.ari for _, ours in pairs),
    ]


def _costs(pairs: Sequence[tuple[Score, Score]]) -> tuple[str, str]:
    ratios = [score.number / score.true for score, _ in pairs]
    seconds = [score.seconds for score, _ in pairs if score.is_timed]
    return (
        f"{np.exp(np.mean(np.log(ratios))):.2f}",
        f"{np.median(seconds):.1f}" if seconds else "",
    )


def by_problem(scores: Sequence[Score]) -> str:
    """Ours in every mode, the bound and some peers, data set by data set."""
    groups = _grouped(scores, lambda s: s.problem)
    rows = [(name, groups[name][0].half, *_beside(groups[name])) for name in sorted(groups)]
    return table(["data set", "half", *_HEADER], rows)


def by(scores: Sequence[Score], what: Callable[[Score], str], title: str) -> str:
    """The same by something else."""
    groups = _grouped(scores, what)
    return table([title, *_HEADER], [(name, *_beside(groups[name])) for name in sorted(groups)])


_HEADER = ["auto", "given the number", "best cut", *(title for title, _, _ in BESIDE)]


def _grouped(scores: Sequence[Score], what: Callable[[Score], str]) -> dict[str, list[Score]]:
    groups: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        groups[what(score)].append(score)
    return groups


def _beside(scores: Sequence[Score]) -> list[float]:
    ours = [mean_of(scores, OURS, mode) for mode in MODES]
    return ours + [mean_of(scores, method, mode) for _, method, mode in BESIDE]


def releases(scores: Sequence[Score]) -> str:
    """Ours now and in the last release, over the trials of the first benchmark."""
    n_trials = sum((s.method, s.mode) == (OURS, "automatic") for s in scores)
    now = [mean_of(scores, OURS, mode) for mode in LAST_RELEASE]
    rows = [
        ("this release", n_trials, *now),
        ("last release", LAST_RELEASE_TRIALS, *LAST_RELEASE.values()),
    ]
    return table(["", "trials", "auto", "given the number"], rows)


def changed_settings(scores: Sequence[Score]) -> list[str]:
    """Ours with one setting changed, by name."""
    return sorted({s.method for s in scores if s.method.startswith(CHANGED) and "=" in s.method})


def settings(scores: Sequence[Score]) -> str:
    """What changing one setting changes: mean difference and its standard error, trial by trial."""
    pairs = {mode: with_ours(scores, mode) for mode in MODES}
    rows = [
        (
            f"`{method.removeprefix(CHANGED)}`",
            len(pairs["automatic"].get(method, ())),
            *(_better(pairs[mode].get(method, ())) for mode in MODES),
        )
        for method in changed_settings(scores)
    ]
    return table(["instead of the default", "trials", "auto", "given the number", "best cut"], rows)


def _better(pairs: Sequence[tuple[Score, Score]]) -> Any:
    """Mean and standard error of what another is better by."""
    if not pairs:
        return ""
    better = np.array([score.ari - ours.ari for score, ours in pairs])
    error = better.std(ddof=1) / np.sqrt(len(better)) if len(better) > 1 else np.nan
    return f"{better.mean():+.3f} ± {error:.3f}"
