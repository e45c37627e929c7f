"""The evidence about a pair as a record, as one word, and as a table in order of urgency."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

SAME, PROBABLY_SAME, UNCLEAR, DIFFERENT = WORDS = ("same", "probably same", "unclear", "different")

LEVEL = 0.05
# p-values near the level prove nothing: between these two the verdict is "unclear".
CLEAR_P = 0.01
HINT_P = 0.2
# At these TVDs the best classifier is right in 60 % and 75 % of the cases.
SMALL_TVD = 0.2
LARGE_TVD = 0.5
# In huge clusters a significant difference may be too small to matter.
LEAST_TVD = 0.05
# Observations in the smaller cluster from which a strong connection is sure.
MANY = 200
# Strengths near 1 prove nothing: between WEAK and FAIR the verdict is "unclear".
WEAK = 0.8
FAIR = 1.25
STRONG = 2.0
# A smaller cluster always has most of its neighbours outside.
TINY = 10


class PairEvidence(NamedTuple):
    """The evidence about two clusters; NaN for what is unknown.

    Parameters
    ----------
    low, high : float
        95 % confidence interval of the TVD.
    p_adjusted : float
        Adjusted p-value of "same distribution".
    strength : float
        How strongly the neighbour graph connects the two; 1 is the limit.
    smaller : int
        Number of observations in the smaller cluster.
    """

    low: float
    high: float
    p_adjusted: float
    strength: float = math.nan
    smaller: int = MANY


def verdict(known: PairEvidence) -> str:
    """The evidence about two clusters in one of four words; "unclear" if nothing is known.

    Examples
    --------
    >>> [verdict(PairEvidence(*e)) for e in ((0.0, 0.1, 1.0), (0.0, 0.7, 1.0), (0.3, 0.6, 1e-5))]
    ['same', 'unclear', 'different']
    >>> [verdict(PairEvidence(0.9, 1.0, 1e-9, strength=strength)) for strength in (0.2, 3)]
    ['different', 'same']
    """
    words = [_by_test(known.low, known.high, known.p_adjusted)]
    if not math.isnan(known.strength):
        words.append(_by_neighbours(known.strength, known.smaller))
    return min(words, key=WORDS.index)


def doubt(known: PairEvidence) -> float:
    """Distance of the evidence from its limit on a log scale; 0 is as uncertain as can be.

    Examples
    --------
    >>> doubt(PairEvidence(0.3, 0.6, 0.05)), doubt(PairEvidence(0.3, 0.6, 0.0, strength=1.0))
    (0.0, 0.0)
    """
    if not math.isnan(known.strength):
        return abs(math.log(max(known.strength, 1e-300)))
    p = known.p_adjusted
    return 0.0 if math.isnan(p) else abs(math.log(max(p, 1e-300) / LEVEL))


def _by_test(low: float, high: float, p: float) -> str:
    # Differences between tiny clusters are never significant among many pairs, however large.
    if low >= LARGE_TVD or (low >= LEAST_TVD and p < CLEAR_P):
        return DIFFERENT
    if low >= LEAST_TVD or p < HINT_P:
        return UNCLEAR
    # "Not significant" does not mean "same": the difference must also be small at its largest.
    if high <= SMALL_TVD:
        return SAME
    return PROBABLY_SAME if high <= LARGE_TVD else UNCLEAR


def _by_neighbours(strength: float, smaller: int) -> str:
    if strength < WEAK:
        return DIFFERENT
    if strength < FAIR or smaller < TINY:
        return UNCLEAR
    return SAME if strength >= STRONG and smaller >= MANY else PROBABLY_SAME


MUST_LINK = "required by must_link"
# Begins the reason of a merge that only completes the tree.
BEYOND = "beyond the cut: "


@dataclass(frozen=True)
class Merge:
    """A merge of two clusters, or a pair that was left when merging stopped.

    Parameters
    ----------
    left, right : int
        The two clusters, numbered as in a SciPy linkage: 0 … k−1 are the initial clusters in the
        order of ``MergeTree.cluster_ids``, and step t makes cluster k + t.
    size_left, size_right : int
        Number of observations in each.
    statistic : float
        The statistic that ranked the pair, at the time of the merge.
    height : float
        Largest statistic so far, because heights in a SciPy linkage must not decrease.
    tvd, low, high : float
        Total variation distance between the two and its 95 % interval; NaN without scores.
    p_adjusted : float
        p-value of "same distribution" times the number of pairs of initial clusters that may be
        equal, at most 1, as in :class:`unsplit.PairwiseTVD`.
    edges : float
        Number of edges between the two in the neighbour graph.  This and the next three are NaN
        without a graph, and for clusters that were split at random.
    times_chance : float
        Weight of these edges relative to a random graph with the same degrees.
    neck : float
        Width of the graph where the two meet relative to its width inside them, from 0 to 1; NaN
        in many dimensions.
    strength : float
        How strongly the graph connects the two; parts of one cluster have at least 1.
    why : str
        Why the two were merged, or why they were not.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> tree.merges[0].left, tree.merges[0].right, tree.merges[0].height
    (0, 1, 0.1)
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
    edges: float
    times_chance: float
    neck: float
    strength: float
    why: str

    @property
    def verdict(self) -> str:
        """The evidence in a word: same, probably same, unclear or different."""
        return verdict(self.evidence)

    @property
    def evidence(self) -> PairEvidence:
        """The evidence behind the verdict."""
        return PairEvidence(
            self.low,
            self.high,
            self.p_adjusted,
            self.strength,
            min(self.size_left, self.size_right),
        )


def members_of_nodes(merges: Sequence[Merge], n_initial: int) -> list[list[int]]:
    """The initial clusters in every node of the tree."""
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
        """Whether the pair was merged or kept apart."""
        return APART if self.step is None else MERGED

    @property
    def against_evidence(self) -> bool:
        """Whether it was merged though different, or kept apart though the same."""
        if self.step is None:
            return self.pair.verdict in (SAME, PROBABLY_SAME)
        return self.pair.verdict == DIFFERENT

    @property
    def urgency(self) -> tuple[int, bool, float, float]:
        """Sort key: pairs to look at first are smallest, and the least certain come first.

        Pairs of tiny clusters are always unclear and come after those that a person can decide.
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
    """The table of pairs, by column.

    Parameters
    ----------
    rows : sequence of Row
        The pairs, most urgent first.
    members : sequence of sequences of str
        Names of the initial clusters in every node of the tree.
    clusters : sequence of int
        New cluster of every node.
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
    for name in ("edges", "times_chance", "neck", "strength"):
        columns[name] = [getattr(pair, name) for pair in pairs]
    columns["new_left"] = [clusters[pair.left] for pair in pairs]
    columns["new_right"] = [clusters[pair.right] for pair in pairs]
    columns["step"] = [row.step for row in rows]
    columns["why"] = [pair.why for pair in pairs]
    return columns
