"""How far are the estimates from distances that are known exactly?

python -m benchmarks.known_truth
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import print_table
from unsplit import datasets, pairwise_tvd

K, SIZE = 8, 2000


def spread_means(n_features: int, seed: int = 0) -> NDArray[np.float64]:
    """Random directions at distances 0 … 2 from the origin: pairs from near to far."""
    directions = np.random.default_rng(seed).standard_normal((K, n_features))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return directions * np.linspace(0, 2, K)[:, None]


def problems() -> Iterator[tuple[str, datasets.Data, NDArray[np.float64]]]:
    """Name, data and exact TVD."""
    for d in (2, 10, 50):
        means = spread_means(d)
        exact = datasets.gaussians_tvd(means)
        yield f"Gaussians, {d} dimensions", datasets.gaussians(means, SIZE), exact
    shares, scales = np.linspace(0, 1, K), np.geomspace(1, 8, K)
    table = np.random.default_rng(0).dirichlet(np.ones(12), K)
    mixed, exact = datasets.mixtures(shares, 3.0, 5, SIZE), datasets.mixtures_tvd(shares, 3.0)
    yield "mixtures of two Gaussians, 5 dimensions", mixed, exact
    scaled, exact = datasets.scaled_gaussians(scales, SIZE), datasets.scaled_gaussians_tvd(scales)
    yield "Gaussians of different scale, 1 dimension", scaled, exact
    yield "discrete, 12 values", datasets.discrete(table, SIZE), datasets.discrete_tvd(table)


def main() -> None:
    rows: list[tuple[Any, ...]] = []
    for name, (X, labels), exact in problems():
        start = time.perf_counter()
        result = pairwise_tvd(X, labels, random_state=0)
        seconds = time.perf_counter() - start
        upper = np.triu_indices(K, 1)
        error = (result.tvd - exact)[upper]
        rows.append(
            (
                name,
                f"{exact[upper].min():.2f}–{exact[upper].max():.2f}",
                f"{np.abs(error).mean():.4f}",
                f"{np.abs(error).max():.4f}",
                f"{error.mean():+.4f}",
                f"{result.stderr[upper].mean():.4f}",
                f"{seconds:.0f}",
            )
        )
    header = ("data", "true TVD", "mean error", "worst", "bias", "mean stderr", "seconds")
    print_table(f"TVD against known truth: k = {K}, {SIZE:,} observations a cluster", header, rows)


if __name__ == "__main__":
    main()
