"""Read one point cloud from one file: points on the surface of a mesh, or points of a cloud."""

import importlib
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit.data.readers.broken import content_of
from unsplit.data.readers.formats import check_npy_header

MESHES = (".off", ".ply", ".obj", ".stl")
# Parsed by NumPy and this module alone.
OWN_ENDINGS = frozenset([".npy", ".xyz"])
ENDINGS = (*MESHES, ".pcd", ".npy", ".xyz")


def read_cloud(
    path: str | os.PathLike[str], n_points: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    r"""Read points from a file, shape (n_points, 3).

    Points of a mesh are drawn evenly from its surface.  From a cloud, or from the vertices of a
    mesh without faces, points are chosen at random, and repeated only if there are fewer than
    ``n_points``.  A file that cannot be used raises a ValueError or an error of its parser.

    Parameters
    ----------
    path : str or path
    n_points : int
    rng : numpy Generator

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "square.off"
    >>> _ = path.write_text("OFF\n4 1 0\n0 0 5\n1 0 5\n1 1 5\n0 1 5\n4 0 1 2 3\n")
    >>> points = read_cloud(path, 100, np.random.default_rng(0))
    >>> points.shape, points.min(axis=0).round(), points.max(axis=0).round()
    ((100, 3), array([0., 0., 5.], dtype=float32), array([1., 1., 5.], dtype=float32))
    """
    path = Path(path)
    data, ending = content_of(path), path.suffix.lower()
    if not data.strip():
        raise ValueError("it is empty")
    if ending in MESHES:
        points = _from_mesh(data, ending, n_points, rng)
    else:
        points = _chosen(_READERS[ending](data), n_points, rng)
    if is_too_far_out(points):
        raise ValueError("it is too far from the origin for single precision")
    return points.astype(np.float32)


def draw(request: tuple[str, int, list[int]]) -> NDArray[np.float32]:
    """Read points from a file, given its path, the number of points and the seed of its draw.

    Parameters
    ----------
    request : tuple of str, int and list of int

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "corners.npy"
    >>> np.save(path, np.eye(3))
    >>> draw((str(path), 2, [0])).shape
    (2, 3)
    """
    path, n_points, seed = request
    return read_cloud(path, n_points, np.random.default_rng(seed))


def is_too_far_out(points: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether clouds (…, p, 3) are so far from the origin that float32 distorts them.

    Parameters
    ----------
    points : ndarray of shape (…, p, 3)

    Examples
    --------
    >>> bool(is_too_far_out(np.eye(3))), bool(is_too_far_out(0.3 * np.eye(3) + 1e7))
    (False, True)
    """
    points = points.astype(np.float64, copy=False)
    with np.errstate(over="ignore"):
        lost = np.abs(points.astype(np.float32) - points).max(axis=(-2, -1))
    extent = np.ptp(points, axis=-2).max(axis=-1)
    return (lost > 1e-3 * extent) & (extent > 0)


def require_parsers(endings: Iterable[str]) -> None:
    """Say what to install if a package is missing that files with these endings need.

    Parameters
    ----------
    endings : iterable of str
        In lower case, such as ".off".

    Examples
    --------
    >>> require_parsers([".npy", ".xyz"])
    """
    for ending in sorted(set(endings)):
        package = "trimesh" if ending in MESHES else "pypcd4" if ending == ".pcd" else None
        try:
            if package is not None:
                importlib.import_module(package)
        except ImportError:
            raise ImportError(
                f"reading {ending} files needs {package}: pip install unsplit[points]"
            ) from None


def _from_mesh(
    data: bytes, ending: str, n_points: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    import trimesh

    _refuse_cut(data, ending)
    scene = trimesh.load_scene(io.BytesIO(data), file_type=ending[1:], process=False)
    parts = list(scene.geometry.values())
    corners = np.concatenate([np.empty((0, 3)), *(part.vertices for part in parts)])
    _refuse_gaps(corners)
    surfaces = [part for part in parts if len(getattr(part, "faces", ())) and part.area > 0]
    if surfaces:
        surface = trimesh.util.concatenate(surfaces)
        seed = int(rng.integers(2**32))
        return np.asarray(trimesh.sample.sample_surface(surface, n_points, seed=seed)[0])
    return _chosen(corners, n_points, rng)


def _refuse_cut(data: bytes, ending: str) -> None:
    """Raise if the file is cut short in a way that its parser does not notice."""
    if ending == ".off":
        body = data.partition(b"OFF")[2].splitlines()
        lines = [line.split() for line in body if line.strip() and line.strip()[:1] != b"#"]
        n_lines = 1 + sum(map(int, lines[0][:2])) if lines else 2
        if len(lines) < n_lines or len(lines[n_lines - 1]) < _least(lines, n_lines):
            raise ValueError("it is cut short")
    if ending == ".stl" and data.lstrip()[:5] != b"solid":
        n_triangles = int.from_bytes(data[80:84], "little")
        if len(data) < 84 + 50 * n_triangles:
            raise ValueError("it is cut short")


def _least(lines: list[list[bytes]], n_lines: int) -> int:
    """Return how many values the last line of an OFF file needs for its face or vertex."""
    n_faces = int(lines[0][1])
    return 1 + int(lines[n_lines - 1][0]) if n_faces else 3


def _chosen(points: NDArray[Any], n_points: int, rng: np.random.Generator) -> NDArray[np.float64]:
    if points.ndim != 2 or points.shape[1] != 3 or points.dtype.kind not in "fiu":
        raise ValueError(f"it holds {points.dtype} of shape {points.shape}, not (points, 3)")
    if not len(points):
        raise ValueError("it has no points")
    _refuse_gaps(points)
    # Every point is used once before any is repeated.
    rounds = [rng.permutation(len(points)) for _ in range(-(-n_points // len(points)))]
    return points[np.concatenate(rounds)[:n_points]].astype(np.float64)


def _refuse_gaps(points: NDArray[Any]) -> None:
    if not np.isfinite(points).all():
        raise ValueError("it has coordinates that are NaN or infinite")


def _read_npy(data: bytes) -> NDArray[Any]:
    # NumPy treats unknown content as a pickle.
    if not data.startswith(b"\x93NUMPY"):
        raise ValueError("it is not a NumPy file")
    check_npy_header(io.BytesIO(data), len(data))
    return np.asarray(np.load(io.BytesIO(data), allow_pickle=False))


def _read_xyz(data: bytes) -> NDArray[Any]:
    lines = data.decode().replace(",", " ").splitlines()
    rows = [line.split()[:3] for line in lines if line.strip() and line.lstrip()[0] != "#"]
    return np.array(rows or np.empty((0, 3)), np.float64)


def _read_pcd(data: bytes) -> NDArray[Any]:
    # Its type hints ask for a file on disk, but it reads any file object.
    pypcd4: Any = importlib.import_module("pypcd4")
    cloud = pypcd4.PointCloud.from_fileobj(io.BytesIO(data))
    points = np.asarray(cloud.numpy(("x", "y", "z")))
    if len(points) < cloud.metadata.points:
        raise ValueError("it is cut short")
    return points


_READERS = {".npy": _read_npy, ".xyz": _read_xyz, ".pcd": _read_pcd}
