import csv
import json
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checks import about, names_in
from unsplit.data.saving import output_folder, replacing, write_csv, write_json
from unsplit.errors import InputError

quick = settings(deadline=None, max_examples=60, derandomize=True)


# One file


def test_new_content_appears_only_at_the_end(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as new:
        new.write_text("new")
        assert path.read_text() == "old"
        assert (new.parent, new.suffix) == (tmp_path, ".txt")
    assert path.read_text() == "new"
    assert names_in(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("old", ["old", None])
def test_failure_or_interrupt_leaves_what_was_there(tmp_path, error, old):
    path = tmp_path / "a.txt"
    if old is not None:
        path.write_text(old)

    def write_half():
        with replacing(path) as new:
            new.write_text("half")
            raise error

    with pytest.raises(error):
        write_half()
    assert names_in(tmp_path) == ([] if old is None else ["a.txt"])
    assert old is None or path.read_text() == old


@pytest.fixture
def umask():
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def test_permissions_are_those_open_would_give(tmp_path, umask):
    with replacing(tmp_path / "new") as new:
        new.write_text("x")
    with output_folder(tmp_path / "out") as folder:
        (folder / "file").write_text("x")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o666 & ~umask
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o777 & ~umask
    assert (tmp_path / "out/file").stat().st_mode & 0o777 == 0o666 & ~umask


def test_permissions_of_an_older_file_are_kept(tmp_path):
    path = tmp_path / "private"
    path.write_text("old")
    path.chmod(0o600)
    with replacing(path) as new:
        new.write_text("new")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_stays_and_its_file_changes(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with replacing(tmp_path / "link") as new:
        new.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_what_is_no_regular_file_is_refused_at_the_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("folder")
    os.mkfifo("pipe")
    for name in ("folder", "pipe"):
        sentence = f"cannot write to {name}: it is not a regular file; choose another name."
        with pytest.raises(InputError, match=about(sentence)), replacing(name):
            pytest.fail("nothing should be written")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file/a.txt", "there is a file where a folder should be"),
        ("missing/a.txt", "no such file or directory"),
        ("/proc/a.txt", "no such file or directory"),
    ],
)
def test_places_that_cannot_be_written_are_refused_at_the_start(
    tmp_path, monkeypatch, path, reason
):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x")
    sentence = f"cannot write to {path}: {reason}; choose another location."
    with pytest.raises(InputError, match=about(sentence)), replacing(path):
        pytest.fail("nothing should be written")


# Tables and JSON


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_csv_is_written_as_the_bytes_say(tmp_path):
    path = tmp_path / "a.csv"
    columns = {
        "cluster": np.array(["ä", 'say "a,b"', ""]),
        "tvd": np.array([0.1, np.nan, 1e-300]),
        "single": np.array([0.1, 1, 2], np.float32),
        "n": [3, None, np.int64(-1)],
        "ok": [True, np.False_, pd.NA],
    }
    write_csv(path, columns)
    assert path.read_bytes().decode() == (
        'cluster,tvd,single,n,ok\nä,0.1,0.1,3,True\n"say ""a,b""",,1.0,,False\n,1e-300,2.0,-1,\n'
    )


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@quick
@given(st.lists(st.tuples(texts, st.floats(allow_nan=False), st.integers())))
def test_csv_reads_back_the_same(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "round.csv"
    columns = dict(zip("tfi", zip(*rows, strict=True) if rows else [[], [], []], strict=True))
    write_csv(path, columns)
    first, *lines = read_csv(path)
    assert first == ["t", "f", "i"]
    assert [(t, float(f), int(i)) for t, f, i in lines] == rows


def test_columns_of_unequal_length_are_refused(tmp_path):
    with pytest.raises(ValueError, match="shorter"):
        write_csv(tmp_path / "a.csv", {"a": [1, 2], "b": [1]})


def test_json_takes_numpy_and_paths_and_has_no_nan(tmp_path):
    path = tmp_path / "a.json"
    content = {
        "name": "Müller",
        3: np.int32(4),
        "matrix": np.array([[0.1, np.nan], [np.inf, 1]]),
        "labels": np.array(["a", None, 7], object),
        "nested": [{"p": np.float64("nan")}, (True, np.True_, None, -math.inf)],
        "scalar": np.array(2.5),
        "path": Path("out/a.csv"),
    }
    write_json(path, content)
    text = path.read_text(encoding="utf-8")
    assert "Müller" in text
    assert text.endswith("}\n")
    assert json.loads(text, parse_constant=pytest.fail) == {
        "name": "Müller",
        "3": 4,
        "matrix": [[0.1, None], [None, 1]],
        "labels": ["a", None, 7],
        "nested": [{"p": None}, [True, True, None, None]],
        "scalar": 2.5,
        "path": "out/a.csv",
    }


def test_json_refuses_what_it_does_not_know(tmp_path):
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_json(tmp_path / "a.json", {"a": {1, 2}})
    assert names_in(tmp_path) == []
