"""From observations to what a page keeps of them: picture, exemplars, features and edges."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.errors import InputError
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.pairwise.result import PairwiseTVD
from unsplit.report.kept import Kept
from unsplit.report.picture import (
    Picture,
    drawn_rows,
    given_picture,
    picture_of,
    score_features,
    spread,
)
from unsplit.report.tiles import exemplar_rows, grid_of, tiles_of_grid, tiles_of_rows

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
    if graph is not None:
        parts |= _edges(graph)
    if len(rows):
        parts |= _picture(source, features, rows, by_scores=matrix is None)
        parts |= _tiles(source, matrix, features, rows)
    if matrix is not None and parts.get("tile_kind") is None:
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
    parts = np.split(order, starts[1:]) if len(order) else [order]
    few = [spread(part, LOOKED_AT) for part in parts]
    return np.union1d(np.concatenate(few), drawn_rows(clusters))


def _picture(
    source: Source, features: NDArray[np.float64], rows: Index, by_scores: bool
) -> dict[str, Any]:
    if source.picture is not None:
        picture = given_picture(source.picture, source.clusters)
        picture = replace(picture, method=source.picture_method)
    else:
        drawn = drawn_rows(source.clusters[rows])
        picture = picture_of(features[drawn], rows[drawn])
        if by_scores:
            of_what = "of the probabilities that the networks give to the clusters"
            picture = replace(picture, method=f"{picture.method} {of_what}")
    return _scaled(picture) | {"picture_clusters": source.clusters[picture.rows]}


def _scaled(picture: Picture) -> dict[str, Any]:
    """Coordinates from 0 to 1 along both axes."""
    low, reach = picture.xy.min(axis=0), np.ptp(picture.xy, axis=0)
    xy = ((picture.xy - low) / np.where(reach > 0, reach, 1.0)).astype(np.float32)
    return {"picture_xy": xy, "picture_method": picture.method}


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
    chosen = exemplar_rows(features, source.clusters[rows], source.n_clusters, per_cluster)
    chosen = rows[chosen]
    found = {"tile_clusters": source.clusters[chosen]}
    if grid is not None:
        return found | {"tiles": tiles_of_grid(matrix[chosen], grid), "tile_kind": "images"}
    import torch

    from unsplit.data.rows.kinds import observations
    from unsplit.data.rows.sequences import Audio

    wrapped = observations(shown, torch.device("cpu"))
    if wrapped.kind not in ("images", "points", "sequences"):
        return {}
    kind = {"points": "point clouds", "sequences": "waveforms"}.get(wrapped.kind, wrapped.kind)
    sound = isinstance(shown, Audio)
    kind = "waveforms above spectrograms" if sound else kind
    return found | {"tiles": tiles_of_rows(wrapped, chosen, sound), "tile_kind": kind}


def _edges(graph: NeighbourGraph) -> dict[str, Any]:
    """Count the edges between clusters, each pair once."""
    inside = np.flatnonzero(graph.clusters >= 0)
    member = scipy.sparse.csr_array(
        (np.ones(len(inside)), (inside, graph.clusters[inside])),
        (len(graph.clusters), graph.n_clusters),
    )
    counts = scipy.sparse.triu(member.T @ graph.adjacency @ member, 1).tocoo()
    found = np.round(counts.data).astype(np.int64)
    pairs = np.column_stack([counts.row, counts.col]).astype(np.int64)
    return {"edge_pairs": pairs[found > 0], "edges": found[found > 0]}


def _differences(source: Source, matrix: Any) -> dict[str, Any]:
    """Means of the features that differ most between clusters, relative to their spread."""
    k, names = source.n_clusters, source.feature_names
    if names is not None and len(names) != matrix.shape[1]:
        raise InputError(
            f"feature_names must name the {matrix.shape[1]} features of X, got {len(names)} names; "
            "pass one for each column."
        )
    inside = drawn_rows(source.clusters, MOST_AVERAGED)
    clusters = source.clusters[inside]
    sizes = np.maximum(np.bincount(clusters, minlength=k), 1)
    place = (clusters, np.arange(len(inside)))
    average = scipy.sparse.csr_array((1 / sizes[clusters], place), (k, len(inside)))
    values = _comparable(matrix[inside])
    means, squares = (_dense(average @ part) for part in (values, values * values))
    shares = sizes / sizes.sum()
    within = np.sqrt(np.maximum(shares @ (squares - means**2), 0.0))
    between = np.sqrt(np.maximum(shares @ means**2 - (shares @ means) ** 2, 0.0))
    floor = 1e-9 + 1e-3 * float(np.max(within, initial=0.0))
    top = np.argsort(-between / np.maximum(within, floor), kind="stable")[:MOST_FEATURES]
    labels = [f"feature {i}" for i in top] if names is None else [str(names[i]) for i in top]
    return {
        "feature_names": np.array(labels, dtype=np.str_),
        "means": means[:, top].astype(np.float32),
        "spread": np.maximum(within, floor)[top].astype(np.float32),
    }


def _comparable(matrix: Any) -> Any:
    """Counts as logarithms of shares, as is usual for cells and texts; vectors as they are."""
    if not scipy.sparse.issparse(matrix):
        return matrix.astype(np.float64)
    if (matrix.data < 0).any():
        return matrix
    totals = np.asarray(matrix.sum(axis=1)).ravel()
    usual = float(np.median(totals[totals > 0])) if (totals > 0).any() else 1.0
    shares = scipy.sparse.csr_array(
        scipy.sparse.diags_array(usual / np.maximum(totals, 1)) @ matrix
    )
    shares.data = np.log1p(shares.data)
    return shares


def _dense(matrix: Any) -> NDArray[np.float64]:
    return matrix.toarray() if scipy.sparse.issparse(matrix) else np.asarray(matrix, np.float64)
