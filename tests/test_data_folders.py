import os
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

import unsplit
from tests.checks import about
from unsplit.data.readers.folders import find_files, listed_images, lists_images
from unsplit.errors import InputError, SkippedWarning

KINDS = {
    "images": "png",
    "sounds": "wave",
    "point clouds": "off",
}
every_kind = pytest.mark.parametrize("what", KINDS)


# Every test works in a folder of its own.
pytestmark = pytest.mark.usefixtures("folder")


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


def pairs(files):
    return list(zip(files.row_ids.tolist(), files.labels.tolist(), strict=True))


def found(path="."):
    return pairs(find_files(path)[0])


def listed(what, path="."):
    files, kind = find_files(path)
    assert kind == what
    return files


def refuses(sentence, path):
    with pytest.raises(InputError, match=about(sentence)):
        unsplit.read(path)


def says(path, *parts, call=unsplit.read):
    """The path is refused in one sentence that holds all of these parts."""
    with pytest.raises(InputError) as caught:
        call(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert [part for part in parts if part not in sentence] == []


# One walker for all kinds of files


@every_kind
def test_every_subfolder_is_a_cluster_and_holds_files_at_any_depth(what):
    kind = KINDS[what]
    names = [f"eagles/a.{kind}", f"eagles/b.{kind.upper()}", f"owls/2.{kind}", f"owls/x/y/1.{kind}"]
    touch(*names, "README", "labels.csv", f".hidden.{kind}", f".cache/x.{kind}")
    touch(f"owls/.hidden.{kind}", f"owls/.git/x.{kind}")
    files = listed(what)
    assert pairs(files) == [(name, name.split("/")[0]) for name in names]
    assert [os.path.isfile(path) for path in files.paths] == [True] * 4


@every_kind
def test_files_outside_of_the_subfolders_are_refused_and_the_first_is_named(what):
    kind = KINDS[what]
    touch(f"d/a/1.{kind}", f"d/b/1.{kind}", f"d/x.{kind}", f"d/w.{kind.upper()}")
    parts = f"d has {what}", f"('w.{kind.upper()}' and 1 more)", f"put the {what} of each cluster"
    says("d", *parts, call=lambda path: listed(what, path))
    touch(f"flat/1.{kind}")
    says("flat", f"('1.{kind}')", call=lambda path: listed(what, path))
    touch(f"s/train/a/1.{kind}", f"s/train/b/1.{kind}", f"s/train/1.{kind}")
    says("s", os.path.join("s", "train") + " has", call=lambda path: listed(what, path))


@every_kind
def test_other_files_in_clusters_and_empty_clusters_are_skipped_with_a_warning(what):
    kind = KINDS[what]
    touch(f"d/a/1.{kind}", f"d/b/1.{kind}", "d/c/notes.txt", *(f"d/a/{i}.db" for i in range(4)))
    os.makedirs("d/d/e")
    with pytest.warns(SkippedWarning) as told:
        assert {label for _, label in pairs(listed(what, "d"))} == {"a", "b"}
    skipped, empty = (str(warning.message) for warning in told)
    assert "left out 5 files or folders in d of types other than" in skipped
    assert "'a/0.db', 'a/1.db', 'a/2.db' and 2 more" in skipped
    assert f".{kind}" in skipped
    assert f"without {what}: 'c', 'd'" in empty


@every_kind
def test_the_folder_above_train_will_do(what):
    kind = KINDS[what]
    touch(f"train/a/1.{kind}", f"train/b/1.{kind}", "words.txt")
    expected = [(f"a/1.{kind}", "a"), (f"b/1.{kind}", "b")]
    assert pairs(listed(what)) == pairs(listed(what, "train")) == expected
    touch(f"val/a/2.{kind}", f"test/a/3.{kind}")
    with pytest.warns(SkippedWarning, match=r"left out 2 .* beside train: 'test', 'val'\."):
        assert pairs(listed(what)) == expected


@every_kind
def test_clusters_may_be_called_train(what):
    kind = KINDS[what]
    touch(f"train/a/1.{kind}", f"ship/1.{kind}")
    assert pairs(listed(what)) == [(f"ship/1.{kind}", "ship"), (f"train/a/1.{kind}", "train")]
    touch(f"flat/train/1.{kind}", f"flat/test/1.{kind}")
    assert listed(what, "flat").labels.tolist() == ["test", "train"]


@every_kind
def test_links_to_clusters_are_followed_and_circles_are_not(what):
    kind = KINDS[what]
    touch(f"elsewhere/b/1.{kind}", f"here/a/1.{kind}")
    os.symlink("../elsewhere/b", "here/b")
    os.symlink("..", "here/a/up")
    os.symlink(f"1.{kind}", f"here/a/again.{kind}")
    os.symlink("nowhere", f"here/a/gone.{kind}")
    os.mkfifo(f"here/a/pipe.{kind}")
    names = [f"a/1.{kind}", f"a/again.{kind}", f"a/gone.{kind}", f"a/pipe.{kind}"]
    assert listed(what, "here").row_ids.tolist() == [*names, f"b/1.{kind}"]


@every_kind
def test_too_few_clusters_are_refused(what):
    kind = KINDS[what]
    advice = f"put the {what} of each cluster into a subfolder"
    touch("none/a/notes.txt")
    says("none", "none has no files of a supported type", f".{kind}", call=find_files)
    touch(f"single/a/1.{kind}", "single/b/notes.txt")
    parts = f"single has {what} in only one subfolder ('a')", advice
    says("single", *parts, call=lambda path: listed(what, path))


def test_the_kind_of_a_folder_is_that_of_most_files():
    for name in ("a", "b"):
        os.makedirs(f"away/{name}")
        for i in range(3):
            wavfile.write(f"away/{name}/{i}.WAVE", 8000, np.zeros(100, np.int16))
    os.mkdir("linked")
    os.symlink("../away/a", "linked/a")
    os.symlink("../away/b", "linked/b")
    touch("linked/a/1.txt", "linked/.x/1.png", *(f"linked/{i}.png" for i in range(9)))
    with pytest.warns(SkippedWarning, match=r"'a/1\.txt'"):
        read = unsplit.read("linked")
    assert read.X.rate == 8000
    assert read.row_ids.tolist() == [f"{name}/{i}.WAVE" for name in "ab" for i in range(3)]
    touch("odd/a/1.flac")
    says("odd", "odd has no files of a supported type", "sounds: .wav, .wave;", call=unsplit.read)


# Lists of images


def test_some_of_the_images_keep_their_labels():
    touch("a/1.png", "a/2.png", "b/1.png")
    some = find_files(".")[0].only(np.array([False, True, True]))
    assert some.row_ids.tolist() == ["a/2.png", "b/1.png"]
    assert some.labels.tolist() == ["a", "b"]
    assert some.paths == [os.path.join(".", "a/2.png"), os.path.join(".", "b/1.png")]


def test_paths_that_cannot_be_used_are_refused():
    says("nowhere", "there is no file nowhere", "check its name")
    os.makedirs("empty/a")
    says("empty", "empty has no files of a supported type", "images: .jpg")
    write("images.csv", "a.png")
    assert not lists_images(Path("images.csv"))


def test_what_may_not_be_read_is_refused(monkeypatch):
    touch("a/1.png", "b/1.png")
    write("list.csv", "path,cluster\na.png,1\n")

    def denied(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.scandir", denied)
    says(".", ". cannot be opened (permission denied)")
    monkeypatch.setattr("pathlib.Path.open", denied)
    says("list.csv", "list.csv cannot be opened (permission denied)")


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
    path = Path(f"sub/{name}")
    assert lists_images(path)
    images = listed_images(path)
    assert images.row_ids.tolist() == ["z/b, é.png", away, "a"]
    assert images.labels.tolist() == ["7", "", "x"]
    assert images.paths == [os.path.join("sub", "z/b, é.png"), away, os.path.join("sub", "a")]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "path,cluster\n",
            "list.csv must name an image in every line; … empty for noise.",
        ),
        (
            "path,cluster\na.png,1\na.png,2\n",
            "list.csv lists 'a.png' more than once; …",
        ),
        (
            "path,cluster\n ,1\n",
            "list.csv must name an image in every line; … empty for noise.",
        ),
        (
            "",
            "list.csv is empty; write it again.",
        ),
    ],
)
def test_tables_that_cannot_be_used_are_refused(text, sentence):
    refuses(sentence, write("list.csv", text))


def test_tables_in_other_encodings_are_refused():
    Path("list.csv").write_bytes(b"path,cluster\n\x81.png,1\n")  # no letter in Latin-1 either
    refuses("list.csv is not text in UTF-8; save it again as UTF-8.", "list.csv")
