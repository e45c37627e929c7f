"""Options of ``merge`` that must go together, seen before any work is done."""

from dataclasses import fields
from typing import Any

import click

from unsplit.merging.options import APPLIES_TO, MergeOptions

# Strategies for which an option has an effect; with the others it is refused, not ignored.
MEANT_FOR = {**APPLIES_TO, "resume": ("retrain",)}
RULES = ("n_clusters", "max_tvd", "alpha", "auto")


def pairs(context: Any, parameter: Any, given: tuple[str, ...]) -> list[list[str]]:
    """Names of clusters, written with commas between; a callback for click.

    Examples
    --------
    >>> pairs(None, None, ("3,7", "B cell, T cell"))
    [['3', '7'], ['B cell', 'T cell']]
    """
    found = [[name.strip() for name in text.split(",")] for text in given]
    for text, names in zip(given, found, strict=True):
        if len(names) < 2 or "" in names:
            raise click.BadParameter(f"{text!r} does not name two clusters; write A,B.")
    return found


def wishes_of(given: dict[str, Any]) -> MergeOptions:
    """The merge_options in the options of ``merge``; None and False mean not given.

    Examples
    --------
    >>> wishes_of({"n_clusters": 3, "alpha": None, "auto": False}).n_clusters
    3
    """
    # By identity, since 0 equals False.
    asked = {n: v for n, v in given.items() if v is not None and v is not False}
    rules = [option(name) for name in RULES if name in asked]
    if len(rules) > 1:
        raise click.UsageError(f"{' and '.join(rules)} are two stopping rules; choose one.")
    strategy = asked.get("strategy", MergeOptions.strategy)
    for name, strategies in MEANT_FOR.items():
        if name in asked and strategy not in strategies:
            raise click.UsageError(
                f"{option(name)} has no effect with --strategy {strategy}, only with "
                f"{' and '.join(strategies)}; leave it out."
            )
    return MergeOptions(**{f.name: asked[f.name] for f in fields(MergeOptions) if f.name in asked})


def option(name: str) -> str:
    """A parameter's name as one types it.

    Examples
    --------
    >>> option("max_tvd")
    '--max-tvd'
    """
    return f"--{name.replace('_', '-')}"
