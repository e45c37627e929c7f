"""The front door: distances and merge_options in, a merge tree out."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import SpectralClustering

from unsplit._typing import Index
from unsplit.errors import InputError
from unsplit.merging.evidence import Columns, Evidence, evidence_of
from unsplit.merging.inputs import (
    Link,
    MergeInputs,
    check_wasserstein,
    constraints,
    merge_inputs,
)
from unsplit.merging.loop import MergeRecord, MergeState, agglomerate
from unsplit.merging.neighbours.edges import Connected
from unsplit.merging.neighbours.evidence import Neighbourhoods
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.options import (
    check_strategy,
    decided_by,
    exactly,
    ranking_statistic,
    split_at_random,
    stopping_rule,
)
from unsplit.merging.ranking import (
    Composed,
    Estimate,
    Linked,
    Ranking,
    Reestimated,
)
from unsplit.merging.review import Merge
from unsplit.merging.rules import SameGroup, WithinBatches
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.wasserstein.result import PairwiseWasserstein
from unsplit.randomness import generator_of


def merge(
    distances: PairwiseTVD | PairwiseWasserstein | ArrayLike,
    *,
    n_clusters: int | None = None,
    max_tvd: float | None = None,
    alpha: float | None = None,
    strategy: str = "linkage",
    statistic: str = "auto",
    linkage: str = "average",
    must_link: Iterable[Link] = (),
    cannot_link: Iterable[Link] = (),
    min_clusters: int | None = None,
    max_clusters: int | None = None,
    blurred: PairwiseTVD | None = None,
    neighbours: NeighbourGraph | None = None,
    homes: ArrayLike | None = None,
    estimate: Estimate | None = None,
    random_state: object = None,
    on_merge: Callable[[MergeRecord], None] | None = None,
    done: MergeRecord | None = None,
) -> MergeTree:
    """Merge clusters, closest first, and say where to stop.

    Parameters
    ----------
    distances : PairwiseTVD, PairwiseWasserstein or array-like of shape (k, k)
        Estimates with scores, or any symmetric matrix of distances, taken as TVD.  A
        PairwiseWasserstein keeps its cluster names and sizes, and needs ``n_clusters``.
    n_clusters, max_tvd, alpha : optional
        At most one.  Stop at this many clusters; merge pairs with a TVD up to this; merge pairs
        that do not differ significantly at this level, adjusted for all pairs.  None of them
        means *auto*, which needs scores.
    strategy : {"linkage", "compose", "retrain", "warm", "spectral"}
        "linkage" ranks by the fixed matrix; "compose" by the scores, merged in closed form;
        "retrain" and "warm" by what ``estimate`` says after every merge; "spectral" needs
        ``n_clusters``.
    statistic : str
        What ranks pairs, for "linkage", "retrain" and "warm"; "compose" uses soft accuracy,
        "spectral" the TVD.  A divergence; or "edges", which needs ``neighbours``.  "auto" is
        "edges" if there are ``neighbours`` and most clusters were not split at random; otherwise
        "lecam", or "overlap" if ``n_clusters`` is given and at least half of the observations are
        in no cluster, as after the paper's Algorithm 1.
    linkage : {"average", "single", "complete"}
        For strategy "linkage".
    must_link, cannot_link : iterables of pairs of cluster names
        Clusters known to belong together, or not to.
    min_clusters, max_clusters : int, optional
        Bounds on the number of clusters, whatever the rule says.
    blurred : PairwiseTVD, optional
        Another estimate for the same clusters, in which *auto* looks for valleys, and by which
        "compose" ranks; :func:`unsplit.pairwise_tvd` makes one with ``blurred=True``.
    neighbours : NeighbourGraph, optional
        How the observations lie to each other; :func:`unsplit.neighbour_graph` makes one.  *auto*
        goes by it where clusters were cut out of the same features, and then needs no ``blurred``.
    homes : array-like of shape (k,), optional
        For each cluster that could hold nothing out, the place in ``cluster_ids`` of the one that
        the networks put it into; −1 if there is none, and for all others.
    estimate : callable, optional
        For "retrain" and "warm": takes the group of every cluster, shape (k,), returns a
        PairwiseTVD of the groups.
    random_state : int, Generator, RandomState or None
        For "spectral", and for the structureless data that neighbours are compared with.
    on_merge : callable, optional
        Told after every merge what was done so far.
    done : MergeRecord, optional
        What an interrupted "retrain" had told ``on_merge``: it goes on from there.

    Returns
    -------
    MergeTree

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 100, random_state=0)
    >>> tree = unsplit.merge(unsplit.pairwise_tvd(X, labels, random_state=0))
    >>> tree.mapping
    {0: 0, 1: 0, 2: 1}
    """
    check_wasserstein(distances, n_clusters, max_tvd, strategy)
    inputs = merge_inputs(distances, blurred, neighbours)
    check_strategy(strategy, linkage, inputs.result is not None, n_clusters, estimate is not None)
    k = len(inputs.ids)
    at_random, by = np.zeros(k, bool), ""
    if inputs.result is not None:
        at_random = split_at_random(inputs.result)
        by = decided_by(inputs.result, at_random, inputs.graph is not None)
    rule = stopping_rule(inputs.result, n_clusters, max_tvd, alpha, by)
    if inputs.result is not None and not inputs.result.comparable.all():
        rule = WithinBatches(rule)
    if n_clusters is not None:
        min_clusters, max_clusters = exactly(n_clusters, min_clusters, max_clusters, k)
    ids = inputs.ids[inputs.order]
    limits = constraints(ids, must_link, cannot_link, min_clusters, max_clusters)
    if inputs.result is not None:
        told = n_clusters is not None
        statistic = ranking_statistic(statistic, strategy, inputs.result, told, by)
    ranking = _ranking(inputs, strategy, statistic, linkage, estimate, alpha is not None)
    if strategy == "spectral":
        rule = SameGroup(_spectral_groups(ranking.distances(), n_clusters, random_state))
    evidence, blurred_evidence = _evidence(inputs, ranking, alpha is not None)
    neighbourhoods = None
    if inputs.graph is not None:
        blurred_evidence = None  # neighbours say more than valleys do
        # The same graph, the same answer, also if nobody thinks of a seed.
        seed = 0 if random_state is None else random_state
        neighbourhoods = Neighbourhoods(inputs.graph, generator_of(seed))
    record = MergeRecord() if done is None else replace(done, merges=list(done.merges))
    state = MergeState(
        ranking,
        evidence,
        blurred_evidence,
        neighbourhoods,
        at_random,
        np.zeros(k, bool) if inputs.result is None else inputs.result.too_small,
        _homes(homes, inputs),
        np.ones((k, k)) if inputs.result is None else inputs.result.tvd,
        limits,
        inputs.sizes,
        on_merge,
        record,
    )
    record = agglomerate(state, rule)
    return MergeTree(
        cluster_ids=inputs.ids,
        sizes=inputs.sizes[np.argsort(inputs.order)],
        merges=tuple(_renamed(merge, inputs.order) for merge in record.merges),
        taken=np.arange(len(ids) - 1) < (record.n_taken or 0),
        statistic=ranking.statistic,
        strategy=_named(strategy, linkage, ranking),
        stopped=record.stopped,
        n_forbidden=len(record.merges) - (record.n_allowed or 0),
        apart=tuple(_renamed(pair, inputs.order) for pair in record.apart),
    )


def _ranking(
    inputs: MergeInputs,
    strategy: str,
    statistic: str,
    linkage: str,
    estimate: Estimate | None,
    all_pairs: bool,
) -> Ranking:
    if inputs.matrix is not None:
        return Linked(inputs.matrix, linkage, "distance")
    assert inputs.result is not None
    assert inputs.blurred is not None
    if strategy == "compose":
        return Composed(inputs.blurred, lookup=all_pairs)
    if estimate is not None and strategy in ("retrain", "warm"):
        place = np.argsort(inputs.order)
        return Reestimated(inputs.result, lambda groups: estimate(groups[place]), statistic)
    if strategy == "linkage" and statistic == "edges":
        if inputs.graph is None:
            raise InputError(
                'statistic="edges" needs neighbours; pass a graph of them, made by '
                "unsplit.neighbour_graph(X, labels)."
            )
        return Connected(inputs.graph)
    statistic = "tv" if strategy == "spectral" else statistic
    matrix = inputs.result.divergence(statistic)
    return Linked(matrix, linkage, statistic, inputs.result.comparable)


def _evidence(
    inputs: MergeInputs, ranking: Ranking, all_pairs: bool
) -> tuple[Evidence | None, Evidence | None]:
    """Where the reported numbers come from, and where valleys are looked for."""
    if inputs.result is None or inputs.blurred is None:
        return None, None
    if isinstance(ranking, Reestimated):
        return ranking, ranking
    one_estimate = inputs.blurred is inputs.result
    if isinstance(ranking, Composed):
        return ranking if one_estimate else Columns(inputs.result, all_pairs), ranking
    evidence = evidence_of(inputs.result, all_pairs)
    return evidence, evidence if one_estimate else evidence_of(inputs.blurred, all_pairs)


def _named(strategy: str, linkage: str, ranking: Ranking) -> str:
    """What the tree calls the way it was made."""
    if strategy != "linkage":
        return strategy
    return "neighbours" if isinstance(ranking, Connected) else f"{linkage} linkage"


def _homes(homes: ArrayLike | None, inputs: MergeInputs) -> Index:
    """Homes of the clusters in their order here."""
    if homes is None:
        return np.full(len(inputs.ids), -1)
    old = np.asarray(homes, np.int64)[inputs.order]
    return np.where(old < 0, -1, np.argsort(inputs.order)[old])


def _spectral_groups(
    distances: NDArray[np.float64], n_clusters: int | None, random_state: object
) -> Index:
    k = len(distances)
    if n_clusters is None or n_clusters >= k:
        return np.arange(k)
    seed = int(generator_of(random_state).integers(2**31))
    # A hair above zero keeps the graph in one piece, without which there is no embedding.
    similarity = np.clip(1 - distances, 1e-6, 1.0)
    model = SpectralClustering(n_clusters, affinity="precomputed", random_state=seed)
    return model.fit_predict(similarity).astype(np.int64)


def _renamed(merge: Merge, order: Index) -> Merge:
    """Leaves back to their places in ``cluster_ids``."""
    k = len(order)
    left, right = (int(order[n]) if n < k else n for n in (merge.left, merge.right))
    return replace(merge, left=left, right=right)
