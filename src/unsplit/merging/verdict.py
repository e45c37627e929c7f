"""Same, probably same, unclear or different: all that is known about two clusters in one word.

The thresholds are here and nowhere else; docs/stopping.md explains them to those who read the
words.  Two questions are asked, and of two answers the one nearer to "same" counts, as clusters
are different only if they can be told apart and, where they were cut out of the same features,
something separates them: too few neighbours in common, a neck, or a valley.
"""

import math
from typing import NamedTuple

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
# Around a strength of 1 nobody should be sure either.
WEAK = 0.8
FAIR = 1.25
STRONG = 2.0
# A cluster of fewer has neighbours outside whatever it is.
TINY = 10


class Evidence(NamedTuple):
    """What is known about two clusters; NaN for what is not.

    Parameters
    ----------
    low, high : float
        Interval of their TVD.
    p_adjusted : float
        Adjusted p-value of "same distribution".
    p_valley : float
        p-value of "no valley between".
    n_border : int
        Observations in which the valley was looked for.
    strength : float
        How strongly the neighbour graph connects the two; 1 is the limit.
    smaller : int
        Observations of the smaller of the two.
    """

    low: float
    high: float
    p_adjusted: float
    p_valley: float = math.nan
    n_border: int = 0
    strength: float = math.nan
    smaller: int = MANY


def verdict(known: Evidence) -> str:
    """Turn evidence about two clusters into one of four words.

    Notes
    -----
    What is not known (NaN) is unclear.

    Examples
    --------
    >>> [verdict(Evidence(*e)) for e in ((0.0, 0.1, 1.0), (0.0, 0.7, 1.0), (0.3, 0.6, 1e-5))]
    ['same', 'unclear', 'different']
    >>> verdict(Evidence(0.9, 1.0, 1e-9, p_valley=0.8, n_border=120))
    'probably same'
    >>> verdict(Evidence(0.9, 1.0, 1e-9, strength=0.2)), verdict(Evidence(0.9, 1.0, 0, strength=3))
    ('different', 'same')
    """
    words = [_by_test(known.low, known.high, known.p_adjusted)]
    if not math.isnan(known.strength):
        words.append(_by_neighbours(known.strength, known.smaller))
    elif not math.isnan(known.p_valley):
        words.append(_by_valley(known.p_valley, known.n_border))
    return min(words, key=WORDS.index)


def doubt(known: Evidence) -> float:
    """How far the evidence is from its limit: 0 on the limit, where all may be otherwise.

    Of two answers the one that speaks for "same" counts, as both must speak against it.

    Examples
    --------
    >>> doubt(Evidence(0.3, 0.6, 0.05)), doubt(Evidence(0.3, 0.6, 0.0, strength=1.0))
    (0.0, 0.0)
    """
    if not math.isnan(known.strength):
        return abs(math.log(max(known.strength, 1e-300)))
    p = known.p_adjusted
    if not math.isnan(known.p_valley):
        p = max(p, known.p_valley)
    return 0.0 if math.isnan(p) else abs(math.log(max(p, 1e-300) / LEVEL))


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


def _by_neighbours(strength: float, smaller: int) -> str:
    if strength < WEAK:
        return DIFFERENT
    if strength < FAIR or smaller < TINY:
        return UNCLEAR
    return SAME if strength >= STRONG and smaller >= MANY else PROBABLY_SAME
