"""Small data and helpers for tests of the command line."""

import csv
import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from unsplit import datasets
from unsplit.cli import main
from unsplit.data.saving import output_folder

# Two pairs of clusters that are one each.  Settings that are quick, not good.
X, LABELS = datasets.gaussians([[0, 0], [0, 0], [9, 0], [9, 0]], 40, random_state=0)
QUICK = ("--epochs", "3", "--cv", "2", "--device", "cpu")


def unsplit(*typed):
    """Run a command in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in typed], prog_name="unsplit")


def arguments(*options, data="data.csv", labels="cluster", out="out", seed=0):
    """What is typed after ``unsplit`` for a quick merge."""
    where = ("--labels", labels, "--out", out, "--seed", seed)
    return ["merge", data, *where, *QUICK, *options]


def merge(*options, **where):
    return unsplit(*arguments(*options, **where))


def succeeds(result):
    """The standard output of a command that went well."""
    assert result.exception is None, result.stderr
    assert result.exit_code == 0
    return result.stdout


def write_data(path="data.csv", labels=LABELS):
    """Rows named r0, r1, … with two features and their cluster."""
    rows = [[f"r{i}", *x, label] for i, (x, label) in enumerate(zip(X, labels, strict=True))]
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "x", "y", "cluster"], *rows])


def read_csv(path):
    """A table as a dict of columns of strings."""
    with open(path, newline="", encoding="utf-8") as file:
        names, *rows = csv.reader(file)
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def snapshot(folder="out"):
    """Every file below a folder with its bytes; hidden leftovers too."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def old_results(folder="out"):
    """Results of an earlier run that must survive whatever goes wrong."""
    with output_folder(folder) as new:
        for name in ("labels.csv", "result.json", "merges.csv"):
            (new / name).write_text(f"an older {name}\n", encoding="utf-8")
        np.save(new / "linkage.npy", np.arange(4))
    Path(folder, "notes.txt").write_text("the user's own\n", encoding="utf-8")
    return snapshot(folder)
