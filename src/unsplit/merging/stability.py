"""How often clusters stay together if merging is repeated on resampled data."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unsplit._typing import Index, Matrix


@dataclass(frozen=True, eq=False, repr=False)
class Stability:
    """Re-merges of the same initial clusters, each with another part of the observations.

    Parameters
    ----------
    groups : ndarray of shape (r, k)
        New cluster of every initial one in each of r re-merges, numbered from 0.

    Examples
    --------
    >>> two = Stability(np.array([[0, 0, 1], [0, 1, 2]]))
    >>> two.shares[0]
    array([1. , 0.5, 0. ])
    >>> two.numbers
    {2: 1, 3: 1}
    >>> two
    Stability: 2 re-merges of resampled data leave 2 to 3 clusters
    """

    groups: Index

    def __post_init__(self) -> None:
        self.groups.flags.writeable = False

    def __repr__(self) -> str:
        return f"Stability: {self.sentence}"

    @cached_property
    def numbers(self) -> dict[int, int]:
        """How many re-merges leave each number of clusters."""
        return dict(sorted(Counter((self.groups.max(axis=1) + 1).tolist()).items()))

    @property
    def sentence(self) -> str:
        """How many clusters the re-merges leave, in words."""
        least, most = min(self.numbers), max(self.numbers)
        span = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        clusters = "cluster" if most == 1 else "clusters"
        return f"{len(self.groups)} re-merges of resampled data leave {span} {clusters}"

    @cached_property
    def shares(self) -> Matrix:
        """Share of the re-merges in which two initial clusters are together, shape (k, k)."""
        k = self.groups.shape[1]
        found = np.zeros((k, k))
        for groups in self.groups:
            found += groups[:, None] == groups
        return found / len(self.groups)

    def between(self, left: list[int], right: list[int], sizes: Index) -> float:
        """Mean share of all pairs of an initial cluster of one side and one of the other.

        Parameters
        ----------
        left, right : lists of int
            The initial clusters of both sides.
        sizes : ndarray of shape (k,)
            Number of observations in each; larger clusters count more.
        """
        weights = np.outer(sizes[left], sizes[right])
        share = float(np.average(self.shares[np.ix_(left, right)], weights=weights))
        return min(1.0, round(share, 6))
