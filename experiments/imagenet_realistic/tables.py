"""The tables, each made from whatever results there are."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import markdown
from experiments.core import Result
from experiments.imagenet_realistic.numbers import (
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
FIRST = ("euclidean", "paper", "paper, once", "default", "compose")


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
    cells = [text(values[n]) if n in values else "" for n in columns]
    return [name, *cells, text(round(mean, 3))]


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
        cells = [_numbers(row, bold=row[-1] == best) for row in means.values()]
        columns.append([*cells, _numbers([mean_possible(results, place, m) for m in merges])])
    rows = zip([*names, "possible"], *columns, strict=True)
    return markdown.table(("", *map(str, there)), rows)


def _numbers(values: Sequence[float], bold: bool = False) -> str:
    text = " / ".join("–" if value != value else f"{value:.1f}" for value in values)
    return f"**{text}**" if bold else text


def costs(results: Sequence[Result]) -> str:
    """Networks, epochs of all of them, and seconds where nothing else ran beside."""
    of = {
        method: {(r["representation"], r["s"], r["subset"]): r for r in found}
        for method in ("cross-fitted", "paper")
        if (found := [r for r in results if r["method"] == method and r["variant"] == USUAL])
    }
    both = set.intersection(*map(set, of.values())) if of else set()
    rows = []
    for method, by_case in of.items():
        cases = [by_case[case] for case in sorted(both)]
        if cases:
            # Folds go through their epochs side by side.
            beside = cases[0]["networks"] if method == "cross-fitted" else 1
            epochs = float(np.mean([beside * r["epochs run"] for r in cases]))
            alone = [r["training seconds"] for r in cases if r.get("at once", 1) == 1]
            seconds = float(np.median(alone)) if alone else float("nan")
            rows.append((method, cases[0]["networks"], epochs, seconds, len(cases), len(alone)))
    header = ("", "networks", "epochs of all", "seconds", "subsets", "of them timed")
    return markdown.table(header, rows, ".3g") if rows else ""


def by_variant(results: Sequence[Result], *merges: int) -> str:
    """Mean over the subsets that have all variants."""
    once = [r for r in results if r["method"] == "cross-fitted"]
    other = [r for r in once if r["variant"] != USUAL]
    if not other:
        return ""
    where = {(r["representation"], r["s"]) for r in other}
    subsets = {r["subset"] for r in other}
    same = [r for r in once if (r["representation"], r["s"]) in where and r["subset"] in subsets]
    rows = []
    for variant in dict.fromkeys([USUAL, *(r["variant"] for r in other)]):
        found = [r for r in same if r["variant"] == variant]
        if found:
            means = [
                float(np.mean([r["CM"][name][min(m, len(r["CM"][name])) - 1] for r in found]))
                for name in ("default", "average overlap")
                for m in merges
            ]
            A, epochs = (float(np.mean([r[what] for r in found])) for what in ("A", "epochs run"))
            rows.append((variant, len(found), A, epochs, *means))
    counts = [f"{name}, {m}" for name in ("default", "overlap") for m in merges]
    return markdown.table(("", "subsets", "A", "epochs", *counts), rows, ".3g")
