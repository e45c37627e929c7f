"""The estimate for all pairs of clusters: what networks make, and what merging and plots use.

NumPy only; torch is imported when something must be computed from the scores.
"""

import os
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index, Matrix
from unsplit.data.frames import data_frame
from unsplit.errors import InputError, check_choice, check_flag, is_number, numeric_array, shown
from unsplit.networks.training.history import History
from unsplit.pairwise import batch_effects as batches
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.saved_estimates import read_estimate, write_estimate
from unsplit.pairwise.scores import DIVERGENCES, HeldoutScores, ScoreCounts


@dataclass(frozen=True, eq=False, repr=False)
class PairwiseTVD:
    """Total variation distances between all pairs of clusters, with errors and p-values.

    The TVD lies in [0, 1]: 0 for clusters that cannot be told apart, 1 for clusters that do not
    overlap.  It is *half* the δ of Reiser et al. (2019), which lies in [0, 2].

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

    def __post_init__(self) -> None:
        for array in (self.cluster_ids, self.sizes, self.n_heldout, self.hit_rate):
            array.flags.writeable = False

    @property
    def n_clusters(self) -> int:
        """Number of clusters, k."""
        return len(self.cluster_ids)

    @property
    def method(self) -> str:
        """How observations were held out: ``"holdout"`` or ``"crossfit"``."""
        return "holdout" if self.scores.n_folds == 1 else "crossfit"

    @property
    def has_scores(self) -> bool:
        """Whether the held-out scores are there; False after loading a file without them."""
        return not isinstance(self.scores, ScoreCounts)

    @property
    def too_small(self) -> NDArray[np.bool_]:
        """Whether a cluster is too small to hold any observation out, shape (k,).

        Its side of each pair counts as a coin toss, its intervals cover all possible values and
        its p-values are 1.
        """
        return self.n_heldout == 0

    @cached_property
    def n_batches(self) -> Index:
        """Number of batches in which each pair is compared, shape (k, k); 1 without batches.

        Pairs with 0 cannot be compared: their distances and p-values are 1, and their intervals
        cover all possible values.
        """
        scores, k = self.scores, self.n_clusters
        if scores.subclusters is None:
            return np.ones((k, k), np.int64)
        return batches.shared_batches(scores.batch_counts)

    @property
    def comparable(self) -> NDArray[np.bool_]:
        """Whether the two clusters of a pair could be compared, shape (k, k)."""
        if self.scores.subclusters is None:
            return np.ones(self.hit_rate.shape, bool)
        return self.n_batches > 0

    @cached_property
    def balanced_accuracy(self) -> Matrix:
        """Held-out balanced accuracy of the classifier of each pair, 1/2 on the diagonal."""
        return _frozen(stats.balanced_accuracy(self.hit_rate))

    @cached_property
    def tvd(self) -> Matrix:
        """Total variation distance, 2·BA − 1 for the balanced accuracy BA; never below zero."""
        return _frozen(np.clip(2 * self.balanced_accuracy - 1, 0.0, 1.0))

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
        rank-sum test on the difference of the two scores.
        """
        U = _divergences().rank_sums(self.scores)
        return _frozen(stats.rank_sum_p_value(U, self.scores.counts, self.scores.n_folds))

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
        comparable = None if self.scores.subclusters is None else self.comparable
        return stats.mean_accuracy(self.balanced_accuracy, comparable)

    def divergence(self, name: str = "tv") -> Matrix:
        """Compute another distance in [0, 1] for every pair, from the same scores.

        Parameters
        ----------
        name : {"tv", "lecam", "js", "hellinger", "overlap", "auc"}
            Total variation, Le Cam, Jensen–Shannon, Hellinger, one minus the cosine of the
            densities, or 2·AUC − 1.

        Returns
        -------
        ndarray of shape (k, k)

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
        >>> bool(result.divergence("auc")[0, 1] > 0.9)
        True
        """
        check_choice("name", name, DIVERGENCES)
        if name == "tv":
            return self.tvd
        computed: dict[str, Matrix] = self.__dict__.setdefault("_divergences", {})
        if name not in computed:
            computed[name] = _frozen(_divergences().divergence(self.scores, name))
        return computed[name]

    def reordered(self, order: Index) -> "PairwiseTVD":
        """Return the same estimate with its clusters in another order.

        Parameters
        ----------
        order : ndarray of shape (k,)
            Positions of the clusters in the new order.

        Returns
        -------
        PairwiseTVD

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
        >>> result.reordered(np.array([1, 0])).cluster_ids
        array([1, 0])
        """
        order = permutation(order, self.n_clusters)
        return replace(
            self,
            cluster_ids=self.cluster_ids[order],
            sizes=self.sizes[order],
            n_heldout=self.n_heldout[order],
            hit_rate=self.hit_rate[np.ix_(order, order)],
            scores=self.scores.renamed(np.argsort(order)),
        )

    def confidence_interval(self, level: float = 0.95) -> tuple[Matrix, Matrix]:
        """Compute confidence intervals for the TVD.

        The network may miss differences but cannot invent them, so the true TVD can lie above
        the interval; it lies below no more often than the level allows.

        Parameters
        ----------
        level : float
            Between 0 and 1.

        Returns
        -------
        low, high : ndarrays of shape (k, k)
            Lower and upper ends.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
        >>> low, high = result.confidence_interval(0.9)
        >>> bool(low[0, 1] <= result.tvd[0, 1] <= high[0, 1])
        True
        """
        if not is_number(level) or not 0 < level < 1:
            raise InputError(f"level must be between 0 and 1, got {shown(level)}; 0.95 is usual.")
        n_folds = self.scores.n_folds
        hit_rate = stats.at_least_chance(self.hit_rate)
        low, high = stats.accuracy_interval(hit_rate, self._counted, level, n_folds)
        ends = [np.clip(2 * end - 1, 0.0, 1.0) for end in (low, high)]
        for end in ends:
            np.fill_diagonal(end, 0.0)
        return ends[0], ends[1]

    def table(self, level: float = 0.95) -> dict[str, NDArray[Any]]:
        """List all pairs, closest first.

        Parameters
        ----------
        level : float
            Level of the confidence intervals in the columns ``low`` and ``high``.

        Returns
        -------
        dict of str to ndarray
            Columns with one entry per pair.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
        >>> list(result.table())[:5]
        ['cluster_a', 'cluster_b', 'tvd', 'low', 'high']
        """
        i, j = np.triu_indices(self.n_clusters, 1)
        order = np.argsort(self.balanced_accuracy[i, j], kind="stable")
        i, j = i[order], j[order]
        low, high = self.confidence_interval(level)
        return {
            "cluster_a": self.cluster_ids[i],
            "cluster_b": self.cluster_ids[j],
            "tvd": self.tvd[i, j],
            "low": low[i, j],
            "high": high[i, j],
            "stderr": self.stderr[i, j],
            "balanced_accuracy": self.balanced_accuracy[i, j],
            "p_value": self.p_value[i, j],
            "p_adjusted": self.p_adjusted[i, j],
            "n_a": self.n_heldout[i],
            "n_b": self.n_heldout[j],
            "too_small": self.too_small[i] | self.too_small[j],
        } | self._of_batches(i, j)

    def _of_batches(self, i: Index, j: Index) -> dict[str, NDArray[Any]]:
        """Columns that differ with batches: held-out observations in the batches of both."""
        if self.scores.subclusters is None:
            return {}
        counts = self.scores.batch_counts
        met = counts.T @ (counts > 0)
        return {"n_a": met[i, j], "n_b": met[j, i], "n_batches": self.n_batches[i, j]}

    def to_frame(self, level: float = 0.95) -> Any:
        """:meth:`table` as a pandas DataFrame.

        Parameters
        ----------
        level : float
            Level of the confidence intervals in the columns ``low`` and ``high``.

        Returns
        -------
        pandas.DataFrame

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
        >>> result.to_frame()[["cluster_a", "cluster_b", "n_a", "n_b"]]
           cluster_a  cluster_b  n_a  n_b
        0          0          1   50   50
        """
        return data_frame(self.table(level), "PairwiseTVD.to_frame", "PairwiseTVD.table")

    def save(self, path: str | os.PathLike[str], *, scores: bool = False) -> None:
        """Write the distances to an .npz file, without pickle; an existing file is replaced.

        Distances, intervals, p-values and training history are all there when it is loaded.  The
        held-out scores take most of the room and go into a second file beside it, on demand: they
        are needed for :func:`unsplit.merge` and :meth:`divergence`.

        Parameters
        ----------
        path : str or path-like
        scores : bool
            Whether to write the held-out scores as well, to ``distances.scores.npz`` if the path
            is ``distances.npz``.  Keep the two files together.

        Examples
        --------
        >>> import tempfile, unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
        >>> path = tempfile.mkdtemp() + "/distances.npz"
        >>> result.save(path, scores=True)
        >>> again = PairwiseTVD.load(path)
        >>> bool((again.tvd == result.tvd).all()), unsplit.merge(again, n_clusters=2).n_clusters
        (True, 2)
        """
        check_flag("scores", scores)
        write_estimate(path, self, scores)

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
        if self.scores.subclusters is None:
            return self.n_heldout
        return batches.effective_counts(self.scores.batch_counts)

    def __repr__(self) -> str:
        k = self.n_clusters
        folds = f" in {self.scores.n_folds} folds" if self.method == "crossfit" else ""
        extras = (
            "" if self.scores.subclusters is None else f" within {self.scores.n_batches} batches"
        )
        extras += f", {self.n_noise:,} noise observations left out" if self.n_noise else ""
        if self.too_small.any():
            extras += f", {int(self.too_small.sum())} clusters too small to hold one out"
        return (
            f"PairwiseTVD: {k:,} clusters, {k * (k - 1) // 2:,} pairs, "
            f"{int(self.n_heldout.sum()):,} of {int(self.sizes.sum()):,} held out{folds}{extras}\n"
            f"  mean accuracy A {self.mean_accuracy:.3f}, closest {self._closest_pairs(3)}"
        )

    def _closest_pairs(self, n: int) -> str:
        """Describe the n closest pairs in words."""
        accuracy = np.where(np.tri(self.n_clusters, dtype=bool), np.inf, self.balanced_accuracy)
        n = min(n, self.n_clusters * (self.n_clusters - 1) // 2)
        first = np.argpartition(accuracy, n - 1, axis=None)[:n]
        first = first[np.argsort(accuracy.ravel()[first], kind="stable")]
        pairs = zip(*np.unravel_index(first, accuracy.shape), strict=True)
        ids = self.cluster_ids
        return ", ".join(f"{ids[i]}–{ids[j]} {self.tvd[i, j]:.2f}" for i, j in pairs)


def _divergences() -> ModuleType:
    """The module that computes from the scores.

    It is the only thing here that needs torch, so it is imported when first used: results can be
    loaded, printed and plotted without torch.
    """
    from unsplit.pairwise import divergences

    return divergences


def permutation(order: Any, k: int) -> Index:
    """The positions of all k clusters, each once, or an error.

    Examples
    --------
    >>> permutation([1, 0], 2)
    array([1, 0])
    """
    found = numeric_array("order", order, 1)
    if not np.array_equal(np.sort(found), np.arange(k)):
        raise InputError(
            f"order must hold each of 0 to {k - 1} once, got {shown(order)}; pass the positions of "
            "all clusters."
        )
    return found.astype(np.int64)


def _frozen(array: Matrix) -> Matrix:
    array.flags.writeable = False
    return array
