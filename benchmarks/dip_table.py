"""Simulate the dip of uniform samples: the table behind `peers.methods.dip`.

    python -m benchmarks.dip_table [--scale 1.0] [--output benchmarks/peers/methods/dip_null.csv]

One process, about six minutes.  A table entry is the √n · dip that n uniform observations reach
with chance p.  From n = 50 on, each column is a curve a + b/√n + c/n fitted through the simulated
sizes, which averages their noise and ends in the limit of large n.  Prints the Monte-Carlo error
and how well the curves fit.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from benchmarks.common import print_table
from benchmarks.peers.methods.dip import TABLE

SEED = 1985
SIZES = (4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40)
CURVE = (50, 70, 100, 150, 200, 300, 500, 1000, 2000, 5000, 10_000, 20_000)
LEVELS = np.array(
    [0.995, 0.99, 0.98, 0.95]
    + [round(0.9 - 0.05 * i, 2) for i in range(17)]
    + [0.08, 0.06, 0.05, 0.04, 0.03, 0.02, 0.015, 0.01, 0.007, 0.005, 0.003, 0.002, 0.0015]
    + [0.001, 0.0007, 0.0005, 0.0003, 0.0002, 0.0001]
)

Vector = NDArray[np.float64]
Index = NDArray[np.int64]


def n_samples(n: int) -> int:
    """A million for small n; fewer where observations in all would pass 1.5e8; at least 20,000."""
    return max(min(1_000_000, 150_000_000 // n), 20_000)


def dips(samples: Vector) -> Vector:
    """Dip of every row of an (r, n) array in [0, 1] without ties, all rows at a time.

    The steps of `peers.methods.dip` on all rows laid end to end, so that one monotone regression
    serves them all.  A row stays as long as its interval still shrinks.
    """
    n_rows, n = samples.shape
    x = np.sort(samples, axis=1)
    cost = np.ones(n_rows)
    rows, first, last = np.arange(n_rows), np.zeros(n_rows, int), np.full(n_rows, n - 1)
    while len(rows):
        size = last - first + 1
        begin = np.cumsum(size) - size
        rank = np.arange(size.sum()) - np.repeat(begin - first, size)
        start, end, widest, outside = shrink(x[np.repeat(rows, size), rank], rank, begin, size)
        more = widest > cost[rows]
        rows, first = rows[more], first[more]
        cost[rows] = np.maximum(cost[rows], outside[more])
        first, last = first + (start - begin)[more], first + (end - begin)[more]
        open_ = first < last
        rows, first, last = rows[open_], first[open_], last[open_]
    return cost / (2 * n)


def shrink(
    x: Vector, rank: Index, begin: Index, size: Index
) -> tuple[Index, Index, Vector, Vector]:
    """Next interval of every row, the width that chose it, and the cost of what is outside."""
    row = np.repeat(np.arange(len(size)), size)
    minorant_at, minorant = hulls(x, rank, row, -1)
    majorant_at, majorant = hulls(x, rank + 1, row, +1)
    width = np.full(len(x), -1.0)
    for touch in (minorant_at, majorant_at):
        width[touch] = (majorant - minorant)[touch]
    widest = np.maximum.reduceat(width, begin)
    candidates = np.flatnonzero(width == widest[row])
    chosen = candidates[np.searchsorted(candidates, begin)]
    start = minorant_at[np.searchsorted(minorant_at, chosen, "right") - 1]
    end = majorant_at[np.searchsorted(majorant_at, chosen)]
    place = np.arange(len(x))
    outside = np.where(place < start[row], rank + 1 - minorant, 0.0)
    outside = np.where(place > end[row], majorant - rank, outside)
    return start, end, widest, np.maximum.reduceat(outside, begin)


def hulls(x: Vector, y: Index, row: Index, sign: int) -> tuple[Index, Vector]:
    """Touching places and heights of every row's convex minorant (−1) or concave majorant (+1)."""
    # Gaps are at most 1: lifted by 4 a row, and 2 between rows, none is pooled across rows.
    same = np.diff(row) == 0
    lifted = 4.0 * row[:-1] + np.where(same, sign * np.diff(x), 2.0)
    touch: Index = isotonic_regression(lifted).blocks
    place = x + 4.0 * row
    return touch, np.interp(place, place[touch], y[touch])


def simulate(n: int, samples: int, rng: np.random.Generator) -> Vector:
    """Sorted √n · dip of uniform samples."""
    chunk = max(1, 50_000 // n)
    found = [dips(rng.random((min(chunk, samples - i), n))) for i in range(0, samples, chunk)]
    return np.sort(np.sqrt(n) * np.concatenate(found))


def quantiles(scaled: Vector) -> tuple[Vector, Vector]:
    """Upper quantiles at LEVELS, and their standard errors by order statistics."""
    count = len(scaled)
    spread = np.sqrt(LEVELS * (1 - LEVELS) / count)
    ranks = np.clip([1 - LEVELS - spread, 1 - LEVELS, 1 - LEVELS + spread], 0, 1)
    low, at, high = np.quantile(scaled, ranks)
    return at, (high - low) / 2


def fit_curves(n: Vector, samples: Vector, at: Vector, error: Vector) -> tuple[Vector, Vector]:
    """Replace quantiles by curves a + b/√n + c/n and add the limit as a last row.

    Returns the rows, and the standard error of the limit with χ² of the fit for each level.
    """
    # √n · dip spreads nearly alike for all these n: one spread a level, over √samples.
    error = np.median(error * np.sqrt(samples)[:, None], axis=0) / np.sqrt(samples)[:, None]
    basis = np.stack([np.ones_like(n), n**-0.5, 1 / n], axis=1)
    rows, quality = [], []
    for y, s in zip(at.T, error.T, strict=True):
        weighted = basis / s[:, None]
        found = np.linalg.lstsq(weighted, y / s, rcond=None)[0]
        limit_error = np.sqrt(np.linalg.inv(weighted.T @ weighted)[0, 0])
        rows.append(np.append(basis @ found, found[0]))
        quality.append((limit_error, (((y - basis @ found) / s) ** 2).sum()))
    return np.array(rows).T, np.array(quality)


def write(path: Path, n: Vector, table: Vector) -> None:
    """A header of levels, then a row for each n; level 1 is the smallest dip, 1/(2n)."""
    lines = [
        "# Upper quantiles of sqrt(n) * dip for n uniform observations, simulated by",
        f"# python -m benchmarks.dip_table (seed {SEED}, up to 1,000,000 samples a row)",
        "n,1," + ",".join(f"{p:g}" for p in LEVELS),
    ]
    for size, row in zip(n, table, strict=True):
        lines.append(f"{size:g},{0.5 / np.sqrt(size):.6f}," + ",".join(f"{q:.6f}" for q in row))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def report(n: Vector, samples: Vector, at: Vector, error: Vector) -> None:
    shown = [int(np.flatnonzero(p == LEVELS)[0]) for p in (0.5, 0.1, 0.05, 0.01, 0.001, 0.0001)]
    rows = [
        (f"{n[i]:g}", f"{samples[i]:,.0f}", *(f"{at[i, j]:.4f} ± {error[i, j]:.4f}" for j in shown))
        for i in range(len(n))
    ]
    header = ("n", "samples", *(f"p = {LEVELS[j]:g}" for j in shown))
    print_table("Simulated quantiles of √n · dip, ± one standard error", header, rows)


def simulate_all(scale: float) -> tuple[Vector, Vector, Vector, Vector]:
    """Sizes, samples drawn of each, quantiles and their standard errors."""
    n = np.array(SIZES + CURVE, float)
    samples = np.array([int(scale * n_samples(int(size))) for size in n], float)
    streams = np.random.default_rng(SEED).spawn(len(n))
    found = [
        quantiles(simulate(int(size), int(count), rng))
        for size, count, rng in zip(n, samples, streams, strict=True)
    ]
    at, error = (np.array(part) for part in zip(*found, strict=True))
    return n, samples, at, error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the samples to draw")
    parser.add_argument("--output", type=Path, default=TABLE)
    arguments = parser.parse_args()
    n, samples, at, error = simulate_all(arguments.scale)
    report(n, samples, at, error)
    few = len(SIZES)
    curves, quality = fit_curves(n[few:], samples[few:], at[few:], error[few:])
    rows = [
        (f"{p:g}", f"{limit:.4f} ± {s:.4f}", f"{misfit:.1f}")
        for p, limit, (s, misfit) in zip(LEVELS, curves[-1], quality, strict=True)
    ]
    title = f"Curves: limit of large n, and χ² over {len(CURVE) - 3} degrees of freedom"
    print_table(title, ("p", "limit", "χ²"), rows)
    write(arguments.output, np.append(n, np.inf), np.concatenate([at[:few], curves]))


if __name__ == "__main__":
    main()
