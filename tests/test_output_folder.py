"""Results are replaced as a whole, and reach the disk before they do."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import unsplit
from tests.checks import exactly, names_in
from unsplit.data import saving
from unsplit.data.saving import MANIFEST, output_folder, replacing, verify_folder
from unsplit.errors import InputError, KeptWarning

# --- tests/test_output_folder.py ---


def fill(folder, text="new"):
    (folder / "a.txt").write_text(text)
    (folder / "b.txt").write_text(text)
    (folder / "figures").mkdir(exist_ok=True)
    (folder / "figures" / "c.txt").write_text(text)


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {str(path.relative_to(folder)): path.read_text() for path in files}


NEW = {"a.txt": "new", "b.txt": "new", "figures/c.txt": "new"}


def test_a_new_folder_appears_at_once_with_everything(tmp_path):
    target = tmp_path / "deep" / "out"
    with output_folder(target) as new:
        fill(new)
        assert not target.exists()
    assert contents(target) == NEW
    assert names_in(tmp_path / "deep") == ["a.txt", "b.txt", "c.txt", "figures", MANIFEST, "out"]


def test_files_of_an_earlier_run_are_replaced_and_others_stay(tmp_path):
    with output_folder(tmp_path) as new:
        fill(new, "old")
    (tmp_path / "mine.txt").write_text("mine")
    with output_folder(tmp_path) as new:
        fill(new)
        assert contents(tmp_path)["a.txt"] == "old"
    assert contents(tmp_path) == NEW | {"mine.txt": "mine"}
    assert names_in(tmp_path) == ["a.txt", "b.txt", "c.txt", "figures", MANIFEST, "mine.txt"]


def test_files_that_no_run_has_left_like_this_are_kept_under_another_name(tmp_path):
    (tmp_path / "a.txt").write_text("my notes")
    told = pytest.warns(KeptWarning, match=r"they are kept: a\.txt is now a\.kept-1\.txt\.")
    with told, output_folder(tmp_path) as new:
        fill(new)
    (tmp_path / "a.txt").write_text("changed")
    told = pytest.warns(KeptWarning, match=r"a\.txt is now a\.kept-2\.txt")
    with told, output_folder(tmp_path) as new:
        fill(new)
    kept = {"a.kept-1.txt": "my notes", "a.kept-2.txt": "changed"}
    assert contents(tmp_path) == NEW | kept
    verify_folder(tmp_path)
    with output_folder(tmp_path) as new:  # nothing of the user's is replaced, so nothing is said
        fill(new)
    assert contents(tmp_path) == NEW | kept


def test_the_current_folder_and_links_to_folders_can_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("real")
    os.symlink("real", "link")
    for path in (".", "link", "real/"):
        with output_folder(path) as new:
            (new / "a.txt").write_text(path)
        assert Path(path, "a.txt").read_text() == path
    assert Path("link").is_symlink()


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("exists", [True, False])
def test_failure_midway_changes_nothing(tmp_path, error, exists):
    target = tmp_path / "out"
    if exists:
        target.mkdir()
        fill(target, "old")
    before = contents(tmp_path)

    def write_half():
        with output_folder(target) as new:
            (new / "a.txt").write_text("new")
            raise error

    with pytest.raises(error):
        write_half()
    assert contents(tmp_path) == before
    assert target.exists() == exists
    assert not list(tmp_path.rglob(".*"))


def test_a_folder_in_the_way_is_seen_before_anything_is_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("out/b.txt").mkdir(parents=True)
    Path("out/a.txt").write_text("old")
    sentence = (
        "cannot write b.txt to out/: a folder has this name; remove it or choose another --out."
    )
    with pytest.raises(InputError, match=exactly(sentence)), output_folder("out") as new:
        fill(new)
    assert contents(Path("out")) == {"a.txt": "old"}
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize(
    ("path", "shown", "reason"),
    [
        ("file", "file/", "there is a file where a folder should be"),
        ("file/out", "file/out/", "there is a file where a folder should be"),
        ("file/deep/out/", "file/deep/out/", "there is a file where a folder should be"),
    ],
)
def test_folders_that_cannot_be_written_are_refused_at_the_start(
    tmp_path, monkeypatch, path, shown, reason
):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x")
    sentence = f"cannot write to {shown}: {reason}; choose another --out."
    with pytest.raises(InputError, match=exactly(sentence)), output_folder(path):
        pytest.fail("nothing should be computed")
    assert contents(tmp_path) == {"file": "x"}


def test_denied_permission_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def denied(*args, **kwargs):  # the tests may run as root, whom nothing is denied
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", denied)
    sentence = "cannot write to out/: permission denied; choose another --out."
    with pytest.raises(InputError, match=exactly(sentence)), output_folder("out"):
        pytest.fail("nothing should be computed")


KILLED = """
import signal, sys, time, types
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a background job may lack
package = types.ModuleType("unsplit")  # without torch, which takes long to import
package.__path__ = [sys.argv[1]]
sys.modules["unsplit"] = package
from unsplit.data.saving import output_folder
from unsplit.data.saving import replacing
with output_folder("out") as folder, output_folder("new"), replacing("one.txt") as file:
    (folder / "a.txt").write_text("new")
    with open(file, "w") as half:
        half.write("new")
        half.flush()
        print("midway", flush=True)
        time.sleep(60)
"""


def killed_midway(folder, how):
    """Start writing, end it from outside, and return what the process said and its exit code."""
    program = [sys.executable, "-c", KILLED, str(Path(unsplit.__file__).parent)]
    with subprocess.Popen(program, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        said = p.stdout.readline()
        p.send_signal(how)
        p.communicate()
    return said, p.returncode


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_process_ended_midway_leaves_the_old_files(tmp_path, how):
    old = {"out/a.txt": "old", "out/b.txt": "old", "one.txt": "old"}
    (tmp_path / "out").mkdir()
    for name, text in old.items():
        (tmp_path / name).write_text(text)
    said, code = killed_midway(tmp_path, how)
    assert said == b"midway\n"
    assert code == -how
    left = contents(tmp_path)
    assert {name: text for name, text in left.items() if name in old} == old
    assert not (tmp_path / "new").exists()
    # Nobody can tidy up after being killed; what is left is hidden.
    assert (left == old) == (how == signal.SIGINT)
    assert all("/." in f"/{name}" for name in left.keys() - old.keys())


# --- Files reach the disk before they replace older ones, so that no power cut loses both ---


@pytest.fixture
def calls(monkeypatch):
    """What is asked of the operating system, in order: ("fsync", size) or ("move", name)."""
    found = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def noted_fsync(descriptor):
        found.append(("fsync", os.fstat(descriptor).st_size))
        fsync(descriptor)

    def noted(move):
        def moved(source, target):
            found.append(("move", os.path.basename(target)))
            move(source, target)

        return moved

    monkeypatch.setattr(saving.os, "fsync", noted_fsync)
    monkeypatch.setattr(saving.os, "replace", noted(replace))
    monkeypatch.setattr(saving.os, "rename", noted(rename))
    return found


@pytest.mark.parametrize("old", [None, "an older result"])
def test_a_file_is_on_the_disk_before_it_takes_its_place(tmp_path, calls, old):
    path = tmp_path / "result.txt"
    if old is not None:
        path.write_text(old)
    with replacing(path) as new:
        new.write_text("done")
    assert path.read_text() == "done"
    assert calls == [("fsync", 4), ("move", "result.txt")]


def last_steps(calls):
    """Moves and what comes after the files and the folder were written to the disk, in order."""
    first_move = next(i for i, (what, _) in enumerate(calls) if what == "move")
    assert {("fsync", 1), ("fsync", 2)} <= set(calls[:first_move])
    return [name for what, name in calls if what == "move"], calls[-1][0]


def test_a_new_folder_is_on_the_disk_before_it_appears(tmp_path, calls):
    with output_folder(tmp_path / "out") as new:
        (new / "a.txt").write_text("1")
        (new / "b.txt").write_text("22")
    assert last_steps(calls) == (["out"], "fsync")


def test_all_files_are_on_the_disk_before_the_first_is_replaced(tmp_path, calls):
    out = tmp_path / "out"
    with output_folder(out) as new:
        (new / "a.txt").write_text("older")
    calls.clear()
    with output_folder(out) as new:
        (new / "a.txt").write_text("1")
        (new / "b.txt").write_text("22")
    assert last_steps(calls) == (["manifest.json", "a.txt", "b.txt"], "fsync")
    assert (out / "a.txt").read_text() == "1"
