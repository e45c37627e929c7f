"""Tables that do not fit into memory: on disk, in several files, and within a limit."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import unsplit
from unsplit.cli.program import main
from unsplit.data.readers import tables
from unsplit.data.readers.tables import parquet_files
from unsplit.data.rows.base import is_mapped
from unsplit.errors import InputError

CENTRES = [[0, 0, 0], [0, 0, 0], [9, 0, 0]]


def table(n=40):
    X, labels = unsplit.datasets.gaussians(CENTRES, n, random_state=0)
    frame = pd.DataFrame(X.astype(np.float32), columns=["x", "y", "z"])
    return frame.assign(cluster=[f"c{label}" for label in labels])


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(tables, "available_memory", lambda: 100)


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_features_on_disk_are_the_same_and_leave_nothing_behind(ending, tmp_path, monkeypatch):
    path, cache = tmp_path / f"cells.{ending}", tmp_path / "cache"
    cache.mkdir()
    getattr(table(), f"to_{ending}")(path)
    inside = unsplit.read(path, "cluster")
    assert not is_mapped(inside.X)
    monkeypatch.setattr(tables, "available_memory", lambda: 100)
    monkeypatch.setattr(tables.tempfile, "tempdir", str(cache))
    outside = unsplit.read(path, "cluster")
    assert is_mapped(outside.X)
    assert os.listdir(cache) == []
    np.testing.assert_array_equal(outside.X, inside.X)
    assert outside.feature_names == inside.feature_names
    np.testing.assert_array_equal(outside.labels, inside.labels)


def test_time_stamps_are_kept_on_disk_in_double_precision(tmp_path, little_memory):
    frame = table().assign(t=1.7e9 + np.arange(120) / 8)
    frame.to_parquet(tmp_path / "t.parquet")
    found = unsplit.read(tmp_path / "t.parquet", "cluster").X
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found[:, 3], frame["t"])


def test_a_folder_of_files_is_one_table(tmp_path, little_memory):
    frame = table().sample(frac=1, random_state=0, ignore_index=True)
    folder = tmp_path / "parts"
    folder.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(len(frame)), 4)):
        frame.iloc[rows].reset_index(drop=True).to_parquet(folder / f"part-{i}.parquet")
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.parquet.crc").touch()
    frame.to_parquet(tmp_path / "one.parquet")
    one, many = (unsplit.read(tmp_path / name, "cluster") for name in ("one.parquet", "parts"))
    np.testing.assert_array_equal(many.X, one.X)
    np.testing.assert_array_equal(many.labels, one.labels)
    np.testing.assert_array_equal(many.row_ids, one.row_ids)
    assert [path.name for path in parquet_files(folder)] == [f"part-{i}.parquet" for i in range(4)]


def test_names_of_rows_are_read_from_all_files_of_a_folder(tmp_path):
    frame = table().set_index(pd.Index([f"cell {i}" for i in range(120)], name="name"))
    for i in range(2):
        frame.iloc[60 * i : 60 * i + 60].to_parquet(tmp_path / f"{i}.parquet")
    assert unsplit.read(tmp_path, "cluster").row_ids.tolist() == frame.index.tolist()


@pytest.mark.parametrize(
    "change", [lambda f: f.rename(columns={"z": "w"}), lambda f: f.astype({"z": np.int8})]
)
def test_files_of_a_folder_that_differ_are_refused(change, tmp_path):
    table().to_parquet(tmp_path / "a.parquet")
    change(table()).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b.parquet and a.parquet in .* differ in their columns"):
        unsplit.read(tmp_path, "cluster")


def test_a_broken_file_of_a_folder_is_named(tmp_path):
    table().to_parquet(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").touch()
    with pytest.raises(InputError, match=r"b.parquet is empty"):
        unsplit.read(tmp_path, "cluster")


def test_no_room_on_the_disk_is_said_with_numbers(tmp_path, little_memory, monkeypatch):
    table().to_parquet(tmp_path / "x.parquet")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "_reserve", full)
    with pytest.raises(InputError, match=r"takes 0.0 GiB, more than memory .* TMPDIR"):
        unsplit.read(tmp_path / "x.parquet", "cluster")


def test_the_command_keeps_a_table_on_disk_and_merges_it(tmp_path, little_memory, monkeypatch):
    table().to_parquet(tmp_path / "cells.parquet")
    cache, out = tmp_path / "cache", tmp_path / "out"
    options = ["--labels", "cluster", "--epochs", "3", "--seed", "0", "--n-clusters", "2"]
    given = ["merge", str(tmp_path / "cells.parquet"), "--out", str(out), *options]
    cache.mkdir()
    monkeypatch.setattr(tables.tempfile, "tempdir", str(cache))
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 0, done.output
    assert os.listdir(cache) == []
    assert len(pd.read_csv(out / "labels.csv")) == 120


# A process that may allocate only some memory; files that it maps do not count.
LIMITED = """
import resource, sys
import numpy as np
import pyarrow.parquet
import torch
import unsplit
from unsplit.merging.neighbours import graph
graph.MOST_CONNECTED, graph.SAMPLED = 20_000, 2_000
used = [line for line in open("/proc/self/status") if line.startswith("VmData:")]
limit = 1024 * int(used[0].split()[1]) + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
read = unsplit.read(sys.argv[1], "cluster")
try:
    np.ones(read.X.shape, np.float32)
except MemoryError:
    print("does not fit")
merger = unsplit.ClusterMerger(n_clusters=2, training=unsplit.TrainConfig(epochs=2), random_state=0)
print(merger.fit(read.X, initial_labels=read.labels).n_clusters_, read.X.nbytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_a_table_larger_than_the_memory_of_a_process_is_merged(tmp_path):
    folder, cache = tmp_path / "parts", tmp_path / "cache"
    folder.mkdir()
    cache.mkdir()
    rng = np.random.default_rng(0)
    clusters = rng.integers(6, size=(12, 45_000)).astype(np.int16)
    for i, labels in enumerate(clusters):
        X = rng.standard_normal((45_000, 250), np.float32)
        X[:, 0] += 5 * (labels // 3)
        names = [f"f{j}" for j in range(250)]
        frame = pd.DataFrame(X, columns=names).assign(cluster=labels)
        frame.to_parquet(folder / f"{i}.parquet", row_group_size=10_000, compression=None)
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, folder, str(600 * 2**20)],
        capture_output=True,
        text=True,
        # Arrow's own allocator reserves a gibibyte that it does not use.
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "TMPDIR": cache},
        check=False,
    )
    assert run.stdout.split("\n")[:2] == ["does not fit", f"2 {540_000 * 250 * 4}"], run.stderr
    assert list(cache.iterdir()) == []
