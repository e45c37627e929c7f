"""Where the evidence about a pair of clusters becomes a decision, and a verdict.

A rule looks at one pair at a time, closest first.  A pair that it refuses waits until one of its
clusters has changed; merging ends when every pair is refused.  docs/stopping.md says what each
rule assumes.  The verdict sums up the same evidence in a word, whatever was done.
"""

import math
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from unsplit._typing import Cluster, Index, Matrix, Node
from unsplit.merging import limits
from unsplit.merging.neighbours.evidence import Connection, Neighbourhoods
from unsplit.merging.pairs import Contrast, Mixtures
from unsplit.pairwise.statistics import adjust_for_pairs

# --- what is known about a pair -------------------------------------------------------------------

# What decides about most pairs.
TESTS, NEIGHBOURS = "tests", "neighbours"


@dataclass(frozen=True, eq=False)
class Pair:
    """A pair of clusters that might be merged.

    Parameters
    ----------
    a, b : int
        The two, by their first members.
    statistic : float
        What ranked the pair.
    n_pairs : int
        Number of pairs of initial clusters that may be equal
        (:attr:`unsplit.PairwiseTVD.n_possibly_equal`).
    evidence : Mixtures or None
        The held-out scores; None for a plain matrix.
    neighbourhoods : Neighbourhoods or None
        Evidence from the neighbour graph.
    at_random : bool
        Whether one of the two was split at random, so that the test for a difference decides alone.
    nearest_tvd : float
        Smallest TVD between an initial cluster of one and an initial cluster of the other.
    smaller, larger : int
        Observations in the smaller and in the larger of the two.
    size : str, optional
        BOTH_SMALL, ONE_SMALL or ASSIGNED if one of the two is too small to hold out observations;
        in the last case the network assigns it to the other.
    p_value : float, optional
        p-value of "same distribution", if it need not be computed.
    """

    a: Cluster
    b: Cluster
    statistic: float
    n_pairs: int
    evidence: Mixtures | None
    neighbourhoods: Neighbourhoods | None = None
    at_random: bool = False
    nearest_tvd: float = 0.0
    smaller: int = sys.maxsize
    larger: int = sys.maxsize
    size: str | None = None
    p_value: float | None = None

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
        p = self.p_value
        if p is None:
            p = math.nan if self.contrast is None else self.contrast.p_value
        return float(adjust_for_pairs(p, self.n_pairs))

    @cached_property
    def connection(self) -> Connection | None:
        """How the neighbour graph connects the two; None where that is not considered."""
        if self.neighbourhoods is None or (self.at_random and self.decided_by_test):
            return None
        return self.neighbourhoods.connection(self.a, self.b)

    @property
    def decided_by_test(self) -> bool:
        """Whether the test finds the two different, or alike, and not just too small to say."""
        return self.size is None and (self.p_adjusted <= limits.LEVEL or self.alike(limits.LEVEL))

    @property
    def overruled(self) -> bool:
        """Whether the TVD is large and the neighbours are too few to say otherwise.

        A strong connection of a small cluster still counts: its edges are no accident.  It does
        not if the neighbours are those of the network's scores, which then contradict themselves.
        """
        if self.connection is None or self.contrast is None:
            return False
        if self.smaller >= limits.FEWEST_TO_OVERRULE:
            return False
        if self.connection.of_scores:
            return self.contrast.tvd >= limits.LARGE_TVD
        weak = self.connection.strength < limits.OVERRULING
        return weak and self.contrast.interval[0] >= limits.LARGE_TVD

    def alike(self, level: float) -> bool:
        """Whether no difference is significant and the TVD cannot be large."""
        if self.contrast is None or self.nearest_tvd > limits.LARGE_TVD:
            return False
        return self.p_adjusted > level and self.contrast.interval[1] <= limits.LARGE_TVD


# --- reasons and decisions ------------------------------------------------------------------------

# Kinds of reasons.  What a reason compares with a limit is in brackets.
ALIKE = "alike"  # no difference is significant, and the TVD cannot be large (p)
SIGNIFICANCE = "significance"  # whether the two differ significantly (p)
MAX_TVD = "max_tvd"  # (TVD)
GRAPH = "graph"  # how strongly the neighbour graph connects the two (strength)
OVERRULED = "overruled"  # the TVD is large, and one has too few neighbours to say otherwise
UNDECIDED = "undecided"  # the TVD is large, but of too few observations to be significant
BOTH_SMALL, ONE_SMALL, ASSIGNED = "both small", "one small", "assigned"  # to hold out observations
NO_SHARED_BATCH = "no shared batch"
ONE_GROUP = "one group"  # of observations that are not independent
CLOSEST = "closest"  # every pair may be merged, and this one was next
UNCONNECTED = "unconnected"  # nothing is known, and something must be joined
NOT_ASKED = "not asked"  # no rule has looked at the pair
# Too few observations to decide, or too few groups of them.
TOO_FEW = frozenset((OVERRULED, UNDECIDED, BOTH_SMALL, ONE_SMALL, ONE_GROUP))
USERS_RULE = "rule"  # what a rule of the user says, in its own words

# How a merge came about, or why a pair was kept apart.
BY_RULE = "rule"
MUST_LINK, CANNOT_LINK = "must_link", "cannot_link"
NUMBER = "number"  # merged to reach the requested number of clusters
REACHED = "number reached"  # the rule would merge them, but there were few enough clusters
BEYOND = "beyond"  # the merge only completes the tree
OUT_OF_REACH = "out of reach"  # the rule was not asked in time
STAGES = (BY_RULE, MUST_LINK, CANNOT_LINK, NUMBER, REACHED, BEYOND, OUT_OF_REACH)


class Reason(NamedTuple):
    """Why a rule merges a pair or refuses it.

    Parameters
    ----------
    kind : str
        One of :data:`REASONS`.
    limit : float
        What the evidence was compared with; NaN if with nothing.
    note : str
        The words of a rule of the user; otherwise empty.
    """

    kind: str
    limit: float = math.nan
    note: str = ""


@dataclass(frozen=True)
class Decision:
    """Whether to merge, why, and how strong the objection is.

    If too many clusters remain, the pair with the weakest objection is merged first.

    Parameters
    ----------
    merge : bool
    reason : Reason or str
        A rule of yours may give its reason as text.
    objection : float

    Examples
    --------
    >>> Decision(False, "of different donors").reason
    Reason(kind='rule', limit=nan, note='of different donors')
    """

    merge: bool
    reason: Any  # a Reason as soon as the decision is made
    objection: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.reason, Reason):
            object.__setattr__(self, "reason", Reason(USERS_RULE, note=str(self.reason)))


# Kinds of endings besides those kinds of reasons for which a rule refuses every pair.
ONE_LEFT, REQUESTED, AT_LEAST = "one left", "requested", "at least"
CUT_AT_NUMBER, CUT_AT_HEIGHT = "cut at a number", "cut at a height"


class Ending(NamedTuple):
    """Why merging stopped.

    Parameters
    ----------
    kind : str
        One of :data:`ENDINGS`.
    number : float
        The number of clusters, the height of the cut, or the limit of the rule; NaN for none.
    note : str
        The words of a rule of the user; otherwise empty.
    nearby : bool
        Whether only nearby clusters were compared.
    batches, links, too_few : bool
        Whether pairs may also be left because they share no batch, because of ``cannot_link``, or
        because they have too few observations to decide.
    undone : tuple of int
        Merges that were undone later.
    """

    kind: str
    number: float = math.nan
    note: str = ""
    nearby: bool = False
    batches: bool = False
    links: bool = False
    too_few: bool = False
    undone: tuple[int, ...] = ()


# --- records of pairs -----------------------------------------------------------------------------


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
        How it came about: one of :data:`STAGES`.
    reason : str
        What the rule decided by: one of :data:`REASONS`.
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

    left: Node
    right: Node
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
        return STAGES_IN_WORDS.get(self.stage, "{}").replace("{}", self.because)

    @property
    def because(self) -> str:
        """What the rule says of the two, in words."""
        return because(Reason(self.reason, self.limit, self.note), self)

    @property
    def verdict(self) -> str:
        """The evidence in a word: same, probably same, different, or unclear if nothing is known.

        Neighbours alone never say "same": of the pairs they were surest about, a few in a hundred
        were of two groups (docs/stopping.md).
        """
        by_test = _by_test(self.low, self.high, self.p_adjusted)
        if math.isnan(self.strength):
            return by_test
        return min(by_test, _by_neighbours(self), key=WORDS.index)

    @property
    def distance(self) -> float:
        """The TVD; of a plain matrix what it holds."""
        return self.statistic if math.isnan(self.tvd) else self.tvd


@dataclass(frozen=True, eq=False, repr=False)
class Stability:
    """Re-merges of the same initial clusters, each with another part of the observations.

    Parameters
    ----------
    groups : ndarray of shape (r, k)
        New cluster of every initial one in each of r re-merges, numbered from 0.

    Examples
    --------
    >>> two = Stability(np.array([[0, 0, 1], [0, 1, 2]]))
    >>> two.shares[0]
    array([1. , 0.5, 0. ])
    >>> two.numbers
    {2: 1, 3: 1}
    >>> two
    Stability: 2 re-merges of resampled data leave 2 to 3 clusters
    """

    groups: Index

    def __post_init__(self) -> None:
        self.groups.flags.writeable = False

    def __repr__(self) -> str:
        return f"Stability: {self.sentence}"

    @cached_property
    def numbers(self) -> dict[int, int]:
        """How many re-merges leave each number of clusters."""
        return dict(sorted(Counter((self.groups.max(axis=1) + 1).tolist()).items()))

    @property
    def span(self) -> str:
        """The fewest and the most clusters that the re-merges leave."""
        least, most = min(self.numbers), max(self.numbers)
        return f"{most:,}" if least == most else f"{least:,} to {most:,}"

    @property
    def sentence(self) -> str:
        """How many clusters the re-merges leave, in words."""
        clusters = "cluster" if max(self.numbers) == 1 else "clusters"
        return f"{len(self.groups)} re-merges of resampled data leave {self.span} {clusters}"

    @cached_property
    def shares(self) -> Matrix:
        """Share of the re-merges in which two initial clusters are together, shape (k, k)."""
        k = self.groups.shape[1]
        found = np.zeros((k, k))
        for groups in self.groups:
            found += groups[:, None] == groups
        return found / len(self.groups)

    def between(self, left: list[int], right: list[int], sizes: Index) -> float:
        """Mean share of all pairs of an initial cluster of one side and one of the other.

        Parameters
        ----------
        left, right : lists of int
            The initial clusters of both sides.
        sizes : ndarray of shape (k,)
            Number of observations in each; larger clusters count more.
        """
        weights = np.outer(sizes[left], sizes[right])
        share = float(np.average(self.shares[np.ix_(left, right)], weights=weights))
        return min(1.0, round(share, 6))


# --- reasons and endings in English ---------------------------------------------------------------

# Reasons that need no numbers.
PLAIN = {
    BOTH_SMALL: "both clusters have too few observations to compare",
    ONE_SMALL: "one cluster has too few observations to compare",
    ASSIGNED: "too few observations to compare; the network assigns them to this cluster",
    NO_SHARED_BATCH: "no batch has at least two observations of each",
    ONE_GROUP: "one cluster is a single group, so no other group can say whether they differ",
    CLOSEST: "closest pair",
    UNCONNECTED: "nothing connects what is left, so it is joined, largest first",
    NOT_ASKED: "no rule was asked",
}
REASONS = (ALIKE, SIGNIFICANCE, MAX_TVD, GRAPH, OVERRULED, UNDECIDED, USERS_RULE, *PLAIN)
ENDINGS = (ONE_LEFT, REQUESTED, AT_LEAST, CUT_AT_NUMBER, CUT_AT_HEIGHT, *REASONS)

# What is added to the reason, by how a merge came about.
STAGES_IN_WORDS = {
    MUST_LINK: "required by must_link",
    CANNOT_LINK: "kept apart by cannot_link",
    NUMBER: "{}; merged to reach the requested number of clusters",
    REACHED: "the requested number of clusters was reached",
    BEYOND: "beyond the cut: {}",
    OUT_OF_REACH: "too far from each other to be compared",
}


def because(reason: Reason, known: Merge) -> str:
    """Say what a rule found about a pair."""
    if reason.kind == GRAPH:
        return _connected(known, reason.limit)
    if reason.kind == OVERRULED:
        strength = f"strength {told_apart(known.strength, reason.limit)[0]}"
        least = f"merged from {reason.limit:g} on" if math.isfinite(reason.limit) else "not counted"
        return (
            f"cannot decide: TVD {known.distance:.2f}, and too few observations to overrule it "
            f"({strength}, {least})"
        )
    if reason.kind == UNDECIDED:
        return (
            f"cannot decide: TVD {known.distance:.2f}, but too few observations for a significant "
            f"difference (adjusted p {known.p_adjusted:.2g})"
        )
    if reason.kind == MAX_TVD:
        side = "at most" if known.distance <= reason.limit else "above"
        return f"TVD {known.distance:.3f} is {side} {reason.limit:g}"
    if reason.kind in (SIGNIFICANCE, ALIKE):
        found = "no significant" if known.p_adjusted > reason.limit else "significant"
        most = f", TVD at most {known.high:.2f}" if reason.kind == ALIKE else ""
        return f"{found} difference: adjusted p {known.p_adjusted:.2g}{most}"
    return reason.note if reason.kind == USERS_RULE else PLAIN[reason.kind]


def stopped(ending: Ending) -> str:
    """Say why merging stopped, as a clause that can follow "because".

    Examples
    --------
    >>> stopped(Ending(REQUESTED, 3)), stopped(Ending(MAX_TVD, 0.2, links=True))
    ('3 clusters were requested', 'every remaining pair has a TVD above 0.2 or is kept apart by cannot_link')
    """  # noqa: E501
    undone = "".join(f"; merge {step} was undone" for step in ending.undone)
    also = " or has no batch with two observations of each" if ending.batches else ""
    also += " or is kept apart by cannot_link" if ending.links else ""
    also += " or has too few observations to decide" if ending.too_few else ""
    return f"{_ended(ending)}{also}{undone}"


def _ended(ending: Ending) -> str:
    number = f"{ending.number:g}" if ending.kind in (CUT_AT_HEIGHT, MAX_TVD) else ""
    if ending.kind in (REQUESTED, AT_LEAST, CUT_AT_NUMBER):
        number = f"{ending.number:.0f} cluster{'' if ending.number == 1 else 's'}"
    if ending.kind == SIGNIFICANCE:
        of = " of nearby clusters" if ending.nearby else ""
        return f"every remaining pair{of} differs significantly (adjusted p ≤ {ending.number:g})"
    return {
        ONE_LEFT: "only one cluster is left",
        REQUESTED: f"{number} were requested",
        AT_LEAST: f"at least {number} were requested",
        CUT_AT_NUMBER: f"the tree was cut at {number}",
        CUT_AT_HEIGHT: f"the tree was cut at height {number}",
        MAX_TVD: f"every remaining pair has a TVD above {number}",
        GRAPH: "every remaining pair is too weakly connected in the neighbour graph",
        CLOSEST: "no pair is left to merge",
    }.get(ending.kind, ending.note)


def _connected(known: Merge, limit: float) -> str:
    if known.edges == 0:
        return "no edge between them in the neighbour graph"
    how = "strongly" if known.strength >= limit else "weakly"
    strength, least = told_apart(known.strength, limit)
    edges = f"{known.edges:,.0f} edge{'' if known.edges == 1 else 's'}"
    return f"{how} connected: strength {strength}, merged from {least} on ({edges})"


def told_apart(value: float, limit: float) -> tuple[str, str]:
    """Write two numbers with two digits, or with as many as it takes to tell them apart.

    Examples
    --------
    >>> told_apart(0.084, 1.0), told_apart(0.9987, 1.0), told_apart(130.0, 1.0)
    (('0.084', '1'), ('0.999', '1'), ('130', '1'))
    """
    if value >= 10:
        return f"{value:,.0f}", f"{limit:g}"
    written = [(f"{value:.{n}g}", f"{limit:.{n}g}") for n in range(2, 16)]
    return next((texts for texts in written if texts[0] != texts[1]), written[0])


# --- rules ----------------------------------------------------------------------------------------


class Rule(Protocol):
    """Decides which pairs may be merged."""

    @property
    def reach(self) -> int | None:
        """How many of its nearest clusters each cluster is compared with; None for all."""

    @property
    def ending(self) -> Ending:
        """Why merging stopped, if every remaining pair was refused."""

    def judge(self, pair: Pair) -> Decision:
        """May this pair be merged?"""


@dataclass(frozen=True)
class UsersRule:
    """A rule of the user, which need not say more than what it thinks of a pair."""

    rule: Any

    @property
    def reach(self) -> int | None:
        """All clusters, unless the rule says otherwise."""
        return getattr(self.rule, "reach", None)

    @property
    def ending(self) -> Ending:
        """What the rule says, if anything; it may be text."""
        said = getattr(self.rule, "ending", "the rule allows no further merge")
        return said if isinstance(said, Ending) else Ending(USERS_RULE, note=str(said))

    def judge(self, pair: Pair) -> Decision:
        """Ask the rule; anything with ``merge`` and ``why`` is an answer."""
        said = self.rule.judge(pair)
        if isinstance(said, Decision):
            return said
        return Decision(bool(said.merge), said.why, getattr(said, "objection", 0.0))


@dataclass(frozen=True)
class Always:
    """Allow every pair, because the number of clusters decides when to stop."""

    kind: str = CLOSEST  # of the reason
    ending = Ending(CLOSEST)
    reach = None

    def judge(self, pair: Pair) -> Decision:
        """Allow the pair."""
        return Decision(True, Reason(self.kind))


@dataclass(frozen=True)
class MaxTVD:
    """Merge pairs whose total variation distance is at most ``limit``."""

    limit: float
    reach = None

    @property
    def ending(self) -> Ending:
        """Why merging ended."""
        return Ending(MAX_TVD, self.limit)

    def judge(self, pair: Pair) -> Decision:
        """Compare the TVD with the limit."""
        return Decision(pair.tvd <= self.limit, Reason(MAX_TVD, self.limit))


@dataclass(frozen=True)
class Alpha:
    """Merge pairs whose difference is not significant at ``level`` after adjustment.

    A large TVD that is not significant is one of too few observations, and merges nothing, unless
    some of the initial clusters in the two are closer to each other.
    """

    level: float
    reach = None

    @property
    def ending(self) -> Ending:
        """Why merging ended."""
        return Ending(SIGNIFICANCE, self.level)

    def judge(self, pair: Pair) -> Decision:
        """Compare the adjusted p-value with the level."""
        significant = pair.p_adjusted <= self.level
        if not significant and min(pair.tvd, pair.nearest_tvd) > limits.LARGE_TVD:
            return Decision(False, Reason(UNDECIDED, limits.LARGE_TVD))
        return Decision(not significant, Reason(SIGNIFICANCE, self.level))


@dataclass(frozen=True)
class Auto:
    """The rule that applies when the user names none.

    Clusters that cannot be told apart are merged.  If one of the two was split at random and they
    can be told apart, they are different.  Otherwise the clusters were cut out of the same
    features, so that every pair differs, or they are too small for a test; such a pair is merged if
    the neighbour graph connects the two like parts of one cluster.  If the TVD is surely large and
    one of the two has fewer than 15 observations, they must be connected more strongly.
    Without a graph the test decides alone, as :class:`Alpha` does, and only nearby pairs are
    compared.

    Parameters
    ----------
    by : str
        What decides about most pairs; it sets ``reach`` and ``ending``.
    """

    by: str

    @property
    def reach(self) -> int | None:
        """The ten nearest; all, if the neighbour graph decides."""
        return None if self.by == NEIGHBOURS else limits.REACH

    @property
    def ending(self) -> Ending:
        """Why merging ended."""
        if self.by == NEIGHBOURS:
            return Ending(GRAPH, limits.MERGED_FROM)
        return Ending(SIGNIFICANCE, limits.LEVEL, nearby=True)

    def judge(self, pair: Pair) -> Decision:
        """Test for a difference first, then look at the neighbours."""
        if pair.size == ASSIGNED:
            return Decision(True, Reason(ASSIGNED))
        if pair.size == BOTH_SMALL or (pair.size is not None and pair.connection is None):
            return Decision(False, Reason(pair.size), objection=math.inf)
        if pair.alike(limits.LEVEL):
            return Decision(True, Reason(ALIKE, limits.LEVEL))
        if pair.overruled:
            of_scores = pair.connection is not None and pair.connection.of_scores
            limit = math.nan if of_scores else limits.OVERRULING
            return Decision(False, Reason(OVERRULED, limit))
        if pair.connection is not None:
            connected = pair.connection.strength >= limits.MERGED_FROM
            return Decision(connected, Reason(GRAPH, limits.MERGED_FROM))
        return Alpha(limits.LEVEL).judge(pair)


@dataclass(frozen=True)
class WithinBatches(UsersRule):
    """Apply a rule to pairs that can be compared, and keep all other pairs apart.

    Clusters without a common batch cannot be compared until one of them is merged with a cluster
    that occurs in a batch of the other, and a cluster that is a single group until it is merged
    with another one.
    """

    otherwise: str = NO_SHARED_BATCH  # why a pair cannot be compared

    @property
    def ending(self) -> Ending:
        """Why merging ended."""
        return super().ending._replace(batches=self.otherwise == NO_SHARED_BATCH)

    def judge(self, pair: Pair) -> Decision:
        """Ask the rule if the two clusters can be compared."""
        if pair.contrast is not None and not pair.contrast.comparable:
            return Decision(False, Reason(self.otherwise), objection=math.inf)
        return super().judge(pair)


# --- verdicts -------------------------------------------------------------------------------------

SAME, PROBABLY_SAME, UNCLEAR, DIFFERENT = WORDS = ("same", "probably same", "unclear", "different")


def doubt(known: Merge) -> float:
    """Distance of the evidence from its limit on a log scale; 0 is as uncertain as can be."""
    if not math.isnan(known.strength):
        return abs(math.log(max(known.strength, 1e-300)))
    p = known.p_adjusted
    return 0.0 if math.isnan(p) else abs(math.log(max(p, 1e-300) / limits.LEVEL))


def _by_test(low: float, high: float, p: float) -> str:
    # Differences between tiny clusters are never significant among many pairs, however large.
    if low >= limits.LARGE_TVD or (low >= limits.LEAST_TVD and p < limits.CLEAR_P):
        return DIFFERENT
    if low >= limits.LEAST_TVD or p < limits.HINT_P:
        return UNCLEAR
    # "Not significant" does not mean "same": the difference must also be small at its largest.
    if high <= limits.SMALL_TVD:
        return SAME
    return PROBABLY_SAME if high <= limits.LARGE_TVD else UNCLEAR


def _by_neighbours(known: Merge) -> str:
    if known.strength < limits.WEAK:
        return UNCLEAR if known.stability > limits.SELDOM else DIFFERENT
    small = min(known.size_left, known.size_right) < limits.FEWEST_TO_OVERRULE
    few = small and known.strength < limits.OVERRULING
    if few or known.strength < limits.FAIR or known.stability < limits.ALWAYS:
        return UNCLEAR
    return PROBABLY_SAME
