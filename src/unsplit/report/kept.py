"""What a page needs beside the tree and the distances, kept in one small file."""

import os
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unsplit._typing import Index
from unsplit.data.array_files import FINITE, LARGEST, Array, load_checked, save_arrays

FORMAT = "unsplit.Kept/2"
NAME = "report.npz"


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
        save_arrays(path, FORMAT, {}, vars(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str], n_clusters: int) -> "Kept":
        """Read a file that :meth:`save` wrote, and refuse one that cannot be true.

        Parameters
        ----------
        path : str or path-like
        n_clusters : int
            Number of initial clusters.
        """
        advice = "make it again with --report"
        content, check = load_checked(path, FORMAT, _table(n_clusters), advice=advice)
        pixels = max(content["tiles"].shape[1:3])
        check.require(pixels <= 512, "tiles must have at most 512 pixels a side")
        means = content["means"]
        fits = means.shape[1] == 0 or len(means) == n_clusters
        check.require(fits, "means must have a row for each cluster")
        check.require((content["border_reach"] > 0).all(), "border_reach must be positive")
        return cls(**content)


def _table(k: int) -> dict[str, Array]:
    """What the file must hold for so many clusters."""
    clusters, nodes = (0, k - 1), (0, 2 * k - 2)
    return {
        "picture_method": Array("U"),
        "n_observations": Array("i8", (), 0, LARGEST),
        "tile_kind": Array("U"),
        "picture_xy": Array("f4", ("m", 2), -FINITE, FINITE),
        "picture_clusters": Array("i8", ("m",), *clusters),
        "tiles": Array("u1", ("t", "height", "width", 3)),
        "tile_clusters": Array("i8", ("t",), *clusters),
        "feature_names": Array("U", ("f",)),
        "means": Array("f4", ("rows", "f"), -FINITE, FINITE),
        "spread": Array("f4", ("f",), -FINITE, FINITE),
        "edge_pairs": Array("i8", ("e", 2), *clusters),
        "edges": Array("i8", ("e",), 0, LARGEST),
        "border_pairs": Array("i8", ("p", 2), *nodes),
        "borders": Array("i8", ("p", 2, "bars"), 0, LARGEST),
        "border_reach": Array("f4", ("p",), 0, FINITE),
    }
