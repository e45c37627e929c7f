"""Sentences and tables about numbers."""

from collections.abc import Sequence

from scipy.stats import spearmanr

from experiments.core import Claim

# Where what the paper compares with, or what it compares, was not there.
ELSEWHERE = "not measured at the paper's conditions"


def verdict(holds: bool) -> str:
    """Of a claim that was put to the test as it stands."""
    return "reproduced" if holds else "not reproduced"


def unmeasured(claim: str) -> Claim:
    """Of a claim that no result says anything about."""
    return Claim(claim, "", "not measured")


def together(x: Sequence[float], y: Sequence[float]) -> float:
    """Rank correlation; NaN where one of the two does not change.

    Examples
    --------
    >>> together([1, 2, 3], [5, 6, 9])
    1.0
    >>> together([1, 2, 3], [5, 5, 5])
    nan
    """
    if len(set(x)) < 2 or len(set(y)) < 2:
        return float("nan")
    return round(float(spearmanr(x, y).statistic), 12)


def listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    Examples
    --------
    >>> listed(["s = 50", "s = 125", "s = 200"])
    's = 50, s = 125 and s = 200'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
