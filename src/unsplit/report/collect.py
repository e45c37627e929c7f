"""What a page keeps of the observations: a picture, exemplars, features, and edges.

All of it fits into one small file, from which the page can be made again without the data.
"""

import base64
import os
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from unsplit._typing import Index
from unsplit.data.array_files import FINITE, LARGEST, Array, load_checked, save_arrays
from unsplit.errors import InputError, option
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.scores import HeldoutScores

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

FORMAT = "unsplit.Kept/2"
NAME = "report.npz"

# What is not zero in single precision.
TINY = float(np.finfo(np.float32).tiny)
# Exemplars of each cluster, and of all clusters together.
PER_CLUSTER = 6
MOST_TILES = 2_400
# Exemplars are chosen among this many observations of each cluster.
LOOKED_AT = 100
# Features that are kept: those that differ most between clusters.
MOST_FEATURES = 60
# Means of features are computed from at most this many observations.
MOST_AVERAGED = 100_000

# More points than this cannot be told apart in a picture, and t-SNE would take minutes.
MOST_POINTS = 2_000
# t-SNE starts from this many principal components.
COMPONENTS = 30
# Two thirds of the usual time for a picture that looks the same.  UMAP would be no better here, and
# compiles itself for half a minute each time a command uses it.
QUICK = {"max_iter": 400, "angle": 0.7}
# With fewer observations there is nothing that neighbours could show.
FEWEST_FOR_NEIGHBOURS = 50

SMALLEST_SIDE, LARGEST_SIDE = 16, 64
# Pixels of all tiles together: a page of 500 clusters stays below ten megabytes.
MOST_PIXELS = 1_500_000
BACKGROUND, INK = 246, np.array([0, 90, 140])


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


# --- which observations ---------------------------------------------------------------------------


def drawn_rows(clusters: Index, most: int = MOST_POINTS) -> Index:
    """Choose rows to draw: all, or about an even share of every cluster and one of each.

    Examples
    --------
    >>> drawn_rows(np.array([1, 0, 0, -1, 0, 0]), most=3)
    array([0, 1, 4])
    """
    rows = np.flatnonzero(clusters >= 0)
    rows = rows[np.argsort(clusters[rows], kind="stable")]
    if len(rows) <= most:
        return np.sort(rows)
    first = rows[np.unique(clusters[rows], return_index=True)[1]]
    return np.union1d(first, spread(rows, most))


def spread(index: Index, most: int) -> Index:
    """At most ``most`` entries, evenly spaced, the first and the last among them.

    Examples
    --------
    >>> spread(np.arange(9), 3)
    array([0, 4, 8])
    """
    return index[np.linspace(0, len(index) - 1, min(most, len(index))).astype(np.int64)]


def exemplar_rows(features: Floats, clusters: Index, per_cluster: int) -> Index:
    """Positions of a few observations of every cluster, the one nearest to its mean first.

    Examples
    --------
    >>> exemplar_rows(np.array([[0.0], [5.0], [1.0], [9.0]]), np.array([0, 0, 0, 1]), 2)
    array([2, 1, 3])
    """
    chosen = [np.zeros(0, np.int64)]
    for cluster in np.unique(clusters[clusters >= 0]).tolist():
        inside = np.flatnonzero(clusters == cluster)
        away = np.linalg.norm(features[inside] - features[inside].mean(axis=0), axis=1)
        order = inside[np.argsort(away, kind="stable")]
        steps = np.linspace(0, len(order) - 1, min(per_cluster, len(order)))
        chosen.append(order[np.unique(steps.round().astype(np.int64))])
    return np.concatenate(chosen)


# --- a picture of all -----------------------------------------------------------------------------


def checked_picture(picture: Any, n: int) -> Floats:
    """A picture of n observations that the user made, for example by UMAP."""
    xy = np.asarray(picture, np.float64)
    if xy.shape != (n, 2) or not np.isfinite(xy).all():
        raise InputError(
            f"{option('picture')} must have two finite coordinates for each of the {n} "
            f"observations, got shape {xy.shape}; pass an array of shape ({n}, 2)."
        )
    return xy


def picture_of(features: Floats) -> tuple[Floats, str]:
    """Draw vectors in two dimensions (themselves, t-SNE or PCA), and say how.

    Examples
    --------
    >>> picture_of(np.zeros((3, 2)))[1]
    'the two features'
    """
    m, d = features.shape
    if d == 1:
        heights = np.random.default_rng(0).uniform(size=m)
        xy = np.column_stack([features[:, 0], heights * (np.ptp(features) or 1.0) / 4])
        return xy, "the only feature; the height is random"
    if d == 2:
        return features, "the two features"
    width = min(COMPONENTS, m - 1, d)
    if width < 2 or not np.ptp(features, axis=0).any():
        return features[:, :2], "the first two features"
    components = PCA(width, random_state=0).fit_transform(features)
    if m < FEWEST_FOR_NEIGHBOURS or d == 3:
        return components[:, :2], "two principal components (PCA)"
    start = components[:, :2] / components[:, 0].std() * 1e-4
    # Its threads wait for each other at every step: ten times as long on a busy machine.
    with threadpool_limits(1):
        xy = TSNE(init=start, random_state=0, **QUICK).fit_transform(components)
    return xy.astype(np.float64), "t-SNE"


def score_features(scores: HeldoutScores, positions: Index) -> Floats:
    """Square roots of the probabilities that the networks give some observations for all clusters.

    For images, sounds and clouds, which have no meaningful distances of their own.  Euclidean
    distances between the results are Hellinger distances.
    """
    strata = scores.strata[positions]
    found = np.empty((len(positions), scores.n_clusters))
    for stratum in np.unique(strata):
        inside = strata == stratum
        z = scores.features[positions[inside]] @ scores.weights[stratum].T + scores.bias[stratum]
        found[inside] = softmax(z.astype(np.float64), axis=1)
    return np.sqrt(found)


# --- exemplars ------------------------------------------------------------------------------------


def grid_of(names: Sequence[str] | None) -> tuple[int, int] | None:
    """The rows and columns of an image, if all features are named like "pixel_0_7".

    Examples
    --------
    >>> grid_of(["p_0_0", "p_0_1", "p_1_0", "p_1_1"]), grid_of(["age", "height"])
    ((2, 2), None)
    """
    found = [re.fullmatch(r"\D*(\d+)[_x,](\d+)", str(name)) for name in names or ()]
    if len(found) < 4 or not all(found):
        return None
    places = np.array([(int(m[1]), int(m[2])) for m in found if m is not None])
    height, width = np.ptp(places, axis=0).tolist()
    complete = np.indices((height + 1, width + 1)).reshape(2, -1).T + places[0]
    is_grid = min(height, width) > 0 and np.array_equal(places, complete)
    return (height + 1, width + 1) if is_grid else None


def tiles_of_grid(values: NDArray[Any], shape: tuple[int, int]) -> Bytes:
    """Rows of features (t, height · width) as grey images, dark where values are large.

    Examples
    --------
    >>> tiles_of_grid(np.array([[0.0, 1.0, 1.0, 0.0]]), (2, 2))[0, :, :, 0]
    array([[255,   0],
           [  0, 255]], dtype=uint8)
    """
    low, high = float(values.min(initial=0.0)), float(values.max(initial=0.0))
    share = (values - low) / ((high - low) or 1.0)
    grey = np.round(255 * (1 - share)).astype(np.uint8).reshape(-1, *shape)
    return np.repeat(grey[..., None], 3, axis=3)


def tiles_of_rows(X: Any, index: Index) -> tuple[Bytes, str]:
    """Draw some observations of any kind but vectors as squares, and say what they show."""
    import torch

    from unsplit.data.rows.kinds import observations

    rows = observations(X, torch.device("cpu"))
    sequences = (_waveform, "waveforms")
    if rows.rate is not None:
        sequences = (_sound, "waveforms above spectrograms")
    kinds = {"images": (_image, "images"), "points": (_cloud, "point clouds")}
    draw, kind = (kinds | {"sequences": sequences}).get(rows.kind, (None, ""))
    if draw is None:
        return np.zeros((0, 1, 1, 3), np.uint8), kind
    side = int(np.clip((MOST_PIXELS / len(index)) ** 0.5, SMALLEST_SIDE, LARGEST_SIDE))
    taken = (rows.take(torch.tensor([row]))[0].float() for row in index.tolist())
    return np.stack([draw(one, side) for one in taken]), kind


def _image(pixels: Any, side: int) -> Bytes:
    from torch.nn.functional import interpolate

    values = pixels[:3] if len(pixels) >= 3 else pixels[:1].repeat(3, 1, 1)
    values = interpolate(values[None], (side, side), mode="area")[0].permute(1, 2, 0).numpy()
    # Bytes are drawn as they are, other numbers from their smallest to their largest.
    if values.min() < 0 or values.max() > 255 or values.max() <= 1:
        low, high = float(values.min()), float(values.max())
        values = 255 * (values - low) / ((high - low) or 1.0)
    return np.round(values).astype(np.uint8)


def _empty_tile(side: int) -> Bytes:
    return np.full((side, side, 3), BACKGROUND, np.uint8)


def _cloud(points: Any, side: int) -> Bytes:
    """A cloud seen from the front and a little from above; near points are darker."""
    xyz = points.numpy()[:, :3].astype(np.float64)
    xyz = xyz - (xyz.min(axis=0) + xyz.max(axis=0)) / 2
    turn, tilt = np.deg2rad(35), np.deg2rad(25)
    x = np.cos(turn) * xyz[:, 0] - np.sin(turn) * xyz[:, 1]
    depth = np.sin(turn) * xyz[:, 0] + np.cos(turn) * xyz[:, 1]
    y = np.cos(tilt) * xyz[:, 2] - np.sin(tilt) * depth
    reach = 1.05 * max(float(np.abs(np.concatenate([x, y])).max()), 1e-12)
    far = (depth - depth.min()) / (float(np.ptp(depth)) or 1.0)
    shades = (INK + 0.6 * far[:, None] * (BACKGROUND - INK)).astype(np.uint8)
    places = ((np.stack([-y, x]) / reach + 1) / 2 * (side - 1)).round().astype(np.int64)
    tile = _empty_tile(side)
    for point in np.argsort(-depth):
        tile[places[0, point], places[1, point]] = shades[point]
    return tile


def _waveform(sequence: Any, side: int) -> Bytes:
    """Each channel as a band, from its smallest to its largest value in every column."""
    values = sequence.numpy()
    channels = values[:-1][:4, values[-1] > 0]  # the last channel says where there are values
    tile = _empty_tile(side)
    if channels.size == 0:
        return tile
    height, n_columns = side // len(channels), min(side, channels.shape[1])
    edges = np.arange(n_columns + 1) * side // n_columns
    for band, channel in enumerate(channels):
        low, high = float(channel.min()), float(channel.max())
        level = (channel - low) / ((high - low) or 1.0) * (height - 1)
        lowest = (band + 1) * height - 1
        for column, part in enumerate(np.array_split(level, n_columns)):
            lines = slice(lowest - int(part.max()), lowest - int(part.min()) + 1)
            tile[lines, edges[column] : edges[column + 1]] = INK
    return tile


def _sound(sequence: Any, side: int) -> Bytes:
    """The waveform above, and the spectrogram below it: dark is loud, and high is above."""
    samples = sequence.numpy()[0, sequence.numpy()[-1] > 0].astype(np.float64)
    upper = side // 3
    tile = _waveform(sequence, side)
    loud = spectrogram(samples, side, side - upper)[..., None]
    tile[:upper] = tile[np.linspace(0, side - 1, upper).astype(np.int64)]
    tile[upper:] = BACKGROUND + loud * (INK - BACKGROUND)
    return tile


def spectrogram(samples: Floats, width: int, height: int) -> Floats:
    """How loud each pitch is over time, from 0 (60 dB below the loudest, or less) to 1.

    The highest pitch comes first, and low ones have more lines than high ones, as for the ear.

    Examples
    --------
    >>> high, low = np.sin(2.5 * np.arange(900)), np.sin(0.3 * np.arange(900))
    >>> [int(spectrogram(sound, 4, 8).sum(axis=1).argmax()) for sound in (high, low)]
    [1, 6]
    """
    window = min(256, len(samples))
    starts = np.linspace(0, len(samples) - window, width).astype(np.int64)
    parts = samples[starts[:, None] + np.arange(window)] * np.hanning(window + 2)[1:-1]
    power = np.abs(np.fft.rfft(parts - parts.mean(axis=1, keepdims=True), axis=1)) ** 2
    edges = np.linspace(0, 1, height + 1) ** 1.6 * power.shape[1]
    first = np.minimum(edges[:-1].astype(np.int64), power.shape[1] - 1)
    last = np.maximum(np.ceil(edges[1:]).astype(np.int64), first + 1)
    lines = np.stack([power[:, a:b].mean(axis=1) for a, b in zip(first, last, strict=True)])
    decibels = 10 * np.log10(lines[::-1] / (lines.max() or 1.0) + 1e-12)
    return np.clip(1 + decibels / 60, 0.0, 1.0)


# --- as text --------------------------------------------------------------------------------------


def sheet(tiles: Bytes, columns: int) -> Bytes:
    """Put tiles of one size side by side, row by row, into one image.

    Examples
    --------
    >>> sheet(np.zeros((3, 2, 4, 3), np.uint8), columns=2).shape
    (4, 8, 3)
    """
    missing = np.zeros((-len(tiles) % columns, *tiles.shape[1:]), np.uint8)
    rows = np.concatenate([tiles, missing]).reshape(-1, columns, *tiles.shape[1:]).swapaxes(1, 2)
    return rows.reshape(len(rows) * rows.shape[1], -1, 3)


def png(pixels: Bytes) -> str:
    """An image of shape (height, width, 3) as the address of a PNG, for ``src``."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    parts = {b"IHDR": header, b"IDAT": zlib.compress(lines.tobytes(), 9), b"IEND": b""}
    for name, body in parts.items():
        check = zlib.crc32(name + body)
        content += struct.pack(">I", len(body)) + name + body + struct.pack(">I", check)
    return "data:image/png;base64," + base64.b64encode(content).decode()
