"""Nothing is lost when results are written: not the input, not older results, not users' files."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import unsplit as library
from tests.cli_cases import merge, snapshot, succeeds, unsplit, write_data
from unsplit.cli import outputs
from unsplit.cli.console import Console, Interrupted, interruptible
from unsplit.data import saving
from unsplit.data.saving import MANIFEST, added_file, output_folder, replacing, verify_folder
from unsplit.errors import InputError, KeptWarning

# Every test works in a folder of its own.
pytestmark = [
    pytest.mark.usefixtures("folder"),
    pytest.mark.filterwarnings("ignore:removed from .*:unsplit.errors.KeptWarning"),
]


def texts(folder="out"):
    """The files of a folder with their texts, without the manifest and what is hidden."""
    found = {path.relative_to(folder).as_posix(): path for path in Path(folder).rglob("*")}
    return {
        name: path.read_text()
        for name, path in found.items()
        if path.is_file() and name != MANIFEST and not name.startswith(".")
    }


# Files that a result may have had and a new one need not have.
REMOVABLE = {"changed", "figure", "labels", "table", "tree"}


def write(out="out", **files):
    """Write one result; ``a="1"`` writes 1 to the file a."""
    with output_folder(out, removable=REMOVABLE) as new:
        for name, text in files.items():
            (new / name).write_text(text)


def hidden(folder="."):
    return [path for path in Path(folder).iterdir() if path.name.startswith(".")]


# Inputs


def write_clusters(folder="cl"):
    for cluster in "ab":
        Path(folder, cluster).mkdir(parents=True)
        for i in range(3):
            np.save(Path(folder, cluster, f"{i}.npy"), np.random.default_rng(i).random((9, 3)))


def hard_link(source, target):
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    os.link(source, target)


def soft_link(source, target):
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    os.symlink(os.path.abspath(source), target)


LABELLED = ("--labels", "cluster")
REPLACED = "would be replaced by the results; choose another --out."
INSIDE = "choose a folder outside it."

INPUTS = {
    "candidates": (
        lambda: write_data("candidates.csv"),
        ("merge", "candidates.csv", *LABELLED, "--out", ".", "--backbone", "select"),
        REPLACED,
    ),
    "candidates of distances": (
        lambda: write_data("candidates.csv"),
        ("distances", "candidates.csv", *LABELLED, "--out", ".", "--backbone", "select"),
        REPLACED,
    ),
    "result as labels": (
        lambda: write_data("result.json"),
        ("merge", "data.csv", "--labels", "result.json", "--out", "."),
        REPLACED,
    ),
    "a manifest as batch": (
        lambda: None,
        ("merge", "data.csv", *LABELLED, "--batch", "out/merges.csv", "--out", "out"),
        REPLACED,
    ),
    "a hard link": (
        lambda: hard_link("data.csv", "new/labels.csv"),
        ("merge", "data.csv", *LABELLED, "--out", "new"),
        REPLACED,
    ),
    "a symbolic link": (
        lambda: soft_link("data.csv", "new/labels.csv"),
        ("merge", "data.csv", *LABELLED, "--out", "new"),
        REPLACED,
    ),
    "a link to the folder": (
        lambda: soft_link("out", "link"),
        ("merge", "link/merges.csv", *LABELLED, "--out", "out"),
        REPLACED,
    ),
    "a file of the demo that merge does not write": (
        lambda: write("demo", **{"digits.csv": Path("data.csv").read_text()}),
        ("merge", "demo/digits.csv", *LABELLED, "--out", "demo"),
        REPLACED,
    ),
    "the folder of clusters": (lambda: None, ("merge", "cl", "--out", "cl"), INSIDE),
    "a cluster": (lambda: None, ("merge", "cl", "--out", "cl/a"), INSIDE),
    "a new subfolder": (lambda: None, ("distances", "cl", "--out", "cl/new/deep"), INSIDE),
    "a subfolder through a link": (
        lambda: soft_link("cl", "link"),
        ("merge", "cl", "--out", "link/c"),
        INSIDE,
    ),
    "a folder in the way": (
        lambda: os.makedirs("new/tree.npz"),
        ("merge", "data.csv", *LABELLED, "--out", "new"),
        "a folder has this name",
    ),
    "a table": (
        lambda: hard_link("data.csv", "c.csv"),
        ("overcluster", "data.csv", "--out", "c.csv", "--method", "k-means"),
        REPLACED,
    ),
    "an empty name": (lambda: None, ("merge", "data.csv", *LABELLED, "--out", ""), "empty"),
    "a blank name": (lambda: None, ("distances", "data.csv", *LABELLED, "--out", " "), "empty"),
    "an empty table": (
        lambda: None,
        ("overcluster", "data.csv", "--out", "", "--method", "k-means"),
        "empty",
    ),
    "an empty name of the demo": (lambda: None, ("demo", "--out", ""), "empty"),
    "another manifest": (
        lambda: (os.mkdir("new"), Path("new", MANIFEST).write_text("{}")),
        ("merge", "data.csv", *LABELLED, "--out", "new"),
        "was not written by this version of unsplit",
    ),
}


@pytest.mark.parametrize("case", INPUTS)
def test_no_input_is_ever_an_output(case, monkeypatch):
    def read(*_):
        raise AssertionError("read although the output is refused")

    monkeypatch.setattr("unsplit.cli.options.Input.read", read)
    prepare, command, sentence = INPUTS[case]
    write_data()
    write_clusters()
    write("out", **{"merges.csv": Path("data.csv").read_text()})
    prepare()
    before = snapshot(".")
    result = unsplit(*command)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert sentence in line
    assert snapshot(".") == before


def test_a_column_may_be_called_like_the_output_folder():
    write_data()
    for _ in range(2):
        succeeds(merge("--epochs", 1, out="cluster"))
    verify_folder("cluster")


# Replacing a result


def test_files_of_an_earlier_run_do_not_stay_beside_new_ones():
    write(labels="1", figure="1", changed="1")
    Path("out/notes").mkdir()
    Path("out/notes/mine").write_text("mine")
    Path("out/empty").mkdir()
    Path("out/link").symlink_to("notes/mine")
    Path("out/changed").write_text("by the user")
    os.chmod("out", 0o750)
    with pytest.warns(KeptWarning, match="^removed from out/, as of an earlier result: figure.$"):
        write(labels="2", table="2")
    users = {"notes/mine": "mine", "link": "mine", "changed": "by the user"}
    assert texts() == {"labels": "2", "table": "2"} | users
    assert Path("out/empty").is_dir()
    assert Path("out/link").is_symlink()
    assert Path("out").stat().st_mode & 0o777 == 0o750
    assert Path("out/notes/mine").stat().st_nlink == 1
    assert verify_folder("out") == ["labels", "table"]
    assert not hidden()


def test_figures_of_an_earlier_run_are_removed_by_a_run_without_them():
    write_data()
    write("out", **{"dendrogram.png": "old"})
    result = merge("--epochs", 1)
    succeeds(result)
    assert "warning: removed from out/, as of an earlier result: dendrogram.png.\n" in result.stderr
    assert "dendrogram.png" not in snapshot()
    manifest = json.loads(Path("out", MANIFEST).read_text())
    assert manifest["versions"]["unsplit"] == library.__version__
    assert set(manifest["files"]) == set(snapshot()) - {MANIFEST}


@pytest.mark.parametrize("reason", ["current folder", "inside", "other files"])
def test_the_manifest_is_replaced_first_and_the_files_one_by_one(reason, monkeypatch):
    write(labels="1", figure="1")
    moves, replace, out = [], os.replace, "out"
    if reason == "current folder":
        monkeypatch.chdir("out")
        out = "."
    elif reason == "inside":
        Path("out/sub").mkdir()
        monkeypatch.chdir("out/sub")
        out = ".."
    else:
        Path("out/mine").write_text("mine")
    monkeypatch.setattr(saving.os, "replace", lambda a, b: (moves.append(b.name), replace(a, b)))
    write(out, labels="2", table="2")
    assert moves == [MANIFEST, "labels", "table"]
    mine = {"mine": "mine"} if reason == "other files" else {}
    assert texts(out) == {"labels": "2", "table": "2"} | mine
    assert verify_folder(out) == ["labels", "table"]
    assert not hidden()
    assert not hidden(out)


def test_a_folder_without_permission_to_write_is_refused(monkeypatch):
    write(labels="1")

    def denied(*_, **__):  # the tests may run as root, who may write everywhere
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(saving.Path, "mkdir", denied)
    with pytest.raises(InputError, match="permission denied"):
        write(labels="2")
    assert texts() == {"labels": "1"}


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (lambda: Path("out/labels").write_text("2"), "missing or have changed: labels;"),
        (lambda: Path("out/labels").unlink(), "missing or have changed: labels;"),
        (lambda: Path("out", MANIFEST).unlink(), f"has no {MANIFEST}"),
        (lambda: Path("out", MANIFEST).write_text("{"), "was not written by this version"),
        (lambda: manifest_naming("../data"), "names '../data', which is outside this folder"),
    ],
)
def test_verify_folder_finds_what_is_wrong(damage, part):
    write(labels="1", table="1")
    assert verify_folder("out") == ["labels", "table"]
    damage()
    with pytest.raises(InputError, match=part):
        verify_folder("out")


def manifest_naming(name):
    files = {name: {"size": 0, "sha256": ""}}
    content = {"format": saving.MANIFEST_FORMAT, "versions": {}, "files": files}
    Path("out", MANIFEST).write_text(json.dumps(content))


# Signals, in real processes


# One process without torch, which takes long to import.  In the folders 0, 1, 2, … it forks
# children that write a result each and send themselves a signal before step 0, 1, 2, … of it.
PROGRAM = """
import itertools, os, signal, sys, types
package = types.ModuleType("unsplit")
package.__path__ = [sys.argv[1]]
sys.modules["unsplit"] = package
from pathlib import Path
from unsplit.data import saving
signal.signal(signal.SIGINT, signal.default_int_handler)
sent, way = int(sys.argv[2]), sys.argv[3]
steps, at = itertools.count(), -1

def step(do):
    def done(*args, **options):
        if next(steps) == at:
            os.kill(os.getpid(), sent)
        return do(*args, **options)
    return done

for name in ("open", "rename", "replace", "link", "unlink", "mkdir", "rmdir"):
    setattr(os, name, step(getattr(os, name)))

for folder in itertools.count():
    if not (child := os.fork()):
        os.chdir(str(folder))
        at, status = folder, 1
        try:
            if way == "page":
                with saving.added_file("out", "figure") as new:
                    new.write_text("new")
            else:
                with saving.output_folder("out", removable={"figure"}) as new:
                    for name in ("labels", "table", "tree"):
                        (new / name).write_text("new")
            status = 0
        finally:
            os._exit(status if next(steps) > at else 7)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 7:
        break
print(folder)
"""


def signal_at_every_step(sent, way):
    """Return how many steps there were."""
    arguments = [str(Path(library.__file__).parent), str(int(sent)), way]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return int(done.stdout)


OLD = {"labels": "old", "tree": "old", "figure": "old"}
NEW = {"labels": "new", "table": "new", "tree": "new"}
USERS = {"notes": "mine", "sub/notes": "mine"}


def verdict(out):
    """Whose result a folder holds, as far as the manifest tells."""
    try:
        return "new" if "table" in verify_folder(out) else "old"
    except InputError:
        return "refused"


def write_old_result(out, users):
    write(out, **OLD)
    for name, text in users.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(text)


@pytest.mark.parametrize(
    "sent",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("users", [{}, USERS], ids=["alone", "beside files of the user"])
def test_a_signal_at_any_step_leaves_a_whole_result_or_one_that_is_recognised(users, sent, folder):
    write_old_result(folder / "0" / "out", users)
    for at in range(1, 60):
        shutil.copytree("0", str(at))
    n_steps = signal_at_every_step(sent, "move")
    assert 9 < n_steps < 60
    seen = []
    for at in range(n_steps):
        out = folder / str(at) / "out"
        found = texts(out)
        assert found.items() >= users.items()
        result = {name: text for name, text in found.items() if name not in users}
        seen.append(verdict(out))
        assert seen[-1] == "refused" or result == {"old": OLD, "new": NEW}[seen[-1]]
        write(out, **NEW)  # the next run removes what is left of the killed one
        assert texts(out) == NEW | users
        assert not hidden(out.parent)
    # Files are moved one by one, which a kill can cut off; verify_folder notices it.
    possible = ["old", "new"] if sent == signal.SIGINT else ["old", "refused", "new"]
    assert set(seen) == set(possible)
    assert seen == sorted(seen, key=possible.index)


def test_adding_a_file_can_be_killed_and_repeated(folder):
    write_old_result(folder / "0" / "out", USERS)
    for at in range(1, 60):
        shutil.copytree("0", str(at))
    n_steps = signal_at_every_step(signal.SIGKILL, "page")
    assert 5 < n_steps < 60
    seen = []
    for at in range(n_steps):
        out = folder / str(at) / "out"
        seen.append(texts(out).get("figure"))
        assert verify_folder(out, ignore={"figure"}) == sorted(OLD)
        with added_file(out, "figure") as new:
            new.write_text("next")
        assert texts(out) == OLD | USERS | {"figure": "next"}
        assert verify_folder(out) == sorted(OLD)
        assert not hidden(out.parent)
    assert list(dict.fromkeys(seen)) == ["old", None, "new"]


def test_a_file_is_added_beside_files_that_nobody_may_change():
    with output_folder("out", {"unsplit": "1"}) as new:
        (new / "labels").write_text("1")
    os.chmod("out/labels", 0o444)
    with added_file("out", "page") as new:
        new.write_text("2")
    assert texts() == {"labels": "1", "page": "2"}
    assert verify_folder("out") == ["labels", "page"]
    assert json.loads(Path("out", MANIFEST).read_text())["versions"] == {"unsplit": "1"}
    assert not hidden()


def test_a_page_is_not_added_to_a_result_that_is_being_replaced():
    write_data()
    succeeds(merge("--epochs", 1))
    before = snapshot()
    with output_folder("out"):
        result = unsplit("report", "out")
        assert result.exit_code == 2
        assert "out/ is in use by another run" in result.stderr
        assert {name: text for name, text in snapshot().items() if name[0] != "."} == before


def test_ctrl_c_while_files_are_replaced_is_told_after_it(monkeypatch):
    replace = os.replace
    write(labels="1")

    def interrupted(first, second):
        signal.raise_signal(signal.SIGINT)
        return replace(first, second)

    monkeypatch.setattr(saving.os, "replace", interrupted)
    with pytest.raises(Interrupted) as error, interruptible("out", Console()):
        write(labels="2")
    assert error.value.message == "interrupted after all results were written to out"
    assert texts() == {"labels": "2"}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# Several runs at once


WAITING = """
import sys, types
package = types.ModuleType("unsplit")
package.__path__ = [sys.argv[1]]
sys.modules["unsplit"] = package
from unsplit.data.saving import output_folder
from unsplit.errors import InputError
sys.stdin.readline()
try:
    with output_folder(sys.argv[2]) as folder:
        print("writing", flush=True)
        for name in "abc":
            (folder / name).write_text(sys.argv[3])
        sys.stdin.readline()
except InputError as error:
    print(error, flush=True)
"""


def start(text, out="out"):
    where = str(Path(library.__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, where, out, text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process


def go_on(process):
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize("exists", [True, False])
def test_of_eight_runs_at_once_one_writes_and_seven_are_refused(exists):
    if exists:
        write(a="0", b="0", c="0")
    runs = [start(str(i)) for i in range(8)]
    for process in runs:
        go_on(process)
    said = [process.stdout.readline() for process in runs]
    (winner,) = [i for i, line in enumerate(said) if line == "writing\n"]
    for line in said[:winner] + said[winner + 1 :]:
        assert line.startswith("out/ is in use by another run; wait")
        assert "choose another --out" in line
    for process in runs:
        process.communicate("\n")
    assert texts() == dict.fromkeys("abc", str(winner))
    verify_folder("out")
    assert not hidden()


def test_a_killed_run_leaves_no_lock_and_its_folder_is_removed_but_no_live_one():
    runs = {"killed": start("1"), "live": start("1", "live")}
    for process in runs.values():
        go_on(process)
        assert process.stdout.readline() == "writing\n"
    runs["killed"].kill()
    runs["killed"].communicate()
    assert len(hidden()) == 4  # two folders and two lock files
    keep = Path(".unsplit-notes.out")
    keep.mkdir()
    write(a="2")
    assert texts() == {"a": "2"}
    left = sorted(path.name for path in hidden() if path != keep)
    assert left[0] == ".live.unsplit-lock"
    assert [name[-5:] for name in left[1:]] == [".live"]
    runs["live"].communicate("\n")
    assert texts("live") == dict.fromkeys("abc", "1")
    assert hidden() == [keep]


def test_a_link_in_place_of_the_lock_is_not_followed():
    Path("precious").write_text("mine")
    Path(".out.unsplit-lock").symlink_to("precious")
    with pytest.raises(InputError, match="cannot write to out/"):
        write(a="1")
    assert Path("precious").read_text() == "mine"


def test_the_command_line_names_the_folder_in_use():
    write_data()
    with output_folder("out"):
        result = merge()
    assert result.exit_code == 2
    assert "out/ is in use by another run; wait" in result.stderr
    assert not Path("out/labels.csv").exists()


HALF_WRITTEN = """
import sys, types
package = types.ModuleType("unsplit")
package.__path__ = [sys.argv[1]]
sys.modules["unsplit"] = package
from unsplit.data.saving import replacing
with replacing(sys.argv[2]) as new:
    new.write_text("half")
    print("writing", flush=True)
    sys.stdin.readline()
    new.write_text("whole")
"""


def start_writing(target):
    where = str(Path(library.__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", HALF_WRITTEN, where, target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "writing\n"
    return process


def test_a_killed_writer_leaves_the_old_file_and_a_hidden_one_and_disturbs_no_other():
    Path("a.csv").write_text("old")
    dead, living = start_writing("a.csv"), start_writing("a.csv")
    dead.kill()
    dead.communicate()
    assert Path("a.csv").read_text() == "old"
    with replacing("a.csv") as new:
        new.write_text("1")
    assert Path("a.csv").read_text() == "1"
    living.communicate("\n")
    assert Path("a.csv").read_text() == "whole"
    (left,) = hidden()
    assert left.name.startswith(".unsplit-")
    assert left.name.endswith(".a.csv")


def test_the_command_verify_says_whether_a_result_is_complete():
    assert unsplit("verify", "out").exit_code == 2
    write(labels="1", merges="2")
    told = succeeds(unsplit("verify", "out"))
    assert told == "out is complete and unchanged: labels, merges\n"
    Path("out/merges").write_text("3")
    result = unsplit("verify", "out")
    assert result.exit_code == 2
    assert "have changed: merges; run the command again" in result.stderr


# Results of someone else, whose manifest may name anything


def forged(name, **more):
    """A result whose manifest also names a file that is unchanged, as far as it says."""
    write(labels="1", tree="1")
    content = json.loads(Path("out", MANIFEST).read_text())
    entry = saving._entry(Path("thesis.txt"))
    content["files"][name] = entry
    Path("out", MANIFEST).write_text(json.dumps(content | {"replaced": {name: entry}}))


def linked_folder():
    Path("out").mkdir()
    Path("out/sub").symlink_to("..")
    forged("sub/thesis.txt")


def linked_file():
    Path("out").mkdir()
    Path("out/labels.csv").symlink_to("../thesis.txt")
    forged("labels.csv")


FORGED = {
    "absolute": lambda: forged(str(Path("thesis.txt").absolute())),
    "above": lambda: forged("../thesis.txt"),
    "there and back": lambda: forged("sub/../../thesis.txt"),
    "through a linked folder": linked_folder,
    "through a link": linked_file,
    "no name at all": lambda: forged("a\0b"),
}
COMMANDS = {
    "report": ("report", "out"),
    "verify": ("verify", "out"),
    "merge": ("merge", "data.csv", *LABELLED, "--out", "out"),
    "distances": ("distances", "data.csv", *LABELLED, "--out", "out"),
    "demo": ("demo", "--out", "out"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("case", FORGED)
def test_no_manifest_leads_out_of_its_folder(case, command):
    write_data()
    Path("thesis.txt").write_text("ten years of work")
    FORGED[case]()
    before = snapshot("."), snapshot("out")
    result = unsplit(*COMMANDS[command])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert f"out/{MANIFEST} " in line
    assert "use another folder" in line
    assert (snapshot("."), snapshot("out")) == before
    assert Path("thesis.txt").read_text() == "ten years of work"


def test_what_a_manifest_says_was_replaced_is_never_removed():
    """As a killed run of an earlier version could leave it, or somebody could write it."""
    Path("thesis.txt").write_text("ten years of work")
    write(labels="1")
    content = json.loads(Path("out", MANIFEST).read_text())
    named = ["thesis.txt", "../thesis.txt", str(Path("thesis.txt").absolute())]
    Path("out/thesis.txt").write_text("ten years of work")
    content["replaced"] = dict.fromkeys(named, saving._entry(Path("thesis.txt")))
    Path("out", MANIFEST).write_text(json.dumps(content))
    with added_file("out", "page") as new:
        new.write_text("2")
    write(labels="2")
    assert Path("thesis.txt").read_text() == Path("out/thesis.txt").read_text()
    assert texts() == {"labels": "2", "page": "2", "thesis.txt": "ten years of work"}


def test_only_files_that_a_run_can_write_are_removed():
    Path("out").mkdir()
    write(labels="1", figure="1", notes="in the manifest of somebody else")
    write(labels="2")
    assert texts() == {"labels": "2", "notes": "in the manifest of somebody else"}
    assert verify_folder("out") == ["labels"]


def test_all_files_of_the_commands_are_known():
    write_data()
    everything = ("--backbone", "select", "--also", "scores,figures", "--report")
    succeeds(merge("--epochs", 1, *everything))
    distances = (
        "distances",
        "data.csv",
        *LABELLED,
        "--epochs",
        "1",
        "--backbone",
        "select",
        "--also",
        "matrix,scores",
    )
    succeeds(unsplit(*distances, "--out", "compared"))
    found = {name for out in ("out", "compared") for name in verify_folder(out)}
    others = {"merged.h5ad", "digits.csv"}  # of cells and of the demo
    assert found | others == set(outputs.WRITTEN)


def test_a_page_of_an_earlier_run_is_not_removed_in_silence():
    write_data()
    succeeds(merge("--epochs", 1, "--report"))
    result = merge("--epochs", 1)
    succeeds(result)
    told = "warning: removed from out/, as of an earlier result: report.html, report.npz.\n"
    assert told in result.stderr
    assert not {"report.html", "report.npz"} & set(snapshot())
