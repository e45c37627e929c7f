"""The tables of the page: every way, every place, and what is found without a number."""

from collections.abc import Sequence

import numpy as np

from benchmarks import markdown
from experiments.core import Result
from experiments.imagenette.numbers import (
    BOTH,
    DEFAULT,
    EVEN,
    FEW,
    LESS,
    MANY,
    NETWORK,
    ODD,
    PAPER,
    VARIANTS,
    WAYS,
    Place,
    complete,
    curves,
    numbers_below,
    paired,
    place_of,
    places,
    shown,
    signed,
    trained,
)


def overclusterings(results: Sequence[Result]) -> str:
    """What Algorithm 1 made of the draws."""
    rows = []
    for place in sorted({place_of(r) for r in results if r["method"] == "features"}):
        here = [r for r in results if r["method"] == "features" and place_of(r) == place]
        pure, unique = ([r[what] for r in here] for what in ("purity", "unique"))
        name = str(place).replace(f", 0 px, {VARIANTS[LESS]}", "")
        spread = f"{min(pure):.0%}–{max(pure):.0%}"
        rows.append((name, len(here), f"{np.mean(pure):.1%}", spread, f"{np.mean(unique):.1f}"))
    header = ("over-clustering", "draws", "purity", "from–to", "unique majority categories")
    return markdown.table(header, rows)


def by_way(results: Sequence[Result]) -> str:
    """Correct merges of every way, where all categories were drawn from."""
    there = [place for place in shown(results) if place.headline]
    columns = [f"{p.short} ({len(curves(results, p, NETWORK))} draws)" for p in there]
    rows = [
        (name, *(_seven_and_twelve(results, p, way) for p in there)) for way, name in WAYS.items()
    ]
    return markdown.table(("", *columns), rows)


def _seven_and_twelve(results: Sequence[Result], place: Place, way: str) -> str:
    """Only draws on which a network was trained, so that all ways have the same."""
    draws = curves(results, place, NETWORK).keys()
    found = [c for draw, c in curves(results, place, way).items() if draw in draws]
    if not found:
        return "–"
    few, many = (np.mean([c[min(m, len(c)) - 1] for c in found]) for m in (FEW, MANY))
    missing = "" if len(found) == len(draws) else f" ({len(found)})"
    return f"{few:.1f} / {many:.1f}{missing}"


def against_euclidean(results: Sequence[Result]) -> str:
    """How many more correct merges than by Euclidean distance, with standard errors."""
    rows = []
    for place in shown(results):
        for way in (PAPER, NETWORK, "graph of features", BOTH):
            gap = paired(results, [place], way).gap()
            if len(gap) < 2:
                continue
            few = min(FEW, gap.shape[1])
            after = signed(gap[:, few - 1]), signed(gap[:, -1])
            name = WAYS[way].split(":")[0]
            rows.append((str(place), name, len(gap), f"{numbers_below(gap)} of {few}", *after))
    header = ("over-clustering", "way", "draws", "numbers 1–7 below", "after 7", "after 12, or all")
    return markdown.table(header, rows)


def by_half(results: Sequence[Result], tiny: Sequence[tuple[str, dict[str, float]]]) -> str:
    """Odd and even draws, and Tiny ImageNet, apart; the first line says what odd draws choose."""
    columns: dict[str, dict[str, str]] = {}
    for title, draws in (("odd draws", ODD), ("even draws", EVEN)):
        right = _right_on(results, draws)
        columns[title] = {way: f"{few:.2f} / {many:.2f}" for way, (few, many) in right.items()}
    for title, means in tiny:
        columns[title] = {way: f"{means[way]:.2f}" for way in WAYS if way in means}
    named = [way for way in WAYS if not way.startswith("paper")]
    rows = [(WAYS[way], *(c.get(way, "–") for c in columns.values())) for way in named]
    return f"{_chosen(_right_on(results, ODD))}\n\n{markdown.table(('', *columns), rows)}"


def _right_on(results: Sequence[Result], draws: Sequence[int]) -> dict[str, tuple[float, float]]:
    """Correct merges after 7 and 12 by way, where all draws were measured."""
    found = {way: paired(results, complete(results), way, NETWORK, draws).ours for way in WAYS}
    return {
        way: (float(ours[:, FEW - 1].mean()), float(ours[:, -1].mean()))
        for way, ours in found.items()
        if len(ours)
    }


def _chosen(right: dict[str, tuple[float, float]]) -> str:
    """The way with most correct merges after 12."""
    if not right:
        return ""
    best = max(right, key=lambda way: right[way][1])
    said = "which is the default" if best == BOTH else "which is not the default"
    return f"Odd draws alone choose {WAYS[best].split(':')[0]}, {said}."


def augmentation(results: Sequence[Result]) -> str:
    """More augmentation against less on the same draws, place by place and over all of them."""
    rows = []
    pairs: list[tuple[Result, Result]] = []
    for place in places(results, DEFAULT):
        more, less = (by_draw(results, place._replace(variant=v)) for v in (DEFAULT, LESS))
        here = [(less[draw], more[draw]) for draw in sorted(more.keys() & less.keys())]
        if here:
            rows.append((str(place), *_less_and_more(here)))
            pairs += here
    if not pairs:
        return ""
    rows.append(("all of these", *_less_and_more(pairs)))
    ways = [WAYS[way].split(":")[0] for way in (NETWORK, BOTH)]
    header = (
        "over-clustering", "pairs", "A, less", "A, more", "A higher with more",
        *(f"{way}, {which}" for way in ways for which in ("less", "more", "difference")),
    )  # fmt: skip
    return markdown.table(header, rows)


def _less_and_more(pairs: Sequence[tuple[Result, Result]]) -> list[str]:
    A = np.array([[one["A"] for one in pair] for pair in pairs])
    cells = [str(len(pairs)), *(f"{mean:.4f}" for mean in A.mean(axis=0))]
    cells.append(f"{int((A[:, 1] > A[:, 0]).sum())} of {len(pairs)}")
    for way in (NETWORK, BOTH):
        right = np.array([[one["CM"][way][MANY - 1] for one in pair] for pair in pairs])
        cells += [f"{mean:.2f}" for mean in right.mean(axis=0)]
        cells.append(signed(np.diff(right)[:, 0]) if len(pairs) > 1 else "–")
    return cells


def by_draw(results: Sequence[Result], place: Place, seed: int = 0) -> dict[int, Result]:
    """What was trained at a place."""
    return {r["draw"]: r for r in trained(results, seed) if place_of(r) == place}


def automatic(results: Sequence[Result]) -> str:
    """What is found without being told a number, mean over draws: clusters and ARI."""
    rows = []
    for place in shown(results):
        here = by_draw(results, place)
        features = {
            r["draw"]: r
            for r in results
            if r["method"] == "features" and place_of(r) == place._replace(side=0, variant=LESS)
        }
        draws = sorted(here.keys() & features.keys())
        if len(draws) < 2:
            continue
        unique = np.mean([here[d]["unique"] for d in draws])
        names = ("network", "graph of scores", "graph of features")
        ours = [_found([here[d]["auto"][name] for d in draws]) for name in names]
        others = [
            _found([features[d]["auto"][name] for d in draws]) for name in ("HDBSCAN", "Leiden")
        ]
        rows.append((str(place), len(draws), f"{unique:.1f}", *ours, *others))
    header = (
        "over-clustering", "draws", "majority categories", "*auto*, no graph",
        "*auto*, images alone", "*auto* with features", "HDBSCAN", "Leiden",
    )  # fmt: skip
    return markdown.table(header, rows)


def _found(some: Sequence[Result]) -> str:
    clusters, agreement = (np.mean([one[what] for one in some]) for what in ("clusters", "ARI"))
    return f"{clusters:.1f}, {agreement:.2f}"
