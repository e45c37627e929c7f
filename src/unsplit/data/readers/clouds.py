"""Read point clouds: an array of clouds, or a folder with a subfolder for each cluster."""

import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit.data.readers.broken import check_max_broken, leave_out, size_of
from unsplit.data.readers.cloud_arrays import read_cloud_array
from unsplit.data.readers.cloud_files import ENDINGS, OWN_ENDINGS, require_parsers
from unsplit.data.readers.folders import clusters_in
from unsplit.data.readers.isolated import parse_all, store_parsed
from unsplit.data.rows.workers import default_workers
from unsplit.devices import generator_of
from unsplit.errors import InputError

DEFAULT_POINTS = 1024

# Reading this many bytes of a mesh takes about as long as decoding an image.
_LIKE_AN_IMAGE = 2**14


@dataclass(frozen=True, eq=False)
class PointFiles:
    """Point clouds read from files.

    Parameters
    ----------
    points : ndarray of float32 of shape (n, p, 3)
        As in the files, neither centred nor scaled.
    labels : ndarray of shape (n,), or None
        Clusters: as in the array's file, or names of subfolders.
    row_ids : ndarray of shape (n,)
        As in the array's file, or 0, 1, …, n − 1; or paths of files relative to the folder.
    broken : tuple of str
        Files that could not be read and are left out.

    Examples
    --------
    >>> PointFiles(np.zeros((2, 10, 3), np.float32), None, np.arange(2)).points.shape
    (2, 10, 3)
    """

    points: NDArray[np.float32]
    labels: NDArray[Any] | None
    row_ids: NDArray[Any]
    broken: tuple[str, ...] = ()


def read_clouds(
    path: str | os.PathLike[str],
    n_points: int = DEFAULT_POINTS,
    random_state: object = 0,
    max_broken: float = 0.05,
    progress: Callable[[int, int], None] | None = None,
) -> PointFiles:
    r"""Read point clouds, and the cluster of each where it is known.

    Parameters
    ----------
    path : str or path
        A ``.npy``, ``.npz``, ``.h5`` or ``.hdf5`` file with an array of shape (n, points, 3), the
        only one of three dimensions or one called "points", "data" or "X"; an array called
        "label", "labels", "cluster" or "clusters" holds the clusters.  Or a folder with a
        subfolder for each cluster (see :func:`unsplit.data.readers.folders.clusters_in`) and a
        file for each cloud: a mesh (``.off``, ``.ply``, ``.obj``, ``.stl``) or points (``.ply``,
        ``.pcd``, ``.xyz``, ``.npy``).
    n_points : int
        Number of points per cloud.  Points of a mesh are drawn from its surface; points of other
        files are chosen at random, and repeated only if a file has fewer.  An array of smaller
        clouds stays as it is.
    random_state : int, Generator, RandomState or None
        Seed for drawing points; what is drawn from a file depends on the seed and on its path in
        the folder, not on the other files.
    max_broken : float
        Share of files that may be broken; they are left out and named in a warning.  More are
        an error.
    progress : callable, optional
        Called with the number of files read so far and the number of all.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, shift in [("low", 0), ("high", 5)]:
    ...     (folder / name).mkdir()
    ...     np.save(folder / name / "1.npy", np.eye(3) + shift)
    >>> read = read_clouds(folder, n_points=3)
    >>> read.points.shape, read.labels.tolist(), read.row_ids.tolist()
    ((2, 3, 3), ['high', 'low'], ['high/1.npy', 'low/1.npy'])
    """
    if not isinstance(n_points, (int, np.integer)) or n_points < 1:
        raise InputError(f"n_points must be a whole number of at least 1, got {n_points!r}.")
    check_max_broken(max_broken)
    path, rng = Path(path), generator_of(random_state)
    if not path.exists():
        raise InputError(f"there is no file or folder {path}; check its name.")
    if not path.is_dir():
        return PointFiles(*read_cloud_array(path, n_points, rng))
    files = clusters_in(path, ENDINGS, "point clouds")
    names = files.row_ids.tolist()
    endings = {Path(name).suffix.lower() for name in names}
    require_parsers(endings)
    seed = int(rng.integers(2**63))
    # What is drawn from a file depends on its name, not on its place in the folder.
    seeds = ([seed, zlib.crc32(name.encode())] for name in names)
    requests = [(path, n_points, own) for path, own in zip(files.paths, seeds, strict=True)]
    points, why = _read_all(requests, n_points, not endings <= OWN_ENDINGS, progress)
    usable = np.array([index not in why for index in range(len(names))])
    broken = {names[index]: why[index] for index in sorted(why)}
    what = f"point clouds in {files.folder}"
    leave_out(list(broken), len(names), what, broken.__getitem__, max_broken)
    kept = files.only(usable)
    return PointFiles(points[usable], kept.labels, kept.row_ids, tuple(broken))


def _read_all(
    requests: Sequence[tuple[str, int, list[int]]],
    n_points: int,
    isolated: bool,
    progress: Callable[[int, int], None] | None,
) -> tuple[NDArray[np.float32], dict[int, str]]:
    """Return all clouds, and for those that are broken why."""
    points = np.zeros((len(requests), n_points, 3), np.float32)
    size = sum(size_of(path) for path, *_ in requests)
    # A damaged mesh can crash the process that parses it; files parsed by NumPy cannot.
    workers = max(int(isolated), default_workers(size // _LIKE_AN_IMAGE))
    drawn = parse_all("unsplit.data.readers.cloud_files:draw", requests, workers)
    return points, store_parsed(drawn, points, progress)
