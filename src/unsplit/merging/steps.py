"""One merge, made or only possible, and what is known about the two clusters."""

from collections.abc import Sequence
from dataclasses import dataclass

from unsplit.merging.verdict import Evidence, verdict

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
