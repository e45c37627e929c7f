"""Numbers that an experiment should give, within a tolerance."""

import json
from collections.abc import Sequence
from functools import reduce
from operator import getitem
from typing import Any

from experiments.core import Result, folder_of, name_of


def surprises(name: str, results: Sequence[Result]) -> list[str]:
    """Sentences on numbers that are not what the experiment's ``expected.json`` says."""
    path = folder_of(name) / "expected.json"
    return unexpected(results, json.loads(path.read_text("utf-8"))) if path.exists() else []


def unexpected(results: Sequence[Result], expected: Sequence[dict[str, Any]]) -> list[str]:
    """Sentences on numbers that are not what they should be.

    Each expectation has a ``trial``, the keys that lead to a ``number`` of its result, its
    ``value`` and a ``tolerance``.  Trials that were not run say nothing.

    Examples
    --------
    >>> expected = [{"trial": {"s": 50}, "number": ["1-Q", "tv"], "value": 0.01, "tolerance": 5e-3}]
    >>> unexpected([{"s": 50, "1-Q": {"tv": 0.02}}], expected)
    ['s=50: 1-Q, tv is 0.02, expected 0.01 ± 0.005']
    >>> unexpected([{"s": 50, "1-Q": {"tv": 0.012}}, {"s": 99}], expected)
    []
    """
    sentences = []
    for one in expected:
        for result in results:
            if not one["trial"].items() <= result.items():
                continue
            number = reduce(getitem, one["number"], result)
            if abs(number - one["value"]) > one["tolerance"]:
                name = name_of(one["trial"])
                sentences.append(
                    f"{name}: {', '.join(map(str, one['number']))} is {number:.4g}, "
                    f"expected {one['value']:.4g} ± {one['tolerance']:.2g}"
                )
    return sentences
