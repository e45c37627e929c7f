"""Scores of the held-out observations of single pairs of clusters, computed when they are needed.

A pair costs its observations times the number of features, so what is computed for a list of pairs
grows with the list and not with k².
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index, Matrix
from unsplit.pairwise.scores import HeldoutScores

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float32]

# Features that are multiplied at a time, once for observations and once for weights: on a CPU what
# stays in its cache, on a GPU 64 MiB, because each step costs time there.
MOST_FEATURES, MOST_ON_GPU = 2**18, 2**24
# Pairs of an observation and a cluster that are listed at a time.
MOST_ENTRIES = 2**22


@dataclass(frozen=True, eq=False)
class PairScores:
    """Held-out scores that can be looked up for single observations and clusters.

    Parameters
    ----------
    scores : HeldoutScores
        Without batches.
    """

    scores: HeldoutScores

    @cached_property
    def rows(self) -> Index:
        """Positions of the held-out observations, ordered by cluster."""
        return np.argsort(self.scores.clusters, kind="stable")

    @cached_property
    def starts(self) -> Index:
        """Where the observations of each cluster begin in :attr:`rows`, shape (k + 1,)."""
        counts = np.bincount(self.scores.clusters, minlength=self.scores.n_clusters)
        return np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def own(self) -> Floats:
        """Score of every held-out observation for its own cluster."""
        return self.of(np.arange(len(self.scores.clusters)), self.scores.clusters)

    def of(self, rows: Index, clusters: Index) -> Floats:
        """Scores of observations for clusters, one of each at a time, shape (e,)."""
        import torch

        features, weights, bias = self._tensors
        where = self.scores.strata[rows] * self.scores.n_clusters + clusters
        found = np.empty(len(rows), np.float32)
        most = MOST_ON_GPU if bias.is_cuda else MOST_FEATURES
        step = max(1, most // max(1, features.shape[1]))
        for start in range(0, len(rows), step):
            some = slice(start, start + step)
            row, place = (torch.from_numpy(index[some]).to(bias.device) for index in (rows, where))
            # Multiplied and added in the same way for own and other clusters, so that ties stay.
            products = features.index_select(0, row).mul_(weights.index_select(0, place))
            found[some] = (products.sum(dim=1) + bias.index_select(0, place)).cpu().numpy()
        return found

    @cached_property
    def _tensors(self) -> "tuple[Tensor, Tensor, Tensor]":
        """Features, weights and biases, on the GPU if there is one with enough memory."""
        import torch

        scores, width = self.scores, self.scores.features.shape[1]
        parts = scores.features, scores.weights.reshape(-1, width), scores.bias.ravel()
        tensors = [torch.from_numpy(np.ascontiguousarray(part)) for part in parts]
        if torch.cuda.is_available():
            needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            if needed < 0.7 * torch.cuda.mem_get_info()[0]:
                tensors = [tensor.cuda() for tensor in tensors]
        return tensors[0], tensors[1], tensors[2]

    def _margins(
        self, left: Index, right: Index
    ) -> Iterator[tuple[slice, Index, NDArray[np.bool_], Index, Matrix]]:
        """Yield some pairs, and of each of their observations the pair, side, fold and margin."""
        n_heldout = np.diff(self.starts)
        for some in parts(n_heldout[left] + n_heldout[right], MOST_ENTRIES):
            sides, n = (left[some], right[some]), some.stop - some.start
            own, other = np.concatenate(sides), np.concatenate(sides[::-1])
            side, place = ragged(self.starts[own], n_heldout[own])
            rows = self.rows[place]
            margin = (self.own[rows] - self.of(rows, other[side])).astype(np.float64)
            yield some, side % n, side < n, self.scores.strata[rows], margin

    def rank_sums(
        self, left: Index, right: Index, across: NDArray[np.bool_] | None = None
    ) -> Matrix:
        """Mann–Whitney U of each pair, as in :func:`unsplit.pairwise.divergences.rank_sums`.

        ``across`` says for each pair whether its observations are compared across all folds.
        """
        found, n_strata = np.zeros(len(left)), len(self.scores.bias)
        across = np.zeros(len(left), bool) if across is None else across
        for some, pair, of_left, strata, margin in self._margins(left, right):
            group = pair * n_strata + np.where(across[some][pair], 0, strata)
            values, n = np.where(of_left, margin, -margin), some.stop - some.start
            found[some] = rank_sums(pair, group, values, of_left, n)
        return found

    def mean_of(self, function: "Callable[[Tensor], Tensor]", left: Index, right: Index) -> Matrix:
        """Mean of a function of the margins, both clusters of a pair with the same weight."""
        import torch

        found = np.empty(len(left))
        nothing = float(function(torch.zeros(())))  # as if every margin were zero
        for some, pair, of_left, _, margin in self._margins(left, right):
            n = some.stop - some.start
            place = pair + np.where(of_left, 0, n)
            values = function(torch.from_numpy(margin)).numpy()
            sums = np.bincount(place, values, minlength=2 * n)
            counts = np.bincount(place, minlength=2 * n)
            means = np.where(counts > 0, sums / np.maximum(counts, 1), nothing)
            found[some] = (means[:n] + means[n:]) / 2
        return found


def parts(sizes: Index, most: int) -> Iterator[slice]:
    """Yield runs of items whose sizes sum to at most ``most``, or of one item that is larger.

    Examples
    --------
    >>> list(parts(np.array([2, 2, 9, 1]), 4))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    ends, start = np.cumsum(sizes), 0
    while start < len(sizes):
        done = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + most, side="right")))
        yield slice(start, stop)
        start = stop


def ragged(starts: Index, lengths: Index) -> tuple[Index, Index]:
    """For runs of numbers, which run each belongs to, and the numbers.

    Examples
    --------
    >>> ragged(np.array([5, 0]), np.array([2, 3]))
    (array([0, 0, 1, 1, 1]), array([5, 6, 0, 1, 2]))
    """
    owner = np.repeat(np.arange(len(starts)), lengths)
    first = np.cumsum(lengths) - lengths
    return owner, np.arange(len(owner)) - first[owner] + starts[owner]


def rank_sums(
    pair: Index, group: Index, values: Matrix, of_left: NDArray[np.bool_], n_pairs: int
) -> Matrix:
    """Count, within each group, how often a value of the left is above one of the right.

    Parameters
    ----------
    pair, group, values, of_left : ndarrays of shape (e,)
        Pair, fold of a pair, value, and whether it belongs to the left cluster.  Ties count one
        half.
    n_pairs : int

    Examples
    --------
    >>> group, values = np.array([0, 0, 0]), np.array([3.0, 1.0, 3.0])
    >>> rank_sums(group, group, values, np.array([True, False, False]), 1)
    array([1.5])
    """
    if len(values) == 0:
        return np.zeros(n_pairs)
    order = _sorted_within(group, values)
    group, values, left = group[order], values[order], of_left[order].astype(np.int64)
    first = np.flatnonzero(np.concatenate([[True], np.diff(group) > 0]) | _changes(values))
    n_left = np.add.reduceat(left, first)
    n_right = np.add.reduceat(1 - left, first)
    below = np.cumsum(n_right) - n_right
    # Those of earlier groups do not count.
    begins = np.concatenate([[True], np.diff(group[first]) > 0])
    below -= np.maximum.accumulate(np.where(begins, below, 0))
    won = n_left * (below + n_right / 2)
    return np.bincount(pair[order][first], won, minlength=n_pairs).astype(np.float64, copy=False)


def _sorted_within(group: Index, values: Matrix) -> Index:
    """The order of values within groups; of equal values in any order."""
    order = np.argsort(values)
    # Numbers of 16 bits are sorted in linear time.
    small = group.astype(np.uint16) if group.max() < 2**16 else group
    return order[np.argsort(small[order], kind="stable")]


def _changes(values: Matrix) -> NDArray[np.bool_]:
    return np.concatenate([[True], values[1:] != values[:-1]])
