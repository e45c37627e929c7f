"""Observations, or groups of them, that move between clusters until none gains by it."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unsplit._typing import Index
from unsplit.merging.neighbours.graph import NeighbourGraph

# Usually nothing moves any more after twenty rounds.
MOST_ROUNDS = 100

# Those of one turn move at the same time, and two neighbours may then only change places; in so
# many turns this is rare, and the rest goes on in the next round.
TURNS = 8

# A smaller gain is rounding.
LEAST_GAIN = 1e-9

# Parts are formed as if chance made fewer edges, so that they become larger.  With 0.1 they were
# the same, and with 1 they were smaller, which helped less.
CHANCE_IN_PARTS = 0.25


@dataclass
class Moving:
    """What moves: observations, or groups of observations, in a neighbour graph.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n, n)
        Edges between them, symmetric; edges of one with itself are left out.
    degree : ndarray of shape (n,)
        Edges of each, those within it included.
    totals : ndarray of shape (n,)
        All edges of the batch that each is in.
    batches : ndarray of shape (n,)
    clusters : ndarray of shape (n,)
        Present cluster of each; −1 for noise, which does not move.
    k : int
        Number of clusters.
    chance : float
        Edges that chance makes are multiplied by this.
    """

    adjacency: sparse.csr_array
    degree: NDArray[np.float64]
    totals: NDArray[np.float64]
    batches: Index
    clusters: Index
    k: int
    chance: float = 1.0

    @classmethod
    def of(cls, graph: NeighbourGraph, clusters: Index, k: int) -> "Moving":
        """The observations of a graph."""
        inside = clusters >= 0
        degree = graph.adjacency @ inside.astype(np.float64)
        degree[~inside] = 0.0
        totals = np.maximum(np.bincount(graph.batches, degree), 1.0)[graph.batches]
        return cls(graph.adjacency, degree, totals, graph.batches, clusters, k)

    def modularity(self) -> float:
        """Edges within clusters beyond those expected by chance, both ends counted."""
        edges = self.adjacency.tocoo()
        left, right = self.clusters[edges.coords[0]], self.clusters[edges.coords[1]]
        totals = np.zeros(int(self.batches.max(initial=0)) + 1)
        totals[self.batches] = self.totals
        expected = (self._degrees() ** 2 / np.maximum(totals, 1.0)[:, None]).sum()
        return float(edges.data[(left == right) & (left >= 0)].sum() - expected)

    def apart(self, initial: Index) -> "Moving":
        """The same, each alone, with the edges within initial and within present clusters only."""
        left, right = self.adjacency.nonzero()
        within = (self.clusters[left] == self.clusters[right]) & (self.clusters[left] >= 0)
        within &= initial[left] == initial[right]
        alone = np.where(self.clusters >= 0, np.arange(len(self.clusters)), -1)
        # Edges stay within batches, so these clusters do, and need no sums by batch.
        batches = np.zeros_like(self.batches)
        return replace(
            self,
            adjacency=_only(self.adjacency, within),
            batches=batches,
            clusters=alone,
            k=len(alone),
            chance=CHANCE_IN_PARTS,
        )

    def together(self, groups: Index) -> "Moving":
        """Groups (−1 for none), each in the present cluster of its observations."""
        numbers, first, group = np.unique(groups, return_index=True, return_inverse=True)
        entries = np.ones(len(group)), (np.arange(len(group)), group)
        members = sparse.csr_array(entries, (len(group), len(numbers)))
        edges = (members.T @ self.adjacency @ members).tocsr()
        left, right = edges.nonzero()
        return replace(
            self,
            adjacency=_only(edges, left != right),
            degree=members.T @ self.degree,
            totals=self.totals[first],
            batches=self.batches[first],
            clusters=self.clusters[first],
        )

    def follow(self, together: "Moving", groups: Index) -> None:
        """Move each with its group."""
        self.clusters = together.clusters[np.unique(groups, return_inverse=True)[1]]

    def move_all(self, rng: np.random.Generator, keep: bool = True) -> None:
        """Move until none gains by it; with ``keep``, clusters that all would leave are kept."""
        before = self.clusters
        everyone = active = np.flatnonzero(self.clusters >= 0)
        for _ in range(MOST_ROUNDS):
            moved = self._move_once(rng.permutation(active))
            if len(moved) == 0:
                if active is everyone:
                    break
                active = everyone  # clusters have other sizes now, which matters to all a little
                continue
            reached = np.zeros(len(self.clusters), bool)
            reached[moved] = reached[self.adjacency[moved].indices] = True
            active = np.flatnonzero(reached & (self.clusters >= 0))
        if keep:
            lost = ~np.isin(before, self.clusters)
            self.clusters = np.where(lost, before, self.clusters)

    def _move_once(self, rows: Index) -> Index:
        """Let each of the rows move once if it gains by it; return those that did."""
        self.clusters = self.clusters.copy()
        all_moved = []
        for turn in np.array_split(rows, TURNS):
            moved, targets = self.better(np.sort(turn))
            self.clusters[moved] = targets
            all_moved.append(moved)
        return np.concatenate(all_moved)

    def better(self, rows: Index) -> tuple[Index, Index]:
        """Those of the rows that gain by moving, and the cluster to which each moves."""
        votes = self.adjacency[rows] @ self._members()
        counts = np.diff(votes.indptr)
        place, cluster = np.repeat(np.arange(len(rows)), counts), votes.indices
        degrees = self._degrees()
        gain = votes.data - self._by_chance(rows[place], cluster, degrees)
        stay = cluster == self.clusters[rows[place]]
        edges_inside = np.bincount(place[stay], votes.data[stay], minlength=len(rows))
        staying = edges_inside - self._by_chance(rows, self.clusters[rows], degrees)
        if len(gain) == 0:
            return rows[:0], rows[:0]
        connected = counts > 0
        first = votes.indptr[:-1][connected]
        most = np.maximum.reduceat(gain, first)
        # If several clusters are best, the first of them.
        is_most = gain == np.repeat(most, counts[connected])
        best = np.minimum.reduceat(np.where(is_most, cluster, self.k), first)
        gains = most > staying[connected] + LEAST_GAIN
        return rows[connected][gains], best[gains]

    def _members(self) -> sparse.csr_array:
        inside = self.clusters >= 0
        start = np.concatenate([[0], np.cumsum(inside)])
        entries = np.ones(start[-1]), self.clusters[inside], start
        return sparse.csr_array(entries, shape=(len(self.clusters), self.k))

    def _degrees(self) -> NDArray[np.float64]:
        """Summed degrees by batch and cluster, shape (batches, k)."""
        inside = self.clusters >= 0
        place = self.batches[inside] * self.k + self.clusters[inside]
        n_batches = int(self.batches.max(initial=0)) + 1
        sums = np.zeros(n_batches * self.k)
        sums += np.bincount(place, self.degree[inside], minlength=len(sums))
        return sums.reshape(n_batches, self.k)

    def _by_chance(
        self, rows: Index, clusters: Index, degrees: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Edges from rows to others in clusters, in a random graph."""
        others = degrees[self.batches[rows], clusters]
        others -= np.where(self.clusters[rows] == clusters, self.degree[rows], 0.0)
        expected: NDArray[np.float64] = self.chance * self.degree[rows] * others / self.totals[rows]
        return expected


def _only(edges: sparse.csr_array, kept: NDArray[np.bool_]) -> sparse.csr_array:
    """Some of the edges of a graph, in the order in which ``nonzero`` lists them."""
    places = tuple(side[kept] for side in edges.nonzero())
    return sparse.csr_array((edges.data[kept], places), edges.shape)
