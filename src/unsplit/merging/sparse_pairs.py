"""Pairs of very many clusters, of which only those are stored that are confused or have edges.

The counterpart of :mod:`unsplit.merging.pairs`, in rows of dictionaries instead of matrices; all
pairs that are not stored are farther apart.  An ordinary merge never enters this file.
"""

import math
from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unsplit._typing import Index, Matrix
from unsplit.merging.neighbours.graph import Connections, MergedRows, NeighbourGraph
from unsplit.merging.options import WITHOUT_OVERLAP
from unsplit.merging.pairs import N_NEAREST, Forbidden
from unsplit.pairwise.result import PairwiseTVD

# At most this many pairs of nearby clusters are reported as kept apart, the closest ones.
MOST_APART = 10_000


class LinkedPairs:
    """Average linkage; pairs that are not stored have the distance 1."""

    unlinked = math.inf

    def __init__(
        self,
        n_clusters: int,
        left: Index,
        right: Index,
        distances: Matrix,
        statistic: str,
    ) -> None:
        self.statistic = statistic
        # How much nearer than 1 the pairs of initial clusters are, added up.
        self.values = MergedRows(n_clusters, left, right, 1 - distances)
        self.n_members = [1] * n_clusters

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Every pair of initial clusters counts once, as in SciPy."""
        self.values.merge(a, b)
        self.n_members[a] += self.n_members[b]
        return (a,)

    def near(self, a: int) -> dict[int, float]:
        """Linkage distances between a and others."""
        row, n, mine = self.values.rows[a], self.n_members, self.n_members[a]
        return {other: 1 - value / (mine * n[other]) for other, value in row.items()}


class SparseConnections(Connections):
    """Edges between clusters, of which most have none."""

    def _store(self, edges: sparse.csr_array) -> None:
        self.stored = MergedRows.sums(edges)

    def weight(self, a: int, b: int) -> float:
        """Summed weight of the edges between two clusters."""
        return self.stored.get(a, b, 0.0)

    def _add_up(self, a: int, b: int) -> None:
        self.stored.merge(a, b)

    def near(self, a: int) -> dict[int, float]:
        """Distances between a and the slots that have edges with it."""
        row = self.stored.rows[a]
        others = np.fromiter(row.keys(), np.int64, len(row))
        found = np.fromiter(row.values(), np.float64, len(row))
        chance = (self.degrees[:, a] / self.totals) @ self.degrees[:, others]
        return dict(zip(row, self.linked_distances(found, chance).tolist(), strict=True))


SparseRanking = LinkedPairs | SparseConnections


def pairs_of(result: PairwiseTVD, graph: NeighbourGraph | None, statistic: str) -> "SparsePairs":
    """The pairs that are confused or have edges."""
    tvd = MergedRows(
        result.n_clusters, result.pairs.left, result.pairs.right, result.tvd.values, min
    )
    return SparsePairs(_ranking(result, graph, statistic), tvd, result.too_small)


def _ranking(result: PairwiseTVD, graph: NeighbourGraph | None, statistic: str) -> SparseRanking:
    statistic = WITHOUT_OVERLAP.get(statistic, statistic)
    if statistic == "edges":
        assert graph is not None
        return SparseConnections(graph)
    k, keys = result.n_clusters, result.pairs.keys
    if graph is not None:
        left, right = (side.astype(np.int64) for side in graph.edges_between().tocoo().coords)
        keys = np.union1d(keys, (left * k + right)[left < right])
    left, right = np.divmod(keys, k)
    distances = result.divergence(statistic)[left, right]
    return LinkedPairs(k, left, right, distances, statistic)


class SparsePairs:
    """How close the stored pairs are, and the smallest TVD between initial clusters of two slots.

    Pairs that are not in ``tvd`` have the TVD 1; ``unknown`` says of which clusters too few
    observations were held out to know it.
    """

    def __init__(self, ranking: SparseRanking, tvd: MergedRows, unknown: NDArray[np.bool_]) -> None:
        self.ranking, self.tvd, self.unknown = ranking, tvd, unknown.copy()

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Merge b into a and return the slots whose distances have changed."""
        self.unknown[a] |= self.unknown[b]
        self.tvd.merge(a, b)
        return self.ranking.merge(a, b)

    def nearest_tvd(self, a: int, b: int) -> float:
        """Smallest TVD between an initial cluster of one slot and one of the other."""
        least = self.tvd.get(a, b, 1.0)
        # Of a cluster that held nothing out, its side counts as a coin toss.
        return min(least, 0.5) if self.unknown[a] or self.unknown[b] else least

    def distance(self, a: int, b: int) -> float:
        """What ranks the pair of two slots; 1 if it is not stored."""
        return self.ranking.near(a).get(b, 1.0)

    def row(
        self, slot: int, alive: NDArray[np.bool_], forbidden: Collection[int]
    ) -> dict[int, float]:
        """Distances from a slot to those it may be merged with."""
        row = self.ranking.near(slot)
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
            self.row(slot, alive, forbidden.get(slot, ())) if is_left else {}
            for slot, is_left in enumerate(alive.tolist())
        ]
        return ClosestStoredPairs(rows, reach, limit)

    def nearby(self, alive: NDArray[np.bool_]) -> list[tuple[int, int, float]]:
        """Pairs of each remaining slot and its nearest stored ones, the closest of them."""
        found = set[tuple[float, int, int]]()
        for a, row in enumerate(self.search(alive, {}).near):
            nearest = sorted((distance, b) for b, distance in row.items())[:N_NEAREST]
            found |= {(distance, min(a, b), max(a, b)) for distance, b in nearest}
        return sorted((a, b, distance) for distance, a, b in sorted(found)[:MOST_APART])

    def closest_first(self, alive: NDArray[np.bool_]) -> list[tuple[float, int, int]]:
        """The stored pairs of the remaining slots with their distances, closest first."""
        rows = enumerate(self.search(alive, {}).near)
        return sorted((d, left, right) for left, row in rows for right, d in row.items())


class ClosestStoredPairs:
    """Distances of some pairs of clusters, of which some may not be merged.

    It finds the same pair as :class:`unsplit.merging.pairs.ClosestPairs` would if all other pairs
    were farther away, by a heap.  A merge costs time in proportion to the stored pairs of the two.
    ``rows`` has by slot the distances to others with which it may be merged, and is changed.
    """

    def __init__(
        self, rows: list[dict[int, float]], reach: int | None = None, limit: float = math.inf
    ) -> None:
        self.near, self.reach, self.limit = rows, reach, limit
        # Also holds pairs that have changed, which are skipped later.
        self.heap: list[tuple[float, int, int]] = []
        for a, row in enumerate(rows):
            for b, distance in row.items():
                if a < b:
                    rows[b][a] = distance  # to the bit, whichever way it was rounded
                    if distance < limit:
                        self.heap.append((distance, a, b))
        heapify(self.heap)
        self.refused: set[tuple[int, int]] = set()
        # Pairs out of reach, by slot: they are looked at again when the slot has changed.
        self.waiting: dict[int, set[int]] = {}

    def closest(self) -> tuple[int, int] | None:
        """The closest pair (a, b) with a < b, the first if several are; None if there is none."""
        while self.heap:
            distance, a, b = self.heap[0]
            if self.near[a].get(b) == distance and (a, b) not in self.refused:
                if self._in_reach(distance, a, b):
                    return a, b
                self.waiting.setdefault(a, set()).add(b)
                self.waiting.setdefault(b, set()).add(a)
            heappop(self.heap)
        return None

    def distance(self, a: int, b: int) -> float:
        """The distance of a stored pair; infinite if it may not be merged."""
        return self.near[a].get(b, math.inf)

    def forbid(self, a: int, b: int) -> None:
        """Exclude the pair until one of the two gets new distances."""
        self.refused.add((a, b))

    def remove(self, a: int) -> None:
        """Remove cluster a."""
        self.set_row(a, {})

    def set_row(self, a: int, row: dict[int, float]) -> None:
        """Set the distances from a to other clusters; pairs not in the row may not be merged."""
        for other in self.near[a].keys() - row.keys():
            del self.near[other][a]
            self.refused.discard((a, other) if a < other else (other, a))
            self._look_again(other)
        for other, distance in row.items():
            pair = (a, other) if a < other else (other, a)
            self.near[other][a] = distance
            self.refused.discard(pair)
            if distance < self.limit:
                heappush(self.heap, (distance, *pair))
            self._look_again(other)
        self.near[a] = row
        self.waiting.pop(a, None)

    def _in_reach(self, distance: float, a: int, b: int) -> bool:
        return any(self._is_near(distance, slot) for slot in (a, b))

    def _is_near(self, distance: float, slot: int) -> bool:
        row, reach = self.near[slot], self.reach
        return reach is None or len(row) <= reach or distance <= sorted(row.values())[reach - 1]

    def _look_again(self, slot: int) -> None:
        """Pairs of a slot that were out of reach may be in reach now."""
        for other in self.waiting.pop(slot, ()):
            distance = self.near[slot].get(other)
            if distance is not None and distance < self.limit:
                pair = (slot, other) if slot < other else (other, slot)
                heappush(self.heap, (distance, *pair))
