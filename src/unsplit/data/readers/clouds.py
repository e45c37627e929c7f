"""Read point clouds: an array of clouds, or a folder with a subfolder for each cluster."""

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from unsplit.data.readers.broken import check_max_broken, leave_out, reason
from unsplit.data.readers.cloud_arrays import read_cloud_array
from unsplit.data.readers.cloud_files import ENDINGS, read_cloud, require_parsers
from unsplit.data.readers.folders import clusters_in
from unsplit.data.rows.workers import decode_in_workers, default_workers
from unsplit.devices import generator_of
from unsplit.errors import InputError

DEFAULT_POINTS = 1024

_BATCH = 16
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
    require_parsers(Path(name).suffix.lower() for name in names)
    paths = dict(zip(names, files.paths, strict=True))
    clouds = CloudFiles(Path(files.folder), names, n_points, int(rng.integers(2**63)), paths)
    points = _read_all(clouds)
    usable = ~np.isnan(points[:, 0, 0])
    broken = files.only(~usable).row_ids.tolist()
    what = f"point clouds in {files.folder}"
    leave_out(broken, len(names), what, lambda name: _why(clouds, name), max_broken)
    kept = files.only(usable)
    return PointFiles(points[usable], kept.labels, kept.row_ids, tuple(broken))


class CloudFiles(Dataset[Tensor]):
    """Dataset of cloud files, each of shape (n_points, 3); NaN where a file is broken."""

    # Workers may start in a clean process; see unsplit.data.rows.workers.
    self_contained = True

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        n_points: int,
        seed: int,
        paths: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        # Paths differ from names that are not valid UTF-8.
        self.paths = paths or {}
        self.names = names
        self.n_points = n_points
        self.seed = seed

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Tensor:
        try:
            return torch.from_numpy(self.read(self.names[index]))
        except Exception:  # parsers raise many types of error on damaged files
            return torch.full((self.n_points, 3), torch.nan)

    def read(self, name: str) -> NDArray[np.float32]:
        """Read the points of one file; a broken file raises an error."""
        own_seed = [self.seed, zlib.crc32(name.encode())]
        return read_cloud(self.path(name), self.n_points, np.random.default_rng(own_seed))

    def path(self, name: str) -> Path:
        """Return where a file is."""
        return Path(self.paths.get(name, self.folder / name))


def _read_all(clouds: CloudFiles) -> NDArray[np.float32]:
    n = len(clouds)
    size = sum(_size(clouds.path(name)) for name in clouds.names)
    batches = (np.arange(start, min(start + _BATCH, n)) for start in range(0, n, _BATCH))
    read = decode_in_workers(clouds, batches, default_workers(size // _LIKE_AN_IMAGE))
    return np.concatenate([batch.numpy() for batch in read])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0  # such as a link to nowhere; reading it says what is wrong


def _why(clouds: CloudFiles, name: str) -> str:
    try:
        clouds.read(name)
    except Exception as error:
        return reason(error)
    return "it can be read now"
