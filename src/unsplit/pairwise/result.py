"""The estimate for all pairs of clusters: what networks make, and what merging and plots use.

NumPy only; torch is imported when something must be computed from the scores.
"""

import math
import os
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unsplit._typing import Index, Matrix
from unsplit.data.array_files import (
    FINITE,
    LARGEST,
    ROUNDING,
    Array,
    checksum,
    load_checked,
    save_arrays,
    saved_meta,
)
from unsplit.data.saving import data_frame, replacing
from unsplit.errors import InputError, check_choice, check_flag, is_number, numeric_array, shown
from unsplit.networks.training.progress import History
from unsplit.pairwise import divergences, groups
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.divergences import DIVERGENCES, HeldoutScores, ScoreCounts
from unsplit.pairwise.stored_pairs import PairMatrix, StoredPairs


@dataclass(frozen=True, eq=False, repr=False)
class PairwiseTVD:
    """Total variation distances between all pairs of clusters, with errors and p-values.

    The TVD lies in [0, 1]: 0 for clusters that cannot be told apart, 1 for clusters that do not
    overlap.  It is *half* the δ of Reiser et al. (2019), which lies in [0, 2].  The network may
    miss a difference and invents none: the true distance is at least ``low``, the lower end of
    the interval (95 % sure), and may be larger than ``high``, most of all in small clusters.

    A *sparse* estimate, of very many clusters, stores only pairs that are confused: a held-out
    observation of one of the two clusters scores at least as high for the other.  Of every other
    pair it is known that its classifier makes no mistake on the held-out observations: its TVD is
    1.  (A cluster without held-out observations counts as a coin toss.)  So nothing is lost, and
    memory grows with the number of confusions instead of k².  Where others have (k, k) arrays it
    has :class:`~unsplit.pairwise.stored_pairs.PairMatrix`, indexed by pairs, ``tvd[i, j]``.

    Parameters
    ----------
    cluster_ids : ndarray of shape (k,)
        The names of the clusters, sorted.  All (k, k) arrays are in this order.
    sizes, n_heldout : ndarrays of shape (k,)
        Number of observations in each cluster, and how many of them were held out.
    hit_rate : ndarray of shape (k, k)
        At [i, j], the share of the held-out observations of cluster i that score higher for i
        than for j; ties count one half.  With batches, the mean over those that i and j share.
        None in a sparse estimate.
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
    misses : sparse matrix of shape (k, k), optional
        Of a sparse estimate, at [i, j], how many held-out observations of cluster i score higher
        for j than for i; ties count one half.
    capped : ndarray of shape (k,), optional
        Of a sparse estimate, how many of the held-out observations had more confusions than were
        kept.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
    >>> result = unsplit.pairwise_tvd(X, labels, cv=2, random_state=0)
    >>> bool(result.tvd[0, 1] > 0.9)
    True
    """

    cluster_ids: NDArray[Any]
    sizes: Index
    n_heldout: Index
    hit_rate: Any
    scores: HeldoutScores
    history: History
    n_noise: int = 0
    temperature: float = 1.0
    n_groups: Index | None = None
    n_effective: Matrix | None = None
    misses: sparse.csr_array | None = None
    capped: Index | None = None

    def __post_init__(self) -> None:
        for array in vars(self).values():
            if isinstance(array, np.ndarray):
                array.flags.writeable = False

    @property
    def is_sparse(self) -> bool:
        """Whether only pairs that are ever confused are stored."""
        return self.misses is not None

    @property
    def n_clusters(self) -> int:
        """Number of clusters, k."""
        return len(self.cluster_ids)

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
    def pairs(self) -> StoredPairs:
        """The pairs that a sparse estimate stores, and what is known of them."""
        return StoredPairs(self.misses, self.n_heldout, self.scores)

    @property
    def _listed(self) -> tuple[Index, Index]:
        """The two clusters of each pair, or of each pair that is stored."""
        if self.is_sparse:
            return self.pairs.left, self.pairs.right
        return np.triu_indices(self.n_clusters, 1)

    @property
    def _hits(self) -> stats.Hits:
        """Hit rates of all pairs, with the numbers of observations for errors and intervals."""
        n: Index | Matrix = self.n_heldout
        if self.n_effective is not None:
            n = self.n_effective
        elif self.scores.batch_sizes is not None:
            n = stats.effective_counts(self.scores.batch_counts)
        return stats.Hits.of(self.hit_rate, n)

    def _matrix(self, statistic: stats.Statistic, diagonal: float) -> Any:
        """A statistic of the hit rates of all pairs."""
        if self.is_sparse:
            return self.pairs.matrix(statistic, diagonal)
        return _finished(statistic(self._hits), diagonal)

    @cached_property
    def balanced_accuracy(self) -> Any:
        """Held-out balanced accuracy of the classifier of each pair, 1/2 on the diagonal."""
        return self._matrix(lambda hits: hits.accuracy, 0.5)

    @cached_property
    def tvd(self) -> Any:
        """Total variation distance, 2·BA − 1 for the balanced accuracy BA; never below zero."""
        return self._matrix(stats.tvd, 0.0)

    @cached_property
    def stderr(self) -> Any:
        """Standard error of ``tvd``, zero on the diagonal."""
        return self._matrix(partial(stats.tvd_stderr, n_folds=self.scores.n_folds), 0.0)

    @cached_property
    def tvd_error(self) -> Any:
        """By how much ``tvd`` may be too large because not all confusions were kept.

        It is zero unless observations had more confusions than a sparse estimate keeps
        (:attr:`capped`); each of these may have missed a confusion with any other cluster.
        """
        if self.capped is None:
            return _finished(np.zeros_like(self.hit_rate), 0.0)
        share = self.capped / np.maximum(self.n_heldout, 1)
        return PairMatrix(self.pairs, lambda i, j: np.minimum(share[i] + share[j], 1.0), 0.0)

    @cached_property
    def p_value(self) -> Any:
        """One-sided p-values, small where two clusters differ.

        The hypothesis is that both clusters come from the same distribution; the test is the
        rank-sum test on the difference of the two scores, exact if both are small; with groups, on
        their means.  Of a pair that a sparse estimate does not store, every observation of one
        cluster scores above every observation of the other, so its p-value is known as well.
        """
        if self.is_sparse:
            return self.pairs.p_values()
        if self.n_groups is not None:
            return _finished(groups.group_p_values(self.scores), 1.0)
        return _finished(divergences.p_values(self.scores), 1.0)

    @cached_property
    def p_adjusted(self) -> Any:
        """``p_value`` times :attr:`n_possibly_equal`, at most 1, as in the merge tables."""
        adjusted = partial(stats.adjust_for_pairs, n_pairs=self.n_possibly_equal)
        if self.is_sparse:
            found = PairMatrix(self.pairs, lambda i, j: adjusted(self.p_value.of(i, j)), 1.0)
            found.values = adjusted(self.p_value.values)  # which takes long anew
            return found
        return _finished(adjusted(self.p_value), 1.0)

    @cached_property
    def n_possibly_equal(self) -> int:
        """Estimate of how many pairs at most come from one distribution each."""
        below = _values(self.balanced_accuracy, *self._listed) <= 0.5
        # Of two clusters without held-out observations nothing is known.
        unknown = math.comb(int(self.too_small.sum()), 2) if self.is_sparse else 0
        return stats.possibly_equal(int(below.sum()) + unknown, self.n_clusters)

    @cached_property
    def mean_accuracy(self) -> float:
        """Balanced accuracy averaged over all pairs that could be compared: the paper's A(D).

        It needs no ground truth.
        """
        if self.is_sparse:
            return self.pairs.mean_accuracy(self.balanced_accuracy)
        return stats.mean_accuracy(self.balanced_accuracy, self.comparable)

    @cached_property
    def n_batches(self) -> Any:
        """Number of batches in which each pair is compared, shape (k, k); 1 without batches.

        Pairs with 0 cannot be compared: their distances and p-values are 1, and their intervals
        cover all possible values.
        """
        if self.scores.batch_sizes is None:
            return self._matrix(lambda hits: np.ones(hits.rate.shape, np.int64), 1)
        return groups.shared_batches(self.scores.batch_counts)

    @property
    def comparable(self) -> Any:
        """Whether the two clusters of a pair could be compared, shape (k, k)."""
        if self.n_groups is not None:
            known = self.n_groups > 0
            return (known & known[:, None]) | np.eye(len(known), dtype=bool)
        if self.scores.batch_sizes is not None:
            return self.n_batches > 0
        return self._matrix(lambda hits: np.ones(hits.rate.shape, bool), True)

    def divergence(self, name: str = "tv") -> Any:
        """Compute another distance in [0, 1] for every pair, from the same scores.

        Parameters
        ----------
        name : {"tv", "lecam", "js", "hellinger", "overlap", "auc"}
            Total variation, Le Cam, Jensen–Shannon, Hellinger, one minus the cosine of the
            densities, or 2·AUC − 1.  "overlap" asks all observations about every pair, which a
            sparse estimate cannot do.

        Returns
        -------
        ndarray of shape (k, k) or PairMatrix
            A sparse estimate computes it for the pairs that are asked for.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, random_state=0)
        >>> bool(result.divergence("auc")[0, 1] > 0.9)
        True
        """
        check_choice("name", name, tuple(DIVERGENCES))
        if name == "tv":
            return self.tvd
        computed: dict[str, Any] = self.__dict__.setdefault("_divergences", {})
        if name not in computed and self.is_sparse:
            computed[name] = self.pairs.divergence(name)
        elif name not in computed:
            found = divergences.divergence(self.scores, name)
            found = found if self.n_groups is None else np.where(self.comparable, found, 1.0)
            computed[name] = _finished(found, 0.0)
        return computed[name]

    def nearest(self, among: NDArray[np.bool_]) -> tuple[Index, Matrix]:
        """The nearest of some clusters to each of them, and its TVD; infinite if there is none.

        Parameters
        ----------
        among : ndarray of shape (k,)
            Which clusters count.

        Returns
        -------
        nearest, distances : ndarrays of shape (k,)
            In a sparse estimate, nearest is −1 for clusters that do not count or are confused with
            none of the others.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, random_state=0)
        >>> result.nearest(np.ones(3, bool))[0][:2]
        array([1, 0])
        """
        if self.is_sparse:
            return self.pairs.nearest(self.tvd, among)
        others = self.comparable & among & among[:, None] & ~np.eye(len(among), dtype=bool)
        distances = np.where(others, self.tvd, np.inf)
        return distances.argmin(axis=1), distances.min(axis=1)

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
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, random_state=0)
        >>> result.reordered(np.array([1, 0])).cluster_ids
        array([1, 0])
        """
        given, k = numeric_array("order", order, 1), self.n_clusters
        if not np.array_equal(np.sort(given), np.arange(k)):
            raise InputError(
                f"order must hold each of 0 to {k - 1} once, got {shown(order)}; pass the "
                "positions of all clusters."
            )
        order = given.astype(np.int64)
        known: dict[str, Any] = {name: of for name, of in vars(self).items() if of is not None}
        of_clusters = {"cluster_ids", "sizes", "n_heldout", "n_groups", "capped"} & known.keys()
        of_pairs, both = {"hit_rate", "n_effective"} & known.keys(), np.ix_(order, order)
        changes = {name: known[name][order] for name in of_clusters}
        changes |= {name: known[name][both] for name in of_pairs}
        if self.misses is not None:
            changes["misses"] = self.misses[order][:, order]
        return replace(self, **changes, scores=self.scores.renamed(np.argsort(order)))

    def confidence_interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Compute confidence intervals for the TVD that the network finds.

        The network may miss differences but cannot invent them, so the true TVD is at least
        ``low``, as surely as the level says, and often above ``high`` if clusters are small:
        docs/statistics.md says how often.

        Parameters
        ----------
        level : float
            Between 0 and 1.

        Returns
        -------
        low, high : ndarrays of shape (k, k) or PairMatrix
            Lower and upper ends.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, random_state=0)
        >>> low, high = result.confidence_interval(0.9)
        >>> bool(low[0, 1] <= result.tvd[0, 1] <= high[0, 1])
        True
        """
        if not is_number(level) or not 0 < level < 1:
            raise InputError(f"level must be between 0 and 1, got {shown(level)}; 0.95 is usual.")
        ends = partial(stats.tvd_interval, level=level, n_folds=self.scores.n_folds)
        if self.is_sparse:
            sides = (lambda hits: ends(hits)[0], lambda hits: ends(hits)[1])
            return self.pairs.matrix(sides[0], 0.0), self.pairs.matrix(sides[1], 0.0)
        low, high = ends(self._hits)
        return _finished(low, 0.0), _finished(high, 0.0)

    def table(self, level: float = 0.95) -> dict[str, NDArray[Any]]:
        """List the pairs, closest first; of a sparse estimate those that are stored.

        Parameters
        ----------
        level : float
            Level of the confidence intervals in the columns ``low`` and ``high``.  The TVD is at
            least ``low``; it may lie above ``high``.

        Returns
        -------
        dict of str to ndarray
            Columns with one entry per pair.  All pairs that are not listed have the TVD 1.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, random_state=0)
        >>> list(result.table())[:5]
        ['cluster_a', 'cluster_b', 'tvd', 'low', 'high']
        """
        i, j = self._listed
        order = np.argsort(_values(self.balanced_accuracy, i, j), kind="stable")
        low, high = self.confidence_interval(level)
        columns = {
            "tvd": self.tvd,
            "low": low,
            "high": high,
            "stderr": self.stderr,
            "balanced_accuracy": self.balanced_accuracy,
            "p_value": self.p_value,
            "p_adjusted": self.p_adjusted,
        }
        of_pairs = {name: _values(matrix, i, j)[order] for name, matrix in columns.items()}
        i, j = i[order], j[order]
        return {
            "cluster_a": self.cluster_ids[i],
            "cluster_b": self.cluster_ids[j],
            **of_pairs,
            "n_a": self.n_heldout[i],
            "n_b": self.n_heldout[j],
            "too_small": self.too_small[i] | self.too_small[j],
        } | self._more_columns(i, j)

    def _more_columns(self, i: Index, j: Index) -> dict[str, NDArray[Any]]:
        """Columns of held-out observations in the batches of both, or of held-out groups."""
        if self.n_groups is not None:
            return {"groups_a": self.n_groups[i], "groups_b": self.n_groups[j]}
        if self.scores.batch_sizes is None:
            return {}
        counts = self.scores.batch_counts
        met = counts.T @ (counts > 0)
        return {"n_a": met[i, j], "n_b": met[j, i], "n_batches": self.n_batches[i, j]}

    def to_frame(self, level: float = 0.95) -> Any:
        """:meth:`table` as a pandas DataFrame.

        Parameters
        ----------
        level : float
            Level of the confidence intervals in the columns ``low`` and ``high``.  The TVD is at
            least ``low``; it may lie above ``high``.

        Returns
        -------
        pandas.DataFrame

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, random_state=0)
        >>> result.to_frame()[["cluster_a", "cluster_b", "n_a", "n_b"]]
           cluster_a  cluster_b  n_a  n_b
        0          0          1   50   50
        """
        return data_frame(self.table(level))

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
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, random_state=0)
        >>> path = tempfile.mkdtemp() + "/distances.npz"
        >>> result.save(path, scores=True)
        >>> again = unsplit.PairwiseTVD.load(path)
        >>> bool((again.tvd == result.tvd).all()), unsplit.merge(again, n_clusters=2).n_clusters
        (True, 2)
        """
        check_flag("scores", scores)
        content = _content(self)
        if scores:
            parts = {name: getattr(self.scores, name) for name in _SCORES}
            parts = {name: array for name, array in parts.items() if array is not None}
            of = {"distances": checksum({}, content)}  # which these scores belong to
            save_arrays(scores_path(path), SCORES_FORMAT, {}, parts | of)
        save_arrays(path, SPARSE_FORMAT if self.is_sparse else FORMAT, {}, content)

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
        >>> unsplit.pairwise_tvd(X, labels, cv=2, random_state=0).save(path)
        >>> PairwiseTVD.load(path).divergence("js")
        Traceback (most recent call last):
        ...
        unsplit.errors.InputError: these distances were saved without the held-out scores, ...
        """
        fields, known = read_estimate(path)
        result = cls(**fields)
        p_value = result.pairs.p_values(known) if result.is_sparse else _finished(known, 1.0)
        result.__dict__["p_value"] = p_value
        return result

    def __repr__(self) -> str:
        folds = f" in {self.scores.n_folds} folds" if self.scores.n_folds > 1 else ""
        pairs = f"{math.comb(self.n_clusters, 2):,} pairs"
        if self.is_sparse:
            pairs = f"{len(self.pairs):,} of {pairs} are ever confused"
        return (
            f"PairwiseTVD: {self.n_clusters:,} clusters, {pairs}, "
            f"{int(self.n_heldout.sum()):,} of {int(self.sizes.sum()):,} held out{folds}"
            f"{self._remarks()}\n"
            f"  mean accuracy A {self.mean_accuracy:.3f}, closest {self._closest(3) or 'none'}"
        )

    def _closest(self, n: int) -> str:
        """The n closest pairs and their TVD, or all if they are fewer."""
        i, j = self._listed
        accuracy = _values(self.balanced_accuracy, i, j)
        n = min(n, len(accuracy))
        first = np.sort(np.argpartition(accuracy, n - 1)[:n]) if n else np.zeros(0, np.int64)
        first = first[np.argsort(accuracy[first], kind="stable")]
        names = self.cluster_ids
        return ", ".join(f"{names[i[p]]}–{names[j[p]]} {self.tvd[i[p], j[p]]:.2f}" for p in first)

    def _remarks(self) -> str:
        """What is out of the ordinary, in words."""
        n_small = int(self.too_small.sum())
        n_capped = 0 if self.capped is None else int(self.capped.sum())
        remarks = []
        if self.n_noise:
            remarks.append(f", {self.n_noise:,} noise observations left out")
        if n_small:
            remarks.append(f", {n_small} clusters too small to hold one out")
        if n_capped:
            remarks.append(f", {n_capped:,} observations with too many confusions to keep")
        if self.n_groups is not None:
            remarks.insert(0, f" in {int(self.n_groups.sum()):,} whole groups")
        elif self.scores.batch_sizes is not None:
            remarks.insert(0, f" within {self.scores.n_batches} batches")
        return "".join(remarks)


# Rows of a matrix that are written at a time.
ROWS_AT_ONCE = 2_048


def write_tvd(path: str | os.PathLike[str], result: PairwiseTVD) -> None:
    """Write the total variation distances of all pairs as float32, shape (k, k), to a .npy file.

    It is written block by block, and ``numpy.load(path, mmap_mode="r")`` reads any part of it.
    """
    k = result.n_clusters
    with replacing(path) as new:
        out = np.lib.format.open_memmap(new, "w+", np.float32, (k, k))
        for start in range(0, k, ROWS_AT_ONCE):
            rows = np.arange(start, min(start + ROWS_AT_ONCE, k))
            out[rows] = result.tvd[rows[:, None], np.arange(k)]
        out.flush()


def estimate_of_some(result: PairwiseTVD, index: Index) -> PairwiseTVD:
    """The estimate from some of the held-out observations, whose positions ascend."""
    scores = result.scores.some(index)
    hit_rate = divergences.directed_means(scores, divergences.hit)
    n_heldout = scores.counts.sum(axis=0)
    found = replace(result, scores=scores, n_heldout=n_heldout, hit_rate=hit_rate)
    return found if scores.groups is None else by_groups(found, scores.groups)


def by_groups(result: PairwiseTVD, group_of: Index) -> PairwiseTVD:
    """The same estimate with errors and tests that count groups instead of observations.

    ``group_of`` has the group of each held-out observation; every group is in one fold.  Clusters
    of which no group was held out cannot be compared: their TVD is 1.
    """
    scores = replace(result.scores, groups=group_of)
    n_groups, n_effective = groups.effective_counts_of_groups(scores, result.hit_rate)
    found = replace(result, scores=scores, n_groups=n_groups, n_effective=n_effective)
    return replace(found, hit_rate=np.where(found.comparable, result.hit_rate, 1.0))


def _values(matrix: Any, i: Index, j: Index) -> NDArray[Any]:
    """The values of the pairs (i, j), which are all that are stored."""
    return matrix.values if isinstance(matrix, PairMatrix) else matrix[i, j]


def _finished(array: Matrix, diagonal: float) -> Matrix:
    np.fill_diagonal(array, diagonal)
    array.flags.writeable = False
    return array


# --- saved: the distances in one file and, on demand, the held-out scores in another -------------

FORMAT, SPARSE_FORMAT = "unsplit.PairwiseTVD/5", "unsplit.SparsePairwiseTVD/2"
SCORES_FORMAT = "unsplit.HeldoutScores/2"

_SHARE = Array("f8", ("k", "k"), 0, 1, ROUNDING)
_COUNTS = Array("i8", ("k",), 0, LARGEST)
# What all estimates have.
_COMMON = {
    "cluster_ids": Array("ids", ("k",), 2),
    "sizes": Array("i8", ("k",), 1, LARGEST),
    "n_heldout": _COUNTS,
    "n_noise": Array("i8", (), 0),
    "temperature": Array("f8", (), 0, FINITE),
    "n_folds": Array("i8", (), 1, LARGEST),
    "counts": Array("i8", ("strata", "k"), 0, LARGEST),
    "history.epoch": Array("i8", ("epochs",)),
    **{f"history.{name}": Array("f8", ("epochs",)) for name in ("loss", "accuracy", "seconds")},
    "history.kept_epoch": Array("i8", ("networks",)),
}
# With groups or batches.
_SOMETIMES = {
    "n_groups": _COUNTS,
    "n_effective": Array("f8", ("k", "k"), 0, LARGEST),
    "subclusters": Array("i8", ("batches", "k"), 0, LARGEST),
}
_DENSE = _COMMON | _SOMETIMES | {"hit_rate": _SHARE, "p_value": _SHARE}
_SPARSE = _COMMON | {
    "capped": _COUNTS,
    "p_value": Array("f8", ("pairs",), 0, 1, ROUNDING),
    "misses.indptr": Array("i8", ("starts",), 0),
    "misses.indices": Array("i8", ("misses",), 0),
    "misses.data": Array("f8", ("misses",), 0.5, LARGEST),
}
_FIELDS = ("cluster_ids", "sizes", "n_heldout", "n_noise", "temperature", "hit_rate", "n_groups")
# Scores made of features, weights and biases up to here are finite in single precision.
_SCORE = (-1e15, 1e15)
_OF_ROWS = Array("i8", ("m",), 0, LARGEST)
_SCORES = {
    "features": Array("f4", ("m", "h"), *_SCORE),
    "weights": Array("f4", ("strata", "k", "h"), *_SCORE),
    "bias": Array("f4", ("strata", "k")),
    **dict.fromkeys(("clusters", "folds", "rows", "batches", "groups"), _OF_ROWS),
}


def scores_path(path: str | os.PathLike[str]) -> Path:
    """Return where the scores of a file of distances are.

    Examples
    --------
    >>> scores_path("distances.npz").name
    'distances.scores.npz'
    """
    return Path(path).with_suffix(f".scores{Path(path).suffix}")


def _content(result: PairwiseTVD) -> dict[str, Any]:
    """Everything in the file of an estimate."""
    scores, table = result.scores, _SPARSE if result.is_sparse else _DENSE
    found = vars(result) | {"p_value": result.p_value, "subclusters": scores.batch_sizes}
    found |= {"n_folds": scores.n_folds, "counts": scores.counts}
    found |= {f"history.{name}": values for name, values in vars(result.history).items()}
    if result.is_sparse:
        parts = ("indptr", "indices", "data")
        found |= {f"misses.{part}": getattr(result.misses, part) for part in parts}
        found["p_value"] = result.p_value.values
    found = {name: found[name] for name in table if found[name] is not None}
    types = {name: None if table[name].dtype == "ids" else table[name].dtype for name in found}
    return {name: np.asarray(value, types[name]) for name, value in found.items()}


def read_estimate(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Matrix]:
    """Return the fields of a PairwiseTVD, and the p-values of its pairs.

    Where the scores were not saved, ``scores`` is what is known of them.
    """
    is_sparse = saved_meta(path).get("format") == SPARSE_FORMAT
    kind, table = (SPARSE_FORMAT, _SPARSE) if is_sparse else (FORMAT, _DENSE)
    content, check = load_checked(path, kind, table, () if is_sparse else _SOMETIMES)
    fields = {name: content.get(name) for name in (*_FIELDS, "n_effective", "capped")}
    history = {name: content[name] for name in table if name.startswith("history.")}
    fields["history"] = History(*history.values())
    fields["scores"] = _read_scores(path, content)
    if is_sparse:
        parts = (content[f"misses.{part}"] for part in ("data", "indices", "indptr"))
        try:
            misses = sparse.csr_array(tuple(parts), 2 * (len(content["sizes"]),))
            misses.check_format()
        except ValueError as error:
            check.require(False, f"misses are no sparse matrix ({error})")
        fields["misses"] = misses
    return fields, content["p_value"]


def _read_scores(path: str | os.PathLike[str], estimate: dict[str, Any]) -> HeldoutScores:
    """Read the scores beside a file with this content; only their numbers if there are none."""
    batch_sizes = estimate.get("subclusters")
    known = ScoreCounts(estimate["counts"], estimate["n_folds"], batch_sizes)
    beside = scores_path(path)
    if not beside.exists():
        return known
    table, advice = {"distances": Array("U"), **_SCORES}, "remove it or make it again"
    parts, check = load_checked(beside, SCORES_FORMAT, table, ("batches", "groups"), advice)
    check.require((parts["bias"] < np.inf).all(), "bias must be finite, or −inf for no cluster")
    # Scores of other distances, saved to the same place earlier, are as good as none.
    same = parts.pop("distances") == checksum({}, estimate)
    return HeldoutScores(**parts, batch_sizes=batch_sizes) if same else known
