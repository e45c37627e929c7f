"""Standard errors, intervals and tests for pairs of clusters.  NumPy and SciPy only.

Proportions are directed hit rates: at [i, j] the share of n[i] held-out observations of cluster i
that the classifier of the pair calls i; n[i, j] where it depends on the pair.  Balanced accuracy
is the mean of [i, j] and [j, i].
docs/statistics.md has the reasons and the measurements.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from unsplit._typing import Matrix

Counts = NDArray[np.int64]

# With cross-fitting, observations of fold f train the network that judges fold g and the other
# way round.  To first order the two folds' statistics share one symmetric term, so the variance
# of their sum under "same distribution" is twice that of independent folds.
CROSSFIT_VARIANCE = 2.0

# An accuracy this many standard errors above one half is no longer near the null.
NULL_REACH = 2.0

# Up to this many (a, b) pairs the null distribution of U is counted exactly.
EXACT_PAIRS = 400


def balanced_accuracy(hit_rate: Matrix) -> Matrix:
    """Balanced accuracy of every pair's classifier, 1/2 on the diagonal."""
    accuracy = (hit_rate + hit_rate.T) / 2
    np.fill_diagonal(accuracy, 0.5)
    return accuracy


def mean_accuracy(accuracy: Matrix, comparable: NDArray[np.bool_] | None = None) -> float:
    """A(D): balanced accuracy averaged over all pairs, or over those that could be compared.

    Examples
    --------
    >>> accuracy = np.array([[0.5, 0.75, 1.0], [0.75, 0.5, 0.5], [1.0, 0.5, 0.5]])
    >>> mean_accuracy(accuracy)
    0.75
    >>> mean_accuracy(accuracy, np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], bool))
    0.625
    """
    if comparable is not None and not comparable.all():
        return float(accuracy[np.triu(comparable, 1)].mean())
    k = len(accuracy)
    # Both triangles are alike, and the diagonal holds 1/2.
    return float((accuracy.sum() - k / 2) / (k * (k - 1)))


def tvd_stderr(hit_rate: Matrix, n: Counts | Matrix, n_folds: int = 1) -> Matrix:
    """Standard error of the TVD, 2·BA − 1.

    Each hit rate's variance is that of its posterior under a uniform prior, so it is positive for
    a perfect score and that of a uniform variable when nothing was held out.
    """
    size = _of_pairs(n).astype(float)
    hits = hit_rate * size
    smoothed = (hits + 1) / (size + 2)
    variance = smoothed * (1 - smoothed) / (size + 3)
    stderr = np.sqrt(variance + variance.T)
    return stderr * _crossfit_widening(hit_rate, stderr) if n_folds > 1 else stderr


def _of_pairs(n: NDArray[Any]) -> NDArray[Any]:
    """Counts that broadcast to all pairs."""
    return n if n.ndim == 2 else n[:, None]


def _crossfit_widening(hit_rate: Matrix, stderr: Matrix) -> Matrix:
    """How much wider errors are when folds share their training data.

    √2 where a pair cannot be told apart (:data:`CROSSFIT_VARIANCE`), falling to 1 where it can:
    there the networks agree, and the folds are as good as independent.
    """
    z = (hit_rate + hit_rate.T - 1) / stderr
    return np.sqrt(1 + (CROSSFIT_VARIANCE - 1) * np.exp(-0.5 * (z / NULL_REACH) ** 2))


def accuracy_interval(
    hit_rate: Matrix, n: Counts | Matrix, level: float, n_folds: int = 1
) -> tuple[Matrix, Matrix]:
    """Interval for the balanced accuracy of each pair.

    Wilson intervals of the two hit rates, combined by the method of variance estimates recovery
    (Zou and Donner, 2008), which stays inside [0, 1] and keeps close to its level near 1.
    """
    low, high = wilson_interval(hit_rate, _of_pairs(n), level)
    below, above = (hit_rate - low) ** 2, (high - hit_rate) ** 2
    below, above = (np.sqrt(part + part.T) / 2 for part in (below, above))
    if n_folds > 1:
        widening = _crossfit_widening(hit_rate, tvd_stderr(hit_rate, n))
        below, above = below * widening, above * widening
    accuracy = (hit_rate + hit_rate.T) / 2
    return np.clip(accuracy - below, 0.0, 1.0), np.clip(accuracy + above, 0.0, 1.0)


def at_least_chance(hit_rate: Matrix) -> Matrix:
    """Hit rates with both of a pair raised until they are no worse than a coin toss.

    No TVD is below zero.  An interval around a pair that did worse by chance would end near zero,
    and the fewer the observations, the surer it would look that the two are the same.

    Examples
    --------
    >>> at_least_chance(np.array([[0.5, 0.25], [0.25, 0.5]]))
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    return hit_rate + np.clip(0.5 - (hit_rate + hit_rate.T) / 2, 0.0, None)


def wilson_interval(rate: Matrix, n: Counts | Matrix, level: float) -> tuple[Matrix, Matrix]:
    """Wilson score interval of a proportion; [0, 1] when n is zero."""
    z2 = ndtri((1 + level) / 2) ** 2
    size = np.maximum(n, 1)
    centre = (rate + z2 / (2 * size)) / (1 + z2 / size)
    half = np.sqrt(z2 * (rate * (1 - rate) / size + z2 / (4 * size**2))) / (1 + z2 / size)
    seen = np.broadcast_to(n > 0, rate.shape)
    return np.where(seen, centre - half, 0.0), np.where(seen, centre + half, 1.0)


def rank_sum_p_value(U: Matrix, counts: Counts, n_folds: int | None = None) -> Matrix:
    """One-sided p-value of "same distribution" for every pair, small when i and j differ.

    Parameters
    ----------
    U : ndarray of shape (k, k)
        Mann–Whitney statistic of the score difference, summed over the strata.
    counts : ndarray of shape (S, k)
        Held-out observations by stratum and cluster.
    n_folds : int, optional
        Number of networks; None: every stratum is a fold with its own.

    Notes
    -----
    Given its network, each stratum's U is the classical rank-sum statistic.  For one stratum the
    test is exact (counted for small clusters, normal with a continuity correction for large); for
    several it uses the stratified normal form, with :data:`CROSSFIT_VARIANCE` if there are several
    networks.  Pairs with nothing held out on one side get p = 1.
    """
    c = counts.astype(float)
    n_pairs = c.T @ c
    variance = ((c**2).T @ c + c.T @ c**2 + n_pairs) / 12
    if (len(counts) if n_folds is None else n_folds) > 1:
        variance = variance * CROSSFIT_VARIANCE
    z = (U - n_pairs / 2 - 0.5) / np.sqrt(np.maximum(variance, 1.0 / 12))
    p = ndtr(-z)
    if len(counts) == 1:
        p = _replace_small_by_exact(p, U, counts[0])
    p = np.where(n_pairs > 0, p, 1.0)
    np.fill_diagonal(p, 1.0)
    return p


def _replace_small_by_exact(p: Matrix, U: Matrix, n: Counts) -> Matrix:
    p = p.copy()
    sizes = np.unique(n[n > 0])
    for a in sizes:
        for b in sizes[sizes * a <= EXACT_PAIRS]:
            where = np.ix_(n == a, n == b)
            # A tie makes U a half: taking the whole number below keeps the test valid.
            p[where] = rank_sum_survival(int(a), int(b))[np.floor(U[where]).astype(int)]
    return p


@lru_cache(maxsize=4096)
def rank_sum_survival(a: int, b: int) -> Matrix:
    """P(U ≥ u) for u = 0 … a·b when a and b observations come from one distribution.

    The counts of U are the coefficients of the Gaussian binomial ∏ (1 − q^(b+i)) / (1 − q^i).

    Examples
    --------
    >>> rank_sum_survival(2, 2).round(3)  # last: all of one above all of the other
    array([1.   , 0.833, 0.667, 0.333, 0.167])
    """
    ways = np.zeros(a * b + 1)
    ways[0] = 1.0
    for i in range(1, a + 1):
        multiplied = ways.copy()
        multiplied[b + i :] -= ways[: max(0, len(ways) - b - i)]
        for u in range(i, len(ways)):
            multiplied[u] += multiplied[u - i]
        ways = multiplied
    survival = np.cumsum(ways[::-1])[::-1] / ways.sum()
    survival.flags.writeable = False  # shared by all callers through the cache
    return survival


def adjust_for_pairs(p_value: ArrayLike, n_pairs: int) -> Matrix:
    """p-values times the number of pairs, at most 1 (Bonferroni).

    The chance that any two clusters are wrongly called different is then at most the level.
    Merging needs that: one wrong "different" keeps apart what belongs together.  The adjusted
    value of a pair depends on no other pair, so it means the same for clusters that were merged.

    Examples
    --------
    >>> adjust_for_pairs([0.01, 0.3], n_pairs=6)
    array([0.06, 1.  ])
    """
    return np.minimum(1.0, n_pairs * np.asarray(p_value))
