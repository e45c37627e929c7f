"""What the numbers say: the tables, and what became of the paper's claims."""

from collections.abc import Callable, Sequence

import numpy as np

from experiments.core import Claim, Result
from experiments.imagenet_realistic.numbers import (
    BEST,
    PAPER_PURITY,
    PAPER_UNIQUE,
    Place,
    Table,
    curves,
    described,
    nearest_in_purity,
    paired,
    places,
)
from experiments.imagenet_realistic.tables import (
    by_method,
    by_variant,
    costs,
    overclusterings,
    seconds_alone,
)
from experiments.texts import ELSEWHERE, listed, unmeasured

# Merges that the paper looks at, and those where clusters become hard to tell apart.
FEW, MANY = 7, 12

THEIRS = {
    "paper": "the paper's method",
    "published": "the paper's method by `unsplit.paper`",
    "default": "our default",
    BEST: "our best",
}
# Said by the paper of clusters as pure as its own, and of DeepCluster's features.
OF_THE_PAPER = ("paper", "published")

Test = Callable[[Table, Table], tuple[str, str]]


def table(results: Sequence[Result]) -> str:
    """All of it."""
    parts = [
        ("Over-clusterings by Algorithm 1, subset by subset.", overclusterings(results)),
        (
            f"Correct merges after {FEW} and after {MANY}, mean over the subsets. All but the "
            "first four come from one cross-fitted training: as the default, composed, with "
            "valleys first as if no image were outside, or average linkage of a divergence, or of "
            "the mean rank among it and the Euclidean distance. *best* is the last of these with "
            f"more augmentation, *published* what `unsplit.paper` does. The highest after {MANY} "
            "is in bold; a dash where nothing was measured.",
            by_method(results, FEW, MANY),
        ),
        ("What a subset costs, trained with nothing else on the machine.", costs(results)),
        (
            "Other ways to train once, mean over the same subsets of correct merges by the default "
            "(overlap) and by the Le Cam distance.",
            by_variant(results, FEW, MANY),
        ),
    ]
    return "\n\n".join(f"{title}\n\n{body}" for title, body in parts if body)


def claims(results: Sequence[Result]) -> list[Claim]:
    """The over-clusterings, three statements about Euclidean distance, and our own aims."""
    found = [_pure(results)]
    for claim, test in STATEMENTS.items():
        found += [_judged(results, claim, name, test) for name in THEIRS]
    return [*found, _aim(results, "default"), _aim(results, BEST), _once(results)]


def _pure(results: Sequence[Result]) -> Claim:
    low, high = min(PAPER_PURITY), max(PAPER_PURITY)
    few, many = min(PAPER_UNIQUE), max(PAPER_UNIQUE)
    claim = f"Purity {low:.0%}–{high:.0%}, {few}–{many} unique majority categories."
    said, good = [], []
    for place in places(results):
        pure = list(described(results, place, "purity").values())
        unique = list(described(results, place, "unique").values())
        said.append(
            f"{place}: {min(pure):.0%}–{max(pure):.0%}, mean {np.mean(pure):.1%}; "
            f"{min(unique)}–{max(unique)}"
        )
        good.append(low <= np.mean(pure) <= high and few <= np.mean(unique) <= many)
    if not said:
        return unmeasured(claim)
    return Claim(claim, "; ".join(said), "reproduced" if any(good) else "not reproduced")


def at_every_number(ours: Table, euclidean: Table) -> tuple[str, str]:
    """Is the mean above Euclidean distance's at every number of merges?"""
    means = ours.mean(axis=0)[:FEW], euclidean.mean(axis=0)[:FEW]
    above, below = int((means[0] > means[1]).sum()), int((means[0] < means[1]).sum())
    n = len(means[0])
    said = (
        f"above it at {above} and below at {below} of {n} numbers "
        f"({means[0][-1]:.1f} against {means[1][-1]:.1f} after {n})"
    )
    return said, _verdict(above == n, below == 0 and above > 0)


def on_every_subset(ours: Table, euclidean: Table) -> tuple[str, str]:
    """Are there more correct merges on each of the subsets?"""
    last = min(FEW, ours.shape[1]) - 1
    ours, euclidean = ours[:, last], euclidean[:, last]
    more, fewer = int((ours > euclidean).sum()), int((ours < euclidean).sum())
    said = f"more on {more}, as many on {len(ours) - more - fewer}, fewer on {fewer}"
    return said, _verdict(more == len(ours), fewer == 0 and more > 0)


def all_correct_on_half(ours: Table, _: Table) -> tuple[str, str]:
    """Are all merges right on half of the subsets?"""
    last = min(FEW, ours.shape[1])
    right = int((ours[:, last - 1] == last).sum())
    return f"on {right} of {len(ours)}", _verdict(2 * right >= len(ours), False)


STATEMENTS: dict[str, Test] = {
    f"More correct merges than Euclidean distance at every number 1–{FEW}": at_every_number,
    f"On every subset more correct merges than Euclidean distance ({FEW} merges)": on_every_subset,
    f"All of {FEW} merges correct on half of the subsets": all_correct_on_half,
}


def _judged(results: Sequence[Result], claim: str, name: str, test: Test) -> Claim:
    """A statement where purity is most like the paper's; beside it, what holds elsewhere."""
    claim = f"{claim}: {THEIRS[name]}."
    place = nearest_in_purity(results, name)
    if place is None:
        return unmeasured(claim)
    said, verdict = test(*paired(results, place, name))
    purity = described(results, place, "purity")
    compared = curves(results, place, name).keys() & curves(results, place, "euclidean").keys()
    pure = float(np.mean([purity[subset] for subset in compared]))
    others = [other for other in places(results) if other != place]
    where = f"{place} (purity {pure:.0%}, subsets: {len(compared)})"
    words = [f"{where}: {said}", *_elsewhere(results, others, name, test)]
    alike = place.representation.startswith("deepcluster") and pure >= min(PAPER_PURITY)
    if name in OF_THE_PAPER and not alike:
        verdict = ELSEWHERE
    return Claim(claim, "; ".join(words), verdict)


def _elsewhere(
    results: Sequence[Result], others: Sequence[Place], name: str, test: Test
) -> list[str]:
    compared = [(other, paired(results, other, name)) for other in others]
    verdicts = {str(other): test(*both)[1] for other, both in compared if both[0].size}
    holds = [place for place, verdict in verdicts.items() if verdict == "reproduced"]
    fails = [place for place in verdicts if place not in holds]
    words = [f"also holds with {listed(holds)}"] if holds else []
    return words + ([f"does not hold with {listed(fails)}"] if fails else [])


def _verdict(holds: bool, weaker: bool) -> str:
    """Of a claim as it stands; changed if only "not below" holds."""
    return "reproduced" if holds else "changed" if weaker else "not reproduced"


def _aim(results: Sequence[Result], name: str) -> Claim:
    claim = (
        f"(Ours:) {THEIRS[name]} is on average not below Euclidean distance at 1–{FEW} merges, "
        f"and clearly above it at {FEW + 1}–{MANY}."
    )
    return _own_claim(results, claim, (name, "euclidean"), _not_below_then_above)


def _not_below_then_above(ours: Table, euclidean: Table) -> tuple[str, bool]:
    gap = ours - euclidean
    least, late = gap[:, :FEW].mean(axis=0).min(), gap[:, FEW:].mean(axis=1)
    error = late.std(ddof=1) / np.sqrt(len(late)) if len(late) > 1 else np.inf
    said = f"at least {least:+.1f}, then {late.mean():+.2f} ± {error:.2f} on average"
    # Clearly: by two standard errors over the subsets.
    return said, bool(least >= 0 and late.mean() > 2 * error)


def _once(results: Sequence[Result]) -> Claim:
    claim = f"(Ours:) one training makes as many correct merges as one before each of {MANY}."
    found = _own_claim(results, claim, ("default", "paper"), _as_many)
    seconds = seconds_alone(results)
    if len(seconds) < 2:
        return found
    said = f"{seconds['cross-fitted']:.0f} seconds against {seconds['paper']:.0f}"
    return found._replace(ours=f"{found.ours}; {said} with nothing else on the machine")


def _as_many(ours: Table, retrained: Table) -> tuple[str, bool]:
    means = ours[:, -1].mean(), retrained[:, -1].mean()
    return f"{means[0]:.1f} against {means[1]:.1f}", bool(means[0] >= means[1])


def _own_claim(
    results: Sequence[Result],
    claim: str,
    names: tuple[str, str],
    test: Callable[[Table, Table], tuple[str, bool]],
) -> Claim:
    """Of one of two ways; where purity is most like the paper's the words come first, and count."""
    found = {}
    for place in places(results):
        both = paired(results, place, *names)
        if both[0].shape[1] >= MANY:
            found[place] = test(both[0][:, :MANY], both[1][:, :MANY])
    judged = nearest_in_purity(results, names[0], list(found))
    if judged is None:
        return unmeasured(claim)
    order = [judged, *(place for place in found if place != judged)]
    said = "; ".join(f"{place}: {found[place][0]}" for place in order)
    return Claim(claim, said, "reached" if found[judged][1] else "not reached")
