"""Options of ``merge`` that must go together, seen before any work is done."""

from dataclasses import fields
from typing import Any

import click
from numpy.typing import NDArray

from unsplit.errors import InputError
from unsplit.merging.constraints import constraints
from unsplit.pipeline import Wishes

# Where a choice has an effect; elsewhere it is refused rather than ignored.
MEANT_FOR = {
    "statistic": ("linkage", "retrain", "warm"),
    "linkage": ("linkage", "spectral"),
    "resume": ("retrain",),
}
RULES = ("n_clusters", "max_tvd", "alpha", "auto")


class Pair(click.ParamType):
    """Names of clusters with a comma between."""

    name = "A,B"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        """Split at the comma."""
        names = tuple(part.strip() for part in str(value).split(","))
        if len(names) < 2 or "" in names:
            self.fail(f"{value!r} does not name two clusters; write A,B.", param, ctx)
        return names


def wishes_of(given: dict[str, Any]) -> Wishes:
    """The wishes in the options of ``merge``; None and False mean not given.

    Examples
    --------
    >>> wishes_of({"n_clusters": 3, "alpha": None, "auto": False}).n_clusters
    3
    """
    rules = [option(name) for name in RULES if given.get(name) not in (None, False)]
    if len(rules) > 1:
        raise click.UsageError(f"{' and '.join(rules)} are two stopping rules; choose one.")
    chosen = {f.name: given[f.name] for f in fields(Wishes) if given.get(f.name) is not None}
    wishes = Wishes(**chosen)
    for name, strategies in MEANT_FOR.items():
        if given.get(name) not in (None, False) and wishes.strategy not in strategies:
            raise click.UsageError(
                f"{option(name)} has no meaning for --strategy {wishes.strategy}, only for "
                f"{' and '.join(strategies)}; leave it out."
            )
    if wishes.strategy == "spectral" and wishes.n_clusters is None:
        raise click.UsageError(
            "--strategy spectral cannot find the number of clusters; add --n-clusters."
        )
    return wishes


def check_against(wishes: Wishes, cluster_ids: NDArray[Any]) -> None:
    """Raise now what merging would raise after minutes of training."""
    k, n = len(cluster_ids), wishes.n_clusters
    fewest, most = wishes.min_clusters, wishes.max_clusters
    if n is not None:
        if n > k:
            raise InputError(f"--n-clusters is {n}, but there are only {k} clusters; ask for less.")
        if (fewest or n) > n or (most or n) < n:
            raise InputError(
                f"--n-clusters {n} contradicts --min-clusters or --max-clusters; "
                "give --n-clusters alone."
            )
        fewest = most = n
    constraints(cluster_ids, wishes.must_link, wishes.cannot_link, fewest, most)


def option(name: str) -> str:
    """A parameter's name as one types it.

    Examples
    --------
    >>> option("max_tvd")
    '--max-tvd'
    """
    return f"--{name.replace('_', '-')}"
