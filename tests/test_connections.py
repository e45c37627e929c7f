"""Edges between clusters, against counting them one by one."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans

from unsplit.merging.neighbours.graph import UNLINKED, Connections, connect, renumbered


def random_graph(n=300, k=7, n_batches=3, noise=0.1, seed=0):
    """Lumps cut at random places, some observations of none, in batches of any size."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) + 3 * rng.integers(3, size=(n, 1))
    clusters = KMeans(k, n_init=1, random_state=seed).fit_predict(X).astype(np.int64)
    batches = rng.integers(n_batches, size=n)
    graph = connect(X, clusters, batches)
    outside = rng.random(n) < noise
    clusters = np.where(outside, -1, clusters)
    return replace(graph, clusters=clusters)


def regrouped(graph, groups):
    """The graph with clusters joined to groups."""
    return replace(renumbered(graph, np.asarray(groups)), n_clusters=max(groups) + 1)


def naive_edges(graph):
    """One edge at a time, both ends of it, by the neighbours the two have in common."""
    k = graph.n_clusters
    edges = np.zeros((k, k))
    adjacency, clusters = graph.adjacency.toarray(), graph.clusters
    for i in range(len(clusters)):
        for j in range(len(clusters)):
            if adjacency[i, j] and clusters[i] >= 0 and clusters[j] >= 0:
                edges[clusters[i], clusters[j]] += 1 + (adjacency[i] * adjacency[j]).sum()
    return edges


def naive_chance(graph):
    """In every batch, ends of edges in the one times the share of all ends in the other."""
    k, chance = graph.n_clusters, 0
    adjacency, clusters = graph.adjacency.toarray(), graph.clusters
    weights = adjacency * (1 + adjacency @ adjacency)
    inside = clusters >= 0
    for batch in np.unique(graph.batches):
        here = inside & (graph.batches == batch)
        ends = np.zeros(k)
        for i in np.flatnonzero(here):
            ends[clusters[i]] += weights[i, inside].sum()
        chance = chance + np.outer(ends, ends) / max(ends.sum(), 1)
    return chance


# --- counting -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_batches", "noise"), [(1, 0.0), (1, 0.3), (3, 0.0), (3, 0.3)])
def test_edges_and_chance_against_a_double_loop(n_batches, noise):
    graph = random_graph(n_batches=n_batches, noise=noise)
    connections = Connections(graph)
    assert np.array_equal(connections.edges, naive_edges(graph))
    chance = naive_chance(graph)
    np.testing.assert_allclose(connections.expected(slice(None)), chance)
    np.testing.assert_allclose(connections.expected(np.array([4, 2])), chance[[4, 2]])
    # A random graph has as many edges in all.
    assert connections.expected(slice(None)).sum() == pytest.approx(connections.edges.sum())
    for a, b in [(0, 1), (3, 3), (6, 2)]:
        expected = connections.edges[a, b] / chance[a, b]
        assert connections.times_chance(a, b) == pytest.approx(expected)
    assert np.array_equal(connections.sizes, np.bincount(graph.clusters[graph.clusters >= 0]))


def test_a_random_graph_has_about_as_many_edges_as_by_chance():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 3))
    connections = Connections(connect(X, rng.integers(5, size=2000)))
    for a in range(5):
        for b in range(a):
            assert connections.times_chance(a, b) == pytest.approx(1, abs=0.1)


def test_batches_that_clusters_do_not_share_promise_no_edges():
    X = np.random.default_rng(0).standard_normal((200, 2))
    half = np.arange(200) % 2
    apart = Connections(connect(X, half, batches=half))
    assert apart.edges[0, 1] == apart.expected(slice(None))[0, 1] == 0
    assert apart.times_chance(0, 1) == 0.0
    together = Connections(connect(X, half))
    assert together.times_chance(0, 1) > 0.5


# --- merging --------------------------------------------------------------------------------------

MERGES = [(0, 1), (2, 5), (0, 2), (3, 6)]


@pytest.mark.parametrize("n_batches", [1, 3])
def test_merging_is_counting_anew(n_batches):
    graph = random_graph(n_batches=n_batches)
    connections, groups = Connections(graph), np.arange(7)
    for a, b in MERGES:
        assert list(connections.merge(a, b)) == [a]
        groups[groups == b] = a
        alive = np.unique(groups)
        at = np.ix_(alive, alive)
        anew = Connections(regrouped(graph, np.searchsorted(alive, groups)))
        assert np.array_equal(connections.edges[at], anew.edges)
        np.testing.assert_allclose(
            connections.expected(slice(None))[at], anew.expected(slice(None))
        )
        np.testing.assert_allclose(connections.distances()[at], anew.distances())
        np.testing.assert_array_equal(connections.sizes[alive], anew.sizes)
        for new, old in enumerate(alive.tolist()):
            np.testing.assert_allclose(connections.row(old)[alive], anew.distances()[new])
            assert connections.dimension(old, alive[0]) == pytest.approx(anew.dimension(new, 0))
            assert connections.times_chance(old, alive[0]) == pytest.approx(
                anew.times_chance(new, 0)
            )


def test_the_graph_stays_as_it_was():
    graph = random_graph()
    before = Connections(graph).edges
    merged = Connections(graph)
    merged.merge(0, 1)
    assert np.array_equal(Connections(graph).edges, before)


# --- distances ------------------------------------------------------------------------------------


@pytest.fixture(params=["few dimensions", "many"])
def connections(request):
    connections = Connections(random_graph(k=12))
    connections.is_low_dimensional = request.param == "few dimensions"
    return connections


def test_distances_are_symmetric_and_between_0_and_1(connections):
    D = connections.distances()
    assert D.shape == (12, 12)
    assert ((D >= 0) & (D <= 1)).all()
    np.testing.assert_allclose(D, D.T)
    np.testing.assert_array_equal(connections.distances(np.array([3, 1])), D[[3, 1]])


def test_half_is_by_chance_and_no_edge_comes_last(connections):
    D, found, chance = connections.distances(), connections.edges, connections.expected(slice(None))
    assert (found == 0).any()
    assert ((D < 0.5) == (found > chance)).all()
    assert ((D >= UNLINKED) == (found == 0)).all()
    connections.edges[:] = chance
    np.testing.assert_allclose(connections.distances(), 0.5)


def test_more_edges_are_nearer(connections):
    chance = connections.expected(slice(None))
    before = np.full((12, 12), np.inf)
    for share in (0.0, 0.1, 0.5, 0.9, 1.0, 1.1, 2.0, 10.0):
        connections.edges[:] = share * chance
        D = connections.distances()
        assert (before > D).all()
        before = D


@pytest.mark.parametrize("few_dimensions", [True, False])
def test_what_is_surer_is_nearer(few_dimensions):
    # Twice as many edges as by chance, of a few or of many.
    connections = Connections(random_graph(k=3, n_batches=1, noise=0.0))
    connections.is_low_dimensional = few_dimensions
    connections.degrees = np.array([[10.0, 10.0, 1000.0]])
    connections.totals = np.array([1000.0])
    connections.edges[:] = 2 * connections.expected(slice(None))
    D = connections.distances()
    assert D[0, 2] < D[0, 1] < 0.5
    connections.edges[:] /= 4
    D = connections.distances()
    assert D[0, 2] > D[0, 1] > 0.5


def test_in_few_dimensions_the_share_counts_and_in_many_how_sure_it_is():
    # Ten times as many as by chance of few, against twice as many of very many.
    connections = Connections(random_graph(k=4, n_batches=1, noise=0.0))
    connections.degrees = np.array([[100.0, 100.0, 5000.0, 5000.0]])
    connections.totals = np.array([1000.0])
    connections.edges[0, 1], connections.edges[2, 3] = 100.0, 50_000.0
    nearer = {}
    for few in (True, False):
        connections.is_low_dimensional = few
        D = connections.distances()
        nearer[few] = D[0, 1] < D[2, 3]
    assert nearer == {True: True, False: False}


@pytest.mark.parametrize(("d", "few"), [(1, True), (2, True), (6, False), (20, False)])
def test_dimensions_say_how_pairs_are_ranked(d, few):
    X = np.random.default_rng(0).standard_normal((500, d))
    assert Connections(connect(X, np.arange(500) % 2)).is_low_dimensional is few


def test_without_any_edge_nothing_is_divided_by_nothing():
    # Every observation is a batch of its own.
    X = np.random.default_rng(0).standard_normal((20, 2))
    connections = Connections(connect(X, np.arange(20) % 3, np.arange(20)))
    assert not connections.edges.any()
    assert (connections.distances() >= UNLINKED).all()
    assert connections.times_chance(0, 1) == 0.0
    assert connections.dimension(0, 1) == 1.0


# --- dimensions -----------------------------------------------------------------------------------


def test_dimensions_are_those_of_the_two_clusters():
    rng = np.random.default_rng(0)
    line, cube = np.zeros((500, 6)), 50 + np.zeros((500, 6))
    line[:, :1] += rng.random((500, 1))
    cube += rng.random((500, 6))
    X = np.concatenate([line, cube])
    clusters = np.repeat([0, 1, 2, 3], 250)
    connections = Connections(connect(X, clusters))
    assert connections.dimension(0, 1) == pytest.approx(1, rel=0.2)
    flat, both, full = (connections.dimension(a, b) for a, b in [(0, 1), (1, 2), (2, 3)])
    assert flat < both < full
    assert full > 3.5
    # Every observation counts once.
    assert both == pytest.approx(500 / (250 / flat + 250 / full), rel=0.1)
