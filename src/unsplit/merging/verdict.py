"""Same, probably same, unclear or different: all that is known about two clusters in one word.

The thresholds are here and nowhere else; docs/stopping.md explains them to those who read the
words.  Two questions are asked, and of two answers the one nearer to "same" counts, as clusters
are different only if they can be told apart and, in a partition, have a valley between them.
"""

import math

SAME, PROBABLY_SAME, UNCLEAR, DIFFERENT = WORDS = ("same", "probably same", "unclear", "different")

LEVEL = 0.05
# Around the level nobody should be sure, so between these two p-values the word is "unclear".
CLEAR_P = 0.01
HINT_P = 0.2
# A classifier is right in 60 % and 75 % of the cases at best.
SMALL_TVD = 0.2
LARGE_TVD = 0.5
# A difference may be significant and still too small to matter, if clusters are huge.
LEAST_TVD = 0.05
# With so many observations two Gaussians 4 and 3.5 standard deviations apart give a p-value below
# HINT_P in 80 % and 90 % of the cases; with fewer, a valley could be there and not be seen.
ENOUGH = 50
MANY = 200


def verdict(
    low: float, high: float, p_adjusted: float, p_valley: float = math.nan, n_border: int = 0
) -> str:
    """Turn evidence about two clusters into one of four words.

    Parameters
    ----------
    low, high : float
        Interval of their TVD.
    p_adjusted : float
        Adjusted p-value of "same distribution".
    p_valley : float
        p-value of "no valley between"; NaN where clusters overlap and the test decides alone.
    n_border : int
        Observations in which the valley was looked for.

    Notes
    -----
    What is not known (NaN) is unclear.

    Examples
    --------
    >>> verdict(0.0, 0.1, 1.0), verdict(0.0, 0.7, 1.0), verdict(0.3, 0.6, 1e-5)
    ('same', 'unclear', 'different')
    >>> verdict(0.9, 1.0, 1e-9, p_valley=0.8, n_border=120)
    'probably same'
    """
    told_apart = _by_test(low, high, p_adjusted)
    if math.isnan(p_valley):
        return told_apart
    return min(told_apart, _by_valley(p_valley, n_border), key=WORDS.index)


def deciding_p(p_adjusted: float, p_valley: float = math.nan) -> float:
    """The p-value that speaks for "same": the larger, as both must be small for a difference.

    Examples
    --------
    >>> deciding_p(1e-9, 0.3), deciding_p(0.04)
    (0.3, 0.04)
    """
    return p_adjusted if math.isnan(p_valley) else max(p_adjusted, p_valley)


def _by_test(low: float, high: float, p: float) -> str:
    # Between clusters of ten no difference is significant among many pairs, however plain it is.
    if low >= LARGE_TVD or (low >= LEAST_TVD and p < CLEAR_P):
        return DIFFERENT
    if low >= LEAST_TVD or p < HINT_P:
        return UNCLEAR
    # Not significant is not the same as the same: how large could the difference be?
    if high <= SMALL_TVD:
        return SAME
    return PROBABLY_SAME if high <= LARGE_TVD else UNCLEAR


def _by_valley(p: float, n_border: int) -> str:
    if p < CLEAR_P:
        return DIFFERENT
    if p < HINT_P or n_border < ENOUGH:
        return UNCLEAR
    return SAME if n_border >= MANY else PROBABLY_SAME
