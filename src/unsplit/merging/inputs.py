"""The input of a merge, checked: distances, links, and bounds on the number of clusters."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from unsplit._typing import Index
from unsplit.data.annotated import refuse_annotated
from unsplit.errors import InputError
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.wasserstein.result import PairwiseWasserstein

Link = Sequence[Any]


@dataclass(frozen=True, eq=False)
class Constraints:
    """Links between initial clusters, as indices, and bounds on the number of clusters.

    Parameters
    ----------
    must : list of (int, int)
        Pairs that are merged first.
    cannot : ndarray of shape (k, k)
        True for pairs that must not be merged.
    fewest, most : int
        Bounds on the number of clusters left.
    """

    must: list[tuple[int, int]]
    cannot: NDArray[np.bool_]
    fewest: int
    most: int


def constraints(
    cluster_ids: NDArray[Any],
    must_link: Iterable[Link] = (),
    cannot_link: Iterable[Link] = (),
    min_clusters: int | None = None,
    max_clusters: int | None = None,
) -> Constraints:
    """Check the user's constraints for contradictions and turn names into indices."""
    k = len(cluster_ids)
    fewest = _bound("min_clusters", min_clusters, 1, k)
    most = _bound("max_clusters", max_clusters, k, k)
    if fewest > most:
        raise InputError(
            f"min_clusters={fewest} is more than max_clusters={most}; swap or drop one of them."
        )
    must = _pairs("must_link", must_link, cluster_ids)
    cannot = np.zeros((k, k), bool)
    linked = csr_array((np.ones(len(must)), np.array(must, np.int64).reshape(-1, 2).T), (k, k))
    n_left, group = connected_components(linked, directed=False)
    for a, b in _pairs("cannot_link", cannot_link, cluster_ids):
        if a == b:
            name = cluster_ids[a]
            raise InputError(f"cannot_link names cluster {name} twice in one link; drop this link.")
        if group[a] == group[b]:
            raise InputError(
                f"cannot_link keeps {cluster_ids[a]} and {cluster_ids[b]} apart, but must_link "
                "joins them; drop one of these links."
            )
        cannot[a, b] = cannot[b, a] = True
    if n_left < fewest:
        raise InputError(
            f"must_link leaves {n_left} clusters, fewer than the {fewest} requested; drop a link "
            "or request fewer clusters."
        )
    return Constraints(must, cannot, fewest, most)


def _bound(name: str, value: int | None, default: int, k: int) -> int:
    if value is None:
        return default
    if not isinstance(value, (int, np.integer)) or not 1 <= value <= k:
        raise InputError(
            f"{name} must be a whole number from 1 to {k}, the number of initial clusters, "
            f"got {value!r}."
        )
    return int(value)


def _pairs(name: str, links: Iterable[Link], ids: NDArray[Any]) -> list[tuple[int, int]]:
    """Links as pairs of indices; a link may name more than two clusters."""
    place = {str(cluster): index for index, cluster in enumerate(ids.tolist())}
    pairs = []
    if not isinstance(links, Iterable):
        raise InputError(
            f"{name} must be a list of pairs of cluster names, got {links!r}; pass a list such as "
            "[(3, 7)]."
        )
    for link in links:
        if isinstance(link, (str, bytes)) or not isinstance(link, Collection) or len(link) < 2:
            raise InputError(
                f"{name} must hold pairs of cluster names, got {link!r}; pass a list such as "
                "[(3, 7)]."
            )
        unknown = [cluster for cluster in link if str(cluster) not in place]
        if unknown:
            raise InputError(
                f"{name} names {unknown[0]!r}, which is not a cluster; the clusters are "
                f"{', '.join(list(place)[:8])}{', …' if len(place) > 8 else ''}."
            )
        index = [place[str(cluster)] for cluster in link]
        if name == "must_link":
            pairs += list(pairwise(index))
        else:
            pairs += [(a, b) for i, a in enumerate(index) for b in index[i + 1 :]]
    return pairs


@dataclass(frozen=True, eq=False)
class MergeInputs:
    """The input with its clusters in the order in which they first appear in the data.

    Among equally close pairs the first is merged first; in this order that does not depend on the
    names of the clusters.  ``ids`` are in the user's order, ``ids[order]`` in the new one.
    """

    ids: NDArray[Any]
    order: Index
    sizes: Index
    matrix: NDArray[np.float64] | None = None
    result: PairwiseTVD | None = None
    blurred: PairwiseTVD | None = None
    graph: NeighbourGraph | None = None


def merge_inputs(
    distances: PairwiseTVD | PairwiseWasserstein | ArrayLike,
    blurred: PairwiseTVD | None = None,
    graph: NeighbourGraph | None = None,
) -> MergeInputs:
    """Check the input and put its clusters in order."""
    if isinstance(distances, PairwiseWasserstein):
        k = distances.n_clusters
        matrix = _known(distances)
        return MergeInputs(distances.cluster_ids, np.arange(k), distances.sizes, matrix)
    if not isinstance(distances, PairwiseTVD):
        matrix = _square(distances)
        k = len(matrix)
        return MergeInputs(np.arange(k), np.arange(k), np.ones(k, np.int64), matrix)
    ids = distances.cluster_ids
    if blurred is not None and not np.array_equal(blurred.cluster_ids, ids):
        raise InputError(
            "blurred must be an estimate for the same clusters as distances; make both from the "
            "same labels."
        )
    if len(distances.scores.rows) == 0:
        raise InputError(
            "every cluster has only one observation, so none could be held out to compare "
            "clusters; pass clusters of at least two observations."
        )
    first = np.full(len(ids), np.iinfo(np.int64).max)
    np.minimum.at(first, distances.scores.clusters, distances.scores.rows)
    # Clusters without held-out observations have no first row; their weights order them, which do
    # not depend on names either.
    order = np.lexsort((*distances.scores.bias[::-1], first))
    result = distances.reordered(order)
    blurred = result if blurred is None else blurred.reordered(order)
    if graph is not None:
        if graph.n_clusters != len(ids):
            raise InputError(
                f"neighbours has {graph.n_clusters} clusters but distances has {len(ids)}; make "
                "both from the same labels."
            )
        graph = graph.renamed(np.argsort(order))
    return MergeInputs(ids, order, result.sizes, result=result, blurred=blurred, graph=graph)


def check_wasserstein(
    distances: object, n_clusters: int | None, max_tvd: float | None, strategy: str
) -> None:
    """Refuse options that take distances for TVDs, if they are Wasserstein distances."""
    if not isinstance(distances, PairwiseWasserstein):
        return
    if n_clusters is None or max_tvd is not None or strategy != "linkage":
        raise InputError(
            "distances is a PairwiseWasserstein, which can only be merged by "
            'strategy="linkage" to a given number of clusters because it is in the unit of X; pass '
            "n_clusters, or pass n_clusters=1 and cut the tree with tree.cut(height=...)."
        )


def _known(distances: PairwiseWasserstein) -> NDArray[np.float64]:
    """The distances, if all pairs could be compared."""
    missing = (~distances.comparable).sum(axis=1)
    if missing.any():
        name = distances.cluster_ids[missing.argmax()]
        raise InputError(
            f"distances has no value for {int(missing.sum()) // 2} pairs of clusters, most of them "
            f"of cluster {name}, because too few observations were held out; label such small "
            "clusters -1 before estimating distances."
        )
    return np.array(distances.distance)


def _square(distances: ArrayLike) -> NDArray[np.float64]:
    refuse_annotated(distances, "distances")
    try:
        matrix = np.asarray(distances, np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "distances must be a PairwiseTVD, a PairwiseWasserstein or a matrix of numbers; make "
            "one with unsplit.pairwise_tvd."
        ) from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise InputError(
            "distances must be a square matrix for at least two clusters, got shape "
            f"{matrix.shape}; pass all pairs, not a condensed vector."
        )
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        raise InputError("distances must be finite and not negative; fill in missing pairs first.")
    if not np.allclose(matrix, matrix.T):
        raise InputError("distances must be symmetric; average the matrix with its transpose.")
    return (matrix + matrix.T) / 2
