import shlex
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

import unsplit as library
from tests.cli_cases import read_csv, read_json, snapshot, succeeds, unsplit
from unsplit.cli.demo import overclustered_digits, scores

SAME = ("labels.csv", "merges.csv", "review.csv", "linkage.npy", "tree.npz")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo with two epochs instead of a hundred, in a folder of its own."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        quick = {"cv": 2, "training": library.TrainConfig(epochs=2), "device": "cpu"}
        patch.setattr("unsplit.cli.demo.ClusterMerger", partial(library.ClusterMerger, **quick))
        patch.setattr("unsplit.report.collect.FEWEST_FOR_NEIGHBOURS", 10**6)  # PCA is quick
        return folder, unsplit("demo", "--report")


def test_demo_leaves_what_merge_would_leave(demo):
    folder, result = demo
    out = succeeds(result)
    files = snapshot(folder / "demo-output")
    figures = ("dendrogram.png", "distances.png", "merge_curve.png")
    others = {"digits.csv", "distances.npz", "result.json", "manifest.json"}
    others |= {"report.html", "report.npz"}
    assert set(files) == {*SAME, *figures, *others}
    about = read_json(folder / "demo-output" / "result.json")
    assert about["n_initial"] == 40
    assert about["seed"] == 0
    assert f"Merged 40 clusters into {about['n_clusters']}." in out
    assert f"because {about['stopped']}." in out
    assert "Open demo-output/report.html in a browser." in out
    page = files["report.html"].decode("utf-8")
    assert f'<h1 id="headline">40 clusters merge into {about["n_clusters"]}</h1>' in page
    assert '"kind":"images"' in page  # the digits are drawn


def test_the_command_it_prints_gives_the_same(demo, monkeypatch):
    folder, result = demo
    monkeypatch.chdir(folder)
    command = shlex.split(result.stdout.splitlines()[-1])
    assert command[:3] == ["unsplit", "merge", "demo-output/digits.csv"]
    succeeds(unsplit(*command[1:], "--epochs", 2, "--cv", 2, "--device", "cpu"))
    again, first = snapshot("merged"), snapshot("demo-output")
    for name in SAME:
        assert again[name] == first[name]


def test_the_file_holds_pixels_and_cluster_and_no_digit(demo):
    columns = read_csv(demo[0] / "demo-output" / "digits.csv")
    *pixels, last = columns
    assert pixels == [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    assert last == "cluster"
    X = np.array([columns[name] for name in pixels], float).T
    np.testing.assert_array_equal(X, load_digits().data)
    digits, _ = overclustered_digits()
    assert columns["cluster"] == [str(label) for label in digits.labels]


def test_the_table_holds_the_scores(demo):
    folder, result = demo
    digits, truth = overclustered_digits()
    tree = library.MergeTree.load(folder / "demo-output" / "tree.npz")
    graph = library.neighbour_graph(digits.X.astype(np.float32), digits.labels)
    found = scores(digits, tree, graph, truth)
    lines = result.stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if "adjusted Rand index" in line)
    shown = [line.split() for line in lines[start + 1 : start + 1 + len(found)]]
    assert [row[-2:] for row in shown] == [
        [str(n_clusters), f"{index:.2f}"] for _, n_clusters, index in found
    ]
    initial = digits.labels
    merged, ten = tree.labels(initial), tree.cut(n_clusters=10).labels(initial)
    refined = (library.refine(labels, graph) for labels in (merged, ten))
    expected = [initial, merged, next(refined), ten, next(refined)]
    for (_, _, index), labels in zip(found, expected, strict=False):
        assert index == adjusted_rand_score(truth, labels)
    n = tree.n_clusters
    assert [n_clusters for _, n_clusters, _ in found] == [40, n, n, 10, 10, 10, 10]


def test_without_matplotlib_there_are_no_figures(tmp_path, monkeypatch):
    asked = []

    def stop(*given):
        asked.append(given[-1])
        raise KeyboardInterrupt

    monkeypatch.setattr("unsplit.cli.demo.merge_into", stop)
    for spec in (None, "a spec"):
        monkeypatch.setattr("unsplit.cli.demo.find_spec", lambda name, found=spec: found)
        result = unsplit("demo", "--out", tmp_path / "out")
        assert result.exit_code == 130
        assert result.stderr.startswith("unsplit: interrupted while reading; nothing of this run ")
    assert asked == [[], ["figures"]]
    assert not Path(tmp_path / "out").exists()


def test_another_seed_cuts_otherwise():
    first, other = overclustered_digits(0)[0], overclustered_digits(1)[0]
    assert len(np.unique(other.labels)) == 40
    assert adjusted_rand_score(first.labels, other.labels) < 0.99
