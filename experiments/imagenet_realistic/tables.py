"""The tables, each made from whatever results there are."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import markdown
from experiments.core import Result
from experiments.imagenet_realistic.numbers import (
    BEST,
    PAPER_PURITY,
    PAPER_UNIQUE,
    described,
    mean_after,
    mean_possible,
    places,
    rankings,
)
from experiments.imagenet_realistic.variants import USUAL

# In this order, then whatever else there is.
FIRST = ("euclidean", "paper", "published", "paper, once", "default", BEST, "compose")


def overclusterings(results: Sequence[Result]) -> str:
    """Purity and unique majority categories beside the paper's."""
    there = places(results)
    if not there:
        return ""
    subsets = sorted({n for place in there for n in described(results, place, "purity")})
    columns = range(1, max(*subsets, len(PAPER_PURITY)) + 1)
    rows: list[Sequence[Any]] = []
    for what, paper in (("purity", PAPER_PURITY), ("unique", PAPER_UNIQUE)):
        of = {"the paper": dict(enumerate(paper, 1))}
        of |= {str(place): described(results, place, what) for place in there}
        rows += [_row(f"{what}, {name}", values, columns, what) for name, values in of.items()]
    return markdown.table(("", *map(str, columns), "mean"), rows)


def _row(name: str, values: dict[int, Any], columns: range, what: str) -> list[str]:
    def text(value: Any) -> str:
        return f"{value:.1%}" if what == "purity" else f"{value:g}"

    mean = float(np.mean(list(values.values())))
    entries = [text(values[n]) if n in values else "" for n in columns]
    return [name, *entries, text(round(mean, 3))]


def by_method(results: Sequence[Result], *merges: int) -> str:
    """Mean correct merges, a row for every way to merge and a column for every place."""
    there = places(results)
    names = [name for name in FIRST if name in rankings(results)]
    names += [name for name in rankings(results) if name not in FIRST]
    if not names:
        return ""

    columns = []
    for place in there:
        means = {n: [mean_after(results, place, n, m) for m in merges] for n in names}
        best = max((row[-1] for row in means.values() if row[-1] == row[-1]), default=None)
        entries = [_numbers(row, bold=row[-1] == best) for row in means.values()]
        columns.append([*entries, _numbers([mean_possible(results, place, m) for m in merges])])
    rows = zip([*names, "possible"], *columns, strict=True)
    return markdown.table(("", *map(str, there)), rows)


def _numbers(values: Sequence[float], bold: bool = False) -> str:
    text = " / ".join("–" if value != value else f"{value:.1f}" for value in values)
    return f"**{text}**" if bold else text


def costs(results: Sequence[Result]) -> str:
    """Networks, epochs of all of them, and seconds where nothing else ran beside."""
    seconds, rows = seconds_alone(results), []
    for method, cases in _on_the_same(results).items():
        # Folds go through their epochs side by side.
        beside = cases[0]["networks"] if method == "cross-fitted" else 1
        epochs = float(np.mean([beside * r["epochs run"] for r in cases]))
        timed = seconds.get(method, float("nan"))
        n_timed = len(_undisturbed(cases))
        rows.append((method, cases[0]["networks"], epochs, timed, len(cases), n_timed))
    header = ("", "networks", "epochs of all", "seconds", "subsets", "of them timed")
    return markdown.table(header, rows, ".3g") if rows else ""


def seconds_alone(results: Sequence[Result]) -> dict[str, float]:
    """Median seconds of training on the same subsets, by method, of what nothing ran beside."""
    alone = {method: _undisturbed(cases) for method, cases in _on_the_same(results).items()}
    return {method: float(np.median(values)) for method, values in alone.items() if values}


def _undisturbed(cases: Sequence[Result]) -> list[float]:
    return [r["training seconds"] for r in cases if r.get("at once", 1) == 1]


def _on_the_same(results: Sequence[Result]) -> dict[str, list[Result]]:
    """One training and retraining, on the subsets that have both."""
    of = {
        method: {(r["representation"], r["s"], r["subset"]): r for r in found}
        for method in ("cross-fitted", "paper")
        if (found := [r for r in results if r["method"] == method and r["variant"] == USUAL])
    }
    both = sorted(set.intersection(*map(set, of.values()))) if of else []
    return {method: [by_case[case] for case in both] for method, by_case in of.items() if both}


def by_variant(results: Sequence[Result], *merges: int) -> str:
    """Mean over the subsets that have all variants."""
    once = [r for r in results if r["method"] == "cross-fitted"]
    other = [r for r in once if r["variant"] != USUAL]
    if not other:
        return ""
    # Of some variants there are more sizes and subsets: the same for all.
    cases: dict[str, set[Any]] = {}
    for r in once:
        cases.setdefault(r["variant"], set()).add((r["representation"], r["s"], r["subset"]))
    same = set.intersection(*cases.values())
    rows = []
    for variant in sorted(cases, key=lambda variant: variant != USUAL):
        found = [r for r in once if r["variant"] == variant]
        found = [r for r in found if (r["representation"], r["s"], r["subset"]) in same]
        if found:
            means = [
                float(np.mean([r["CM"][name][min(m, len(r["CM"][name])) - 1] for r in found]))
                for name in ("default", "average lecam")
                for m in merges
            ]
            A, epochs = (float(np.mean([r[what] for r in found])) for what in ("A", "epochs run"))
            rows.append((variant, len(found), A, epochs, *means))
    counts = [f"{name}, {m}" for name in ("default", "lecam") for m in merges]
    return markdown.table(("", "subsets", "A", "epochs", *counts), rows, ".3g")
