"""What the numbers say: the table, and what became of the paper's claims."""

from collections.abc import Sequence

from benchmarks import markdown
from experiments.artificial import DIVERGENCES
from experiments.core import Claim, Result
from experiments.modelnet40.config import BACKBONES, BETTER, SIMPLE, SORTED
from experiments.texts import together, unmeasured, verdict


def table(results: Sequence[Result]) -> str:
    """1 − Q of each divergence by size and network."""
    rows = [
        (r["s"], r["k"], r["backbone"], r["A"], *(r["1-Q"][name] for name in DIVERGENCES))
        for r in sorted(results, key=lambda r: (r["s"], r["backbone"]))
    ]
    first, *rest = DIVERGENCES
    header = ("s", "k", "network", "A", f"1 − Q by {first}", *rest)
    return markdown.table(header, rows, ".2g")


def claims(results: Sequence[Result]) -> list[Claim]:
    """The networks, and that A tells them apart."""
    of = {(r["backbone"], r["s"]): r for r in results}
    sizes = sorted({s for _, s in of if all((name, s) in of for name in BACKBONES)})
    return [_smallest_against_largest(of, sizes), _a_and_q(results), _chosen_by_a(of, sizes)]


def _smallest_against_largest(of: dict[tuple[str, int], Result], sizes: Sequence[int]) -> Claim:
    claim = "PointNet++ at s = 10 beats a single hidden layer at s = 150 by a large margin."
    if not {10, 150} <= set(sizes):
        return unmeasured(claim)
    better, simple, in_order = (
        1 - of[key]["1-Q"]["tv"] for key in ((BETTER, 10), (SIMPLE, 150), (SORTED, 150))
    )
    said = (
        f"Q {better:.4f} against {simple:.4f} with points in the file's random order, and "
        f"{in_order:.4f} with points sorted by a coordinate"
    )
    if simple < better <= in_order:
        return Claim(claim, said, "changed")
    return Claim(claim, said, verdict(better > max(simple, in_order)))


def _a_and_q(results: Sequence[Result]) -> Claim:
    claim = "A correlates with Q."
    if len(results) < 3:
        return unmeasured(claim)
    found = together([r["A"] for r in results], [1 - r["1-Q"]["tv"] for r in results])
    return Claim(claim, f"rank correlation {found:.2f}", verdict(found > 0.8))


def _chosen_by_a(of: dict[tuple[str, int], Result], sizes: Sequence[int]) -> Claim:
    claim = "A can guide the choice of the architecture."
    if not sizes:
        return unmeasured(claim)
    right = 0
    for s in sizes:
        here = [of[name, s] for name in BACKBONES]
        chosen = max(here, key=lambda r: float(r["A"]))
        right += chosen["1-Q"]["tv"] == min(r["1-Q"]["tv"] for r in here)
    said = f"at {right} of {len(sizes)} sizes the network with the highest A has the highest Q"
    return Claim(claim, said, verdict(right == len(sizes)))
