"""Ward, average and centroid linkage: of the observations, and of the clusters they are in."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from benchmarks import baselines
from benchmarks.peers.methods.trees import average, centroid, grow, outcome_of, ward
from benchmarks.peers.task import Outcome, Task


def from_scratch(method: str) -> Callable[[Task], Outcome]:
    """SciPy's linkage of the observations; what it is given to start from, it ignores."""

    def run(task: Task) -> Outcome:
        return outcome_of(linkage(task.X, method)[:, :2], np.arange(len(task.X)))

    return run


def ward_of_clusters(task: Task) -> Outcome:
    """Ward's criterion from the clusters on: join what adds least to the sum of squares."""
    return outcome_of(ward_tree(task), task.clusters)


def ward_tree(task: Task) -> NDArray[np.int64]:
    """Its merges, shape (k − 1, 2)."""
    sizes = np.bincount(task.clusters)
    # SciPy's scale: for single observations it is the squared distance.
    share = 2 * sizes * sizes[:, None] / (sizes + sizes[:, None])
    return grow(share * _between_means(task), sizes, ward)


def average_of_clusters(task: Task) -> Outcome:
    """Mean distance over all pairs of observations."""
    distances = baselines.euclidean(task.X, task.clusters)
    return outcome_of(grow(distances, np.bincount(task.clusters), average), task.clusters)


def centroid_of_clusters(task: Task) -> Outcome:
    """Distance between the means."""
    sizes = np.bincount(task.clusters)
    return outcome_of(grow(_between_means(task), sizes, centroid), task.clusters)


def average_of_means(task: Task) -> Outcome:
    """Average linkage of the distances between means, each cluster counting as one point."""
    distances = squareform(baselines.centroid(task.X, task.clusters))
    return outcome_of(linkage(distances, "average")[:, :2], task.clusters)


def _between_means(task: Task) -> NDArray[np.float64]:
    return baselines.centroid(task.X, task.clusters) ** 2
