import sys
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import trimesh

import unsplit
from tests.checks import about, parsed_here
from tests.cloud_cases import (
    POINTS,
    export,
    is_drawn_from,
    off_of_a_box,
    save_npy,
    save_xyz,
    write,
)
from unsplit.data.readers.parsers import CLOUD_ENDINGS as ENDINGS
from unsplit.errors import InputError, SkippedWarning


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own, so that sentences hold short names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unsplit.data.readers.isolated.parse_all", parsed_here)
    monkeypatch.setattr("unsplit.data.readers.media.N_POINTS", 40)
    return tmp_path


def two_clusters(root="clouds", n=3):
    for i in range(n):
        save_npy(f"{root}/a/{i}.npy", POINTS[i])
        save_npy(f"{root}/b/{i}.npy", POINTS[i] + 5)
    return root


# Arrays of clouds


def save_h5(name, **arrays):
    with h5py.File(name, "w") as file:
        for key, array in arrays.items():
            file[key] = array


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed, save_h5])
@pytest.mark.parametrize("name", ["points", "data", "X", "anything"])
def test_points_and_labels_are_found_by_name(save, name):
    path = "c.h5" if save is save_h5 else "c.npz"
    save(path, **{name: POINTS, "group": np.arange(6) // 2, "id": ["u", "v", "w", "x", "y", "z"]})
    read = unsplit.read(path, "group")
    np.testing.assert_array_equal(read.X, POINTS)
    assert read.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert read.row_ids.tolist() == list("uvwxyz")


def test_data_win_over_points_and_both_over_other_arrays():
    np.savez("c.npz", normals=POINTS + 1, data=POINTS, points=POINTS + 2)
    np.testing.assert_array_equal(unsplit.read("c.npz").X, POINTS)
    save_h5("c.h5", normals=POINTS + 1, points=POINTS)
    np.testing.assert_array_equal(unsplit.read("c.h5").X, POINTS)


def test_labels_in_one_column_and_text_are_read_from_hdf5():
    save_h5("c.hdf5", data=POINTS, label=np.arange(6)[:, None].astype(np.uint8))
    assert unsplit.read("c.hdf5", "label").labels.tolist() == [0, 1, 2, 3, 4, 5]
    save_h5("c.hdf5", data=POINTS, cluster=list("aabbcc"))
    assert unsplit.read("c.hdf5", "cluster").labels.tolist() == list("aabbcc")


# Folders


def test_a_folder_has_a_subfolder_for_each_cluster():
    read = unsplit.read(two_clusters())
    assert read.X.shape == (6, 40, 3)
    assert read.X.dtype == np.float32
    assert read.labels.tolist() == ["a", "a", "a", "b", "b", "b"]
    assert read.row_ids.tolist() == [
        "a/0.npy",
        "a/1.npy",
        "a/2.npy",
        "b/0.npy",
        "b/1.npy",
        "b/2.npy",
    ]
    for i in range(3):
        assert is_drawn_from(read.X[i], POINTS[i])
        assert is_drawn_from(read.X[3 + i], POINTS[i] + 5)


def test_files_lie_at_any_depth_as_in_modelnet():
    ball, box = trimesh.creation.icosphere(2), trimesh.creation.box()
    for part in ("train", "test"):
        export(ball, f"m/ball/{part}/ball_0001.off")
        export(box, f"m/box/{part}/box_0001.OFF")
    read = unsplit.read("m")
    assert read.labels.tolist() == ["ball", "ball", "box", "box"]
    assert read.row_ids[0] == "ball/test/ball_0001.off"
    radius = np.linalg.norm(read.X[:2], axis=2)
    assert ((radius > 0.95) & (radius < 1.001)).all()
    # The same mesh under two names: other points of its surface.
    assert not np.array_equal(read.X[0], read.X[1])


def test_every_ending_is_found_and_nothing_else():
    two_clusters("f", 1)
    export(trimesh.creation.box(), "f/a/m.off")
    for ending in ("ply", "obj", "stl"):
        export(trimesh.creation.box(), f"f/b/m.{ending}")
    save_xyz("f/b/c.xyz", POINTS[0])
    for name in ("f/read.me", "f/.hidden.npy", "f/a/._m.off", "f/.cache/c/x.npy", "f/b/x.mtl"):
        write(name, "no cloud")
    with pytest.warns(SkippedWarning, match=r"left out 1 .* in f of types .*: 'b/x\.mtl'"):
        read = unsplit.read("f")
    assert {Path(name).suffix for name in read.row_ids} == set(ENDINGS)
    assert len(read.row_ids) == 7


def test_what_is_drawn_from_a_file_depends_on_its_name_alone():
    read = unsplit.read(two_clusters())
    np.testing.assert_array_equal(unsplit.read("clouds").X, read.X)
    save_npy("clouds/a/00.npy", POINTS[5])
    save_npy("clouds/A/0.npy", POINTS[5])
    more = unsplit.read("clouds")
    kept = np.isin(more.row_ids, read.row_ids)
    assert kept.sum() == 6
    np.testing.assert_array_equal(more.X[kept], read.X)


def test_the_callers_random_numbers_are_left_alone():
    np.random.seed(3)  # noqa: NPY002
    expected = np.random.get_state()[1].copy()  # noqa: NPY002
    export(trimesh.creation.box(), "f/a/m.off")
    export(trimesh.creation.box(), "f/b/m.off")
    unsplit.read("f")
    np.testing.assert_array_equal(np.random.get_state()[1], expected)  # noqa: NPY002


def test_a_broken_file_is_named_and_left_out(monkeypatch):
    monkeypatch.setattr("unsplit.data.readers.broken.MOST_BROKEN", 0.2)
    two_clusters(n=6)
    write("clouds/b/5.npy", "hello")
    write("clouds/a/1.off", off_of_a_box()[:100])
    sentence = r"^2 of 13 point clouds in clouds cannot be read .*: 'a/1.off' \(it is cut short"
    with pytest.warns(UserWarning, match=sentence):
        read = unsplit.read("clouds")
    assert len(read.X) == len(read.labels) == len(read.row_ids) == 11
    assert np.isfinite(read.X).all()
    assert not {"a/1.off", "b/5.npy"} & set(read.row_ids.tolist())


def test_too_many_broken_files_are_an_error():
    two_clusters(n=3)
    for i in range(4):
        write(f"clouds/a/x{i}.xyz", "1 2 nan\n")
    why = "it has coordinates that are NaN or infinite"
    named = ", ".join(f"'a/x{i}.xyz' ({why})" for i in range(3))
    with pytest.raises(InputError) as caught:
        unsplit.read("clouds")
    for part in ("4 of 10 point clouds in clouds", "5%", f"{named} and 1 more", "repair"):
        assert part in str(caught.value)


def test_only_the_training_part_is_read():
    two_clusters("clouds/train")
    two_clusters("clouds/test")
    with pytest.warns(SkippedWarning, match="beside train: 'test'"):
        read = unsplit.read("clouds")
    assert read.row_ids[0] == "a/0.npy"
    assert len(read.row_ids) == 6


# What is refused


def test_clouds_of_two_sizes_and_several_arrays_are_refused():
    ragged = np.empty(2, object)
    ragged[:] = [POINTS[0], POINTS[1, :9]]
    np.save("c.npy", ragged, allow_pickle=True)
    np.savez("c.npz", points=ragged)
    with h5py.File("c.h5", "w") as file:
        data = file.create_dataset("points", 2, h5py.vlen_dtype(np.float32))
        data[0], data[1] = POINTS[0].ravel(), POINTS[1, :9].ravel()
    np.savez("two.npz", a=POINTS, b=POINTS)
    save_h5("none.h5")
    held = "'a' of shape (6, 40, 3), 'b' of shape (6, 40, 3)"
    for name, told in [
        ("c.npy", "holds Python objects"),
        ("c.npz", "holds Python objects"),
        ("c.h5", "must hold one array of observations, … but holds 'points' of shape (2,); save"),
        ("two.npz", f"called 'X' if there are several, but holds {held}; save such an array"),
        ("none.h5", "but holds nothing; save such an array"),
    ]:
        with pytest.raises(InputError, match=about(f"{name} … {told} …")):
            unsplit.read(name)


def test_a_damaged_hdf5_file_is_refused():
    save_h5("c.h5", points=POINTS)
    write("c.h5", Path("c.h5").read_bytes()[:500])
    with pytest.raises(InputError, match=r"^c\.h5 cannot be read \(.*so write it again\.$"):
        unsplit.read("c.h5")


@pytest.mark.parametrize(("ending", "package"), [("off", "trimesh")])
def test_a_missing_package_is_named(monkeypatch, ending, package):
    write(f"f/a/x.{ending}", "x")
    write(f"f/b/x.{ending}", "x")
    monkeypatch.setitem(sys.modules, package, None)
    sentence = f"reading .off, .ply, .obj, .stl files needs {package}: pip install unsplit[points]"
    with pytest.raises(ImportError, match=about(sentence)):
        unsplit.read("f")


def test_h5py_is_named_if_it_is_missing(monkeypatch):
    save_h5("c.h5", points=POINTS)
    monkeypatch.setitem(sys.modules, "h5py", None)
    sentence = "reading HDF5 needs h5py: pip install unsplit[points]"
    with pytest.raises(ImportError, match=about(sentence)):
        unsplit.read("c.h5")


def test_arrays_and_clouds_need_no_optional_package(monkeypatch):
    for package in ("trimesh", "h5py"):
        monkeypatch.setitem(sys.modules, package, None)
    np.save("c.npy", POINTS)
    assert len(unsplit.read("c.npy").X) == 6
    with warnings.catch_warnings(action="error"):
        assert len(unsplit.read(two_clusters()).X) == 6
