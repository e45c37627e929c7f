"""The result of merging: a complete tree and its cut, and what is reported of its merges."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from unsplit._typing import Cluster, ClusterId, Index, Node
from unsplit.data.array_files import ContentCheck, load_arrays, save_arrays
from unsplit.data.labels import encode_labels, like, merged_names
from unsplit.data.saving import data_frame
from unsplit.errors import InputError, is_number, is_whole, option, shown
from unsplit.merging import decision, limits
from unsplit.merging.decision import BEYOND, CANNOT_LINK, Ending, Merge, Stability
from unsplit.merging.saved_merges import FORMAT, Answer, content_of_tree, fields_of_tree


def members_of_nodes(merges: Sequence[Merge], n_initial: int) -> list[list[Cluster]]:
    """The initial clusters in every node of the tree."""
    members = [[cluster] for cluster in range(n_initial)]
    for merge in merges:
        members.append(members[merge.left] + members[merge.right])
    return members


MERGED, APART = "merged", "kept apart"
NUMBERS = (
    *("size_left", "size_right", "tvd", "low", "high", "p_adjusted"),
    *("edges", "times_chance", "neck", "strength", "stability"),
)
OF_RULE = ("stage", "reason", "limit", "why")
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
    def by_request(self) -> bool:
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
        return (
            rank,
            tiny,
            decision.doubt(pair),
            pair.tvd if self.step is None else -pair.tvd,
        )


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


@dataclass(frozen=True, eq=False, repr=False)
class MergeTree:
    """The merges in order, where they stopped, and why.

    The tree is always complete; ``taken`` marks the merges that are part of the result.

    Parameters
    ----------
    cluster_ids : ndarray of shape (k,)
        The initial clusters' names, in the order of :class:`unsplit.PairwiseTVD`.
    sizes : ndarray of shape (k,)
        Number of observations in each.
    merges : tuple of k − 1 Merge
        All merges, in order.
    taken : ndarray of shape (k − 1,)
        Whether a merge is part of the result.
    n_forbidden : int
        How many of the last merges break a ``cannot_link``; they only complete the tree.
    apart : tuple of Merge
        Pairs that were left when merging stopped: each cluster with its ten nearest.
    answers : tuple of Answer
        The answers of a review that the merge obeyed, as they were given.
    statistic, strategy : str
        What ranked the pairs, and how they were merged.
    ending : Ending
        Why merging stopped; ``stopped`` says it in words.
    stability : Stability, optional
        Merges of resampled data; None if merging was not repeated.

    Examples
    --------
    >>> import unsplit
    >>> unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2).mapping
    {0: 0, 1: 0, 2: 1}
    """

    cluster_ids: NDArray[Any]
    sizes: Index
    merges: tuple[Merge, ...]
    taken: NDArray[np.bool_]
    statistic: str
    strategy: str
    ending: Ending
    n_forbidden: int = 0
    apart: tuple[Merge, ...] = ()
    answers: tuple[Answer, ...] = ()
    stability: Stability | None = None

    def __post_init__(self) -> None:
        for array in (self.cluster_ids, self.sizes, self.taken):
            array.flags.writeable = False

    @property
    def stopped(self) -> str:
        """Why merging stopped, in words."""
        return decision.stopped(self.ending)

    @property
    def how_stable(self) -> str | None:
        """How many clusters re-merges leave, in words; None if that is not known."""
        if self.stability is None:
            return None
        start = "Without a requested number, " if self.ending.kind == decision.REQUESTED else ""
        return f"{start}{self.stability.sentence}."

    @property
    def how_separated(self) -> str | None:
        """What to know if the neighbour graph hardly shows separated groups; None otherwise.

        It does not if most pairs that were kept apart are unclear, or if only one cluster is left.
        """
        kept = [row.pair.verdict for row in self.reviewed if row.done == APART]
        n_unclear, by_graph = kept.count(decision.UNCLEAR), self.strategy == "neighbours"
        asked = self.ending.kind not in (decision.GRAPH, decision.ONE_LEFT)
        if not by_graph or asked or (kept and 2 * n_unclear <= len(kept)):
            return None
        found = "do not look like separated groups: all clusters are connected like parts of one"
        if kept:
            of = f"{n_unclear:,} of {len(kept):,} pairs of clusters that were kept apart"
            found = f"hardly look like separated groups: the evidence is unclear for {of}"
        return (
            f"The data {found}. If you know how many groups there are, cluster into that number "
            "anew, for example by k-means."
        )

    @property
    def n_initial(self) -> int:
        """Number of initial clusters, k."""
        return len(self.cluster_ids)

    @property
    def n_clusters(self) -> int:
        """Number of clusters left at the cut."""
        return self.n_initial - int(self.taken.sum())

    @cached_property
    def linkage(self) -> NDArray[np.float64]:
        """The whole tree as a SciPy linkage, shape (k − 1, 4): left, right, height, leaves."""
        leaves = [1] * self.n_initial
        for merge in self.merges:
            leaves.append(leaves[merge.left] + leaves[merge.right])
        nodes = [(merge.left, merge.right, merge.height) for merge in self.merges]
        table = np.array(nodes, np.float64).reshape(-1, 3)
        return np.column_stack([table, leaves[self.n_initial :]])

    @cached_property
    def groups(self) -> Index:
        """New cluster of every initial one, shape (k,), numbered by first member."""
        k = self.n_initial
        steps = np.flatnonzero(self.taken)
        made = [self.merges[step] for step in steps.tolist()]
        sides = np.array([(merge.left, merge.right) for merge in made], np.int64)
        above = np.repeat(k + steps, 2)
        edges = csr_array((np.ones(len(above)), (sides.ravel(), above)), (2 * k - 1, 2 * k - 1))
        # SciPy numbers components by their first node, and the initial clusters come first.
        return connected_components(edges, directed=False)[1][:k].astype(np.int64)

    @cached_property
    def names(self) -> list[str]:
        """Names of the new clusters in files and on the page: those of their members."""
        return merged_names([str(name) for name in self.cluster_ids.tolist()], self.groups)

    @property
    def mapping(self) -> dict[ClusterId, int]:
        """Old name to new cluster."""
        return dict(zip(self.cluster_ids.tolist(), self.groups.tolist(), strict=True))

    def merged_groups(self) -> list[list[ClusterId]]:
        """The names of the initial clusters in every new cluster that was made of two or more.

        Other tools take merges in this form, such as SpikeInterface's
        ``analyzer.merge_units(merge_unit_groups=…)``.

        Returns
        -------
        list of lists

        Examples
        --------
        >>> import unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
        >>> tree.merged_groups()
        [[0, 1]]
        """
        names: list[list[Any]] = [[] for _ in range(self.n_clusters)]
        for name, group in self.mapping.items():
            names[group].append(name)
        return [group for group in names if len(group) > 1]

    def labels(self, initial_labels: ArrayLike) -> Any:
        """New cluster of every observation; noise stays −1.

        Parameters
        ----------
        initial_labels : array-like of shape (n,)
            The over-clustering that was merged, or some of it.

        Returns
        -------
        ndarray of shape (n,), or pandas.Series
            A Series with the same index if ``initial_labels`` is one.

        Examples
        --------
        >>> import unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
        >>> tree.labels([2, 2, 0, 1, -1])
        array([ 1,  1,  0,  0, -1])
        """
        encoded = encode_labels(initial_labels, at_least=0)
        unknown = np.setdiff1d(encoded.cluster_ids, self.cluster_ids)
        if len(unknown):
            raise InputError(
                f"cluster {unknown[0]!s} is not in the tree; pass the labels that the tree was "
                "made from."
            )
        order = np.argsort(self.cluster_ids)
        place = order[np.searchsorted(self.cluster_ids, encoded.cluster_ids, sorter=order)]
        new = np.append(self.groups[place], -1)[encoded.clusters]  # noise is −1, the last place
        return like(new, initial_labels, "cluster")

    def cut(self, *, n_clusters: int | None = None, height: float | None = None) -> "MergeTree":
        """The same tree cut elsewhere: at a number of clusters, or below a height.

        Parameters
        ----------
        n_clusters : int, optional
            How many clusters to keep.
        height : float, optional
            Merges up to this height are made.  Pass one of the two.

        Returns
        -------
        MergeTree

        Examples
        --------
        >>> import unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=1)
        >>> tree.cut(n_clusters=2).groups
        array([0, 0, 1])
        """
        if (n_clusters is None) == (height is None):
            raise InputError("cut takes one of n_clusters and height; pass exactly one.")
        if n_clusters is not None:
            k = self.n_initial
            fewest, most = 1 + self.n_forbidden, k - self.n_linked
            if not is_whole(n_clusters) or not fewest <= n_clusters <= most:
                because = " without breaking a link" if (fewest, most) != (1, k) else ""
                raise InputError(
                    f"{option('n_clusters', n_clusters)} is not possible{because}; choose {fewest} "
                    f"to {most}."
                )
            n_taken = k - n_clusters
            ending = Ending(decision.CUT_AT_NUMBER, n_clusters)
        else:
            assert height is not None
            if not is_number(height):
                raise InputError(
                    f"height must be a number, got {shown(height)}; see the heights in table()."
                )
            heights = np.array([merge.height for merge in self.merges])
            n_taken = int(np.searchsorted(heights, height, side="right"))
            n_taken = min(max(n_taken, self.n_linked), self.n_initial - 1 - self.n_forbidden)
            ending = Ending(decision.CUT_AT_HEIGHT, float(height))
        return replace(self, taken=np.arange(self.n_initial - 1) < n_taken, ending=ending)

    def undo(self, step: int) -> "MergeTree":
        """The same tree without merge ``step`` and the merges that build on it.

        All other merges stay.

        Parameters
        ----------
        step : int
            Steps count from 0, as in :attr:`merges`.

        Returns
        -------
        MergeTree

        Examples
        --------
        >>> import unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=1)
        >>> tree.undo(1).groups
        array([0, 0, 1])
        """
        if not is_whole(step) or not 0 <= step < len(self.merges) or not self.taken[step]:
            merges = ", ".join(map(str, np.flatnonzero(self.taken)[:20]))
            advice = f"choose one of {merges}" if merges else "this cut has no merges to undo"
            raise InputError(f"step must be a merge of this cut, got {shown(step)}; {advice}.")
        taken = self.taken.copy()
        undone = {self.n_initial + step}
        taken[step] = False
        for later in range(step + 1, len(self.merges)):
            if undone & {self.merges[later].left, self.merges[later].right}:
                undone.add(self.n_initial + later)
                taken[later] = False
        ending = self.ending._replace(undone=(*self.ending.undone, int(step)))
        return replace(self, taken=taken, ending=ending)

    def table(self) -> dict[str, list[Any]]:
        """The merges as a dict of columns, for a data frame or a file.

        Returns
        -------
        dict of str to list
            Columns are the step, the fields of :class:`unsplit.merging.tree.Merge`, the
            reason in words, the verdict, and whether the merge is part of the result.

        Examples
        --------
        >>> import unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
        >>> table = tree.table()
        >>> table["left"], table["right"], table["merged"]
        (['0', 'step 0'], ['1', '2'], [True, False])
        """
        names = [field.name for field in fields(Merge) if field.name != "note"]  # it is in why
        names += ["why", "verdict"]
        columns = {name: [getattr(merge, name) for merge in self.merges] for name in names}
        for side in ("left", "right"):
            columns[side] = [self.name(node) for node in columns[side]]
        return {"step": [*range(len(self.merges))], **columns, "merged": self.taken.tolist()}

    def review(self) -> Any:
        """Pairs that were merged and pairs that were kept apart, those to check first at the top.

        Unclear pairs come first, then pairs whose decision goes against the verdict, then
        "probably same", "different" and "same".  Within each group the closest decisions come
        first.

        Returns
        -------
        pandas.DataFrame
            One row per pair.  ``step`` is what :meth:`undo` takes; it is missing for pairs that
            were kept apart.  :meth:`review_table` returns the same columns without pandas.

        Examples
        --------
        >>> import unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
        >>> tree.review()[["done", "left", "right"]]
                 done   left right
        0      merged      0     1
        1  kept apart  0 + 1     2
        """
        frame = data_frame(self.review_table())
        # Whole numbers with gaps, or undo would be given 7.0.
        return frame.astype({"step": "Int64"})

    def review_table(self) -> dict[str, list[Any]]:
        """The columns of :meth:`review` as lists; needs no pandas.

        Returns
        -------
        dict of str to list

        Examples
        --------
        >>> import unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
        >>> review = tree.review_table()
        >>> review["done"], review["left"], review["right"]
        (['merged', 'kept apart'], ['0', '0 + 1'], ['1', '2'])
        """
        # Not of later merges: in a large tree, the members of all nodes would be too many.
        n_made = int(np.flatnonzero(self.taken)[-1]) + 1 if self.taken.any() else 0
        members = members_of_nodes(self.merges[:n_made], self.n_initial)
        names = [" + ".join(self._names(below)) for below in members]
        pairs = [row.pair for row in self.reviewed]
        return {
            "verdict": [pair.verdict for pair in pairs],
            "done": [row.done for row in self.reviewed],
            "left": [names[pair.left] for pair in pairs],
            "right": [names[pair.right] for pair in pairs],
            **{name: [getattr(pair, name) for pair in pairs] for name in NUMBERS},
            "new_left": [self.names[self.groups[members[pair.left][0]]] for pair in pairs],
            "new_right": [self.names[self.groups[members[pair.right][0]]] for pair in pairs],
            "step": [row.step for row in self.reviewed],
            **{name: [getattr(pair, name) for pair in pairs] for name in OF_RULE},
        }

    @cached_property
    def reviewed(self) -> list[Row]:
        """The rows of :meth:`review`, in order."""
        return sorted(self._compared(), key=lambda row: row.urgency)

    def _compared(self) -> Iterator[Row]:
        """The merges of this cut, then the compared pairs of its clusters, each once."""
        left = set(range(self.n_initial))
        for step in np.flatnonzero(self.taken).tolist():
            merge = self.merges[step]
            left -= {merge.left, merge.right}
            left.add(self.n_initial + step)
            yield Row(merge, step)
        for sides, (pair, was_merged) in self._known_pairs().items():
            if sides <= left:
                yield Row(pair, None, taken_apart=was_merged)

    def _known_pairs(self) -> dict[frozenset[Node], tuple[Merge, bool]]:
        """The pairs of which the evidence is known, and whether merging had merged them."""
        beyond = (BEYOND, CANNOT_LINK)
        merged = {_sides(merge): (merge, merge.stage not in beyond) for merge in self.merges}
        return merged | {_sides(pair): (pair, False) for pair in self.apart}

    def why(self, a: ClusterId, b: ClusterId) -> Explanation:
        """Why two initial clusters are together in this cut, or why they are not.

        Parameters
        ----------
        a, b : str or int
            The names of two initial clusters.

        Returns
        -------
        Explanation
            Which two merged clusters were judged, by which evidence, and what was decided; as text
            it is a few lines.

        Examples
        --------
        >>> import unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], max_tvd=0.5)
        >>> print(tree.why(0, 2))
        0 and 2 are in different clusters
          kept apart: 0 + 1 and 2
          reason: TVD 0.850 is above 0.5
          verdict: unclear
          step 1 of the tree would merge them
        """
        first, second = self._cluster("a", a), self._cluster("b", b)
        if first == second:
            raise InputError(f"a and b are both cluster {shown(a)}; name two different clusters.")
        above = self._above(first), self._above(second)
        step = min(set(above[0]) & set(above[1])) - self.n_initial
        made = {*range(self.n_initial), *(self.n_initial + np.flatnonzero(self.taken)).tolist()}
        roots = [max(made.intersection(nodes)) for nodes in above]
        together = roots[0] == roots[1]
        # A pair of clusters of this cut, if it was compared; otherwise the pair that joins them.
        known, joining = self._known_pairs(), self.merges[step]
        pair, was_merged = known.get(frozenset(roots), known[_sides(joining)])
        if together:
            pair = joining
        sides = [self._below(pair.left), self._below(pair.right)]
        left, right = (self._names(side) for side in sorted(sides, key=lambda s: first not in s))
        reason = _reason(pair, together, was_merged and not together)
        return Explanation(str(a), str(b), together, step, left, right, pair, reason)

    def _cluster(self, name: str, cluster: ClusterId) -> Cluster:
        names = self.cluster_ids.astype(str).tolist()
        if str(cluster) not in names:
            first = f"{', '.join(names[:MOST_NAMES])}{', …' if len(names) > MOST_NAMES else ''}"
            raise InputError(
                f"{name} names {shown(cluster)}, which is not a cluster of the tree; the clusters "
                f"are {first}."
            )
        return names.index(str(cluster))

    def _names(self, clusters: Sequence[Cluster]) -> tuple[str, ...]:
        return tuple(str(self.cluster_ids[cluster]) for cluster in sorted(clusters))

    def _above(self, cluster: Cluster) -> list[Node]:
        """An initial cluster and the nodes above it."""
        nodes = [cluster]
        for step, merge in enumerate(self.merges):
            if nodes[-1] in (merge.left, merge.right):
                nodes.append(self.n_initial + step)
        return nodes

    def _below(self, node: Node) -> list[Cluster]:
        """The initial clusters in a node."""
        found, nodes = [], [node]
        while nodes:
            node = nodes.pop()
            if node < self.n_initial:
                found.append(node)
            else:
                merge = self.merges[node - self.n_initial]
                nodes += [merge.left, merge.right]
        return found

    def name(self, node: Node) -> str:
        """The name of an initial cluster, or ``"step 3"`` for the cluster that step 3 made.

        Parameters
        ----------
        node : int
            A cluster, numbered as in a SciPy linkage.

        Returns
        -------
        str

        Examples
        --------
        >>> import unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
        >>> tree.name(1), tree.name(3)
        ('1', 'step 0')
        """
        k = self.n_initial
        if not is_whole(node) or not 0 <= node < 2 * k - 1:
            raise InputError(
                f"node must be a whole number from 0 to {2 * k - 2}, got {shown(node)}; initial "
                "clusters come first, then the merges."
            )
        return str(self.cluster_ids[node]) if node < k else f"step {node - k}"

    def to_frame(self) -> Any:
        """:meth:`table` as a pandas DataFrame.

        Returns
        -------
        pandas.DataFrame

        Examples
        --------
        >>> import unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
        >>> tree.to_frame()[["left", "right", "merged"]]
             left right  merged
        0       0     1    True
        1  step 0     2   False
        """
        return data_frame(self.table())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tree to an .npz file without pickle, replacing an older file.

        Parameters
        ----------
        path : str or path-like

        Examples
        --------
        >>> import tempfile, unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
        >>> path = tempfile.mkdtemp() + "/tree.npz"
        >>> tree.save(path)
        >>> unsplit.MergeTree.load(path).groups
        array([0, 0, 1])
        """
        save_arrays(path, FORMAT, {}, content_of_tree(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "MergeTree":
        """Read a tree that :meth:`save` wrote.

        A file that was changed, is damaged or holds an impossible tree is refused.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        MergeTree

        Examples
        --------
        >>> import tempfile, unsplit
        >>> path = tempfile.mkdtemp() + "/tree.npz"
        >>> unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2).save(path)
        >>> unsplit.MergeTree.load(path).n_clusters
        2
        """
        meta, arrays = load_arrays(path, FORMAT)
        return cls(**fields_of_tree(meta | arrays, ContentCheck(path, FORMAT)))

    def report(
        self,
        distances: Any = None,
        X: Any = None,
        labels: ArrayLike | None = None,
        *,
        row_ids: ArrayLike | None = None,
        feature_names: Any = None,
        picture: ArrayLike | None = None,
        image_shape: Sequence[int] | None = None,
    ) -> Any:
        """A page about this merge: the answer, the tree, the data, and pairs to review.

        A notebook shows the page; ``save(path)`` writes it to one HTML file.

        Parameters
        ----------
        distances : PairwiseTVD or array-like of shape (k, k), optional
            The distances that the tree was made from.
        X, labels : optional
            The observations and their initial clusters, for a picture and for exemplars.
        row_ids, feature_names, picture, image_shape : optional
            More about the observations: see :func:`unsplit.report.report`.

        Returns
        -------
        unsplit.report.Report

        Examples
        --------
        >>> import unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
        >>> tree.report()
        Report: ... MB of HTML; write it with save(path)
        """
        # By name, because reports are above trees: only this call reaches up.
        more: dict[str, Any] = {"row_ids": row_ids, "feature_names": feature_names}
        more |= {"picture": picture, "image_shape": image_shape}
        return import_module("unsplit.report").report(self, distances, X, labels, **more)

    def __repr__(self) -> str:
        known = "" if self.how_separated is None else f"\n  {self.how_separated}"
        return (
            f"MergeTree: {self.n_initial:,} clusters merged into {self.n_clusters:,} "
            f"({self.strategy}, {self.statistic})\n  stopped: {self.stopped}{known}"
        )

    @property
    def n_linked(self) -> int:
        """How many of the first merges were required by ``must_link``."""
        return sum(merge.stage == decision.MUST_LINK for merge in self.merges)


def _sides(pair: Merge) -> frozenset[Node]:
    return frozenset((pair.left, pair.right))


def with_stability(tree: MergeTree, stability: Stability) -> MergeTree:
    """The same tree with the re-merges, and with what they say of every pair."""
    members = members_of_nodes(tree.merges, tree.n_initial)

    def known(pair: Merge) -> Merge:
        share = stability.between(members[pair.left], members[pair.right], tree.sizes)
        return replace(pair, stability=share)

    merges, apart = tuple(map(known, tree.merges)), tuple(map(known, tree.apart))
    return replace(tree, merges=merges, apart=apart, stability=stability)


def _reason(pair: Merge, together: bool, taken_apart: bool) -> str:
    if pair.stage == decision.BEYOND:
        return f"{pair.because}; merged by this cut" if together else pair.because
    return f"{pair.why}; taken apart by a cut or an undo" if taken_apart else pair.why


def _listed(names: tuple[str, ...]) -> str:
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return " + ".join([*names[:MOST_NAMES], *more])
