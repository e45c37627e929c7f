"""Pairs of very many clusters: only those that are ever confused are stored.

An observation is confused with every cluster for which it scores at least as high as for its own.
Scores are computed in blocks of observations × clusters and compared with the own score; only what
is confused is kept, without any (n, k) or (k, k) array.  The rest is known without storing it: the
classifier of a pair that is never confused makes no mistake on the held-out observations.

Torch is imported when something must be computed from the scores.  A pair costs its observations
times the number of features, so what is computed for a list of pairs grows with the list and not
with k².
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unsplit._typing import Index, Matrix
from unsplit.devices import ALONE, Ranks, device_for_sums
from unsplit.errors import InputError, shown
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.divergences import DIVERGENCES, Floats, HeldoutScores, StratumScores

if TYPE_CHECKING:
    from torch import Tensor

# All pairs of this many clusters fit into half a gibibyte.
MOST_FOR_ARRAYS = 8_000
# Statistics of this many pairs are computed at a time.
PAIRS_AT_ONCE = 2**20
# Features that are multiplied at a time, once for observations and once for weights: on a CPU what
# stays in its cache, on a GPU 64 MiB, because each step costs time there.
MOST_FEATURES, MOST_ON_GPU = 2**18, 2**24
# Pairs of an observation and a cluster that are listed at a time.
MOST_ENTRIES = 2**22

# Only this many confusions of one observation are kept, those with the highest scores.  A network
# that has learned nothing confuses each observation with half of all clusters.
MOST_CONFUSIONS = 256
# Scores in a block: 8 MiB, which stay in the cache of a processor, or half a gibibyte on a GPU.
BLOCKS = {"cpu": 2**21, "cuda": 2**27}


@dataclass(frozen=True, eq=False)
class StoredPairs:
    """The pairs (left, right) that are confused, left < right and in order, and what is known.

    Parameters
    ----------
    misses, n_heldout, scores
        As in :class:`unsplit.PairwiseTVD`.

    Examples
    --------
    >>> misses = sparse.csr_array(np.array([[0, 1, 0], [2, 0, 0], [0, 3, 0]]))
    >>> pairs = StoredPairs(misses, None, None)
    >>> pairs.left, pairs.right
    (array([0, 1]), array([1, 2]))
    """

    misses: Any
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

    def find(self, i: Index, j: Index) -> Index:
        """Positions of pairs, in either order; −1 for those that are not stored."""
        key = np.minimum(i, j) * self.n_clusters + np.maximum(i, j)
        place = np.searchsorted(self.keys, key)
        known = np.append(self.keys, -1)[place] == key
        return np.where(known, place, -1)

    @cached_property
    def pair_scores(self) -> "PairScores":
        """The scores of single pairs."""
        return PairScores(self.scores)

    def hits_of(self, i: Index, j: Index) -> stats.Hits:
        """Hit rates of some pairs."""
        n, n_back = self.n_heldout[i], self.n_heldout[j]
        return stats.Hits(self._rates(i, j, n), self._rates(j, i, n_back), n, n_back)

    def _rates(self, own: Index, other: Index, n: Index) -> Matrix:
        """Hit rates one way."""
        misses = _looked_up(self.misses, own, other)
        return np.where(n > 0, (n - misses) / np.maximum(n, 1), 0.5)

    def matrix(self, statistic: stats.Statistic, diagonal: float) -> "PairMatrix":
        """A statistic of the hit rates of all pairs."""
        return PairMatrix(self, lambda i, j: statistic(self.hits_of(i, j)), diagonal)

    def mean_accuracy(self, accuracy: "PairMatrix") -> float:
        """Mean accuracy over all pairs."""
        k, small = self.n_clusters, self.n_heldout == 0
        # Clusters that held nothing out count as a coin toss.
        n_small = int(small.sum())
        total = math.comb(k, 2) - 0.5 * math.comb(n_small, 2) - 0.25 * n_small * (k - n_small)
        lost = 1 - 0.25 * small[self.left] - 0.25 * small[self.right] - accuracy.values
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

    def p_values(self, known: Matrix | None = None) -> "PairMatrix":
        """One-sided p-values of all pairs, given those of the stored ones if they are ``known``."""

        def of(left: Index, right: Index) -> Matrix:
            counts, n, n_folds = self.scores.counts, self.n_heldout, self.scores.n_folds
            small = stats.across_folds(n, len(counts), n_folds)
            across = small[left] & small[right]
            # Of pairs that are never confused, every observation of one scores above all others.
            in_folds = (counts[:, left] * counts[:, right]).sum(axis=0)
            U = np.where(across, n[left] * n[right], in_folds).astype(float)
            place = self.find(left, right)
            stored = np.flatnonzero(place >= 0)
            if known is None:
                sides = left[stored], right[stored]
                U[stored] = self.pair_scores.rank_sums(*sides, across[stored])
            p = stats.rank_sum_p_value_of_pairs(U, counts[:, left], counts[:, right], n_folds)
            if known is not None:
                p[stored] = known[place[stored]]
            return p

        return PairMatrix(self, of, 1.0)

    def divergence(self, name: str) -> "PairMatrix":
        """A divergence other than "tv"."""
        if name == "overlap":
            raise InputError(
                'divergence("overlap") needs the scores of all observations for every pair, which '
                'a sparse estimate does not keep; use "lecam" or "js".'
            )

        _, of_margin, from_mean = DIVERGENCES[name]
        pair_scores = self.pair_scores

        def of(left: Index, right: Index) -> Matrix:
            if of_margin is not None:
                distance = from_mean(pair_scores.mean_of(of_margin, left, right))
            else:
                counts = self.scores.counts.astype(float)
                n = (counts[:, left] * counts[:, right]).sum(axis=0)
                U = pair_scores.rank_sums(left, right)
                distance = np.where(n > 0, 2 * U / np.maximum(n, 1) - 1, 0.0)
            return np.clip(distance, 0.0, 1.0)

        return PairMatrix(self, of, 0.0)


class PairMatrix:
    """A symmetric (k, k) matrix whose entries are computed when they are asked for.

    It is indexed like an array, ``matrix[i, j]``, with numbers or with arrays of numbers.

    Parameters
    ----------
    pairs : StoredPairs
    of : callable
        Takes clusters i and j, both of shape (p,), and gives the values of these pairs.
    diagonal : float

    Examples
    --------
    >>> pairs = StoredPairs(sparse.csr_array(([1], ([0], [2])), (3, 3)), None, None)
    >>> matrix = PairMatrix(pairs, lambda i, j: i + j, 0)
    >>> int(matrix[2, 0]), matrix.values
    (2, array([2]))
    >>> matrix.toarray()
    array([[0, 1, 2],
           [1, 0, 3],
           [2, 3, 0]])
    """

    def __init__(
        self, pairs: StoredPairs, of: Callable[[Index, Index], Matrix], diagonal: float
    ) -> None:
        self.pairs, self.of, self.diagonal = pairs, of, diagonal

    @cached_property
    def values(self) -> Matrix:
        """Those of the stored pairs."""
        left, right = self.pairs.left, self.pairs.right
        starts = range(0, max(1, len(left)), PAIRS_AT_ONCE)
        parts = [slice(start, start + PAIRS_AT_ONCE) for start in starts]
        found = np.concatenate([self.of(left[some], right[some]) for some in parts])
        found.flags.writeable = False
        return found

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
        found = self.of(i.ravel(), j.ravel()).reshape(i.shape)
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


class PairScores:
    """Held-out scores that can be looked up for single observations and clusters, without batches.

    ``rows`` are the held-out observations ordered by cluster, those of cluster c from ``starts[c]``
    on, and ``own`` their scores for their own clusters.
    """

    def __init__(self, scores: HeldoutScores) -> None:
        self.scores = scores
        self.rows = np.argsort(scores.clusters, kind="stable")
        counts = np.bincount(scores.clusters, minlength=scores.n_clusters)
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self.own = self.of(np.arange(len(scores.clusters)), scores.clusters)

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
    ) -> Iterator[tuple[Index, Index, NDArray[np.bool_], Index, Matrix]]:
        """Yield some pairs, and of each of their observations the pair, side, fold and margin."""
        n_heldout = np.diff(self.starts)
        part = np.cumsum(n_heldout[left] + n_heldout[right]) // MOST_ENTRIES
        for some in np.split(np.arange(len(left)), np.flatnonzero(np.diff(part)) + 1):
            sides, n = (left[some], right[some]), len(some)
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
            n = len(some) * n_strata
            U = stats.rank_sums(np.where(of_left, margin, -margin), of_left, group, n)
            found[some] = U.reshape(-1, n_strata).sum(axis=1)
        return found

    def mean_of(self, function: "Callable[[Tensor], Tensor]", left: Index, right: Index) -> Matrix:
        """Mean of a function of the margins, both clusters of a pair with the same weight."""
        import torch

        found = np.empty(len(left))
        nothing = float(function(torch.zeros(())))  # as if every margin were zero
        for some, pair, of_left, _, margin in self._margins(left, right):
            n = len(some)
            place = pair + np.where(of_left, 0, n)
            values = function(torch.from_numpy(margin)).numpy()
            sums = np.bincount(place, values, minlength=2 * n)
            counts = np.bincount(place, minlength=2 * n)
            means = np.where(counts > 0, sums / np.maximum(counts, 1), nothing)
            found[some] = (means[:n] + means[n:]) / 2
        return found


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


def _looked_up(matrix: sparse.csr_array, i: Index, j: Index) -> Matrix:
    """Entries of a sparse matrix at (i, j)."""
    if len(i) == 0:
        return np.zeros(0)
    return np.asarray(matrix[i, j]).ravel()


# --- confusions ---------------------------------------------------------------------------------


def count_confusions(scores: HeldoutScores, ranks: Ranks = ALONE) -> tuple[sparse.csr_array, Index]:
    """Count the confusions of all held-out observations, at most :data:`MOST_CONFUSIONS` of one.

    Returns at [i, j] how many observations of cluster i score higher for j than for i, ties
    counted one half, and how many observations of each cluster had more confusions than are kept.

    Each of several ``ranks`` counts a part.

    Examples
    --------
    >>> z = np.array([[2, 1, 0], [0, 1, 1], [0, 3, 1]], np.float32)  # of an observation of each
    >>> weights, bias = np.eye(3, dtype=np.float32)[None], np.zeros((1, 3), np.float32)
    >>> index = np.arange(3)
    >>> scores = HeldoutScores(z, weights, bias, index, 0 * index, index)
    >>> count_confusions(scores)[0].toarray()
    array([[0. , 0. , 0. ],
           [0. , 0. , 0.5],
           [0. , 1. , 0. ]])
    """
    import torch

    k = scores.n_clusters
    misses, capped = sparse.csr_array((k, k)), np.zeros(k, np.int64)
    part = scores if ranks.size == 1 else scores.some(ranks.part(len(scores.rows)))
    for stratum in part.on(device_for_sums()):
        found, too_many = _of_stratum(stratum)
        misses = misses + found
        capped += too_many
    first, *others = ranks.gathered(misses)
    misses = sum(others, start=first)
    capped = ranks.sum(torch.from_numpy(capped)).numpy()
    misses.sort_indices()
    return misses, capped


def _of_stratum(stratum: StratumScores) -> tuple[sparse.csr_array, Index]:
    import torch

    k, n, block = len(stratum.bias), len(stratum.clusters), BLOCKS[stratum.bias.device.type]
    keys: list[NDArray[np.int64]] = []
    doubled: list[NDArray[np.int64]] = []
    capped = torch.zeros(k, dtype=torch.int64, device=stratum.bias.device)
    n_rows = min(n, max(1, block // k))
    z = stratum.bias.new_empty(n_rows, k)  # new memory would take twice as long
    for start in range(0, n, n_rows):
        rows = slice(start, start + n_rows)
        own = stratum.clusters[rows]
        stratum.of(rows, slice(None), out=z[: len(own)])
        row, other, weight, too_many = _confused(z[: len(own)], own)
        # One number for each pair of clusters, so that equal ones can be added up.
        key, place = torch.unique(own[row] * k + other, return_inverse=True)
        sums = torch.zeros(len(key), dtype=torch.int64, device=key.device)
        keys.append(key.cpu().numpy())
        doubled.append(sums.index_add_(0, place, weight).cpu().numpy())
        capped += torch.bincount(own[too_many], minlength=k)
    key, values = np.concatenate(keys), np.concatenate(doubled)
    # The rows of a cluster may be in two blocks; the conversion adds up what they have in common.
    counted = sparse.coo_array((values / 2, (key // k, key % k)), (k, k)).tocsr()
    return counted, capped.cpu().numpy()


def _confused(z: "Tensor", own: "Tensor") -> "tuple[Tensor, Tensor, Tensor, Tensor]":
    """Row, cluster and twice the miss of each confusion, and the rows that had too many.

    Of these the confusions with the highest scores are kept.
    """
    import torch

    mine = z.gather(1, own[:, None])
    confused = (z >= mine).scatter_(1, own[:, None], value=False)
    row, other = confused.nonzero(as_tuple=True)
    counts = torch.bincount(row, minlength=len(own))
    too_many = counts > MOST_CONFUSIONS
    score = z[row, other]
    if too_many.any():
        order = score.argsort(descending=True, stable=True)
        order = order[row[order].argsort(stable=True)]
        rank = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row[order]]
        order = order[rank < MOST_CONFUSIONS]
        row, other, score = row[order], other[order], score[order]
    return row, other, 1 + (score > mine[row, 0]).long(), too_many
