"""What a page keeps of the observations: a picture, exemplars, and features.

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
from scipy.signal import spectrogram
from scipy.spatial.transform import Rotation
from scipy.special import softmax
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.preprocessing import StandardScaler, minmax_scale
from threadpoolctl import threadpool_limits

from unsplit._typing import Index
from unsplit.data.array_files import FINITE, LARGEST, Array, load_checked, save_arrays
from unsplit.errors import InputError, is_whole, numeric_array, option, shown
from unsplit.pairwise.result import PairwiseTVD

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

FORMAT = "unsplit.Kept/3"
NAME = "report.npz"

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

# Smallest share of the variance of a feature that counts as lying within clusters.
LEAST_WITHIN = 1 / 16

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
    image_shape : (height, width), optional
        Of the images in the rows of X, if they are vectors of pixels.
    """

    X: Any
    clusters: Index
    n_clusters: int
    feature_names: Sequence[str] | None = None
    picture: Any = None
    shown: Any = None
    picture_method: str = "the picture that was passed"
    image_shape: Sequence[int] | None = None


def _kept_arrays(k: int) -> dict[str, Array]:
    """What is kept of k clusters, as it must be in a file."""
    clusters = (0, k - 1)
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


@np.errstate(all="ignore")
def collect(source: Source, distances: PairwiseTVD | None = None) -> Kept:
    """Collect what a page shows of the observations.

    Parameters
    ----------
    source : Source
    distances : PairwiseTVD, optional
        Its scores arrange images, sounds and clouds, which have no distances of their own.

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
    grid = _grid(source, matrix)
    features, rows = _features(source, matrix, distances)
    parts: dict[str, Any] = {"n_observations": len(source.clusters)}
    parts["means"] = np.zeros((source.n_clusters, 0), np.float32)
    if len(rows):
        parts |= _picture(source, features, rows, by_scores=matrix is None)
        parts |= _tiles(source, matrix, grid, features, rows)
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
        rows = drawn_rows(source.clusters, least=LOOKED_AT)
        if scipy.sparse.issparse(matrix):
            from unsplit.data.rows.kinds import components_of_counts

            return np.asarray(components_of_counts(matrix[rows])), rows
        return matrix[rows].astype(np.float64), rows
    if distances is None or not distances.has_scores or not len(distances.scores.rows):
        return np.zeros((0, 2)), np.zeros(0, np.int64)
    # Images, sounds and clouds have no meaningful distances of their own.  Euclidean distances
    # between square roots of probabilities are Hellinger distances.
    scores = distances.scores
    scores = scores.some(drawn_rows(scores.clusters, least=LOOKED_AT))
    return np.sqrt(softmax(scores.dense().astype(np.float64), axis=1)), scores.rows


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
    return {
        "picture_xy": minmax_scale(xy).astype(np.float32),
        "picture_method": method,
        "picture_clusters": source.clusters[drawn],
    }


def _tiles(
    source: Source,
    matrix: Any,
    grid: tuple[int, int] | None,
    features: NDArray[np.float64],
    rows: Index,
) -> dict[str, Any]:
    """Small pictures of exemplars; nothing if the observations have none."""
    shown = source.X if source.shown is None else source.shown
    if grid is None and _matrix(shown) is not None:
        return {}
    per_cluster = max(1, min(PER_CLUSTER, MOST_TILES // source.n_clusters))
    chosen = rows[exemplar_rows(features, source.clusters[rows], per_cluster)]
    if grid is not None:
        pixels = matrix[chosen].toarray() if scipy.sparse.issparse(matrix) else matrix[chosen]
        tiles, kind = tiles_of_grid(pixels, grid), "images"
    else:
        tiles, kind = tiles_of_rows(shown, chosen)
    found = {"tile_clusters": source.clusters[chosen], "tiles": tiles, "tile_kind": kind}
    return found if kind else {}


def _grid(source: Source, matrix: Any) -> tuple[int, int] | None:
    """Rows and columns of the images that vectors are, as the user or their names say."""
    shape = source.image_shape
    if shape is None:  # names of what is shown instead are no pixels
        named = isinstance(matrix, np.ndarray) and source.shown is None
        return grid_of(source.feature_names) if named else None
    pair = isinstance(shape, Sequence) and len(shape) == 2 and all(map(is_whole, shape))
    if matrix is None or not pair or shape[0] < 1 or shape[0] * shape[1] != matrix.shape[1]:
        d = "no vectors" if matrix is None else f"{matrix.shape[1]:,} features"
        raise InputError(
            f"image_shape must be a (height, width) whose product is the number of features of X, "
            f"got {shown(shape)}, but X has {d}; leave it out or pass another one."
        )
    return int(shape[0]), int(shape[1])


def _differences(source: Source, matrix: Any) -> dict[str, Any]:
    """Means of the features that differ most between clusters, and their spread."""
    names = source.feature_names
    if names is None:
        names = [f"feature {i}" for i in range(matrix.shape[1])]
    if len(names) != matrix.shape[1]:
        raise InputError(
            f"feature_names must name the {matrix.shape[1]} features of X, got {len(names)} names; "
            "pass one for each column."
        )
    inside = drawn_rows(source.clusters, MOST_AVERAGED)
    values = matrix[inside]
    if scipy.sparse.issparse(values):
        from unsplit.data.rows.kinds import log_shares

        values = log_shares(values)
    average = averaging(source.clusters[inside], source.n_clusters)
    means, within, explained = means_and_spread(values, average)
    top = np.argsort(-explained, kind="stable")[:MOST_FEATURES]
    return {
        "feature_names": np.array([str(names[i]) for i in top], dtype=np.str_),
        "means": means[:, top].astype(np.float32),
        "spread": within[top].astype(np.float32),
    }


def averaging(clusters: Index, k: int) -> scipy.sparse.csr_array:
    """A matrix (k, n) that makes means of clusters; those without observations have zeros.

    Examples
    --------
    >>> averaging(np.array([0, 1, 0]), 2) @ np.array([1.0, 5.0, 3.0])
    array([2., 5.])
    """
    sizes, place = np.bincount(clusters, minlength=k), (clusters, np.arange(len(clusters)))
    return scipy.sparse.csr_array((1 / sizes[clusters], place), (k, len(clusters)))


def means_and_spread(values: Any, average: scipy.sparse.csr_array) -> tuple[Floats, Floats, Floats]:
    """Means of features (k, d), their spread (d,), and how much of them clusters explain (d,).

    The spread is the deviation within clusters, but at least a quarter of that of all observations:
    where nearly every cluster has one value, as of a yes or no, there would be none.

    Examples
    --------
    >>> yes = np.array([[0.0], [0.0], [1.0], [1.0]])
    >>> means_and_spread(yes, averaging(np.array([0, 0, 1, 1]), 2))[1]
    array([0.125])
    """
    deviation = StandardScaler(with_mean=False).fit(values).scale_  # 1 for a constant feature
    means = average @ values.astype(np.float64)
    means = means.toarray() if scipy.sparse.issparse(means) else means
    sizes = np.diff(average.indptr)
    shares = sizes / sizes.sum()
    explained = shares @ ((means - shares @ means) / deviation) ** 2  # of the variance
    return means, deviation * np.sqrt(np.clip(1 - explained, LEAST_WITHIN, 1)), explained


# --- which observations ---------------------------------------------------------------------------


def drawn_rows(clusters: Index, most: int = MOST_POINTS, least: int = 1) -> Index:
    """Choose rows to draw: all, or about an even share of every cluster and the least of each.

    Examples
    --------
    >>> drawn_rows(np.array([1, 0, 0, -1, 0, 0]), most=3)
    array([0, 1, 4])
    """
    rows = np.flatnonzero(clusters >= 0)
    rows = rows[np.argsort(clusters[rows], kind="stable")]
    starts = np.unique(clusters[rows], return_index=True)[1]
    few = [spread(part, least) for part in np.split(rows, starts[1:])]
    return np.union1d(np.concatenate(few), spread(rows, most))


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
        chosen.append(spread(order, per_cluster))
    return np.concatenate(chosen)


# --- a picture of all -----------------------------------------------------------------------------


def checked_picture(picture: Any, n: int) -> Floats:
    """A picture of n observations that the user made, for example by UMAP."""
    xy = numeric_array(option("picture"), picture, 2)
    if xy.shape != (n, 2):
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
        return np.column_stack([features, heights]), "the only feature; the height is random"
    if d == 2:
        return features, "the two features"
    if not np.ptp(features, axis=0).any():
        return features[:, :2], "the first two features"
    components = PCA(min(COMPONENTS, m, d), random_state=0).fit_transform(features)
    if m < FEWEST_FOR_NEIGHBOURS or d == 3:
        return components[:, :2], "two principal components (PCA)"
    # Its threads wait for each other at every step: ten times as long on a busy machine.
    with threadpool_limits(1):
        return TSNE(random_state=0, **QUICK).fit_transform(components), "t-SNE"


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
    height, width = (np.ptp(places, axis=0) + 1).tolist()
    if min(height, width) < 2 or height * width != len(places):
        return None
    complete = places[0] + np.argwhere(np.ones((height, width)))
    return (height, width) if np.array_equal(places, complete) else None


def tiles_of_grid(values: NDArray[Any], shape: tuple[int, int]) -> Bytes:
    """Rows of features (t, height · width) as grey images, dark where values are large.

    Examples
    --------
    >>> tiles_of_grid(np.array([[0.0, 1.0, 1.0, 0.0]]), (2, 2))[0, :, :, 0]
    array([[255,   0],
           [  0, 255]], dtype=uint8)
    """
    share = minmax_scale(np.append(values, 0.0))[:-1]  # zero is in the range
    grey = np.round(255 * (1 - share)).astype(np.uint8).reshape(-1, *shape)
    return np.repeat(grey[..., None], 3, axis=3)


def tiles_of_rows(X: Any, index: Index) -> tuple[Bytes, str]:
    """Draw some observations of any kind but vectors as squares, and say what they show."""
    import torch

    from unsplit.data.rows.kinds import observations

    rows = observations(X, torch.device("cpu"))
    draw, kind = {
        "images": (_image, "images"),
        "points": (_cloud, "point clouds"),
        "sequences": (_waveform, "waveforms"),
        "sounds": (_sound, "waveforms above spectrograms"),
    }.get(rows.kind if rows.rate is None else "sounds", (None, ""))
    if draw is None:
        return np.zeros((0, 1, 1, 3), np.uint8), kind
    side = int(np.clip((MOST_PIXELS / len(index)) ** 0.5, SMALLEST_SIDE, LARGEST_SIDE))
    taken = (rows.take(torch.tensor([row]))[0].float() for row in index.tolist())
    return np.stack([draw(one, side) for one in taken]), kind


def _resized(channels: Any, shape: tuple[int, int]) -> NDArray[Any]:
    """A tensor of channels × height × width as an array with another height and width first."""
    from torch.nn.functional import interpolate

    return interpolate(channels[None], shape, mode="area")[0].permute(1, 2, 0).numpy()


def _image(pixels: Any, side: int) -> Bytes:
    values = pixels[:3] if len(pixels) >= 3 else pixels[:1].repeat(3, 1, 1)
    values = _resized(values, (side, side))
    # Bytes are drawn as they are, other numbers from their smallest to their largest.
    if values.min() < 0 or values.max() > 255 or values.max() <= 1:
        values = 255 * minmax_scale(values.ravel()).reshape(values.shape)
    return np.round(values).astype(np.uint8)


def _cloud(points: Any, side: int) -> Bytes:
    """A cloud seen from the front and a little from above; near points are darker."""
    xyz = points.numpy()[:, :3].astype(np.float64)
    xyz = xyz - (xyz.min(axis=0) + xyz.max(axis=0)) / 2
    turned = Rotation.from_euler("zx", [35, -25], degrees=True).apply(xyz)
    x, depth, y = turned[np.argsort(-turned[:, 1])].T  # far points first, which near ones cover
    reach = 1.05 * max(float(np.abs([x, y]).max()), 1e-12)
    places = ((np.stack([-y, x]) / reach + 1) / 2 * (side - 1)).round().astype(np.int64)
    tile = np.full((side, side, 3), BACKGROUND, np.uint8)
    tile[*places] = INK + 0.6 * minmax_scale(depth)[:, None] * (BACKGROUND - INK)
    return tile


def _waveform(sequence: Any, side: int) -> Bytes:
    """Each channel as a band, from its smallest to its largest value in every column."""
    values = sequence.numpy()
    channels = values[:-1][:4, values[-1] > 0]  # the last channel says where there are values
    tile = np.full((side, side, 3), BACKGROUND, np.uint8)
    height, starts = side // len(channels), np.arange(side) * channels.shape[1] // side
    lines = np.arange(height)[::-1, None]
    for band, channel in enumerate(channels):
        level = (minmax_scale(channel) * (height - 1)).astype(np.int64)
        low, high = np.minimum.reduceat(level, starts), np.maximum.reduceat(level, starts)
        tile[band * height : (band + 1) * height][(lines >= low) & (lines <= high)] = INK
    return tile


def _sound(sequence: Any, side: int) -> Bytes:
    """The waveform above, and the spectrogram below it: dark is loud, and high is above."""
    samples = sequence.numpy()[0, sequence.numpy()[-1] > 0].astype(np.float64)
    window = min(256, len(samples))
    power = spectrogram(samples, window="hann", nperseg=window, noverlap=window // 2)[2][::-1]
    # From the loudest to 60 dB below it, or less.
    decibels = 10 * np.log10(power / (power.max() or 1.0) + 1e-12)
    loud = np.clip(1 + decibels / 60, 0.0, 1.0)
    upper = side // 3
    loud = _resized(sequence.new_tensor(loud)[None], (side - upper, side))
    tile = _waveform(sequence, side)
    tile[:upper] = tile[spread(np.arange(side), upper)]
    tile[upper:] = BACKGROUND + loud * (INK - BACKGROUND)
    return tile


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
    """An image of shape (height, width, 3) as a PNG in base64."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    packed = zlib.compress(lines.tobytes(), 9)
    for name, body in ((b"IHDR", header), (b"IDAT", packed), (b"IEND", b"")):
        check = zlib.crc32(name + body)
        content += struct.pack(">I", len(body)) + name + body + struct.pack(">I", check)
    return base64.b64encode(content).decode()
