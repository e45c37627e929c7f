"""What the numbers say: the tables, and what became of the paper's claims."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from benchmarks import markdown
from experiments.core import Claim, Result
from experiments.texts import unmeasured, verdict

# What the numbers of the part on sharing are called.
METHODS = {
    "many maps": "many maps (unsplit)",
    "one network": "one network, k outputs",
    "means": "means alone",
}

# A bound that attains so much of the truth is worth having.
TIGHT = 0.9

# Above the truth by two standard errors: one bound in 44 would be by chance.
BY_CHANCE = 0.05


def table(results: Sequence[Result]) -> str:
    """Known distances, digits, and what sharing costs."""
    tables = (_known(results), _digits(results), _sharing(results))
    return "\n\n".join(part for part in tables if part)


def claims(results: Sequence[Result]) -> list[Claim]:
    """That it can be done, and that k outputs are enough."""
    return [_possible(results), _shared(results)]


def of_part(results: Sequence[Result], part: str) -> list[Result]:
    """The results of one part."""
    return [result for result in results if result["part"] == part]


def families_of(results: Sequence[Result]) -> list[str]:
    """Their families, each once."""
    return sorted({r["family"] for r in results})


def mean_over_seeds(results: Sequence[Result], k: int, method: str) -> float:
    """What a method attains of the truth with k clusters."""
    return mean(r["of truth"][method] for r in results if r["k"] == k)


def _known(results: Sequence[Result]) -> str:
    here = of_part(results, "known")
    if not here:
        return ""
    rows = []
    for family in families_of(here):
        for k in sorted({r["k"] for r in here if r["family"] == family}):
            found = [r for r in here if (r["family"], r["k"]) == (family, k)]
            of_truth = [mean(r["of truth"][name] for r in found) for name in found[0]["of truth"]]
            error = mean(r["standard error of truth"] for r in found)
            rows.append((family, found[0]["d"], k, *of_truth, error, _too_large(found)))
    header = (
        "family", "d", "k", "bound", "means", "exact transport of samples", "standard error",
        "too large",
    )  # fmt: skip
    title = (
        f"Known distances, clusters of {here[0]['n']}: mean over pairs as a share of the mean true "
        'distance, and the share of bounds "too large", above the truth by two standard errors:'
    )
    return f"{title}\n\n" + markdown.table(header, rows, ".3f")


def _too_large(found: Sequence[Result]) -> float:
    """Share of pairs."""
    return sum(r["too large"] * r["pairs"] for r in found) / sum(r["pairs"] for r in found)


def _digits(results: Sequence[Result]) -> str:
    here = of_part(results, "digits")
    if not here:
        return ""
    header = (
        "observations", "k", "bound", "means", "exact transport of samples", "truth",
        "rank correlation", "of some pairs: bound", "of some pairs: best function",
    )  # fmt: skip
    rows = []
    for k in sorted({r["k"] for r in here}):
        for name in ("digits", "Gaussians"):
            found = [r[name] for r in here if r["k"] == k]
            rows.append((name, k, *_of_digits(found)))
    title = (
        "Handwritten digits (64 pixels of 0 to 16) in clusters of k-means, and Gaussians with the "
        "clusters' means and one covariance, whose distances are known. Rank correlation is "
        'between bound and exact transport; the "best function" attains exact transport between '
        "four fifths of both samples and is valued on the rest:"
    )
    return f"{title}\n\n" + markdown.table(header, rows, ".2f")


def _of_digits(found: Sequence[dict[str, Any]]) -> list[Any]:
    """Means over seeds."""
    plain: list[Any] = [mean(c[name] for c in found) for name in ("bound", "means", "exact")]
    truth = mean(c["truth"] for c in found) if "truth" in found[0] else ""
    correlation = mean(c["rank correlation"] for c in found)
    some = [mean(c["of some pairs"][name] for c in found) for name in ("bound", "best function")]
    return [*plain, truth, correlation, *some]


def _sharing(results: Sequence[Result]) -> str:
    here = of_part(results, "sharing")
    if not here:
        return ""
    ks = sorted({r["k"] for r in here})
    rows = []
    for family in families_of(here):
        for method, name in METHODS.items():
            mine = [r for r in here if r["family"] == family]
            measured = {r["k"] for r in mine}
            row = [mean_over_seeds(mine, k, method) if k in measured else "" for k in ks]
            rows.append((family, name, *row))
    title = (
        "Bounds for the same pairs, as a share of the true distance, where k clusters share a "
        "network; with k = 2 every pair has its own:"
    )
    return f"{title}\n\n" + markdown.table(("family", "", *(f"k = {k}" for k in ks)), rows, ".2f")


def _possible(results: Sequence[Result]) -> Claim:
    claim = (
        "By forcing the neural network to conform to a Lipschitz constraint Wasserstein distances "
        "might be computed instead."
    )
    here = of_part(results, "known")
    if not here:
        return unmeasured(claim)
    of_truth = {
        family: mean(r["of truth"]["bound"] for r in here if r["family"] == family)
        for family in families_of(here)
    }
    worst = min(of_truth, key=lambda family: of_truth[family])
    attained, wrong = mean(of_truth.values()), _too_large(here)
    said = (
        f"lower bounds that attain {attained:.0%} of known distances, at worst "
        f"{of_truth[worst]:.0%} ({worst}); {wrong:.1%} are too large by two standard errors"
    )
    return Claim(claim, said, verdict(attained >= TIGHT and wrong <= BY_CHANCE))


def _shared(results: Sequence[Result]) -> Claim:
    claim = "One output for each of k clusters, instead of k², is enough (said of TVDs)."
    here = of_part(results, "sharing")
    ks = {r["k"] for r in here}
    if not here or 2 not in ks or len(ks) == 1:
        return unmeasured(claim)
    at = {
        (method, k): mean(r["of truth"][method] for r in here if r["k"] == k)
        for method in ("one network", "many maps")
        for k in (2, max(ks))
    }
    said = (
        f"one network with k outputs attains {at['one network', 2]:.0%} of the truth for two "
        f"clusters, {at['one network', max(ks)]:.0%} for {max(ks)}; many small maps that all pairs "
        f"share, {at['many maps', 2]:.0%} and {at['many maps', max(ks)]:.0%}"
    )
    kept = {m: at[m, max(ks)] >= TIGHT * at[m, 2] for m in ("one network", "many maps")}
    if kept["one network"]:
        return Claim(claim, said, "reproduced")
    return Claim(claim, said, "changed" if kept["many maps"] else "not reproduced")
