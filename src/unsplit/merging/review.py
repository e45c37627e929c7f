"""A merge or a pair as a record, and the table of pairs in order of urgency."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unsplit.merging import limits
from unsplit.merging.decision import (
    BEYOND,
    CANNOT_LINK,
    CLOSEST,
    DIFFERENT,
    MUST_LINK,
    NUMBER,
    PROBABLY_SAME,
    REACHED,
    SAME,
    UNCLEAR,
    PairEvidence,
    Reason,
    doubt,
    verdict,
)
from unsplit.merging.words import because, why


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
        Total variation distance between the two and its 95 % interval; NaN without scores.  The
        interval is about what the network can tell apart: the clusters differ by ``low`` at
        least, and may differ by more than ``high``.
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
    stage : str
        How it came about: one of :data:`unsplit.merging.decision.STAGES`.
    reason : str
        What the rule decided by: one of :data:`unsplit.merging.decision.REASONS`.
    limit : float
        What the rule compared the evidence with; NaN if with nothing.
    note : str
        The words of a rule of the user; otherwise empty.
    stability : float
        Share of the re-merges of resampled data in which the two are together: the mean over pairs
        of an initial cluster of each, larger clusters counting more.  NaN if nothing was repeated.

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
    stage: str
    reason: str
    limit: float
    note: str
    stability: float = math.nan

    @property
    def why(self) -> str:
        """Why the two were merged, or why they were not, in words."""
        return why(self.stage, self.because)

    @property
    def because(self) -> str:
        """What the rule says of the two, in words."""
        return because(Reason(self.reason, self.limit, self.note), self.evidence)

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
            self.statistic if math.isnan(self.tvd) else self.tvd,
            self.edges,
            self.stability,
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
    """A pair, and the step that merged it; None for a pair kept apart.

    ``taken_apart`` says that the rule had merged the pair, and a cut or an undo took it apart.
    """

    pair: Merge
    step: int | None
    taken_apart: bool = False

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
    def told(self) -> bool:
        """Whether a link, a cut or a requested number decided, not the rule."""
        stage = self.pair.stage
        cut = self.taken_apart if self.step is None else stage == BEYOND
        any_pair = self.pair.reason == CLOSEST
        return cut or any_pair or stage in (MUST_LINK, CANNOT_LINK, NUMBER, REACHED)

    @property
    def urgency(self) -> tuple[int, bool, float, float]:
        """Sort key: pairs to look at first are smallest, and the least certain come first.

        Pairs of tiny clusters are always unclear and come after those that a person can decide.
        """
        word, pair = self.pair.verdict, self.pair
        order = (UNCLEAR, "against", PROBABLY_SAME, DIFFERENT, SAME)
        rank = order.index("against" if self.against_evidence else word)
        tiny = min(pair.size_left, pair.size_right) < limits.FEW
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
    for name in ("edges", "times_chance", "neck", "strength", "stability"):
        columns[name] = [getattr(pair, name) for pair in pairs]
    columns["new_left"] = [clusters[pair.left] for pair in pairs]
    columns["new_right"] = [clusters[pair.right] for pair in pairs]
    columns["step"] = [row.step for row in rows]
    for name in ("stage", "reason", "limit"):
        columns[name] = [getattr(pair, name) for pair in pairs]
    columns["why"] = [pair.why for pair in pairs]
    return columns
