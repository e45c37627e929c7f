"""Neighbours looked for in regions, against comparing all with all: what is missed, what it costs.

python -m benchmarks.neighbour_search [--n 5000 30000] [--data ../shared/data] [--device auto]
    [--compared 10000] [--large 500000]

Data of every size are searched in regions here; merging does so beyond 20,000 observations only.
*Recall* is the share of the fifteen nearest that are found.  The next columns compare edges between
clusters of k-means, as merging counts them, with those of the true graph: their sum; the sum of
differences over all pairs; the median error of the ratio to chance, over pairs of at least twenty.

With --large, so many observations are searched once more, and the recall is that of 500 of them.
The limit is the time of the products alone, n x compared x d x 2 operations in single precision, at
the speed that the device has for large matrices.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors

from benchmarks.common import print_table
from unsplit.devices import choose_device
from unsplit.merging.neighbours.graph import N_NEIGHBOURS, Connections, NeighbourGraph
from unsplit.merging.neighbours.search import COMPARED, by_regions

Matrix = NDArray[np.float64]
Rows = NDArray[np.int64]

MEMBERS = 200  # of a cluster, on average


def problems(n: int) -> Iterator[tuple[str, Matrix]]:
    rng = np.random.default_rng(0)
    for d in (20, 50):
        yield f"one Gaussian, {n:,} x {d}", rng.standard_normal((n, d))
    means = 1.2 * rng.standard_normal((50, 50))
    lumps = means[rng.integers(50, size=n)] + rng.standard_normal((n, 50))
    yield f"fifty Gaussians, {n:,} x 50", lumps


def photographs(folder: Path) -> tuple[str, Matrix]:
    X = np.load(folder / "tiny-imagenet-60.sscd64.npy").astype(np.float64)
    return f"features of photographs, {len(X):,} x {X.shape[1]}", X


def recall_of(rows: Rows, true: Rows) -> float:
    both = np.sort(np.concatenate([rows, true], axis=1), axis=1)
    return float((np.diff(both, axis=1) == 0).sum() / true.size)


def edges_and_chance(X: Matrix, rows: Rows, clusters: Rows) -> tuple[Matrix, Matrix]:
    """Edges between different clusters, and those by chance, shape (pairs,)."""
    n, k = len(X), int(clusters.max()) + 1
    edges = (np.ones(rows.size), (np.repeat(np.arange(n), rows.shape[1]), rows.ravel()))
    directed = sparse.csr_array(edges, (n, n))
    adjacency = directed.maximum(directed.T).tocsr()
    none = np.zeros(n, np.int64)
    connections = Connections(
        NeighbourGraph(adjacency, np.zeros(n), clusters, none, X, k, np.arange(n))
    )
    pairs = np.triu_indices(k, 1)
    return connections.edges[pairs], connections.expected(slice(None))[pairs]


def compare(title: str, X: Matrix, compared: int, device: torch.device) -> tuple[Any, ...]:
    """A row of the table."""
    k = len(X) // MEMBERS
    clusters = KMeans(k, n_init=1, max_iter=30, random_state=0).fit_predict(X).astype(np.int64)
    start = time.perf_counter()
    rows, _ = by_regions(X, N_NEIGHBOURS, device, compared)
    searched = time.perf_counter()
    model = NearestNeighbors(n_neighbors=N_NEIGHBOURS, algorithm="brute").fit(X)
    true = model.kneighbors(return_distance=False).astype(np.int64)
    end = time.perf_counter()
    found, chance = edges_and_chance(X, rows, clusters)
    exact, exact_chance = edges_and_chance(X, true, clusters)
    many = exact >= 20
    ratio = (found[many] / chance[many]) / (exact[many] / exact_chance[many])
    return (
        title,
        k,
        recall_of(rows, true),
        float(found.sum() / exact.sum()),
        float(np.abs(found - exact).sum() / exact.sum()),
        float(np.median(np.abs(ratio - 1))) if many.any() else float("nan"),
        searched - start,
        end - searched,
    )


def large(n: int, compared: int, device: torch.device) -> Iterator[tuple[Any, ...]]:
    """Rows of the second table, for data too large to compare all with all."""
    speed = operations_per_second(device)
    for title, X in problems(n):
        start = time.perf_counter()
        rows, _ = by_regions(X, N_NEIGHBOURS, device, compared)
        seconds = time.perf_counter() - start
        some = np.random.default_rng(0).choice(n, 500, replace=False)
        model = NearestNeighbors(n_neighbors=N_NEIGHBOURS + 1, algorithm="brute").fit(X)
        true = model.kneighbors(X[some], return_distance=False)
        others = true[true != some[:, None]].reshape(500, N_NEIGHBOURS).astype(np.int64)
        limit = 2 * n * min(compared, n) * X.shape[1] / speed
        yield title, recall_of(rows[some], others), seconds, limit, seconds / limit


def operations_per_second(device: torch.device) -> float:
    left = torch.ones(4096, 4096, device=device)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        float((left @ left)[0, 0])  # which waits for the device
        times.append(time.perf_counter() - start)
    return float(2 * 4096**3 / min(times))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, nargs="*", default=[5_000, 30_000])
    parser.add_argument("--data", type=Path, help="a folder with tiny-imagenet-60.sscd64.npy")
    parser.add_argument("--compared", type=int, default=COMPARED)
    parser.add_argument("--large", type=int, help="500000 takes a minute or two on two cores")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    header = (
        "data", "k", "recall", "edges / true", "differences / true", "error of ratio to chance",
        "seconds", "seconds, all with all",
    )  # fmt: skip
    sets = [problem for n in args.n for problem in problems(n)]
    if args.data:
        sets.append(photographs(args.data))
    device = choose_device(args.device)
    by_regions(np.random.default_rng(0).standard_normal((1000, 9)), 1, device)  # loads libraries
    rows = []
    for title, X in sets:
        # At most a third, or the comparison would say nothing.
        rows.append(compare(title, X, min(args.compared, len(X) // 3), device))
        print(*rows[-1], flush=True)
    if rows:
        print_table("Neighbours found in regions against true ones", header, rows)
    if args.large:
        rows = list(large(args.large, args.compared, device))
        title = f"{args.large:,} observations on {device}, {torch.get_num_threads()} threads"
        print_table(title, ("data", "recall", "seconds", "limit", "ratio to the limit"), rows)


if __name__ == "__main__":
    main()
