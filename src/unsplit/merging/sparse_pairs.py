"""Pairs of very many clusters, of which only those are stored that are confused or have edges.

The counterpart of :mod:`unsplit.merging.pairs`, in rows of dictionaries instead of matrices; all
pairs that are not stored are farther apart.  An ordinary merge never enters this file.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unsplit._typing import Cluster, Index, Matrix
from unsplit.merging.neighbours.graph import Connections, MergedRows, NeighbourGraph
from unsplit.merging.pairs import N_NEAREST, Forbidden
from unsplit.pairwise.result import PairwiseTVD

# At most this many pairs of nearby clusters are reported as kept apart, the closest ones.
MOST_APART = 10_000


def symmetric(k: int, left: Index, right: Index, values: Matrix) -> sparse.csr_array:
    """Values of pairs of k clusters, zeros too, as a matrix."""
    ends = np.concatenate([left, right]), np.concatenate([right, left])
    return sparse.csr_array((np.tile(values, 2), ends), (k, k))


class LinkedPairs:
    """Average linkage; pairs that are not stored have the distance 1."""

    unlinked = math.inf

    def __init__(self, nearness: sparse.csr_array, statistic: str) -> None:
        self.statistic = statistic
        # How much nearer than 1 the pairs of initial clusters are, added up.
        self.values = MergedRows(nearness)
        self.n_members = [1] * nearness.shape[0]

    def merge(self, a: Cluster, b: Cluster) -> Sequence[Cluster]:
        """Every pair of initial clusters counts once, as in SciPy."""
        self.values.merge(a, b)
        self.n_members[a] += self.n_members[b]
        return (a,)

    def near(self, a: Cluster) -> dict[Cluster, float]:
        """Linkage distances between a and others."""
        row, n, mine = self.values.rows[a], self.n_members, self.n_members[a]
        return {other: 1 - value / (mine * n[other]) for other, value in row.items()}


class SparseConnections(Connections):
    """Edges between clusters, of which most have none."""

    def _store(self, edges: sparse.csr_array) -> None:
        self.edges = MergedRows(edges)

    def _add_up(self, a: Cluster, b: Cluster) -> None:
        self.edges.merge(a, b)

    def near(self, a: Cluster) -> dict[Cluster, float]:
        """Distances between a and the clusters that have edges with it."""
        row = self.edges.rows[a]
        others = np.fromiter(row.keys(), np.int64, len(row))
        found = np.fromiter(row.values(), np.float64, len(row))
        chance = (self.degrees[:, a] / self.totals) @ self.degrees[:, others]
        return dict(zip(row, self.linked_distances(found, chance).tolist(), strict=True))


SparseRanking = LinkedPairs | SparseConnections


def pairs_of(result: PairwiseTVD, graph: NeighbourGraph | None, statistic: str) -> "SparsePairs":
    """The pairs that are confused or have edges."""
    k, known = result.n_clusters, result.pairs
    ranking: SparseRanking
    if statistic == "edges":
        assert graph is not None
        ranking = SparseConnections(graph)
    else:
        keys = known.keys
        if graph is not None:
            left, right = (side.astype(np.int64) for side in graph.edges_between().tocoo().coords)
            keys = np.union1d(keys, (left * k + right)[left < right])
        left, right = np.divmod(keys, k)
        distances = result.divergence(statistic)[left, right]
        ranking = LinkedPairs(symmetric(k, left, right, 1 - distances), statistic)
    tvd = MergedRows(symmetric(k, known.left, known.right, result.tvd.values), min)
    return SparsePairs(ranking, tvd, result.too_small)


class SparsePairs:
    """How close the stored pairs are, and the smallest TVD between initial clusters of two.

    Pairs that are not in ``tvd`` have the TVD 1; ``unknown`` says of which clusters too few
    observations were held out to know it.
    """

    def __init__(self, ranking: SparseRanking, tvd: MergedRows, unknown: NDArray[np.bool_]) -> None:
        self.ranking, self.tvd, self.unknown = ranking, tvd, unknown.copy()

    def merge(self, a: Cluster, b: Cluster) -> Sequence[Cluster]:
        """Merge b into a and return the clusters whose distances have changed."""
        self.unknown[a] |= self.unknown[b]
        self.tvd.merge(a, b)
        return self.ranking.merge(a, b)

    def nearest_tvd(self, a: Cluster, b: Cluster) -> float:
        """Smallest TVD between an initial cluster of one and one of the other."""
        least = self.tvd.rows[a].get(b, 1.0)
        # Of a cluster that held nothing out, its side counts as a coin toss.
        return min(least, 0.5) if self.unknown[a] or self.unknown[b] else least

    def distance(self, a: Cluster, b: Cluster) -> float:
        """What ranks the pair of two clusters; 1 if it is not stored."""
        return self.ranking.near(a).get(b, 1.0)

    def row(
        self, cluster: Cluster, alive: NDArray[np.bool_], forbidden: Collection[Cluster]
    ) -> dict[Cluster, float]:
        """Distances from a cluster to those it may be merged with."""
        row = self.ranking.near(cluster)
        if not forbidden:
            return row
        return {other: distance for other, distance in row.items() if other not in forbidden}

    def search(
        self,
        alive: NDArray[np.bool_],
        forbidden: Forbidden,
        reach: int | None = None,
        limit: float = math.inf,
    ) -> "ClosestStoredPairs":
        """The search for the closest pair, of which none is refused yet."""
        rows = [
            self.row(cluster, alive, forbidden.get(cluster, ())) if is_left else {}
            for cluster, is_left in enumerate(alive.tolist())
        ]
        return ClosestStoredPairs(rows, reach, limit)

    def nearby(self, alive: NDArray[np.bool_]) -> list[tuple[Cluster, Cluster, float]]:
        """Pairs of each remaining cluster and its nearest stored ones, the closest of them."""
        found = set[tuple[float, Cluster, Cluster]]()
        for a, row in enumerate(self.search(alive, {}).near):
            nearest = sorted((distance, b) for b, distance in row.items())[:N_NEAREST]
            found |= {(distance, min(a, b), max(a, b)) for distance, b in nearest}
        return sorted((a, b, distance) for distance, a, b in sorted(found)[:MOST_APART])

    def closest_first(self, alive: NDArray[np.bool_]) -> list[tuple[float, Cluster, Cluster]]:
        """The stored pairs of the remaining clusters with their distances, closest first."""
        rows = enumerate(self.search(alive, {}).near)
        return sorted((d, left, right) for left, row in rows for right, d in row.items())


class ClosestStoredPairs:
    """Distances of some pairs of clusters, of which some may not be merged.

    It finds the same pair as :class:`unsplit.merging.pairs.ClosestPairs` would if all other pairs
    were farther away, by a heap.  A merge costs time in proportion to the stored pairs of the two.
    ``rows`` has by cluster the distances to others with which it may be merged, and is changed.
    """

    def __init__(
        self, rows: list[dict[Cluster, float]], reach: int | None = None, limit: float = math.inf
    ) -> None:
        self.near, self.reach, self.limit = rows, reach, limit
        # How often the distances of a cluster were set; pairs in the heap are skipped if it is more
        # often than when they were added.
        self.n_set = [0] * len(rows)
        # Pairs out of reach, by cluster: they are looked at again when it has changed.
        self.waiting: defaultdict[Cluster, set[Cluster]] = defaultdict(set)
        for a, row in enumerate(rows):
            for b in row:
                rows[b][a] = row[b]  # to the bit, whichever way it was rounded
        pairs = ((d, a, b, 0) for a, row in enumerate(rows) for b, d in row.items() if a < b)
        self.heap = [pair for pair in pairs if pair[0] < limit]
        heapify(self.heap)

    def closest(self) -> tuple[Cluster, Cluster] | None:
        """The closest pair (a, b) with a < b, the first if several are; None if there is none."""
        while self.heap:
            distance, a, b, n_set = self.heap[0]
            if n_set == self.n_set[a] + self.n_set[b]:
                if self._is_near(distance, a) or self._is_near(distance, b):
                    return a, b
                self.waiting[a].add(b)
                self.waiting[b].add(a)
            heappop(self.heap)
        return None

    def distance(self, a: Cluster, b: Cluster) -> float:
        """The distance of a stored pair; infinite if it may not be merged."""
        return self.near[a].get(b, math.inf)

    def forbid(self, a: Cluster, b: Cluster) -> None:
        """Exclude the closest pair, (a, b), until one of the two gets new distances."""
        heappop(self.heap)

    def remove(self, a: Cluster) -> None:
        """Remove cluster a."""
        self.set_row(a, {})

    def set_row(self, a: Cluster, row: dict[Cluster, float]) -> None:
        """Set the distances from a to other clusters; pairs not in the row may not be merged."""
        self.n_set[a] += 1
        for other in self.waiting.pop(a, ()):
            self.waiting[other].discard(a)
        for other in self.near[a].keys() - row.keys():
            del self.near[other][a]
            self._look_again(other)
        self.near[a] = row
        for other, distance in row.items():
            self.near[other][a] = distance
            self._add(a, other)
            self._look_again(other)

    def _add(self, a: Cluster, b: Cluster) -> None:
        distance, n_set = self.near[a][b], self.n_set[a] + self.n_set[b]
        if distance < self.limit:
            heappush(self.heap, (distance, min(a, b), max(a, b), n_set))

    def _is_near(self, distance: float, cluster: Cluster) -> bool:
        row, reach = self.near[cluster], self.reach
        return reach is None or len(row) <= reach or distance <= sorted(row.values())[reach - 1]

    def _look_again(self, cluster: Cluster) -> None:
        """Pairs of a cluster that were out of reach may be in reach now."""
        for other in self.waiting.pop(cluster, ()):
            self.waiting[other].discard(cluster)
            self._add(cluster, other)
