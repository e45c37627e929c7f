import builtins
import json
from pathlib import Path

import numpy as np
import pytest

import unsplit as library
from tests.cli_cases import LABELS, QUICK, X, read_csv, read_json, succeeds, unsplit
from unsplit.data.readers.observations import read_observations
from unsplit.report.summary import of_distances, of_overclustering

# Every test works in a folder of its own, with data.csv in it.
pytestmark = pytest.mark.usefixtures("folder_with_data")


# distances


def test_scores_are_kept_on_demand():
    where = ("data.csv", "--labels", "cluster", "--out", "out", "--seed", 3, *QUICK)
    for command in ("distances", "merge"):
        succeeds(unsplit(command, *where, "--also", "scores"))
        loaded = library.PairwiseTVD.load("out/distances.npz")
        assert library.merge(loaded, n_clusters=2).n_clusters == 2
        assert "distances.scores.npz" in read_json("out/manifest.json")["files"]
        # An earlier result is replaced as a whole.
        succeeds(unsplit(command, *where))
        assert not Path("out/distances.scores.npz").exists()


def test_distances_are_those_of_the_library():
    where = ("data.csv", "--labels", "cluster", "--out", "out", "--seed", 3, *QUICK)
    out = succeeds(unsplit("distances", *where))
    expected = library.pairwise_tvd(
        X, LABELS, cv=2, training=library.TrainConfig(epochs=3), device="cpu", random_state=3
    )
    pairs, frame = read_csv("out/pairs.csv"), expected.to_frame()
    assert list(pairs) == list(frame.columns)
    for name, values in pairs.items():
        assert values == [str(value) for value in frame[name]]
    loaded = library.PairwiseTVD.load("out/distances.npz")
    np.testing.assert_array_equal(loaded.hit_rate, expected.hit_rate)
    about = read_json("out/distances.json")
    assert about["seed"] == 3
    assert about["mean_accuracy"] == expected.mean_accuracy
    settings = {"backbone": "auto", "cv": 2, "training": {"epochs": 3}, "device": "cpu"}
    assert about["settings"] == settings
    assert about["files"] == ["distances.npz", "pairs.csv", "distances.json", "manifest.json"]
    lines = out.splitlines()
    assert lines[0] == "Compared 6 pairs of 4 clusters."
    assert f"mean accuracy of {expected.mean_accuracy:.3f}" in lines[1]
    first = frame.iloc[0]
    assert lines[4].split() == [
        f"{first.cluster_a}", "and", f"{first.cluster_b}", f"{first.tvd:.3f}",
        f"{first.low:.3f}", "to", f"{first.high:.3f}", f"{first.p_adjusted:.2g}",
    ]  # fmt: skip
    assert lines[-1] == "Files in out/: pairs.csv, distances.npz, distances.json, manifest.json."
    json_only = unsplit("distances", *where, "--json")
    assert succeeds(json_only) == Path("out/distances.json").read_text(encoding="utf-8")


def test_only_the_closest_pairs_are_printed_and_columns_align():
    points = np.random.default_rng(0).normal(size=(60, 2))
    names = np.repeat(["a", "a very long name of a cluster", "b", "c", "d", "e"], 10)
    lines = of_distances(
        library.pairwise_tvd(
            points, names, cv=2, training=library.TrainConfig(epochs=1), random_state=0
        )
    )
    assert len(lines) == 4 + 8
    assert "15 pairs of 6 clusters" in lines[0]
    assert len({line.index("   ", 2) for line in lines[3:] if "very" in line}) <= 1
    assert {line.rindex(" to ") for line in lines[4:]} == {lines[4].rindex(" to ")}


def test_the_table_needs_no_pandas(monkeypatch):
    np.savez("data.npz", X=X, labels=LABELS)
    plain_import = builtins.__import__

    def without_pandas(name, *more, **options):
        if name.split(".")[0] == "pandas":
            raise ImportError(name)
        return plain_import(name, *more, **options)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    succeeds(unsplit("distances", "data.npz", "--labels", "labels", "--out", "out", *QUICK))
    assert len(read_csv("out/pairs.csv")["tvd"]) == 6


# overcluster


def test_overcluster_by_k_means_makes_labels_that_merge_reads():
    out = succeeds(unsplit("overcluster", "data.csv", "--out", "c.csv", "--method", "k-means"))
    labels = read_csv("c.csv")
    assert labels["id"] == [f"r{i}" for i in range(160)]
    assert len(set(labels["label"])) == 13  # √160; the column of clusters counts as a feature
    assert out.startswith("Cut 160 observations into 13 clusters of ")
    assert out.splitlines()[-1] == "  unsplit merge data.csv --labels c.csv --out merged"
    read = read_observations("data.csv", "c.csv")
    assert [str(label) for label in read.labels] == labels["label"]


def test_overcluster_is_what_the_library_makes():
    from sklearn.cluster import KMeans

    np.savez("data.npz", X=X)
    where = ("overcluster", "data.npz", "--out", "c.csv", "--method")
    cases = {
        ("k-means", "--n-clusters", 6, "--seed", 5): library.overclustering.overcluster(
            X, KMeans(6), 5
        ),
        ("greedy", "--n-clusters", 3, "--size", 9): library.overclustering.greedy_dense(X, 3, 9),
    }
    for arguments, expected in cases.items():
        out = succeeds(unsplit(*where, *arguments))
        assert read_csv("c.csv")["label"] == [str(label) for label in expected]
        assert out.splitlines()[0] == of_overclustering(expected)
        assert ("in c.csv (seed 5)." if 5 in arguments else "in c.csv.") in out


def test_overcluster_speaks_json():
    arguments = ("--method", "greedy", "--n-clusters", 3, "--size", 9, "--json")
    out = succeeds(unsplit("overcluster", "data.csv", "--out", "c.csv", *arguments))
    assert json.loads(out) == {
        "command": "overcluster",
        "data": "data.csv",
        "settings": {"method": "greedy", "n_clusters": 3, "size": 9},
        "id": None,
        "features": ["x", "y", "cluster"],
        "left_out": [],
        "n_observations": 160,
        "n_clusters": 3,
        "n_noise": 133,
        "sizes": {"0": 9, "1": 9, "2": 9},
    }


def test_overcluster_needs_no_method_and_takes_short_options():
    succeeds(unsplit("overcluster", "data.csv", "--drop", "cluster", "-o", "c.csv", "--seed", 0))
    given = ("--method", "k-means", "--out", "d.csv", "--seed", 0)
    succeeds(unsplit("overcluster", "data.csv", "--drop", "cluster", *given))
    assert Path("c.csv").read_bytes() == Path("d.csv").read_bytes()
    by_size = ("--drop", "cluster", "--n-clusters", 3, "--size", 5, "-o", "e.csv", "--json")
    told = json.loads(succeeds(unsplit("overcluster", "data.csv", *by_size)))
    assert told["settings"]["method"] == "greedy"
    succeeds(unsplit("merge", "data.csv", "-l", "cluster", "-o", "out", *QUICK))
    assert read_json("out/result.json")["labels"] == "cluster"
