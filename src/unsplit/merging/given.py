"""What is to be merged, in an order that does not depend on names."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unsplit.errors import InputError
from unsplit.merging.neighbours import NeighbourGraph
from unsplit.result import PairwiseTVD
from unsplit.sampling import Index


@dataclass(frozen=True, eq=False)
class Given:
    """The input, clusters in the order in which they first appear in the data.

    Ties between equally close pairs go to the first, so that names decide nothing.
    """

    ids: NDArray[Any]
    order: Index
    sizes: Index
    matrix: NDArray[np.float64] | None = None
    result: PairwiseTVD | None = None
    view: PairwiseTVD | None = None
    graph: NeighbourGraph | None = None


def given_clusters(
    distances: PairwiseTVD | ArrayLike,
    view: PairwiseTVD | None = None,
    graph: NeighbourGraph | None = None,
) -> Given:
    """Check what was given and put its clusters in order."""
    if not isinstance(distances, PairwiseTVD):
        matrix = _square(distances)
        k = len(matrix)
        return Given(np.arange(k), np.arange(k), np.ones(k, np.int64), matrix)
    ids = distances.cluster_ids
    if view is not None and not np.array_equal(view.cluster_ids, ids):
        raise InputError("view must be an estimate for the same clusters as distances.")
    if len(distances.scores.rows) == 0:
        raise InputError(
            "every cluster has one observation, so nothing was held out and nothing is known about "
            "them; pass clusters of at least two."
        )
    first = np.full(len(ids), np.iinfo(np.int64).max)
    np.minimum.at(first, distances.scores.clusters, distances.scores.rows)
    # Clusters with nothing held out have no first row; their weights, too, know no names.
    order = np.lexsort((*distances.scores.bias[::-1], first))
    result = distances.reordered(order)
    seen = result if view is None else view.reordered(order)
    if graph is not None:
        if graph.n_clusters != len(ids):
            raise InputError(
                f"neighbours has {graph.n_clusters} clusters and distances {len(ids)}; make both "
                "from the same labels."
            )
        graph = graph.renamed(np.argsort(order))
    return Given(ids, order, result.sizes, result=result, view=seen, graph=graph)


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
