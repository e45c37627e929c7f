"""Files reach the disk before they replace older ones, so that no power cut loses both."""

import os

import pytest

from unsplit.data import saving
from unsplit.data.saving import output_folder, replacing


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
