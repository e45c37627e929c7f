"""Whole runs with all their files: killed at every rename, and eight at once."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cell_cases import small
from tests.cli_cases import QUICK
from unsplit.data.saving import MANIFEST, output_folder, verify_folder
from unsplit.errors import InputError

# In one process that has loaded all it needs, children are forked that merge cells into out/ and
# end in os._exit.  In the folders 0, 1, 2, … each kills itself before rename 0, 1, 2, …; or eight
# run in one folder.  The names of the renamed files are added to the file that they end with.
PROGRAM = """
import itertools, os, signal, sys
import anndata, h5py, torch, torch._dynamo
import unsplit.cli.merge
from unsplit.cli import main

typed, way = sys.argv[2:], sys.argv[1]
steps, at = itertools.count(), -1

def step(name):
    with open("../renamed", "a") as file:
        file.write(name + chr(10))
    if next(steps) == at:
        os.kill(os.getpid(), signal.SIGKILL)

def stopped(do):
    def done(source, target):
        step(os.path.basename(target))
        return do(source, target)
    return done

def run(folder, seed):
    if not (child := os.fork()):
        code = 1
        try:
            os.chdir(str(folder))
            with open(f"said-{seed}", "w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            main([*typed, "--seed", str(seed)], prog_name="unsplit")
            code = 0
        except SystemExit as error:
            code = error.code or 0
        finally:
            os._exit(code)
    return child

def status(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

if way == "eight":
    print(*map(status, [run(0, seed) for seed in range(1, 9)]))
else:
    os.rename, os.replace = stopped(os.rename), stopped(os.replace)
    for at in itertools.count():
        if (code := status(run(at, 1))) != -signal.SIGKILL:
            break
    print(at, code)
"""

EVERYTHING = ("--also", "h5ad,scores", "--report")
# What is written beside its place first, also within the new folder, and then renamed.
RENAMED = ["distances.npz", "distances.scores.npz", "report.html", "report.npz", "tree.npz"]
FILES = {*RENAMED, "labels.csv", "linkage.npy", "merged.h5ad", "merges.csv", "result.json"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own with cells."""
    monkeypatch.chdir(tmp_path)
    small().write_h5ad("cells.h5ad")
    Path("0").mkdir()


def runs(way):
    """Run the program; return what it printed, as numbers."""
    typed = ["merge", "../cells.h5ad", "--labels", "leiden", "--out", "out", *QUICK, *EVERYTHING]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, way, *typed],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [int(number) for number in done.stdout.split()]


def write_old_result(out):
    with output_folder(out) as new:
        for name in (*FILES, "candidates.csv"):
            (new / name).write_text("old")
        (new / "result.json").write_text('{"seed": 0}')


def seed_of(out):
    """Whose result a folder holds; None if the manifest shows that it was cut off."""
    try:
        files = verify_folder(out)
    except InputError:
        return None
    seed = json.loads((out / "result.json").read_text())["seed"]
    assert set(files) >= FILES
    assert ("candidates.csv" in files) == (seed == 0)
    return seed


def hidden(*folders):
    return [path for folder in folders for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_a_run_killed_at_any_rename_leaves_a_whole_result_or_one_that_is_recognised():
    write_old_result(Path("0/out"))
    for at in range(1, 60):
        shutil.copytree("0", str(at))
    n_renames, code = runs("move")
    assert code == 0, Path(str(n_renames), "said-1").read_text()
    renamed = Path("renamed").read_text().split("\n")
    assert set(renamed) >= FILES | {MANIFEST}
    seen = []
    for at in range(n_renames + 1):
        out = Path(str(at), "out")
        seen.append(seed_of(out))
        with output_folder(out) as new:
            (new / "labels.csv").write_text("next")
        assert verify_folder(out) == ["labels.csv"]
        assert not hidden(out, out.parent)
    # Files are moved one by one and can be cut off, which verify_folder notices.
    possible = [0, None, 1]
    assert list(dict.fromkeys(seen)) == possible
    assert seen == sorted(seen, key=possible.index)


@pytest.mark.slow
def test_of_eight_whole_runs_at_once_one_writes_and_the_others_are_refused():
    write_old_result(Path("0/out"))
    codes = runs("eight")
    said = [Path(f"0/said-{seed}").read_text() for seed in range(1, 9)]
    assert sorted(set(codes)) == [0, 2], said
    won = np.flatnonzero(np.array(codes) == 0) + 1
    assert seed_of(Path("0/out")) in won
    refusals = [text for text, code in zip(said, codes, strict=True) if code == 2]
    for text in refusals:
        assert "out/ is in use by another run; wait" in text
    assert not hidden(Path("0"), Path("0/out"))
