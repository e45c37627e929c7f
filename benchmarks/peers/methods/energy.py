"""Energy distances between clusters, all exact from one pass over the pairs of observations."""

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from benchmarks import baselines
from benchmarks.peers.methods.trees import grow, outcome_of, ward
from benchmarks.peers.task import Outcome, Task


def energy_linkage(task: Task) -> Outcome:
    """Average linkage of the matrix, as one does with pertpy's e-distances."""
    distances = baselines.energy(task.X, task.clusters)
    return outcome_of(linkage(squareform(distances), "average")[:, :2], task.clusters)


def energy_clustering(task: Task) -> Outcome:
    """Székely and Rizzo (2005): join the two whose weighted energy distance is least.

    It is to distances what Ward is to their squares, and stays exact along the merges.
    """
    sizes = np.bincount(task.clusters)
    share = sizes * sizes[:, None] / (sizes + sizes[:, None])
    distances = share * baselines.energy(task.X, task.clusters)
    return outcome_of(grow(distances, sizes, ward), task.clusters)
