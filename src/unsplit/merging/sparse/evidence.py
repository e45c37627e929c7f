"""Evidence from held-out scores about two merged clusters, computed for many pairs at once.

A merged cluster is the mixture of its members.  The score of each observation for the cluster it is
in is kept; its score for another one is computed from the members of that one.  So a pair costs the
observations of one side times the members of the other.  Python would take longer for one pair than
the arithmetic, so the next pairs that will probably be asked for are computed with it.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unsplit._typing import Index, Matrix
from unsplit.merging.evidence import LEVEL, Contrast
from unsplit.merging.sparse.rankings import Ranked, ranked
from unsplit.pairwise.sparse.pair_scores import MOST_ENTRIES, ragged, rank_sums
from unsplit.pairwise.sparse.result import SparsePairwiseTVD, interval_of_pairs
from unsplit.pairwise.statistics import rank_sum_p_value_of_pairs

Pairs = list[tuple[int, int]]
Floats = NDArray[np.float32]


class GroupScores:
    """Compares merged clusters by the scores of one sparse estimate.

    Parameters
    ----------
    result : SparsePairwiseTVD
    order : ndarray of shape (k,)
        The cluster that each slot begins with.
    """

    def __init__(self, result: SparsePairwiseTVD, order: Index) -> None:
        self.result, self.scores = result, result.pair_scores
        starts, rows = self.scores.starts, self.scores.rows
        self.rows = [rows[starts[c] : starts[c + 1]] for c in order.tolist()]
        self.members = list(order[:, None])
        self.sizes: list[int] = result.sizes[order].tolist()
        self.own = self.scores.own.copy()
        # Slots whose observations still have the scores of their former clusters.
        self.stale: set[int] = set()
        # Which pairs will be asked for next, in the order of their distances.
        self.ahead: Callable[[], Pairs] = list
        # Pairs that have been compared, with the scores of each side for the other; no slot twice.
        self.known: dict[tuple[int, int], tuple[Contrast, Floats, Floats]] = {}
        self.pair_of: dict[int, tuple[int, int]] = {}

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Merge b into a."""
        known = self.known.pop((a, b), None)
        if known is None or {a, b} & self.stale:
            self.stale.add(a)
        else:
            n = self.sizes[a] + self.sizes[b]
            share_a, share_b = (np.float32(np.log(self.sizes[s] / n)) for s in (a, b))
            _, of_a, of_b = known
            rows_a, rows_b = self.rows[a], self.rows[b]
            self.own[rows_a] = np.logaddexp(self.own[rows_a] + share_a, of_a + share_b)
            self.own[rows_b] = np.logaddexp(of_b + share_a, self.own[rows_b] + share_b)
        self.stale.discard(b)
        self.rows[a] = np.concatenate([self.rows[a], self.rows[b]])
        self.members[a] = np.concatenate([self.members[a], self.members[b]])
        self.sizes[a] += self.sizes[b]
        self.rows[b], self.members[b] = self.rows[b][:0], self.members[b][:0]
        for slot in (a, b):
            self.known.pop(self.pair_of.pop(slot, (-1, -1)), None)
        return (a,)

    def contrast(self, a: int, b: int) -> Contrast:
        """Compare two slots by their scores."""
        if (a, b) not in self.known:
            self.compare([(a, b), *(pair for pair in self.ahead() if not {a, b} & {*pair})])
        return self.known[a, b][0]

    def known_p_value(self, a: int, b: int) -> float | None:
        """Always None: it comes with the contrast."""
        return None

    def compare(self, pairs: Pairs) -> None:
        """Compute the contrasts of pairs without a common slot, and forget all others."""
        self._refresh(pairs)
        sides = [side for a, b in pairs for side in ((a, b), (b, a))]
        other = self._scores(sides)
        counts = np.array([len(self.rows[slot]) for slot, _ in sides])
        index = np.concatenate([self.rows[slot] for slot, _ in sides])
        side = np.repeat(np.arange(len(sides)), counts)
        of_a = side % 2 == 0
        margin = (self.own[index] - other).astype(np.float64)
        values = np.where(of_a, margin, -margin)
        strata = self.result.scores.strata[index]
        found = _statistics(self.result, side, margin, values, strata, len(pairs))
        ends = np.cumsum(counts)
        self.known = {}
        self.pair_of = {slot: pair for pair in pairs for slot in pair}
        for n, pair in enumerate(pairs):
            start, middle, stop = ends[2 * n] - counts[2 * n], ends[2 * n], ends[2 * n + 1]
            both = slice(start, stop)
            contrast = Contrast(
                values[both], of_a[both], strata[both], len(self.result.scores.bias)
            )
            contrast.__dict__.update({name: of_pairs[n] for name, of_pairs in found.items()})
            self.known[pair] = contrast, other[start:middle], other[middle:stop]

    def soft_distances(self, pairs: Pairs) -> Matrix:
        """2·soft accuracy − 1 of some pairs, every observation counted once."""
        self._refresh(pairs)
        sides = [side for a, b in pairs for side in ((a, b), (b, a))]
        counts = np.array([len(self.rows[slot]) for slot, _ in sides])
        index = np.concatenate([self.rows[slot] for slot, _ in sides])
        pair = np.repeat(np.arange(len(sides)), counts) // 2
        hits = expit((self.own[index] - self._scores(sides)).astype(np.float64))
        n = np.bincount(pair, minlength=len(pairs))
        mean = np.bincount(pair, hits, minlength=len(pairs)) / np.maximum(n, 1)
        return np.clip(2 * np.where(n > 0, mean, 1.0) - 1, 0.0, 1.0)

    def _refresh(self, pairs: Pairs) -> None:
        stale = sorted(self.stale & {slot for pair in pairs for slot in pair})
        if stale:
            index = np.concatenate([self.rows[slot] for slot in stale])
            self.own[index] = self._scores([(slot, slot) for slot in stale])
            self.stale -= set(stale)

    def _scores(self, sides: Pairs) -> Floats:
        """For each (x, y), the scores of the observations of x for the mixture y, one after another."""
        rows = np.concatenate([self.rows[x] for x, _ in sides])
        n_rows = [len(self.rows[x]) for x, _ in sides]
        n_members = np.repeat([len(self.members[y]) for _, y in sides], n_rows)
        members = np.concatenate([self.members[y] for _, y in sides])
        first = np.cumsum([0, *(len(self.members[y]) for _, y in sides[:-1])])
        share = self.result.sizes[members] / np.repeat(
            [self.sizes[y] for _, y in sides], [len(self.members[y]) for _, y in sides]
        )
        log_share = np.log(share).astype(np.float32)
        starts, ends = np.repeat(first, n_rows), np.cumsum(n_members)
        found = np.empty(len(rows), np.float32)
        start = 0
        while start < len(rows):
            done = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, done + MOST_ENTRIES, side="right")))
            some = slice(start, stop)
            row, place = ragged(starts[some], n_members[some])
            z = self.scores.of(rows[some][row], members[place]) + log_share[place]
            found[some] = log_sums(z, n_members[some])
            start = stop
        return found


def log_sums(z: Floats, lengths: Index) -> Floats:
    """Logarithm of the sum of the exponentials of each run of so many values.

    Examples
    --------
    >>> log_sums(np.log(np.array([1, 2, 3], np.float32)), np.array([2, 1])).round(3)
    array([1.099, 1.099], dtype=float32)
    """
    if len(z) == len(lengths):
        return z
    first = np.cumsum(lengths) - lengths
    top = np.maximum.reduceat(z, first)
    sums = np.add.reduceat(np.exp(z - np.repeat(top, lengths)), first, dtype=np.float64)
    return (top + np.log(sums)).astype(np.float32)


def _statistics(
    result: SparsePairwiseTVD,
    side: Index,
    margin: Matrix,
    values: Matrix,
    strata: Index,
    n_pairs: int,
) -> dict[str, list[object]]:
    """What contrasts of many pairs say, under the names of its properties."""
    n_strata, n_folds = len(result.scores.bias), result.scores.n_folds
    hits = np.bincount(side, (margin > 0) + (margin == 0) / 2, minlength=2 * n_pairs)
    table = np.bincount(side * n_strata + strata, minlength=2 * n_pairs * n_strata)
    counts = table.reshape(n_pairs, 2, n_strata)
    n = counts.sum(axis=2)
    rate = np.where(n > 0, hits.reshape(n_pairs, 2) / np.maximum(n, 1), 0.5)
    hit_rate = np.full((n_pairs, 2, 2), 0.5)
    hit_rate[:, 0, 1], hit_rate[:, 1, 0] = rate.T
    low, high = interval_of_pairs(hit_rate, n[:, :, None], LEVEL, n_folds)
    pair = side // 2
    U = rank_sums(pair, pair * n_strata + strata, values, side % 2 == 0, n_pairs)
    p = rank_sum_p_value_of_pairs(U, counts[:, 0].T, counts[:, 1].T, n_folds)
    return {
        "hit_rate": list(hit_rate),
        "interval": list(zip(low.tolist(), high.tolist(), strict=True)),
        "p_value": p.tolist(),
    }


class ComposedPairs(GroupScores):
    """Ranks pairs by the soft accuracy of composed scores, as strategy "compose" does.

    Parameters
    ----------
    result : SparsePairwiseTVD
        The estimate whose scores are composed.
    order : ndarray of shape (k,)
    left, right : ndarrays of shape (p,)
        The pairs of slots that are stored.
    """

    statistic = "soft accuracy"
    unlinked = np.inf

    def __init__(self, result: SparsePairwiseTVD, order: Index, left: Index, right: Index) -> None:
        super().__init__(result, order)
        self.distances: list[dict[int, float]] = [{} for _ in order]
        pairs = list(zip(left.tolist(), right.tolist(), strict=True))
        for start in range(0, len(pairs), PAIRS_AT_ONCE):
            self._set(pairs[start : start + PAIRS_AT_ONCE])

    def pairs(self) -> Ranked:
        """All stored pairs."""
        return ranked(self.distances)

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Compose the scores of the two and compare them with all that had a stored pair."""
        super().merge(a, b)
        others = (self.distances[a].keys() | self.distances[b].keys()) - {a, b}
        for other in self.distances[b]:
            self.distances[other].pop(b)
        self.distances[a], self.distances[b] = {}, {}
        if others:
            self._set([(a, other) for other in sorted(others)])
        return (a,)

    def row(self, a: int) -> dict[int, float]:
        """Distances between a and the slots with which it has a stored pair."""
        return dict(self.distances[a])

    def _set(self, pairs: Pairs) -> None:
        for (a, b), distance in zip(pairs, self.soft_distances(pairs).tolist(), strict=True):
            self.distances[a][b] = self.distances[b][a] = distance


# Pairs that are compared at a time.
PAIRS_AT_ONCE = 2**14
