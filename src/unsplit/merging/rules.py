"""The stopping rules, each of which decides whether a given pair may be merged.

A rule looks at one pair at a time, closest first.  A pair that it refuses waits until one of its
clusters has changed; merging ends when every pair is refused.  docs/stopping.md says what each
rule assumes.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from unsplit._typing import Index
from unsplit.merging.evidence import Contrast, Evidence
from unsplit.merging.neighbours.evidence import Connection, Neighbourhoods
from unsplit.pairwise.statistics import adjust_for_pairs

# What decides about most pairs.
TESTS, NEIGHBOURS = "tests", "neighbours"

# Too small to hold out observations: both clusters; one; one that the network assigns to the other.
BOTH_SMALL, ONE_SMALL, ASSIGNED = "both small", "one small", "assigned"
BY_NETWORK = "too few observations to compare; the network assigns them to this cluster"

# If the TVD of two clusters may be larger than this, they do not count as alike, whatever p is.
ALIKE_TVD = 0.5


@dataclass(frozen=True, eq=False)
class Pair:
    """A pair of clusters that might be merged.

    Parameters
    ----------
    a, b : int
        Their slots.
    statistic : float
        What ranked the pair.
    n_pairs : int
        Number of pairs of initial clusters that may be equal
        (:attr:`unsplit.PairwiseTVD.n_possibly_equal`).
    evidence : Evidence or None
        The held-out scores; None for a plain matrix.
    neighbourhoods : Neighbourhoods or None
        Evidence from the neighbour graph.
    at_random : bool
        Whether one of the two was split at random, so that the test for a difference decides alone.
    nearest_tvd : float
        Smallest TVD between an initial cluster of one and an initial cluster of the other.
    size : str, optional
        BOTH_SMALL, ONE_SMALL or ASSIGNED if one of the two is too small to hold out observations.
    """

    a: int
    b: int
    statistic: float
    n_pairs: int
    evidence: Evidence | None
    neighbourhoods: Neighbourhoods | None = None
    at_random: bool = False
    nearest_tvd: float = 0.0
    size: str | None = None

    @cached_property
    def contrast(self) -> Contrast | None:
        """The scores of the two clusters compared."""
        return None if self.evidence is None else self.evidence.contrast(self.a, self.b)

    @property
    def tvd(self) -> float:
        """Total variation distance; a plain matrix is taken to hold it."""
        return self.statistic if self.contrast is None else self.contrast.tvd

    @cached_property
    def p_adjusted(self) -> float:
        """p-value of "same distribution", adjusted for all initial pairs that may be equal.

        For initial clusters this is :attr:`unsplit.PairwiseTVD.p_adjusted`.  All these pairs
        count until the end, because merging the closest pairs first leaves the most unlike parts
        of a cluster for last.
        """
        if self.evidence is None:
            return math.nan
        p = self.evidence.known_p_value(self.a, self.b)
        if p is None:
            assert self.contrast is not None
            p = self.contrast.p_value
        return float(adjust_for_pairs(p, self.n_pairs))

    @cached_property
    def connection(self) -> Connection | None:
        """How the neighbour graph connects the two; None where that is not considered."""
        if self.neighbourhoods is None or (self.at_random and self.size is None):
            return None
        return self.neighbourhoods.connection(self.a, self.b)

    def alike(self, level: float) -> bool:
        """Whether no difference is significant and the TVD cannot be large."""
        if self.contrast is None or self.nearest_tvd > ALIKE_TVD:
            return False
        return self.p_adjusted > level and self.contrast.interval[1] <= ALIKE_TVD


class Decision(NamedTuple):
    """Whether to merge, why, and how strong the objection is.

    If too many clusters remain, the pair with the weakest objection is merged first.
    """

    merge: bool
    why: str
    objection: float = 0.0


class Rule(Protocol):
    """Decides which pairs may be merged."""

    @property
    def reach(self) -> int | None:
        """How many of its nearest clusters each cluster is compared with; None for all."""

    @property
    def ending(self) -> str:
        """Why merging stopped, as a clause about every remaining pair."""

    def judge(self, pair: Pair) -> Decision:
        """May this pair be merged?"""


@dataclass(frozen=True)
class UsersRule:
    """A rule of the user, which need not say more than what it thinks of a pair."""

    rule: Rule

    @property
    def reach(self) -> int | None:
        """All clusters, unless the rule says otherwise."""
        return getattr(self.rule, "reach", None)

    @property
    def ending(self) -> str:
        """Why merging ended."""
        return getattr(self.rule, "ending", "the rule allows no further merge")

    def judge(self, pair: Pair) -> Decision:
        """Ask the rule."""
        return self.rule.judge(pair)


@dataclass(frozen=True)
class Always:
    """Allow every pair, because the number of clusters decides when to stop."""

    ending = "no pair is left to merge"
    reach = None

    def judge(self, pair: Pair) -> Decision:
        """Allow the pair."""
        return Decision(True, "closest pair")


@dataclass(frozen=True)
class MaxTVD:
    """Merge pairs whose total variation distance is at most ``limit``."""

    limit: float
    reach = None

    @property
    def ending(self) -> str:
        """Why merging ended."""
        return f"every remaining pair has a TVD above {self.limit:g}"

    def judge(self, pair: Pair) -> Decision:
        """Compare the TVD with the limit."""
        merge = pair.tvd <= self.limit
        side = "at most" if merge else "above"
        return Decision(merge, f"TVD {pair.tvd:.3f} is {side} {self.limit:g}")


@dataclass(frozen=True)
class Alpha:
    """Merge pairs whose difference is not significant at ``level`` after adjustment."""

    level: float
    reach = None

    @property
    def ending(self) -> str:
        """Why merging ended."""
        return f"every remaining pair differs significantly (adjusted p ≤ {self.level:g})"

    def judge(self, pair: Pair) -> Decision:
        """Compare the adjusted p-value with the level."""
        p = pair.p_adjusted
        what = "no significant difference" if p > self.level else "significant difference"
        return Decision(p > self.level, f"{what}: adjusted p {p:.2g}")


@dataclass(frozen=True)
class Auto:
    """The rule that applies when the user names none.

    Clusters that cannot be told apart are merged.  If one of the two was split at random and they
    can be told apart, they are different.  Otherwise the clusters were cut out of the same
    features, so that every pair differs; such a pair is merged if the neighbour graph connects the
    two like parts of one cluster.  Without a graph the test decides alone, and only nearby pairs
    are compared, because some of many distant pairs would pass by chance.

    Parameters
    ----------
    by : str
        What decides about most pairs; it sets ``reach`` and ``ending``.
    level : float
        Significance level of all tests.
    """

    by: str
    level: float = 0.05

    @property
    def reach(self) -> int | None:
        """The ten nearest; all, if the neighbour graph decides."""
        return None if self.by == NEIGHBOURS else 10

    @property
    def ending(self) -> str:
        """Why merging ended."""
        if self.by == TESTS:
            return (
                "every remaining pair of nearby clusters differs significantly (adjusted p ≤ "
                f"{self.level:g})"
            )
        return "every remaining pair is too weakly connected in the neighbour graph"

    def judge(self, pair: Pair) -> Decision:
        """Test for a difference first, then look at the neighbours."""
        if pair.size == BOTH_SMALL:
            why = "both clusters have too few observations to compare"
            return Decision(False, why, objection=math.inf)
        if pair.size == ASSIGNED:
            return Decision(True, BY_NETWORK)
        if pair.size is not None and pair.connection is None:
            why = "one cluster has too few observations to compare"
            return Decision(False, why, objection=math.inf)
        if pair.alike(self.level):
            assert pair.contrast is not None
            return Decision(
                True,
                f"no significant difference: adjusted p {pair.p_adjusted:.2g}, TVD at most "
                f"{pair.contrast.interval[1]:.2f}",
            )
        if pair.connection is not None:
            return Decision(pair.connection.strength >= 1, pair.connection.why)
        return Alpha(self.level).judge(pair)


@dataclass(frozen=True)
class WithinBatches:
    """Apply a rule to pairs that share a batch, and keep all other pairs apart.

    Clusters without a common batch cannot be compared until one of them is merged with a cluster
    that occurs in a batch of the other.
    """

    rule: Rule

    @property
    def reach(self) -> int | None:
        """The same as for the rule itself."""
        return self.rule.reach

    @property
    def ending(self) -> str:
        """Why merging ended."""
        return f"{self.rule.ending} or has no batch with two observations of each"

    def judge(self, pair: Pair) -> Decision:
        """Ask the rule if the two clusters share a batch."""
        if pair.contrast is not None and not pair.contrast.comparable:
            why = "no batch has at least two observations of each"
            return Decision(False, why, objection=math.inf)
        return self.rule.judge(pair)


@dataclass(frozen=True, eq=False)
class SameGroup:
    """Merge within known groups; ``groups`` holds the group of every initial cluster."""

    groups: Index
    ending = "every remaining pair is in different spectral groups"
    reach = None

    def judge(self, pair: Pair) -> Decision:
        """Allow the pair if both are in the same group."""
        merge = bool(self.groups[pair.a] == self.groups[pair.b])
        return Decision(merge, "same spectral group" if merge else "different spectral groups")
