import json
import os
import platform
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.cluster.hierarchy as sch
import scipy.sparse
import sklearn
import torch

import unsplit as library
from tests.cli_cases import (
    LABELS,
    QUICK,
    X,
    merge,
    old_results,
    read_csv,
    read_json,
    snapshot,
    succeeds,
    unsplit,
    write_data,
)
from tests.merging_cases import partition_of, same_merges
from unsplit.cli import commands, options, program
from unsplit.cli.console import Console
from unsplit.cli.outputs import print_result
from unsplit.cli.overcluster import TAKES
from unsplit.data.readers.api import MISSING
from unsplit.merging.neighbours.graph import METRICS
from unsplit.merging.plan import LABELS_FROM
from unsplit.networks.registry import RECIPES
from unsplit.report.summary import _pair, of_merge

TABLES = ["distances.npz", "labels.csv", "linkage.npy", "merges.csv", "review.csv"]
FILES = [*TABLES, "tree.npz", "result.json", "manifest.json"]


SETTINGS = {"cv": 2, "training": library.TrainConfig(epochs=3), "device": "cpu"}

# Every test works in a folder of its own, with data.csv in it.
pytestmark = pytest.mark.usefixtures("folder_with_data")


@pytest.fixture(autouse=True, scope="module")
def few_remerges():
    """Merge again as often as users do."""


@pytest.fixture(autouse=True)
def standard_error(monkeypatch):
    """Put back what the program replaces when a test runs it in this process."""
    monkeypatch.setattr(sys, "stderr", sys.stderr)


@pytest.fixture(scope="module")
def expected():
    """What the library gives for data.csv."""
    return library.ClusterMerger(**SETTINGS, random_state=0).fit(X, initial_labels=LABELS)


# merge


def as_written(column):
    return ["" if value is None or value != value else str(value) for value in column]


def test_merge_writes_what_the_library_gives(expected):
    succeeds(merge())
    tree, labels = library.MergeTree.load("out/tree.npz"), read_csv("out/labels.csv")
    assert same_merges(tree, expected.tree_)
    names, refined = expected.tree_.names, labels.pop("refined")
    assert labels == {
        "id": [f"r{i}" for i in range(len(LABELS))],
        "old": [str(label) for label in LABELS],
        "new": [names[number] for number in expected.tree_.labels(LABELS)],
    }
    assert partition_of(refined) == partition_of(expected.refined_labels_.tolist())
    # A refined cluster is called after the merged one of most of its observations.
    assert np.mean(np.array(refined) == labels["new"]) > 0.9
    np.testing.assert_array_equal(np.load("out/linkage.npy"), expected.tree_.linkage)
    assert sch.is_valid_linkage(np.load("out/linkage.npy"))
    distances = library.PairwiseTVD.load("out/distances.npz")
    np.testing.assert_array_equal(distances.tvd, expected.pairwise_.tvd)
    for name, table in {
        "merges": expected.tree_.table(),
        "review": expected.tree_.review_table(),
    }.items():
        assert read_csv(f"out/{name}.csv") == {key: as_written(c) for key, c in table.items()}


def test_result_has_all_that_is_needed_to_judge_and_to_repeat(expected):
    succeeds(merge("--must-link", "0,1", "--n-clusters", "2-"))
    result = read_json("out/result.json")
    assert result["data"] == "data.csv"
    assert result["labels"] == "cluster"
    assert result["seed"] == 0
    assert result["device"] == "cpu"
    assert result["versions"] == {
        "unsplit": library.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
    }
    settings = dict(result["settings"])
    training = library.TrainConfig(**settings.pop("training"))
    again = library.ClusterMerger(**settings, training=training).get_params()
    assert again["training"] == library.TrainConfig(epochs=3)
    assert (again["cv"], again["device"]) == (2, "cpu")
    assert result["typed"].startswith("merge data.csv --labels cluster --out out --seed 0")
    counts = {"n_observations": 160, "n_features": 2, "n_initial": 4, "n_noise": 0, "n_clusters": 2}
    assert result.items() >= counts.items()
    together = {"0": "0 + 1", "1": "0 + 1", "2": "2 + 3", "3": "2 + 3"}
    assert result["mapping"] == together
    assert result["mean_accuracy"] == expected.pairwise_.mean_accuracy
    assert result["stopped"] == library.MergeTree.load("out/tree.npz").stopped
    tvd = [float(value) for value in read_csv("out/merges.csv")["tvd"]]
    assert [result["last_merge_tvd"], result["first_refused_tvd"]] == tvd[1:]
    assert result["n_unclear"] == read_csv("out/review.csv")["verdict"].count("unclear")
    phases = ["reading", "training", "finding neighbours", "merging", "writing"]
    assert list(result["seconds"]) == phases
    assert result["seconds"]["training"] > 0
    assert result["warnings"] == []
    assert result["files"] == FILES
    assert set(snapshot()) == set(FILES)


def test_closing_words_say_what_happened_and_where_it_is():
    lines = succeeds(merge("--n-clusters", 2)).splitlines()
    assert lines == [
        "Merged 4 clusters into 2, as requested.",
        "  Without a requested number, 20 re-merges of resampled data leave 2 clusters.",
        "  The evidence is clear for all 3 pairs in review.csv.",
        "",
        "Used 2 features: 'x', 'y'.",
        "",
        f"Files in out/: labels.csv, review.csv, distances.npz, linkage.npy and "
        f"{len(FILES) - 4} more.",
    ]


def test_closing_words_say_that_neighbours_decided_about_a_partition():
    labels = np.where(X[:, 0] < 4.5, 0, 2) + (X[:, 1] > 0)  # each Gaussian cut in two
    write_data(labels=labels)
    result = merge()
    lines = succeeds(result).splitlines()
    assert lines[0] == "Merged 4 clusters into 2."
    assert lines[1] == f"  Merging stopped because {read_json('out/result.json')['stopped']}."
    assert lines[2] == "  20 re-merges of resampled data leave 2 clusters."
    assert "cut out of the features" in lines[4]
    assert "how closely neighbouring observations connect them" in lines[4]
    assert result.stderr == ""  # the usual case is not worth a warning


def test_closing_words_name_the_first_unclear_pair():
    labels = LABELS.copy()
    labels[labels == 3] = np.arange(40) // 3 + 3  # clusters of three
    write_data(labels=labels)
    lines = succeeds(merge("--alpha", 0.05)).splitlines()
    review = read_csv("out/review.csv")
    n_unclear = review["verdict"].count("unclear")
    assert review["verdict"][:n_unclear] == ["unclear"] * n_unclear
    n_pairs = len(review["verdict"])
    assert n_unclear >= 3
    said = next(line for line in lines if "review.csv" in line)
    assert said.startswith(f"  {n_unclear} of {n_pairs} pairs are unclear and come first")
    assert said.endswith(f"({review['done'][0]}).")
    one = library.merge(np.array([[0, 0.4], [0.4, 0]]), n_clusters=1)
    assert "1 of 1 pair is unclear and comes first" in of_merge(one, 0)[-1]


def test_closing_words_where_all_or_nothing_was_merged():
    D = np.array([[0, 0.4], [0.4, 0]])
    apart, one = library.merge(D, max_tvd=0.3), library.merge(D, n_clusters=1)
    result, stopped, unclear = of_merge(apart, 0)
    assert result == "Merged nothing: all 2 clusters stayed apart."
    assert apart.stopped in stopped
    assert unclear.endswith("look at 0 and 1 (kept apart).")
    result, unclear, noise = of_merge(one, 1, requested=True)
    assert result == "Merged 2 clusters into 1, as requested."
    assert noise.startswith("  1 observation ")
    assert "noise" in noise
    assert unclear.endswith("look at 0 and 1 (merged).")


def test_large_clusters_are_shortened():
    D = np.ones((6, 6)) - np.eye(6)
    tree = library.merge(D, n_clusters=1)
    assert "(0 + 1 + 2 + 2 more) and 5" in _pair(tree, tree.merges[-1])


def test_a_terminal_gets_a_bold_answer_and_no_line_that_is_too_long(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    write_data()
    merge()
    words = "  every pair differs --labels-from elsewhere and other-words-with-hyphens here."
    print_result(Path("out/result.json"), ["Merged 4.", words], Console(progress=False))
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "\x1b[1mMerged 4.\x1b[0m"
    assert all(len(line) <= 40 for line in rest)
    said = rest[: rest.index("")]
    assert " ".join(line.strip() for line in said) == words.strip()
    assert all(line.startswith("  ") for line in said)
    assert "--labels-from" in " ".join(said).split()


def test_json_is_the_file_and_nothing_else():
    result = merge("--json")
    assert succeeds(result) == Path("out/result.json").read_text(encoding="utf-8")
    assert json.loads(result.stdout)["n_clusters"] == 2
    assert json.loads(result.stderr.splitlines()[0])["event"] == "plan"
    assert merge("--json", "--no-progress").stderr == ""


def test_nothing_but_results_is_printed_when_nobody_looks_on():
    result = merge()
    assert "out/:" in succeeds(result)
    assert result.stderr == ""


def test_the_drawn_seed_is_recorded_and_repeats_the_run():
    where = ("data.csv", "--labels", "cluster", *QUICK)
    succeeds(unsplit("merge", *where, "--out", "first"))
    succeeds(unsplit("merge", *where, "--out", "other"))
    seed = read_json("first/result.json")["seed"]
    assert seed != read_json("other/result.json")["seed"]
    succeeds(merge(out="again", seed=seed))
    first, again = snapshot("first"), snapshot("again")
    for name in ("merges.csv", "review.csv", "labels.csv", "linkage.npy", "tree.npz"):
        assert first[name] == again[name]
    assert first["merges.csv"] != snapshot("other")["merges.csv"]


def test_noise_is_written_as_given_and_stays_noise():
    labels = ["a", "a", "b", "b"]
    labels = np.repeat(labels, 40).astype(object)
    labels[[0, 50]] = ["", "-1"]
    write_data(labels=labels)
    out = succeeds(merge("--n-clusters", 2))
    written = read_csv("out/labels.csv")
    assert [written["old"][i] for i in (0, 50, 1)] == ["", "-1", "a"]
    assert [written["new"][i] for i in (0, 50, 1)] == ["-1", "-1", "a"]
    assert read_json("out/result.json")["n_noise"] == 2
    assert out.startswith("Merged nothing: all 2 clusters stayed apart, as requested.\n")
    assert "2 observations labelled as noise" in out


def test_links_bounds_and_rules_reach_the_library():
    succeeds(merge("--must-link", "0,2", "--cannot-link", "0, 1", "--n-clusters", "-2"))
    mapping = read_json("out/result.json")["mapping"]
    assert mapping["0"] == mapping["2"] != mapping["1"]
    succeeds(merge("--max-tvd", 0))
    assert read_json("out/result.json")["settings"]["max_tvd"] == 0
    succeeds(merge("--alpha", 1))
    assert library.MergeTree.load("out/tree.npz").strategy == "average linkage"
    assert read_json("out/result.json")["n_clusters"] == 4
    succeeds(merge("--n-clusters", 2))
    assert read_json("out/result.json")["n_clusters"] == 2


@pytest.mark.parametrize("kind", ["npy", "npz", "sparse.npz", "tsv", "parquet"])
def test_every_kind_of_file_gives_the_same(kind, expected):
    name = f"cells.{kind}"
    np.savetxt("labels.txt", LABELS, fmt="%d")
    if kind == "npy":
        np.save(name, X)
    elif kind == "npz":
        np.savez(name, X=X)
    elif kind == "sparse.npz":
        scipy.sparse.save_npz(name, scipy.sparse.csr_array(X))
    else:
        import pandas as pd

        frame = pd.DataFrame(X, columns=["x", "y"])
        frame.to_parquet(name) if kind == "parquet" else frame.to_csv(name, sep="\t", index=False)
    succeeds(merge(data=name, labels="labels.txt"))
    tree = expected.tree_
    mapping = {str(old): tree.names[new] for old, new in tree.mapping.items()}
    assert read_json("out/result.json")["mapping"] == mapping
    assert read_csv("out/labels.csv")["id"] == [str(i) for i in range(160)]


def test_warnings_are_one_line_each_and_recorded():
    labels = LABELS.copy()
    labels[0] = 7  # a cluster of one, which the estimate warns of
    write_data(labels=labels)
    result = merge("--json")
    assert succeeds(result) == Path("out/result.json").read_text(encoding="utf-8")
    events = [json.loads(line) for line in result.stderr.splitlines()]
    (sentence,) = (event["message"] for event in events if event["event"] == "warning")
    assert "1 of 5 clusters have one observation (7)" in sentence
    assert read_json("out/result.json")["warnings"] == [sentence]


def test_a_rule_that_cannot_work_on_a_partition_is_warned_of_once():
    write_data(labels=LABELS // 2)
    assert merge().stderr == ""  # auto knows what to do
    result = merge("--alpha", 0.05)
    succeeds(result)
    assert result.stderr.startswith("warning: ")
    assert "alpha" in result.stderr
    assert result.stderr.count("\n") == 1


def test_other_files_stay_and_old_results_are_replaced():
    old = old_results()
    succeeds(merge())
    new = snapshot()
    assert set(new) == {*FILES, "notes.txt"}
    assert new["notes.txt"] == old["notes.txt"]
    assert all(new[name] != old.get(name) for name in FILES)


def test_figures_are_drawn_when_asked_for():
    succeeds(merge("--also", "figures"))
    drawn = {"dendrogram.png", "distances.png", "merge_curve.png"}
    assert set(snapshot()) == {*FILES, *drawn}
    assert set(read_json("out/result.json")["files"]) == {*FILES, *drawn}
    assert all(snapshot()[name].startswith(b"\x89PNG") for name in drawn)


# The program


def test_version_and_help():
    assert succeeds(unsplit("--version")) == f"unsplit {library.__version__}\n"
    for arguments in ((), ("--help",)):
        text = succeeds(unsplit(*arguments))
        for command in ("demo", "distances", "merge", "overcluster"):
            assert f"\n  {command} " in text
            assert f"    unsplit {command}" in text
            told = succeeds(unsplit(command, "--help"))
            assert f"    unsplit {command} " in told
            assert "\\b" not in told


def test_options_are_listed_in_groups_and_are_not_too_many():
    text = succeeds(unsplit("merge", "--help"))
    headings = ["Data", "When to stop", "Your knowledge", "Network", "Output", "Help"]
    places = [text.index(f"\n{heading}:\n") for heading in headings]
    assert places == sorted(places)
    typed = [line for line in text[places[0] :].splitlines() if line.startswith("  --")]
    assert len(typed) - 1 <= 28  # all but --help


def test_loading_is_shown_until_the_command_is_loaded(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "argv", ["unsplit", "verify", "merged"])
    monkeypatch.setattr(os, "isatty", lambda _: True)
    monkeypatch.setattr(os, "write", lambda _, text: seen.append(text.strip()))
    load = import_module
    monkeypatch.setattr(program, "import_module", lambda name: seen.append(name) or load(name))
    monkeypatch.setattr(program.Program, "main", lambda *_, **__: seen.append("main"))
    runpy.run_module("unsplit", run_name="__main__")
    assert seen == [b"loading ...", "unsplit.cli.commands", "unsplit.cli.saved", b"", "main"]


def test_help_and_typing_errors_wait_for_no_large_package():
    calls = [
        ["--help"],
        ["merge", "--help"],
        ["mrege"],
        ["merge", "cells.csv", "--lables", "leiden"],
        ["merge", "cells.csv", "--out", "out", "--backbone", "mpl"],
        ["overcluster", "cells.csv"],
        ["demo", "--seed", "one"],
        ["review", "--port", "x"],
    ]
    typed = f"""
import sys
from unsplit.cli import main
for words in {calls}:
    sys.stdout.flush()
    main.load(words)
    try:
        main(words)
    except SystemExit:
        print("refused", end=" ")
print()
print(sys.modules.keys() & set("torch scipy sklearn pandas matplotlib jinja2 h5py".split()))
"""
    done = subprocess.run([sys.executable, "-c", typed], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["refused " * 6, "set()"]
    assert done.stderr.count("unsplit: ") == 6


def test_what_can_be_typed_is_what_the_library_knows():
    assert ("auto", *RECIPES) == options.BACKBONES
    choices = {parameter.name: parameter.type for parameter in commands.merge.params}
    assert tuple(choices["metric"].choices) == METRICS
    assert tuple(choices["labels_from"].choices) == LABELS_FROM
    assert tuple(choices["missing"].choices) == MISSING
    methods = {parameter.name: parameter.type for parameter in commands.overcluster.params}
    assert list(methods["method"].choices) == list(TAKES)


def test_a_package_that_is_missing_is_one_sentence(monkeypatch, capfd):
    def missing(name):
        raise ModuleNotFoundError("No module named 'torch'")

    monkeypatch.setattr(sys, "argv", ["unsplit", "merge", "data.csv"])
    monkeypatch.setattr(program, "import_module", missing)
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module("unsplit", run_name="__main__")
    assert capfd.readouterr().err == "unsplit: No module named 'torch'\n"


@pytest.mark.parametrize("given", [{}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "ACTIVE"}])
def test_threads_do_not_spin_unless_the_user_says_so(monkeypatch, given):
    monkeypatch.setattr(sys, "argv", ["unsplit"])
    monkeypatch.setattr(program.Program, "main", lambda *_, **__: None)
    environment = dict(given)
    monkeypatch.setattr(os, "environ", environment)
    runpy.run_module("unsplit", run_name="__main__")
    assert environment == (given or {"GOMP_SPINCOUNT": "1000"})


def test_module_runs_as_a_program(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["somewhere/__main__.py", "--version"])
    runpy.run_module("unsplit", run_name="__main__")
    assert capsys.readouterr().out == f"unsplit {library.__version__}\n"


def test_whole_numbers_that_pandas_wrote_as_floats_have_one_name_in_all_files(folder):
    names = LABELS.astype(float)
    names[:2] = np.nan
    pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "cluster": names}).to_parquet("data.parquet")
    succeeds(merge(data="data.parquet"))
    old = read_csv("out/labels.csv")["old"]
    assert set(old) == {"", "0", "1", "2", "3"}
    assert old.count("") == 2
    succeeds(unsplit("report", "out"))


def test_a_users_file_of_the_same_name_is_kept_and_named_in_one_line(folder):
    write_data()
    Path("out").mkdir()
    Path("out", "merges.csv").write_text("my notes")
    result = merge()
    succeeds(result)
    assert "they are kept: merges.csv is now merges.kept-1.csv." in result.stderr
    assert result.stderr.count("KeptWarning") == 0
    assert Path("out", "merges.kept-1.csv").read_text() == "my notes"
    succeeds(unsplit("report", "out"))
    Path("out", "report.html").write_text("with a note of mine")
    again = unsplit("report", "out")
    succeeds(again)
    assert again.stderr.startswith("warning: out/ had files with the names of new results ")
    assert Path("out", "report.kept-1.html").read_text() == "with a note of mine"
