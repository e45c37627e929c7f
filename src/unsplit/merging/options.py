"""The options of a merge and its constraints, checked before any training."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from unsplit.errors import (
    InputError,
    check_choice,
    check_type,
    is_number,
    is_whole,
    option,
    shown,
)
from unsplit.merging.answers import DIFFERENT, SAME, Answer, read_answers
from unsplit.merging.decision import Rule
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.pairwise.divergences import DIVERGENCES

# The mean rank of a pair by overlap and by edges.
OVERLAP_AND_EDGES = "overlap and edges"
NEED_NEIGHBOURS = ("edges", OVERLAP_AND_EDGES)
RANKINGS = ("auto", *NEED_NEIGHBOURS, *DIVERGENCES)
# Where the labels come from: computed from the features that are compared, or not.
CLUSTERING, ELSEWHERE = "clustering", "elsewhere"
LABELS_FROM = ("auto", CLUSTERING, ELSEWHERE)
# Overlap needs all pairs.  What ranks pairs of a sparse estimate instead.
WITHOUT_OVERLAP = {"overlap": "lecam", OVERLAP_AND_EDGES: "edges"}

Link = Sequence[Any]
LINKS = ("must_link", "cannot_link")


@dataclass(frozen=True, eq=False)
class Constraints:
    """Links between initial clusters, as indices, and bounds on the number of clusters.

    Parameters
    ----------
    must : list of (int, int)
        Pairs that are merged first.
    cannot : list of (int, int)
        Pairs that must not be merged.
    fewest, most : int
        Bounds on the number of clusters left.
    """

    must: list[tuple[int, int]]
    cannot: list[tuple[int, int]]
    fewest: int
    most: int


# What refined labels do about initial clusters that lie across a gap.
IGNORE, CUT, KEEP_NUMBER = GAPS = ("ignore", "cut", "keep number")


@dataclass(frozen=True)
class MergeOptions:
    """The options of :func:`unsplit.merge`, under the same names, checked when they are made."""

    n_clusters: int | Sequence[int | None] | None = None
    max_tvd: float | None = None
    alpha: float | None = None
    rank_by: str = "auto"
    must_link: Sequence[Link] = ()
    cannot_link: Sequence[Link] = ()
    rule: Rule | None = None
    labels_from: str = "auto"
    # Of a review; the tree remembers them.
    answers: tuple[Answer, ...] = ()

    def __post_init__(self) -> None:
        check_choice("rank_by", self.rank_by, RANKINGS)
        check_choice("labels_from", self.labels_from, LABELS_FROM)
        self._check_rules()
        if self.labels_from != "auto" and not self.asks_neighbours:
            raise InputError(
                f"{option('labels_from', self.labels_from)} has no effect with "
                f"{option('max_tvd')}, {option('alpha')}, a rule of yours or a ranking by edges, "
                "which do not ask where labels come from; leave it out."
            )

    def _check_rules(self) -> None:
        names = ("n_clusters", "max_tvd", "alpha", "rule")
        chosen = [name for name in names if getattr(self, name) is not None]
        if self.is_pair:
            chosen.remove("n_clusters")
        if len(chosen) > 1:
            two = " and ".join(map(option, chosen))
            raise InputError(f"{two} are two stopping rules; choose one.")
        for name in ("max_tvd", "alpha"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and 0 <= value <= 1):
                raise InputError(f"{option(name)} must lie between 0 and 1, got {shown(value)}.")
        if self.rule is not None and not callable(getattr(self.rule, "judge", None)):
            raise InputError(
                f"rule must be an object with a method judge(pair), got {shown(self.rule)}; see "
                "unsplit.merging.decision for examples."
            )

    def gaps(self, strategy: str) -> str:
        """What :func:`unsplit.refine` does about gaps after a merge by this strategy of the tree.

        Clusters are cut only where the neighbour graph has merged them and nothing else was asked
        for: a limit, a rule or links of the user would not hold for parts.
        """
        told = any(value is not None for value in (self.max_tvd, self.alpha, self.rule))
        linked = self.must_link or self.cannot_link or self.answers
        if strategy != "neighbours" or linked or told or self.is_pair:
            return IGNORE
        return CUT if self.n_clusters is None else KEEP_NUMBER

    @property
    def is_pair(self) -> bool:
        """Whether ``n_clusters`` are bounds (fewest, most), and no number that is requested."""
        n = self.n_clusters
        return isinstance(n, Sequence) and not isinstance(n, str | bytes) and len(n) == 2

    @property
    def number(self) -> int | None:
        """The requested number of clusters, if there is one."""
        return None if self.is_pair else self.n_clusters  # type: ignore[return-value]

    def constraints(self, cluster_ids: NDArray[Any]) -> Constraints:
        """Links and bounds for these clusters, or an error that says why there can be none."""
        k = len(cluster_ids)
        fewest, most = self._bounds(k)
        same = [(*a.left, *a.right) for a in self.answers if a.answer == SAME]
        different = [product(a.left, a.right) for a in self.answers if a.answer == DIFFERENT]
        known = {str(name): index for index, name in enumerate(cluster_ids.tolist())}
        must = _indices("must_link", self.must_link, known)
        must += _indices("constraints", same, known)
        cannot = _indices("cannot_link", self.cannot_link, known)
        cannot += _indices("constraints", chain.from_iterable(different), known)
        joined = [pair for link in must for pair in pairwise(link)]
        apart = [pair for link in cannot for pair in combinations(link, 2)]
        n_left = self._without_contradiction(joined, apart, cluster_ids)
        if n_left < fewest:
            raise InputError(
                f"{option('must_link')} leaves {n_left} clusters, fewer than the {fewest} "
                "requested; drop a link or request fewer clusters."
            )
        return Constraints(joined, apart, fewest, most)

    def _bounds(self, k: int) -> tuple[int, int]:
        """The fewest and the most of k clusters to leave."""
        n: Any = self.n_clusters
        fewest, most = n if self.is_pair else (n, n)
        for bound in (fewest, most):
            if bound is not None and not (is_whole(bound) and 1 <= bound <= k):
                raise InputError(
                    f"{option('n_clusters')} must be a whole number from 1 to {k}, the number of "
                    f"initial clusters, or a pair (fewest, most), got {shown(n)}."
                )
        fewest, most = 1 if fewest is None else int(fewest), k if most is None else int(most)
        if fewest > most:
            raise InputError(
                f"{option('n_clusters')} asks for at least {fewest} and at most {most} clusters; "
                "swap the two numbers."
            )
        return fewest, most

    def _without_contradiction(
        self, joined: list[tuple[int, int]], apart: list[tuple[int, int]], ids: NDArray[Any]
    ) -> int:
        """How many clusters the links leave, unless they both join a pair and keep it apart."""
        ends = np.array(joined, np.int64).reshape(-1, 2).T
        linked = csr_array((np.ones(len(joined)), ends), (len(ids), len(ids)))
        n_left, group = connected_components(linked, directed=False)
        for a, b in apart:
            if group[a] == group[b]:
                raise InputError(
                    f"{ids[a]} and {ids[b]} are to be kept apart ({option('cannot_link')}, or an "
                    f"answer), but {option('must_link')} or other answers join them; drop one of "
                    "these links."
                )
        return int(n_left)

    def with_constraints(
        self, constraints: "str | os.PathLike[str] | Mapping[str, Any] | None"
    ) -> "MergeOptions":
        """The same options with links, or with the answers of a review, or with both."""
        if constraints is None:
            return self
        known: Any = constraints
        if not isinstance(constraints, Mapping) or "format" in constraints:
            known = {"answers": constraints}
        if not known or known.keys() - {*LINKS, "answers"}:
            raise InputError(
                "constraints must be a file of answers, or a mapping with must_link and "
                f"cannot_link, got {shown(constraints)}; pass for example "
                '{"must_link": [(3, 7)]}.'
            )
        for name in LINKS:
            links = known.get(name, ())
            if isinstance(links, (str, bytes, Mapping)) or not isinstance(links, Iterable):
                raise InputError(
                    f"{option(name)} must be a list of pairs of cluster names, got {shown(links)}; "
                    "pass a list such as [(3, 7)]."
                )
        answers = read_answers(known["answers"]) if "answers" in known else ()
        joined, apart = (tuple(known.get(name, ())) for name in LINKS)
        return replace(self, answers=answers, must_link=joined, cannot_link=apart)

    @property
    def asks_neighbours(self) -> bool:
        """Whether *auto* may decide, so that a neighbour graph is made if none was passed."""
        told = any(choice is not None for choice in (self.max_tvd, self.alpha, self.rule))
        return not told and self.rank_by not in NEED_NEIGHBOURS

    def check_sparse(self) -> None:
        """Refuse options that need all pairs, if only confused pairs are stored."""
        if self.rank_by not in WITHOUT_OVERLAP:
            return
        raise InputError(
            f"{option('rank_by', self.rank_by)} needs the distances of all pairs, and of so many "
            "clusters only those are kept that are ever confused (a sparse estimate); use "
            f"{option('rank_by', WITHOUT_OVERLAP[self.rank_by])}, or unsplit.pairwise_tvd with "
            'form="dense" if its matrices fit into memory.'
        )

    def check_input(self, has_scores: bool, has_neighbours: bool) -> None:
        """Refuse options that need more than there is."""
        knows_when = any(choice is not None for choice in (self.number, self.max_tvd, self.rule))
        if not knows_when and not has_scores:
            raise InputError(
                f"{option('n_clusters')} or {option('max_tvd')} is required for a plain matrix, "
                "which has no scores to test; pass one of them, or a PairwiseTVD."
            )
        if self.rank_by in NEED_NEIGHBOURS and not has_neighbours:
            raise InputError(
                f"{option('rank_by', self.rank_by)} needs neighbours; pass "
                "neighbours=unsplit.neighbour_graph(X, labels) with a PairwiseTVD."
            )


def check_same_clusters(cluster_ids: NDArray[Any], neighbours: NeighbourGraph | None) -> None:
    """Refuse a neighbour graph that was made from other labels than these clusters."""
    if neighbours is not None:
        check_type("neighbours", neighbours, NeighbourGraph, "make it with unsplit.neighbour_graph")
        if neighbours.n_clusters != len(cluster_ids):
            raise InputError(
                f"neighbours has {neighbours.n_clusters} clusters but distances has "
                f"{len(cluster_ids)}; make both from the same labels."
            )


def _indices(name: str, links: Iterable[Link], known: Mapping[str, int]) -> list[list[int]]:
    """Links of two clusters or more by their indices; ``name`` is the option that they are from."""
    found = []
    for link in links:
        several = isinstance(link, Collection) and not isinstance(link, str | bytes)
        if not several or len({str(cluster) for cluster in link}) < max(2, len(link)):
            raise InputError(
                f"{option(name)} must hold pairs of cluster names, got {shown(link)}; pass a list "
                "such as [(3, 7)]."
            )
        for cluster in link:
            if str(cluster) not in known:
                raise InputError(
                    f"{option(name)} names {shown(cluster)}, which is not a cluster; the clusters "
                    f"are {', '.join(list(known)[:8])}{', …' if len(known) > 8 else ''}."
                )
        found.append([known[str(cluster)] for cluster in link])
    return found
