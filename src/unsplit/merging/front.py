"""The front door: distances and wishes in, a merge tree out."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import SpectralClustering

from unsplit.errors import InputError, PartitionWarning
from unsplit.merging.agglomerate import Record, Run, agglomerate
from unsplit.merging.clusters import (
    Composed,
    Estimate,
    Evidence,
    Linked,
    Mixtures,
    Ranking,
    Reestimated,
)
from unsplit.merging.constraints import Link, constraints
from unsplit.merging.rules import Alpha, Always, Auto, MaxTVD, Rule, SameGroup
from unsplit.merging.tree import Merge, MergeTree
from unsplit.randomness import generator_of
from unsplit.result import PairwiseTVD
from unsplit.sampling import Index

STRATEGIES = ("compose", "linkage", "retrain", "warm", "spectral")
LINKAGES = ("average", "single", "complete")

# Neighbouring cells of a partition are told apart almost always, parts of one distribution almost
# never, so the middle will do.
PARTITION_TVD = 0.5


def merge(
    distances: PairwiseTVD | ArrayLike,
    *,
    n_clusters: int | None = None,
    max_tvd: float | None = None,
    alpha: float | None = None,
    strategy: str | None = None,
    statistic: str = "lecam",
    linkage: str = "average",
    must_link: Iterable[Link] = (),
    cannot_link: Iterable[Link] = (),
    min_clusters: int | None = None,
    max_clusters: int | None = None,
    view: PairwiseTVD | None = None,
    estimate: Estimate | None = None,
    random_state: object = None,
    on_merge: Callable[[Record], None] | None = None,
    done: Record | None = None,
) -> MergeTree:
    """Merge clusters, closest first, and say where to stop.

    Parameters
    ----------
    distances : PairwiseTVD or array-like of shape (k, k)
        Estimates with scores, or any symmetric matrix of distances, taken as TVD.
    n_clusters, max_tvd, alpha : optional
        At most one.  Stop at this many clusters; merge pairs with a TVD up to this; merge pairs
        that do not differ significantly at this level, adjusted for all pairs.  None of them
        means *auto*, which needs scores.
    strategy : {"compose", "linkage", "retrain", "warm", "spectral"}, optional
        "compose" (default with scores) merges scores in closed form; "linkage" (default for a
        matrix) works on the fixed matrix; "retrain" and "warm" call ``estimate`` after every
        merge; "spectral" needs ``n_clusters``.
    statistic : str
        The divergence that ranks pairs, for all strategies but "compose", which uses soft accuracy.
    linkage : {"average", "single", "complete"}
        For strategy "linkage".
    must_link, cannot_link : iterables of pairs of cluster names
        Clusters known to belong together, or not to.
    min_clusters, max_clusters : int, optional
        Bounds on the number of clusters, whatever the rule says.
    view : PairwiseTVD, optional
        Another estimate for the same clusters, by which "compose" ranks and *auto* looks for
        valleys; :func:`unsplit.pairwise_tvd` makes one with ``smooth=True``.
    estimate : callable, optional
        For "retrain" and "warm": takes the group of every cluster, shape (k,), returns a
        PairwiseTVD of the groups.
    random_state : int, Generator, RandomState or None
        For "spectral".
    on_merge : callable, optional
        Told after every merge what was done so far.
    done : Record, optional
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
    given = _given(distances, view)
    strategy = strategy or ("linkage" if given.result is None else "compose")
    _check_strategy(strategy, linkage, given, n_clusters, estimate)
    rule = _rule(given, n_clusters, max_tvd, alpha)
    if n_clusters is not None:
        min_clusters, max_clusters = _exactly(n_clusters, min_clusters, max_clusters, given)
    ids = given.ids[given.order]
    limits = constraints(ids, must_link, cannot_link, min_clusters, max_clusters)
    ranking = _ranking(given, strategy, statistic, linkage, estimate)
    if strategy == "spectral":
        rule = SameGroup(_spectral_groups(ranking.distances(), n_clusters, random_state))
    evidence, seen = _evidence(given, ranking)
    run = Run(ranking, evidence, seen, limits, given.sizes, on_merge, done or Record())
    record = agglomerate(run, rule)
    return MergeTree(
        cluster_ids=given.ids,
        sizes=given.sizes[np.argsort(given.order)],
        merges=tuple(_renamed(merge, given.order) for merge in record.merges),
        taken=np.arange(len(ids) - 1) < (record.n_taken or 0),
        statistic=ranking.statistic,
        strategy=strategy if strategy != "linkage" else f"{linkage} linkage",
        stopped=record.stopped,
        n_forbidden=len(record.merges) - (record.n_allowed or 0),
    )


def looks_like_partition(result: PairwiseTVD) -> bool:
    """Whether most clusters can be told even from their nearest neighbour.

    So it is when k-means, Leiden and their like cut up the very features that are now compared:
    every pair is separable by construction, and a two-sample test says so of any two pieces.
    """
    tvd = result.tvd + np.diag(np.full(result.n_clusters, np.inf))
    return bool(np.median(tvd.min(axis=1)) > PARTITION_TVD)


@dataclass(frozen=True, eq=False)
class _Given:
    """The input, clusters in the order in which they first appear in the data.

    Ties between equally close pairs go to the first, so that names decide nothing.
    """

    ids: NDArray[Any]
    order: Index
    sizes: Index
    matrix: NDArray[np.float64] | None = None
    result: PairwiseTVD | None = None
    view: PairwiseTVD | None = None


def _given(distances: PairwiseTVD | ArrayLike, view: PairwiseTVD | None) -> _Given:
    if not isinstance(distances, PairwiseTVD):
        matrix = _square(distances)
        k = len(matrix)
        return _Given(np.arange(k), np.arange(k), np.ones(k, np.int64), matrix)
    ids = distances.cluster_ids
    if view is not None and not np.array_equal(view.cluster_ids, ids):
        raise InputError("view must be an estimate for the same clusters as distances.")
    first = np.full(len(ids), np.iinfo(np.int64).max)
    np.minimum.at(first, distances.scores.clusters, distances.scores.rows)
    order = np.argsort(first, kind="stable")
    result = distances.reordered(order)
    seen = result if view is None else view.reordered(order)
    return _Given(ids, order, result.sizes, result=result, view=seen)


def _square(distances: ArrayLike) -> NDArray[np.float64]:
    try:
        matrix = np.asarray(distances, np.float64)
    except (TypeError, ValueError):
        raise InputError("distances must be a PairwiseTVD or a matrix of numbers.") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise InputError(
            f"distances must be a square matrix of two or more clusters, got shape {matrix.shape}; "
            "pass all pairs, not a condensed vector."
        )
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        raise InputError("distances must be finite and not negative; fill in missing pairs first.")
    if not np.allclose(matrix, matrix.T):
        raise InputError("distances must be symmetric; average the matrix with its transpose.")
    return (matrix + matrix.T) / 2


def _check_strategy(
    strategy: str, linkage: str, given: _Given, n_clusters: int | None, estimate: Estimate | None
) -> None:
    if strategy not in STRATEGIES:
        raise InputError(f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}.")
    if linkage not in LINKAGES:
        raise InputError(f"linkage must be one of {', '.join(LINKAGES)}, got {linkage!r}.")
    if given.result is None and strategy not in ("linkage", "spectral"):
        raise InputError(
            f'strategy="{strategy}" needs scores, and a matrix has none; pass a PairwiseTVD or '
            'use strategy="linkage".'
        )
    if strategy in ("retrain", "warm") and estimate is None:
        raise InputError(
            f'strategy="{strategy}" needs estimate, a function that estimates anew; '
            "ClusterMerger brings one."
        )
    if strategy == "spectral" and n_clusters is None:
        raise InputError('strategy="spectral" needs n_clusters; it cannot find the number itself.')


def _rule(
    given: _Given, n_clusters: int | None, max_tvd: float | None, alpha: float | None
) -> Rule:
    rules = {"n_clusters": n_clusters, "max_tvd": max_tvd, "alpha": alpha}
    chosen = [name for name, value in rules.items() if value is not None]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)} are two stopping rules; choose one.")
    for name in ("max_tvd", "alpha"):
        value = rules[name]
        if value is not None and not 0 <= value <= 1:
            raise InputError(f"{name} must lie between 0 and 1, got {value!r}.")
    if n_clusters is not None:
        return Always()
    if given.result is None:
        if max_tvd is None:
            raise InputError(
                "a matrix without scores can be cut by n_clusters or max_tvd only; pass one of "
                "them, or a PairwiseTVD."
            )
        return MaxTVD(max_tvd)
    partition = looks_like_partition(given.result)
    if partition:
        _warn_of_partition(given.result, auto=not chosen)
    if max_tvd is not None:
        return MaxTVD(max_tvd)
    return Auto(partition) if alpha is None else Alpha(alpha)


def _warn_of_partition(result: PairwiseTVD, auto: bool) -> None:
    nearest = np.median((result.tvd + np.diag(np.full(result.n_clusters, np.inf))).min(axis=1))
    advice = (
        "auto therefore looks for a valley between them instead"
        if auto
        else "leave the rule out, and auto looks for a valley between them instead"
    )
    warnings.warn(
        "the clusters look like a partition of the same features (median TVD to the nearest "
        f"neighbour {nearest:.2f}), where every pair is separable by construction; {advice}.",
        PartitionWarning,
        stacklevel=4,
    )


def _exactly(n: int, fewest: int | None, most: int | None, given: _Given) -> tuple[int, int]:
    k = len(given.ids)
    if not isinstance(n, (int, np.integer)) or not 1 <= n <= k:
        raise InputError(
            f"n_clusters must be a whole number from 1 to {k}, the number of clusters there are, "
            f"got {n!r}."
        )
    if (fewest is not None and fewest > n) or (most is not None and most < n):
        raise InputError(
            f"n_clusters={n} contradicts min_clusters={fewest} and max_clusters={most}; "
            "pass n_clusters alone."
        )
    return int(n), int(n)


def _ranking(
    given: _Given, strategy: str, statistic: str, linkage: str, estimate: Estimate | None
) -> Ranking:
    if given.matrix is not None:
        return Linked(given.matrix, linkage, "distance")
    assert given.result is not None
    assert given.view is not None
    if strategy == "compose":
        return Composed(given.view)
    if estimate is not None and strategy in ("retrain", "warm"):
        place = np.argsort(given.order)
        return Reestimated(given.result, lambda groups: estimate(groups[place]), statistic)
    statistic = "tv" if strategy == "spectral" else statistic
    return Linked(given.result.divergence(statistic), linkage, statistic)


def _evidence(given: _Given, ranking: Ranking) -> tuple[Evidence | None, Evidence | None]:
    """Where the reported numbers come from, and where valleys are looked for."""
    if given.result is None or given.view is None:
        return None, None
    if isinstance(ranking, Reestimated):
        return ranking, ranking
    evidence = Mixtures(given.result)
    return evidence, evidence if given.view is given.result else Mixtures(given.view)


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
