"""Read point clouds: a folder with a subfolder for each cluster and a file for each cloud."""

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from unsplit.data.readers.broken import leave_out, size_of
from unsplit.data.readers.cloud_files import ENDINGS, PACKAGES
from unsplit.data.readers.folders import clusters_in
from unsplit.data.readers.isolated import parse_into
from unsplit.data.readers.tables import require_module
from unsplit.data.readers.tables_and_arrays import Observations
from unsplit.data.rows.datasets import default_workers
from unsplit.devices import generator_of

# Points that are taken of each cloud.
N_POINTS = 1024

# Reading this many bytes of a mesh takes about as long as decoding an image.
_LIKE_AN_IMAGE = 2**14


def read_clouds(
    folder: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
) -> Observations:
    """Read as many points of every cloud in a folder, and the cluster of each.

    Points of a mesh are drawn from its surface; points of other files are chosen at random, and
    repeated only if a file has fewer.  What is drawn from a file depends on its path in the folder,
    not on the other files.

    Parameters
    ----------
    folder : str or path
        With a subfolder for each cluster (see :func:`unsplit.data.readers.folders.clusters_in`)
        and a file for each cloud: a mesh (``.off``, ``.ply``, ``.obj``, ``.stl``) or points
        (``.ply``, ``.pcd``, ``.xyz``, ``.npy``).
    progress : callable, optional
        Called with the number of files read so far and the number of all.

    Returns
    -------
    Observations
        ``X`` has shape (n, 1024, 3), neither centred nor scaled.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, shift in [("low", 0), ("high", 5)]:
    ...     (folder / name).mkdir()
    ...     np.save(folder / name / "1.npy", np.eye(3) + shift)
    >>> read = read_clouds(folder)
    >>> read.X.shape, read.labels.tolist(), read.row_ids.tolist()
    ((2, 1024, 3), ['high', 'low'], ['high/1.npy', 'low/1.npy'])
    """
    files = clusters_in(folder, ENDINGS, "point clouds")
    for ending in sorted({Path(name).suffix.lower() for name in files.row_ids.tolist()}):
        if ending in PACKAGES:
            require_module(PACKAGES[ending], f"reading {ending} files", "points")
    seed = int(generator_of(0).integers(2**63))
    requests = [
        (path, N_POINTS, [seed, zlib.crc32(name.encode())])
        for path, name in zip(files.paths, files.row_ids.tolist(), strict=True)
    ]
    points = np.zeros((len(requests), N_POINTS, 3), np.float32)
    workers = max(1, default_workers(sum(map(size_of, files.paths)) // _LIKE_AN_IMAGE))
    parser = "unsplit.data.readers.cloud_files:read_cloud"
    why = parse_into(points, parser, requests, workers, progress)
    kept = files.only(leave_out(why, files.row_ids, f"point clouds in {files.folder}"))
    return Observations(np.delete(points, list(why), axis=0), None, kept.row_ids, kept.labels)
