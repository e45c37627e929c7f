"""The estimate for all pairs of clusters: what networks make, and what merging and plots use.

NumPy only; torch is imported when something must be computed from the scores.
"""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index, Matrix
from unsplit.networks.training.progress import History
from unsplit.pairwise import groups as of_groups
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.estimate import PairwiseEstimate, divergences, intervals
from unsplit.pairwise.saved_estimates import read_estimate, write_estimate
from unsplit.pairwise.scores import HeldoutScores


@dataclass(frozen=True, eq=False, repr=False)
class PairwiseTVD(PairwiseEstimate[Matrix]):
    """Total variation distances between all pairs of clusters, with errors and p-values.

    The TVD lies in [0, 1]: 0 for clusters that cannot be told apart, 1 for clusters that do not
    overlap.  It is *half* the δ of Reiser et al. (2019), which lies in [0, 2].  The network may
    miss a difference and invents none: the true distance is at least ``low``, the lower end of
    the interval (95 % sure), and may be larger than ``high``, most of all in small clusters.

    Parameters
    ----------
    cluster_ids : ndarray of shape (k,)
        The names of the clusters, sorted.  All (k, k) arrays are in this order.
    sizes, n_heldout : ndarrays of shape (k,)
        Number of observations in each cluster, and how many of them were held out.
    hit_rate : ndarray of shape (k, k)
        At [i, j], the share of the held-out observations of cluster i that score higher for i
        than for j; ties count one half.  With batches, the mean over those that i and j share.
    scores : HeldoutScores
        The held-out scores, from which divergences and p-values are computed when needed; after
        loading a file without scores, only how many there were.
    history : History
        How training went.
    n_noise : int
        Number of observations that were left out because their label was −1 or missing.
    temperature : float
        The networks' scores were divided by this to calibrate them.
    n_groups : ndarray of shape (k,), optional
        Number of groups of each cluster that were held out, if observations are in groups.
    n_effective : ndarray of shape (k, k), optional
        With groups, at [i, j] the number of independent observations of cluster i that would give
        the same standard error.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
    >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
    >>> bool(result.tvd[0, 1] > 0.9)
    True
    """

    cluster_ids: NDArray[Any]
    sizes: Index
    n_heldout: Index
    hit_rate: Matrix
    scores: HeldoutScores
    history: History
    n_noise: int = 0
    temperature: float = 1.0
    n_groups: Index | None = None
    n_effective: Matrix | None = None

    @cached_property
    def n_batches(self) -> Index:
        """Number of batches in which each pair is compared, shape (k, k); 1 without batches.

        Pairs with 0 cannot be compared: their distances and p-values are 1, and their intervals
        cover all possible values.
        """
        scores, k = self.scores, self.n_clusters
        if scores.subclusters is None:
            return np.ones((k, k), np.int64)
        return of_groups.shared_batches(scores.batch_counts)

    @property
    def comparable(self) -> NDArray[np.bool_]:
        """Whether the two clusters of a pair could be compared, shape (k, k)."""
        if self.n_groups is not None:
            known = (self.n_groups > 0) & (self.n_groups > 0)[:, None]
            return known | np.eye(self.n_clusters, dtype=bool)
        if self.scores.subclusters is None:
            return np.ones(self.hit_rate.shape, bool)
        return self.n_batches > 0

    @cached_property
    def stderr(self) -> Matrix:
        """Standard error of ``tvd``, zero on the diagonal."""
        stderr = stats.tvd_stderr(self.hit_rate, self._counted, self.scores.n_folds)
        np.fill_diagonal(stderr, 0.0)
        return _frozen(stderr)

    @cached_property
    def p_value(self) -> Matrix:
        """One-sided p-values, small where two clusters differ; shape (k, k).

        The hypothesis is that both clusters come from the same distribution; the test is the
        rank-sum test on the difference of the two scores, exact if both are small; with groups, on
        their means.
        """
        if self.scores.groups is not None:
            return _frozen(of_groups.group_p_values(self.scores))
        return _frozen(divergences().p_values(self.scores))

    @cached_property
    def p_adjusted(self) -> Matrix:
        """``p_value`` times :attr:`n_possibly_equal`, at most 1, as in the merge tables."""
        return _frozen(stats.adjust_for_pairs(self.p_value, self.n_possibly_equal))

    @cached_property
    def n_possibly_equal(self) -> int:
        """Estimate of how many pairs at most come from one distribution each."""
        return stats.pairs_possibly_equal(self.balanced_accuracy)

    @cached_property
    def mean_accuracy(self) -> float:
        """Balanced accuracy averaged over all pairs that could be compared: the paper's A(D).

        It needs no ground truth.
        """
        all_pairs = self.scores.subclusters is None and self.n_groups is None
        comparable = None if all_pairs else self.comparable
        return stats.mean_accuracy(self.balanced_accuracy, comparable)

    def nearest(self, among: NDArray[np.bool_]) -> tuple[Index, Matrix]:
        """The nearest of some clusters to each of them, and its TVD; infinite if there is none.

        Parameters
        ----------
        among : ndarray of shape (k,)
            Which clusters count.

        Returns
        -------
        nearest, distances : ndarrays of shape (k,)

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
        >>> result.nearest(np.ones(3, bool))[0][:2]
        array([1, 0])
        """
        others = self.comparable & among & among[:, None] & ~np.eye(self.n_clusters, dtype=bool)
        distances = np.where(others, self.tvd, np.inf)
        return distances.argmin(axis=1), distances.min(axis=1)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PairwiseTVD":
        """Read a file that :meth:`save` wrote, and the scores beside it if they are there.

        A file that was changed, is damaged or holds impossible values is refused.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        PairwiseTVD
            Without the scores it gives distances, intervals, p-values and tables, and can be
            plotted.  What needs the scores says so.

        Examples
        --------
        >>> import tempfile, unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> path = tempfile.mkdtemp() + "/distances.npz"
        >>> unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0).save(path)
        >>> PairwiseTVD.load(path).divergence("js")
        Traceback (most recent call last):
        ...
        unsplit.errors.InputError: these distances were saved without the held-out scores, ...
        """
        parts, p_value = read_estimate(path)
        result = cls(**parts)
        result.__dict__["p_value"] = _frozen(p_value)
        return result

    @cached_property
    def _counted(self) -> Index | Matrix:
        """Numbers of held-out observations for errors and intervals: per cluster or per pair."""
        if self.n_effective is not None:
            return self.n_effective
        if self.scores.subclusters is None:
            return self.n_heldout
        return of_groups.effective_counts(self.scores.batch_counts)

    def _divergence(self, name: str) -> Matrix:
        found = divergences().divergence(self.scores, name)
        return _frozen(found if self.n_groups is None else np.where(self.comparable, found, 1.0))

    def _of_hits(self, statistic: Callable[[Matrix], Matrix], diagonal: float) -> Matrix:
        found = statistic(self.hit_rate)
        np.fill_diagonal(found, diagonal)
        return _frozen(found)

    def _interval(self, level: float) -> tuple[Matrix, Matrix]:
        low, high = intervals(self.hit_rate, self._counted, level, self.scores.n_folds)
        for end in (low, high):
            np.fill_diagonal(end, 0.0)
        return low, high

    def _in_order(self, order: Index) -> dict[str, Any]:
        found: dict[str, Any] = {"hit_rate": self.hit_rate[np.ix_(order, order)]}
        if self.n_groups is not None and self.n_effective is not None:
            found["n_groups"] = self.n_groups[order]
            found["n_effective"] = self.n_effective[np.ix_(order, order)]
        return found

    def _closest_first(self) -> tuple[Index, Index, Callable[[Matrix], Matrix]]:
        i, j = np.triu_indices(self.n_clusters, 1)
        order = np.argsort(self.balanced_accuracy[i, j], kind="stable")
        i, j = i[order], j[order]
        return i, j, lambda matrix: matrix[i, j]

    def _of_batches(self, i: Index, j: Index) -> dict[str, NDArray[Any]]:
        """Columns of held-out observations in the batches of both, or of held-out groups."""
        if self.n_groups is not None:
            return {"groups_a": self.n_groups[i], "groups_b": self.n_groups[j]}
        if self.scores.subclusters is None:
            return {}
        counts = self.scores.batch_counts
        met = counts.T @ (counts > 0)
        return {"n_a": met[i, j], "n_b": met[j, i], "n_batches": self.n_batches[i, j]}

    def _write(self, path: str | os.PathLike[str], scores: bool) -> None:
        write_estimate(path, self, scores)

    def _pairs_in_words(self) -> str:
        return f"{math.comb(self.n_clusters, 2):,} pairs"

    def _remarks(self) -> str:
        n = self.scores.n_batches
        within = "" if self.scores.subclusters is None else f" within {n} batches"
        if self.n_groups is not None:
            within = f" in {int(self.n_groups.sum()):,} whole groups"
        return within + super()._remarks()

    def _closest(self, n: int) -> Iterator[tuple[int, int, float]]:
        accuracy = np.where(np.tri(self.n_clusters, dtype=bool), np.inf, self.balanced_accuracy)
        n = min(n, math.comb(self.n_clusters, 2))
        first = np.argpartition(accuracy, n - 1, axis=None)[:n]
        first = first[np.argsort(accuracy.ravel()[first], kind="stable")]
        for i, j in zip(*np.unravel_index(first, accuracy.shape), strict=True):
            yield i, j, self.tvd[i, j]


def estimate_of_some(result: PairwiseTVD, index: Index) -> PairwiseTVD:
    """The estimate from some of the held-out observations.

    Parameters
    ----------
    result : PairwiseTVD
    index : ndarray
        Positions of the observations among the held-out ones, ascending.
    """
    scores, functions = result.scores.some(index), divergences()
    hit_rate = functions.directed_means(scores, functions.hit, functions.device_for_sums())
    n_heldout = scores.counts.sum(axis=0)
    found = replace(result, scores=scores, n_heldout=n_heldout, hit_rate=hit_rate)
    return found if scores.groups is None else by_groups(found, scores.groups)


def by_groups(result: PairwiseTVD, groups: Index) -> PairwiseTVD:
    """The same estimate with errors and tests that count groups instead of observations.

    Clusters of which no group was held out cannot be compared: their TVD is 1.

    Parameters
    ----------
    result : PairwiseTVD
    groups : ndarray of shape (m,)
        Group of each held-out observation; every group is in one fold.
    """
    scores = replace(result.scores, groups=groups)
    n_effective = of_groups.effective_counts_of_groups(scores, result.hit_rate)
    found = replace(
        result, scores=scores, n_groups=of_groups.held_out_groups(scores), n_effective=n_effective
    )
    return replace(found, hit_rate=np.where(found.comparable, found.hit_rate, 1.0))


def _frozen(array: Matrix) -> Matrix:
    array.flags.writeable = False
    return array
