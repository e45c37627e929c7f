"""What the numbers say: the tables, and what became of the paper's claim."""

from collections.abc import Sequence

import numpy as np

from experiments.core import Claim, Result, folder_of, results_in
from experiments.imagenet_realistic.numbers import Place as TinyPlace
from experiments.imagenet_realistic.numbers import mean_after
from experiments.imagenette import tables
from experiments.imagenette.numbers import (
    BOTH,
    EVEN,
    FEW,
    MANY,
    NETWORK,
    ODD,
    PAPER,
    WAYS,
    mean_and_error,
    paired,
    regime,
)
from experiments.texts import unmeasured

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
        (f"Correct merges after {FEW} and after {MANY}, mean over draws; in brackets how many if "
         "not all were made.", tables.by_way(merged)),
        ("More correct merges than by Euclidean distance, with the standard error over draws.",
         tables.against_euclidean(merged)),
        (f"Odd draws alone lead to the same default: after {FEW} and {MANY} over all sizes and "
         f"pixels, all categories; and after {MANY} on Tiny ImageNet.",
         tables.by_half(merged, _tiny())),
        ("One training, or one before each merge; 96 pixels, s of 75 and 100, seven at a time on "
         "one card.", tables.costs(merged)),
        ("More augmentation (zoom 0.4, colours 0.3) against less (colours 0.1), on the same draws.",
         tables.augmentation(merged)),
        ("Nobody tells a number: clusters found and adjusted Rand index over the images in "
         "initial clusters. HDBSCAN (clusters of a hundredth) and Leiden see the features of all "
         "images of the draw.", tables.automatic(merged)),
    ]  # fmt: skip
    return "\n\n".join(f"{title}\n\n{body}" for title, body in parts)


def claims(results: Sequence[Result]) -> list[Claim]:
    """The paper's statement for its own method and for ours, then our own aims."""
    merged = [r for r in results if "CM" in r]
    found = [_at_every_number(merged, way) for way in THEIRS]
    return [*found, *(_aim(merged, way) for way in (NETWORK, BOTH)), _once(merged)]


def _at_every_number(results: Sequence[Result], way: str) -> Claim:
    claim = (
        f"More correct merges than Euclidean distance at every number 1–{FEW}, 96 pixels, s of 75 "
        f"and 100: {THEIRS[way]}."
    )
    ours, euclidean = paired(results, regime(results), way)
    if not len(ours):
        return unmeasured(claim)
    gap = (ours - euclidean).mean(axis=0)[:FEW]
    above, below = int((gap > 0).sum()), int((gap < 0).sum())
    said = (
        f"above it at {above}, below at {below} of {FEW} numbers "
        f"({ours[:, FEW - 1].mean():.1f} against {euclidean[:, FEW - 1].mean():.1f} after {FEW}, "
        f"{len(ours)} over-clusterings)"
    )
    # Both make all of the first merges right, where none can be above the other.
    perfect = int((euclidean[:, :FEW] == np.arange(1, FEW + 1)).all(axis=0).sum())
    verdict = "reproduced" if above >= FEW - perfect and not below else "not reproduced"
    if verdict != "reproduced" and above and not below:
        verdict = "changed"
    if perfect and not below:
        said += f"; Euclidean distance makes the first {perfect} without a mistake"
    return Claim(claim, said, verdict)


def _aim(results: Sequence[Result], way: str) -> Claim:
    claim = (
        f"(Ours:) not below Euclidean distance at 1–{FEW}, and a correct merge of {MANY} above it: "
        f"{THEIRS[way]}."
    )
    ours, euclidean = paired(results, regime(results), way)
    if not len(ours):
        return unmeasured(claim)
    gap = ours - euclidean
    least = gap[:, :FEW].mean(axis=0).min()
    mean, error = mean_and_error(gap[:, -1])
    said = f"at least {least:+.2f}, then {mean:+.2f} ± {error:.2f} after {MANY} ({len(gap)} cases"
    for name, draws in (("odd", ODD), ("even", EVEN)):
        some, of_euclidean = paired(results, regime(results), way, draws=draws)
        if len(some) > 1:
            part, its_error = mean_and_error((some - of_euclidean)[:, -1])
            said += f", {part:+.2f} ± {its_error:.2f} on {name} draws"
    said += ")"
    return Claim(claim, said, "reached" if least >= 0 and mean >= 1 else "not reached")


def _once(results: Sequence[Result]) -> Claim:
    claim = f"(Ours:) one training makes as many correct merges as one before each of {MANY}."
    ours, retrained = paired(results, regime(results), NETWORK, PAPER)
    if not len(ours):
        return unmeasured(claim)
    means = ours[:, -1].mean(), retrained[:, -1].mean()
    seconds = {
        method: np.mean([r["training seconds"] for r in results if _in_regime(r, method)])
        for method in ("cross-fitted", PAPER)
    }
    said = (
        f"{means[0]:.1f} against {means[1]:.1f} ({len(ours)} cases), in "
        f"{seconds['cross-fitted']:.0f} seconds against {seconds[PAPER]:.0f}, seven at a time"
    )
    return Claim(claim, said, "reached" if means[0] >= means[1] else "not reached")


def _in_regime(result: Result, method: str) -> bool:
    where = result["representation"], result["categories"], result["side"], result["variant"]
    return (
        result["method"] == method and where == ("sscd", "all", 96, "usual") and result["s"] >= 75
    )


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
