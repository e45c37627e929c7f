"""When to stop: may this pair still be merged?

Each rule looks at one pair at a time, closest first.  A pair it refuses waits until one of the two
has changed; merging ends when every pair is refused.  docs/stopping.md says what each assumes.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from unsplit._typing import Index
from unsplit.merging.contrast import Contrast
from unsplit.merging.evidence import Evidence
from unsplit.merging.neighbours.evidence import Connection, Neighbourhoods

# What decides about most pairs.
TESTS, NEIGHBOURS, VALLEYS = "tests", "neighbours", "valleys"

# Clusters that could hold nothing out: both; one; one that the network puts into the other.
BOTH_SMALL, ONE_SMALL, AT_HOME = "both small", "one small", "at home"
BY_NETWORK = "too few observations to hold any out: the network puts them here"

# Two clusters that may differ by more than this are not alike, however little is significant.
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
        Pairs there were at the start.
    evidence, blurred : Evidence or None
        The scores that are reported, and those in which a valley is looked for; both None for a
        plain matrix, and no valley is looked for where neighbours decide.
    neighbourhoods : Neighbourhoods or None
        What the graph of neighbours says.
    at_random : bool
        Whether one of the two was split at random, so that tests for a difference decide alone.
    nearest_tvd : float
        The least TVD between an initial cluster of the one and an initial cluster of the other.
    size : str, optional
        Whether one or both could hold nothing out, and whether the network puts it into the other.
    """

    a: int
    b: int
    statistic: float
    n_pairs: int
    evidence: Evidence | None
    blurred: Evidence | None
    neighbourhoods: Neighbourhoods | None = None
    at_random: bool = False
    nearest_tvd: float = 0.0
    size: str | None = None

    @cached_property
    def contrast(self) -> Contrast | None:
        """What the scores say about the two."""
        return None if self.evidence is None else self.evidence.contrast(self.a, self.b)

    @property
    def tvd(self) -> float:
        """Total variation distance; a plain matrix is taken to hold it."""
        return self.statistic if self.contrast is None else self.contrast.tvd

    @cached_property
    def p_adjusted(self) -> float:
        """p-value of "same distribution", times the number of initial pairs (Bonferroni).

        A single wrong "different" keeps apart what belongs together, so the chance of any is
        bounded, not the share.  All initial pairs count, also late: merging the closest first
        leaves the most unlike pieces of a cluster for the end.
        """
        if self.evidence is None:
            return math.nan
        p = self.evidence.known_p_value(self.a, self.b)
        if p is None:
            assert self.contrast is not None
            p = self.contrast.p_value
        return min(1.0, p * self.n_pairs)

    @cached_property
    def blurred_contrast(self) -> Contrast | None:
        """Where a valley is looked for."""
        if self.blurred is None or self.at_random:
            return None
        if self.blurred is self.evidence:
            return self.contrast
        return self.blurred.contrast(self.a, self.b)

    @cached_property
    def connection(self) -> Connection | None:
        """How the two are connected by neighbours, where that says something."""
        if self.neighbourhoods is None or (self.at_random and self.size is None):
            return None
        return self.neighbourhoods.connection(self.a, self.b)

    def alike(self, level: float) -> bool:
        """Whether there is enough evidence that the two cannot be told apart."""
        if self.contrast is None or self.nearest_tvd > ALIKE_TVD:
            return False
        return self.p_adjusted > level and self.contrast.interval[1] <= ALIKE_TVD

    @property
    def unimodality(self) -> float:
        """p-value of "no valley between the two"."""
        return math.nan if self.blurred_contrast is None else self.blurred_contrast.unimodality


class Decision(NamedTuple):
    """Whether to merge, why, and how much speaks against it.

    Should too many clusters remain, the pair with the weakest objection is merged first.
    """

    merge: bool
    why: str
    objection: float = 0.0


class Rule(Protocol):
    """Says which pairs may be merged.

    ``reach`` is how many nearest clusters of each are compared with it; None for all.
    """

    @property
    def reach(self) -> int | None:
        """How far to look."""

    @property
    def ending(self) -> str:
        """Why merging ended when no pair was left."""

    def judge(self, pair: Pair) -> Decision:
        """May this pair be merged?"""


@dataclass(frozen=True)
class Always:
    """Every pair may be merged: the number of clusters decides."""

    ending = "one cluster is left"
    reach = None

    def judge(self, pair: Pair) -> Decision:
        """Yes."""
        return Decision(True, "closest pair")


@dataclass(frozen=True)
class MaxTVD:
    """Merge pairs whose total variation distance is at most ``limit``."""

    limit: float
    reach = None

    @property
    def ending(self) -> str:
        """Why merging ended."""
        return f"every pair has a TVD above {self.limit:g}"

    def judge(self, pair: Pair) -> Decision:
        """Compare the TVD with the limit."""
        return Decision(pair.tvd <= self.limit, f"TVD {pair.tvd:.3f}, limit {self.limit:g}")


@dataclass(frozen=True)
class Alpha:
    """Merge pairs whose difference is not significant at ``level`` after adjustment."""

    level: float
    reach = None

    @property
    def ending(self) -> str:
        """Why merging ended."""
        return f"every pair differs significantly (adjusted p ≤ {self.level:g})"

    def judge(self, pair: Pair) -> Decision:
        """Compare the adjusted p-value with the level."""
        p = pair.p_adjusted
        return Decision(p > self.level, f"adjusted p {p:.2g} of one distribution")


@dataclass(frozen=True)
class Auto:
    """The rule when none is given, pair by pair.

    What cannot be told apart is merged.  If one of the two was split at random, parts of one whole
    could not be told apart, so these two are different.  Otherwise every pair differs, because
    clusters were cut out of the same features; then two are one if the graph of neighbours
    connects them as it connects parts of one, or, where there is no graph, if they meet without a
    valley.  Only near pairs are asked about: of many far pairs some would pass by chance.

    ``by`` says what decides about most pairs: how far to look, and what is said at the end.
    """

    by: str
    level: float = 0.05

    @property
    def reach(self) -> int | None:
        """Ten; but all that are neighbours at all, if neighbours decide."""
        return None if self.by == NEIGHBOURS else 10

    @property
    def ending(self) -> str:
        """Why merging ended."""
        if self.by == TESTS:
            return f"all near pairs differ significantly (adjusted p ≤ {self.level:g})"
        if self.by == NEIGHBOURS:
            return "all near pairs have too few neighbours in common, or a neck between them"
        return f"all near pairs have a valley between them (dip p < {self.level:g})"

    def judge(self, pair: Pair) -> Decision:
        """Ask the test, then the neighbours or the valley."""
        if pair.size == BOTH_SMALL:
            return Decision(
                False, "too few observations of both to say anything", objection=math.inf
            )
        if pair.size == AT_HOME:
            return Decision(True, BY_NETWORK)
        if pair.size is not None and pair.connection is None:
            return Decision(False, "too few observations to say anything", objection=math.inf)
        if pair.alike(self.level):
            return Decision(True, f"cannot be told apart: adjusted p {pair.p_adjusted:.2g}")
        if pair.connection is not None:
            return Decision(pair.connection.strength >= 1, pair.connection.why)
        if pair.at_random:
            return Alpha(self.level).judge(pair)
        decision = Alpha(self.level).judge(pair)
        return decision if decision.merge else self._by_valley(pair)

    def _by_valley(self, pair: Pair) -> Decision:
        p = pair.unimodality
        merge = p >= self.level
        why = f"{'no valley' if merge else 'valley'} between: dip p {p:.2g}"
        return Decision(merge, why, objection=-p)


@dataclass(frozen=True)
class WithinBatches:
    """A rule for clusters of which some share no batch: those are kept apart, whatever it says.

    Nothing is known about them, until one is merged with others that occur in the other's batches.
    """

    rule: Rule

    @property
    def reach(self) -> int | None:
        """As far as the rule looks."""
        return self.rule.reach

    @property
    def ending(self) -> str:
        """Why merging ended."""
        return f"{self.rule.ending} or have no batch in common"

    def judge(self, pair: Pair) -> Decision:
        """Ask the rule if there is something to ask it about."""
        if pair.contrast is not None and not pair.contrast.comparable:
            return Decision(False, "no batch in common", objection=math.inf)
        return self.rule.judge(pair)


@dataclass(frozen=True, eq=False)
class SameGroup:
    """Merge within groups that are already known; ``groups`` has one for each initial cluster."""

    groups: Index
    ending = "only different spectral groups are left"
    reach = None

    def judge(self, pair: Pair) -> Decision:
        """Are both sides in one group?"""
        left, right = self.groups[pair.a], self.groups[pair.b]
        return Decision(bool(left == right), f"spectral groups {left} and {right}")
