"""Observations go where their neighbours are; checked against modularity by its formula."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from unsplit import ClusterMerger, InputError, TrainConfig, merge, neighbour_graph, refine
from unsplit.errors import PartitionWarning
from unsplit.merging.neighbours.refine import Moving


def modularity(adjacency, labels):
    """Newman's formula, term by term."""
    degree = adjacency.sum(axis=1)
    same = labels[:, None] == labels[None, :]
    return float(((adjacency - np.outer(degree, degree) / degree.sum()) * same).sum())


def overlapping(seed=0):
    """Two groups, and labels that a straight line in the wrong place made."""
    X, truth = make_blobs([150, 150], 3, centers=None, cluster_std=1.0, random_state=seed)
    shifted = np.where(X @ (X[truth == 1].mean(0) - X[truth == 0].mean(0)) > np.median(X), 1, 0)
    shifted[:20] = 1 - shifted[:20]
    return X, truth, shifted


@pytest.mark.parametrize("seed", range(4))
def test_no_single_move_would_raise_the_modularity(seed):
    X, labels = make_blobs([20] * 4, 3, centers=6 * np.eye(4, 3), random_state=seed)
    labels[:30:3] = 3
    graph = neighbour_graph(X, labels)
    found = refine(labels, graph)
    adjacency = graph.adjacency.toarray()
    reached = modularity(adjacency, found[graph.rows])
    assert reached > modularity(adjacency, labels[graph.rows])
    for i in range(80):
        for cluster in range(4):
            other = found[graph.rows].copy()
            other[i] = cluster
            assert modularity(adjacency, other) <= reached + 1e-6


def test_a_small_group_beside_a_large_one_keeps_what_chance_would_not_explain():
    """Most neighbours of many of its observations are in the large one, but only for its size."""
    X, labels = make_blobs([150, 15], 3, centers=[[0, 0, 0], [2, 0, 0]], random_state=0)
    graph = neighbour_graph(X, labels)
    moving = Moving(graph, labels[graph.rows], 2)
    moving.move_all()
    reached = modularity(graph.adjacency.toarray(), moving.clusters)
    for i in range(len(labels)):
        other = moving.clusters.copy()
        other[i] = 1 - other[i]
        assert modularity(graph.adjacency.toarray(), other) <= reached + 1e-6


def test_mistaken_observations_come_back():
    X, truth, mistaken = overlapping()
    found = refine(mistaken, neighbour_graph(X, mistaken))
    assert adjusted_rand_score(truth, found) > adjusted_rand_score(truth, mistaken) + 0.1


def test_rows_may_come_in_any_order_and_names_may_be_words():
    X, _, labels = overlapping()
    order = np.random.default_rng(0).permutation(len(X))
    names = np.array(["left", "right"])[labels]
    found = refine(names, neighbour_graph(X, names))
    shuffled = refine(names[order], neighbour_graph(X[order], names[order]))
    assert shuffled.tolist() == found[order].tolist()
    assert set(found) == {"left", "right"}


def test_noise_stays_noise_and_has_no_say():
    X, _, labels = overlapping()
    labels[:30] = -1
    found = refine(labels, neighbour_graph(X, labels))
    assert (found[:30] == -1).all()
    assert set(found[30:]) == {0, 1}


def test_no_cluster_is_lost():
    X, _ = make_blobs([100, 100], 2, centers=[[0, 0], [30, 0]], random_state=0)
    labels = np.where(X[:, 0] < 15, 0, 2)
    labels[np.argmin((X**2).sum(axis=1))] = 1  # all its neighbours are in cluster 0
    assert (refine(labels, neighbour_graph(X, labels)) == labels).all()


def test_one_cluster_stays_as_it_is():
    X = np.random.default_rng(0).standard_normal((60, 2))
    pieces = (X[:, 0] > 0).astype(int)
    assert (refine(np.zeros(60, int), neighbour_graph(X, pieces)) == 0).all()


def test_batches_are_compared_with_their_own():
    X, _, labels = overlapping()
    batch = np.arange(len(X)) % 2
    both = refine(labels, neighbour_graph(X, labels, batch=batch))
    for b in (0, 1):
        here = batch == b
        alone = refine(labels[here], neighbour_graph(X[here], labels[here]))
        # Half of those that want to move do so at a time, so that few may end up elsewhere.
        assert np.mean(both[here] == alone) > 0.95


def test_the_estimator_offers_refined_labels():
    X, truth = make_blobs(200, 2, centers=[[0, 0], [3.2, 0]], random_state=0)
    pieces = KMeans(5, n_init=1, random_state=1).fit_predict(X)
    merger = ClusterMerger(2, training=TrainConfig(epochs=5), random_state=0).fit(
        X, initial_labels=pieces
    )
    assert (merger.refined_labels_ == refine(merger.labels_, merger.neighbours_)).all()
    assert (merger.refined_labels_ != merger.labels_).any()
    # The number was given, so it is kept; here no initial cluster lies across a gap.
    again = merge(merger.pairwise_, n_clusters=2, neighbours=merger.neighbours_)
    assert (again.labels(pieces) == merger.labels_).all()
    assert adjusted_rand_score(truth, merger.refined_labels_) > 0.6


def test_bad_input_is_refused():
    X, _, labels = overlapping()
    graph = neighbour_graph(X, labels)
    with pytest.raises(InputError, match="100 entries"):
        refine(labels[:100], graph)
    with pytest.raises(InputError, match="neighbours must be a NeighbourGraph"):
        refine(labels, graph.adjacency)


def unequal(d, distance):
    """Groups of very different sizes, cut by k-means and merged right, but for a few."""
    centres = np.zeros((4, d))
    centres[1, 0] = centres[2, 1] = distance
    centres[3, 0] = -distance
    X, truth = make_blobs([1000, 300, 100, 30], d, centers=centres, random_state=0)
    pieces = KMeans(20, n_init=3, random_state=0).fit_predict(X)
    group = np.array([np.bincount(truth[pieces == p]).argmax() for p in range(20)])
    return X, truth, pieces, group[pieces]


@pytest.mark.parametrize("d", [2, 10])
@pytest.mark.parametrize("distance", [5, 8])
def test_large_and_small_groups_stay_as_they_are(d, distance):
    X, truth, pieces, merged = unequal(d, distance)
    found = refine(merged, neighbour_graph(X, pieces))
    before = adjusted_rand_score(truth, merged)
    assert before > 0.9
    assert adjusted_rand_score(truth, found) > before - 0.02


def test_impure_pieces_gain():
    # One piece holds a third of each of two groups, so no merge of whole pieces is right.
    X, truth = make_blobs([300] * 3, 8, centers=5 * np.eye(3, 8), random_state=0)
    third = np.random.default_rng(0).integers(3, size=900) == 0
    pieces = np.where(third & (truth < 2), 3, truth)
    merged = np.where(pieces == 3, 0, pieces)
    assert adjusted_rand_score(truth, merged) < 0.8
    assert adjusted_rand_score(truth, refine(merged, neighbour_graph(X, pieces))) > 0.95


def split_at_random(truth, share_of_mistakes, seed=0):
    """Labels of true groups, some of them drawn anew, each split into three."""
    rng = np.random.default_rng(seed)
    drawn = rng.uniform(size=len(truth)) < share_of_mistakes
    labels = np.where(drawn, rng.integers(truth.max() + 1, size=len(truth)), truth)
    return 3 * labels + rng.integers(3, size=len(truth))


def test_labels_that_know_more_than_neighbours_stay():
    # Groups differ in two of twenty features, so that most neighbours say nothing.
    rng = np.random.default_rng(0)
    truth = np.arange(600) % 3
    X = rng.standard_normal((600, 20))
    X[:, :2] += 3 * np.array([[0, 0], [1, 0], [0, 1]])[truth]
    merger = ClusterMerger(3, training=TrainConfig(epochs=10), random_state=0)
    merger.fit(X, initial_labels=split_at_random(truth, 0))
    before = adjusted_rand_score(truth, merger.labels_)
    assert before > 0.9
    assert adjusted_rand_score(truth, merger.refined_labels_) > before - 0.02
    # Neighbours alone would lose much of it.
    alone = refine(merger.labels_, merger.neighbours_)
    assert adjusted_rand_score(truth, alone) < before - 0.1


def test_mistaken_labels_are_corrected():
    X, truth = make_blobs([200] * 3, 6, centers=4 * np.eye(3, 6), random_state=0)
    labels = split_at_random(truth, 0.2)
    merger = ClusterMerger(3, training=TrainConfig(epochs=10), random_state=0).fit(
        X, initial_labels=labels
    )
    before = adjusted_rand_score(truth, merger.labels_)
    assert adjusted_rand_score(truth, merger.refined_labels_) > before + 0.1
    given = refine(merger.labels_, merger.neighbours_, distances=merger.pairwise_)
    assert (given == merger.refined_labels_).all()


@pytest.mark.filterwarnings("ignore:column 12 of X holds most")
def test_labels_that_are_right_already_stay():
    X, truth = load_wine(return_X_y=True)
    scaled = StandardScaler().fit_transform(X)
    merger = ClusterMerger(random_state=0).fit(scaled, initial_labels=truth)
    assert merger.n_clusters_ == 3
    assert (merger.refined_labels_ == truth).all()
    # Neighbours alone would not leave them.
    alone = refine(merger.labels_, merger.neighbours_)
    assert adjusted_rand_score(truth, alone) < 0.9
    # Of unscaled wine the neighbours are those by proline alone, and tests decide.
    with pytest.warns(PartitionWarning, match="do not follow the features"):
        merger = ClusterMerger(random_state=0).fit(X, initial_labels=truth)
    assert (merger.refined_labels_ == truth).all()
    alone = refine(merger.labels_, merger.neighbours_)
    assert adjusted_rand_score(truth, alone) < 0.6


@pytest.mark.filterwarnings("ignore:the clusters do not follow")
def test_mistakes_in_labels_that_were_not_split_are_corrected():
    X, truth = make_blobs([200] * 3, 6, centers=4 * np.eye(3, 6), random_state=0)
    labels = split_at_random(truth, 0.2) // 3
    merger = ClusterMerger(3, training=TrainConfig(epochs=10), random_state=0)
    merger.fit(X, initial_labels=labels)
    before = adjusted_rand_score(truth, merger.labels_)
    assert adjusted_rand_score(truth, merger.refined_labels_) > before + 0.1


def test_distances_of_another_kind_are_refused():
    X, _, labels = overlapping()
    with pytest.raises(InputError, match="distances must be a PairwiseTVD"):
        refine(labels, neighbour_graph(X, labels), distances=np.eye(2))
