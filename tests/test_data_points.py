import sys
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import trimesh

from tests.checks import about, parsed_here
from tests.cloud_cases import (
    POINTS,
    export,
    is_drawn_from,
    off_of_a_box,
    save_npy,
    save_pcd,
    save_xyz,
    write,
)
from unsplit.data.readers.cloud_files import ENDINGS
from unsplit.data.readers.clouds import read_clouds
from unsplit.errors import InputError, SkippedWarning


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own, so that sentences hold short names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unsplit.data.readers.formats.parse_alone", parsed_here)
    return tmp_path


def two_clusters(root="clouds", n=3):
    for i in range(n):
        save_npy(f"{root}/a/{i}.npy", POINTS[i])
        save_npy(f"{root}/b/{i}.npy", POINTS[i] + 5)
    return root


def refuses(sentence, *args, **more):
    with pytest.raises(InputError, match=about(sentence)):
        read_clouds(*args, **more)


# Arrays of clouds


def save_h5(name, **arrays):
    with h5py.File(name, "w") as file:
        for key, array in arrays.items():
            file[key] = array


def test_an_array_alone_is_read_as_it_is():
    np.save("c.npy", POINTS)
    read = read_clouds("c.npy")
    np.testing.assert_array_equal(read.points, POINTS.astype(np.float32))
    assert read.points.dtype == np.float32
    assert read.labels is None
    assert read.row_ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert read.broken == ()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed, save_h5])
@pytest.mark.parametrize("name", ["points", "data", "X", "anything"])
@pytest.mark.parametrize("label", ["label", "labels", "cluster", "clusters", "Cluster"])
def test_points_and_labels_are_found_by_name(save, name, label):
    path = "c.h5" if save is save_h5 else "c.npz"
    save(path, **{name: POINTS, label: np.arange(6) // 2, "names": ["x", "y", "z"]})
    read = read_clouds(path)
    np.testing.assert_array_equal(read.points, POINTS.astype(np.float32))
    assert read.labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_points_win_over_data_and_both_over_other_arrays():
    np.savez("c.npz", normals=POINTS + 1, data=POINTS + 2, points=POINTS)
    np.testing.assert_array_equal(read_clouds("c.npz").points, POINTS.astype(np.float32))
    np.savez("c.npz", normals=POINTS + 1, data=POINTS)
    np.testing.assert_array_equal(read_clouds("c.npz").points, POINTS.astype(np.float32))


def test_labels_in_one_column_and_text_are_read_from_hdf5():
    save_h5("c.hdf5", data=POINTS, label=np.arange(6)[:, None].astype(np.uint8))
    assert read_clouds("c.hdf5").labels.tolist() == [0, 1, 2, 3, 4, 5]
    save_h5("c.hdf5", data=POINTS, cluster=list("aabbcc"))
    assert read_clouds("c.hdf5").labels.tolist() == list("aabbcc")


def test_ids_are_read_too():
    np.savez("c.npz", points=POINTS, id=np.array(list("uvwxyz")))
    assert read_clouds("c.npz").row_ids.tolist() == list("uvwxyz")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int16])
def test_numbers_of_every_type_become_single_precision(dtype):
    np.save("c.npy", (10 * POINTS).astype(dtype))
    read = read_clouds("c.npy").points
    assert read.dtype == np.float32
    np.testing.assert_allclose(read, (10 * POINTS).astype(dtype), rtol=1e-6)


def test_of_large_clouds_points_are_chosen_the_same_in_all():
    np.save("c.npy", POINTS)
    read = read_clouds("c.npy", n_points=15).points
    assert read.shape == (6, 15, 3)
    places = [
        [np.flatnonzero((POINTS[i].astype(np.float32) == p).all(axis=1))[0] for p in read[i]]
        for i in range(6)
    ]
    assert len(set(places[0])) == 15
    assert places == [places[0]] * 6
    np.testing.assert_array_equal(read_clouds("c.npy", n_points=15).points, read)
    assert not np.array_equal(read_clouds("c.npy", 15, random_state=1).points, read)
    np.save("c.npy", POINTS[::-1])
    np.testing.assert_array_equal(read_clouds("c.npy", n_points=15).points, read[::-1])


# Folders


def test_a_folder_has_a_subfolder_for_each_cluster():
    read = read_clouds(two_clusters(), n_points=40)
    assert read.points.shape == (6, 40, 3)
    assert read.points.dtype == np.float32
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
        assert is_drawn_from(read.points[i], POINTS[i])
        assert is_drawn_from(read.points[3 + i], POINTS[i] + 5)


@pytest.mark.slow
def test_files_lie_at_any_depth_as_in_modelnet():
    ball, box = trimesh.creation.icosphere(2), trimesh.creation.box()
    for part in ("train", "test"):
        export(ball, f"m/ball/{part}/ball_0001.off")
        export(box, f"m/box/{part}/box_0001.OFF")
    read = read_clouds("m", n_points=30)
    assert read.labels.tolist() == ["ball", "ball", "box", "box"]
    assert read.row_ids[0] == "ball/test/ball_0001.off"
    radius = np.linalg.norm(read.points[:2], axis=2)
    assert ((radius > 0.95) & (radius < 1.001)).all()
    # The same mesh under two names: other points of its surface.
    assert not np.array_equal(read.points[0], read.points[1])


@pytest.mark.slow
def test_every_ending_is_found_and_nothing_else():
    two_clusters("f", 1)
    export(trimesh.creation.box(), "f/a/m.off")
    for ending in ("ply", "obj", "stl"):
        export(trimesh.creation.box(), f"f/b/m.{ending}")
    save_pcd("f/a/c.pcd", POINTS[0])
    save_xyz("f/b/c.xyz", POINTS[0])
    for name in ("f/read.me", "f/.hidden.npy", "f/a/._m.off", "f/.cache/c/x.npy", "f/b/x.mtl"):
        write(name, "no cloud")
    with pytest.warns(SkippedWarning, match=r"skipped 1 file in f .*: 'b/x\.mtl'"):
        read = read_clouds("f")
    assert {Path(name).suffix for name in read.row_ids} == set(ENDINGS)
    assert len(read.row_ids) == 8


def test_what_is_drawn_from_a_file_depends_on_its_name_and_the_seed_alone():
    read = read_clouds(two_clusters(), n_points=10)
    np.testing.assert_array_equal(read_clouds("clouds", 10).points, read.points)
    save_npy("clouds/a/00.npy", POINTS[5])
    save_npy("clouds/A/0.npy", POINTS[5])
    more = read_clouds("clouds", 10)
    kept = np.isin(more.row_ids, read.row_ids)
    assert kept.sum() == 6
    np.testing.assert_array_equal(more.points[kept], read.points)
    assert not np.array_equal(read_clouds("clouds", 10, random_state=1).points, more.points)
    fresh = [read_clouds("clouds", 10, random_state=None).points for _ in range(2)]
    assert not np.array_equal(*fresh)


@pytest.mark.slow
def test_the_callers_random_numbers_are_left_alone():
    np.random.seed(3)  # noqa: NPY002
    expected = np.random.get_state()[1].copy()  # noqa: NPY002
    export(trimesh.creation.box(), "f/a/m.off")
    export(trimesh.creation.box(), "f/b/m.off")
    read_clouds("f", n_points=10)
    np.testing.assert_array_equal(np.random.get_state()[1], expected)  # noqa: NPY002


@pytest.mark.slow
def test_a_broken_file_is_named_and_left_out():
    two_clusters(n=6)
    write("clouds/b/5.npy", "hello")
    write("clouds/a/1.off", off_of_a_box()[:100])
    sentence = r"^2 of 13 point clouds in clouds cannot be read .*: 'a/1.off' \(it is cut short"
    with pytest.warns(UserWarning, match=sentence):
        read = read_clouds("clouds", max_broken=0.2)
    assert read.broken == ("a/1.off", "b/5.npy")
    assert len(read.points) == len(read.labels) == len(read.row_ids) == 11
    assert np.isfinite(read.points).all()
    assert "b/5.npy" not in read.row_ids


def test_too_many_broken_files_are_an_error():
    two_clusters(n=3)
    for i in range(4):
        write(f"clouds/a/x{i}.xyz", "1 2 nan\n")
    why = "it has coordinates that are NaN or infinite"
    named = ", ".join(f"'a/x{i}.xyz' ({why})" for i in range(3))
    with pytest.raises(InputError) as caught:
        read_clouds("clouds")
    for part in ("4 of 10 point clouds in clouds", "5%", f"{named} and 1 more", "repair"):
        assert part in str(caught.value)


def test_nothing_but_broken_files_is_an_error_whatever_the_share():
    write("clouds/a/1.xyz", "")
    write("clouds/b/1.xyz", "")
    with pytest.raises(InputError, match=r"^none of the 2 point clouds in clouds .*it is empty"):
        read_clouds("clouds", max_broken=1.0)


def test_only_the_training_part_is_read():
    two_clusters("clouds/train")
    two_clusters("clouds/test")
    with pytest.warns(SkippedWarning, match="those in 'test' are ignored"):
        read = read_clouds("clouds", n_points=10)
    assert read.row_ids[0] == "a/0.npy"
    assert len(read.row_ids) == 6


# What is refused


def test_a_path_that_is_not_there_is_refused():
    refuses("there is no file or folder nowhere; check its name.", "nowhere")


def test_a_file_of_another_kind_is_refused():
    write("c.txt", "1 2 3")
    refuses("c.txt has an unsupported file type; … .npy, .npz, .h5 or .hdf5 file.", "c.txt")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_clouds_with_nan_are_counted_and_named(value):
    gaps = POINTS.copy()
    gaps[[1, 4], 3, 2] = value
    np.savez("c.npz", points=gaps)
    sentence = (
        "2 of 6 clouds in c.npz have values that are NaN or infinite ({}); remove those clouds or "
        "fill in the values first."
    )
    refuses(sentence.format("1, 4"), "c.npz")
    np.savez("c.npz", points=gaps, id=np.array(list("uvwxyz")))
    refuses(sentence.format("'v', 'y'"), "c.npz")


def test_clouds_far_from_the_origin_are_refused():
    np.save("c.npy", POINTS + np.array([0, 1e9, 0, 0, 1e9, 0])[:, None, None])
    refuses(
        "2 of 6 clouds in c.npy are so far from the origin that single precision would distort "
        "them; subtract the same offset from all.",
        "c.npy",
    )


def test_clouds_of_two_sizes_are_refused():
    sentence = (
        "{} holds Python objects … differ in size; take the same number of points from each … "
        "shape (clouds, points, 3)."
    )
    ragged = np.empty(2, object)
    ragged[:] = [POINTS[0], POINTS[1, :9]]
    np.save("c.npy", ragged, allow_pickle=True)
    np.savez("c.npz", points=ragged)
    with h5py.File("c.h5", "w") as file:
        data = file.create_dataset("points", 2, h5py.vlen_dtype(np.float32))
        data[0], data[1] = POINTS[0].ravel(), POINTS[1, :9].ravel()
    for name in ("c.npy", "c.npz", "c.h5"):
        refuses(sentence.format(name), name)


@pytest.mark.parametrize(
    ("shape", "advice"),
    [
        ((6, 40, 2), "keep only x, y and z of every point"),
        ((6, 40, 6), "keep only x, y and z of every point"),
        ((6, 3, 40), "swap its last two axes"),
    ],
)
def test_points_that_are_not_three_numbers_are_refused(shape, advice):
    np.save("c.npy", np.zeros(shape))
    refuses(
        f"c.npy holds an array of shape {shape}, but clouds must have shape (clouds, points, 3); "
        f"{advice}.",
        "c.npy",
    )


def test_no_array_of_clouds_or_several_are_refused():
    sentence = (
        "c.npz must hold one array of shape (clouds, points, 3), called 'points' if there are "
        "several, but holds {}; save such an array."
    )
    np.savez("c.npz", a=POINTS, b=POINTS)
    refuses(sentence.format("'a' of shape (6, 40, 3), 'b' of shape (6, 40, 3)"), "c.npz")
    np.savez("c.npz", points=POINTS[0])
    refuses(sentence.format("'points' of shape (40, 3)"), "c.npz")


def test_empty_arrays_and_text_are_refused():
    np.save("c.npy", np.zeros((0, 40, 3)))
    refuses("c.npy holds no points (shape (0, 40, 3)); write it again.", "c.npy")
    np.save("c.npy", np.full((2, 4, 3), "a"))
    refuses("c.npy holds clouds of type <U1; save them as numbers.", "c.npy")


def test_labels_that_do_not_fit_are_refused():
    np.savez("c.npz", points=POINTS, label=[1, 2])
    refuses("'label' in c.npz has 2 labels but c.npz has 6 rows; give one label per row.", "c.npz")
    np.savez("c.npz", points=POINTS, label=np.arange(6), cluster=np.arange(6))
    refuses(
        "c.npz has several arrays that could be the labels ('label', 'cluster'); keep …", "c.npz"
    )


def test_a_damaged_hdf5_file_is_refused():
    save_h5("c.h5", points=POINTS)
    write("c.h5", Path("c.h5").read_bytes()[:500])
    with pytest.raises(InputError, match=r"^c\.h5 cannot be read \(.*so write it again\.$"):
        read_clouds("c.h5")


@pytest.mark.parametrize("n_points", [0, 2.5, "all"])
def test_numbers_of_points_that_make_no_sense_are_refused(n_points):
    sentence = f"n_points must be a whole number of at least 1, got {n_points!r}."
    refuses(sentence, "c.npy", n_points=n_points)


def test_a_share_out_of_range_is_refused():
    sentence = "max_broken must be a share between 0 and 1, got 5."
    refuses(sentence, "c.npy", max_broken=5)


@pytest.mark.parametrize(("ending", "package"), [("off", "trimesh"), ("pcd", "pypcd4")])
def test_a_missing_package_is_named(monkeypatch, ending, package):
    write(f"f/a/x.{ending}", "x")
    write(f"f/b/x.{ending}", "x")
    monkeypatch.setitem(sys.modules, package, None)
    sentence = f"reading .{ending} files needs {package}: pip install unsplit[points]"
    with pytest.raises(ImportError, match=about(sentence)):
        read_clouds("f")


def test_h5py_is_named_if_it_is_missing(monkeypatch):
    save_h5("c.h5", points=POINTS)
    monkeypatch.setitem(sys.modules, "h5py", None)
    sentence = "reading HDF5 needs h5py: pip install unsplit[points]"
    with pytest.raises(ImportError, match=about(sentence)):
        read_clouds("c.h5")


def test_arrays_and_clouds_need_no_optional_package(monkeypatch):
    for package in ("trimesh", "pypcd4", "h5py"):
        monkeypatch.setitem(sys.modules, package, None)
    np.save("c.npy", POINTS)
    assert len(read_clouds("c.npy").points) == 6
    with warnings.catch_warnings(action="error"):
        assert len(read_clouds(two_clusters()).points) == 6
