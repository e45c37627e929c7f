import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.checks import about
from tests.cli_cases import LABELS, X, merge, old_results, snapshot, unsplit, write_data

# Every test works in a folder of its own, with data.csv in it.
pytestmark = pytest.mark.usefixtures("folder_with_data")


@pytest.fixture
def refuses():
    """Checks for one sentence, exit code 2, and older results as they were."""
    before = old_results()

    def check(result, sentence):
        assert re.match(about(f"unsplit: {sentence}"), result.stderr.removesuffix("\n"))
        assert result.stdout == ""
        assert result.exit_code == 2
        assert isinstance(result.exception, SystemExit)
        assert snapshot() == before
        assert sorted(path.name for path in Path("out").iterdir()) == sorted(before)

    return check


# Files


def test_missing_file(refuses):
    sentence = "there is no file cells.csv; check its name and folder."
    refuses(merge(data="cells.csv"), sentence)
    refuses(unsplit("distances", "cells.csv", "--labels", "a", "--out", "out"), sentence)
    refuses(unsplit("overcluster", "cells.csv", "--out", "c.csv", "--method", "k-means"), sentence)
    assert not Path("c.csv").exists()


def test_unknown_column(refuses):
    refuses(
        merge(labels="leiden"),
        "there is no column 'leiden' in data.csv (its columns: 'id', 'x', 'y', 'cluster') and no "
        "file of that name; …",
    )


def test_labels_of_another_length(refuses):
    Path("labels.txt").write_text("1\n2\n", encoding="utf-8")
    refuses(
        merge(labels="labels.txt"),
        "labels.txt has 2 labels but data.csv has 160 rows; give one label per row.",
    )


def test_unreadable_files(refuses):
    Path("cells.npy").mkdir()
    refuses(
        merge(data="cells.npy"),
        "cells.npy has no files of a supported type (images: … sounds: … point clouds: …); put the "
        "files of each cluster into a subfolder …",
    )
    Path("table.csv").write_bytes(b"x,y,cluster\n\xff\xfe,2,3\0\n")
    refuses(merge(data="table.csv"), "table.csv is not text in UTF-8; save it again as UTF-8.")
    Path("cells.xls").write_bytes(b"PK")
    refuses(
        merge(data="cells.xls"),
        "cells.xls has an unsupported file type; supported are … .csv …",
    )


def test_truncated_files(refuses):
    np.save("cells.npy", X)
    content = Path("cells.npy").read_bytes()
    Path("cells.npy").write_bytes(content[: len(content) // 2])
    np.savetxt("labels.txt", LABELS, fmt="%d")
    result = merge(data="cells.npy", labels="labels.txt")
    refuses(result, result.stderr.removeprefix("unsplit: ").rstrip("\n"))
    assert result.stderr.startswith("unsplit: cells.npy cannot be read (")
    assert result.stderr.endswith("); it may be damaged or cut short, so write it again.\n")
    Path("cells.npy").write_bytes(b"")
    refuses(merge(data="cells.npy"), "cells.npy is empty; write it again.")


def test_text_among_the_features(refuses):
    Path("data.csv").write_text("x,depth,cluster\n1,2,0\n2,3,1\n3,?,1\n", encoding="utf-8")
    refuses(
        merge(),
        "column 'depth' of data.csv holds numbers, but also '?' (row 3); correct such values, or "
        "leave the column out with --drop depth.",
    )


def test_missing_values(refuses):
    Path("data.csv").write_text("x,y,cluster\n1,,0\n2,3,1\n", encoding="utf-8")
    refuses(
        merge(),
        "data.csv has missing or infinite values (1 in column 'y'); remove those rows or fill in "
        "the values first, or use --missing drop or --missing median.",
    )


def test_one_cluster_or_none(refuses):
    write_data(labels=LABELS * 0)
    refuses(
        merge(),
        "labels hold only one cluster (0), so there is no pair to compare; pass labels with at "
        "least two clusters.",
    )
    write_data(labels=LABELS * 0 - 1)
    refuses(
        merge(),
        "every label is noise (-1 or missing), so there is nothing to compare; pass labels with "
        "at least two clusters.",
    )


@pytest.mark.parametrize("command", ["merge", "distances", "demo"])
def test_folder_that_cannot_be_written(command, refuses):
    Path("file").write_text("a file", encoding="utf-8")
    where = ("data.csv", "--labels", "cluster") if command != "demo" else ()
    result = unsplit(command, *where, "--out", "file/out")
    refuses(
        result,
        "cannot write to file/out/: there is a file where a folder should be; choose another "
        "--out.",
    )
    assert Path("file").read_text(encoding="utf-8") == "a file"


def test_file_that_cannot_be_written(refuses):
    refuses(
        unsplit("overcluster", "data.csv", "--out", "out", "--method", "k-means"),
        "cannot write to out: it is not a regular file; choose another name.",
    )


def test_folder_is_tried_before_anything_is_read(refuses):
    Path("file").write_text("a file", encoding="utf-8")
    refuses(
        merge(data="missing.csv", out="file"),
        "cannot write to file/: there is a file where a folder should be; choose another --out.",
    )


def test_full_disk(refuses, monkeypatch):
    def full(path, *_):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("unsplit.cli.outputs.write_csv", full)
    result = merge()
    refuses(result, "…/labels.csv: no space left on device")


def test_missing_packages(refuses, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refuses(
        merge("--also", "figures"), "--also figures needs matplotlib: pip install unsplit[figures]"
    )
    monkeypatch.setitem(sys.modules, "pandas", None)
    refuses(merge(), "reading tables needs pandas: pip install unsplit[tables]")


def test_what_is_read_is_not_overwritten():
    Path("out").mkdir()
    Path("out/labels.csv").write_text(Path("data.csv").read_text(encoding="utf-8"), "utf-8")
    before = snapshot()
    commands = [
        ("merge", "data.csv", "--labels", "out/labels.csv", "--out", "out"),
        ("merge", "data.csv", "--labels", "out/../out/labels.csv", "--out", "./out"),
        ("merge", "out/labels.csv", "--labels", "cluster", "--out", "out"),
        ("overcluster", "data.csv", "--out", "data.csv", "--method", "k-means"),
    ]
    for command in commands:
        result = unsplit(*command)
        assert result.exit_code == 2
        assert result.stderr.endswith(" would be replaced by the results; choose another --out.\n")
    assert snapshot() == before
    Path("out/pairs.csv").write_text(Path("data.csv").read_text(encoding="utf-8"), "utf-8")
    result = unsplit("distances", "out/pairs.csv", "--labels", "cluster", "--out", "out")
    assert result.stderr.startswith("unsplit: out/pairs.csv ")
    assert result.stderr.endswith(" would be replaced by the results; choose another --out.\n")


# Options that contradict each other; nothing is trained


@pytest.fixture
def no_training(monkeypatch):
    def train(*_):
        raise AssertionError("trained although the options are invalid")

    monkeypatch.setattr("unsplit.estimator.fit", train)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            "--must-link 0,1 --cannot-link 1,0",
            "1 and 0 are to be kept apart (--cannot-link, or an answer), but --must-link or other "
            "answers join them; drop one of these links.",
        ),
        (
            "--n-clusters 5",
            "--n-clusters must be a whole number from 1 to 4, the number of initial clusters, or a "
            "pair (fewest, most), got 5.",
        ),
        (
            "--must-link 0,x",
            "--must-link names 'x', which is not a cluster; the clusters are 0, 1, 2, 3.",
        ),
        (
            "--n-clusters 2 --max-tvd 0.5",
            "--n-clusters and --max-tvd are two stopping rules; choose one.",
        ),
        (
            "--alpha 0 --n-clusters 2",
            "--n-clusters and --alpha are two stopping rules; choose one.",
        ),
        (
            "--must-link 3",
            "Invalid value for '--must-link': must name at least two clusters with a comma between "
            "them, such as A,B, got '3'.",
        ),
        ("--select", "--select is gone; type --backbone select."),
        ("--use-raw", "--use-raw is gone; type --use-rep raw."),
        (
            "--n-clusters some",
            "Invalid value for '--n-clusters': must be a number, or a range such as 8-20, got "
            "'some'.",
        ),
        (
            "--also all",
            "Invalid value for '--also': 'all' is not one of 'figures', 'h5ad', 'scores'.",
        ),
        (
            "--drop\0a\nb",
            "Invalid value for '--drop': must be names with commas between them, such as a,b, got "
            "'a\\nb'.",
        ),
        ("--max-tvd 2", "Invalid value for '--max-tvd': 2.0 is not in the range 0<=x<=1."),
        ("--epochs 0", "Invalid value for '--epochs': 0 is not in the range x>=1."),
    ],
)
def test_options_that_contradict_each_other(arguments, sentence, refuses, no_training):
    typed = arguments.split("\0") if "\0" in arguments else arguments.split()
    refuses(merge(*typed), sentence)


def test_unusable_device(refuses):
    result = merge("--device", "abacus")
    assert result.stderr.startswith("unsplit: --device abacus cannot be used here (")
    refuses(result, result.stderr.removeprefix("unsplit: ").rstrip("\n"))


def test_what_is_missing_is_named(refuses):
    refuses(
        unsplit("merge", "data.csv", "--out", "out"),
        "data.csv needs clusters to merge; name a column of it, or another file, with --labels, or "
        "make clusters with `unsplit overcluster`.",
    )
    refuses(unsplit("merge"), "Missing argument 'DATA'.")
    # The rest of the sentence is up to the version of click.
    result = unsplit("--quiet")
    assert result.stderr.startswith("unsplit: No such option")
    refuses(result, result.stderr.removeprefix("unsplit: ").rstrip("\n"))


def test_a_command_that_does_not_exist_is_refused(refuses):
    # The rest of the sentence, with the command that was meant, is up to the version of click.
    result = unsplit("mrge", "data.csv")
    assert result.stderr.startswith("unsplit: No such command 'mrge'")
    refuses(result, result.stderr.removeprefix("unsplit: ").rstrip("\n"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("greedy --size 3", "--method greedy needs --n-clusters."),
        ("greedy --size 3 --n-clusters 2 --seed 1", "--method greedy does not take --seed."),
        ("k-means --size 3", "--method k-means does not take --size."),
        (
            "k-means --n-clusters 161",
            "--n-clusters must be at most 160, the number of rows, got 161; choose a smaller "
            "number.",
        ),
        (
            "greedy --size 90 --n-clusters 2",
            "--n-clusters 2 clusters of --size 90 need 180 observations, but R has 160; pass at "
            "most --n-clusters 1 or a smaller size.",
        ),
    ],
)
def test_over_clusterings_that_cannot_be_made(arguments, sentence, refuses):
    Path("c.csv").write_text("older", encoding="utf-8")
    refuses(
        unsplit("overcluster", "data.csv", "--out", "c.csv", "--method", *arguments.split()),
        sentence,
    )
    assert Path("c.csv").read_text(encoding="utf-8") == "older"


def test_a_mistake_of_ours_is_not_hidden(monkeypatch):
    monkeypatch.setattr("unsplit.estimator.fit", lambda *_, **__: 1 / 0)
    assert isinstance(merge().exception, ZeroDivisionError)
    assert not Path("out").exists()
