"""Optimal transport between clusters, then average linkage."""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist

from benchmarks.peers.methods.trees import outcome_of
from benchmarks.peers.task import Outcome, Task

# Exact transport costs about the cube of it; clusters of k-means are mostly smaller anyway.
MOST_OBSERVATIONS = 100


def transport_linkage(task: Task) -> Outcome:
    """Exact Wasserstein-1 distances of at most 100 observations a cluster, drawn at random."""
    parts = _samples(task)
    distances = [_wasserstein(a, b) for a, b in combinations(parts, 2)]
    return outcome_of(linkage(distances, "average")[:, :2], task.clusters)


def _samples(task: Task) -> list[NDArray[np.float64]]:
    order = np.random.default_rng(task.seed).permutation(len(task.X))
    return [task.X[order[task.clusters[order] == c][:MOST_OBSERVATIONS]] for c in range(task.k)]


def _wasserstein(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    try:
        import ot
    except ImportError:
        raise ImportError("optimal transport needs POT: pip install unsplit[peers]") from None
    return float(ot.emd2([], [], cdist(a, b)))  # empty weights mean equal ones
