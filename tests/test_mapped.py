"""Matrices on disk give what they give in memory, and very many rows are sampled for the graph."""

import numpy as np
import pytest
import torch

import unsplit
from tests.any_data_cases import CPU, mapped
from unsplit.data.readers import observations as reading
from unsplit.data.rows.base import blocks_of, gathered, is_mapped
from unsplit.data.rows.kinds import VectorRows, numeric_matrix
from unsplit.errors import InputError
from unsplit.merging.neighbours import graph as graphs
from unsplit.merging.neighbours.graph import neighbour_graph

CENTRES = [[0, 0, 0], [0, 0, 0], [6, 0, 0], [6, 0, 0]]


def four_clusters(n=60, dtype=np.float32):
    X, labels = unsplit.datasets.gaussians(CENTRES, n, random_state=0)
    return X.astype(dtype), labels


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_on_disk_are_the_same_to_the_bit(dtype, tmp_path):
    X = 1000 + four_clusters(dtype=dtype)[0]
    inside = VectorRows(numeric_matrix(X), CPU)
    outside = VectorRows(numeric_matrix(mapped(X, tmp_path / "x.npy")), CPU)
    assert outside.on_device is None
    assert is_mapped(outside.values)
    np.testing.assert_array_equal(inside.keys, outside.keys)
    for index in (torch.tensor([4, 1, 4]), torch.tensor([[2, 4], [0, 6]]), torch.arange(len(X))):
        assert torch.equal(inside.take(index), outside.take(index))
    for one, other in zip(
        inside.moments(np.arange(90)), outside.moments(np.arange(90)), strict=True
    ):
        assert torch.equal(one, other)


def test_a_matrix_on_disk_is_merged_as_in_memory(tmp_path):
    X, labels = four_clusters()
    merger = unsplit.ClusterMerger(training=unsplit.TrainConfig(epochs=3), random_state=0)
    inside = merger.fit(X, initial_labels=labels)
    tvd, found = inside.tvd_, inside.refined_labels_
    outside = merger.fit(mapped(X, tmp_path / "x.npy"), initial_labels=labels)
    np.testing.assert_array_equal(outside.tvd_, tvd)
    np.testing.assert_array_equal(outside.refined_labels_, found)
    np.testing.assert_array_equal(outside.predict(X), inside.predict(X))


def test_large_matrices_are_mapped_when_they_are_read(tmp_path, monkeypatch):
    X, _ = four_clusters()
    np.save(tmp_path / "x.npy", X)
    assert not is_mapped(unsplit.read(tmp_path / "x.npy").X)
    monkeypatch.setattr(reading, "MAPPED_FROM", 100)
    found = unsplit.read(tmp_path / "x.npy").X
    assert is_mapped(found)
    np.testing.assert_array_equal(found, X)
    np.save(tmp_path / "x.npy", X.astype(np.int64))
    assert not is_mapped(unsplit.read(tmp_path / "x.npy").X)
    np.save(tmp_path / "objects.npy", X.astype(object), allow_pickle=True)
    with pytest.raises(InputError, match="holds Python objects"):
        unsplit.read(tmp_path / "objects.npy")


def test_gaps_in_a_matrix_on_disk_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr("unsplit.data.rows.base.BLOCK", 8)
    X, _ = four_clusters()
    X[[3, 100, 200], [0, 2, 2]] = np.nan
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(InputError, match="observation 3 of X has values that are NaN"):
        numeric_matrix(np.load(tmp_path / "x.npy", mmap_mode="r"))


def test_blocks_cover_all_rows_and_gathered_rows_are_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("unsplit.data.rows.base.BLOCK", 10)
    X = np.arange(60.0).reshape(20, 3)
    assert [len(block) for block in blocks_of(X)] == [3] * 6 + [2]
    index = np.random.default_rng(0).integers(20, size=50)
    np.testing.assert_array_equal(gathered(mapped(X, tmp_path / "x.npy"), index), X[index])


@pytest.fixture
def few(monkeypatch):
    """Only a hundred observations are connected, and at least five of a cluster."""
    for name, value in (("MOST_CONNECTED", 200), ("SAMPLED", 100), ("SAMPLED_A_CLUSTER", 5)):
        monkeypatch.setattr(graphs, name, value)


def test_few_observations_are_all_connected():
    X, labels = four_clusters()
    assert neighbour_graph(X, labels).sampled_from is None


def test_a_sample_has_the_same_share_of_every_cluster(few):
    clusters = np.repeat([0, 1, 2, 3], [600, 300, 80, 3])
    chosen, n = graphs.sample_of(clusters)
    assert n == 983
    # Not less than five, and all of a cluster of three.
    assert np.bincount(clusters[chosen]).tolist() == [62, 31, 9, 3]
    assert (np.diff(chosen) > 0).all()


def test_a_sample_of_very_many_clusters_is_bounded(few, monkeypatch):
    monkeypatch.setattr(graphs, "MOST_SAMPLED", 300)
    clusters = np.repeat(np.arange(150), 20)
    chosen, n = graphs.sample_of(clusters)
    assert n == 3000
    assert np.bincount(clusters[chosen]).tolist() == [2] * 150


def test_noise_is_sampled_only_where_it_is_connected(few):
    half = np.repeat([0, 1, -1], [150, 150, 100])
    chosen, n = graphs.sample_of(half)
    assert n == 300
    assert (half[chosen] >= 0).all()
    mostly = np.repeat([0, 1, -1], [50, 50, 300])
    chosen, n = graphs.sample_of(mostly)
    assert n == 400
    assert (mostly[chosen] < 0).sum() == 75


def test_neither_order_nor_names_change_the_sample(few):
    X, labels = four_clusters()
    order = np.random.default_rng(0).permutation(len(X))
    one = neighbour_graph(X, labels)
    other = neighbour_graph(X[order], labels[order])
    assert one.sampled_from == 240
    assert sorted(order[other.rows]) == sorted(one.rows)
    np.testing.assert_array_equal(one.features, other.features)


def test_a_sampled_graph_says_so_and_cannot_refine(few):
    X, labels = four_clusters()
    graph = unsplit.neighbour_graph(X, labels)
    assert "between 100 of 240 observations" in repr(graph)
    with pytest.raises(InputError, match=r"graph of 100 of 240 observations.*everything=True"):
        unsplit.refine(labels, graph)
    everything = unsplit.neighbour_graph(X, labels, everything=True)
    assert everything.sampled_from is None
    assert len(unsplit.refine(labels, everything)) == 240


def test_a_merge_by_a_sample_says_so(few, tmp_path):
    X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 200, random_state=0)
    parts = 2 * labels + (X[:, 1] > 0)
    merger = unsplit.ClusterMerger(random_state=0, training=unsplit.TrainConfig(epochs=5)).fit(
        X, initial_labels=parts
    )
    assert merger.n_clusters_ == 2
    assert merger.tree_.merges[0].why.startswith("strongly connected: strength ")
    with pytest.raises(InputError, match="everything=True"):
        _ = merger.refined_labels_
