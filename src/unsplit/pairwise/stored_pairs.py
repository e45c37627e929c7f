"""Pairs of very many clusters: only those that are ever confused are stored.

NumPy and SciPy only; torch is imported when something must be computed from the scores.  A pair
costs its observations times the number of features, so what is computed for a list of pairs grows
with the list and not with k².
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unsplit._typing import Index, Matrix
from unsplit.errors import InputError, shown
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.scores import HeldoutScores

if TYPE_CHECKING:
    from torch import Tensor

Absent = Callable[[Index, Index], Matrix]
Floats = NDArray[np.float32]

# All pairs of so many clusters fit into half a gibibyte.
MOST_FOR_ARRAYS = 8_000
# Statistics of so many pairs are computed at a time.
PAIRS_AT_ONCE = 2**20
# Features that are multiplied at a time, once for observations and once for weights: on a CPU what
# stays in its cache, on a GPU 64 MiB, because each step costs time there.
MOST_FEATURES, MOST_ON_GPU = 2**18, 2**24
# Pairs of an observation and a cluster that are listed at a time.
MOST_ENTRIES = 2**22


@dataclass(frozen=True, eq=False)
class StoredPairs:
    """The pairs (left, right) that are confused, left < right and in order, and what is known.

    Parameters
    ----------
    misses, capped, n_heldout, scores
        As in :class:`unsplit.PairwiseTVD`.

    Examples
    --------
    >>> misses = sparse.csr_array(np.array([[0, 1, 0], [2, 0, 0], [0, 3, 0]]))
    >>> pairs = StoredPairs(misses, *3 * [None])
    >>> pairs.left, pairs.right
    (array([0, 1]), array([1, 2]))
    >>> pairs.find([1, 2], [0, 0])
    array([ 0, -1])
    """

    misses: sparse.csr_array
    capped: Any
    n_heldout: Any
    scores: Any

    @property
    def n_clusters(self) -> int:
        """Number of clusters, k."""
        return int(self.misses.shape[0])

    def __len__(self) -> int:
        """Number of stored pairs, p."""
        return len(self.keys)

    @cached_property
    def keys(self) -> Index:
        """One number for each pair, increasing."""
        row, column = (side.astype(np.int64) for side in self.misses.tocoo().coords)
        apart = row != column
        low, high = np.minimum(row, column)[apart], np.maximum(row, column)[apart]
        return np.unique(low * self.n_clusters + high)

    @cached_property
    def left(self) -> Index:
        """The first cluster of each pair."""
        return self.keys // self.n_clusters

    @cached_property
    def right(self) -> Index:
        """The other cluster of each pair."""
        return self.keys % self.n_clusters

    def find(self, i: ArrayLike, j: ArrayLike) -> Index:
        """Positions of pairs, in either order; −1 for those that are not stored."""
        i, j = np.asarray(i, np.int64), np.asarray(j, np.int64)
        key = np.minimum(i, j) * self.n_clusters + np.maximum(i, j)
        place = np.searchsorted(self.keys, key)
        if len(self) == 0:
            return np.full(key.shape, -1)
        known = self.keys[np.minimum(place, len(self) - 1)] == key
        return np.where(known, place, -1)

    @cached_property
    def pair_scores(self) -> "PairScores":
        """The scores of single pairs."""
        return PairScores(self.scores)

    @property
    def n_batches(self) -> "PairMatrix":
        """Number of batches in which each pair is compared: one."""
        return self.values(lambda hits, n: (np.ones(hits.shape, np.int64),), 1)[0]

    @property
    def comparable(self) -> "PairMatrix":
        """Whether the two clusters of a pair could be compared: all could."""
        return self.values(lambda hits, n: (np.ones(hits.shape, bool),), True)[0]

    def hits_of(self, i: Index, j: Index, misses: Matrix | None = None) -> tuple[Matrix, Matrix]:
        """Hit rates (p, 2, 2) and numbers of held-out observations (p, 2, 1) of some pairs.

        ``misses`` (2, p) of i against j and of j against i are looked up if None.
        """
        n = np.stack([self.n_heldout[i], self.n_heldout[j]], axis=1)
        if misses is None:
            misses = np.stack([_looked_up(self.misses, *sides) for sides in ((i, j), (j, i))])
        rate = np.where(n > 0, (n - misses.T) / np.maximum(n, 1), 0.5)
        hits = np.full((len(n), 2, 2), 0.5)
        hits[:, 0, 1], hits[:, 1, 0] = rate.T
        return hits, n[:, :, None].astype(np.float64)

    def values(self, statistic: stats.Statistic, diagonal: float) -> tuple["PairMatrix", ...]:
        """Statistics of the hit rates of all pairs."""

        def of(i: Index, j: Index, misses: Matrix | None = None) -> list[Matrix]:
            return [found[:, 0, 1] for found in statistic(*self.hits_of(i, j, misses))]

        def absent(which: int) -> Absent:
            def of_absent(i: Index, j: Index) -> Matrix:
                found = of(i.ravel(), j.ravel(), np.zeros((2, i.size)))[which]
                return found.reshape(i.shape)

            return of_absent

        starts = range(0, max(1, len(self)), PAIRS_AT_ONCE)
        parts = [slice(start, start + PAIRS_AT_ONCE) for start in starts]
        found = zip(*(of(self.left[some], self.right[some]) for some in parts), strict=True)
        return tuple(
            PairMatrix(self, np.concatenate(values), absent(which), diagonal)
            for which, values in enumerate(found)
        )

    def map(self, matrix: "PairMatrix", function: Callable[[Matrix], Matrix]) -> "PairMatrix":
        """A function of the values of all pairs."""
        absent, diagonal = matrix.absent, float(function(np.array(matrix.diagonal)))
        values = function(matrix.values)
        return PairMatrix(self, values, lambda i, j: function(absent(i, j)), diagonal)

    def tvd_error(self) -> "PairMatrix":
        """By how much distances may be too large because not all confusions were kept."""
        share = self.capped / np.maximum(self.n_heldout, 1)

        def of(i: Index, j: Index) -> Matrix:
            bound: Matrix = np.minimum(share[i] + share[j], 1.0)
            return bound

        return PairMatrix(self, of(self.left, self.right), of, 0.0)

    def n_below(self, accuracy: "PairMatrix") -> int:
        """Number of pairs whose accuracy is at most one half."""
        # Of two clusters without held-out observations nothing is known.
        unknown = math.comb(int((self.n_heldout == 0).sum()), 2)
        return int((accuracy.values <= 0.5).sum()) + unknown

    def mean(self, accuracy: "PairMatrix") -> float:
        """Mean accuracy over all pairs."""
        k, small = self.n_clusters, int((self.n_heldout == 0).sum())
        total = math.comb(k, 2) - 0.5 * math.comb(small, 2) - 0.25 * small * (k - small)
        lost = accuracy.absent(self.left, self.right) - accuracy.values
        return float((total - lost.sum()) / math.comb(k, 2))

    def nearest(self, tvd: "PairMatrix", among: NDArray[np.bool_]) -> tuple[Index, Matrix]:
        """The nearest of some clusters to each of them, −1 if it is confused with none."""
        both = np.flatnonzero(among[self.left] & among[self.right])
        side = np.concatenate([self.left[both], self.right[both]])
        other = np.concatenate([self.right[both], self.left[both]])
        values = np.tile(tvd.values[both], 2)
        order = np.lexsort((other, values, side))
        first = order[np.concatenate([[True], np.diff(side[order]) > 0])[: len(order)]]
        nearest = np.full(self.n_clusters, -1)
        distances = np.where(among & (among.sum() > 1), 1.0, np.inf)
        nearest[side[first]], distances[side[first]] = other[first], values[first]
        return nearest, distances

    def p_values(self) -> "PairMatrix":
        """One-sided p-values of all pairs."""
        return self.with_p_values(self.p_value_of(self.left, self.right))

    def with_p_values(self, known: Matrix) -> "PairMatrix":
        """The same, given those of the stored pairs."""
        return PairMatrix(self, known, self._least_p_value, 1.0)

    def p_value_of(self, left: Index, right: Index) -> Matrix:
        """p-values of some pairs."""
        U = self.pair_scores.rank_sums(left, right, self._across_folds(left, right))
        return self._p_value(U, left, right)

    def _across_folds(self, left: Index, right: Index) -> NDArray[np.bool_]:
        """Whether both clusters of each pair are so small that folds are compared."""
        n_strata, n_folds = len(self.scores.counts), self.scores.n_folds
        small = stats.across_folds(self.n_heldout, n_strata, n_folds)
        return small[left] & small[right]

    def _p_value(self, U: Matrix, left: Index, right: Index) -> Matrix:
        counts, n_folds = self.scores.counts, self.scores.n_folds
        return stats.rank_sum_p_value_of_pairs(U, counts[:, left], counts[:, right], n_folds)

    def _least_p_value(self, i: Index, j: Index) -> Matrix:
        """p-values of pairs that are never confused."""
        left, right = i.ravel(), j.ravel()
        counts, n = self.scores.counts, self.n_heldout
        in_folds = (counts[:, left] * counts[:, right]).sum(axis=0)
        U = np.where(self._across_folds(left, right), n[left] * n[right], in_folds)
        return self._p_value(U.astype(float), left, right).reshape(i.shape)

    def divergence(self, name: str) -> "PairMatrix":
        """A divergence other than "tv"."""
        values = self.divergence_of(name, self.left, self.right)
        return PairMatrix(self, values, lambda i, j: self._farthest(name, i, j), 0.0)

    def divergence_of(self, name: str, left: Index, right: Index) -> Matrix:
        """A divergence other than "tv" of some pairs."""
        if name == "overlap":
            raise InputError(
                'divergence("overlap") needs the scores of all observations for every pair, which '
                'a sparse estimate does not keep; use "lecam" or "js".'
            )
        if name == "auc":
            n = self._compared(left, right)
            U = self.pair_scores.rank_sums(left, right)
            distance = np.where(n > 0, 2 * U / np.maximum(n, 1) - 1, 0.0)
        else:
            from unsplit.pairwise.divergences import OF_MARGINS

            function, transform = OF_MARGINS[name]
            distance = transform(self.pair_scores.mean_of(function, left, right))
        return np.clip(distance, 0.0, 1.0)

    def _farthest(self, name: str, i: Index, j: Index) -> Matrix:
        """The divergence of pairs that are not stored; of those too small, as for all pairs."""
        if name == "auc":
            return (self._compared(i, j) > 0).astype(float)
        import torch

        from unsplit.pairwise.divergences import OF_MARGINS

        function, transform = OF_MARGINS[name]
        sides = np.where(self.n_heldout[np.stack([i, j])] == 0, 0.0, np.inf)
        means = function(torch.from_numpy(sides)).numpy().mean(axis=0)
        return np.clip(transform(means), 0.0, 1.0)

    def _compared(self, i: Index, j: Index) -> Matrix:
        """Pairs of an observation of i and one of j in the same fold."""
        counts = self.scores.counts.astype(float)
        found: Matrix = (counts[:, i] * counts[:, j]).sum(axis=0)
        return found

    def more_columns(self, i: Index, j: Index) -> dict[str, NDArray[Any]]:
        """No columns are added to the table."""
        return {}

    def in_words(self) -> str:
        """How many pairs there are."""
        return f"{len(self):,} of {math.comb(self.n_clusters, 2):,} pairs are ever confused"


@dataclass(frozen=True, eq=False, repr=False)
class PairMatrix:
    """A symmetric (k, k) matrix of which some pairs are stored; the others follow from a rule.

    It is indexed like an array, ``matrix[i, j]``, with numbers or with arrays of numbers.

    Parameters
    ----------
    pairs : StoredPairs
    values : ndarray of shape (p,)
        One for each stored pair.
    absent : callable
        Takes arrays i and j and gives the values of pairs that are not stored.
    diagonal : float

    Examples
    --------
    >>> pairs = StoredPairs(sparse.csr_array(([1], ([0], [2])), (3, 3)), *3 * [None])
    >>> matrix = PairMatrix(pairs, np.array([0.25]), lambda i, j: np.ones(i.shape), 0.0)
    >>> float(matrix[2, 0]), float(matrix[0, 1])
    (0.25, 1.0)
    >>> matrix.toarray()
    array([[0.  , 1.  , 0.25],
           [1.  , 0.  , 1.  ],
           [0.25, 1.  , 0.  ]])
    """

    pairs: StoredPairs
    values: Matrix
    absent: Absent
    diagonal: float

    def __post_init__(self) -> None:
        self.values.flags.writeable = False

    @property
    def shape(self) -> tuple[int, int]:
        """The shape that the whole matrix would have."""
        return self.pairs.n_clusters, self.pairs.n_clusters

    def __len__(self) -> int:
        """Number of clusters, k."""
        return self.pairs.n_clusters

    def __getitem__(self, index: tuple[Any, Any]) -> Any:
        """Values of the pairs (i, j)."""
        i, j = np.broadcast_arrays(*(_clusters(side, self.pairs.n_clusters) for side in index))
        found = self.absent(i, j)
        place = self.pairs.find(i, j)
        if len(self.pairs):
            found = np.where(place >= 0, self.values[place], found)
        return np.where(i == j, self.diagonal, found)[()]

    def toarray(self) -> Matrix:
        """The whole matrix, if it is not too large."""
        k = len(self)
        if k > MOST_FOR_ARRAYS:
            raise InputError(
                f"all pairs of {k:,} clusters are too many for one array; index the pairs that you "
                "need, as in tvd[i, j], or use table(), which lists the stored ones."
            )
        i = np.arange(k)
        return np.asarray(self[i[:, None], i])

    def __repr__(self) -> str:
        k = len(self)
        return f"PairMatrix: {len(self.pairs):,} of {k * (k - 1) // 2:,} pairs are stored"


def _clusters(side: Any, k: int) -> NDArray[np.int64]:
    index = np.asarray(side)
    if index.dtype.kind not in "iu" or ((index < -k) | (index >= k)).any():
        raise InputError(
            f"a pair is indexed by two whole numbers below {k}, or two arrays of them, got "
            f"{shown(side)}; slices do not work because most pairs are not stored."
        )
    return np.where(index < 0, index + k, index).astype(np.int64)


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


def _looked_up(matrix: sparse.csr_array, i: Index, j: Index) -> Matrix:
    """Entries of a sparse matrix at (i, j)."""
    if len(i) == 0:
        return np.zeros(0)
    found: Matrix = np.asarray(matrix[i, j]).ravel()
    return found
