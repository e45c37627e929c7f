"""What is reported of merges: records, pairs to check, why two clusters are together, how often."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from unsplit._typing import Index, Matrix
from unsplit.errors import InputError, shown
from unsplit.merging import decision, limits
from unsplit.merging.decision import PairEvidence, Reason, because, doubt, verdict, why


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
NUMBERS = (
    *("size_left", "size_right", "tvd", "low", "high", "p_adjusted"),
    *("edges", "times_chance", "neck", "strength", "stability"),
)
# Verdicts in order of urgency; the second place is that of decisions against the verdict.
RANKS = (decision.UNCLEAR, None, decision.PROBABLY_SAME, decision.DIFFERENT, decision.SAME)
# How pairs come about that a link or a number decides.
NOT_BY_RULE = (decision.MUST_LINK, decision.CANNOT_LINK, decision.NUMBER, decision.REACHED)


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
            return self.pair.verdict in (decision.SAME, decision.PROBABLY_SAME)
        return self.pair.verdict == decision.DIFFERENT

    @property
    def told(self) -> bool:
        """Whether a link, a cut or a requested number decided, not the rule."""
        stage = self.pair.stage
        cut = self.taken_apart if self.step is None else stage == decision.BEYOND
        any_pair = self.pair.reason == decision.CLOSEST
        return cut or any_pair or stage in NOT_BY_RULE

    @property
    def urgency(self) -> tuple[int, bool, float, float]:
        """Sort key: pairs to look at first are smallest, and the least certain come first.

        Pairs of tiny clusters are always unclear and come after those that a person can decide.
        """
        word, pair = self.pair.verdict, self.pair
        rank = RANKS.index(None if self.against_evidence else word)
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
    for name in NUMBERS:
        columns[name] = [getattr(pair, name) for pair in pairs]
    columns["new_left"] = [clusters[pair.left] for pair in pairs]
    columns["new_right"] = [clusters[pair.right] for pair in pairs]
    columns["step"] = [row.step for row in rows]
    for name in ("stage", "reason", "limit"):
        columns[name] = [getattr(pair, name) for pair in pairs]
    columns["why"] = [pair.why for pair in pairs]
    return columns


MOST_NAMES = 8


@dataclass(frozen=True)
class Explanation:
    """Why two initial clusters are together or apart.

    Parameters
    ----------
    a, b : str
        Their names.
    together : bool
        Whether they are in the same cluster of this cut.
    step : int
        The merge of the tree that joins them, made or not.
    left, right : tuple of str
        The initial clusters on both sides of the pair that was judged; ``a`` is on the left.
    pair : Merge
        The evidence about that pair.
    reason : str
        Why it was merged or kept apart, in words.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> found = tree.why(1, 2)
    >>> found.together, found.step, found.left, found.right
    (False, 1, ('0', '1'), ('2',))
    """

    a: str
    b: str
    together: bool
    step: int
    left: tuple[str, ...]
    right: tuple[str, ...]
    pair: Merge
    reason: str

    @property
    def verdict(self) -> str:
        """The evidence in a word: same, probably same, unclear or different."""
        return self.pair.verdict

    def __str__(self) -> str:
        where = "one cluster" if self.together else "different clusters"
        done = f"step {self.step} merged" if self.together else "kept apart"
        lines = [
            f"{self.a} and {self.b} are in {where}",
            f"{done}: {_listed(self.left)} and {_listed(self.right)}",
            f"reason: {self.reason}",
            f"verdict: {self.verdict}",
        ]
        if not math.isnan(self.pair.stability):
            lines.append(f"stability: together in {self.pair.stability:.0%} of the re-merges")
        if not self.together:
            lines.append(f"step {self.step} of the tree would merge them")
        return "\n  ".join(lines)


def explained(
    tree: Any, known: Mapping[frozenset[int], tuple[Merge, bool]], a: Any, b: Any
) -> Explanation:
    """Do what :meth:`unsplit.MergeTree.why` does.

    Parameters
    ----------
    tree : MergeTree
    known : mapping of sets of two nodes to pairs
        The pairs of which the evidence is known, and whether merging had merged them.
    a, b : str or int
        Names of two initial clusters.
    """
    leaves = _leaf(tree, "a", a), _leaf(tree, "b", b)
    if leaves[0] == leaves[1]:
        raise InputError(f"a and b are both cluster {shown(a)}; name two different clusters.")
    paths = [_path(tree, leaf) for leaf in leaves]
    step = min(set(paths[0]) & set(paths[1])) - tree.n_initial
    roots = [_root(tree, path) for path in paths]
    together = roots[0] == roots[1]
    # A pair of clusters of this cut, if it was compared; otherwise the pair that joins them.
    joining = frozenset((tree.merges[step].left, tree.merges[step].right))
    pair, was_merged = known.get(frozenset(roots), known[joining])
    if together:
        pair = tree.merges[step]
    sides = sorted((pair.left, pair.right), key=lambda node: leaves[0] not in _below(tree, node))
    names = [tuple(str(tree.cluster_ids[i]) for i in sorted(_below(tree, n))) for n in sides]
    reason = _reason(pair, together, was_merged and not together)
    return Explanation(str(a), str(b), together, step, names[0], names[1], pair, reason)


def _reason(pair: Merge, together: bool, taken_apart: bool) -> str:
    if pair.stage == decision.BEYOND:
        return f"{pair.because}; merged by this cut" if together else pair.because
    return f"{pair.why}; taken apart by a cut or an undo" if taken_apart else pair.why


def _leaf(tree: Any, name: str, cluster: Any) -> int:
    names = [str(one) for one in tree.cluster_ids.tolist()]
    if str(cluster) not in names:
        first = f"{', '.join(names[:MOST_NAMES])}{', …' if len(names) > MOST_NAMES else ''}"
        raise InputError(
            f"{name} names {shown(cluster)}, which is not a cluster of the tree; the clusters are "
            f"{first}."
        )
    return names.index(str(cluster))


def _path(tree: Any, leaf: int) -> list[int]:
    """A leaf and the nodes of the tree above it."""
    nodes = [leaf]
    for step, merge in enumerate(tree.merges):
        if nodes[-1] in (merge.left, merge.right):
            nodes.append(tree.n_initial + step)
    return nodes


def _root(tree: Any, path: list[int]) -> int:
    """The last node of a path that is part of this cut."""
    return [path[0], *(node for node in path[1:] if tree.taken[node - tree.n_initial])][-1]


def _below(tree: Any, node: int) -> set[int]:
    """The initial clusters in a node."""
    found, nodes = set(), [node]
    while nodes:
        node = nodes.pop()
        if node < tree.n_initial:
            found.add(node)
        else:
            merge = tree.merges[node - tree.n_initial]
            nodes += [merge.left, merge.right]
    return found


def _listed(names: tuple[str, ...]) -> str:
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return " + ".join([*names[:MOST_NAMES], *more])


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
    def sentence(self) -> str:
        """How many clusters the re-merges leave, in words."""
        least, most = min(self.numbers), max(self.numbers)
        span = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        clusters = "cluster" if most == 1 else "clusters"
        return f"{len(self.groups)} re-merges of resampled data leave {span} {clusters}"

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
