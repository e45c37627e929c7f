"""Evidence from held-out scores about two clusters, also after merges."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.divergences import HeldoutScores, log_of_shares
from unsplit.pairwise.groups import counts_of_pair, group_p_value
from unsplit.pairwise.result import PairwiseTVD

# Of all intervals of the TVD.
CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Contrast:
    """Score differences z_a − z_b of the held-out observations of clusters a and b.

    Parameters
    ----------
    values : ndarray of shape (m,)
        z_a − z_b, an estimate of log p_a/p_b.
    of_a : ndarray of shape (m,)
        Whether the observation belongs to a; the others belong to b.
    folds : ndarray of shape (m,)
        Fold of the network that scored it; with batches its stratum, fold · B + batch.
    n_folds : int
        Number of folds or strata.
    n_batches : int
        Number of batches, B; each holds observations of both clusters or of neither.
    groups : ndarray of shape (m,), optional
        Group of each observation.
    """

    values: NDArray[np.float64]
    of_a: NDArray[np.bool_]
    folds: Index
    n_folds: int
    n_batches: int = 1
    groups: Index | None = None

    @classmethod
    def of(
        cls,
        scores: HeldoutScores,
        values: NDArray[np.float64],
        of_a: NDArray[np.bool_],
        strata: Index,
        groups: Index | None,
    ) -> "Contrast":
        """A contrast that leaves out the batches in which only one of the two occurs."""
        n_strata, n_batches = len(scores.bias), scores.n_batches
        if groups is not None:
            return cls(values, of_a, strata, n_strata, groups=groups)
        if n_batches > 1:
            batch = strata % n_batches
            counts = np.bincount(2 * batch + ~of_a, minlength=2 * n_batches).reshape(-1, 2)
            kept = counts.min(axis=1)[batch] > 0
            values, of_a, strata = values[kept], of_a[kept], strata[kept]
        return cls(values, of_a, strata, n_strata, n_batches)

    @property
    def comparable(self) -> bool:
        """Whether the two can be compared, by a batch that they share or by groups of both."""
        if self.groups is not None:
            return bool(self.of_a.any() and not self.of_a.all())
        return self.n_batches == 1 or len(self.values) > 0

    @cached_property
    def counts(self) -> Index:
        """Held-out observations of a and b by fold or stratum, shape (K, 2)."""
        flat = np.bincount(2 * self.folds + ~self.of_a, minlength=2 * self.n_folds)
        return flat.reshape(self.n_folds, 2)

    @cached_property
    def hit_rate(self) -> NDArray[np.float64]:
        """Directed hit rates as in :class:`unsplit.PairwiseTVD`, shape (2, 2)."""
        if not self.comparable:
            return np.array([[0.5, 1.0], [1.0, 0.5]])
        if self.n_batches == 1:
            return _hit_rate(self.values, self.of_a)
        weights = [stats.pair_weights(counts)[0, 1] for counts in self._batch_counts]
        batches = [self.folds % self.n_batches == batch for batch in range(self.n_batches)]
        rates = [_hit_rate(self.values[inside], self.of_a[inside]) for inside in batches]
        return np.average(rates, axis=0, weights=weights)

    @property
    def tvd(self) -> float:
        """Total variation distance."""
        return float(max(0.0, self.hit_rate[0, 1] + self.hit_rate[1, 0] - 1))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the TVD."""
        counts, n_networks = self._batch_counts, self.n_folds // self.n_batches
        n = counts[0] if self.n_batches == 1 else stats.effective_counts(counts)
        if self.groups is not None:
            n = counts_of_pair(self.values, self.of_a, self.groups, self.hit_rate)
        low, high = stats.tvd_interval(self.hit_rate, n, CONFIDENCE, n_networks)
        return float(low[0, 1]), float(high[0, 1])

    @cached_property
    def p_value(self) -> float:
        """One-sided rank-sum p-value of "same distribution"."""
        if self.groups is not None:
            return group_p_value(self.values, self.of_a, self.folds, self.groups, self.n_folds)
        U, n_networks = np.array([self._rank_sum()]), self.n_folds // self.n_batches
        sides = self.counts[:, :1], self.counts[:, 1:]
        return float(stats.rank_sum_p_value_of_pairs(U, *sides, n_networks)[0])

    @property
    def _batch_counts(self) -> Index:
        """Held-out observations of a and b by batch, shape (B, 2)."""
        return self.counts.reshape(-1, self.n_batches, 2).sum(axis=0)

    def _rank_sum(self) -> float:
        """Pairs of an observation of a and one of b with a above b, ties one half.

        They are in the same fold, unless both clusters are small.
        """
        n_networks = self.n_folds // self.n_batches
        larger = self.counts.sum(axis=0).max()
        small = stats.across_folds(larger, self.n_folds, n_networks)
        folds = np.zeros_like(self.folds) if small else self.folds
        # One whole number sorts by fold, then by value, so that all folds are counted at once.
        n, rank = len(self.values), np.unique(self.values, return_inverse=True)[1]
        place = folds * n + rank
        of_a, of_b = place[self.of_a], np.sort(place[~self.of_a])
        below, up_to = of_b.searchsorted(of_a, "left"), of_b.searchsorted(of_a, "right")
        in_folds_before = of_b.searchsorted(n * folds[self.of_a])
        return float((below + up_to).sum() / 2 - in_folds_before.sum())


def _hit_rate(values: NDArray[np.float64], of_a: NDArray[np.bool_]) -> NDArray[np.float64]:
    rates = np.full((2, 2), 0.5)
    for side, margins in enumerate((values[of_a], -values[~of_a])):
        if len(margins):
            rates[side, 1 - side] = ((margins > 0) + (margins == 0) / 2).mean()
    return rates


# float32 scores (1 GiB) that are held at once.  Fixed, so that results do not depend on the memory
# of the machine.
MOST_SCORES = 2**28


class Mixtures:
    """Evidence from one estimate, computed when it is needed.

    A merged cluster is the mixture of its members.  This needs no memory, but time for every
    member of the two clusters.
    """

    def __init__(self, result: PairwiseTVD) -> None:
        self.result = result
        self.slot = result.scores.clusters.copy()
        order = np.argsort(self.slot, kind="stable")
        starts = np.searchsorted(self.slot[order], np.arange(1, result.n_clusters))
        self.rows = np.split(order, starts)
        self.members = [[slot] for slot in range(result.n_clusters)]

    def merge(self, a: int, b: int) -> None:
        """Add the members of b to a."""
        self.members[a] += self.members[b]
        self.slot[self.rows[b]] = a
        self.rows[a] = np.concatenate([self.rows[a], self.rows[b]])
        self.members[b], self.rows[b] = [], self.rows[b][:0]

    def contrast(self, a: int, b: int) -> Contrast:
        """Score differences between the two mixtures."""
        scores, sizes = self.result.scores, self.result.sizes
        index = np.sort(np.concatenate([self.rows[a], self.rows[b]]))
        z = scores.composed(index, (self.members[a], self.members[b]), sizes)
        difference = (z[:, 0] - z[:, 1]).astype(np.float64)
        groups = None if scores.groups is None else scores.groups[index]
        return Contrast.of(scores, difference, self.slot[index] == a, scores.strata[index], groups)


class Columns:
    """Evidence from one estimate, with the scores of all observations kept: O(n) per merge."""

    def __init__(self, result: PairwiseTVD) -> None:
        scores = result.scores
        self.result = result
        # Sorted by row, not by cluster, so that sums do not depend on the names of the clusters.
        order = np.argsort(scores.rows, kind="stable")
        self.z = _columns(scores, order)
        self.slot = scores.clusters[order].copy()
        self.strata = scores.strata[order]
        self.batch = self.strata % scores.n_batches
        self.groups = None if scores.groups is None else scores.groups[order]
        # By batch; a single row if there are no batches.
        self.sizes = scores.sizes_in_batches(result.sizes).astype(float)

    def merge(self, a: int, b: int) -> None:
        """Compose the score columns of the two."""
        of_batches = log_of_shares(self.sizes[:, [a, b]])
        log_shares = (of_batches if len(of_batches) == 1 else of_batches[self.batch]).T
        self.z[:, a] = np.logaddexp(self.z[:, a] + log_shares[0], self.z[:, b] + log_shares[1])
        self.sizes[:, a] += self.sizes[:, b]
        self.slot[self.slot == b] = a

    def contrast(self, a: int, b: int) -> Contrast:
        """Score differences between the two."""
        index = np.flatnonzero((self.slot == a) | (self.slot == b))
        difference = (self.z[index, a] - self.z[index, b]).astype(np.float64)
        of_a, strata = self.slot[index] == a, self.strata[index]
        groups = None if self.groups is None else self.groups[index]
        return Contrast.of(self.result.scores, difference, of_a, strata, groups)


Evidence = Columns | Mixtures


def evidence_of(result: PairwiseTVD) -> Evidence:
    """The faster kind of evidence if it needs at most a gibibyte, otherwise the smaller one."""
    few = len(result.scores.rows) * result.n_clusters <= MOST_SCORES
    return Columns(result) if few and not result.is_sparse else Mixtures(result)


def _columns(scores: HeldoutScores, order: Index) -> NDArray[np.float32]:
    """All scores with rows in this order, in column-major memory, without a copy."""
    z = np.empty((len(order), scores.n_clusters), np.float32, order="F")
    place, done = np.argsort(order), 0
    for block, _ in scores.blocks():
        z[place[done : done + len(block)]] = block.numpy()
        done += len(block)
    return z
