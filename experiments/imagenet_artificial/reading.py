"""What the numbers say: the table, and what became of the paper's claims."""

from collections.abc import Sequence

from benchmarks import markdown
from experiments.artificial import DIVERGENCES
from experiments.core import Claim, Result
from experiments.texts import ELSEWHERE, listed, together, unmeasured, verdict

# What 1 − Q should be smaller by than the paper's.
AIM = 10.0


def table(results: Sequence[Result]) -> str:
    """1 − Q of the paper's estimator and of each divergence, cross-fitted, and what is gained."""
    first, *rest = DIVERGENCES
    columns = ("paper: 1 − Q", f"cross-fitted: {first}", *rest, f"paper / {first}", "paper / best")
    header = ("s", "noise", "k", "A", *columns)
    rows = []
    for paper, ours in _pairs(results):
        values = [ours["1-Q"][name] for name in DIVERGENCES]
        what = paper["s"], f"{paper['noise']:.0%}", paper["k"], ours["A"], paper["1-Q"]["tv"]
        gains = _gain(paper, ours, [first]), _gain(paper, ours)
        rows.append((*what, *values, *("∞" if g == float("inf") else f"{g:,.0f}×" for g in gains)))
    return markdown.table(header, rows, ".2g")


def claims(results: Sequence[Result]) -> list[Claim]:
    """Size, noise, the hardest trial, the course of training, and our own aim."""
    pairs = _pairs(results)
    return [_size_and_noise(pairs), _hardest(pairs), _course(results), _aim(pairs)]


def _pairs(results: Sequence[Result]) -> list[tuple[Result, Result]]:
    """The paper's estimator and ours, wherever both were run."""
    of = {(r["s"], r["noise"], r["estimator"]): r for r in results}
    places = sorted({(s, noise) for s, noise, name in of if name != "course"})
    both = [(of.get((*place, "paper")), of.get((*place, "cross-fitted"))) for place in places]
    return [(paper, ours) for paper, ours in both if paper and ours]


def _gain(paper: Result, ours: Result, names: Sequence[str] = DIVERGENCES) -> float:
    """How many times smaller the best 1 − Q by these divergences is than the paper's by TVD."""
    best = min(ours["1-Q"][name] for name in names)
    return paper["1-Q"]["tv"] / best if best else float("inf")


def _size_and_noise(pairs: Sequence[tuple[Result, Result]]) -> Claim:
    wrong = {(p["s"], p["noise"]): p["1-Q"]["tv"] for p, _ in pairs}
    claim = "Q grows with the clusters' size and with their purity."
    steps = [
        (wrong[s, noise], wrong[larger, more])
        for s, noise in wrong
        for larger, more in wrong
        if (larger < s and more == noise) or (larger == s and more > noise)
    ]
    if not steps:
        return unmeasured(claim)
    right = sum(better < worse for better, worse in steps)
    ours = f"{right} of {len(steps)} comparisons agree"
    return Claim(claim, ours, verdict(right == len(steps)))


def _hardest(pairs: Sequence[tuple[Result, Result]]) -> Claim:
    claim = "Q ≈ 97 % at s = 50 with 30 % noise, on all of ImageNet."
    for paper, ours in pairs:
        if (paper["s"], paper["noise"]) == (50, 0.3):
            best, same = 1 - min(ours["1-Q"].values()), 1 - ours["1-Q"]["tv"]
            said = (
                f"{1 - paper['1-Q']['tv']:.1%} by the paper's estimator, {same:.1%} by TVD "
                f"cross-fitted and {best:.1%} by the best of six divergences, of the "
                f"{paper['k']} clusters that our data make"
            )
            reached = 1 - paper["1-Q"]["tv"] >= 0.97
            return Claim(claim, said, "reproduced" if reached else ELSEWHERE)
    return unmeasured(claim)


def _course(results: Sequence[Result]) -> Claim:
    claim = "Q grows with A during training."
    course = [r for r in results if r["estimator"] == "course"]
    sizes = sorted({r["s"] for r in course})
    of = {s: [r for r in course if r["s"] == s] for s in sizes}
    found = {
        s: together([r["A"] for r in rows], [1 - r["1-Q"]["tv"] for r in rows])
        for s, rows in of.items()
    }
    if not found:
        return unmeasured(claim)
    said = "rank correlation " + listed([f"{rho:.2f} at s = {s}" for s, rho in found.items()])
    return Claim(claim, said, verdict(min(found.values()) > 0.8))


def _aim(pairs: Sequence[tuple[Result, Result]]) -> Claim:
    claim = f"(Ours:) 1 − Q at least {AIM:.0f} times smaller, from the same number of steps."
    if not pairs:
        return unmeasured(claim)
    short = [
        f"s = {p['s']}, noise {p['noise']:.0%} ({_gain(p, ours):.1f} times)"
        for p, ours in pairs
        if _gain(p, ours) < AIM
    ]
    least = [min(_gain(*pair, names) for pair in pairs) for names in (["tv"], DIVERGENCES)]
    said = (
        f"in {len(pairs) - len(short)} of {len(pairs)} trials by the best of six divergences; at "
        f"least {least[0]:.0f} times by the same statistic as the paper's, TVD, and "
        f"{least[1]:.0f} times by the best"
    )
    if not short:
        return Claim(claim, said, "reached")
    return Claim(claim, f"{said}; not at {listed(short)}", "not reached")
