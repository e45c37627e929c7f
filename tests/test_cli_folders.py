"""Folders as the command line gets them: images, clouds and sounds, some of them broken."""

import io

import numpy as np
import pytest
import scipy.io.wavfile
from PIL import Image

import unsplit as library
from tests.cli_cases import read_csv, read_json, succeeds, unsplit
from unsplit.cli.outputs import about_run
from unsplit.report.collect import Kept

QUICK = ("--epochs", 1, "--cv", 2, "--device", "cpu", "--seed", 0, "--backbone", "single-layer")


# Every test works in a folder of its own.
pytestmark = pytest.mark.usefixtures("folder")


def write_photos(folder, n=6, clusters=("a", "b", "c")):
    """A few pictures a cluster: dark ones, bright ones, red ones."""
    rng = np.random.default_rng(0)
    for i, cluster in enumerate(clusters):
        (folder / cluster).mkdir(parents=True)
        for j in range(n):
            pixels = rng.integers(0, 60, (12, 12, 3), dtype=np.uint8)
            pixels[..., : i + 1] += 60 * i
            Image.fromarray(pixels).save(folder / cluster / f"{j}.png")


def merge(data, *options):
    return unsplit("merge", data, "--out", "out", *QUICK, *options)


def refused(result, part):
    """The command ends with 2 and one sentence that holds this part."""
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert part in line


def test_a_folder_of_images_needs_no_settings(folder):
    write_photos(folder / "photos")
    succeeds(merge("photos"))
    labels = read_csv("out/labels.csv")
    assert sorted(set(labels["old"])) == ["a", "b", "c"]
    assert labels["id"][:2] == ["a/0.png", "a/1.png"]
    assert len(labels["id"]) == 18
    assert read_json("out/result.json")["labels"] == "subfolders"


def test_broken_grey_transparent_and_empty(folder):
    photos = folder / "photos"
    write_photos(photos, n=14)
    (photos / "empty").mkdir()
    Image.new("L", (12, 12), 9).save(photos / "a" / "grey.png")
    Image.new("RGBA", (12, 12), (9, 9, 9, 0)).save(photos / "b" / "clear.png")
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(whole, "JPEG")
    (photos / "c" / "cut.jpg").write_bytes(whole.getvalue()[:700])
    succeeds(merge("photos"))
    result = read_json("out/result.json")
    assert result["n_observations"] == 3 * 14 + 2
    assert result["n_initial"] == 3
    told = " ".join(result["warnings"])
    assert "cut.jpg" in told
    assert "empty" in told
    assert "c/cut.jpg" not in read_csv("out/labels.csv")["id"]


@pytest.mark.parametrize("command", ["merge", "distances"])
def test_vectors_are_compared_and_photos_are_named(folder, command):
    write_photos(folder / "photos")
    # Photos of cluster b are like those of a only in the vectors.
    vectors = np.random.default_rng(0).normal(size=(18, 3)) + np.repeat([0, 0, 9], 6)[:, None]
    np.save(folder / "v.npy", vectors)
    quick = (*QUICK[:-2], "--backbone", "mlp")
    succeeds(unsplit(command, "photos", "--vectors", "v.npy", "--out", "out", *quick))
    if command == "merge":
        assert read_csv("out/labels.csv")["id"][:2] == ["a/0.png", "a/1.png"]
    result = read_json("out/result.json" if command == "merge" else "out/distances.json")
    assert result["vectors"] == "v.npy"
    assert result["n_features"] == 3
    tvd = library.PairwiseTVD.load("out/distances.npz").tvd
    assert tvd[0, 1] < tvd[0, 2]


def test_the_page_of_vectors_shows_the_photos(folder):
    write_photos(folder / "photos")
    np.save(folder / "v.npy", np.random.default_rng(0).normal(size=(18, 3)))
    options = ("--vectors", "v.npy", "--out", "out", "--report", *QUICK[:-2], "--backbone", "mlp")
    succeeds(unsplit("merge", "photos", *options))
    kept = Kept.load("out/report.npz", 3)
    assert kept.tile_kind == "images"
    assert len(kept.tiles) == len(kept.tile_clusters) > 3
    assert kept.picture_method == "two principal components (PCA)"  # of the vectors
    assert "--vectors v.npy" in about_run(read_json("out/result.json"))["command"]


def test_vectors_of_other_photos_are_refused_and_never_replaced(folder):
    write_photos(folder / "photos")
    np.save(folder / "v.npy", np.zeros((5, 3)))
    refused(merge("photos", "--vectors", "v.npy"), "v.npy has 5 vectors but photos has 18 obs")
    assert not (folder / "out").exists()
    refused(merge("photos", "--vectors", "w.npy"), "there is no file of vectors w.npy")
    (folder / "out").mkdir()
    np.save(folder / "out" / "linkage.npy", np.zeros((18, 3)))
    refused(merge("photos", "--vectors", "out/linkage.npy"), "out/linkage.npy is an input")


def test_a_table_of_paths_and_clusters(folder):
    write_photos(folder / "photos")
    rows = [f"photos/{c}/{j}.png,{c.upper()}" for c in "ab" for j in range(6)]
    (folder / "list.csv").write_text("\n".join(["path,cluster", *rows]))
    succeeds(merge("list.csv"))
    assert set(read_csv("out/labels.csv")["old"]) == {"A", "B"}


def test_labels_of_another_file_go_to_images_by_name(folder):
    write_photos(folder / "photos")
    names = [f"{c}/{j}.png" for c in "abc" for j in range(6)]
    rows = [f"{name},{i % 2}" for i, name in enumerate(names)]
    (folder / "mine.csv").write_text("\n".join(["id,cluster", *reversed(rows)]))
    succeeds(merge("photos", "--labels", "mine.csv"))
    found = read_csv("out/labels.csv")
    assert dict(zip(found["id"], found["old"], strict=True))["a/1.png"] == "1"


def test_folders_of_clouds_and_of_sounds(folder):
    rng = np.random.default_rng(0)
    for i, cluster in enumerate(["flat", "round"]):
        (folder / "clouds" / cluster).mkdir(parents=True)
        (folder / "sounds" / cluster).mkdir(parents=True)
        for j in range(6):
            points = rng.standard_normal((40, 3)) * [1, 1, 0.1 + i]
            np.save(folder / "clouds" / cluster / f"{j}.npy", points)
            wave = np.sin(np.arange(1200 + 40 * j) * (0.2 + 0.5 * i))
            path = folder / "sounds" / cluster / f"{j}.wav"
            scipy.io.wavfile.write(path, 8000, (9000 * wave).astype(np.int16))
    succeeds(merge("clouds"))
    assert read_json("out/result.json")["n_observations"] == 12
    for backbone in ("logmel", "auto"):  # the spectrogram, and the vectors that a CPU reads
        succeeds(unsplit("distances", "sounds", "--out", backbone, *QUICK[:-1], backbone))
        assert read_json(f"{backbone}/distances.json")["n_observations"] == 12


def test_arrays_of_any_shape_with_labels_inside(folder):
    X = np.random.default_rng(0).standard_normal((20, 30, 3)).astype(np.float16)
    np.savez("clouds.npz", points=X, cluster=np.arange(20) % 2)
    succeeds(merge("clouds.npz", "--labels", "cluster"))
    np.save("images.npy", (255 * np.random.default_rng(0).random((20, 9, 9))).astype(np.uint8))
    (folder / "labels.txt").write_text("\n".join("ab" * 10))
    succeeds(merge("images.npy", "--labels", "labels.txt"))
    assert set(read_csv("out/labels.csv")["old"]) == {"a", "b"}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda f: f.mkdir(), "photos"),
        (lambda f: write_photos(f, clusters=["only"]), "only"),
        (lambda f: None, "photos"),
    ],
    ids=["no images", "one subfolder", "nothing there"],
)
def test_folders_that_cannot_be_used(folder, make, sentence):
    make(folder / "photos")
    refused(merge("photos"), sentence)
    assert not (folder / "out").exists()


def test_clouds_with_gaps_and_of_two_sizes():
    X = np.zeros((6, 20, 3))
    X[4, 2, 1] = np.nan
    np.savez("gaps.npz", points=X, cluster=[0, 0, 0, 1, 1, 1])
    refused(merge("gaps.npz", "--labels", "cluster"), "observation 4")
    two = [np.zeros((10 + i, 3)) for i in range(4)]
    with pytest.raises(library.InputError, match="differ in their number of points"):
        library.pairwise_tvd(
            two, [0, 0, 1, 1], backbone="pointnet++", cv=2, training=library.TrainConfig(epochs=1)
        )


def test_an_array_without_labels_asks_for_them():
    np.save("images.npy", np.zeros((6, 9, 9), np.uint8))
    refused(merge("images.npy"), "--labels")


def test_select_tries_several_networks_and_says_which(folder):
    write_photos(folder / "photos")
    out = unsplit("distances", "photos", "--out", "out", *QUICK, "--backbone", "select")
    succeeds(out)
    tried = read_csv("out/candidates.csv")
    assert len(tried["candidate"]) == 5
    assert tried["mean_accuracy"] == sorted(tried["mean_accuracy"], key=float, reverse=True)
    settings = read_json("out/distances.json")["settings"]
    assert settings["backbone"] == ("auto" if "auto" in tried["candidate"][0] else "single-layer")
