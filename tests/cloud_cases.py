"""Clouds in files: how they are written and read one by one."""

from pathlib import Path

import numpy as np
import trimesh

from unsplit.data.readers.parsers import read_cloud

POINTS = np.random.default_rng(0).standard_normal((6, 40, 3))


def write(name, content):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def save_npy(name, points):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    np.save(name, points)


def export(shape, name):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    shape.export(name)


def one(name, n_points=50, seed=0):
    return read_cloud((name, n_points, [seed]))


def is_drawn_from(cloud, points):
    """Whether every row of the cloud is one of the points."""
    return set(map(tuple, cloud)) <= set(map(tuple, points.astype(np.float32)))


def save_ply_cloud(name, points):
    trimesh.PointCloud(points).export(name)


def save_xyz(name, points):
    lines = [" ".join(map(repr, map(float, p))) + " 255 0 0" for p in points]
    write(name, "# x y z red green blue\n" + "\n".join(lines) + "\n\n")


def save_commas(name, points):
    write(name, "\r\n".join(", ".join(map(repr, map(float, p))) for p in points))


def off_of_a_box():
    return trimesh.creation.box().export(file_type="off")
