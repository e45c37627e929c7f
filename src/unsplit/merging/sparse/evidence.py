"""Evidence about two of very many merged clusters, from held-out scores and from neighbours.

By scores a pair costs the observations of one side times the members of the other.  Python would
take longer for one pair than the arithmetic, so pairs that will probably be asked for are computed
with it.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index, Matrix
from unsplit.merging.evidence import CONFIDENCE, Contrast
from unsplit.merging.neighbours.evidence import Connection, Neighbourhoods, most_judged
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.options import WITHOUT_OVERLAP
from unsplit.merging.sparse.rankings import (
    ConnectedPairs,
    LinkedPairs,
    MergedRows,
    SparseConnections,
    SparseRanking,
)
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.statistics import across_folds, rank_sum_p_value_of_pairs, tvd_interval
from unsplit.pairwise.stored_pairs import MOST_ENTRIES, parts, ragged, rank_sums

# With more multiplications of rows and members, a matrix product is faster than single ones.
ENOUGH_FOR_PRODUCTS = 2**15
# Observations in compared pairs at a time: what fits into the cache.
MOST_COMPARED = 2**17

Floats = NDArray[np.float32]


@dataclass(eq=False)
class Group:
    """A merged cluster: its held-out observations, its initial clusters, and its size.

    ``own`` are the scores of its observations for itself, as soon as they are known.
    """

    rows: Index
    members: Index
    size: int
    own: Floats | None = None

    def with_(self, other: "Group") -> "Group":
        """The two together; in order, so that it does not matter how they came together."""
        rows = np.sort(np.concatenate([self.rows, other.rows]))
        members = np.sort(np.concatenate([self.members, other.members]))
        return Group(rows, members, self.size + other.size)


NOBODY = Group(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
GroupPairs = list[tuple[Group, Group]]


class GroupScores:
    """Compares merged clusters by the scores of one sparse estimate.

    A merged cluster is the mixture of its members.

    Parameters
    ----------
    result : PairwiseTVD
    """

    def __init__(self, result: PairwiseTVD) -> None:
        self.result, self.scores = result, result.pairs.pair_scores
        rows = np.split(self.scores.rows, self.scores.starts[1:-1])
        members, sizes = np.arange(result.n_clusters)[:, None], result.sizes.tolist()
        self.groups = [Group(*parts_of) for parts_of in zip(rows, members, sizes, strict=True)]
        for group in self.groups:
            if not self._is_large(group, group):
                group.own = self.scores.own[group.rows]
        # Which pairs will be asked for next, and what becomes of those that will be merged.
        self.ahead: Callable[[], GroupPairs] = list
        self.wholes: dict[tuple[Group, Group], Group] = {}
        # By both groups of a pair, until it is asked for or one of the two is merged.
        self.known: defaultdict[Group, dict[Group, Contrast]] = defaultdict(dict)

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Merge b into a."""
        one, other = self.groups[a], self.groups[b]
        foreseen = self.wholes.pop((one, other), NOBODY)
        self.groups[a] = one.with_(other) if foreseen is NOBODY else foreseen
        self.groups[b] = NOBODY
        for group in (one, other):
            for compared in self.known.pop(group, ()):
                del self.known[compared][group]
        return (a,)

    def contrast(self, a: int, b: int) -> Contrast:
        """Compare two slots by their scores."""
        one, other = self.groups[a], self.groups[b]
        if other not in self.known[one]:
            self.compare([(one, other), *self.ahead()])
        del self.known[other][one]
        return self.known[one].pop(other)

    def known_p_value(self, a: int, b: int) -> float | None:
        """Always None: it comes with the contrast."""
        return None

    def compare(self, pairs: GroupPairs) -> None:
        """Compute the contrasts of some pairs."""
        n_rows = np.array([len(a.rows) + len(b.rows) for a, b in pairs])
        for some in parts(n_rows, MOST_COMPARED):
            for (a, b), contrast in zip(pairs[some], self._compared(pairs[some]), strict=True):
                self.known[a][b] = self.known[b][a] = contrast

    def _compared(self, pairs: GroupPairs) -> list[Contrast]:
        scores, n_pairs = self.result.scores, len(pairs)
        side, index, margin = self._margins(pairs)
        pair, of_a = side // 2, side % 2 == 0
        values, strata = np.where(of_a, margin, -margin), scores.strata[index]
        n_strata, n_folds = len(scores.bias), scores.n_folds
        table = np.bincount(side * n_strata + strata, minlength=2 * n_pairs * n_strata)
        counts = table.reshape(n_pairs, 2, n_strata)
        n = counts.sum(axis=2)
        hits = np.bincount(side, (margin > 0) + (margin == 0) / 2, minlength=2 * n_pairs)
        rate = np.where(n > 0, hits.reshape(n_pairs, 2) / np.maximum(n, 1), 0.5)
        rates = np.full((n_pairs, 2, 2), 0.5)
        rates[:, 0, 1], rates[:, 1, 0] = rate.T
        low, high = tvd_interval(rates, n[:, :, None], CONFIDENCE, n_folds)
        small = across_folds(n.max(axis=1), n_strata, n_folds)
        group = pair * n_strata + np.where(small[pair], 0, strata)
        U = rank_sums(pair, group, values, of_a, n_pairs)
        p = rank_sum_p_value_of_pairs(U, counts[:, 0].T, counts[:, 1].T, n_folds).tolist()
        intervals = list(zip(low[:, 0, 1].tolist(), high[:, 0, 1].tolist(), strict=True))
        ends, found = [0, *np.cumsum(n.sum(axis=1)).tolist()], []
        for i in range(n_pairs):
            both = slice(ends[i], ends[i + 1])
            contrast = Contrast(values[both], of_a[both], strata[both], n_strata)
            contrast.__dict__.update(hit_rate=rates[i], interval=intervals[i], p_value=p[i])
            found.append(contrast)
        return found

    def _margins(self, pairs: GroupPairs) -> tuple[Index, Index, Matrix]:
        """Side of a pair, position, and own minus other score of each observation of the pairs."""
        sides = [side for a, b in pairs for side in ((a, b), (b, a))]
        new = list({x: x for x, _ in sides if x.own is None})
        ends = np.cumsum([len(x.rows) for x in new]).tolist()
        for x, own in zip(new, np.split(self._scores([(x, x) for x in new]), ends), strict=False):
            x.own = own
        index = np.concatenate([x.rows for x, _ in sides])
        side = np.repeat(np.arange(len(sides)), [len(x.rows) for x, _ in sides])
        own = np.concatenate([x.own for x, _ in sides if x.own is not None])
        return side, index, (own - self._scores(sides)).astype(np.float64)

    def _scores(self, sides: GroupPairs) -> Floats:
        """Scores of the observations of x for the mixture y, for one (x, y) after another."""
        large = [self._is_large(x, y) for x, y in sides]
        few = [side for side, is_large in zip(sides, large, strict=True) if not is_large]
        listed = self._one_by_one(few) if few else np.zeros(0, np.float32)
        if len(few) == len(sides):
            return listed
        rest = iter(np.split(listed, np.cumsum([len(x.rows) for x, _ in few]).tolist()))
        composed, sizes = self.result.scores.composed, self.result.sizes
        return np.concatenate(
            [
                composed(x.rows, y.members, sizes) if is_large else next(rest)
                for (x, y), is_large in zip(sides, large, strict=True)
            ]
        )

    def _is_large(self, x: Group, y: Group) -> bool:
        """Whether the scores of x for y are computed as a matrix product."""
        n_features = self.result.scores.features.shape[1]
        return len(x.rows) * len(y.members) * n_features > ENOUGH_FOR_PRODUCTS

    def _one_by_one(self, sides: GroupPairs) -> Floats:
        """:meth:`_scores`, an observation and a member at a time."""
        rows = np.concatenate([x.rows for x, _ in sides])
        members = np.concatenate([y.members for _, y in sides])
        n_rows = [len(x.rows) for x, _ in sides]
        n_members = np.array([len(y.members) for _, y in sides])
        whole = np.repeat([y.size for _, y in sides], n_members)
        log_share = np.log(self.result.sizes[members] / whole).astype(np.float32)
        starts = np.repeat(np.cumsum(n_members) - n_members, n_rows)
        lengths = np.repeat(n_members, n_rows)
        found = np.empty(len(rows), np.float32)
        for some in parts(lengths, MOST_ENTRIES):
            row, place = ragged(starts[some], lengths[some])
            z = self.scores.of(rows[some][row], members[place]) + log_share[place]
            found[some] = _log_sums(z, lengths[some])
        return found


def _log_sums(z: Floats, lengths: Index) -> Floats:
    """Logarithm of the sum of the exponentials of each run of so many values."""
    if len(z) == len(lengths):
        return z
    first = np.cumsum(lengths) - lengths
    top = np.maximum.reduceat(z, first)
    sums = np.add.reduceat(np.exp(z - np.repeat(top, lengths)), first, dtype=np.float64)
    return (top + np.log(sums)).astype(np.float32)


class SparseNeighbourhoods(Neighbourhoods):
    """Judges pairs by all edges of the graph, because a sample would leave too few of a cluster.

    Of so many observations that the dense form would take a sample, necks are only measured in few
    dimensions and saddles not at all: all necks would take too long, all densities too much memory.
    Nothing is counted before a pair is asked about: if all clusters were split at random, none
    ever is.

    Parameters
    ----------
    graph : NeighbourGraph
    rng : numpy.random.Generator
    ranking : SparseRanking
        If it ranks by edges, it counts and merges them.
    """

    def __init__(
        self, graph: NeighbourGraph, rng: np.random.Generator, ranking: SparseRanking | None = None
    ) -> None:
        self.graph, self.rng = graph, rng
        self.shared = ranking.connections if isinstance(ranking, ConnectedPairs) else None
        # Merges before anything was counted; None if it was.
        self.waiting: list[tuple[int, int]] | None = []
        if self.shared is not None:
            self._count()

    def _count(self) -> None:
        """Count edges between the initial clusters, then merge what was merged so far."""
        graph, waiting = self.graph, self.waiting or []
        self.waiting = None
        self.counts = MergedRows.sums(graph.edges_between())
        self.adjacency, self.is_sample = graph.adjacency, False
        self.judged = self.shared or SparseConnections(graph)
        self._prepare(graph, self.rng)
        self.all_necks = len(graph.clusters) <= most_judged(graph.n_clusters)
        self.saddles = self._saddles(graph) if self.all_necks else None
        has_necks = self.all_necks or self._judges_by_necks()
        self.rows = _rows_of_clusters(graph) if has_necks else None
        for pair in waiting:
            self.merge(*pair)

    @property
    def limits_fall(self) -> bool:
        """As of :class:`Neighbourhoods`; what was never asked has refused nothing."""
        return self.waiting is None and super().limits_fall

    def merge(self, a: int, b: int) -> None:
        """Put b into a."""
        if self.waiting is not None:
            self.waiting.append((a, b))
            return
        self.counts.merge(a, b)
        if self.shared is None:
            self.judged.merge(a, b)
        if self.rows is not None:
            self.rows[a] = np.concatenate([self.rows[a], self.rows[b]])
            self.rows[b] = self.rows[b][:0]
        self.n_left -= 1

    def connection(self, a: int, b: int) -> Connection:
        """How the graph connects two slots."""
        if self.waiting is not None:
            self._count()
        return super().connection(a, b)

    def edges(self, a: int, b: int) -> int:
        """Number of edges between two slots."""
        return int(self.counts.get(a, b, 0.0))

    def _rows(self, slot: int) -> Index:
        assert self.rows is not None
        return np.sort(self.rows[slot])

    def _neck(self, a: int, b: int, many: float) -> float:
        return super()._neck(a, b, many) if self.all_necks or many < 1 else math.nan


def _rows_of_clusters(graph: NeighbourGraph) -> list[Index]:
    """The observations that count for each cluster."""
    order = np.argsort(graph.clusters, kind="stable")
    starts = np.searchsorted(graph.clusters[order], np.arange(graph.n_clusters + 1))
    return np.split(order[: starts[-1]], starts[:-1])[1:]


def ranking_of_pairs(
    result: PairwiseTVD,
    graph: NeighbourGraph | None,
    statistic: str,
) -> SparseRanking:
    """What ranks the pairs that are confused or have edges."""
    statistic = WITHOUT_OVERLAP.get(statistic, statistic)
    if statistic == "edges":
        assert graph is not None
        return ConnectedPairs(graph)
    k, keys = result.n_clusters, result.pairs.keys
    if graph is not None:
        left, right = (side.astype(np.int64) for side in graph.edges_between().tocoo().coords)
        keys = np.union1d(keys, (left * k + right)[left < right])
    left, right = np.divmod(keys, k)
    distances = result.divergence_of(statistic, left, right)
    return LinkedPairs(k, left, right, distances, statistic)
