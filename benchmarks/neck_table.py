"""How narrow borders within structureless data are: python -m benchmarks.neck_table

Prints the table in unsplit.merging.neighbours.evidence.  Data without structure are cut into
pieces and merged to the end, closest first; of all borders merged across, the narrowest hundredth
counts, by the number of dimensions they have and the size of the smaller piece.  Takes about five
minutes on two cores.
"""

import argparse
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

from unsplit.merging.neighbours.evidence import DIMENSIONS, SIZES, neck
from unsplit.merging.neighbours.graph import Connections, connect

LEVEL = 0.01
# Ends of the bins around DIMENSIONS and SIZES.
DIMENSION_ENDS = (0.0, 1.3, 1.8, 2.3, 3.0, 4.0, 6.0)
SIZE_ENDS = (5, 20, 50, 100, 300, 10_000)

Matrix = NDArray[np.float64]


class Border(NamedTuple):
    """A merge of two pieces of one whole."""

    dimension: float
    smaller: float
    neck: float


class Job(NamedTuple):
    """What to draw and how to cut it."""

    shape: str
    d: int
    n: int
    k: int
    way: str
    seed: int


def drawn(job: Job, rng: np.random.Generator) -> Matrix:
    if job.shape == "normal":
        return rng.standard_normal((job.n, job.d))
    if job.shape == "uniform":
        return rng.uniform(size=(job.n, job.d))
    if job.shape == "exponential":
        return rng.exponential(size=(job.n, job.d))
    angle = rng.uniform(0, 2 * np.pi, job.n)  # a ring, a tenth as thick as it is wide
    X = 0.1 * rng.standard_normal((job.n, job.d))
    X[:, 0] += np.cos(angle)
    X[:, 1] += np.sin(angle)
    return X


def cut(X: Matrix, job: Job) -> NDArray[np.int64]:
    if job.way == "k-means":
        labels = KMeans(job.k, n_init=1, random_state=job.seed).fit_predict(X)
    else:
        labels = GaussianMixture(job.k, reg_covar=1e-3, random_state=job.seed).fit_predict(X)
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def borders(job: Job) -> list[Border]:
    """All that is merged across."""
    rng = np.random.default_rng([job.seed, job.d, job.n, job.k])
    X = drawn(job, rng)
    graph = connect(X, cut(X, job))
    connections, firsts = Connections(graph), graph.clusters.copy()
    found = []
    while len(np.unique(firsts)) > 1:
        distances = connections.distances()
        empty = connections.sizes == 0
        distances[empty] = distances[:, empty] = np.inf
        np.fill_diagonal(distances, np.inf)
        a, b = sorted(int(i) for i in np.unravel_index(distances.argmin(), distances.shape))
        if connections.edges[a, b] == 0:
            break  # what is far out in a tail has only itself for neighbours
        left, right = np.flatnonzero(firsts == a), np.flatnonzero(firsts == b)
        width = neck(graph.adjacency, left, right)
        found.append(Border(connections.dimension(a, b), min(len(left), len(right)), width))
        connections.merge(a, b)
        firsts[firsts == b] = a
    return found


def jobs(seeds: int) -> Iterator[Job]:
    sizes = ((4000, 20), (2000, 20), (2000, 60), (500, 15))
    for seed, (n, k), way in product(range(seeds), sizes, ("k-means", "mixture")):
        for shape, d in product(("normal", "uniform", "exponential"), (1, 2, 3, 4, 5, 6)):
            yield Job(shape, d, n, k, way, seed)
        for d in (2, 3):
            yield Job("ring", d, n, k, way, seed)


def table(found: list[Border]) -> Matrix:
    """The quantile of every bin, never falling from fewer to more dimensions."""
    columns = np.array(found).T
    dimension, smaller, necks = columns
    result = np.full((len(DIMENSIONS), len(SIZES)), np.nan)
    for i, j in np.ndindex(*result.shape):
        inside = (dimension >= DIMENSION_ENDS[i]) & (dimension < DIMENSION_ENDS[i + 1])
        inside &= (smaller >= SIZE_ENDS[j]) & (smaller < SIZE_ENDS[j + 1])
        if inside.sum() >= 50:
            result[i, j] = np.quantile(necks[inside], LEVEL)
    return np.fmax.accumulate(result, axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    with ProcessPoolExecutor(args.workers) as pool:
        found = [border for some in pool.map(borders, jobs(args.seeds)) for border in some]
    print(f"{len(found)} borders")
    for row in table(found):
        print(f"    ({', '.join(f'{value:.2f}' for value in row)}),")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
