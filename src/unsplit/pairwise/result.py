"""The waist of the hourglass: what is known about every pair of clusters."""

import math
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index, Matrix
from unsplit.data.saving import load_arrays, save_arrays
from unsplit.devices import device_for_sums
from unsplit.errors import InputError
from unsplit.networks.training.loop import History
from unsplit.pairwise import batch_effects as batches
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.divergences import divergence, rank_sums
from unsplit.pairwise.scores import HeldoutScores

FORMAT = "unsplit.PairwiseTVD/2"


@dataclass(frozen=True, eq=False, repr=False)
class PairwiseTVD:
    """Total variation distances between all pairs of clusters, and how sure we are of them.

    TVD here lies in [0, 1]: 0 for clusters that cannot be told apart, 1 for clusters that do not
    overlap.  It is *half* the δ of Reiser et al. (2019), who let it run to 2.

    Parameters
    ----------
    cluster_ids : ndarray of shape (k,)
        The clusters' names as given, sorted.  All (k, k) arrays are in this order.
    sizes, n_heldout : ndarrays of shape (k,)
        Observations of each cluster, and how many of them were held out and counted.
    hit_rate : ndarray of shape (k, k)
        At [i, j] the share of held-out observations of i that the network scores higher for i
        than for j; ties count one half.  With batches, the mean over those that i and j share.
    scores : HeldoutScores
        The held-out scores; every divergence and test is computed from them when asked for.
    history : History
        The course of training.
    n_noise : int
        Observations left out because their label was −1 or missing.
    temperature : float
        By what the networks' own scores were divided to make them as sure as they should be.
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
    def too_small(self) -> NDArray[np.bool_]:
        """Clusters that could not hold anything out, shape (k,).

        Their side of each pair counts as a coin toss, their intervals span all that is possible
        and their p-values are 1.
        """
        return self.n_heldout == 0

    @cached_property
    def n_batches(self) -> Index:
        """In how many batches each pair is compared, shape (k, k); 1 without batches.

        Nothing is known about pairs with 0: their distances and p-values are 1, and their
        intervals span all that is possible.
        """
        scores, k = self.scores, self.n_clusters
        if scores.subclusters is None:
            return np.ones((k, k), np.int64)
        return batches.shared_batches(scores.batch_counts)

    @property
    def comparable(self) -> NDArray[np.bool_]:
        """Pairs about which something is known, shape (k, k)."""
        if self.scores.subclusters is None:
            return np.ones(self.hit_rate.shape, bool)
        return self.n_batches > 0

    @cached_property
    def balanced_accuracy(self) -> Matrix:
        """Held-out balanced accuracy of every pair's classifier, 1/2 on the diagonal."""
        return _frozen(stats.balanced_accuracy(self.hit_rate))

    @cached_property
    def tvd(self) -> Matrix:
        """Total variation distance, 2·BA − 1, cut off below zero."""
        return _frozen(np.clip(2 * self.balanced_accuracy - 1, 0.0, 1.0))

    @cached_property
    def stderr(self) -> Matrix:
        """Standard error of ``tvd``, zero on the diagonal."""
        stderr = stats.tvd_stderr(self.hit_rate, self._counted, self.scores.n_folds)
        np.fill_diagonal(stderr, 0.0)
        return _frozen(stderr)

    @cached_property
    def p_value(self) -> Matrix:
        """One-sided p-value of "same distribution" (rank-sum test on the score difference)."""
        U = rank_sums(self.scores, device_for_sums())
        return _frozen(stats.rank_sum_p_value(U, self.scores.counts, self.scores.n_folds))

    @cached_property
    def p_adjusted(self) -> Matrix:
        """``p_value`` times the number of pairs, at most 1 (Bonferroni), as in the merge tables."""
        return _frozen(stats.adjust_for_pairs(self.p_value, math.comb(self.n_clusters, 2)))

    @cached_property
    def mean_accuracy(self) -> float:
        """A(D): balanced accuracy averaged over all pairs that could be compared.

        Needs no ground truth.
        """
        comparable = None if self.scores.subclusters is None else self.comparable
        return stats.mean_accuracy(self.balanced_accuracy, comparable)

    def divergence(self, name: str = "tv") -> Matrix:
        """A distance in [0, 1] for every pair, from the same scores.

        Parameters
        ----------
        name : {"tv", "lecam", "js", "hellinger", "overlap", "auc"}
        """
        if name == "tv":
            return self.tvd
        computed: dict[str, Matrix] = self.__dict__.setdefault("_divergences", {})
        if name not in computed:
            computed[name] = _frozen(divergence(self.scores, name, device_for_sums()))
        return computed[name]

    def reordered(self, order: Index) -> "PairwiseTVD":
        """The same estimate with its clusters in another order."""
        return PairwiseTVD(
            cluster_ids=self.cluster_ids[order],
            sizes=self.sizes[order],
            n_heldout=self.n_heldout[order],
            hit_rate=self.hit_rate[np.ix_(order, order)],
            scores=self.scores.renamed(np.argsort(order)),
            history=self.history,
            n_noise=self.n_noise,
            temperature=self.temperature,
        )

    def confidence_interval(self, level: float = 0.95) -> tuple[Matrix, Matrix]:
        """Lower and upper ends of an interval for the TVD the classifiers attain.

        The classifiers can only be worse than the best possible ones, so the true TVD may lie
        above, and is below the lower end no more often than the level says.
        """
        if not 0 < level < 1:
            raise InputError(f"level must lie between 0 and 1, got {level}; 0.95 is usual.")
        n_folds = self.scores.n_folds
        hit_rate = stats.at_least_chance(self.hit_rate)
        low, high = stats.accuracy_interval(hit_rate, self._counted, level, n_folds)
        ends = [np.clip(2 * end - 1, 0.0, 1.0) for end in (low, high)]
        for end in ends:
            np.fill_diagonal(end, 0.0)
        return ends[0], ends[1]

    def table(self, level: float = 0.95) -> dict[str, NDArray[Any]]:
        """One row per pair by column, closest pair first; ready for a data frame or a file."""
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
        """Columns of the table that batches change: what was held out where the two meet."""
        if self.scores.subclusters is None:
            return {}
        counts = self.scores.batch_counts
        met = counts.T @ (counts > 0)
        return {"n_a": met[i, j], "n_b": met[j, i], "n_batches": self.n_batches[i, j]}

    def to_frame(self, level: float = 0.95) -> Any:
        """:meth:`table` as a pandas DataFrame."""
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("to_frame needs pandas: pip install unsplit[tables]") from None
        return pd.DataFrame(self.table(level))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one .npz file, without pickle; an older file is replaced whole."""
        arrays = {name: getattr(self, name) for name in _OWN}
        scores = {f"scores.{name}": getattr(self.scores, name) for name in (*_SCORES, *_BATCHES)}
        arrays |= {name: array for name, array in scores.items() if array is not None}
        arrays |= {f"history.{name}": getattr(self.history, name) for name in _HISTORY}
        meta = {"n_noise": self.n_noise, "temperature": self.temperature}
        save_arrays(path, FORMAT, meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PairwiseTVD":
        """Read what :meth:`save` wrote."""
        meta, content = load_arrays(path, FORMAT)
        return cls(
            **{name: content[name] for name in _OWN},
            scores=HeldoutScores(
                **{name: content[f"scores.{name}"] for name in _SCORES},
                batches=content.get("scores.batches"),
                subclusters=content.get("scores.subclusters"),
            ),
            history=History(**{name: content[f"history.{name}"] for name in _HISTORY}),
            n_noise=meta["n_noise"],
            temperature=meta.get("temperature", 1.0),
        )

    @cached_property
    def _counted(self) -> Index | Matrix:
        """Held-out observations that errors and intervals go by: of clusters (k,) or pairs."""
        if self.scores.subclusters is None:
            return self.n_heldout
        return batches.effective_counts(self.scores.batch_counts)

    def __repr__(self) -> str:
        k = self.n_clusters
        folds = f" in {self.scores.n_folds} folds" if self.method == "crossfit" else ""
        extras = (
            "" if self.scores.subclusters is None else f" within {self.scores.n_batches} batches"
        )
        extras += f", {self.n_noise:,} noise left out" if self.n_noise else ""
        if self.too_small.any():
            extras += f", {int(self.too_small.sum())} clusters too small to hold out"
        return (
            f"PairwiseTVD: {k:,} clusters, {k * (k - 1) // 2:,} pairs, "
            f"{int(self.n_heldout.sum()):,} of {int(self.sizes.sum()):,} held out{folds}{extras}\n"
            f"  mean accuracy A {self.mean_accuracy:.3f}, closest {self._closest_pairs(3)}"
        )

    def _closest_pairs(self, n: int) -> str:
        """The n closest pairs in words, without listing all of them."""
        accuracy = np.where(np.tri(self.n_clusters, dtype=bool), np.inf, self.balanced_accuracy)
        n = min(n, self.n_clusters * (self.n_clusters - 1) // 2)
        first = np.argpartition(accuracy, n - 1, axis=None)[:n]
        first = first[np.argsort(accuracy.ravel()[first], kind="stable")]
        pairs = zip(*np.unravel_index(first, accuracy.shape), strict=True)
        ids = self.cluster_ids
        return ", ".join(f"{ids[i]}–{ids[j]} {self.tvd[i, j]:.2f}" for i, j in pairs)


_OWN = ("cluster_ids", "sizes", "n_heldout", "hit_rate")
_SCORES = ("features", "weights", "bias", "clusters", "folds", "rows")
_BATCHES = ("batches", "subclusters")
_HISTORY = ("epoch", "loss", "accuracy", "seconds", "kept_epoch")


def _frozen(array: Matrix) -> Matrix:
    array.flags.writeable = False
    return array
