"""Checks of the options of ``merge`` that run before any work starts."""

from dataclasses import fields
from typing import Any

import click

from unsplit.errors import InputError
from unsplit.merging.options import MergeOptions


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
    """Collect the options of the ``merge`` command; None means "not given".

    Examples
    --------
    >>> merge_options_from({"n_clusters": 3, "alpha": None}).n_clusters
    3
    """
    bounds = given.get("min_clusters"), given.get("max_clusters")
    if bounds != (None, None):
        if given.get("n_clusters") is not None:
            raise InputError(
                "--n-clusters is the number itself; leave out --min-clusters and --max-clusters."
            )
        given = given | {"n_clusters": bounds}
    names = [field.name for field in fields(MergeOptions) if given.get(field.name) is not None]
    return MergeOptions(**{name: given[name] for name in names})
