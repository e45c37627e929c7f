"""How clusters are ranked if most observations are in none of them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.cluster.hierarchy import cophenet

import unsplit
from unsplit.merging.neighbours.graph import Connections, graph_of_scores
from unsplit.merging.pairs import mean_rank


@pytest.fixture(scope="module")
def cores():
    """Four cores of two groups, most of whose observations are outside, and their estimate."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((300, 4)) + shift for shift in (0.0, 6.0)])
    labels = np.full(600, -1)
    for core, start in enumerate((0, 40, 300, 340)):
        labels[start : start + 40] = core
    return (
        X,
        labels,
        unsplit.pairwise_tvd(
            X, labels, training=unsplit.TrainConfig(epochs=3), cv=2, random_state=0
        ),
    )


def test_cores_split_at_random_are_ranked_by_overlap_alone(cores):
    X, labels, result = cores
    tree = unsplit.merge(result, n_clusters=2, neighbours=unsplit.neighbour_graph(X, labels))
    assert tree.statistic == "overlap"
    assert tree.mapping[0] == tree.mapping[1] != tree.mapping[2] == tree.mapping[3]


def test_both_is_average_linkage_of_the_mean_rank(cores):
    X, labels, result = cores
    graph = unsplit.neighbour_graph(X, labels)
    tree = unsplit.merge(result, n_clusters=1, neighbours=graph, rank_by="overlap and edges")
    both = mean_rank(result.divergence("overlap"), Connections(graph).distances())
    twin = unsplit.merge(both, n_clusters=1)
    # Which of two clusters is the left, and which of two equal merges comes first, may differ.
    np.testing.assert_allclose(cophenet(tree.linkage), cophenet(twin.linkage))
    assert tree.statistic == "overlap and edges"


def test_what_auto_chooses_depends_on_what_the_graph_knows():
    # Pieces of one Gaussian cut by k-means differ from each other, so no tests decide.
    rng = np.random.default_rng(1)
    X = rng.standard_normal((900, 6))
    far = np.linalg.norm(X, axis=1)
    labels = np.where(far > np.quantile(far, 0.4), -1, (X[:, 0] > 0) + 2 * (X[:, 1] > 0))
    result = unsplit.pairwise_tvd(
        X, labels, training=unsplit.TrainConfig(epochs=5), cv=2, random_state=0
    )
    graph = unsplit.neighbour_graph(X, labels)
    chosen = {
        name: unsplit.merge(result, n_clusters=1, neighbours=graph).statistic
        for name, graph in {
            "observations": graph,
            "features": replace(graph, source="other features"),
            "scores": graph_of_scores(result),
            "none": None,
        }.items()
    }
    assert chosen == {
        "observations": "edges",
        "features": "overlap and edges",
        "scores": "overlap",
        "none": "overlap",
    }


def test_images_with_features_of_their_own_are_ranked_by_both():
    rng = np.random.default_rng(2)
    labels = np.repeat([0, 1, 2, -1], [20, 20, 20, 90])
    features = rng.standard_normal((150, 3)) + np.array([0.0, 3.0, 9.0, 4.0])[labels][:, None]
    images = rng.integers(0, 256, (150, 8, 8), dtype=np.uint8)
    images[:60] //= np.array([1, 4, 16], np.uint8)[labels[:60], None, None]
    merger = unsplit.ClusterMerger(
        2, backbone="single-layer", training=unsplit.TrainConfig(epochs=20), cv=2, random_state=0
    )
    merger.fit(images, initial_labels=labels, features=features)
    assert merger.neighbours_.source == "other features"
    assert merger.tree_.statistic == "overlap and edges"


def test_edges_and_overlap_need_a_graph(cores):
    with pytest.raises(unsplit.InputError, match="needs neighbours"):
        unsplit.merge(cores[2], n_clusters=2, rank_by="overlap and edges")
