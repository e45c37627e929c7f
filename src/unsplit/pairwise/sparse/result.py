"""The estimate for very many clusters: :class:`SparsePairwiseTVD`.

NumPy and SciPy only; torch is imported when something must be computed from the scores.
"""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unsplit._typing import Index, Matrix
from unsplit.errors import InputError, check_choice, shown
from unsplit.networks.training.progress import History
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.estimate import PairwiseEstimate, divergences, intervals
from unsplit.pairwise.saved_estimates import read_sparse, write_sparse
from unsplit.pairwise.scores import DIVERGENCES, HeldoutScores
from unsplit.pairwise.sparse.pair_scores import PairScores
from unsplit.pairwise.sparse.pairs import PairMatrix, StoredPairs

# Statistics of so many pairs are computed at a time.
PAIRS_AT_ONCE = 2**20
# Takes hit rates (p, 2, 2) and numbers (p, 2, 1).
Statistic = Callable[[Matrix, Matrix], Matrix]


@dataclass(frozen=True, eq=False, repr=False)
class SparsePairwiseTVD(PairwiseEstimate[PairMatrix]):
    """Total variation distances between very many clusters; only confused pairs are stored.

    A pair is stored if a held-out observation of one of the two clusters scores at least as high
    for the other.  Of every other pair it is known that its classifier makes no mistake on the
    held-out observations: its TVD is 1.  (A cluster without held-out observations counts as a coin
    toss, as in :class:`unsplit.PairwiseTVD`.)  So nothing is lost, and memory grows with the number
    of confusions instead of k².  Matrices are indexed by pairs, ``tvd[i, j]``, with numbers or with
    arrays of numbers.

    Parameters
    ----------
    cluster_ids : ndarray of shape (k,)
        The names of the clusters, sorted.
    sizes, n_heldout : ndarrays of shape (k,)
        Number of observations in each cluster, and how many of them were held out.
    misses : sparse matrix of shape (k, k)
        At [i, j], how many held-out observations of cluster i score higher for j than for i; ties
        count one half.
    capped : ndarray of shape (k,)
        How many of the held-out observations had more confusions than were kept.
    scores : HeldoutScores
        The held-out scores, from which divergences and p-values are computed when needed.
    history : History
        How training went.
    n_noise : int
        Number of observations that were left out because their label was −1 or missing.
    temperature : float
        The networks' scores were divided by this to calibrate them.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 50, random_state=0)
    >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, form="sparse", random_state=0)
    >>> bool(result.tvd[0, 1] < 0.5), float(result.tvd[0, 2])
    (True, 1.0)
    """

    cluster_ids: NDArray[Any]
    sizes: Index
    n_heldout: Index
    misses: sparse.csr_array
    capped: Index
    scores: HeldoutScores
    history: History
    n_noise: int = 0
    temperature: float = 1.0

    @cached_property
    def pairs(self) -> StoredPairs:
        """The stored pairs."""
        return StoredPairs.of(self.misses)

    @cached_property
    def pair_scores(self) -> PairScores:
        """The scores of single pairs."""
        return PairScores(self.scores)

    @cached_property
    def stderr(self) -> PairMatrix:
        """Standard error of ``tvd``, zero on the diagonal."""
        n_folds = self.scores.n_folds
        return self._matrix(lambda hits, n: stats.tvd_stderr(hits, n, n_folds), 0.0)

    @cached_property
    def tvd_error(self) -> PairMatrix:
        """By how much ``tvd`` may be too large because not all confusions were kept.

        It is zero unless observations had more confusions than are kept (:attr:`capped`); each of
        these may have missed a confusion with any other cluster.
        """
        share = self.capped / np.maximum(self.n_heldout, 1)

        def of(i: Index, j: Index) -> Matrix:
            bound: Matrix = np.minimum(share[i] + share[j], 1.0)
            return bound

        return PairMatrix(self.pairs, of(self.pairs.left, self.pairs.right), of, 0.0)

    @cached_property
    def p_value(self) -> PairMatrix:
        """One-sided p-values, small where two clusters differ.

        As in :class:`unsplit.PairwiseTVD`.  Of a pair that is not stored, every observation of one
        cluster scores above every observation of the other, so its p-value is known as well.
        """
        left, right = self.pairs.left, self.pairs.right
        return PairMatrix(self.pairs, self.p_value_of(left, right), self._least_p_value, 1.0)

    def p_value_of(self, left: ArrayLike, right: ArrayLike) -> Matrix:
        """p-values of some pairs, without computing those of all.

        Parameters
        ----------
        left, right : array-likes of shape (p,)
            Positions of the clusters of each pair in ``cluster_ids``.

        Returns
        -------
        ndarray of shape (p,)

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, form="sparse", random_state=0)
        >>> bool(result.p_value_of(np.array([0]), np.array([1]))[0] < 1e-6)
        True
        """
        left, right = self._positions(left, right)
        U = self.pair_scores.rank_sums(left, right, self._across_folds(left, right))
        return self._p_value(U, left, right)

    def _positions(self, left: ArrayLike, right: ArrayLike) -> tuple[Index, Index]:
        """Both as arrays of whole numbers, or an error that says what they must be."""
        try:
            sides = np.asarray(left), np.asarray(right)
        except ValueError:  # lists of different lengths
            sides = np.empty(0), np.empty(0)
        for name, given, side in zip(("left", "right"), (left, right), sides, strict=True):
            fits = side.dtype.kind in "iu" and side.ndim == 1 and len(side) == len(sides[0])
            if not fits or (len(side) and not 0 <= side.min() <= side.max() < self.n_clusters):
                raise InputError(
                    f"{name} must be a list of positions of clusters, from 0 to "
                    f"{self.n_clusters - 1}, one for each pair, got {shown(given)}."
                )
        return sides[0].astype(np.int64), sides[1].astype(np.int64)

    def _across_folds(self, left: Index, right: Index) -> NDArray[np.bool_]:
        """Whether both clusters of each pair are so small that folds are compared."""
        n_strata, n_folds = len(self.scores.counts), self.scores.n_folds
        small = stats.across_folds(self.n_heldout, n_strata, n_folds)
        return small[left] & small[right]

    def _p_value(self, U: Matrix, left: Index, right: Index) -> Matrix:
        counts = self.scores.counts
        return stats.rank_sum_p_value_of_pairs(
            U, counts[:, left], counts[:, right], self.scores.n_folds
        )

    def _least_p_value(self, i: Index, j: Index) -> Matrix:
        """p-values of pairs that are never confused."""
        left, right = i.ravel(), j.ravel()
        counts, n = self.scores.counts, self.n_heldout
        in_folds = (counts[:, left] * counts[:, right]).sum(axis=0)
        U = np.where(self._across_folds(left, right), n[left] * n[right], in_folds)
        return self._p_value(U.astype(float), left, right).reshape(i.shape)

    @cached_property
    def p_adjusted(self) -> PairMatrix:
        """``p_value`` times :attr:`n_possibly_equal`, at most 1, as in the merge tables."""
        p, n = self.p_value, self.n_possibly_equal
        return PairMatrix(
            p.pairs,
            stats.adjust_for_pairs(p.values, n),
            lambda i, j: stats.adjust_for_pairs(p.absent(i, j), n),
            1.0,
        )

    @cached_property
    def n_possibly_equal(self) -> int:
        """Estimate of how many pairs at most come from one distribution each."""
        # Of two clusters without held-out observations nothing is known.
        unknown = math.comb(int(self.too_small.sum()), 2)
        n_below = int((self.balanced_accuracy.values <= 0.5).sum())
        return stats.possibly_equal(n_below + unknown, self.n_clusters)

    @cached_property
    def mean_accuracy(self) -> float:
        """Balanced accuracy averaged over all pairs: the paper's A(D).

        It needs no ground truth.
        """
        k, small = self.n_clusters, int(self.too_small.sum())
        accuracy, pairs = self.balanced_accuracy, self.pairs
        total = math.comb(k, 2) - 0.5 * math.comb(small, 2) - 0.25 * small * (k - small)
        lost = accuracy.absent(pairs.left, pairs.right) - accuracy.values
        return float((total - lost.sum()) / math.comb(k, 2))

    def _divergence(self, name: str) -> PairMatrix:
        if name == "overlap":
            raise InputError(
                'divergence("overlap") needs the scores of all observations for every pair, which '
                'a sparse estimate does not keep; use "lecam" or "js".'
            )
        values = self.divergence_of(name, self.pairs.left, self.pairs.right)
        return PairMatrix(self.pairs, values, self._farthest(name), 0.0)

    def divergence_of(self, name: str, left: ArrayLike, right: ArrayLike) -> Matrix:
        """A divergence of some pairs, without computing those of all.

        Parameters
        ----------
        name : {"tv", "lecam", "js", "hellinger", "auc"}
        left, right : array-likes of shape (p,)
            Positions of the clusters of each pair in ``cluster_ids``.

        Returns
        -------
        ndarray of shape (p,)

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, form="sparse", random_state=0)
        >>> bool(result.divergence_of("js", np.array([0]), np.array([1]))[0] > 0.5)
        True
        """
        check_choice("name", name, [known for known in DIVERGENCES if known != "overlap"])
        left, right = self._positions(left, right)
        if name == "tv":
            distance = np.asarray(self.tvd[left, right])
        elif name == "auc":
            n = self._compared(left, right)
            U = self.pair_scores.rank_sums(left, right)
            distance = np.where(n > 0, 2 * U / np.maximum(n, 1) - 1, 0.0)
        else:
            function, transform = divergences().OF_MARGINS[name]
            distance = transform(self.pair_scores.mean_of(function, left, right))
        return np.clip(distance, 0.0, 1.0)

    def _farthest(self, name: str) -> Callable[[Index, Index], Matrix]:
        """The distance of pairs that are not stored; of those too small, as for all pairs."""

        def absent(i: Index, j: Index) -> Matrix:
            if name == "auc":
                return (self._compared(i, j) > 0).astype(float)
            import torch

            function, transform = divergences().OF_MARGINS[name]
            sides = np.where(np.stack([self.too_small[i], self.too_small[j]]), 0.0, np.inf)
            means = function(torch.from_numpy(sides)).numpy().mean(axis=0)
            return np.clip(transform(means), 0.0, 1.0)

        return absent

    def _compared(self, i: Index, j: Index) -> Matrix:
        """Pairs of an observation of i and one of j in the same fold."""
        counts = self.scores.counts.astype(float)
        return (counts[:, i] * counts[:, j]).sum(axis=0)

    def nearest(self, among: NDArray[np.bool_]) -> tuple[Index, Matrix]:
        """The nearest of some clusters to each of them, and its TVD.

        Parameters
        ----------
        among : ndarray of shape (k,)
            Which clusters count.

        Returns
        -------
        nearest, distances : ndarrays of shape (k,)
            −1 and infinity for clusters that do not count.  A cluster that is confused with none
            of the others has the distance 1 to all, and −1 as well.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, form="sparse", random_state=0)
        >>> result.nearest(np.ones(3, bool))[0]
        array([ 1,  0, -1])
        """
        left, right = self.pairs.left, self.pairs.right
        both = np.flatnonzero(among[left] & among[right])
        side = np.concatenate([left[both], right[both]])
        other = np.concatenate([right[both], left[both]])
        tvd = np.tile(self.tvd.values[both], 2)
        order = np.lexsort((other, tvd, side))
        first = order[np.concatenate([[True], np.diff(side[order]) > 0])[: len(order)]]
        nearest = np.full(self.n_clusters, -1)
        distances = np.where(among & (among.sum() > 1), 1.0, np.inf)
        nearest[side[first]], distances[side[first]] = other[first], tvd[first]
        return nearest, distances

    def hits_of(self, i: Index, j: Index, misses: Matrix | None = None) -> tuple[Matrix, Matrix]:
        """Hit rates (p, 2, 2) and numbers of held-out observations (p, 2, 1) of some pairs.

        Parameters
        ----------
        i, j : ndarrays of shape (p,)
        misses : ndarray of shape (2, p), optional
            Misses of i against j and of j against i; looked up if None.

        Returns
        -------
        hits, n : ndarrays of shape (p, 2, 2) and (p, 2, 1)

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, form="sparse", random_state=0)
        >>> result.hits_of(np.array([0]), np.array([1]))[1].ravel()
        array([50., 50.])
        """
        n = np.stack([self.n_heldout[i], self.n_heldout[j]], axis=1)
        if misses is None:
            misses = np.stack([_looked_up(self.misses, *sides) for sides in ((i, j), (j, i))])
        rate = np.where(n > 0, (n - misses.T) / np.maximum(n, 1), 0.5)
        hits = np.full((len(n), 2, 2), 0.5)
        hits[:, 0, 1], hits[:, 1, 0] = rate.T
        return hits, n[:, :, None].astype(np.float64)

    def _of_hits(self, statistic: Callable[[Matrix], Matrix], diagonal: float) -> PairMatrix:
        return self._matrix(lambda hits, n: statistic(hits), diagonal)

    def _matrix(self, statistic: Statistic, diagonal: float) -> PairMatrix:
        left, right = self.pairs.left, self.pairs.right
        values = np.empty(len(left))
        for start in range(0, len(left), PAIRS_AT_ONCE):
            some = slice(start, start + PAIRS_AT_ONCE)
            values[some] = statistic(*self.hits_of(left[some], right[some]))[:, 0, 1]

        def absent(i: Index, j: Index) -> Matrix:
            hits, n = self.hits_of(i.ravel(), j.ravel(), np.zeros((2, i.size)))
            return statistic(hits, n)[:, 0, 1].reshape(i.shape)

        return PairMatrix(self.pairs, values, absent, diagonal)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SparsePairwiseTVD":
        """Read a file that :meth:`save` wrote, and the scores beside it if they are there.

        A file that was changed, is damaged or holds impossible values is refused.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        SparsePairwiseTVD

        Examples
        --------
        >>> import tempfile, unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, form="sparse", random_state=0)
        >>> path = tempfile.mkdtemp() + "/distances.npz"
        >>> result.save(path, scores=True)
        >>> SparsePairwiseTVD.load(path).has_scores
        True
        """
        parts, p_value = read_sparse(path)
        result = cls(**parts)
        p = PairMatrix(result.pairs, p_value, result._least_p_value, 1.0)
        result.__dict__["p_value"] = p
        return result

    def _interval(self, level: float) -> tuple[PairMatrix, PairMatrix]:
        n_folds = self.scores.n_folds

        def end(which: int) -> Statistic:
            return lambda hits, n: intervals(hits, n, level, n_folds)[which]

        return self._matrix(end(0), 0.0), self._matrix(end(1), 0.0)

    def _in_order(self, order: Index) -> dict[str, Any]:
        return {"misses": self.misses[order][:, order], "capped": self.capped[order]}

    def _closest_first(self) -> tuple[Index, Index, Callable[[PairMatrix], Matrix]]:
        order = np.argsort(self.balanced_accuracy.values, kind="stable")
        return self.pairs.left[order], self.pairs.right[order], lambda matrix: matrix.values[order]

    def _write(self, path: str | os.PathLike[str], scores: bool) -> None:
        write_sparse(path, self, scores)

    def _pairs_in_words(self) -> str:
        return f"{len(self.pairs):,} of {math.comb(self.n_clusters, 2):,} pairs are ever confused"

    def _remarks(self) -> str:
        n = int(self.capped.sum())
        capped = f", {n:,} observations with too many confusions to keep" if n else ""
        return super()._remarks() + capped

    def _closest(self, n: int) -> Iterator[tuple[int, int, float]]:
        i, j, of_pairs = self._closest_first()
        yield from zip(i[:n], j[:n], of_pairs(self.tvd)[:n], strict=True)


def interval_of_pairs(hits: Matrix, n: Matrix, level: float, n_folds: int) -> tuple[Matrix, Matrix]:
    """Ends of the confidence interval of the TVD, for hit rates (p, 2, 2) and numbers (p, 2, 1).

    Examples
    --------
    >>> hits = np.array([[[0.5, 0.9], [0.7, 0.5]]])
    >>> low, high = interval_of_pairs(hits, np.array([[[20], [30]]]), 0.95, 1)
    >>> low.round(3), high.round(3)
    (array([0.331]), array([0.752]))
    """
    low, high = intervals(hits, n, level, n_folds)
    return low[:, 0, 1], high[:, 0, 1]


def _looked_up(matrix: sparse.csr_array, i: Index, j: Index) -> Matrix:
    """Entries of a sparse matrix at (i, j)."""
    if len(i) == 0:
        return np.zeros(0)
    found: Matrix = np.asarray(matrix[i, j]).ravel()
    return found
