"""What is known about two clusters, in one word, in a record, and in the order to look at them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

SAME, PROBABLY_SAME, UNCLEAR, DIFFERENT = WORDS = ("same", "probably same", "unclear", "different")

LEVEL = 0.05
# Around the level nobody should be sure, so between these two p-values the word is "unclear".
CLEAR_P = 0.01
HINT_P = 0.2
# A classifier is right in 60 % and 75 % of the cases at best.
SMALL_TVD = 0.2
LARGE_TVD = 0.5
# A difference may be significant and still too small to matter, if clusters are huge.
LEAST_TVD = 0.05
# With so many observations two Gaussians 4 and 3.5 standard deviations apart give a p-value below
# HINT_P in 80 % and 90 % of the cases; with fewer, a valley could be there and not be seen.
ENOUGH = 50
MANY = 200
# Around a strength of 1 nobody should be sure either.
WEAK = 0.8
FAIR = 1.25
STRONG = 2.0
# A cluster of fewer has neighbours outside whatever it is.
TINY = 10


class Evidence(NamedTuple):
    """What is known about two clusters; NaN for what is not.

    Parameters
    ----------
    low, high : float
        Interval of their TVD.
    p_adjusted : float
        Adjusted p-value of "same distribution".
    p_valley : float
        p-value of "no valley between".
    n_border : int
        Observations in which the valley was looked for.
    strength : float
        How strongly the neighbour graph connects the two; 1 is the limit.
    smaller : int
        Observations of the smaller of the two.
    """

    low: float
    high: float
    p_adjusted: float
    p_valley: float = math.nan
    n_border: int = 0
    strength: float = math.nan
    smaller: int = MANY


def verdict(known: Evidence) -> str:
    """Turn evidence about two clusters into one of four words.

    Notes
    -----
    What is not known (NaN) is unclear.

    Examples
    --------
    >>> [verdict(Evidence(*e)) for e in ((0.0, 0.1, 1.0), (0.0, 0.7, 1.0), (0.3, 0.6, 1e-5))]
    ['same', 'unclear', 'different']
    >>> verdict(Evidence(0.9, 1.0, 1e-9, p_valley=0.8, n_border=120))
    'probably same'
    >>> verdict(Evidence(0.9, 1.0, 1e-9, strength=0.2)), verdict(Evidence(0.9, 1.0, 0, strength=3))
    ('different', 'same')
    """
    words = [_by_test(known.low, known.high, known.p_adjusted)]
    if not math.isnan(known.strength):
        words.append(_by_neighbours(known.strength, known.smaller))
    elif not math.isnan(known.p_valley):
        words.append(_by_valley(known.p_valley, known.n_border))
    return min(words, key=WORDS.index)


def doubt(known: Evidence) -> float:
    """How far the evidence is from its limit: 0 on the limit, where all may be otherwise.

    Of two answers the one that speaks for "same" counts, as both must speak against it.

    Examples
    --------
    >>> doubt(Evidence(0.3, 0.6, 0.05)), doubt(Evidence(0.3, 0.6, 0.0, strength=1.0))
    (0.0, 0.0)
    """
    if not math.isnan(known.strength):
        return abs(math.log(max(known.strength, 1e-300)))
    p = known.p_adjusted
    if not math.isnan(known.p_valley):
        p = max(p, known.p_valley)
    return 0.0 if math.isnan(p) else abs(math.log(max(p, 1e-300) / LEVEL))


def _by_test(low: float, high: float, p: float) -> str:
    # Between clusters of ten no difference is significant among many pairs, however plain it is.
    if low >= LARGE_TVD or (low >= LEAST_TVD and p < CLEAR_P):
        return DIFFERENT
    if low >= LEAST_TVD or p < HINT_P:
        return UNCLEAR
    # Not significant is not the same as the same: how large could the difference be?
    if high <= SMALL_TVD:
        return SAME
    return PROBABLY_SAME if high <= LARGE_TVD else UNCLEAR


def _by_valley(p: float, n_border: int) -> str:
    if p < CLEAR_P:
        return DIFFERENT
    if p < HINT_P or n_border < ENOUGH:
        return UNCLEAR
    return SAME if n_border >= MANY else PROBABLY_SAME


def _by_neighbours(strength: float, smaller: int) -> str:
    if strength < WEAK:
        return DIFFERENT
    if strength < FAIR or smaller < TINY:
        return UNCLEAR
    return SAME if strength >= STRONG and smaller >= MANY else PROBABLY_SAME


MUST_LINK = "must_link"


@dataclass(frozen=True)
class Merge:
    """One step of the tree, or one that was possible when merging stopped.

    Parameters
    ----------
    left, right : int
        The clusters joined, numbered as in a SciPy linkage: 0 … k−1 are the initial clusters in
        the order of ``MergeTree.cluster_ids``, step t makes cluster k + t.
    size_left, size_right : int
        Their observations.
    statistic : float
        What ranked the pair, as it was when the two were joined.
    height : float
        Largest statistic so far: a SciPy linkage must not go down.
    tvd, low, high : float
        Total variation distance between the two and its 95 % interval; NaN without scores.
    p_adjusted : float
        p-value of "same distribution" times the number of pairs of initial clusters.
    p_valley : float
        p-value of "no valley between the two"; NaN unless one was looked for.
    n_border : int
        Observations in which a valley was looked for.
    edges : float
        Edges of the neighbour graph from the one to the other; NaN without a graph, as are the
        next three, and for clusters that were split at random.
    times_chance : float
        Their number over that of a random graph with the same degrees.
    neck : float
        How narrow the graph is where the two meet, from 0 to 1; NaN in many dimensions.
    strength : float
        How strongly the graph connects them: 1 is the least that parts of one cluster have.
    why : str
        Why the two were joined, or why they were not.
    """

    left: int
    right: int
    size_left: int
    size_right: int
    statistic: float
    height: float
    tvd: float
    low: float
    high: float
    p_adjusted: float
    p_valley: float
    n_border: int
    edges: float
    times_chance: float
    neck: float
    strength: float
    why: str

    @property
    def verdict(self) -> str:
        """Same, probably same, unclear or different: what the evidence says, whatever was done."""
        return verdict(self.evidence)

    @property
    def evidence(self) -> Evidence:
        """What the verdict goes by."""
        return Evidence(
            self.low,
            self.high,
            self.p_adjusted,
            self.p_valley,
            self.n_border,
            self.strength,
            min(self.size_left, self.size_right),
        )


def members_of_nodes(merges: Sequence[Merge], n_initial: int) -> list[list[int]]:
    """Initial clusters below every node of the tree."""
    members = [[leaf] for leaf in range(n_initial)]
    for merge in merges:
        members.append(members[merge.left] + members[merge.right])
    return members


MERGED, APART = "merged", "kept apart"


@dataclass(frozen=True)
class Row:
    """A pair, and the step that merged it; None for a pair kept apart."""

    pair: Merge
    step: int | None

    @property
    def done(self) -> str:
        """What was done with the pair."""
        return APART if self.step is None else MERGED

    @property
    def against_evidence(self) -> bool:
        """Merged though different, or kept apart though the same, as a link or number asked."""
        if self.step is None:
            return self.pair.verdict in (SAME, PROBABLY_SAME)
        return self.pair.verdict == DIFFERENT

    @property
    def urgency(self) -> tuple[int, bool, float, float]:
        """Small for what should be looked at first; within a word, what was nearly otherwise.

        Clusters of a few are always unclear, and come after what a person can decide.
        """
        word, pair = self.pair.verdict, self.pair
        order = (UNCLEAR, "against", PROBABLY_SAME, DIFFERENT, SAME)
        rank = order.index("against" if self.against_evidence else word)
        tiny = min(pair.size_left, pair.size_right) < TINY
        if math.isnan(pair.tvd):
            return rank, False, 0.0, pair.statistic
        return rank, tiny, doubt(pair.evidence), pair.tvd if self.step is None else -pair.tvd


def review_table(
    rows: Sequence[Row], members: Sequence[Sequence[str]], clusters: Sequence[int]
) -> dict[str, list[Any]]:
    """The pairs by column, in their order.

    Parameters
    ----------
    rows : sequence of Row
    members : sequence of sequences of str
        Names of the initial clusters in every node of the tree.
    clusters : sequence of int
        New cluster to which every node belongs.
    """
    pairs = [row.pair for row in rows]
    columns: dict[str, list[Any]] = {
        "verdict": [pair.verdict for pair in pairs],
        "done": [row.done for row in rows],
        "left": [" + ".join(members[pair.left]) for pair in pairs],
        "right": [" + ".join(members[pair.right]) for pair in pairs],
    }
    for name in ("size_left", "size_right", "tvd", "low", "high", "p_adjusted"):
        columns[name] = [getattr(pair, name) for pair in pairs]
    columns["p_valley"] = [pair.p_valley for pair in pairs]
    columns["n_border"] = [pair.n_border for pair in pairs]
    for name in ("edges", "times_chance", "neck", "strength"):
        columns[name] = [getattr(pair, name) for pair in pairs]
    columns["new_left"] = [clusters[pair.left] for pair in pairs]
    columns["new_right"] = [clusters[pair.right] for pair in pairs]
    columns["step"] = [row.step for row in rows]
    columns["why"] = [pair.why for pair in pairs]
    return columns
