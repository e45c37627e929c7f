import os

import numpy as np
import pytest

from tests.checks import exactly
from unsplit.data.readers.folders import find_images
from unsplit.errors import InputError

ADVICE = (
    "put the images of each cluster into a subfolder, or list them in a .csv file with columns "
    "path and cluster."
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own, so that sentences hold short names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(*names):
    """Nothing is opened when images are listed, so that empty files will do."""
    for name in names:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "w"):
            pass


def write(name, text, encoding="utf-8"):
    with open(name, "w", encoding=encoding, newline="") as file:
        file.write(text)
    return name


def found(path="."):
    images = find_images(path)
    return list(zip(images.row_ids.tolist(), images.labels.tolist(), strict=True))


def refuses(sentence, path):
    with pytest.raises(InputError, match=exactly(sentence)):
        find_images(path)


def test_every_subfolder_is_a_cluster_and_holds_images_at_any_depth():
    touch("owls/2.jpg", "owls/deep/er/1.PNG", "eagles/b.JPEG", "eagles/a.tiff")
    touch("owls/notes.txt", "owls/.hidden.jpg", "owls/.git/x.png", ".cache/x.png", "loose.png")
    assert found() == [
        ("eagles/a.tiff", "eagles"),
        ("eagles/b.JPEG", "eagles"),
        ("owls/2.jpg", "owls"),
        ("owls/deep/er/1.PNG", "owls"),
    ]
    assert [os.path.isfile(path) for path in find_images(".").paths] == [True] * 4


def test_some_of_the_images_keep_their_labels():
    touch("a/1.png", "a/2.png", "b/1.png")
    some = find_images(".").only(np.array([False, True, True]))
    assert some.row_ids.tolist() == ["a/2.png", "b/1.png"]
    assert some.labels.tolist() == ["a", "b"]
    assert some.paths == [os.path.join(".", "a/2.png"), os.path.join(".", "b/1.png")]


def test_links_to_clusters_are_followed_and_circles_are_not():
    touch("elsewhere/b/1.png", "here/a/1.png")
    os.symlink("../elsewhere/b", "here/b")
    os.symlink("..", "here/a/up")
    os.symlink("1.png", "here/a/again.png")
    names = ["a/1.png", "a/again.png", "b/1.png"]
    assert [name for name, _ in found("here")] == names


def test_the_folder_above_train_will_do():
    touch("train/a/1.png", "train/b/1.png", "words.txt")
    expected = [("a/1.png", "a"), ("b/1.png", "b")]
    assert found(".") == found("train") == expected
    touch("val/a/2.png", "test/a/3.png")
    sentence = "of . only the images in 'train' are used, not those in 'test', 'val'."
    with pytest.warns(UserWarning, match=exactly(sentence)):
        assert found(".") == expected


def test_clusters_may_be_called_train():
    touch("train/a/1.png", "ship/1.png")
    assert found() == [("ship/1.png", "ship"), ("train/a/1.png", "train")]
    touch("flat/train/1.png", "flat/test/1.png")
    assert [label for _, label in found("flat")] == ["test", "train"]


def test_subfolders_without_images_are_ignored_with_a_warning():
    touch("a/1.png", "b/1.png", "c/notes.txt")
    os.makedirs("d/e")
    sentence = "data has subfolders without images, which are ignored: 'c', 'd'."
    os.mkdir("data")
    for name in "abcd":
        os.rename(name, f"data/{name}")
    with pytest.warns(UserWarning, match=exactly(sentence)):
        assert {label for _, label in found("data")} == {"a", "b"}


def test_folders_that_cannot_be_used_are_refused():
    refuses("there is no folder or table nowhere; check its name.", "nowhere")
    os.makedirs("empty/a")
    refuses(f"empty holds no images; {ADVICE}", "empty")
    touch("loose/1.png", "loose/2.jpg", "loose/.3.jpg")
    refuses(f"loose holds 2 images but none in a subfolder; {ADVICE}", "loose")
    touch("single/a/1.png", "single/b/notes.txt")
    sentence = "single has images in one subfolder only ('a'), so there is no pair to compare;"
    refuses(f"{sentence} {ADVICE}", "single")
    touch("images.txt")
    refuses("images.txt is no folder of images and no .csv or .tsv file; name one.", "images.txt")


def test_what_may_not_be_read_is_refused(monkeypatch):
    touch("a/1.png", "b/1.png")
    write("list.csv", "path,cluster\na.png,1\n")

    def denied(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.scandir", denied)
    refuses(". cannot be opened: permission denied; check who may read it.", ".")
    monkeypatch.setattr("pathlib.Path.open", denied)
    refuses("list.csv cannot be opened: permission denied; check who may read it.", "list.csv")


@pytest.mark.parametrize(("name", "separator"), [("l.csv", ","), ("l.tsv", "\t"), ("L.CSV", ",")])
def test_tables_are_taken_in_their_order(name, separator, tmp_path):
    away = os.path.join(tmp_path, "c.png")
    rows = [
        ["n", "cluster", " path"],
        ["1", "7", "z/b, é.png"],
        ["2", "", away],
        [],
        ["3", "x", "a"],
    ]
    quoted = [[f'"{cell}"' for cell in row] for row in rows]
    os.mkdir("sub")
    text = "\r\n".join(separator.join(row) for row in quoted)
    write(f"sub/{name}", text, encoding="utf-8-sig")
    images = find_images(f"sub/{name}")
    assert images.row_ids.tolist() == ["z/b, é.png", away, "a"]
    assert images.labels.tolist() == ["7", "", "x"]
    assert images.paths == [os.path.join("sub", "z/b, é.png"), away, os.path.join("sub", "a")]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "file,cluster\na.png,1\n",
            "list.csv must have the columns 'path' and 'cluster' (its columns: 'file', 'cluster'); "
            "name them in its first line.",
        ),
        (
            "",
            "list.csv must have the columns 'path' and 'cluster' (it is empty); name them in its "
            "first line.",
        ),
        (
            "path,cluster\n",
            "list.csv names its columns but lists no images; add a line for each.",
        ),
        (
            "path,cluster\na.png,1\na.png,2\n",
            "list.csv lists 'a.png' more than once; list every image once.",
        ),
        (
            "path,cluster\na.png,1\nb.png\n",
            "line 3 of list.csv has no path or no cluster; write both, leaving the cluster empty "
            "for noise.",
        ),
        (
            "path,cluster\n ,1\n",
            "line 2 of list.csv has no path or no cluster; write both, leaving the cluster empty "
            "for noise.",
        ),
    ],
)
def test_tables_that_cannot_be_used_are_refused(text, sentence):
    refuses(sentence, write("list.csv", text))


def test_tables_in_other_encodings_are_refused():
    write("list.csv", "path,cluster\né.png,1\n", encoding="latin-1")
    sentence = (
        "list.csv is not a table in UTF-8 ('utf-8' codec can't decode byte 0xe9 in position 13: "
        "invalid continuation byte); save it again."
    )
    refuses(sentence, "list.csv")
