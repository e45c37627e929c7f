"""The state of a merge: which clusters are left, and what was done so far."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index, Matrix
from unsplit.merging.closest_pairs import ClosestPairs
from unsplit.merging.evidence import Evidence
from unsplit.merging.inputs import Constraints
from unsplit.merging.neighbours.evidence import Neighbourhoods
from unsplit.merging.ranking import Ranking
from unsplit.merging.review import Merge
from unsplit.merging.rules import AT_HOME, BOTH_SMALL, ONE_SMALL, Pair


@dataclass
class MergeRecord:
    """The merges made so far: enough to report them, and to resume after an interruption.

    Parameters
    ----------
    merges : list of Merge
        Clusters are numbered in the order of the loop.
    n_taken : int, optional
        How many of the merges are part of the result; None until merging has stopped.
    n_allowed : int, optional
        How many of the merges break no ``cannot_link``; None until there are no more.
    stopped : str
        Why merging stopped.
    apart : list of Merge
        Pairs of nearby clusters that were left when merging stopped.
    """

    merges: list[Merge] = field(default_factory=list)
    n_taken: int | None = None
    n_allowed: int | None = None
    stopped: str = ""
    apart: list[Merge] = field(default_factory=list)


@dataclass
class MergeState:
    """The clusters that are left, everything known about them, and what was done.

    Parameters
    ----------
    ranking : Ranking
        Says which pair is closest.
    evidence, blurred : Evidence or None
        The scores that are reported, and the scores that are searched for a valley.
    neighbourhoods : Neighbourhoods or None
        Evidence from the neighbour graph.
    at_random : ndarray of shape (k,)
        Whether a cluster was split at random.
    small : ndarray of shape (k,)
        Whether a cluster is too small to hold out observations.
    homes : ndarray of shape (k,)
        The cluster to which the networks assign a small cluster; −1 for none.
    tvd : ndarray of shape (k, k)
        Distances between the initial clusters.
    constraints : Constraints
    sizes : ndarray of shape (k,)
        Observations in each initial cluster.
    on_merge : callable, optional
        Called with the record after every merge.
    record : MergeRecord
        The merges of an interrupted run, which are repeated first; empty for a new run.
    """

    ranking: Ranking
    evidence: Evidence | None
    blurred: Evidence | None
    neighbourhoods: Neighbourhoods | None
    at_random: NDArray[np.bool_]
    small: NDArray[np.bool_]
    homes: Index
    tvd: Matrix
    constraints: Constraints
    sizes: Index
    on_merge: Callable[[MergeRecord], None] | None = None
    record: MergeRecord = field(default_factory=MergeRecord)

    def __post_init__(self) -> None:
        k = len(self.sizes)
        self.size = self.sizes.copy()
        self.slot = np.arange(k)
        self.node = np.arange(k)
        self.alive = np.ones(k, bool)
        self.cannot = self.constraints.cannot.copy()
        self.at_random = self.at_random.copy()
        self.small = self.small.copy()
        self.tvd = self.tvd.copy()
        self.height = 0.0
        for step, merge in enumerate(self.record.merges):
            a, b = (int(np.flatnonzero(self.node == node)[0]) for node in (merge.left, merge.right))
            self.height = merge.height
            self._unite(a, b, k + step)

    @property
    def n_left(self) -> int:
        """Number of clusters left."""
        return int(self.alive.sum())

    def pairs(
        self, respect_links: bool = True, reach: int | None = None, limit: float = math.inf
    ) -> ClosestPairs:
        """The remaining pairs, within reach and below the limit; none is refused yet."""
        if self.n_left == 1:  # no pair, so no new estimate is needed
            return ClosestPairs(np.full(self.cannot.shape, np.inf))
        matrix = self.ranking.distances().copy()
        matrix[~self.alive] = matrix[:, ~self.alive] = np.inf
        if respect_links:
            matrix[self.cannot] = np.inf
        return ClosestPairs(matrix, reach, limit)

    def candidate(self, a: int, b: int, statistic: float) -> Pair:
        """The pair of two slots, with everything known about it."""
        # All initial pairs count until the end, because the last pairs were selected from them.
        n_pairs = math.comb(len(self.sizes), 2)
        return Pair(
            a,
            b,
            statistic,
            n_pairs,
            self.evidence,
            self.blurred,
            self.neighbourhoods,
            bool(self.at_random[[a, b]].any()),
            float(self.tvd[a, b]),
            self._size(a, b),
        )

    def _size(self, a: int, b: int) -> str | None:
        if not self.small[[a, b]].any():
            return None
        if self.small[[a, b]].all():
            return BOTH_SMALL
        small, other = (a, b) if self.small[a] else (b, a)
        home = self.homes[self.slot == small]
        return AT_HOME if (home >= 0).all() and (self.slot[home] == other).all() else ONE_SMALL

    def join(self, pair: Pair, why: str, linked: bool = False) -> Sequence[int]:
        """Merge b into a and return the slots whose distances have changed."""
        a, b = pair.a, pair.b
        if not linked:
            self.height = max(self.height, pair.statistic)
        merge = self.described(pair, why)
        changed = self._unite(a, b, len(self.sizes) + len(self.record.merges))
        self.record.merges.append(merge)
        if self.on_merge is not None:
            self.on_merge(self.record)
        return changed

    def described(self, pair: Pair, why: str) -> Merge:
        """A record of the pair, with the cluster numbers of the tree."""
        a, b = pair.a, pair.b
        low, high = (math.nan, math.nan) if pair.contrast is None else pair.contrast.interval
        link = pair.connection
        return Merge(
            left=int(self.node[a]),
            right=int(self.node[b]),
            size_left=int(self.size[a]),
            size_right=int(self.size[b]),
            statistic=pair.statistic,
            height=self.height,
            tvd=math.nan if pair.contrast is None else pair.contrast.tvd,
            low=low,
            high=high,
            p_adjusted=pair.p_adjusted,
            p_valley=pair.unimodality,
            n_border=0 if pair.blurred_contrast is None else len(pair.blurred_contrast.window),
            edges=math.nan if link is None else link.edges,
            times_chance=math.nan if link is None else link.times_chance,
            neck=math.nan if link is None else link.neck,
            strength=math.nan if link is None else link.strength,
            why=why,
        )

    def _unite(self, a: int, b: int, node: int) -> Sequence[int]:
        self.node[a] = node
        self.node[b] = -1
        self.size[a] += self.size[b]
        self.slot[self.slot == b] = a
        self.alive[b] = False
        if self.cannot[b].any():
            self.cannot[a] |= self.cannot[b]
            self.cannot[:, a] |= self.cannot[:, b]
        self.at_random[a] |= self.at_random[b]
        self.small[a] &= self.small[b]
        self.tvd[a] = self.tvd[:, a] = np.minimum(self.tvd[a], self.tvd[b])
        if self.neighbourhoods is not None:
            self.neighbourhoods.merge(a, b)
        changed = self.ranking.merge(a, b)
        told: list[object] = [self.ranking]
        for part in (self.evidence, self.blurred):
            if part is not None and not any(part is other for other in told):
                part.merge(a, b)
                told.append(part)
        return changed

    def refresh(
        self, pairs: ClosestPairs, gone: int, changed: Sequence[int], respect_links: bool = True
    ) -> None:
        """Update the search for the closest pair after a merge."""
        pairs.remove(gone)
        if self.n_left > 1:
            for slot in changed:
                allowed = self.alive & ~self.cannot[slot] if respect_links else self.alive
                pairs.set_row(slot, np.where(allowed, self.ranking.row(slot), np.inf))
