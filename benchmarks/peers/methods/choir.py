"""In the manner of CHOIR (Petersen et al. 2025): prune a tree from the bottom by forests.

A re-implementation, as CHOIR itself needs R and builds a tree of its own: here it is Ward's, of
the given clusters.
"""

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import kneighbors_graph

from benchmarks.peers.methods.forest_test import told_apart
from benchmarks.peers.methods.linkage import ward_tree
from benchmarks.peers.task import Outcome, Task

LEVEL = 0.05
N_NEIGHBORS = 20
DISTANCE_AWARENESS = 2.0

Part = frozenset[int]


def choir(task: Task) -> Outcome:
    """At every node, compare what is left on both sides; merge what no forest tells apart."""
    pruning = Pruning(task)
    parts: list[list[Part]] = [[frozenset([c])] for c in range(task.k)]
    for left, right in ward_tree(task):
        parts.append(pruning.resolve(parts[left] + parts[right]))
    groups = np.empty(task.k, np.int64)
    for group, part in enumerate(parts[-1]):
        groups[list(part)] = group
    return Outcome(automatic=groups[task.clusters])


@dataclass
class Pruning:
    """What has been compared so far; a part is a set of initial clusters."""

    task: Task
    different: set[frozenset[Part]] = field(default_factory=set)
    nearest: dict[Part, float] = field(default_factory=dict)
    distances: dict[frozenset[Part], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        X, k = self.task.X, self.task.k
        self.rng = np.random.default_rng(self.task.seed)
        self.level = LEVEL / max(1, k - 1)
        graph = kneighbors_graph(X, min(N_NEIGHBORS, len(X) - 1)).tocoo()
        self.links = np.zeros((k, k))
        np.add.at(self.links, (self.task.clusters[graph.row], self.task.clusters[graph.col]), 1)
        self.links += self.links.T
        self.rows = X.astype(np.float32)

    def resolve(self, parts: list[Part]) -> list[Part]:
        """Compare the closest two not yet compared until all are known to differ."""
        while pairs := [p for p in combinations(parts, 2) if frozenset(p) not in self.different]:
            a, b = min(pairs, key=lambda pair: self.distance(*pair))
            if self.differ(a, b):
                self.different.add(frozenset([a, b]))
            else:
                parts = [part for part in parts if part not in (a, b)] + [a | b]
        return parts

    def differ(self, a: Part, b: Part) -> bool:
        """No forest is asked where the two do not touch or each has a nearer distinct one."""
        members = [self.members(part) for part in (a, b)]
        if min(map(len, members)) == 1:
            return False
        distance = self.distance(a, b)
        known = min(self.nearest.get(a, np.inf), self.nearest.get(b, np.inf))
        if self.links[np.ix_(list(a), list(b))].sum() < 1 or distance > DISTANCE_AWARENESS * known:
            return True
        different = told_apart(self.rows[members[0]], self.rows[members[1]], self.level, self.rng)
        if different:
            for part in (a, b):
                self.nearest[part] = min(distance, self.nearest.get(part, np.inf))
        return different

    def distance(self, a: Part, b: Part) -> float:
        """Between the means."""
        pair = frozenset([a, b])
        if pair not in self.distances:
            means = [self.task.X[self.members(part)].mean(axis=0) for part in (a, b)]
            self.distances[pair] = float(np.linalg.norm(means[0] - means[1]))
        return self.distances[pair]

    def members(self, part: Part) -> NDArray[np.int64]:
        """Rows of a part."""
        return np.flatnonzero(np.isin(self.task.clusters, list(part)))
