"""What the estimates of few and of very many clusters share: tables, intervals, saving, words.

NumPy only; torch is imported when something must be computed from the scores.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from types import ModuleType
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index, Matrix
from unsplit.data.frames import data_frame
from unsplit.errors import InputError, check_choice, check_flag, is_number, numeric_array, shown
from unsplit.networks.training.progress import History
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.scores import DIVERGENCES, HeldoutScores, ScoreCounts

# What holds one value for each pair: an array (k, k), or a PairMatrix.
Values = TypeVar("Values")


class PairwiseEstimate(ABC, Generic[Values]):
    """What :class:`unsplit.PairwiseTVD` and :class:`unsplit.SparsePairwiseTVD` share.

    They differ in how they hold a value for each pair, and so in how they compute one.
    """

    # Each kind lists them among its fields.
    cluster_ids: NDArray[Any]
    sizes: Index
    n_heldout: Index
    scores: HeldoutScores
    history: History
    n_noise: int
    temperature: float

    def __post_init__(self) -> None:
        for array in vars(self).values():
            if isinstance(array, np.ndarray):
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
    def balanced_accuracy(self) -> Values:
        """Held-out balanced accuracy of the classifier of each pair, 1/2 on the diagonal."""
        return self._of_hits(_accuracy, 0.5)

    @cached_property
    def tvd(self) -> Values:
        """Total variation distance, 2·BA − 1 for the balanced accuracy BA; never below zero."""
        return self._of_hits(lambda hits: np.clip(2 * _accuracy(hits) - 1, 0.0, 1.0), 0.0)

    @property
    @abstractmethod
    def stderr(self) -> Values:
        """Standard error of ``tvd``, zero on the diagonal."""

    @property
    @abstractmethod
    def p_value(self) -> Values:
        """One-sided p-values, small where two clusters differ."""

    @property
    @abstractmethod
    def p_adjusted(self) -> Values:
        """``p_value`` times :attr:`n_possibly_equal`, at most 1, as in the merge tables."""

    @property
    @abstractmethod
    def n_possibly_equal(self) -> int:
        """Estimate of how many pairs at most come from one distribution each."""

    @property
    @abstractmethod
    def mean_accuracy(self) -> float:
        """Balanced accuracy averaged over all pairs: the paper's A(D)."""

    @abstractmethod
    def _of_hits(self, statistic: Callable[[Matrix], Matrix], diagonal: float) -> Values:
        """A statistic of hit rates (..., 2, 2), or of those of all pairs, (k, k)."""

    @abstractmethod
    def _divergence(self, name: str) -> Values:
        """Compute a divergence other than "tv"."""

    @abstractmethod
    def _interval(self, level: float) -> tuple[Values, Values]:
        """Lower and upper ends of the confidence intervals."""

    @abstractmethod
    def _in_order(self, order: Index) -> dict[str, Any]:
        """The fields about pairs, with the clusters in this order."""

    @abstractmethod
    def _closest_first(self) -> tuple[Index, Index, Callable[[Values], Matrix]]:
        """The two clusters of each pair in the table, and what takes their values, in order."""

    @abstractmethod
    def _write(self, path: str | os.PathLike[str], scores: bool) -> None:
        """Write the estimate and, on demand, its scores."""

    @abstractmethod
    def _pairs_in_words(self) -> str:
        """How many pairs there are."""

    @abstractmethod
    def _closest(self, n: int) -> Iterable[tuple[int, int, float]]:
        """The n closest pairs and their TVD, or all if they are fewer."""

    def divergence(self, name: str = "tv") -> Values:
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
            In a sparse estimate, pairs that are not stored have the distance 1.  For "tv" and
            "auc" that is their value; for the others it is an upper bound.

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
        >>> bool(result.divergence("auc")[0, 1] > 0.9)
        True
        """
        check_choice("name", name, tuple(DIVERGENCES))
        if name == "tv":
            return self.tvd
        computed: dict[str, Values] = self.__dict__.setdefault("_divergences", {})
        if name not in computed:
            computed[name] = self._divergence(name)
        return computed[name]

    def reordered(self, order: Index) -> Self:
        """Return the same estimate with its clusters in another order.

        Parameters
        ----------
        order : ndarray of shape (k,)
            Positions of the clusters in the new order.

        Returns
        -------
        PairwiseTVD or SparsePairwiseTVD

        Examples
        --------
        >>> import unsplit
        >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
        >>> result.reordered(np.array([1, 0])).cluster_ids
        array([1, 0])
        """
        order = permutation(order, self.n_clusters)
        of_clusters = {
            name: getattr(self, name)[order] for name in ("cluster_ids", "sizes", "n_heldout")
        }
        scores = self.scores.renamed(np.argsort(order))
        changes = of_clusters | self._in_order(order) | {"scores": scores}
        return replace(self, **changes)  # type: ignore[type-var]  # each kind is a dataclass

    def confidence_interval(self, level: float = 0.95) -> tuple[Values, Values]:
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
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
        >>> low, high = result.confidence_interval(0.9)
        >>> bool(low[0, 1] <= result.tvd[0, 1] <= high[0, 1])
        True
        """
        if not is_number(level) or not 0 < level < 1:
            raise InputError(f"level must be between 0 and 1, got {shown(level)}; 0.95 is usual.")
        return self._interval(level)

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
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
        >>> list(result.table())[:5]
        ['cluster_a', 'cluster_b', 'tvd', 'low', 'high']
        """
        i, j, of_pairs = self._closest_first()
        low, high = self.confidence_interval(level)
        return {
            "cluster_a": self.cluster_ids[i],
            "cluster_b": self.cluster_ids[j],
            "tvd": of_pairs(self.tvd),
            "low": of_pairs(low),
            "high": of_pairs(high),
            "stderr": of_pairs(self.stderr),
            "balanced_accuracy": of_pairs(self.balanced_accuracy),
            "p_value": of_pairs(self.p_value),
            "p_adjusted": of_pairs(self.p_adjusted),
            "n_a": self.n_heldout[i],
            "n_b": self.n_heldout[j],
            "too_small": self.too_small[i] | self.too_small[j],
        } | self._of_batches(i, j)

    def _of_batches(self, i: Index, j: Index) -> dict[str, NDArray[Any]]:
        """Columns that differ with batches."""
        return {}

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
        >>> result = unsplit.pairwise_tvd(X, labels, cv=2, epochs=2, random_state=0)
        >>> result.to_frame()[["cluster_a", "cluster_b", "n_a", "n_b"]]
           cluster_a  cluster_b  n_a  n_b
        0          0          1   50   50
        """
        name = type(self).__name__
        return data_frame(self.table(level), f"{name}.to_frame", f"{name}.table")

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
        >>> again = unsplit.PairwiseTVD.load(path)
        >>> bool((again.tvd == result.tvd).all()), unsplit.merge(again, n_clusters=2).n_clusters
        (True, 2)
        """
        check_flag("scores", scores)
        self._write(path, scores)

    def __repr__(self) -> str:
        ids = self.cluster_ids
        closest = ", ".join(f"{ids[i]}–{ids[j]} {tvd:.2f}" for i, j, tvd in self._closest(3))
        folds = f" in {self.scores.n_folds} folds" if self.method == "crossfit" else ""
        return (
            f"{type(self).__name__}: {self.n_clusters:,} clusters, {self._pairs_in_words()}, "
            f"{int(self.n_heldout.sum()):,} of {int(self.sizes.sum()):,} held out{folds}"
            f"{self._remarks()}\n"
            f"  mean accuracy A {self.mean_accuracy:.3f}, closest {closest or 'none'}"
        )

    def _remarks(self) -> str:
        """What is out of the ordinary, in words."""
        noise = f", {self.n_noise:,} noise observations left out" if self.n_noise else ""
        n = int(self.too_small.sum())
        return noise + (f", {n} clusters too small to hold one out" if n else "")


def _accuracy(hits: Matrix) -> Matrix:
    accuracy: Matrix = (hits + np.swapaxes(hits, -1, -2)) / 2
    return accuracy


def intervals(hits: Matrix, n: Any, level: float, n_folds: int) -> tuple[Matrix, Matrix]:
    """Lower and upper ends of the confidence intervals of the TVD."""
    ends = stats.accuracy_interval(stats.at_least_chance(hits), n, level, n_folds)
    low, high = (np.clip(2 * end - 1, 0.0, 1.0) for end in ends)
    return low, high


def divergences() -> ModuleType:
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
