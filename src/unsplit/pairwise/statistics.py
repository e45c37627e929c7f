"""Standard errors, intervals and tests for pairs of clusters.  NumPy and SciPy only.

The hit rate at [i, j] is the share of the held-out observations of cluster i that the classifier of
the pair (i, j) assigns to i.  Their number is n[i], or n[i, j] if it depends on the pair.  Balanced
accuracy is the mean of the hit rates at [i, j] and [j, i].
docs/statistics.md explains the choices made here and how they were tested.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from unsplit._typing import Index, Matrix

# With cross-fitting, observations of fold f train the network that is tested on fold g, and the
# other way round.  To first order the statistics of the two folds share one symmetric term, so the
# variance of their sum, if both clusters come from one distribution, is twice that of independent
# folds.
CROSSFIT_VARIANCE = 2.0

# An accuracy this many standard errors above one half is no longer near the null hypothesis.
NULL_REACH = 2.0

# Up to this many pairs of observations, the null distribution of U is computed exactly.
EXACT_PAIRS = 400

# Two clusters that both have fewer held-out observations are compared across folds: within folds
# there are too few to find even a perfect separation significant.
FEWEST_WITHIN_FOLDS = 20

# Pairs that are tested at a time.
PAIRS_AT_ONCE = 2**20

# Nodes of the quadrature over normal variables; with more, p-values change by less than 1e-9.
NODES = 64


class Hits(NamedTuple):
    """Hit rates of pairs and the numbers of observations they are from, both ways.

    These are arrays of one shape, or broadcast to one, or the numbers of a single pair.

    Examples
    --------
    >>> Hits.of(np.array([[0.5, 0.9], [0.7, 0.5]]), np.array([20, 30])).accuracy
    array([[0.5, 0.8],
           [0.8, 0.5]])
    """

    rate: Any
    back: Any
    n: Any
    n_back: Any

    @classmethod
    def of(cls, hit_rate: Matrix, n: Index | Matrix) -> "Hits":
        """All pairs: hit rates (k, k), and numbers (k,) or (k, k)."""
        n = n if n.ndim > 1 else n[:, None]
        return cls(hit_rate, hit_rate.T, n, n.T)

    @property
    def accuracy(self) -> Any:
        """Balanced accuracy of the classifier of each pair."""
        return (self.rate + self.back) / 2


# A statistic of each pair.
Statistic = Callable[[Hits], Any]


def tvd(hits: Hits) -> Any:
    """Total variation distance of each pair."""
    return _within(2 * hits.accuracy - 1)


def _within(values: Any) -> Any:
    """Values in [0, 1]; for single numbers much faster than np.clip."""
    return np.minimum(np.maximum(values, 0.0), 1.0)


def tvd_interval(hits: Hits, level: float, n_folds: int) -> tuple[Any, Any]:
    """Lower and upper ends of the confidence intervals of the TVD.

    Examples
    --------
    >>> low, high = tvd_interval(Hits(0.9, 0.7, 20, 30), 0.95, 1)
    >>> float(low.round(3)), float(high.round(3))
    (0.331, 0.752)
    """
    low, high = accuracy_interval(at_least_chance(hits), level, n_folds)
    return _within(2 * low - 1), _within(2 * high - 1)


def mean_accuracy(accuracy: Matrix, comparable: NDArray[np.bool_] | None = None) -> float:
    """Average the balanced accuracy over all pairs, or over those that could be compared: A(D).

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
    # The matrix is symmetric, and its diagonal is 1/2.
    return float((accuracy.sum() - k / 2) / (k * (k - 1)))


def tvd_stderr(hits: Hits, n_folds: int = 1) -> Any:
    """Standard error of the TVD, 2·BA − 1.

    The variance of each hit rate is that of its posterior under a uniform prior.  It is thus
    positive even if all observations are hits, and that of a uniform variable if nothing was held
    out.

    Examples
    --------
    >>> float(tvd_stderr(Hits(0.9, 0.7, 20, 30)).round(3))
    0.108
    """
    stderr = np.sqrt(_variance(hits.rate, hits.n) + _variance(hits.back, hits.n_back))
    if n_folds == 1:
        return stderr
    return stderr * crossfit_widening((hits.rate + hits.back - 1) / stderr)


def _variance(rate: Any, n: Any) -> Any:
    """Posterior variance of a hit rate."""
    smoothed = (rate * n + 1) / (n + 2)
    return smoothed * (1 - smoothed) / (n + 3)


def crossfit_widening(z: Any) -> Any:
    """Factor by which errors grow because folds share training data.

    ``z`` is the difference of two clusters in standard errors.

    It is √2 for pairs that cannot be told apart (:data:`CROSSFIT_VARIANCE`) and falls to 1 for
    pairs that can: there the networks agree, and the folds are practically independent.
    """
    return np.sqrt(1 + (CROSSFIT_VARIANCE - 1) * np.exp(-0.5 * (z / NULL_REACH) ** 2))


def accuracy_interval(hits: Hits, level: float, n_folds: int = 1) -> tuple[Any, Any]:
    """Confidence interval for the balanced accuracy of each pair.

    The Wilson intervals of the two hit rates are combined by the method of variance estimates
    recovery (Zou and Donner, 2008).  The result stays inside [0, 1], and its coverage is close to
    the level even near 1.

    Examples
    --------
    >>> low, high = accuracy_interval(Hits(0.9, 0.7, 20, 30), 0.95)
    >>> float(low.round(3)), float(high.round(3))
    (0.665, 0.876)
    """
    low, high = wilson_interval(hits.rate, hits.n, level)
    low_back, high_back = wilson_interval(hits.back, hits.n_back, level)
    below = np.sqrt((hits.rate - low) ** 2 + (hits.back - low_back) ** 2) / 2
    above = np.sqrt((high - hits.rate) ** 2 + (high_back - hits.back) ** 2) / 2
    if n_folds > 1:
        widening = crossfit_widening((hits.rate + hits.back - 1) / tvd_stderr(hits))
        below, above = below * widening, above * widening
    return _within(hits.accuracy - below), _within(hits.accuracy + above)


def at_least_chance(hits: Hits) -> Hits:
    """Raise both hit rates of a pair until they are no worse than a coin toss.

    A TVD cannot be negative.  Otherwise the interval of a pair that did worse by chance would end
    near zero, and it would look certain that the two clusters are the same, the more so the fewer
    observations there are.

    Examples
    --------
    >>> tuple(float(value) for value in at_least_chance(Hits(0.25, 0.25, 8, 8))[:2])
    (0.5, 0.5)
    """
    lacking = np.maximum(0.5 - hits.accuracy, 0.0)
    return hits._replace(rate=hits.rate + lacking, back=hits.back + lacking)


def wilson_interval(rate: Any, n: Any, level: float) -> tuple[Any, Any]:
    """Wilson score interval of a proportion; [0, 1] if n is zero.

    Examples
    --------
    >>> low, high = wilson_interval(np.array([0.9, 0.5]), np.array([20, 0]), 0.95)
    >>> low.round(3), high.round(3)
    (array([0.699, 0.   ]), array([0.972, 1.   ]))
    """
    z2 = ndtri((1 + level) / 2) ** 2
    half = np.sqrt(z2 * (n * rate * (1 - rate) + z2 / 4))
    return (n * rate + z2 / 2 - half) / (n + z2), (n * rate + z2 / 2 + half) / (n + z2)


def pair_weights(counts: Index) -> Matrix:
    """Weight of one batch for every pair, n_i n_j / (n_i + n_j), given its counts (k,).

    Both directions of a pair have the same weight.  A network that favours the larger of two
    parts then gains on one side what it loses on the other, and the mean over batches is
    unbiased.

    Examples
    --------
    >>> pair_weights(np.array([10, 40, 0]))[0]
    array([5., 8., 0.])
    """
    n = counts.astype(float)
    return n[:, None] * n / np.maximum(n[:, None] + n, 1)


def effective_counts(counts: Index) -> Matrix:
    """Effective number of observations of i in the comparison with j, shape (k, k).

    A weighted mean over batches, with weights v_b that sum to 1 and n_b observations, has the
    variance Σ v_b² / n_b: the same as a plain mean of 1 / Σ(v_b² / n_b) observations.

    Examples
    --------
    >>> float(effective_counts(np.array([[10, 10], [10, 10]]))[0, 1])  # as without batches
    20.0
    """
    k = counts.shape[1]
    total, squares = np.zeros((k, k)), np.zeros((k, k))
    for n in counts:
        weights = pair_weights(n)
        total += weights
        squares += weights**2 / np.maximum(n, 1)[:, None]
    return np.divide(total**2, squares, out=np.zeros((k, k)), where=squares > 0)


def across_folds(n: Index, n_strata: int, n_folds: int) -> NDArray[np.bool_]:
    """Whether clusters are small enough to be compared with each other across folds.

    Observations of different batches are never compared, so with batches no cluster is.

    Parameters
    ----------
    n : ndarray
        Held-out observations of clusters.
    n_strata, n_folds : int

    Examples
    --------
    >>> across_folds(np.array([8, 50]), 5, 5), across_folds(np.array([8, 50]), 1, 1)
    (array([ True, False]), array([False, False]))
    """
    return (n < FEWEST_WITHIN_FOLDS) & (n_strata == n_folds > 1)


def ranks_within(values: Matrix, groups: Index) -> Matrix:
    """Ranks by group and then by value, from 0; equal values of a group share their mean rank.

    Examples
    --------
    >>> ranks_within(np.array([5.0, 5.0, 1.0, 0.0]), np.array([0, 0, 0, 1]))
    array([1.5, 1.5, 0. , 3. ])
    """
    order = np.argsort(values)
    order = order[np.argsort(groups[order], kind="stable")]  # faster than np.lexsort
    new = (np.diff(values[order]) != 0) | (np.diff(groups[order]) != 0)
    ends = np.concatenate([[0], np.flatnonzero(new) + 1, [len(values)]])
    ranks = np.empty(len(values))
    ranks[order] = np.repeat((ends[:-1] + ends[1:] - 1) / 2, np.diff(ends))
    return ranks


def rank_sums(values: Matrix, of_left: NDArray[np.bool_], groups: Index, n_groups: int) -> Matrix:
    """Mann–Whitney U of each group: how often a value of the left is higher; ties are one half.

    Examples
    --------
    >>> of_left = np.array([True, False, False, True])
    >>> rank_sums(np.array([2.0, 1.0, 2.0, 0.0]), of_left, np.array([0, 0, 0, 1]), 2)
    array([1.5, 0. ])
    """
    rank = ranks_within(values, groups)
    n_left, sizes = np.bincount(groups, of_left, n_groups), np.bincount(groups, minlength=n_groups)
    # Ranks go on from group to group; those of the left alone would be 0 to n_left − 1.
    least = n_left * (np.cumsum(sizes) - sizes) + n_left * (n_left - 1) / 2
    return np.bincount(groups, np.where(of_left, rank, 0), n_groups) - least


def rank_sum_p_value(U: Matrix, counts: Index, n_folds: int | None = None) -> Matrix:
    """One-sided p-value for every pair, small if the clusters differ.

    The null hypothesis is that both clusters come from the same distribution.

    Parameters
    ----------
    U : ndarray of shape (k, k)
        Mann–Whitney statistic of the score difference: of two clusters that are small
        (:func:`across_folds`) over all folds at once, otherwise summed over the strata.
    counts : ndarray of shape (S, k)
        Held-out observations by stratum and cluster.
    n_folds : int, optional
        Number of networks; None if every stratum is a fold with its own network.

    Notes
    -----
    Given the network, the U of each stratum is the classical rank-sum statistic.  With one
    stratum, its exact distribution is used for small clusters, and the normal approximation with a
    continuity correction for large ones.  With several strata, the stratified normal approximation
    is used, with :data:`CROSSFIT_VARIANCE` if there are several networks; for two small clusters
    it is the exact distribution with that variance (:func:`rank_sum_survival`).  Pairs in which a
    cluster has no held-out observation get p = 1.

    Examples
    --------
    >>> U = np.array([[0.0, 16.0], [16.0, 0.0]])  # all of one above all of the other
    >>> rank_sum_p_value(U, np.array([[4, 4]])).round(3)
    array([[1.   , 0.014],
           [0.014, 1.   ]])
    """
    left, right = np.triu_indices(len(U), 1)
    p = np.ones(U.shape)
    for start in range(0, len(left), PAIRS_AT_ONCE):
        i, j = left[start : start + PAIRS_AT_ONCE], right[start : start + PAIRS_AT_ONCE]
        found = rank_sum_p_value_of_pairs(U[i, j], counts[:, i], counts[:, j], n_folds)
        p[i, j] = p[j, i] = found
    return p


def rank_sum_p_value_of_pairs(
    U: Matrix, n_left: Index, n_right: Index, n_folds: int | None = None
) -> Matrix:
    """:func:`rank_sum_p_value` for a list of pairs instead of all.

    Parameters
    ----------
    U : ndarray of shape (p,)
        As there.
    n_left, n_right : ndarrays of shape (S, p)
        Held-out observations of the two clusters of each pair, by stratum.
    n_folds : int, optional

    Examples
    --------
    >>> four = np.array([[4]])
    >>> rank_sum_p_value_of_pairs(np.array([16.0]), four, four).round(3)
    array([0.014])
    """
    a, b = n_left.astype(float), n_right.astype(float)
    n_pairs = (a * b).sum(axis=0)
    variance = ((a * b * (a + b)).sum(axis=0) + n_pairs) / 12
    n_folds = len(a) if n_folds is None else n_folds
    variance *= CROSSFIT_VARIANCE if n_folds > 1 else 1.0
    p: Matrix = ndtr(-(U - n_pairs / 2 - 0.5) / np.sqrt(np.maximum(variance, 1.0 / 12)))
    n = np.stack([n_left.sum(axis=0), n_right.sum(axis=0)])
    if len(a) == 1:
        exact, factor = n_pairs <= EXACT_PAIRS, 1.0
    else:
        exact, factor = across_folds(n.max(axis=0), len(a), n_folds), CROSSFIT_VARIANCE
        n_pairs = np.where(exact, n[0] * n[1], n_pairs)
    small = np.flatnonzero(exact & (n_pairs > 0))
    if len(small):
        sizes, place = np.unique(n[0, small] * (EXACT_PAIRS + 1) + n[1, small], return_inverse=True)
        tables = [rank_sum_survival(*divmod(of, EXACT_PAIRS + 1), factor) for of in sizes.tolist()]
        starts = np.cumsum([0, *map(len, tables[:-1])])
        # A tie adds one half to U; rounding down keeps the test valid.
        p[small] = np.concatenate(tables)[starts[place] + np.floor(U[small]).astype(int)]
    return np.where(n_pairs > 0, p, 1.0)


@lru_cache(maxsize=4096)
def rank_sum_survival(a: int, b: int, factor: float = 1.0) -> Matrix:
    """P(U ≥ u) for u = 0 … a·b if a and b observations come from the same distribution.

    Parameters
    ----------
    a, b : int
    factor : float
        By how much more U varies than if the observations were independent; 1 for those that one
        network scores.

    Notes
    -----
    The counts of U are the coefficients of the Gaussian binomial ∏ (1 − q^(b+i)) / (1 − q^i).
    Networks that share training data shift the scores of one cluster against those of the other
    by chance.  The ranks of shifted observations have, nearly, the probability of these counts
    times e^(θU).  The shift is a normal variable, so θ is one too, and its variance is such that
    that of U is multiplied by ``factor``, to first order in θ.

    Examples
    --------
    >>> rank_sum_survival(2, 2).round(3)  # the last: both of one above both of the other
    array([1.   , 0.833, 0.667, 0.333, 0.167])
    >>> float(rank_sum_survival(8, 8, 2.0)[-1].round(4))
    0.0011
    """
    ways = _orders(min(a, b), max(a, b))
    if factor > 1:
        node, weight = np.polynomial.hermite_e.hermegauss(NODES)
        theta = node * np.sqrt((factor - 1) * 12 / (a * b * (a + b + 1)))
        exponent = np.outer(theta, np.arange(a * b + 1) - a * b / 2)
        tilted = ways * np.exp(exponent - exponent.max(axis=1, keepdims=True))
        ways = weight / tilted.sum(axis=1) @ tilted
    survival = np.cumsum(ways[::-1])[::-1]
    survival /= survival[0]
    survival.flags.writeable = False  # shared by all callers through the cache
    return survival


def _orders(a: int, b: int) -> Matrix:
    """Number of orders of a and b observations for which U is 0 … a·b."""
    ways = np.zeros(a * b + 1)
    ways[0] = 1.0
    for i in range(1, a + 1):
        multiplied = ways.copy()
        multiplied[b + i :] -= ways[: max(0, len(ways) - b - i)]
        for u in range(i, len(ways)):
            multiplied[u] += multiplied[u - i]
        ways = multiplied
    return ways


def possibly_equal(n_below: int, n_clusters: int) -> int:
    """Estimate how many pairs at most come from one distribution each: from 1 to all pairs.

    The classifier of such a pair does worse than a coin toss about as often as better, so there
    are about twice as many of them as pairs with an accuracy of at most one half, ``n_below`` (as
    in Storey 2002, who counts p-values above one half).  One is added, because few pairs say
    little.

    Examples
    --------
    >>> possibly_equal(1, 20)
    4
    """
    return max(1, min(math.comb(n_clusters, 2), 2 * (n_below + 1)))


def adjust_for_pairs(p_value: ArrayLike, n_pairs: int) -> Matrix:
    """p-values times the number of pairs, at most 1 (Bonferroni).

    If ``n_pairs`` is the number of pairs that may be equal, the chance that any two equal clusters
    are called different is at most the level: pairs that differ cannot be called so wrongly.
    Merging needs that: one wrong "different" keeps apart what belongs together.  The adjusted
    value of a pair depends on no other pair, so it means the same for clusters that were merged.

    Examples
    --------
    >>> adjust_for_pairs([0.01, 0.3], n_pairs=6)
    array([0.06, 1.  ])
    """
    return np.minimum(1.0, n_pairs * np.asarray(p_value))
