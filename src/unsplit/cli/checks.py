"""Checks of the options of ``merge`` that run before any work starts."""

from dataclasses import fields
from typing import Any

import click

from unsplit.errors import typed
from unsplit.merging.options import MergeOptions

RULES = ("n_clusters", "max_tvd", "alpha", "auto")


def pairs(context: Any, parameter: Any, given: tuple[str, ...]) -> list[list[str]]:
    """Split names of clusters at the commas; a callback for click.

    Examples
    --------
    >>> pairs(None, None, ("3,7", "B cell, T cell"))
    [['3', '7'], ['B cell', 'T cell']]
    """
    found = [[name.strip() for name in text.split(",")] for text in given]
    for text, names in zip(given, found, strict=True):
        if len(names) < 2 or "" in names:
            raise click.BadParameter(
                f"must name at least two clusters with a comma between them, such as A,B, "
                f"got {text!r}."
            )
    return found


def merge_options_from(given: dict[str, Any]) -> MergeOptions:
    """Collect the options of the ``merge`` command; None and False mean "not given".

    Examples
    --------
    >>> merge_options_from({"n_clusters": 3, "alpha": None, "auto": False}).n_clusters
    3
    """
    # Compare by identity, because 0 equals False and is a valid value.
    chosen = {n: v for n, v in given.items() if v is not None and v is not False}
    rules = [typed(name) for name in RULES if name in chosen]
    if len(rules) > 1:
        raise click.UsageError(f"{' and '.join(rules)} are different stopping rules; choose one.")
    return MergeOptions(
        **{f.name: chosen[f.name] for f in fields(MergeOptions) if f.name in chosen}
    )
