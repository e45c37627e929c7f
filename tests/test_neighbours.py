"""The graph of nearest neighbours, from arrays and from what users pass."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons

from unsplit import InputError, neighbour_graph
from unsplit.merging.neighbours import graph as graph_module
from unsplit.merging.neighbours.graph import (
    N_NEIGHBOURS,
    Connections,
    NeighbourGraph,
    connect,
    renumbered,
)


def pieces(X, k, seed=0):
    return KMeans(k, n_init=1, random_state=seed).fit_predict(X).astype(np.int64)


@pytest.fixture(scope="module")
def normal():
    X = np.random.default_rng(0).standard_normal((400, 3))
    return X, pieces(X, 6)


def degrees(graph):
    return np.asarray(graph.adjacency.sum(axis=1)).ravel()


# --- edges ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_batches", [1, 3])
def test_edges_are_mutual_and_lead_to_others_of_the_batch(normal, n_batches):
    X, clusters = normal
    batches = np.arange(400) % n_batches
    graph = connect(X, clusters, batches)
    adjacency = graph.adjacency.toarray()
    assert set(np.unique(adjacency)) == {0.0, 1.0}
    assert np.array_equal(adjacency, adjacency.T)
    assert not adjacency.diagonal().any()
    left, right = adjacency.nonzero()
    assert (batches[left] == batches[right]).all()
    assert degrees(graph).min() >= N_NEIGHBOURS // n_batches


def test_edges_are_those_of_the_fifteen_nearest(normal):
    X, clusters = normal
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    np.fill_diagonal(distances, np.inf)
    near = distances <= np.sort(distances, axis=1)[:, [14]]
    graph = connect(X, clusters)
    assert np.array_equal(graph.adjacency.toarray() > 0, near | near.T)
    assert np.array_equal(graph.features, X)


def test_batches_are_as_if_alone_with_their_share_of_neighbours(normal):
    X, clusters = normal
    batches = (np.random.default_rng(1).random(400) < 0.6).astype(int)
    both = connect(X, clusters, batches)
    for batch in (0, 1):
        here = batches == batch
        alone = connect(X[here], clusters[here], n_neighbors=round(15 * here.mean()))
        part = both.adjacency[np.flatnonzero(here)][:, np.flatnonzero(here)]
        assert np.array_equal(part.toarray(), alone.adjacency.toarray())
        np.testing.assert_array_equal(both.inverse_dimension[here], alone.inverse_dimension)


def test_another_number_and_the_cosine(normal):
    X, clusters = normal
    few = neighbour_graph(X, clusters, n_neighbors=4, device="cpu")
    assert (few.n_neighbors, few.metric) == (4, "euclidean")
    assert 4 <= degrees(few).min() < 15
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    by_angle = neighbour_graph(7 * X, clusters, metric="cosine", device="cpu")
    on_sphere = neighbour_graph(unit, clusters, device="cpu")
    assert by_angle.metric == "cosine"
    assert by_angle.adjacency.sum() == on_sphere.adjacency.sum()
    with pytest.raises(InputError, match="metric must be one of euclidean, cosine"):
        neighbour_graph(X, clusters, metric="manhattan")


def test_small_batches_have_as_many_neighbours_as_there_are():
    X = np.random.default_rng(0).standard_normal((30, 2))
    batches = np.array([0] * 1 + [1] * 2 + [2] * 5 + [3] * 22)
    graph = connect(X, np.zeros(30, np.int64), batches)
    assert degrees(graph)[:8].tolist() == [0, 1, 1, 4, 4, 4, 4, 4]
    assert degrees(graph)[8:].min() >= 11
    assert np.isfinite(graph.inverse_dimension).all()


def test_duplicates_and_constants_are_no_error():
    rng = np.random.default_rng(0)
    for X in (np.ones((60, 3)), np.repeat(rng.standard_normal((3, 3)), 20, axis=0)):
        graph = connect(X, np.arange(60) % 3)
        assert degrees(graph).min() >= 15
        assert np.isfinite(graph.inverse_dimension).all()
        assert not graph.adjacency.diagonal().any()


# --- how many dimensions --------------------------------------------------------------------------


def dimension(graph):
    return 1 / graph.inverse_dimension.mean()


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", [300, 2000])
def test_as_many_dimensions_as_the_data_have(d, n):
    rng = np.random.default_rng(d)
    X = rng.random((n, d))
    clusters = np.arange(n) % 2
    assert dimension(connect(X, clusters)) == pytest.approx(d, rel=0.25)
    # The same in seven dimensions, of which the data know nothing, and in other units.
    turned = np.linalg.qr(rng.standard_normal((7, 7)))[0][:d]
    assert dimension(connect(1e3 * X @ turned, clusters)) == pytest.approx(
        dimension(connect(X, clusters)), rel=1e-3
    )


def test_more_dimensions_are_more():
    rng = np.random.default_rng(0)
    found = [dimension(connect(rng.random((1000, d)), np.zeros(1000, int))) for d in range(1, 11)]
    assert (np.diff(found) > 0).all()


def test_a_duplicate_of_each_does_not_take_dimensions_away():
    X = np.random.default_rng(0).random((500, 3))
    twice = np.repeat(X, 2, axis=0)
    assert dimension(connect(twice, np.arange(1000) % 2)) == pytest.approx(3, rel=0.4)


# --- weights and votes ----------------------------------------------------------------------------


def test_weights_count_the_neighbours_that_both_ends_have(normal, monkeypatch):
    monkeypatch.setattr("unsplit.merging.neighbours.graph.ROWS_AT_ONCE", 150)
    graph = connect(*normal)
    adjacency, weights = graph.adjacency.toarray(), graph.weights.toarray()
    assert np.array_equal(weights, adjacency * (1 + adjacency @ adjacency))


def naive_votes(adjacency, clusters, k):
    """One observation at a time; a cluster with one left or none keeps all."""
    new = clusters.copy()
    for i in range(len(clusters)):
        votes = np.bincount(clusters[(adjacency[i] > 0) & (clusters >= 0)], minlength=k)
        if clusters[i] >= 0 and votes.max() > votes.sum() / 2:
            new[i] = votes.argmax()
    for cluster in range(k):
        if (new == cluster).sum() < 2:
            new[clusters == cluster] = cluster
    return new


@pytest.mark.parametrize("seed", range(4))
def test_more_than_half_of_the_neighbours_outvote_a_label(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300, 2)) + 4 * rng.integers(3, size=(300, 1))
    truth = pieces(X, 5, seed)
    wrong = np.where(rng.random(300) < 0.2, rng.integers(5, size=300), truth)
    wrong[:3] = [5, 6, 6]  # a cluster of one and a cluster of two
    graph = connect(X, wrong)
    assert np.array_equal(graph.clusters, naive_votes(graph.adjacency.toarray(), wrong, 7))
    assert (graph.clusters == truth).mean() > (wrong == truth).mean()
    assert np.bincount(graph.clusters, minlength=7).min() >= 1


# --- noise ----------------------------------------------------------------------------------------


def test_a_little_noise_is_left_out(normal):
    X, clusters = normal
    outside = np.arange(400) % 4 == 0
    graph = connect(X, np.where(outside, -1, clusters))
    assert np.array_equal(graph.clusters, connect(X[~outside], clusters[~outside]).clusters)
    assert graph.adjacency.shape == (300, 300)
    assert np.array_equal(graph.features, X[~outside])


def test_much_noise_counts_for_the_cluster_it_leads_to():
    X, moon = make_moons(600, noise=0.05, random_state=0)
    clusters = moon.astype(np.int64)
    seeds = np.random.default_rng(0).permutation(600)[:60]
    known = np.full(600, -1)
    known[seeds] = clusters[seeds]
    graph = connect(X, known)
    assert np.array_equal(graph.clusters, clusters)
    # Exactly half outside is not most.
    known[np.random.default_rng(1).permutation(600)[:300]] = 0
    assert len(connect(X, known).clusters) < 600


def test_what_leads_to_no_cluster_counts_for_none():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((100, 2)), 50 + rng.standard_normal((100, 2))])
    known = np.full(200, -1)
    known[:40] = X[:40, 0] > 0
    graph = connect(X, known)
    assert (graph.clusters[:100] >= 0).all()
    assert (graph.clusters[100:] == -1).all()
    assert (graph.clusters[:40] == known[:40]).mean() > 0.8
    assert graph.members.sum() == 100
    assert graph.n_clusters == 2


# --- what must not matter -------------------------------------------------------------------------


@pytest.mark.parametrize("outside", [0.0, 0.2, 0.8])
def test_order_and_names_do_not_matter(normal, outside):
    X, clusters = normal
    rng = np.random.default_rng(5)
    names = np.array(["e", "b", "f", "a", "d", "c"])
    labels, batch = names[clusters].astype(object), rng.integers(2, size=400)
    noise = rng.random(400) < outside
    labels[noise] = "-1"
    numbers = np.where(noise, -1, clusters)
    for batches in (None, batch):
        expected = Connections(neighbour_graph(X, numbers, batch=batches)).edges
        order = rng.permutation(400)
        moved = None if batches is None else np.array(["run 9", "run 1"])[batches[order]]
        graph = neighbour_graph(X[order], labels[order], batch=moved)
        place = np.searchsorted(np.sort(names), names)
        found = Connections(graph).edges[np.ix_(place, place)]
        assert np.array_equal(found, expected)


def test_order_does_not_matter_where_distances_are_equal():
    # A grid, where nearly every distance occurs many times.
    X = np.stack(np.meshgrid(*[np.arange(20.0)] * 2), axis=-1).reshape(-1, 2)
    labels = (X[:, 0] > 7) + 2 * (X[:, 1] > 11)
    expected = Connections(neighbour_graph(X, labels)).edges
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(X))
        found = Connections(neighbour_graph(X[order], labels[order])).edges
        assert np.array_equal(found, expected)


def test_renamed_clusters_keep_their_edges(normal):
    X, clusters = normal
    graph = connect(X, np.where(np.arange(400) < 250, -1, clusters))
    new = np.array([3, 0, 5, 1, 4, 2])
    renamed = renumbered(graph, new)
    edges, after = Connections(graph).edges, Connections(renamed).edges
    assert np.array_equal(after[np.ix_(new, new)], edges)
    assert np.array_equal(renamed.clusters < 0, graph.clusters < 0)


# --- what users pass ------------------------------------------------------------------------------


def counts(n=200, d=120, seed=0):
    """Two kinds of texts of any length, and which is which."""
    rng = np.random.default_rng(seed)
    rates = rng.gamma(0.3, size=(2, d))
    kind = np.arange(n) % 2
    return rng.poisson(rates[kind] * rng.lognormal(2, 1, size=n)[:, None]).astype(float), kind


def test_counts_are_compared_whatever_their_sum():
    values, kind = counts()
    for X in (scipy.sparse.csr_array(values), scipy.sparse.coo_matrix(values)):
        graph = neighbour_graph(X, kind)
        assert graph.features.shape == (200, 50)
        edges = Connections(graph).edges
        assert edges[0, 1] < 0.02 * edges.sum()
        assert np.isfinite(graph.features).all()
    plain = Connections(connect(values, kind)).edges
    assert plain[0, 1] > 2 * edges[0, 1]


def test_odd_counts_are_accepted():
    values, kind = counts(n=40, d=120)
    values[3] = 0  # an empty text
    for X in (values, values[:, :1], values[:, :2]):
        graph = neighbour_graph(scipy.sparse.csr_array(X), kind)
        assert isinstance(graph, NeighbourGraph)
        assert np.isfinite(graph.features).all()


def test_counts_that_are_all_the_same_are_accepted():
    # Warnings are errors here.
    for X in (scipy.sparse.csr_array((40, 5)), scipy.sparse.csr_array(np.ones((40, 5)))):
        graph = neighbour_graph(X, np.arange(40) % 2)
        assert np.ptp(graph.features, axis=0).max() < 1e-9


@pytest.mark.parametrize("d", [60, 1000])
def test_order_does_not_matter_for_counts(d):
    values, kind = counts(d=d)
    labels = kind + 2 * (np.arange(200) < 100)
    expected = Connections(neighbour_graph(scipy.sparse.csr_array(values), labels)).edges
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(200)
        X = scipy.sparse.csr_array(values[order])
        found = Connections(neighbour_graph(X, labels[order])).edges
        assert np.array_equal(found, expected)


def test_lists_and_missing_labels_are_accepted():
    X = np.random.default_rng(0).standard_normal((30, 2))
    labels = ["a", "b", None] * 10
    graph = neighbour_graph(X.tolist(), labels, batch=[1.0, 1.0, np.nan] * 10, device="cpu")
    assert graph.n_clusters == 2
    assert graph.adjacency.shape == (20, 20)
    # The features do not change with what users do to theirs.
    whole = neighbour_graph(X, np.arange(30) % 2)
    assert np.array_equal(np.sort(whole.features, axis=0), np.sort(X, axis=0))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"X": np.full((6, 2), np.nan)},
            "X has missing or infinite values (6 in column 0, 6 in",
        ),
        ({"X": np.zeros(6)}, "X must be a table with one row per observation, got shape (6,)"),
        ({"X": [["a"]] * 6}, "X must hold numbers"),
        ({"labels": [0, 1]}, "X has 6 observations but"),
        ({"labels": [-1] * 6}, "every label is noise"),
        ({"batch": [0, 1]}, "X has 6 observations but batch has 2; pass one batch for each row"),
        ({"batch": [0, 0, 0, 1, 1, None]}, "batch is missing (-1, NaN or empty) for 1"),
        ({"device": "abacus"}, "abacus"),
    ],
)
def test_wrong_input_is_told_in_a_sentence(change, sentence):
    given = {"X": np.eye(6), "labels": [0, 0, 0, 1, 1, 1]} | change
    with pytest.raises(InputError) as caught:
        neighbour_graph(**given)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_sparse_values_that_are_no_counts_are_only_reduced():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8))
    labels = np.repeat([0, 1], 30)
    sparse_edges, dense_edges = (
        neighbour_graph(form(X), labels).adjacency.sum()
        for form in (scipy.sparse.csr_array, np.asarray)
    )
    assert abs(sparse_edges - dense_edges) < 0.2 * dense_edges


def emptied():
    """Twelve observations of cluster 0 lie around the two of cluster 1 and within cluster 2."""
    rng = np.random.default_rng(0)
    inner = np.zeros((2, 10))
    inner[1, 0] = 1e-3
    outer = np.concatenate([np.eye(10), -np.eye(10)])[:12]
    around = np.concatenate([1.05 * place + 0.01 * rng.normal(size=(30, 10)) for place in outer])
    far = 8 + 0.3 * rng.normal(size=(100, 10))
    clusters = np.repeat([0, 1, 2, 3], [12, 2, len(around), 100])
    return np.concatenate([outer, inner, around, far]), clusters


def test_no_cluster_is_outvoted_until_none_is_left():
    graph = neighbour_graph(*emptied())
    assert np.bincount(graph.clusters).min() >= 2


def test_a_cluster_without_observations_in_the_graph_has_finite_distances():
    X, clusters = emptied()
    connected = Connections(connect(X, clusters, n_clusters=5))
    assert connected.sizes[4] == 0
    assert np.isfinite(connected.distances()).all()


def test_labels_spread_the_same_for_a_few_clusters_at_a_time(monkeypatch):
    X = np.random.default_rng(0).normal(size=(300, 3))
    clusters = np.where(np.arange(300) % 5 == 0, np.arange(300) % 7, -1)
    at_once = connect(X, clusters)
    monkeypatch.setattr(graph_module, "MOST_SHARES", 600)
    np.testing.assert_array_equal(connect(X, clusters).clusters, at_once.clusters)


@pytest.mark.parametrize("noise", [False, True])
def test_edges_between_clusters_against_counting_them(normal, noise):
    X, clusters = normal
    graph = connect(X, np.where(noise & (np.arange(400) % 9 == 0), -1, clusters))
    found = graph.edges_between().toarray()
    slow = np.zeros_like(found)
    for i, j in zip(*graph.adjacency.nonzero(), strict=True):
        slow[graph.clusters[i], graph.clusters[j]] += 1
    np.testing.assert_array_equal(found, slow)


# --- what must not matter -------------------------------------------------------------------------


@pytest.mark.parametrize("n_features", [3, 12])
def test_a_common_offset_changes_nothing(n_features):
    X = np.random.default_rng(0).standard_normal((300, n_features))
    offset = np.zeros(n_features)
    offset[-1] = 2.0**30  # such as a time stamp; a power of two, so that X keeps its digits
    X = np.round(X * 2**12) / 2**12
    clusters = pieces(X, 5)
    plain, moved = connect(X, clusters), connect(X + offset, clusters)
    assert (plain.adjacency != moved.adjacency).nnz == 0
    np.testing.assert_allclose(moved.inverse_dimension, plain.inverse_dimension, rtol=1e-6)


@pytest.mark.parametrize("batches", [False, True])
def test_the_order_of_equal_rows_does_not_matter(batches):
    rng = np.random.default_rng(0)
    X, clusters = np.round(2 * rng.standard_normal((200, 2))), rng.integers(6, size=200)
    batch = rng.integers(2, size=200) if batches else None
    found = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(200)
        of_rows = None if batch is None else batch[order]
        graph = neighbour_graph(X[order], clusters[order], batch=of_rows)
        found.append(graph.edges_between().toarray())
    assert all(np.array_equal(edges, found[0]) for edges in found)


def test_batches_may_be_a_tensor_with_gradients():
    import torch

    X, clusters = np.random.default_rng(0).standard_normal((60, 2)), np.arange(60) % 2
    batch = np.arange(60) // 2 % 2
    tensor = torch.tensor(batch * 1.0, requires_grad=True)
    expected = neighbour_graph(X, clusters, batch=batch).edges_between()
    assert (neighbour_graph(X, clusters, batch=tensor).edges_between() != expected).nnz == 0
