"""What many trials say together."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from experiments.core import Result
from experiments.discussion.config import Case
from experiments.texts import together

WORDS = {"noise": "random split", "k-means": "k-means", "greedy": "Algorithm 1"}


def where(results: Sequence[Result], **wanted: Any) -> list[Result]:
    """The results that have these values.

    Examples
    --------
    >>> where([{"part": "merging", "seed": 0}, {"part": "spectral", "seed": 0}], part="merging")
    [{'part': 'merging', 'seed': 0}]
    """
    return [r for r in results if wanted.items() <= {k: r.get(k) for k in wanted}.items()]


def cases(results: Sequence[Result]) -> list[Case]:
    """Data and clusters that there are, random splits first."""
    found = {(r["data"], r["clusters"]) for r in results}
    return sorted(found, key=lambda case: (is_partition(case), case))


def of_case(results: Sequence[Result], case: Case) -> list[Result]:
    """The results of a case."""
    return where(results, data=case[0], clusters=case[1])


def is_partition(case: Case) -> bool:
    """Whether the clusters were cut out of the features that are compared."""
    return not case[1].startswith("noise")


def in_words(case: Case) -> str:
    """For tables and figures.

    Examples
    --------
    >>> in_words(("digits", "noise 0.3")), in_words(("imagenet", "greedy"))
    ('digits, random split, 30 % noise', 'imagenet, Algorithm 1')
    """
    kind, *share = case[1].split()
    return f"{case[0]}, {WORDS[kind]}" + "".join(
        f", {float(one):.0%} noise" for one in share
    ).replace("%", " %")


def in_a_word(case: Case) -> str:
    """For sentences, where random splits go without saying.

    Examples
    --------
    >>> in_a_word(("digits", "noise 0.3")), in_a_word(("imagenet", "greedy"))
    ('digits', 'imagenet by Algorithm 1')
    """
    return f"{case[0]} by {WORDS[case[1]]}" if is_partition(case) else case[0]


def mean(values: Iterable[float]) -> float:
    """Of those that there are; NaN of none."""
    known = list(values)
    return float(np.mean(known)) if known else float("nan")


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean and, of more than one, standard deviation.

    Examples
    --------
    >>> spread([0.5, 0.7]), spread([0.25])
    ('0.60 ± 0.14', '0.25')
    """
    text = f"{mean(values):.{digits}f}"
    return f"{text} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else text


def error(one: Result, statistic: str = "tv") -> float:
    """1 − Q."""
    return float(one["1-Q"][statistic])


def correlation(trained: Sequence[Result], statistic: str = "tv") -> float:
    """Spearman's rank correlation of A and Q; NaN where one of them does not change.

    Examples
    --------
    >>> correlation([{"A": a, "1-Q": {"tv": 1 - a**2}} for a in (0.5, 0.7, 0.9)])
    1.0
    """
    return together([t["A"] for t in trained], [-error(t, statistic) for t in trained])


def trained(choice: Result) -> list[Result]:
    """What could be trained of that which was tried."""
    return [t for t in choice["tried"] if "A" in t]


def best(tried: Sequence[Result], statistic: str = "tv") -> Result:
    """The one with the highest Q, which takes the categories to know."""
    return min(tried, key=lambda t: error(t, statistic))


def regret(choice: Result, statistic: str = "tv") -> float:
    """How much lower Q is for what A chose than for the best.

    Examples
    --------
    >>> tried = [{"A": 0.9, "1-Q": {"tv": 0.25}}, {"A": 0.8, "1-Q": {"tv": 0.125}}, {"failed": "x"}]
    >>> regret({"1-Q": {"tv": 0.25}, "tried": tried})
    0.125
    """
    return error(choice, statistic) - error(best(trained(choice), statistic), statistic)
