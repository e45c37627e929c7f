"""What the numbers say: the tables, and what became of the paper's claim."""

from collections.abc import Sequence

import numpy as np

from experiments.core import Claim, Result, folder_of, results_in
from experiments.imagenet_realistic.numbers import PAPER_PURITY, mean_after
from experiments.imagenet_realistic.numbers import Place as TinyPlace
from experiments.imagenette import regime, tables
from experiments.imagenette.numbers import (
    BOTH,
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
    Table,
    complete,
    paired,
    signed,
)
from experiments.imagenette.numbers import regime as in_regime
from experiments.texts import ELSEWHERE, unmeasured

THEIRS = {
    PAPER: "the paper's method",
    NETWORK: "our default for images alone (overlap)",
    BOTH: "our default with features (overlap and edges)",
}


def table(results: Sequence[Result]) -> str:
    """All of it."""
    merged = [r for r in results if "CM" in r]
    if not any(r["side"] >= 64 for r in merged):  # the quick form shows nothing worth a table
        return ""
    parts = [
        ("Over-clusterings by Algorithm 1, k = 20 (10 of half of the categories).",
         tables.overclusterings(merged)),
        ("Below, networks are trained with more augmentation, the default of `resnet18`, unless a "
         "row or column says *less augmentation*. The paper's method was run with less only.\n\n"
         "Images and clusters as large as the paper's: more correct merges than by Euclidean "
         "distance. The standard error is that over draws, whose cases are averaged first; two "
         "draws give a rough one.", regime.by_size(merged)),
        (regime.as_pure(merged), regime.seeds(merged)),
        (f"Correct merges after {FEW} and after {MANY}, mean over draws; in brackets how many if "
         "not all were made.", tables.by_way(merged)),
        ("More correct merges than by Euclidean distance, with the standard error over draws.",
         tables.against_euclidean(merged)),
        (f"Correct merges after {MANY} by how far the features alone are ahead of the network "
         "alone; ten categories, SSCD, all sizes and pixels with the default.",
         regime.by_lead(merged)),
        (f"Chosen on odd draws: after {FEW} and {MANY}, 96 pixels, s of 75 and 100; and after "
         f"{MANY} on Tiny ImageNet, with less augmentation.", tables.by_half(merged, _tiny())),
        ("One training, or one before each merge; 96 pixels, s of 75 and 100, seven or eight at a "
         "time on one card.", regime.costs_table(merged)),
        ("More augmentation (zoom 0.4, colours 0.3) against less (colours 0.1), on the same draws: "
         f"A, and correct merges after {MANY} with the standard error over the pairs.",
         tables.augmentation(merged)),
        ("Nobody tells a number: clusters found and adjusted Rand index over the images in "
         "initial clusters. HDBSCAN (clusters of a hundredth) and Leiden see the features of all "
         "images of the draw.", tables.automatic(merged)),
    ]  # fmt: skip
    return "\n\n".join(text for part in parts for text in part if text)


def claims(results: Sequence[Result]) -> list[Claim]:
    """The paper's statement for its own method and for ours, then our own aims."""
    merged = [r for r in results if "CM" in r]
    return [
        _purity(merged),
        *(_at_every_number(merged, way) for way in THEIRS),
        *(_aim(merged, way) for way in (NETWORK, BOTH)),
        *_once(merged),
    ]


def _purity(results: Sequence[Result]) -> Claim:
    low, high = min(PAPER_PURITY), max(PAPER_PURITY)
    claim = f"Purity {low:.0%}–{high:.0%} with s = 100, ten categories of about 1,300 images."
    pure: dict[int, list[float]] = {}
    for r in results:
        if r["method"] == "features" and Place(r["representation"], r["categories"], 0, 0).headline:
            pure.setdefault(r["s"], []).append(r["purity"])
    if 100 not in pure:
        return unmeasured(claim)
    within = {s: bool(low <= np.mean(some) <= high) for s, some in pure.items()}
    said = ", ".join(
        f"s = {s}: {min(some):.0%}–{max(some):.0%}" for s, some in sorted(pure.items())
    )
    elsewhere = "changed" if any(within.values()) else "not reproduced"
    return Claim(claim, said, "reproduced" if within[100] else elsewhere)


def _at_every_number(results: Sequence[Result], way: str) -> Claim:
    claim = (
        f"More correct merges than Euclidean distance at every number 1–{FEW}, 96 pixels, s of 75 "
        f"and 100: {THEIRS[way]}."
    )
    ours, euclidean, _ = paired(results, _places(results, way), way)
    if not len(ours):
        return unmeasured(claim)
    gap = (ours - euclidean).mean(axis=0)[:FEW]
    above, below = int((gap > 0).sum()), int((gap < 0).sum())
    less = f", {VARIANTS[LESS]}" if way == PAPER else ""
    said = (
        f"above it at {above}, below at {below} of {FEW} numbers "
        f"({ours[:, FEW - 1].mean():.1f} against {euclidean[:, FEW - 1].mean():.1f} after {FEW}, "
        f"{len(ours)} over-clusterings{less})"
    )
    # Both make all of the first merges right, where none can be above the other.
    perfect = int((euclidean[:, :FEW] == np.arange(1, FEW + 1)).all(axis=0).sum())
    verdict = "reproduced" if above >= FEW - perfect and not below else "not reproduced"
    if verdict != "reproduced" and above and not below:
        verdict = "changed"
    if perfect and not below:
        said += f"; Euclidean distance makes the first {perfect} without a mistake"
    # The paper's opponent is DeepCluster on all of ImageNet, ours SSCD.
    return Claim(claim, said, ELSEWHERE if way == PAPER else verdict)


def _places(results: Sequence[Result], way: str) -> list[Place]:
    """The paper's method is there whether or not ours was trained."""
    return complete(results, LESS) if way == PAPER else complete(results)


def _aim(results: Sequence[Result], way: str) -> Claim:
    claim = (
        f"(Ours:) not below Euclidean distance at 1–{FEW}, and a correct merge of {MANY} above it: "
        f"{THEIRS[way]}."
    )
    main, every = complete(results), in_regime(results)
    compared = paired(results, main, way)
    if not len(compared.ours):
        return unmeasured(claim)
    gaps = [compared.gap(), paired(results, every, way).gap()]
    halves = [
        f"{signed(some[:, -1])} on {name} draws"
        for name, draws in (("odd", ODD), ("even", EVEN))
        if len(some := paired(results, main, way, draws=draws).gap()) > 1
    ]
    cases = [f"{len(compared.ours)} cases of {len(gaps[0])} draws", *halves]
    said = f"{_least_and_last(gaps[0])} ({', '.join(cases)}), 96 pixels, s of 75 and 100"
    larger = paired(results, [p for p in every if p.side > 96], way)
    if len(larger.ours):
        said += f"; 112 pixels: {_least_and_last(larger.gap())} ({len(larger.ours)} cases)"
    if len(every) > len(main):
        n = len(paired(results, every, way).ours)
        said += f"; with these and s = 130: {_least_and_last(gaps[1])} ({n} cases)"
    return Claim(claim, said, "reached" if all(map(regime.holds, gaps)) else "not reached")


def _least_and_last(gap: Table) -> str:
    least = gap[:, :FEW].mean(axis=0).min()
    return f"{least:+.2f} or more at 1–{FEW}, then {signed(gap[:, -1])} after {MANY}"


def _once(results: Sequence[Result]) -> list[Claim]:
    """Right merges, then seconds."""
    merges = f"(Ours:) one training makes as many correct merges as one before each of {MANY}."
    time = f"(Ours:) one training takes no longer than {MANY} of the paper's."
    found, cases, alike = regime.costs(results)
    if not found:
        return [unmeasured(merges), unmeasured(time)]
    ours, with_features, less, paper = found
    seconds = f"{ours.seconds:.0f} seconds against {paper.seconds:.0f}"
    right = (
        f"{ours.right:.1f} right by one training, {paper.right:.1f} by the paper's {MANY} with "
        f"less augmentation ({cases} cases), in {seconds}; one training with features "
        f"{with_features.right:.1f}; one with less augmentation {less.right:.1f}, in "
        f"{less.seconds:.0f} seconds"
    )
    took = f"{seconds} (seven or eight at a time, the paper's with less augmentation)"
    if alike:
        took += (
            f"; in the {alike} cases that ran beside as many others each time "
            f"{ours.alike:.0f} against {paper.alike:.0f}"
        )
    return [
        Claim(merges, right, "reached" if ours.right >= paper.right else "not reached"),
        Claim(time, took, "reached" if ours.seconds <= paper.seconds else "not reached"),
    ]


def _tiny() -> list[tuple[str, dict[str, float]]]:
    """The same ways on Tiny ImageNet, from the results of the other experiment."""
    results = results_in(folder_of("imagenet-realistic") / "results")
    columns = []
    for s in (20, 40):
        place = TinyPlace("sscd", s)
        means = {way: mean_after(results, place, way, MANY) for way in WAYS}
        known = {way: mean for way, mean in means.items() if np.isfinite(mean)}
        columns.append((f"Tiny ImageNet, s = {s}", known))
    return columns
