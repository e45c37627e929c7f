"""What held-out scores say about two clusters, however they came about."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from unsplit import stats
from unsplit.dip import dip_test
from unsplit.sampling import Index

LEVEL = 0.95


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
        Which network scored it.
    n_folds : int
    """

    values: NDArray[np.float64]
    of_a: NDArray[np.bool_]
    folds: Index
    n_folds: int

    @cached_property
    def counts(self) -> Index:
        """Held-out observations of a and b by fold, shape (K, 2)."""
        flat = np.bincount(2 * self.folds + ~self.of_a, minlength=2 * self.n_folds)
        return flat.reshape(self.n_folds, 2)

    @cached_property
    def hit_rate(self) -> NDArray[np.float64]:
        """Directed hit rates as in :class:`unsplit.PairwiseTVD`, shape (2, 2)."""
        rates = np.full((2, 2), 0.5)
        for side, margins in enumerate((self.values[self.of_a], -self.values[~self.of_a])):
            if len(margins):
                rates[side, 1 - side] = ((margins > 0) + (margins == 0) / 2).mean()
        return rates

    @property
    def tvd(self) -> float:
        """Total variation distance."""
        return float(max(0.0, self.hit_rate[0, 1] + self.hit_rate[1, 0] - 1))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the TVD."""
        n = self.counts.sum(axis=0)
        ends = stats.accuracy_interval(self.hit_rate, n, LEVEL, self.n_folds)
        low, high = (float(np.clip(2 * end[0, 1] - 1, 0.0, 1.0)) for end in ends)
        return low, high

    @cached_property
    def p_value(self) -> float:
        """One-sided rank-sum p-value of "same distribution"."""
        # The diagonal must stay zero: the test looks up all four places.
        U = sum(self._rank_sum(fold) for fold in range(self.n_folds)) * (1 - np.eye(2))
        return float(stats.rank_sum_p_value(U, self.counts)[0, 1])

    @cached_property
    def unimodality(self) -> float:
        """p-value of "no valley where the two meet": Hartigans' dip test on the window."""
        window = self.window
        return dip_test(window).p_value if len(window) else 1.0

    @property
    def window(self) -> NDArray[np.float64]:
        """The differences around zero, as many on either side as the smaller side has.

        Without it a large cluster would drown what happens at the border to a small one.
        """
        left = np.sort(self.values[self.values < 0])
        right = np.sort(self.values[self.values >= 0])
        n = min(len(left), len(right))
        return np.concatenate([left[len(left) - n :], right[:n]])

    def _rank_sum(self, fold: int) -> float:
        inside = self.folds == fold
        n_a = self.counts[fold, 0]
        if n_a == 0:
            return 0.0
        ranks = rankdata(self.values[inside])[self.of_a[inside]]
        return float(ranks.sum() - n_a * (n_a + 1) / 2)
