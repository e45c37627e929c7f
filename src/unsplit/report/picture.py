"""A two-dimensional picture of the observations."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from unsplit._typing import Index
from unsplit.errors import InputError
from unsplit.pairwise.scores import HeldoutScores

Floats = NDArray[np.float64]

# More points than this cannot be told apart in a picture, and t-SNE would take minutes.
MOST_POINTS = 2_000
# t-SNE starts from so many principal components.
COMPONENTS = 30
# Two thirds of the usual time for a picture that looks the same.  UMAP would be no better here, and
# compiles itself for half a minute each time a command uses it.
QUICK = {"max_iter": 400, "angle": 0.7}
# With fewer observations there is nothing that neighbours could show.
FEWEST_FOR_NEIGHBOURS = 50


@dataclass(frozen=True, eq=False)
class Picture:
    """Where some of the observations are drawn.

    Parameters
    ----------
    rows : ndarray of shape (m,)
        The observations that are drawn.
    xy : ndarray of shape (m, 2)
    method : str
        How they were made, in words for the reader.
    """

    rows: Index
    xy: Floats
    method: str


def drawn_rows(clusters: Index, most: int = MOST_POINTS) -> Index:
    """Choose rows to draw: all, or an even share of every cluster and at least one of each.

    Parameters
    ----------
    clusters : ndarray of shape (n,)
        Cluster of every row; −1 for none, which is not drawn.
    most : int
        About so many rows are drawn.

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
    """At most so many entries, evenly spaced, the first and the last among them.

    Examples
    --------
    >>> spread(np.arange(9), 3)
    array([0, 4, 8])
    """
    return index[np.linspace(0, len(index) - 1, min(most, len(index))).astype(np.int64)]


def given_picture(picture: Any, clusters: Index) -> Picture:
    """A picture that the user made, for example by UMAP.

    Parameters
    ----------
    picture : array-like of shape (n, 2)
    clusters : ndarray of shape (n,)

    Examples
    --------
    >>> given_picture([[0, 1], [2, 3]], np.array([0, 1])).method
    'the picture that was passed'
    """
    xy = np.asarray(picture, np.float64)
    if xy.shape != (len(clusters), 2) or not np.isfinite(xy).all():
        raise InputError(
            f"picture must have two finite coordinates for each of the {len(clusters)} "
            f"observations, got shape {xy.shape}; pass an array of shape ({len(clusters)}, 2)."
        )
    rows = drawn_rows(clusters)
    return Picture(rows, xy[rows], "the picture that was passed")


def picture_of(features: Floats, rows: Index, seed: int = 0) -> Picture:
    """Draw vectors in two dimensions: themselves, t-SNE or PCA.

    Parameters
    ----------
    features : ndarray of shape (m, d)
        The vectors to draw.
    rows : ndarray of shape (m,)
        Which observations they are.
    seed : int

    Examples
    --------
    >>> picture_of(np.zeros((3, 2)), np.arange(3)).method
    'the two features'
    """
    m, d = features.shape
    if d == 1:
        heights = np.random.default_rng(seed).uniform(size=m)
        xy = np.column_stack([features[:, 0], heights * (np.ptp(features) or 1.0) / 4])
        return Picture(rows, xy, "the only feature; the height is random")
    if d == 2:
        return Picture(rows, features, "the two features")
    width = min(COMPONENTS, m - 1, d)
    if width < 2 or not np.ptp(features, axis=0).any():
        return Picture(rows, features[:, :2], "the first two features")
    components = PCA(width, random_state=seed).fit_transform(features)
    if m < FEWEST_FOR_NEIGHBOURS or d == 3:
        return Picture(rows, components[:, :2], "two principal components (PCA)")
    start = components[:, :2] / components[:, 0].std() * 1e-4
    # Its threads wait for each other at every step: ten times as long on a busy machine.
    with threadpool_limits(1):
        xy = TSNE(init=start, random_state=seed, **QUICK).fit_transform(components)
    return Picture(rows, xy.astype(np.float64), "t-SNE")


def score_features(scores: HeldoutScores, positions: Index) -> Floats:
    """Square roots of the probabilities that the networks give to all clusters.

    For images, sounds and clouds, which have no meaningful distances of their own.  Euclidean
    distances between the results are Hellinger distances.

    Parameters
    ----------
    scores : HeldoutScores
    positions : ndarray of shape (m,)
        Which of the held-out observations.
    """
    strata = scores.strata[positions]
    found = np.empty((len(positions), scores.n_clusters))
    for stratum in np.unique(strata):
        inside = strata == stratum
        z = scores.features[positions[inside]] @ scores.weights[stratum].T + scores.bias[stratum]
        found[inside] = softmax(z.astype(np.float64), axis=1)
    return np.sqrt(found)
