"""What a page needs beside the tree and the distances, kept in one small file."""

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.data.array_files import load_arrays, save_arrays
from unsplit.data.content_check import ContentCheck

FORMAT = "unsplit.Kept/1"
NAME = "report.npz"
_LARGEST = 2**40


@dataclass(frozen=True, eq=False)
class Kept:
    """A picture of the data, exemplars and features of every cluster, and edges between clusters.

    Parameters
    ----------
    picture_xy, picture_clusters : ndarrays of shape (m, 2) and (m,)
        Where observations are drawn, and the initial cluster of each.
    picture_method : str
        How the picture was made; empty if there is none.
    n_observations : int
        Number of observations in the data.
    tiles, tile_clusters : ndarrays of shape (t, height, width, 3) and (t,)
        Exemplars as small images, from typical to less typical, and the cluster of each.
    tile_kind : str
        What they show, in words.
    feature_names : ndarray of shape (f,)
        Features that differ most between clusters.
    means : ndarray of shape (k, f)
        Their mean in every cluster.
    spread : ndarray of shape (f,)
        Their standard deviation within clusters.
    edge_pairs, edges : ndarrays of shape (e, 2) and (e,)
        Pairs of clusters that the neighbour graph connects, and the number of edges.
    border_pairs, borders, border_reach : ndarrays of shape (p, 2), (p, 2, bars) and (p,)
        Pairs of nodes of the tree that can be reviewed; how many held-out observations of both
        sides have which difference of scores; and the largest difference that is shown.
    """

    picture_xy: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 2), np.float32))
    picture_clusters: Index = field(default_factory=lambda: np.zeros((0,), np.int64))
    picture_method: str = ""
    n_observations: int = 0
    tiles: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 1, 1, 3), np.uint8))
    tile_clusters: Index = field(default_factory=lambda: np.zeros((0,), np.int64))
    tile_kind: str = ""
    feature_names: NDArray[np.str_] = field(default_factory=lambda: np.zeros((0,), "U1"))
    means: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    spread: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0,), np.float32))
    edge_pairs: Index = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    edges: Index = field(default_factory=lambda: np.zeros((0,), np.int64))
    border_pairs: Index = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    borders: Index = field(default_factory=lambda: np.zeros((0, 2, 1), np.int64))
    border_reach: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0,), np.float32))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one .npz file, with a checksum and without pickle.

        Parameters
        ----------
        path : str or path-like

        Examples
        --------
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/report.npz"
        >>> Kept(n_observations=3).save(path)
        >>> Kept.load(path, n_clusters=2).n_observations
        3
        """
        meta = {name: getattr(self, name) for name in _PLAIN}
        save_arrays(path, FORMAT, meta, {name: getattr(self, name) for name in _ARRAYS})

    @classmethod
    def load(cls, path: str | os.PathLike[str], n_clusters: int) -> "Kept":
        """Read a file that :meth:`save` wrote, and refuse one that cannot be true.

        Parameters
        ----------
        path : str or path-like
        n_clusters : int
            Number of initial clusters.
        """
        meta, arrays = load_arrays(path, FORMAT)
        check = ContentCheck(path, "report file", "make it again with --report")
        check.names(meta, set(_PLAIN), set())
        check.names(arrays, set(_ARRAYS), set())
        for name in ("picture_method", "tile_kind"):
            check.text(meta, name)
        check.integer(meta, "n_observations", 0, _LARGEST)
        _check_arrays(check, arrays, n_clusters)
        return cls(**meta, **arrays)


_PLAIN = ("picture_method", "n_observations", "tile_kind")
_ARRAYS = (
    "picture_xy", "picture_clusters", "tiles", "tile_clusters", "feature_names", "means", "spread",
    "edge_pairs", "edges", "border_pairs", "borders", "border_reach",
)  # fmt: skip


def _check_arrays(check: ContentCheck, arrays: dict[str, Any], k: int) -> None:
    m = len(check.array(arrays, "picture_clusters", np.int64, None))
    check.within("picture_clusters", arrays["picture_clusters"], 0, k - 1)
    xy = check.array(arrays, "picture_xy", np.float32, m, 2)
    check.require(np.isfinite(xy).all(), "picture_xy must be finite")
    t = len(check.array(arrays, "tile_clusters", np.int64, None))
    check.within("tile_clusters", arrays["tile_clusters"], 0, k - 1)
    tiles = check.array(arrays, "tiles", np.uint8, t, None, None, 3)
    check.require(max(tiles.shape[1:3]) <= 512, "tiles must have at most 512 pixels a side")
    names = arrays["feature_names"]
    check.require(names.ndim == 1 and names.dtype.kind == "U", "feature_names must be texts")
    f = len(names)
    means = check.array(arrays, "means", np.float32, k if f else None, f)
    spread = check.array(arrays, "spread", np.float32, f)
    check.require(np.isfinite(means).all() and np.isfinite(spread).all(), "means must be finite")
    e = len(check.array(arrays, "edges", np.int64, None))
    check.within("edges", arrays["edges"], 0, _LARGEST)
    check.within("edge_pairs", check.array(arrays, "edge_pairs", np.int64, e, 2), 0, k - 1)
    p = len(check.array(arrays, "border_reach", np.float32, None))
    reach = arrays["border_reach"]
    check.require((np.isfinite(reach) & (reach > 0)).all(), "border_reach must be positive")
    check.within("borders", check.array(arrays, "borders", np.int64, p, 2, None), 0, _LARGEST)
    pairs = check.array(arrays, "border_pairs", np.int64, p, 2)
    check.within("border_pairs", pairs, 0, 2 * k - 2)
