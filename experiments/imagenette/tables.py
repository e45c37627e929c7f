"""The tables of the page."""

from collections.abc import Sequence

import numpy as np

from benchmarks import markdown
from experiments.core import Result
from experiments.imagenet_realistic.variants import AUGMENTED, USUAL
from experiments.imagenette.numbers import (
    BOTH,
    EVEN,
    FEW,
    MANY,
    NETWORK,
    ODD,
    PAPER,
    WAYS,
    Place,
    curves,
    mean_and_error,
    paired,
    place_of,
    places,
    trained,
)


def overclusterings(results: Sequence[Result]) -> str:
    """What Algorithm 1 made of the draws."""
    rows = []
    for place in sorted({place_of(r) for r in results if r["method"] == "features"}):
        here = [r for r in results if r["method"] == "features" and place_of(r) == place]
        pure, unique = ([r[what] for r in here] for what in ("purity", "unique"))
        name = str(place).replace(", 0 px", "")
        spread = f"{min(pure):.0%}–{max(pure):.0%}"
        rows.append((name, len(here), f"{np.mean(pure):.1%}", spread, f"{np.mean(unique):.1f}"))
    header = ("over-clustering", "draws", "purity", "from–to", "unique majority categories")
    return markdown.table(header, rows)


def by_way(results: Sequence[Result]) -> str:
    """Correct merges of every way, where all categories were drawn from."""
    there = [p for p in places(results) if p.representation == "sscd" and p.categories == "all"]
    there = [p for p in there if len(curves(results, p, NETWORK)) > 1]
    columns = [f"s = {p.s}, {p.side} px ({len(curves(results, p, NETWORK))} draws)" for p in there]
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
    for place in places(results):
        for way in (PAPER, NETWORK, "graph of features", BOTH):
            ours, euclidean = paired(results, [place], way)
            if len(ours) < 2:
                continue
            gap = ours - euclidean
            below = int((gap[:, :FEW].mean(axis=0) < 0).sum())
            few = min(FEW, gap.shape[1])
            after = [mean_and_error(gap[:, m - 1]) for m in (few, gap.shape[1])]
            gaps = [f"{mean:+.2f} ± {error:.2f}" for mean, error in after]
            name = WAYS[way].split(":")[0]
            rows.append((str(place), name, len(ours), f"{below} of {few}", *gaps))
    header = ("over-clustering", "way", "draws", "numbers 1–7 below", "after 7", "after 12, or all")
    return markdown.table(header, rows)


def by_half(results: Sequence[Result], tiny: Sequence[tuple[str, dict[str, float]]]) -> str:
    """Odd and even draws, and Tiny ImageNet, apart."""
    there = [p for p in places(results) if p.representation == "sscd" and p.categories == "all"]
    columns: dict[str, dict[str, str]] = {}
    for title, draws in (("odd draws", ODD), ("even draws", EVEN)):
        columns[title] = {}
        for way in WAYS:
            ours, _ = paired(results, there, way, NETWORK, draws)
            if len(ours):
                few, many = ours[:, FEW - 1].mean(), ours[:, -1].mean()
                columns[title][way] = f"{few:.2f} / {many:.2f}"
    for title, means in tiny:
        columns[title] = {way: f"{means[way]:.2f}" for way in WAYS if way in means}
    named = [way for way in WAYS if not way.startswith("paper")]
    rows = [(WAYS[way], *(c.get(way, "–") for c in columns.values())) for way in named]
    return markdown.table(("", *columns), rows)


def augmentation(results: Sequence[Result]) -> str:
    """More augmentation against the usual, on the same draws."""
    rows = []
    for place in places(results, AUGMENTED):
        both = [_by_draw(results, place, variant) for variant in (USUAL, AUGMENTED)]
        draws = sorted(both[0].keys() & both[1].keys())
        if not draws:
            continue
        A, seven, twelve = (
            [np.mean([pick(one[draw]) for draw in draws]) for one in both]
            for pick in (
                lambda r: r["A"],
                lambda r: r["CM"][NETWORK][FEW - 1],
                lambda r: r["CM"][NETWORK][MANY - 1],
            )
        )
        higher = sum(both[1][d]["A"] > both[0][d]["A"] for d in draws)
        rows.append(
            (
                str(place),
                len(draws),
                f"{A[0]:.4f}",
                f"{A[1]:.4f}",
                f"{higher} of {len(draws)}",
                f"{seven[0]:.1f} / {twelve[0]:.1f}",
                f"{seven[1]:.1f} / {twelve[1]:.1f}",
            )
        )
    header = (
        "over-clustering", "draws", "A, usual", "A, more", "A higher with more",
        "merges right, usual", "merges right, more",
    )  # fmt: skip
    return markdown.table(header, rows)


def _by_draw(results: Sequence[Result], place: Place, variant: str) -> dict[int, Result]:
    return {r["draw"]: r for r in trained(results, variant) if place_of(r) == place}


def automatic(results: Sequence[Result]) -> str:
    """What is found without being told a number, mean over draws: clusters and ARI."""
    rows = []
    for place in places(results):
        here = _by_draw(results, place, USUAL)
        features = {
            r["draw"]: r
            for r in results
            if r["method"] == "features" and place_of(r) == place._replace(side=0)
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


def costs(results: Sequence[Result]) -> str:
    """Training once against training before every merge, seven at a time on one card."""
    rows = []
    for name, method in (("cross-fitted once", "cross-fitted"), (WAYS[PAPER], PAPER)):
        here = [
            r
            for r in results
            if r["method"] == method and r["variant"] == USUAL
            and (r["representation"], r["categories"], r["side"]) == ("sscd", "all", 96)
            and r["s"] >= 75
        ]  # fmt: skip
        if here:
            right = [r["CM"][NETWORK if method != PAPER else PAPER][MANY - 1] for r in here]
            networks = 5 if method != PAPER else MANY
            seconds = np.mean([r["training seconds"] for r in here])
            rows.append((name, networks, len(here), f"{seconds:.0f}", f"{np.mean(right):.2f}"))
    return markdown.table(("", "networks", "draws", "seconds", f"right after {MANY}"), rows)
