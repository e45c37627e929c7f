"""UniForCE (Vardakas, Kalogeratos and Likas 2023): a spanning forest of clusters without a valley.

A re-implementation of arXiv 2312.11323, begun with the given clusters in the place of its k-means.
Two clusters are linked if their observations, projected onto the line through both centres, look
unimodal to the dip test.  Pairs are visited by the distance of their centres, as in Kruskal's
algorithm; trees of linked clusters are the answer.  Steps and defaults are those of the authors'
code (gvardakas/UniForCE), except that centres are compared in all features: that code sorts pairs
by the first two.
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import DisjointSet
from scipy.spatial.distance import cdist

from benchmarks.peers.methods.dip import dip_p_value, dip_statistic
from benchmarks.peers.task import Outcome, Task

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]

# Defaults of the authors: level of a test, tests a pair, observations a cluster needs for one.
LEVEL = 0.001
TESTS = 11
FEWEST = 25


def uniforce(task: Task) -> Outcome:
    """Link clusters until all that are not in one tree have a valley between them."""
    rng = np.random.default_rng(task.seed)
    clusters = without_small(task.X, task.clusters)
    members = [task.X[clusters == c] for c in range(int(clusters.max()) + 1)]
    centres = np.stack([rows.mean(axis=0) for rows in members])
    forest = DisjointSet(range(len(members)))
    distance = cdist(centres, centres)
    for i, j in sorted(combinations(range(len(members)), 2), key=lambda pair: distance[pair]):
        if not forest.connected(i, j) and is_unimodal(members[i], members[j], rng):
            forest.merge(i, j)
    trees = np.unique([forest[c] for c in range(len(members))], return_inverse=True)[1]
    return Outcome(automatic=trees[clusters].astype(np.int64))


def without_small(X: Matrix, clusters: Labels) -> Labels:
    """Clusters too small for a test are dissolved: each observation goes to the nearest centre.

    Where all are too small, all stay as they are.
    """
    large = np.flatnonzero(np.bincount(clusters) >= FEWEST)
    if len(large) == 0:
        return clusters
    centres = np.stack([X[clusters == c].mean(axis=0) for c in large])
    kept = np.isin(clusters, large)
    dissolved = np.searchsorted(large, clusters)
    dissolved[~kept] = cdist(X[~kept], centres).argmin(axis=1)
    return dissolved


def is_unimodal(a: Matrix, b: Matrix, rng: np.random.Generator) -> bool:
    """Whether most of the tests see one mode, each of them with equally many of both clusters."""
    line = b.mean(axis=0) - a.mean(axis=0)
    few, many = sorted((a @ line, b @ line), key=len)
    samples = (rng.choice(many, len(few), replace=False) for _ in range(TESTS))
    votes = [_p_value(np.concatenate([few, sample])) >= LEVEL for sample in samples]
    return 2 * sum(votes) > TESTS


def _p_value(values: Matrix) -> float:
    return dip_p_value(dip_statistic(values), len(values))
