"""Putting observations into the merged cluster that their neighbours are in.

Merging keeps every initial cluster whole.  Where an initial cluster holds parts of two groups, its
observations can still be separated by their neighbours once the groups are known, or by the gap
between the parts: in few dimensions a piece of k-means may lie across a gap.

Where clusters were not cut out of the features, the features may show the groups less clearly than
the labels do: an observation at a border often has neighbours of the other group, and its label is
right all the same.  So what a label says counts as well, and by as much as labels can be trusted.
"""

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components
from scipy.special import softmax

from unsplit._typing import Index
from unsplit.data.labels import encode_labels, label_array
from unsplit.errors import InputError, check_choice, check_type
from unsplit.merging import limits
from unsplit.merging.decision import NEIGHBOURS, Auto
from unsplit.merging.loop import GreedyMerge, MergeState
from unsplit.merging.neighbours.evidence import Neighbourhoods
from unsplit.merging.neighbours.graph import SCORES, Connections, NeighbourGraph, membership
from unsplit.merging.pairs import Pairs
from unsplit.merging.plan import GAPS, IGNORE, KEEP_NUMBER
from unsplit.pairwise.result import PairwiseTVD

# With more initial clusters, merging again would take minutes; pieces so small rarely cross a gap.
MOST_CLUSTERS = 2_000

# Parts of an initial cluster are connected by edges whose ends have at least this many neighbours
# in common, and have at least this many observations.
FEWEST_COMMON = 2
SMALLEST = 5

# Edges by chance count so much less in careful moves.  With 1, unequal clusters are taken apart;
# with 0.5, few of them still; with 0, small clusters lose to large ones.
CAREFUL_CHANCE = 0.25

# Usually nothing moves any more after twenty rounds.
MOST_ROUNDS = 100

# Those of one turn move at the same time, and two neighbours may then only change places; in so
# many turns this is rare, and the rest goes on in the next round.
TURNS = 8

# A smaller gain is rounding.
LEAST_GAIN = 1e-9

# Labels drawn anew contradict the network also where it is surest, groups that overlap hardly ever:
# of the surest quarter up to 2 % on one half of the data sets split at random, and 6 % or more if a
# fifth of the labels was drawn anew.
FEWEST_MISTAKES = 0.05

# float64 probabilities that are held at a time (128 MiB).
MOST_PROBABILITIES = 2**24


def refine(
    labels: ArrayLike,
    neighbours: NeighbourGraph,
    *,
    gaps: str = IGNORE,
    distances: PairwiseTVD | None = None,
) -> NDArray[Any]:
    """Move observations to the cluster that most of their neighbours are in, given its size.

    An observation moves if the cluster it moves to has more of its neighbours, beyond those
    expected by chance, than its own (the gain in modularity, as in the Leiden and Louvain methods).
    This goes on until no observation moves.  No cluster is added and none is lost.

    Nothing moves if the graph is that of a network's scores, as for images without ``features``,
    unless ``distances`` are passed: it knows nothing that the merge did not know.

    Such moves favour clusters of similar sizes and may divide a large one.  So the rule of *auto*
    judges the clusters after the moves: if it would merge any, the moves are undone, and
    single observations move with a quarter of the edges by chance.

    Instead, in fewer than three dimensions, initial clusters that lie across a gap can be cut there
    before observations move (``gaps``).  If any is, all initial clusters and parts are merged again
    by the neighbour graph, as *auto* does.  So a cluster may become two, and two may become one.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Cluster of every observation, after merging; −1 and missing values mean noise, which stays
        noise.
    neighbours : NeighbourGraph
        The neighbour graph of the same observations and their initial clusters, made by
        :func:`unsplit.neighbour_graph`.
    gaps : {"ignore", "cut", "keep number"}
        What to do about initial clusters that lie across a gap: leave them whole; cut them; or cut
        them and leave as many clusters as ``labels`` has.  :class:`unsplit.ClusterMerger` cuts them
        if the neighbour graph merged them and you set no limit, rule or link, and keeps the number
        if you gave it.  Nothing is cut if there are several batches or more than 2,000 clusters.
    distances : PairwiseTVD, optional
        For labels that know more than the features, such as labels given by hand and then split at
        random: the network's distances between the initial clusters, with their scores.  Then an
        observation moves only if neighbours and network agree that its label is mistaken, and
        none does if few labels seem to be; nothing else happens.
        :class:`unsplit.ClusterMerger` passes them if tests decided or nothing was merged.

    Returns
    -------
    ndarray of shape (n,)
        The labels, some of them changed.  Names are kept where most observations keep them; further
        clusters get the next numbers or, if names are words, a number in brackets.

    Examples
    --------
    >>> import numpy as np
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
    >>> mistaken = np.where(np.arange(100) % 10 == 0, 1 - labels, labels)
    >>> graph = unsplit.neighbour_graph(X, mistaken)
    >>> bool((unsplit.refine(mistaken, graph) == labels).all())
    True
    """
    check_choice("gaps", gaps, GAPS)
    check_type("neighbours", neighbours, NeighbourGraph, "make it with unsplit.neighbour_graph")
    if distances is not None:
        check_type("distances", distances, PairwiseTVD, "make it with unsplit.pairwise_tvd")
    if neighbours.sampled_from is not None:
        raise InputError(
            f"neighbours is a graph of {neighbours.counted} observations, and the others have no "
            "neighbours in it; make one with unsplit.neighbour_graph(X, labels, everything=True)."
        )
    encoded = encode_labels(labels, at_least=1)
    rows, names = neighbours.rows, encoded.cluster_ids
    if len(encoded.clusters) <= rows.max(initial=-1):
        raise InputError(
            f"labels has {len(encoded.clusters)} entries, but neighbours is a graph of at least "
            f"{rows.max() + 1} observations; pass the labels of the same observations."
        )
    before = encoded.clusters[rows]
    # In the order in which they appear in the graph, so that names do not decide where to move.
    named, first = np.unique(before[before >= 0], return_index=True)
    by_content = np.concatenate([named[np.argsort(first)], np.setdiff1d(range(len(names)), named)])
    names, before = names[by_content], np.append(np.argsort(by_content), -1)[before]
    after = before
    if distances is not None:
        after = corrected(neighbours, distances, before, len(names))
    elif neighbours.source != SCORES:
        if gaps != IGNORE and can_be_cut(neighbours):
            after, names = _merged_anew(neighbours, before, names, keep_number=gaps == KEEP_NUMBER)
        after = _moved(neighbours, after, len(names))
    given, inside = label_array(labels), after >= 0
    refined = given.astype(np.result_type(given, names))  # new names may be longer
    refined[rows[inside]] = names[after[inside]]
    return refined


def _merged_anew(
    graph: NeighbourGraph, clusters: Index, names: NDArray[Any], keep_number: bool
) -> tuple[Index, NDArray[Any]]:
    """Cut initial clusters that lie across a gap, and merge their parts and all else again.

    Returns the new clusters and all names, those of new clusters last.
    """
    parts = parts_of(graph)
    if parts.max() + 1 == len(np.unique(graph.clusters[graph.clusters >= 0])):
        return clusters, names
    found = merge_units(graph, parts, len(names) if keep_number else None)
    return _named(np.where(clusters < 0, -1, found), clusters, names)


def _named(found: Index, clusters: Index, names: NDArray[Any]) -> tuple[Index, NDArray[Any]]:
    """New clusters as indices of names; those that get no old name have new ones at the end.

    A name that none of its observations had is given only if it is a number.
    """
    inside = found >= 0
    numbers, new = np.unique(found[inside], return_inverse=True)
    shared = np.zeros((len(numbers), len(names)), np.int64)
    np.add.at(shared, (new, clusters[inside]), 1)
    name_of = np.full(len(numbers), -1)
    kept, old = linear_sum_assignment(shared, maximize=True)
    fits = (shared[kept, old] > 0) | (names.dtype.kind in "iuf")
    name_of[kept[fits]] = old[fits]
    unnamed = np.flatnonzero(name_of < 0)
    name_of[unnamed] = len(names) + np.arange(len(unnamed))
    after = np.full(len(found), -1)
    after[inside] = name_of[new]
    more = _further_names(names, names[shared[unnamed].argmax(axis=1)])
    return after, np.concatenate([names, more]) if len(more) else names


def _further_names(names: NDArray[Any], likes: NDArray[Any]) -> NDArray[Any]:
    """A name for each further cluster, given the name that most of its observations had.

    Examples
    --------
    >>> _further_names(np.array([0, 3]), np.array([0, 0]))
    array([4, 5])
    >>> _further_names(np.array(["a", "b"]), np.array(["b", "b"])).tolist()
    ['b (2)', 'b (3)']
    """
    if names.dtype.kind in "iuf":
        further: NDArray[Any] = names.max().item() + 1 + np.arange(len(likes))
        return further
    taken = [str(name) for name in names]
    for like in likes:
        taken.append(next(t for t in (f"{like} ({i})" for i in count(2)) if t not in taken))
    return np.array(taken[len(names) :], dtype=str)


# --- cutting at gaps ------------------------------------------------------------------------------


def can_be_cut(graph: NeighbourGraph) -> bool:
    """Whether gaps tell groups apart: few dimensions, one batch, and features of observations."""
    one_batch = int(graph.batches.max(initial=0)) == 0
    some = 2 <= graph.n_clusters <= MOST_CLUSTERS
    return graph.is_low_dimensional and one_batch and some and graph.source != SCORES


def parts_of(graph: NeighbourGraph) -> Index:
    """The part of an initial cluster that each observation is in, shape (n,); −1 for none.

    Two observations of a cluster are in one part if a path of edges within the cluster connects
    them, whose ends have neighbours in common.  Fewer than SMALLEST count for the largest part.
    """
    edges = graph.weights.tocoo()
    left, right = edges.coords
    strong = (graph.clusters[left] == graph.clusters[right]) & (edges.data > FEWEST_COMMON)
    within = sparse.csr_array((edges.data[strong], (left[strong], right[strong])), edges.shape)
    part = connected_components(within, directed=False)[1]
    sizes = np.bincount(part)[part]
    largest = np.zeros(graph.n_clusters + 1, np.int64)
    by_size = np.argsort(sizes, kind="stable")
    largest[graph.clusters[by_size]] = part[by_size]
    part = np.where(sizes < SMALLEST, largest[graph.clusters], part)
    part[graph.clusters < 0] = -1
    part[part >= 0] = np.unique(part[part >= 0], return_inverse=True)[1]
    return part


def merge_units(graph: NeighbourGraph, units: Index, n_clusters: int | None) -> Index:
    """Merge units (−1 for none) as *auto* merges initial clusters; shape (n,).

    ``n_clusters`` says how many to leave; None stops where *auto* does.
    """
    k = int(units.max()) + 1
    graph = replace(graph, clusters=units, n_clusters=k)
    sizes = np.bincount(units[units >= 0], minlength=k)
    judged = Neighbourhoods(graph, np.random.default_rng(0))
    state = MergeState(Pairs(Connections(graph)), sizes, neighbourhoods=judged)
    fewest, most = (1, k) if n_clusters is None else (n_clusters, n_clusters)
    GreedyMerge(state, Auto(NEIGHBOURS)).go(fewest, most)
    return np.where(units < 0, -1, state.firsts[units])


def n_left_apart(graph: NeighbourGraph, clusters: Index) -> int:
    """How many of these clusters (−1 for noise) *auto* would leave if it went on merging them."""
    inside = clusters >= 0
    units = clusters.copy()
    units[inside] = np.unique(clusters[inside], return_inverse=True)[1]
    return len(np.unique(merge_units(graph, units, None)[inside]))


# --- moving ---------------------------------------------------------------------------------------


class Moving:
    """Observations in a neighbour graph, which move between clusters; −1 is noise and stays.

    Edges that chance makes are multiplied by ``chance``.
    """

    def __init__(self, graph: NeighbourGraph, clusters: Index, k: int, chance: float = 1.0) -> None:
        self.adjacency, self.batches = graph.adjacency, graph.batches
        self.clusters, self.k, self.chance = clusters, k, chance
        inside = clusters >= 0
        self.degree = graph.adjacency @ inside.astype(np.float64)
        self.degree[~inside] = 0.0
        of_batches = np.maximum(np.bincount(graph.batches, self.degree), 1.0)
        self.totals = of_batches[graph.batches]  # all edges of the batch that each is in

    def move_all(self) -> None:
        """Move until none gains by it; clusters that all would leave are kept."""
        before, rng = self.clusters, np.random.default_rng(0)
        everyone = active = np.flatnonzero(self.clusters >= 0)
        for _ in range(MOST_ROUNDS):
            moved = self._move_once(rng.permutation(active))
            if len(moved) == 0:
                if active is everyone:
                    break
                active = everyone  # clusters have other sizes now, which matters to all a little
                continue
            reached = np.zeros(len(self.clusters), bool)
            reached[moved] = reached[self.adjacency[moved].indices] = True
            active = np.flatnonzero(reached & (self.clusters >= 0))
        lost = ~np.isin(before, self.clusters)
        self.clusters = np.where(lost, before, self.clusters)

    def _move_once(self, rows: Index) -> Index:
        """Let each of the rows move once if it gains by it; return those that did."""
        self.clusters = self.clusters.copy()
        all_moved = []
        for turn in np.array_split(rows, TURNS):
            moved, targets = self.better(np.sort(turn))
            self.clusters[moved] = targets
            all_moved.append(moved)
        return np.concatenate(all_moved)

    def better(self, rows: Index) -> tuple[Index, Index]:
        """Those of the rows that gain by moving, and the cluster to which each moves."""
        votes = (self.adjacency[rows] @ membership(self.clusters, self.k)).tocoo()
        place, cluster = votes.coords
        degrees = self._degrees()
        gain = votes.data - self._by_chance(rows[place], cluster, degrees)
        stay = cluster == self.clusters[rows[place]]
        edges_inside = np.bincount(place[stay], votes.data[stay], minlength=len(rows))
        staying = edges_inside - self._by_chance(rows, self.clusters[rows], degrees)
        gains = np.flatnonzero(gain > staying[place] + LEAST_GAIN)
        # Of each, the largest gain; if several clusters are best, the first of them.
        gains = gains[np.lexsort((cluster[gains], -gain[gains], place[gains]))]
        gains = gains[np.unique(place[gains], return_index=True)[1]]
        return rows[place[gains]], cluster[gains].astype(np.int64)

    def _degrees(self) -> NDArray[np.float64]:
        """Summed degrees by batch and cluster, shape (batches, k)."""
        inside = self.clusters >= 0
        place = self.batches[inside] * self.k + self.clusters[inside]
        n_batches = int(self.batches.max(initial=0)) + 1
        sums = np.bincount(place, self.degree[inside], minlength=n_batches * self.k)
        return sums.astype(float).reshape(n_batches, self.k)

    def _by_chance(
        self, rows: Index, clusters: Index, degrees: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Edges from rows to others in clusters, in a random graph."""
        others = degrees[self.batches[rows], clusters]
        others -= np.where(self.clusters[rows] == clusters, self.degree[rows], 0.0)
        expected: NDArray[np.float64] = self.chance * self.degree[rows] * others / self.totals[rows]
        return expected


def _moved(graph: NeighbourGraph, clusters: Index, k: int) -> Index:
    """Clusters after all moves, or after few if the others contradict the rule of *auto*."""
    if k <= MOST_CLUSTERS:
        moving = Moving(graph, clusters, k)
        moving.move_all()
        if np.array_equal(moving.clusters, clusters) or n_left_apart(graph, moving.clusters) == k:
            return moving.clusters
    careful = Moving(graph, clusters, k, CAREFUL_CHANCE)
    careful.move_all()
    return careful.clusters


# --- mistaken labels ------------------------------------------------------------------------------


def corrected(graph: NeighbourGraph, distances: PairwiseTVD, clusters: Index, k: int) -> Index:
    """Clusters of the observations of a graph, after those with a mistaken label have moved.

    Neighbours and network, neither of which has seen an observation's own label, must prefer the
    same other cluster.  Of the half that the network is surest about, the share that contradicts
    its label is taken for the share of mistakes; nothing moves if hardly any of the surest quarter
    do.  An observation moves if a mistake is then more
    probable than that it lies where its own cluster is rare.  One without held-out scores stays,
    and so does a cluster of a few.
    """
    place = np.full(int(max(graph.rows.max(), distances.scores.rows.max(initial=0))) + 1, -1)
    place[distances.scores.rows] = np.arange(len(distances.scores.rows))
    # What the network has learned from a few observations overrules nothing.
    few = np.bincount(clusters[clusters >= 0], minlength=k) < limits.FEWEST_TO_OVERRULE
    known = np.flatnonzero((place[graph.rows] >= 0) & (clusters >= 0) & ~few[clusters])
    if k < 2 or len(known) == 0:
        return clusters
    own, index = clusters[known], place[graph.rows[known]]
    best, of_best, of_own = _preferred(distances, index, own, k)
    votes = graph.adjacency[known] @ membership(clusters, k)
    agreed = best == np.asarray(votes.argmax(axis=1)).ravel()
    if not agreed.any():
        return clusters
    half, quarter = (agreed & (of_best >= np.quantile(of_best[agreed], q)) for q in (0.5, 0.75))
    mistakes = float(np.mean(best[half] != own[half]))
    few_mistakes = np.mean(best[quarter] != own[quarter]) <= FEWEST_MISTAKES
    if few_mistakes or mistakes >= (k - 1) / k:
        return clusters
    # Mistaken labels are in what the network has learned: it gives every cluster a little.
    each = mistakes / (k - 1)
    of_best, of_own = of_best - each, np.maximum(of_own - each, 0.0)
    moves = agreed & (best != own) & ~few[best] & (of_best * mistakes > of_own * (1 - mistakes))
    after = clusters.copy()
    after[known[moves]] = best[moves]
    return np.where(np.isin(clusters, after), after, clusters)  # no cluster is lost


def _preferred(
    distances: PairwiseTVD, index: Index, own: Index, k: int
) -> tuple[Index, NDArray[np.float64], NDArray[np.float64]]:
    """The merged cluster the network prefers, its probability, and that of the own cluster."""
    scores = distances.scores
    shared = np.zeros((distances.n_clusters, k), np.int64)
    np.add.at(shared, (scores.clusters[index], own), 1)
    merged = np.where(shared.any(axis=1), shared.argmax(axis=1), -1)
    is_member = (merged[:, None] == np.arange(k)).astype(np.float64)
    sizes = scores.sizes_in_batches(distances.sizes)
    best, of_best, of_own = np.zeros_like(own), np.zeros(len(own)), np.zeros(len(own))
    n_parts = -(-len(own) * scores.n_clusters // MOST_PROBABILITIES)
    for some in np.array_split(np.argsort(index), n_parts):  # scores are in order of their strata
        part = scores.some(index[some])
        with np.errstate(divide="ignore"):  # some clusters do not occur in every batch
            z = part.dense() + np.log(sizes)[part.strata % len(sizes)]
        share = softmax(z, axis=1) @ is_member
        share /= share.sum(axis=1, keepdims=True)
        best[some], of_best[some] = share.argmax(axis=1), share.max(axis=1)
        of_own[some] = share[np.arange(len(some)), own[some]]
    return best, of_best, of_own
