"""Evidence from held-out scores about two merged clusters, computed for many pairs at once.

A merged cluster is the mixture of its members.  The score of each observation for the cluster it is
in is kept; its score for another one is computed from the members of that one.  So a pair costs the
observations of one side times the members of the other.  Python would take longer for one pair than
the arithmetic, so the next pairs that will probably be asked for are computed with it.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unsplit._typing import Index, Matrix
from unsplit.merging.evidence import CONFIDENCE, Contrast
from unsplit.merging.sparse.foresight import Foreseen
from unsplit.merging.sparse.rankings import Ranked, ranked
from unsplit.pairwise.sparse.pair_scores import MOST_ENTRIES, parts, ragged, rank_sums
from unsplit.pairwise.sparse.result import SparsePairwiseTVD, interval_of_pairs
from unsplit.pairwise.statistics import across_folds, rank_sum_p_value_of_pairs

# With more multiplications of rows and members, a matrix product is faster than single ones.
ENOUGH_FOR_PRODUCTS = 2**15
# Scores in a matrix, and observations in compared pairs, at a time: what fits into the cache.
MOST_PRODUCTS = MOST_COMPARED = 2**17

Pairs = list[tuple[int, int]]
Floats = NDArray[np.float32]


class Group(NamedTuple):
    """A merged cluster: its held-out observations, its initial clusters, and its size."""

    rows: Index
    members: Index
    size: int

    def with_(self, other: "Group") -> "Group":
        """The two together; in order, so that it does not matter how they came together."""
        rows = np.sort(np.concatenate([self.rows, other.rows]))
        members = np.sort(np.concatenate([self.members, other.members]))
        return Group(rows, members, self.size + other.size)


NOBODY = Group(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
GroupPairs = list[tuple[Group, Group]]


class Compared(NamedTuple):
    """Two groups compared, with the scores of the observations of each for the other."""

    contrast: Contrast
    of_a: Floats
    of_b: Floats


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
        starts, rows, sizes = self.scores.starts, self.scores.rows, result.sizes.tolist()
        self.groups = [
            Group(rows[starts[c] : starts[c + 1]], order[slot : slot + 1], sizes[c])
            for slot, c in enumerate(order.tolist())
        ]
        self.own = self.scores.own.copy()
        # Slots whose observations still have the scores of their former clusters.
        self.stale: set[int] = set()
        # Which pairs will be asked for next, in the order of their distances.
        self.ahead: Callable[[], Pairs] = list
        self.known: dict[tuple[int, int], Compared] = {}
        self.pairs_of: dict[int, Pairs] = {}
        # Of the known pairs: those that can be computed again, and those of them that were asked
        # for.  Most of these were refused and will not be asked for again.
        self.repeatable: set[tuple[int, int]] = set()
        self.asked: Pairs = []
        self.forecast: Forecast | None = None

    def foresee(self, merges: Foreseen) -> None:
        """Be ready for these merges; many are compared when the first of them is asked for."""
        self.forecast = Forecast(self.groups, merges)

    def merge(self, a: int, b: int) -> Sequence[int]:
        """Merge b into a."""
        self.merge_many([(a, b)])
        return (a,)

    def merge_many(self, pairs: Pairs) -> None:
        """Merge the second of each pair into the first; no slot is in two pairs."""
        self._compose([pair for pair in pairs if self._is_up_to_date(pair)])
        for a, b in pairs:
            if not self._is_up_to_date((a, b)):
                self.stale.add(a)
            self.stale.discard(b)
            self.groups[a], self.groups[b] = self.groups[a].with_(self.groups[b]), NOBODY
            if self.forecast is not None:
                self.forecast.merge(a, b)
            for slot in (a, b):
                for known in self.pairs_of.pop(slot, ()):
                    self._forget(known)

    def _is_up_to_date(self, pair: tuple[int, int]) -> bool:
        return pair in self.known and not (pair[0] in self.stale or pair[1] in self.stale)

    def _compose(self, pairs: Pairs) -> None:
        """Make the scores of observations for their own clusters those for the merged ones."""
        if not pairs:
            return
        sides = [self.groups[slot] for pair in pairs for slot in pair]
        size = np.array([group.size for group in sides], np.float64)
        log_share = np.log(size / np.repeat(size[::2] + size[1::2], 2)).astype(np.float32)
        n_rows = [len(group.rows) for group in sides]
        mine = np.repeat(log_share, n_rows)
        theirs = np.repeat(log_share.reshape(-1, 2)[:, ::-1].ravel(), n_rows)
        rows = np.concatenate([group.rows for group in sides])
        found = [self.known[pair] for pair in pairs]
        other = np.concatenate([scores for one in found for scores in (one.of_a, one.of_b)])
        self.own[rows] = np.logaddexp(self.own[rows] + mine, other + theirs)

    def contrast(self, a: int, b: int) -> Contrast:
        """Compare two slots by their scores."""
        if (a, b) not in self.known:
            expected = None if self.forecast is None else self.forecast.compared(a, b, self)
            if expected is not None:
                self._remember((a, b), expected)
            else:
                self.compare([(a, b), *(pair for pair in self.ahead() if pair != (a, b))])
        if (a, b) in self.repeatable:
            self.asked.append((a, b))
        return self.known[a, b].contrast

    def known_p_value(self, a: int, b: int) -> float | None:
        """Always None: it comes with the contrast."""
        return None

    def compare(self, pairs: Pairs) -> None:
        """Compute the contrasts of some pairs that are not known yet."""
        self.forget_asked()
        self._refresh(pairs)
        groups = [(self.groups[a], self.groups[b]) for a, b in pairs]
        rows = np.concatenate([group.rows for both in groups for group in both])
        found = self.compared(groups, self.own[rows])
        for pair, compared in zip(pairs, found, strict=True):
            self._remember(pair, compared)
        self.repeatable.update(pairs)

    def compare_foreseen(self, pairs: Pairs) -> None:
        """Compute the contrasts of some pairs as if they had been foreseen, from all scores."""
        found = self.compared([(self.groups[a], self.groups[b]) for a, b in pairs])
        for pair, compared in zip(pairs, found, strict=True):
            self._remember(pair, compared)

    def forget_asked(self) -> None:
        """Forget pairs that were asked for, because all together would take much memory."""
        for pair in self.asked:
            self._forget(pair)
        self.asked = []

    def _forget(self, pair: tuple[int, int]) -> None:
        self.known.pop(pair, None)
        self.repeatable.discard(pair)

    def _remember(self, pair: tuple[int, int], compared: Compared) -> None:
        self.known[pair] = compared
        for slot in pair:
            self.pairs_of.setdefault(slot, []).append(pair)

    def compared(self, pairs: GroupPairs, own: Floats | None = None) -> list[Compared]:
        """Compare pairs of groups; ``own`` has the scores for their own groups, if known."""
        n_rows = np.array([len(a.rows) + len(b.rows) for a, b in pairs])
        ends = np.concatenate([[0], np.cumsum(n_rows)])
        found: list[Compared] = []
        for some in parts(n_rows, MOST_COMPARED):
            part = None if own is None else own[ends[some.start] : ends[some.stop]]
            found += self._compared(pairs[some], part)
        return found

    def _compared(self, pairs: GroupPairs, own: Floats | None) -> list[Compared]:
        sides = [side for a, b in pairs for side in ((a, b), (b, a))]
        if own is None:
            own = self._own_of([x for x, _ in sides])
        other = self.scores_of(sides)
        counts = np.array([len(x.rows) for x, _ in sides])
        index = np.concatenate([x.rows for x, _ in sides])
        side = np.repeat(np.arange(len(sides)), counts)
        of_a = side % 2 == 0
        margin = (own - other).astype(np.float64)
        values = np.where(of_a, margin, -margin)
        strata = self.result.scores.strata[index]
        rates, intervals, p_values = _statistics(
            self.result, side, margin, values, strata, len(pairs)
        )
        ends, n_strata, found = [0, *np.cumsum(counts).tolist()], len(self.result.scores.bias), []
        for n in range(len(pairs)):
            start, middle, stop = ends[2 * n : 2 * n + 3]
            both = slice(start, stop)
            contrast = Contrast(values[both], of_a[both], strata[both], n_strata)
            contrast.__dict__.update(hit_rate=rates[n], interval=intervals[n], p_value=p_values[n])
            found.append(Compared(contrast, other[start:middle], other[middle:stop]))
        return found

    def _own_of(self, groups: list[Group]) -> Floats:
        """Scores of the observations of each group for the group, if no slot holds them yet."""
        merged = [len(x.members) > 1 or self._is_large(x, x) for x in groups]
        own = self.scores.own[np.concatenate([x.rows for x in groups])]
        if any(merged):
            sides = [(x, x) for x, changed in zip(groups, merged, strict=True) if changed]
            own[np.repeat(merged, [len(x.rows) for x in groups])] = self.scores_of(sides)
        return own

    def soft_distances(self, pairs: Pairs) -> Matrix:
        """2·soft accuracy − 1 of some pairs, every observation counted once."""
        self._refresh(pairs)
        groups = [(self.groups[a], self.groups[b]) for a, b in pairs]
        sides = [side for a, b in groups for side in ((a, b), (b, a))]
        counts = np.array([len(x.rows) for x, _ in sides])
        index = np.concatenate([x.rows for x, _ in sides])
        pair = np.repeat(np.arange(len(sides)), counts) // 2
        hits = expit((self.own[index] - self.scores_of(sides)).astype(np.float64))
        n = np.bincount(pair, minlength=len(pairs))
        mean = np.bincount(pair, hits, minlength=len(pairs)) / np.maximum(n, 1)
        return np.clip(2 * np.where(n > 0, mean, 1.0) - 1, 0.0, 1.0)

    def _refresh(self, pairs: Pairs) -> None:
        stale = sorted(self.stale & {slot for pair in pairs for slot in pair})
        if stale:
            groups = [self.groups[slot] for slot in stale]
            index = np.concatenate([group.rows for group in groups])
            self.own[index] = self.scores_of([(group, group) for group in groups])
            self.stale -= set(stale)

    def scores_of(self, sides: GroupPairs) -> Floats:
        """Scores of the observations of x for the mixture y, for one (x, y) after another."""
        many = [self._is_large(x, y) for x, y in sides]
        if not any(many):
            return self._one_by_one(sides)
        few = [side for side, is_large in zip(sides, many, strict=True) if not is_large]
        ends = np.cumsum([len(x.rows) for x, _ in few[:-1]])
        listed = iter(np.split(self._one_by_one(few), ends) if few else ())
        products = iter(
            self._by_products([s for s, large in zip(sides, many, strict=True) if large])
        )
        return np.concatenate([next(products if is_large else listed) for is_large in many])

    def _is_large(self, x: Group, y: Group) -> bool:
        """Whether the scores of x for y are computed as a matrix product."""
        n_features = self.result.scores.features.shape[1]
        return len(x.rows) * len(y.members) * n_features > ENOUGH_FOR_PRODUCTS

    def _by_products(self, sides: GroupPairs) -> list[Floats]:
        """:meth:`scores_of` for each (x, y), if they are many observations and members."""
        n_rows = np.array([len(x.rows) for x, _ in sides])
        widths = np.array([len(y.members) for _, y in sides])
        found: list[Floats] = [np.zeros(0, np.float32)] * len(sides)
        # Those for as many members are in one matrix, because each call of NumPy takes time.
        for width in np.unique(widths):
            same = np.flatnonzero(widths == width)
            for some in parts(n_rows[same] * width, MOST_PRODUCTS):
                z = np.concatenate([self._products(*sides[n]) for n in same[some]])
                split = np.split(log_sums_of_rows(z), np.cumsum(n_rows[same[some]])[:-1])
                for n, part in zip(same[some].tolist(), split, strict=True):
                    found[n] = part
        return found

    def _products(self, x: Group, y: Group) -> Floats:
        """Scores of the observations of x for each member of y, weighted by its share."""
        scores = self.result.scores
        strata, features = scores.strata[x.rows], np.take(scores.features, x.rows, axis=0)
        weights = np.take(scores.weights, y.members, axis=1)
        log_share = np.log(self.result.sizes[y.members] / y.size).astype(np.float32)
        bias = np.take(scores.bias, y.members, axis=1) + log_share
        # Observations are ordered by stratum, and so are those of a group.
        ends = strata.searchsorted(np.arange(len(bias) + 1)).tolist()
        z = np.empty((len(x.rows), len(y.members)), np.float32)
        for stratum, (start, stop) in enumerate(pairwise(ends)):
            if start < stop:
                np.matmul(features[start:stop], weights[stratum].T, out=z[start:stop])
        z += np.take(bias, strata, axis=0)
        return z

    def _one_by_one(self, sides: GroupPairs) -> Floats:
        """:meth:`scores_of`, an observation and a member at a time."""
        rows = np.concatenate([x.rows for x, _ in sides])
        members = np.concatenate([y.members for _, y in sides])
        n_rows = np.array([len(x.rows) for x, _ in sides])
        n_members = np.array([len(y.members) for _, y in sides])
        whole = np.repeat([y.size for _, y in sides], n_members)
        log_share = np.log(self.result.sizes[members] / whole).astype(np.float32)
        starts = np.repeat(np.cumsum(n_members) - n_members, n_rows)
        lengths = np.repeat(n_members, n_rows)
        found = np.empty(len(rows), np.float32)
        for some in parts(lengths, MOST_ENTRIES):
            row, place = ragged(starts[some], lengths[some])
            z = self.scores.of(rows[some][row], members[place]) + log_share[place]
            found[some] = log_sums(z, lengths[some])
        return found


class Forecast:
    """Merges that are expected, and their evidence, which is computed for many at a time.

    Parameters
    ----------
    groups : list of Group
        What each slot begins with.
    merges : Foreseen
    """

    def __init__(self, groups: list[Group], merges: Foreseen) -> None:
        rng = np.random.default_rng(0)
        # A group is recognised by the sum of random numbers of its members.
        self.identity = rng.integers(2**62, size=len(groups)).tolist()
        self.nodes = list(groups)
        self.merges = list(zip(merges.left.tolist(), merges.right.tolist(), strict=True))
        of_node = list(self.identity)
        # By left and right identity: the number of the merge.
        self.place: dict[tuple[int, int], int] = {}
        for n, (left, right) in enumerate(self.merges):
            self.place[of_node[left], of_node[right]] = n
            of_node.append(of_node[left] ^ of_node[right])
        self.found: dict[int, Compared] = {}
        self.n_made = 0

    def merge(self, a: int, b: int) -> None:
        """Merge slot b into slot a."""
        self.identity[a] ^= self.identity[b]

    def compared(self, a: int, b: int, scores: GroupScores) -> Compared | None:
        """The evidence about two slots if it was foreseen."""
        one, other = self.identity[a], self.identity[b]
        n = self.place.pop((one, other), None)
        turned = n is None
        if n is None:
            n = self.place.pop((other, one), None)
        if n is None:
            return None
        while n >= self.n_made:
            self._make_more(scores)
        found = self.found.pop(n)
        return mirrored(found) if turned else found

    def _make_more(self, scores: GroupScores) -> None:
        """Compare the next merges of the forecast."""
        pairs: GroupPairs = []
        n_entries = 0
        while self.n_made + len(pairs) < len(self.merges) and n_entries < MOST_ENTRIES:
            parts_of = self.merges[self.n_made + len(pairs)]
            left, right = (self.nodes[n] for n in parts_of)
            for n in parts_of:
                self.nodes[n] = NOBODY  # no other merge has this part
            pairs.append((left, right))
            self.nodes.append(left.with_(right))
            n_entries += len(self.nodes[-1].rows) * len(self.nodes[-1].members)
        for compared in scores.compared(pairs):
            self.found[self.n_made] = compared
            self.n_made += 1


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


def log_sums_of_rows(z: Floats) -> Floats:
    """Logarithm of the sum of the exponentials of each row; changes its argument.

    Examples
    --------
    >>> log_sums_of_rows(np.log(np.array([[1, 2], [3, 4]], np.float32))).round(3)
    array([1.099, 1.946], dtype=float32)
    """
    top = np.ascontiguousarray(z.T).max(axis=0)  # rows are short, and columns are long
    z -= top[:, None]
    sums: Floats = np.exp(z, out=z).sum(axis=1)
    return top + np.log(sums)


def _statistics(
    result: SparsePairwiseTVD,
    side: Index,
    margin: Matrix,
    values: Matrix,
    strata: Index,
    n_pairs: int,
) -> tuple[Matrix, list[tuple[float, float]], list[float]]:
    """Hit rates, confidence intervals and p-values of many contrasts."""
    n_strata, n_folds = len(result.scores.bias), result.scores.n_folds
    hits = np.bincount(side, (margin > 0) + (margin == 0) / 2, minlength=2 * n_pairs)
    table = np.bincount(side * n_strata + strata, minlength=2 * n_pairs * n_strata)
    counts = table.reshape(n_pairs, 2, n_strata)
    n = counts.sum(axis=2)
    rate = np.where(n > 0, hits.reshape(n_pairs, 2) / np.maximum(n, 1), 0.5)
    hit_rate = np.full((n_pairs, 2, 2), 0.5)
    hit_rate[:, 0, 1], hit_rate[:, 1, 0] = rate.T
    low, high = interval_of_pairs(hit_rate, n[:, :, None], CONFIDENCE, n_folds)
    pair = side // 2
    small = across_folds(n.max(axis=1), n_strata, n_folds)
    group = pair * n_strata + np.where(small[pair], 0, strata)
    U = rank_sums(pair, group, values, side % 2 == 0, n_pairs)
    p = rank_sum_p_value_of_pairs(U, counts[:, 0].T, counts[:, 1].T, n_folds)
    return hit_rate, list(zip(low.tolist(), high.tolist(), strict=True)), p.tolist()


def mirrored(compared: Compared) -> Compared:
    """The same comparison with the two groups exchanged."""
    of_b, contrast = compared.of_b, compared.contrast
    n = len(compared.of_a)
    turned = np.concatenate([np.arange(n, len(contrast.values)), np.arange(n)])
    other = Contrast(
        -contrast.values[turned], ~contrast.of_a[turned], contrast.folds[turned], contrast.n_folds
    )
    other.__dict__.update(
        hit_rate=contrast.hit_rate.T, interval=contrast.interval, p_value=contrast.p_value
    )
    return Compared(other, of_b, compared.of_a)


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
