"""Hartigans' dip test of unimodality, which UniForCE asks about every pair.

The dip of a sample is the smallest D for which some unimodal distribution function, convex up to
its mode and concave from there on, stays within D of the empirical one.  J. A. Hartigan and
P. M. Hartigan (1985), The Dip Test of Unimodality, Annals of Statistics 13, 70–84.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

Vector = NDArray[np.float64]
Index = NDArray[np.int64]

TABLE = Path(__file__).parent / "dip_null.csv"
# With fewer observations every sample has the smallest possible dip, 1/(2n).
FEWEST = 4


def dip_statistic(values: Vector) -> float:
    """Dip of a sample: its distance from the nearest unimodal distribution, in [1/(2n), 1/4].

    Exact, also with ties: the unimodal distribution may have an atom, but only at its mode.

    Examples
    --------
    >>> dip_statistic(np.array([0.0, 0.0, 1.0, 1.0]))  # as far from one mode as can be
    0.25
    """
    return _dip(np.sort(values))


def _dip(x: Vector) -> float:
    """Dip of sorted values.

    Twice the dip is found as a number of observations.  Any curve that does better than the
    widest distance between majorant and minorant can be bent to have its mode in the interval
    kept below; outside of it the curve is at best half the distance between the steps and their
    hull.  So the interval shrinks until what was left outside costs as much as the inside.
    """
    points, below, above = _steps(x)
    first, last, cost = 0, len(points) - 1, 1.0
    while first < last:
        inside = slice(first, last + 1)
        low, high = below[inside], above[inside]
        minorant_at, minorant = _hull(points[inside], low, -1)
        majorant_at, majorant = _hull(points[inside], high, +1)
        width = majorant - minorant
        touching = np.concatenate([minorant_at, majorant_at])
        widest = touching[width[touching].argmax()]
        if width[widest] <= cost:
            break
        start = minorant_at[np.searchsorted(minorant_at, widest, "right") - 1]
        end = majorant_at[np.searchsorted(majorant_at, widest)]
        # The ends themselves stay out of the cost: there, the mode may have an atom.
        left = (high - minorant)[:start].max(initial=0.0)
        right = (majorant - low)[end + 1 :].max(initial=0.0)
        cost = max(cost, float(left), float(right))
        first, last = first + int(start), first + int(end)
    return cost / (2 * len(x))


def _steps(x: Vector) -> tuple[Vector, Vector, Vector]:
    """Distinct values, with the number of observations below, and up to, each of them."""
    # A power of two changes no dip; in [-1, 1], and nothing next to zero, no slope overflows.
    x = np.ldexp(x, -np.frexp(np.abs(x).max())[1])
    x[np.abs(x) < 1e-280] = 0.0
    ends = np.append(np.flatnonzero(x[1:] > x[:-1]) + 1, len(x))
    starts = np.append(0, ends[:-1])
    return x[starts], starts.astype(float), ends.astype(float)


def _hull(x: Vector, y: Vector, sign: int) -> tuple[Index, Vector]:
    """Greatest convex minorant (sign −1) or least concave majorant (+1) of rising points.

    Returns the indices at which it touches the points, and its height at every x.  Its slopes are
    the monotone regression of the points' slopes; taken upside down, x per count, they are never
    divided by a tiny gap.
    """
    rise = np.diff(y)
    touch: Index = isotonic_regression(sign * np.diff(x) / rise, weights=rise).blocks
    return touch, np.interp(x, x[touch], y[touch])


def dip_p_value(statistic: float, n: int) -> float:
    """How often n uniform observations have a dip at least this large.

    The uniform distribution is the hardest unimodal one to tell from several modes, as far as is
    known, so for others p is on the large side.

    Parameters
    ----------
    statistic : float
        The dip.
    n : int
        Number of observations.

    Notes
    -----
    Interpolated, in √n · dip over 1/√n, in quantiles simulated by ``benchmarks/dip_table.py``.
    Below the smallest simulated level, 0.0001, log p continues as a straight line in n · dip²:
    the order of magnitude is right, the digits are not.

    Examples
    --------
    >>> round(dip_p_value(0.0703, 50), 2)
    0.05
    """
    # The smallest dip is an atom of the null distribution, to be counted as a whole.
    if n < FEWEST or statistic <= (1 + 1e-9) / (2 * n):
        return 1.0
    log_p, quantiles = _null_distribution(n)
    scaled = np.sqrt(n) * statistic
    if scaled <= quantiles[-1]:
        return float(np.exp(np.interp(scaled, quantiles, log_p)))
    tail = np.abs(log_p - np.log(1e-3)).argmin()
    slope = (log_p[-1] - log_p[tail]) / (quantiles[-1] ** 2 - quantiles[tail] ** 2)
    return float(np.exp(log_p[-1] + slope * (scaled**2 - quantiles[-1] ** 2)))


def _null_distribution(n: int) -> tuple[Vector, Vector]:
    """Falling log p, and the √n · dip that a uniform sample of n reaches as often."""
    log_p, roots, table = _null_table()
    root = 1 / np.sqrt(n)
    above = int(np.searchsorted(roots, root))
    share = (root - roots[above - 1]) / (roots[above] - roots[above - 1])
    return log_p, (1 - share) * table[above - 1] + share * table[above]


@lru_cache(maxsize=1)
def _null_table() -> tuple[Vector, Vector, Vector]:
    """Log p of the columns, 1/√n of the rows (rising from n = ∞), and the quantiles."""
    text = TABLE.read_text(encoding="utf-8")
    header, *rows = [line for line in text.splitlines() if not line.startswith("#")]
    levels = np.array(header.split(",")[1:], float)
    table = np.loadtxt(rows, delimiter=",")[::-1]
    return np.log(levels), 1 / np.sqrt(table[:, 0]), table[:, 1:]
