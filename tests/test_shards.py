"""Images in .tar files: which files a name stands for, samples, labels, and damaged archives."""

import gzip
import io
import json
import os
import pickle
import tarfile

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from PIL import Image

import unsplit
from unsplit.cli.program import main
from unsplit.data.readers.broken import content_of, place_in
from unsplit.data.readers.shards import find_samples, shards_of
from unsplit.errors import InputError, SkippedWarning


def picture(shade, kind="PNG"):
    file = io.BytesIO()
    noise = np.random.default_rng(shade).integers(0, 20, (8, 8, 3))
    Image.fromarray((shade + noise).astype(np.uint8)).save(file, kind)
    return file.getvalue()


def write(path, members):
    """Write a .tar of names and contents; a content that is a TarInfo is added as it is."""
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def samples(keys, ending="png"):
    """Dark and light pictures in turn, with a .cls each."""
    members = {}
    for i, key in enumerate(keys):
        light = i % 2
        members[f"{key}.{ending}"] = picture(200 * light + i, "JPEG" if ending == "jpg" else "PNG")
        members[f"{key}.cls"] = b"light\n" if light else b"dark"
    return members


@pytest.fixture
def two(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    for shard in range(2):
        keys = [f"{shard}{i:03d}" for i in range(12)]
        write(folder / f"set-{shard:02d}.tar", samples(keys))
    return folder


def test_what_a_name_stands_for(two, tmp_path):
    both = [two / "set-00.tar", two / "set-01.tar"]
    assert shards_of(two) == both
    assert shards_of(both[1]) == both[1:]
    for other in ("cells.csv", tmp_path, "tar"):
        assert shards_of(other) == []


def test_images_and_labels_are_read_from_their_places(two):
    read = unsplit.read(two)
    assert read.row_ids.tolist() == [f"{s}{i:03d}" for s in range(2) for i in range(12)]
    assert read.labels.tolist() == ["dark", "light"] * 12
    with tarfile.open(two / "set-01.tar") as archive:
        expected = np.asarray(Image.open(archive.extractfile("1003.png")))
    np.testing.assert_array_equal(read.X[15].permute(1, 2, 0).numpy(), expected)
    # As workers get it.
    again = pickle.loads(pickle.dumps(read.X))
    assert (again[15] == read.X[15]).all()


def test_labels_from_a_table_by_key(two, tmp_path):
    rows = pd.DataFrame({"id": unsplit.read(two).row_ids, "cluster": np.arange(24) % 3})
    rows.iloc[::-1].to_csv(tmp_path / "labels.csv", index=False)
    assert unsplit.read(two, tmp_path / "labels.csv").labels.tolist() == [0, 1, 2] * 8
    with pytest.raises(InputError, match=r"no file of that name"):
        unsplit.read(two, "colour")


def test_keys_that_repeat_are_named_by_their_shard(tmp_path):
    for shard in "ab":
        write(tmp_path / f"{shard}.tar", samples(["x", "y"], "jpg"))
    assert unsplit.read(tmp_path).row_ids.tolist() == ["a.tar/x", "a.tar/y", "b.tar/x", "b.tar/y"]


def test_links_and_absolute_names_are_never_followed(tmp_path):
    (tmp_path / "secret.png").write_bytes(picture(200))
    members = samples(["0", "1", "2", "3"])
    for kind, name in ((tarfile.SYMTYPE, "4.png"), (tarfile.LNKTYPE, "5.png")):
        link = tarfile.TarInfo(name)
        link.type, link.linkname = kind, str(tmp_path / "secret.png")
        members[name] = link
    members |= samples([str(tmp_path / "secret"), "../out"])
    path = write(tmp_path / "x.tar", members)
    read = unsplit.read(path)
    # Their own content, and not that of the file on this disk.
    assert read.row_ids.tolist() == ["0", "1", "2", "3", str(tmp_path / "secret"), "../out"]
    assert int(read.X[4].float().mean()) < 30
    assert not (tmp_path.parent / "out.png").exists()


BROKEN = {
    "compressed": (lambda content: gzip.compress(content), "cannot be read"),
    "cut in a file": (lambda content: content[: 512 + 300], "cannot be read"),
    "cut before a header": (lambda content: content[:3072], "cannot be read"),
    "damaged header": (lambda content: content[:1024] + b"?" * 512 + content[1536:], "cannot be"),
    "not a tar": (lambda content: b"x" * 2000, "cannot be read"),
    "empty": (lambda content: b"", "is empty"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_damaged_archives_are_refused_in_one_sentence(name, tmp_path):
    change, message = BROKEN[name]
    path = write(tmp_path / "x.tar", samples(["0", "1", "2"]))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=message) as caught:
        unsplit.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


SAMPLES = {
    "no label": ({"9.png": picture(3)}, r"1 of 3 images in .* have no .cls, such as '9'"),
    "two images": ({"0.jpg": picture(3, "JPEG")}, "two images called '0'"),
    "long label": ({"9.cls": b"x" * 2**21}, r"is no label \(it has 2,097,152 bytes\)"),
    "no text": ({"9.cls": b"\xff\xfe"}, "is no label"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_that_cannot_be_used_are_named(name, tmp_path):
    members, message = SAMPLES[name]
    path = write(tmp_path / "x.tar", samples(["0", "1"]) | members)
    with pytest.raises(InputError, match=message):
        unsplit.read(path)


def test_archives_without_images_are_refused(tmp_path):
    path = write(tmp_path / "x.tar", {"0.txt": b"a", ".hidden.png": b"b", "noending": b"c"})
    with pytest.raises(InputError, match="hold no images"):
        find_samples([path])
    with pytest.raises(InputError, match=r"there is no file .*0\.tar; check its name"):
        unsplit.read(tmp_path / "0.tar")


def test_a_broken_image_is_left_out_and_a_changed_one_is_named(two):
    path = two / "set-00.tar"
    content = bytearray(path.read_bytes())
    content[512:600] = b"?" * 88  # within the first image
    path.write_bytes(content)
    with pytest.warns(SkippedWarning, match=r"1 of 24 images .*'0000'"):
        read = unsplit.read(two)
    assert len(read.X) == 23
    path.write_bytes(bytes(len(content)))
    with pytest.raises(InputError, match=r"the file at byte \d+ of .*set-00.tar cannot be read"):
        read.X[0]


def test_a_place_in_a_file_is_read_to_its_end(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    assert content_of(place_in(path, 3, 4)) == b"3456"
    with pytest.raises(ValueError, match="cut short"):
        content_of(place_in(path, 8, 4))


def test_the_command_takes_shards(two, tmp_path):
    run = ["merge", str(two), "--out", str(tmp_path / "out"), "--epochs", "1", "--cv", "2"]
    done = CliRunner().invoke(main, [*run, "--n-clusters", "1", "--seed", "0"])
    assert done.exit_code == 0, done.output
    labels = pd.read_csv(tmp_path / "out" / "labels.csv", dtype=str)
    assert labels["id"].tolist()[:2] == ["0000", "0001"]
    assert labels["old"].tolist()[:2] == ["dark", "light"]
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["data"] == str(two)
    inside = CliRunner().invoke(main, [*run[:2], "--out", str(two / "out")])
    assert inside.exit_code == 2
    assert sorted(os.listdir(two)) == ["set-00.tar", "set-01.tar"]
