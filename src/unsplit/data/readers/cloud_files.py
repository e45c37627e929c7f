"""Read one point cloud from one file: points on the surface of a mesh, or points of a cloud."""

import importlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit.data.readers.broken import content_of

MESHES = (".off", ".ply", ".obj", ".stl")
ENDINGS = (*MESHES, ".pcd", ".npy", ".xyz")
# What parses files; NumPy parses the others.
PACKAGES = dict.fromkeys(MESHES, "trimesh") | {".pcd": "pypcd4"}


def read_cloud(request: tuple[str, int, list[int]]) -> NDArray[np.float32]:
    r"""Read points from a file, given its path, the number of points and the seed of its draw.

    Points of a mesh are drawn evenly from its surface.  From a cloud, or from the vertices of a
    mesh without faces, points are chosen at random, and repeated only if there are fewer than
    wanted.  A file that cannot be used raises a ValueError or an error of its parser.

    Parameters
    ----------
    request : tuple of str, int and list of int

    Returns
    -------
    ndarray of shape (n_points, 3)

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "square.off"
    >>> _ = path.write_text("OFF\n4 1 0\n0 0 5\n1 0 5\n1 1 5\n0 1 5\n4 0 1 2 3\n")
    >>> points = read_cloud((str(path), 100, [0]))
    >>> points.shape, points.min(axis=0).round(), points.max(axis=0).round()
    ((100, 3), array([0., 0., 5.], dtype=float32), array([1., 1., 5.], dtype=float32))
    """
    path, n_points, seed = request
    rng = np.random.default_rng(seed)
    data, ending = content_of(path), Path(path).suffix.lower()
    read = {".npy": _read_npy, ".xyz": _read_xyz, ".pcd": _read_pcd}
    if ending in read:
        points = _chosen(read[ending](data), n_points, rng)
    else:
        points = _from_mesh(data, ending, n_points, rng)
    with np.errstate(over="ignore"):
        rounded = points.astype(np.float32)
    if np.abs(rounded - points).max() > 1e-3 * np.ptp(points, axis=0).max() > 0:
        raise ValueError("it is too far from the origin for single precision")
    return rounded


def _from_mesh(
    data: bytes, ending: str, n_points: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    import trimesh

    if ending == ".off":
        _refuse_cut(data)
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


def _refuse_cut(data: bytes) -> None:
    """Raise if an OFF file has fewer lines than it says, which trimesh does not notice."""
    lines = re.sub(rb"#.*", b"", data).partition(b"OFF")[2].split(b"\n")
    lines = [line for line in lines if line.strip()]
    if not lines or len(lines) < 1 + sum(map(int, lines[0].split()[:2])):
        raise ValueError("it is cut short")


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
    return np.asarray(np.load(io.BytesIO(data), allow_pickle=False))


def _read_xyz(data: bytes) -> NDArray[Any]:
    text = io.StringIO(data.decode().replace(",", " "))
    return np.loadtxt(text, usecols=(0, 1, 2), ndmin=2)


def _read_pcd(data: bytes) -> NDArray[Any]:
    # Its type hints ask for a file on disk, but it reads any file object.
    pypcd4: Any = importlib.import_module("pypcd4")
    cloud = pypcd4.PointCloud.from_fileobj(io.BytesIO(data))
    points = np.asarray(cloud.numpy(("x", "y", "z")))
    if len(points) < cloud.metadata.points:
        raise ValueError("it is cut short")
    return points
