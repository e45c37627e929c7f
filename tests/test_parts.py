"""Initial clusters across a gap: rings and spirals cut into few pieces come out whole."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from unsplit import ClusterMerger, InputError, TrainConfig, datasets, neighbour_graph, refine
from unsplit.merging.neighbours import refine as refine_module
from unsplit.merging.neighbours.refine import _named, can_be_cut, parts_of
from unsplit.merging.options import MergeOptions


def rings(n=900, seed=0):
    """Two rings, the outer one twice as long."""
    rng = np.random.default_rng(seed)
    truth = (np.arange(n) >= n // 3).astype(int)
    angle = rng.uniform(0, 2 * np.pi, n)
    radius = 1.0 + truth + 0.06 * rng.standard_normal(n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), truth


def spirals(n=900, seed=0):
    """Three arms, about equally dense everywhere."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % 3
    along = np.sqrt(0.2 + 1.2 * np.arange(n) / n)
    angle = 2 * np.pi * (along + truth / 3)
    points = along[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return points + 0.02 * rng.standard_normal((n, 2)), truth


def pieces_of(X, k, seed=0):
    return KMeans(k, n_init=1, random_state=seed).fit_predict(X)


@pytest.mark.parametrize(("draw", "k"), [(rings, 7), (spirals, 10)])
@pytest.mark.parametrize("seed", range(3))
def test_pieces_that_cross_a_gap_are_cut_and_come_out_right(draw, k, seed):
    X, truth = draw(seed=seed)
    pieces = pieces_of(X, k, seed)
    across = [len(np.unique(truth[pieces == p])) > 1 for p in range(k)]
    assert sum(across) >= 2  # so no merge of whole pieces is right
    graph = neighbour_graph(X, pieces)
    labels = np.zeros(len(X), int)
    assert adjusted_rand_score(truth, refine(labels, graph, gaps="cut")) == 1
    assert (refine(labels, graph) == 0).all()


def test_a_piece_without_a_gap_is_one_part():
    X, truth = rings()
    pieces = pieces_of(X, 10)
    graph = neighbour_graph(X, pieces)
    parts, of_graph = parts_of(graph), truth[graph.rows]
    for piece in range(10):
        here = graph.clusters == piece
        groups = np.unique(of_graph[here])
        assert len(np.unique(parts[here])) == len(groups)
        assert adjusted_rand_score(of_graph[here], parts[here]) == 1


@pytest.mark.parametrize("shape", ["gaussian", "uniform"])
@pytest.mark.parametrize("seed", range(5))
def test_data_without_structure_stay_one_cluster(shape, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((1000, 2)) if shape == "gaussian" else rng.uniform(size=(1000, 2))
    graph = neighbour_graph(X, pieces_of(X, 20, seed))
    assert (refine(np.zeros(1000, int), graph, gaps="cut") == 0).all()


def test_a_given_number_is_kept():
    X, truth = spirals()
    graph = neighbour_graph(X, pieces_of(X, 10))
    wrong = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
    kept = refine(wrong, graph, gaps="keep number")
    assert set(kept) == {0, 1, 2}
    assert adjusted_rand_score(truth, kept) == 1
    assert len(set(refine(np.minimum(wrong, 1), graph, gaps="keep number"))) == 2


def test_clusters_keep_their_names_and_new_ones_get_new_names():
    X, truth = rings()
    far = X[:200] * 0.2 + 9
    X, truth = np.vstack([X, far]), np.append(truth, np.full(200, 2))
    pieces = np.append(pieces_of(X[:900], 10), np.full(200, 10))
    graph = neighbour_graph(X, pieces)
    words = refine(np.where(truth == 2, "b", "a"), graph, gaps="cut")
    assert {str(name) for name in words[truth == 2]} == {"b"}
    assert {str(name) for name in words[truth == 1]} == {"a"}  # the larger part
    assert {str(name) for name in words[truth == 0]} == {"a (2)"}
    numbers = refine(np.where(truth == 2, 7, 3), graph, gaps="cut")
    assert [set(numbers[truth == c].tolist()) for c in range(3)] == [{8}, {3}, {7}]


def test_a_cluster_may_be_joined_with_another():
    X, truth = rings()
    graph = neighbour_graph(X, pieces_of(X, 10))
    mixed = np.where(truth == 0, 0, 1 + (X[:, 0] > 0) + 2 * (X[:, 1] > 0))
    assert adjusted_rand_score(truth, refine(mixed, graph, gaps="cut")) == 1


def test_noise_stays_noise():
    X, truth = rings()
    pieces = pieces_of(X, 10)
    pieces[::20] = -1
    found = refine(np.where(pieces < 0, -1, 0), neighbour_graph(X, pieces), gaps="cut")
    assert (found[::20] == -1).all()
    assert adjusted_rand_score(truth[pieces >= 0], found[pieces >= 0]) == 1


def test_rows_may_come_in_any_order():
    X, _ = spirals()
    pieces, labels = pieces_of(X, 10), np.zeros(len(X), int)
    order = np.random.default_rng(0).permutation(len(X))
    found = refine(labels, neighbour_graph(X, pieces), gaps="cut")
    shuffled = refine(labels, neighbour_graph(X[order], pieces[order]), gaps="cut")
    assert adjusted_rand_score(found[order], shuffled) == 1


def test_nothing_is_cut_in_several_batches_or_many_dimensions(monkeypatch):
    X, _ = rings()
    pieces = pieces_of(X, 10)
    assert can_be_cut(neighbour_graph(X, pieces))
    assert not can_be_cut(neighbour_graph(X, pieces, batch=np.arange(len(X)) % 2))
    noise = np.random.default_rng(0).standard_normal((len(X), 8))
    assert not can_be_cut(neighbour_graph(noise, pieces))
    monkeypatch.setattr(refine_module, "MOST_CLUSTERS", 9)
    assert not can_be_cut(neighbour_graph(X, pieces))


def test_a_few_far_observations_are_a_part_of_their_own():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.standard_normal((400, 2)), 50 + 9 * rng.standard_normal((16, 2))])
    truth = np.arange(416) >= 400
    graph = neighbour_graph(X, np.append((X[:400, 0] > 0).astype(int), np.ones(16, int)))
    assert adjusted_rand_score(truth, refine(np.zeros(416, int), graph, gaps="cut")) > 0.9


def test_the_estimator_cuts_unless_the_user_decided():
    auto, told = MergeOptions(), MergeOptions(n_clusters=3)
    assert auto.gaps("neighbours") == "cut"
    assert told.gaps("neighbours") == "keep number"
    assert auto.gaps("average linkage") == "ignore"
    for options in (
        MergeOptions(max_tvd=0.2),
        MergeOptions(alpha=0.05),
        MergeOptions(n_clusters=(None, 4)),
        MergeOptions(cannot_link=[(0, 1)]),
    ):
        assert options.gaps("neighbours") == "ignore"
    X, truth = rings()
    merger = ClusterMerger(training=TrainConfig(epochs=3), random_state=0).fit(
        X, initial_labels=pieces_of(X, 10)
    )
    assert adjusted_rand_score(truth, merger.labels_) < 0.9
    assert adjusted_rand_score(truth, merger.refined_labels_) == 1


def test_an_unknown_choice_is_refused():
    X, _ = rings(90)
    graph = neighbour_graph(X, pieces_of(X, 4))
    with pytest.raises(InputError, match="gaps must be"):
        refine(np.zeros(90, int), graph, gaps="close")


def test_a_word_is_given_only_to_those_who_had_it():
    found, clusters = np.repeat([0, 1], [50, 30]), np.zeros(80, np.int64)
    after, names = _named(found, clusters, np.array(["T cell", "B cell"]))
    assert names[after[0]] == "T cell"
    assert names[after[-1]] == "T cell (2)"
    # Numbers mean nothing, and those that are free are used again.
    assert set(_named(found, clusters, np.array([0, 1]))[0].tolist()) == {0, 1}


def test_labels_that_mix_words_and_numbers_come_back_as_words():
    X, truth = datasets.gaussians([[0, 0], [9, 0]], 50, random_state=0)
    mistaken = np.where(np.arange(100) % 10 == 0, 1 - truth, truth)
    mixed = np.array(["a", 2], dtype=object)[mistaken]
    refined = refine(mixed, neighbour_graph(X, mistaken))
    assert refined.tolist() == np.array(["a", "2"])[truth].tolist()
