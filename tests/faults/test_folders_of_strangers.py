"""A result folder may come from anyone: no text and no number in it leads a command out of it."""

import csv
import itertools
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli_cases import merge, succeeds, unsplit, write_data
from tests.faults import many
from unsplit.cli import review
from unsplit.cli.outputs import ANSWERS
from unsplit.data.array_files import checksum
from unsplit.data.saving import MANIFEST, _entry
from unsplit.merging.saved_merges import ANSWERS as FORMAT_OF_ANSWERS
from unsplit.networks.training import checkpoint
from unsplit.networks.training.checkpoint import Checkpoint

VICTIM = "thesis.txt"
# In the place of every text and of every number.
HOSTILE = [
    lambda: str(Path(VICTIM).absolute()),
    lambda: f"../{VICTIM}",
    lambda: f"..\\{VICTIM}",
    lambda: "a\0b",
    lambda: "long" * 2_000,
    lambda: "'",
    lambda: "--constraints=/dev/zero",
    lambda: "\ud800",
    lambda: 10**400,
    lambda: -1,
    lambda: 2**63,
    lambda: 1e308,
    lambda: float("nan"),
    lambda: None,
    lambda: [[]],
    lambda: {"a": "b"},
]
# In the place of a number in an array, as far as its type can hold it.
NUMBERS = [-1, 2**62, 1e308, float("nan")]
SAYS_WHY = "unsplit: "
LABELLED = ("data.csv", "--labels", "cluster", "--out", "out")
QUICK = ("--epochs", "1", "--cv", "2", "--device", "cpu", "--seed", "0")


# --- what is replaced -----------------------------------------------------------------------------


def places_in(value, path=()):
    """Where in plain values there are texts and numbers; the names of entries too."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in entries:
        if isinstance(value, dict):
            yield (*path, key), True
        if isinstance(one, dict | list) and one:
            yield from places_in(one, (*path, key))
        else:
            yield (*path, key), False


def replaced(value, path, is_name, hostile):
    """A copy of plain values in which one text, number or name of an entry is another."""
    value = json.loads(json.dumps(value))
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    if is_name:
        inner[str(hostile)] = inner.pop(path[-1])
    else:
        inner[path[-1]] = hostile
    return value


def in_json(name):
    """Ways to replace one thing in a file of JSON."""

    def change(path, is_name, hostile):
        content = json.loads(Path(name).read_text())
        text = json.dumps(replaced(content, path, is_name, hostile()))
        Path(name).write_text(text)

    content = json.loads(Path(name).read_text())
    for (path, is_name), hostile in itertools.product(places_in(content), HOSTILE):
        yield lambda p=path, n=is_name, h=hostile: change(p, n, h)


def in_arrays(name, only_meta=False):
    """Ways to replace one thing in a file of arrays, which then has the right checksum again."""

    def write(arrays, meta):
        arrays["meta"] = np.array(json.dumps(meta | {"sha256": checksum(meta, arrays)}))
        np.savez(name, **arrays)

    def change_array(key, hostile):
        arrays, meta = loaded(name)
        array = arrays[key].copy()
        if array.dtype.kind == "U":
            array = array.astype(object)
            array[(0,) * array.ndim] = str(hostile()).replace("\ud800", "?")
            array = array.astype(str)
        else:
            with np.errstate(all="ignore"):
                array[(0,) * array.ndim] = np.array(hostile).astype(array.dtype)
        write(arrays | {key: array}, meta)

    def change_meta(path, is_name, hostile):
        arrays, meta = loaded(name)
        write(arrays, replaced(meta, path, is_name, hostile()))

    arrays, meta = loaded(name)
    for key, array in ({} if only_meta else arrays).items():
        for hostile in (HOSTILE if array.dtype.kind == "U" else NUMBERS) if array.size else ():
            yield lambda k=key, h=hostile: change_array(k, h)
    for (path, is_name), hostile in itertools.product(places_in(meta), HOSTILE):
        yield lambda p=path, n=is_name, h=hostile: change_meta(p, n, h)


def loaded(name):
    with np.load(name) as file:
        arrays = dict(file)
    return arrays, json.loads(str(arrays.pop("meta")))


def in_table(name):
    """Ways to replace one thing in the first two lines of a table."""

    def change(line, column, hostile):
        with open(name, newline="") as file:
            rows = list(csv.reader(file))
        rows[line][column] = str(hostile()).replace("\ud800", "?")
        with open(name, "w", newline="") as file:
            csv.writer(file).writerows(rows)

    n = len(Path(name).read_text().splitlines()[0].split(","))
    for line, column, hostile in itertools.product(range(2), range(n), HOSTILE):
        yield lambda i=line, j=column, h=hostile: change(i, j, h)


def as_link(name):
    """The file itself leads to the victim, or to a device without an end."""

    def change(target):
        Path(name).unlink()
        Path(name).symlink_to(target)

    for target in (f"../{VICTIM}", "/dev/zero", "."):
        yield lambda t=target: change(t)


def listed(change):
    """Do it, and let the manifest name the sizes and checksums that files now have."""

    def and_sign():
        change()
        content = json.loads(Path("out", MANIFEST).read_text())
        for name in content["files"]:
            if Path("out", name).resolve().is_file():
                content["files"][name] = _entry(Path("out", name))
        Path("out", MANIFEST).write_text(json.dumps(content))

    return and_sign


# --- what reads it --------------------------------------------------------------------------------

SAVED = {
    "result.json": in_json,
    "labels.csv": in_table,
    "tree.npz": in_arrays,
    "distances.npz": in_arrays,
    "distances.scores.npz": in_arrays,
    "report.npz": in_arrays,
}
# A command, and the ways to change a file that it reads; runs that train are fewer.
READS = {
    "report, manifest": (("report", "out"), lambda: in_json(f"out/{MANIFEST}"), 40),
    "verify, manifest": (("verify", "out"), lambda: in_json(f"out/{MANIFEST}"), 100),
    "verify, links": (
        ("verify", "out"),
        lambda: itertools.chain(*(map(listed, as_link(f"out/{name}")) for name in SAVED)),
        40,
    ),
    "report, links": (
        ("report", "out"),
        lambda: itertools.chain(*(map(listed, as_link(f"out/{name}")) for name in SAVED)),
        40,
    ),
    "merge, manifest": (("merge", *LABELLED, *QUICK), lambda: in_json(f"out/{MANIFEST}"), 6),
    "merge, links": (
        ("merge", *LABELLED, *QUICK),
        lambda: itertools.chain(*(as_link(f"out/{name}") for name in (*SAVED, MANIFEST))),
        2,
    ),
    "distances, manifest": (
        ("distances", *LABELLED, *QUICK),
        lambda: in_json(f"out/{MANIFEST}"),
        3,
    ),
    "merge, answers": (
        ("merge", *LABELLED[:-1], "new", "--constraints", f"out/{ANSWERS}", *QUICK),
        lambda: in_json(f"out/{ANSWERS}"),
        8,
    ),
    "merge, labels": (
        ("merge", "data.csv", "--labels", "out/labels.csv", "--out", "new", *QUICK),
        lambda: in_table("out/labels.csv"),
        20,
    ),
    "merge, checkpoint": (
        ("merge", *LABELLED, *QUICK),
        lambda: itertools.chain(
            in_arrays("out.checkpoint/training.npz"), as_link("out.checkpoint/training.npz")
        ),
        6,
    ),
    "merge without a seed, checkpoint": (
        ("merge", *LABELLED, *QUICK[:-2]),
        lambda: in_arrays("out.checkpoint/training.npz", only_meta=True),
        4,
    ),
    **{
        f"report, {name}": (
            ("report", "out"),
            lambda name=name, of=of: map(listed, of(f"out/{name}")),
            15,
        )
        for name, of in SAVED.items()
    },
    **{
        f"review, {name}": (
            ("review", "out"),
            lambda name=name, of=of: map(listed, of(f"out/{name}")),
            n_usual,
        )
        for name, of, n_usual in [
            ("result.json", in_json, 20),
            (ANSWERS, lambda name: itertools.chain(in_json(name), as_link(name)), 10),
            ("neighbours.npz", in_arrays, 10),
            ("distances.scores.npz", in_arrays, 5),
        ]
    },
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with data, a result, its checkpoint, and a file that nobody may touch."""
    folder = tmp_path_factory.mktemp("stranger")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_data()
        succeeds(merge("--report", "--also", "scores"))
        answer = {"answer": "same", "left": ["0"], "right": ["1"]}
        content = {"format": FORMAT_OF_ANSWERS, "answers": [answer]}
        Path("out", ANSWERS).write_text(json.dumps(content))
        patch.setattr(checkpoint, "EVERY", 0.0)
        patch.setattr(Checkpoint, "remove", lambda self: None)
        succeeds(unsplit("merge", *LABELLED[:-1], "other", *QUICK))
        os.rename("other.checkpoint", "out.checkpoint")
        shutil.rmtree("other")
        Path(VICTIM).write_text("ten years of work")
    return folder


def outside():
    """Every file outside of the result, with its content and when it was last written."""
    files = [Path(VICTIM), Path("data.csv")]
    return [(file.read_bytes(), file.stat().st_mtime_ns) for file in files], sorted(
        name for name in os.listdir() if name not in ("out", "new", "out.checkpoint")
    )


def anew(place):
    for name in ("out", "new", "out.checkpoint"):
        shutil.rmtree(name, ignore_errors=True)
    for name in ("out", "out.checkpoint"):
        shutil.copytree(place / name, name)


def try_some(place, case, times):
    """Try so many times as many changes of a case as usual, drawn at random."""
    command, ways, n_usual = READS[case]
    anew(place)
    changes = list(ways())
    for number in np.random.default_rng(0).permutation(len(changes))[: n_usual * times]:
        anew(place)
        changes[number]()
        before = outside()
        result = unsplit(*command)
        told = f"{case} {number}: {result.stderr}"
        assert result.exception is None or isinstance(result.exception, SystemExit), told
        assert result.exit_code in (0, 2), told
        assert "Traceback" not in told
        assert len(told) < 6_000, told
        if result.exit_code:
            sentences = [line for line in result.stderr.splitlines() if SAYS_WHY in line]
            assert len(sentences) == 1, told
        assert outside() == before, told


@pytest.fixture
def folder_of_a_victim(place, folder, monkeypatch):
    def end_at_once(server):
        raise KeyboardInterrupt

    monkeypatch.setattr(review.Server, "serve_forever", end_at_once)
    monkeypatch.setattr(review.signal, "signal", lambda *_: None)
    for name in ("data.csv", VICTIM):
        shutil.copy(place / name, name)


@pytest.mark.usefixtures("folder_of_a_victim")
@pytest.mark.parametrize("case", READS)
def test_nothing_in_a_folder_leads_out_of_it(case, place):
    try_some(place, case, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("folder_of_a_victim")
@pytest.mark.parametrize("case", READS)
def test_nothing_at_all_in_a_folder_leads_out_of_it(case, place):
    try_some(place, case, many(100))
