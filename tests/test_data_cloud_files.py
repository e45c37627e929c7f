import io
import re

import numpy as np
import pytest
import trimesh

from tests.cloud_cases import (
    POINTS,
    is_drawn_from,
    off_of_a_box,
    one,
    save_commas,
    save_ply_cloud,
    save_xyz,
    write,
)

TRIANGLE = "0 0 0\n1 0 0\n0 1 0\n"


# Every test works in a folder of its own.
pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("ending", ["off", "ply", "obj", "stl"])
def test_points_of_a_mesh_lie_evenly_on_its_surface(ending):
    trimesh.creation.box(extents=(2, 2, 8)).export(f"m.{ending}")
    points = one(f"m.{ending}", 4000)
    assert points.shape == (4000, 3)
    assert points.dtype == np.float32
    np.testing.assert_allclose(np.abs(points / [1, 1, 4]).max(axis=1), 1, atol=1e-5)
    # Top and bottom are 8 of 72 units of the surface.
    on_ends = np.abs(points[:, 2]) > 3.9999
    assert on_ends.mean() == pytest.approx(8 / 72, abs=0.02)


def test_points_of_several_parts_lie_on_all():
    both = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 9 9 9\nv 9 9 8\nv 9 8 9\n"
    write("m.obj", both + "o one\nf 1 2 3\no two\nf 4 5 6\n")
    points = one("m.obj", 400)
    assert 0.4 < (points[:, 0] > 5).mean() < 0.6


@pytest.mark.parametrize(
    "header", ["OFF\n3 1 0\n", "OFF3 1 0\n", "OFF 3 1 0\n", "# c\nOFF\n3 1 0\n"]
)
def test_off_headers_on_one_line_are_read(header):
    # Some files of ModelNet begin with "OFF490 518 0".
    points = one(write("m.off", header + TRIANGLE + "3 0 1 2\n"))
    assert (points >= 0).all()
    assert (points.sum(axis=1) <= 1 + 1e-6).all()
    assert (points[:, 2] == 0).all()


CLOUD_FILES = [
    ("c.ply", save_ply_cloud),
    ("c.xyz", save_xyz),
    ("c.XYZ", save_commas),
    ("c.npy", np.save),
]


@pytest.mark.parametrize(("name", "save"), CLOUD_FILES)
def test_of_a_cloud_points_are_chosen_and_again_only_if_there_are_fewer(name, save):
    save(name, POINTS[0])
    for n_points in (10, 40, 100):
        cloud = one(name, n_points)
        assert cloud.shape == (n_points, 3)
        assert is_drawn_from(cloud, POINTS[0])
        assert len(np.unique(cloud, axis=0)) == min(n_points, 40)
    assert np.unique(cloud, axis=0, return_counts=True)[1].max() == 3


def test_corners_without_faces_are_a_cloud():
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]])
    for name, text in [
        ("m.off", "OFF\n3 0 0\n" + TRIANGLE),
        ("m.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\n"),
    ]:
        cloud = one(write(name, text), 3)
        np.testing.assert_array_equal(np.unique(cloud, axis=0), np.unique(corners, axis=0))


def test_a_mesh_without_area_is_a_cloud_of_its_corners():
    cloud = one(write("m.off", "OFF\n3 1 0\n0 0 0\n1 0 0\n2 0 0\n3 0 1 2\n"), 3)
    assert sorted(cloud[:, 0]) == [0, 1, 2]


def stl_of_a_box():
    return trimesh.creation.box().export(file_type="stl")


def npy(points):
    file = io.BytesIO()
    np.save(file, points)
    return file.getvalue()


BROKEN = {
    "empty.off": ("", "it is empty"),
    "word.off": ("hello", "it is cut short"),
    "faces.off": ("OFF\n3 2 0\n" + TRIANGLE + "3 0 1 2\n", "it is cut short"),
    "corner.off": ("OFF\n3 0 0\n0 0 0\n1 0 0\n0 1", "inhomogeneous shape"),
    "index.off": ("OFF\n3 1 0\n" + TRIANGLE + "3 0 1 7\n", "outside the range"),
    "cut.stl": (stl_of_a_box()[:300], "it has no points"),
    "short.stl": (stl_of_a_box()[:50], "it has no points"),
    "none.stl": (bytes(84), "it has no points"),
    "none.obj": ("# nothing\n", "it has no points"),
    "word.ply": ("hello", "ply"),
    "word.xyz": ("x y z\n1 2 3\n", "could not convert"),
    "flat.xyz": ("1 2\n3 4\n", "invalid column index 2"),
    "comment.xyz": ("# 1 2 3\n", "no data"),
    "flat.npy": (npy(np.zeros((4, 2))), "shape (4, 2), not (points, 3)"),
    "nan.xyz": ("1 2 3\nnan 2 3\n", "it has coordinates that are NaN or infinite"),
    "nan.off": ("OFF\n3 1 0\n0 0 0\n1 nan 0\n0 1 0\n3 0 1 2\n", "NaN or infinite"),
    "huge.xyz": ("1e300 0 0\n2e300 0 0\n", "it is too far from the origin"),
    "far.xyz": ("1e9 0 0\n1000000000.5 0 0\n", "it is too far from the origin"),
    "word.npy": ("hello", "it is not a NumPy file"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_not_taken_for_clouds(name):
    content, reason = BROKEN[name]
    write(name, content)
    with pytest.raises(Exception, match=re.escape(reason)):
        one(name)


def test_a_cut_off_file_is_seen_wherever_it_is_cut_between_lines():
    lines = off_of_a_box().encode().splitlines(keepends=True)
    assert one(write("m.off", b"".join(lines))).shape == (50, 3)
    for n in range(1, len(lines)):
        write("m.off", b"".join(lines[:n]))
        with pytest.raises(Exception, match="cut short"):
            one("m.off")


def test_objects_in_an_array_are_not_unpickled():
    np.save("c.npy", np.array([{1: 2}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        one("c.npy")


def test_shape_counts_when_precision_is_judged():
    for far in ([[1e7, 0, 0], [1e7 + 0.7, 0, 0]], POINTS[0] + 1e8):
        np.save("c.npy", far)
        with pytest.raises(ValueError, match="too far from the origin"):
            one("c.npy")
    # A cloud of one place has no shape to lose.
    for near in ([[1e7, 0, 0], [2e7, 0.1, 0.3]], np.full((5, 3), 0.1)):
        np.save("c.npy", near)
        assert is_drawn_from(one("c.npy"), np.array(near))
