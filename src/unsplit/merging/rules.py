"""When to stop: may this pair still be merged?

Each rule looks at one pair at a time, closest first.  A pair it refuses waits until one of the two
has changed; merging ends when every pair is refused.  docs/stopping.md says what each assumes.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from unsplit.merging.contrast import Contrast
from unsplit.merging.evidence import Evidence
from unsplit.sampling import Index


@dataclass(frozen=True, eq=False)
class Candidate:
    """A pair of clusters that might be merged.

    Parameters
    ----------
    a, b : int
        Their slots.
    statistic : float
        What ranked the pair.
    n_pairs : int
        Pairs there were at the start.
    evidence, seen : Evidence or None
        The scores that are reported, and those in which a valley is looked for; both None for a
        plain matrix, and no valley is looked for where clusters overlap.
    """

    a: int
    b: int
    statistic: float
    n_pairs: int
    evidence: Evidence | None
    seen: Evidence | None

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
        return min(1.0, self.evidence.p_value(self.a, self.b) * self.n_pairs)

    @cached_property
    def border(self) -> Contrast | None:
        """Where a valley is looked for."""
        return None if self.seen is None else self.seen.contrast(self.a, self.b)

    @property
    def unimodality(self) -> float:
        """p-value of "no valley between the two"."""
        return math.nan if self.border is None else self.border.unimodality


class Ruling(NamedTuple):
    """Whether to merge, why, and how strong the case against it is.

    Should too many clusters remain, the weakest case goes first, then the closest pair.
    """

    merge: bool
    why: str
    case: float = 0.0


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

    def judge(self, pair: Candidate) -> Ruling:
        """May this pair be merged?"""


@dataclass(frozen=True)
class Always:
    """Every pair may be merged: the number of clusters decides."""

    ending = "one cluster is left"
    reach = None

    def judge(self, pair: Candidate) -> Ruling:
        """Yes."""
        return Ruling(True, "closest pair")


@dataclass(frozen=True)
class MaxTVD:
    """Merge pairs whose total variation distance is at most ``limit``."""

    limit: float
    reach = None

    @property
    def ending(self) -> str:
        """Why merging ended."""
        return f"every pair has a TVD above {self.limit:g}"

    def judge(self, pair: Candidate) -> Ruling:
        """Compare the TVD with the limit."""
        return Ruling(pair.tvd <= self.limit, f"TVD {pair.tvd:.3f}, limit {self.limit:g}")


@dataclass(frozen=True)
class Alpha:
    """Merge pairs whose difference is not significant at ``level`` after adjustment."""

    level: float
    reach = None

    @property
    def ending(self) -> str:
        """Why merging ended."""
        return f"every pair differs significantly (adjusted p ≤ {self.level:g})"

    def judge(self, pair: Candidate) -> Ruling:
        """Compare the adjusted p-value with the level."""
        p = pair.p_adjusted
        return Ruling(p > self.level, f"adjusted p {p:.2g} of one distribution")


@dataclass(frozen=True)
class Auto:
    """The rule when none is given: no significant difference, or no valley between.

    Where clusters overlap, a two-sample test is sound and decides alone.  Where they are cells of
    a partition, every pair differs by construction; then two that meet without a valley are one.
    Only neighbours are asked about: of many far pairs some would pass by chance.
    """

    partition: bool
    level: float = 0.05
    reach = 10

    @property
    def ending(self) -> str:
        """Why merging ended."""
        if self.partition:
            return f"all neighbours have a valley between (dip p < {self.level:g})"
        return f"all neighbours differ significantly (adjusted p ≤ {self.level:g})"

    def judge(self, pair: Candidate) -> Ruling:
        """Ask the test, then the valley."""
        ruling = Alpha(self.level).judge(pair)
        if ruling.merge or not self.partition:
            return ruling
        p = pair.unimodality
        merge = p >= self.level
        why = f"{'no valley' if merge else 'valley'} between: dip p {p:.2g}"
        return Ruling(merge, why, case=-p)


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

    def judge(self, pair: Candidate) -> Ruling:
        """Ask the rule if there is something to ask it about."""
        if pair.contrast is not None and not pair.contrast.comparable:
            return Ruling(False, "no batch in common", case=math.inf)
        return self.rule.judge(pair)


@dataclass(frozen=True, eq=False)
class SameGroup:
    """Merge within groups that are already known; ``groups`` has one for each initial cluster."""

    groups: Index
    ending = "only different spectral groups are left"
    reach = None

    def judge(self, pair: Candidate) -> Ruling:
        """Are both sides in one group?"""
        left, right = self.groups[pair.a], self.groups[pair.b]
        return Ruling(bool(left == right), f"spectral groups {left} and {right}")
