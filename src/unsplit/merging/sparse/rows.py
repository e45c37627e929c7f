"""A symmetric sparse matrix of clusters whose rows can be merged."""

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise

import numpy as np

from unsplit._typing import Index, Matrix


class MergedRows:
    """For each slot, its values with other slots; two values become one when slots are merged.

    Parameters
    ----------
    n_clusters : int
    left, right, values : ndarrays of shape (p,)
        The values of pairs, each pair once.
    combine : callable
        Makes one value of two: the sum, or the smaller one.

    Examples
    --------
    >>> rows = MergedRows(3, np.array([0, 1]), np.array([2, 2]), np.array([5.0, 1.0]), min)
    >>> rows.merge(0, 1)
    >>> rows.rows
    [{2: 1.0}, {}, {0: 1.0}]
    """

    def __init__(
        self,
        n_clusters: int,
        left: Index,
        right: Index,
        values: Matrix,
        combine: Callable[[float, float], float],
    ) -> None:
        self.initial = n_clusters, left, right, values
        self.combine = combine

    @cached_property
    def rows(self) -> list[dict[int, float]]:
        """By slot, the values with others; made when they are first needed."""
        n_clusters, left, right, values = self.initial
        # Both directions of each pair, ordered by slot.
        ends = np.concatenate([left, right]), np.concatenate([right, left])
        order = np.argsort(ends[0], kind="stable")
        others = ends[1][order].tolist()
        data = np.concatenate([values, values])[order].tolist()
        starts = np.searchsorted(ends[0][order], np.arange(n_clusters + 1)).tolist()
        return [dict(zip(others[i:j], data[i:j], strict=True)) for i, j in pairwise(starts)]

    def columns(self) -> tuple[Index, Index, Matrix]:
        """The pairs with left < right and their values, in the order of the slots."""
        if "rows" not in self.__dict__:
            n_clusters, left, right, values = self.initial
            left, right = np.minimum(left, right), np.maximum(left, right)
        else:
            n_clusters = len(self.rows)
            entries = [
                (a, b, value)
                for a, row in enumerate(self.rows)
                for b, value in row.items()
                if a < b
            ]
            columns = np.array(entries, np.float64).reshape(-1, 3).T
            left, right, values = (
                columns[0].astype(np.int64),
                columns[1].astype(np.int64),
                columns[2],
            )
        order = np.argsort(left * n_clusters + right)
        return left[order], right[order], values[order]

    def get(self, a: int, b: int, absent: float) -> float:
        """The value of a pair."""
        return self.rows[a].get(b, absent)

    def merge(self, a: int, b: int) -> None:
        """Merge slot b into slot a."""
        rows, combine = self.rows, self.combine
        mine, theirs = rows[a], rows[b]
        mine.pop(b, None)
        theirs.pop(a, None)
        for other, value in theirs.items():
            row = rows[other]
            del row[b]
            if other in mine:
                value = combine(mine[other], value)
            mine[other] = row[a] = value
        rows[b] = {}
