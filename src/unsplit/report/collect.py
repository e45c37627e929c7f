"""What a page keeps of the observations: a picture, exemplars, features, and edges.

All of it fits into one small file, from which the page can be made again without the data.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.data.array_files import FINITE, LARGEST, Array, load_checked, save_arrays
from unsplit.errors import InputError
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.pairwise.result import PairwiseTVD
from unsplit.report.pictures import (
    checked_picture,
    drawn_rows,
    exemplar_rows,
    grid_of,
    picture_of,
    score_features,
    spread,
    tiles_of_grid,
    tiles_of_rows,
)

FORMAT = "unsplit.Kept/2"
NAME = "report.npz"

# What is not zero in single precision.
TINY = float(np.finfo(np.float32).tiny)
# Exemplars of each cluster, and of all clusters together.
PER_CLUSTER = 6
MOST_TILES = 2_400
# Exemplars are chosen among so many observations of each cluster.
LOOKED_AT = 100
# Features that are kept: those that differ most between clusters.
MOST_FEATURES = 60
# Means of features are computed from so many observations.
MOST_AVERAGED = 100_000


@dataclass(frozen=True, eq=False)
class Source:
    """The observations that a page is about.

    Parameters
    ----------
    X : any kind of observations
        As for :func:`unsplit.pairwise_tvd`.
    clusters : ndarray of shape (n,)
        Index of each observation's initial cluster; −1 for noise.
    n_clusters : int
    feature_names : sequence of str, optional
    picture : array-like of shape (n, 2), optional
        A picture that the user made.
    shown : any kind of observations, optional
        What is shown of the observations if X holds vectors that were made from it: images, or
        the expression of genes, which ``feature_names`` then name.
    picture_method : str
        How that picture was made.
    """

    X: Any
    clusters: Index
    n_clusters: int
    feature_names: Sequence[str] | None = None
    picture: Any = None
    shown: Any = None
    picture_method: str = "the picture that was passed"


def _kept_arrays(k: int) -> dict[str, Array]:
    """What is kept of k clusters, as it must be in a file."""
    clusters, nodes = (0, k - 1), (0, 2 * k - 2)
    return {
        # Where observations are drawn, the initial cluster of each, and how the picture was made.
        "picture_xy": Array("f4", ("m", 2), -FINITE, FINITE),
        "picture_clusters": Array("i8", ("m",), *clusters),
        "picture_method": Array("U"),
        "n_observations": Array("i8", (), 0, LARGEST),
        # Exemplars as small images, typical ones first, their clusters, and what they show.
        "tiles": Array("u1", ("t", "height", "width", 3)),
        "tile_clusters": Array("i8", ("t",), *clusters),
        "tile_kind": Array("U"),
        # Features that differ most between clusters: mean in every one, deviation within them.
        "feature_names": Array("U", ("f",)),
        "means": Array("f4", (k, "f"), -FINITE, FINITE),
        "spread": Array("f4", ("f",), -FINITE, FINITE),
        # Pairs of clusters that the neighbour graph connects, and the number of edges.
        "edge_pairs": Array("i8", ("e", 2), *clusters),
        "edges": Array("i8", ("e",), 0, LARGEST),
        # Pairs of nodes of the tree that can be reviewed; how many held-out observations of both
        # sides have which difference of scores; and the largest difference that is shown.
        "border_pairs": Array("i8", ("p", 2), *nodes),
        "borders": Array("i8", ("p", 2, "bars"), 0, LARGEST),
        "border_reach": Array("f4", ("p",), TINY, FINITE),
    }


class Kept(SimpleNamespace):
    """The arrays that :func:`_kept_arrays` lists; those that are not passed are empty."""

    def __init__(self, **parts: Any) -> None:
        for name, array in _kept_arrays(0).items():
            empty = np.zeros([n if isinstance(n, int) else 0 for n in array.shape], array.dtype)
            setattr(self, name, parts.get(name, empty if array.shape else empty.item()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one .npz file, with a checksum and without pickle."""
        save_arrays(path, FORMAT, {}, vars(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str], n_clusters: int) -> "Kept":
        """Read a file that :meth:`save` wrote, and refuse one that cannot be true."""
        advice = "make it again with --report"
        return cls(**load_checked(path, FORMAT, _kept_arrays(n_clusters), advice=advice)[0])


def collect(
    source: Source, distances: PairwiseTVD | None = None, graph: NeighbourGraph | None = None
) -> Kept:
    """Collect what a page shows of the observations.

    Parameters
    ----------
    source : Source
    distances : PairwiseTVD, optional
        Its scores arrange images, sounds and clouds, which have no distances of their own.
    graph : NeighbourGraph, optional
        The neighbour graph, for the number of edges.

    Returns
    -------
    Kept

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [9.0, 9.0]])
    >>> kept = collect(Source(X, np.array([0, 0, 1]), 2, ["width", "height"]))
    >>> kept.picture_method, kept.means.tolist()
    ('the two features', [[0.5, 0.5], [9.0, 9.0]])
    """
    matrix = _matrix(source.X)
    features, rows = _features(source, matrix, distances)
    parts: dict[str, Any] = {"n_observations": len(source.clusters)}
    parts["means"] = np.zeros((source.n_clusters, 0), np.float32)
    if graph is not None:
        parts |= _edges(graph)
    if len(rows):
        parts |= _picture(source, features, rows, by_scores=matrix is None)
        parts |= _tiles(source, matrix, features, rows)
    if matrix is not None and "tiles" not in parts:
        genes = _matrix(source.shown)
        parts |= _differences(source, matrix if genes is None else genes)
    return Kept(**parts)


def _matrix(X: Any) -> Any:
    """The observations as a dense or sparse matrix; None if they are not vectors."""
    if scipy.sparse.issparse(X):
        return scipy.sparse.csr_array(X)
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):  # a data frame
        X = X.to_numpy()
    is_matrix = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf"
    return X if is_matrix else None


def _features(
    source: Source, matrix: Any, distances: PairwiseTVD | None
) -> tuple[NDArray[np.float64], Index]:
    """Vectors of the observations that are looked at, and which they are."""
    if matrix is not None:
        rows = _looked_at(source.clusters)
        if scipy.sparse.issparse(matrix):
            from unsplit.data.rows.kinds import components_of_counts

            return np.asarray(components_of_counts(matrix[rows])), rows
        return matrix[rows].astype(np.float64), rows
    if distances is None or not distances.has_scores or not len(distances.scores.rows):
        return np.zeros((0, 2)), np.zeros(0, np.int64)
    positions = _looked_at(distances.scores.clusters)
    return score_features(distances.scores, positions), distances.scores.rows[positions]


def _looked_at(clusters: Index) -> Index:
    """At most :data:`LOOKED_AT` rows of every cluster, and all that a picture draws."""
    order = np.argsort(clusters, kind="stable")
    order = order[clusters[order] >= 0]
    starts = np.unique(clusters[order], return_index=True)[1]
    few = [spread(part, LOOKED_AT) for part in np.split(order, starts[1:])]
    return np.union1d(np.concatenate(few), drawn_rows(clusters))


def _picture(
    source: Source, features: NDArray[np.float64], rows: Index, by_scores: bool
) -> dict[str, Any]:
    """Where observations are drawn, from 0 to 1 along both axes."""
    if source.picture is not None:
        drawn, method = drawn_rows(source.clusters), source.picture_method
        xy = checked_picture(source.picture, len(source.clusters))[drawn]
    else:
        some = drawn_rows(source.clusters[rows])
        drawn = rows[some]
        xy, method = picture_of(features[some])
        if by_scores:
            method += " of the probabilities that the networks give to the clusters"
    low, reach = xy.min(axis=0), np.ptp(xy, axis=0)
    return {
        "picture_xy": ((xy - low) / np.where(reach > 0, reach, 1.0)).astype(np.float32),
        "picture_method": method,
        "picture_clusters": source.clusters[drawn],
    }


def _tiles(
    source: Source, matrix: Any, features: NDArray[np.float64], rows: Index
) -> dict[str, Any]:
    """Small pictures of exemplars; nothing if the observations have none."""
    made_from = source.shown is not None  # then X and its names are no pixels
    shown = source.shown if made_from else source.X
    is_grid = isinstance(matrix, np.ndarray) and not made_from
    grid = grid_of(source.feature_names) if is_grid else None
    if grid is None and _matrix(shown) is not None:
        return {}
    per_cluster = max(1, min(PER_CLUSTER, MOST_TILES // source.n_clusters))
    chosen = rows[exemplar_rows(features, source.clusters[rows], per_cluster)]
    if grid is not None:
        tiles, kind = tiles_of_grid(matrix[chosen], grid), "images"
    else:
        tiles, kind = tiles_of_rows(shown, chosen)
    found = {"tile_clusters": source.clusters[chosen], "tiles": tiles, "tile_kind": kind}
    return found if kind else {}


def _edges(graph: NeighbourGraph) -> dict[str, Any]:
    """Count the edges between clusters, each pair once."""
    counts = scipy.sparse.triu(graph.edges_between(), 1).tocoo()
    found = np.round(counts.data).astype(np.int64)
    pairs = np.column_stack([counts.row, counts.col]).astype(np.int64)
    return {"edge_pairs": pairs[found > 0], "edges": found[found > 0]}


def _differences(source: Source, matrix: Any) -> dict[str, Any]:
    """Means of the features that differ most between clusters, relative to their spread."""
    k, names = source.n_clusters, source.feature_names
    if names is None:
        names = [f"feature {i}" for i in range(matrix.shape[1])]
    if len(names) != matrix.shape[1]:
        raise InputError(
            f"feature_names must name the {matrix.shape[1]} features of X, got {len(names)} names; "
            "pass one for each column."
        )
    inside = drawn_rows(source.clusters, MOST_AVERAGED)
    clusters = source.clusters[inside]
    sizes = np.maximum(np.bincount(clusters, minlength=k), 1)
    place = (clusters, np.arange(len(inside)))
    average = scipy.sparse.csr_array((1 / sizes[clusters], place), (k, len(inside)))
    if scipy.sparse.issparse(matrix):
        from unsplit.data.rows.kinds import log_shares

        values = log_shares(matrix[inside])
        means, squares = ((average @ part).toarray() for part in (values, values * values))
    else:
        values = matrix[inside].astype(np.float64)
        means, squares = average @ values, average @ (values * values)
    shares = sizes / sizes.sum()
    within = np.sqrt(np.maximum(shares @ (squares - means**2), 0.0))
    between = np.sqrt(np.maximum(shares @ means**2 - (shares @ means) ** 2, 0.0))
    floor = 1e-9 + 1e-3 * float(np.max(within, initial=0.0))
    top = np.argsort(-between / np.maximum(within, floor), kind="stable")[:MOST_FEATURES]
    return {
        "feature_names": np.array([str(names[i]) for i in top], dtype=np.str_),
        "means": means[:, top].astype(np.float32),
        "spread": np.maximum(within, floor)[top].astype(np.float32),
    }
