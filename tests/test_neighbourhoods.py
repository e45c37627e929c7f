"""Whether neighbours connect two clusters as they connect parts of one: known answers."""

import math
from dataclasses import astuple

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons

from tests.merging_cases import gaussian_estimate, labels_of, merged_by_neighbours
from unsplit import ClusterMerger, InputError, TrainConfig, merge, neighbour_graph
from unsplit.errors import SmallClusterWarning
from unsplit.merging.decision import GRAPH, Always, PairEvidence, Reason, because
from unsplit.merging.limits import FEW_DIMENSIONS, MANY_DIMENSIONS, NECK_SHARE, WIDEST_NECK
from unsplit.merging.neighbours import evidence as neighbourhoods
from unsplit.merging.neighbours.evidence import (
    FEWEST_JUDGED,
    Connection,
    Neighbourhoods,
    thinned,
)
from unsplit.merging.neighbours.graph import Connections, connect
from unsplit.merging.review import members_of_nodes

ENDING = "every remaining pair is too weakly connected in the neighbour graph"


def pieces(X, k, seed=0):
    return KMeans(k, n_init=1, random_state=seed).fit_predict(X).astype(np.int64)


def lumps(n, d, distance, n_lumps=10, seed=0):
    """Round lumps of one size on a grid, and which lump each observation is of."""
    rng = np.random.default_rng(seed)
    lump = np.arange(n) % n_lumps
    X = rng.standard_normal((n, d))
    X[:, 0] += distance * (lump % 2)
    X[:, 1] += distance * (lump // 2)
    return X, lump


def found_exactly(groups, truth):
    """Whether groups are the truth under other numbers."""
    pairs = set(zip(groups.tolist(), truth.tolist(), strict=True))
    return len(pairs) == len(set(groups.tolist())) == len(set(truth.tolist()))


# --- data of which the answer is known ------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 10])
@pytest.mark.parametrize("draw", ["standard_normal", "random"])
def test_structureless_data_come_back_as_one(d, draw):
    for seed in range(2):
        X = getattr(np.random.default_rng(seed), draw)((800, d))
        assert len(set(merged_by_neighbours(X, pieces(X, 20, seed)))) == 1


@pytest.mark.parametrize("d", [2, 3, 5, 20])
def test_ten_separated_gaussians_come_back_as_ten(d):
    X, lump = lumps(1000, d, distance=9.0)
    assert found_exactly(merged_by_neighbours(X, pieces(X, 30)), lump)


@pytest.mark.parametrize("seed", range(3))
def test_moons_come_back_as_two(seed):
    X, moon = make_moons(800, noise=0.07, random_state=seed)
    assert found_exactly(merged_by_neighbours(X, pieces(X, 24, seed)), moon)


@pytest.mark.parametrize("seed", range(3))
def test_rings_come_back_as_two(seed):
    rng = np.random.default_rng(seed)
    angle, outer = np.linspace(0, 2 * np.pi, 900, endpoint=False), np.arange(900) % 3 > 0
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    X = np.where(outer, 3.0, 1.2)[:, None] * circle + 0.12 * rng.standard_normal((900, 2))
    assert found_exactly(merged_by_neighbours(X, pieces(X, 24, seed)), outer)


def test_lumps_of_other_size_and_density_come_back():
    rng = np.random.default_rng(0)
    lump = np.repeat([0, 1, 2], [600, 60, 200])
    X = rng.standard_normal((860, 2)) * np.array([1.0, 0.2, 3.0])[lump, None]
    X += np.array([[0, 0], [6, 0], [0, 16]])[lump]
    assert found_exactly(merged_by_neighbours(X, pieces(X, 20)), lump)


@pytest.mark.parametrize("leaning", [False, True])
def test_batches_of_one_distribution_come_back_as_one(leaning):
    # Cells that are mostly in one batch or in both alike, in which nothing else differs.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((800, 2))
    first = 0.5 + 0.4 * np.sign(X[:, 0]) * leaning
    batches = (rng.random(800) < first).astype(np.int64)
    assert len(set(merged_by_neighbours(X, pieces(X, 8), batches))) == 1


# --- one pair -------------------------------------------------------------------------------------


def connection_of(X, clusters, batches=None, seed=0):
    judge = Neighbourhoods(connect(X, clusters, batches), np.random.default_rng(seed))
    return judge.connection(0, 1)


@pytest.mark.parametrize("d", [2, 3, 4, 5, 10, 30])
def test_halves_of_one_are_connected_and_two_are_not(d):
    X = np.random.default_rng(d).standard_normal((600, d))
    assert connection_of(X, (X[:, 0] > 0).astype(np.int64)).strength >= 1
    half = np.arange(600) % 2
    apart = X + 6 * half[:, None] * (np.arange(d) == 0)
    assert connection_of(apart, half).strength < 1


@pytest.mark.parametrize("d", [2, 3, 4, 6])
def test_the_farther_apart_the_weaker(d):
    X, half = np.random.default_rng(d).standard_normal((600, d)), np.arange(600) % 2
    strengths = [
        connection_of(X + gap * half[:, None] * (np.arange(d) == 0), half).strength
        for gap in (1, 3, 5, 8)
    ]
    assert (np.diff(strengths) < 0).all()


def test_few_dimensions_go_by_neck_and_saddle_and_many_by_edges_and_neck():
    rng = np.random.default_rng(0)
    flat, deep = (
        connection_of(X, (X[:, 0] > 0).astype(np.int64))
        for X in (rng.standard_normal((500, d)) for d in (2, 12))
    )
    assert flat.dimension < FEW_DIMENSIONS < MANY_DIMENSIONS < deep.dimension
    assert math.isnan(flat.least_times)
    width = flat.neck / (NECK_SHARE * flat.usual_neck)
    depth = math.exp(flat.deepest_saddle - flat.saddle)
    assert depth > 1
    assert flat.strength == pytest.approx(min(width * depth, depth))
    assert math.isnan(deep.saddle)
    assert math.isnan(deep.deepest_saddle)
    of_edges = deep.times_chance / deep.least_times
    of_neck = min(deep.neck / deep.usual_neck, WIDEST_NECK)
    assert deep.strength == pytest.approx(math.sqrt(of_edges * of_neck))
    between = connection_of(X := rng.random((500, 4)), (X[:, 0] > 0.5).astype(np.int64))
    assert FEW_DIMENSIONS < between.dimension < MANY_DIMENSIONS
    for known in (between.usual_neck, between.least_times, between.deepest_saddle):
        assert known > 0


def test_few_edges_may_be_fewer_by_one_standard_error():
    X = np.random.default_rng(0).standard_normal((600, 8))
    # Pieces of very different sizes, so that their pairs have few edges and many.
    judge = Neighbourhoods(
        connect(X, np.digitize(X[:, 0], [-1.5, 0.0, 2.0])), np.random.default_rng(0)
    )
    pairs = [(0, 1), (1, 2), (2, 3)]
    edges = np.array([judge.connection(*pair).edges for pair in pairs])
    limits = np.array([judge.connection(*pair).least_times for pair in pairs])
    assert limits.argsort().tolist() == edges.argsort().tolist()
    before = limits * (1 + 1 / np.sqrt(edges))
    assert before == pytest.approx(before.mean(), rel=0.02)


def test_evidence_is_that_of_merged_clusters():
    X = np.random.default_rng(0).standard_normal((400, 2))
    clusters = pieces(X, 5)
    judge = Neighbourhoods(connect(X, clusters), np.random.default_rng(0))
    judge.merge(1, 3)
    judge.merge(0, 4)
    anew = Neighbourhoods(connect(X, np.array([0, 1, 2, 1, 0])[clusters]), np.random.default_rng(0))
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        assert astuple(judge.connection(a, b)) == pytest.approx(
            astuple(anew.connection(a, b)), nan_ok=True
        )


def test_the_graph_that_was_given_stays_as_it_was():
    X = np.random.default_rng(0).standard_normal((200, 2))
    graph = connect(X, pieces(X, 4))
    before = graph.clusters.copy()
    judge = Neighbourhoods(graph, np.random.default_rng(0))
    judge.merge(0, 1)
    assert np.array_equal(graph.clusters, before)


def test_clusters_of_one_are_no_error():
    X = np.random.default_rng(0).standard_normal((60, 2))
    clusters = np.where(np.arange(60) < 2, np.arange(60), 2)
    judge = Neighbourhoods(connect(X, clusters), np.random.default_rng(0))
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        assert judge.connection(a, b).strength >= 0
    for d in (2, 12):
        assert connection_of(np.zeros((40, d)), np.arange(40) % 2).strength >= 0


# --- in words -------------------------------------------------------------------------------------


FEW = {"dimension": 2.0, "usual_neck": 0.5}
MANY = {"dimension": 9.0, "usual_neck": 0.2}
HALF_WAY = {"dimension": 2.95, "usual_neck": 0.2}


@pytest.mark.parametrize(
    ("known", "strength"),
    [
        # In few dimensions the smaller of neck and saddle.
        (Connection(30, 0.5, math.nan, neck=0.8, **FEW), 2.0),
        (Connection(30, 0.5, math.nan, neck=0.2, **FEW), 0.5),
        (Connection(30, 0.5, math.nan, neck=0.8, saddle=0.8, deepest_saddle=0.5, **FEW), 0.740818),
        # ... where a neck may be the narrower the less the density falls.
        (Connection(30, 0.5, math.nan, neck=0.1, saddle=0.0, deepest_saddle=0.5, **FEW), 0.412180),
        # In many dimensions the geometric mean of edges and neck, or edges alone.
        (Connection(30, 0.5, 0.25, neck=0.1, **MANY), 1.0),
        (Connection(30, 0.5, 0.25, neck=0.3, **MANY), 3**0.5),
        (Connection(30, 0.5, 0.25, neck=0.4, **MANY), 3**0.5),  # a wide neck is nothing special
        (Connection(30, 0.5, 0.25, dimension=9.0), 2.0),
        (Connection(1, 0.2, 0.4, dimension=9.0), 0.5),
        # Half-way between few and many dimensions both count alike.
        (Connection(30, 1.0, 0.25, neck=0.32, **HALF_WAY), (2 * 6**0.5) ** 0.5),
        # However strong all else is, nothing is connected without an edge.
        (Connection(0, 0.0, math.nan, neck=0.0, **FEW), 0.0),
        (Connection(0, 0.0, 0.4, neck=0.0, **MANY), 0.0),
        (Connection(30, 1e9, 0.25, dimension=9.0), 1000.0),
    ],
)
def test_the_strength_is_relative_to_what_counts(known, strength):
    assert known.strength == pytest.approx(strength, rel=1e-5)


@pytest.mark.parametrize(
    ("strength", "edges", "why"),
    [
        (1.3, 120, "strongly connected: strength 1.3, merged from 1 on (120 edges)"),
        (1.0, 1, "strongly connected: strength 1, merged from 1 on (1 edge)"),
        (0.62, 14, "weakly connected: strength 0.62, merged from 1 on (14 edges)"),
        (0.9987, 1400, "weakly connected: strength 0.999, merged from 1 on (1,400 edges)"),
        (0.99996, 9, "weakly connected: strength 0.99996, merged from 1 on (9 edges)"),
        (1000.0, 30, "strongly connected: strength 1,000, merged from 1 on (30 edges)"),
        (0.0, 0, "no edge between them in the neighbour graph"),
    ],
)
def test_the_sentence_says_what_decided(strength, edges, why):
    known = PairEvidence(0.9, 1.0, 1e-9, strength=strength, edges=edges)
    assert because(Reason(GRAPH, 1.0), known) == why


def test_without_an_edge_nothing_is_connected():
    # Also if structureless data had none either.
    assert Connection(0, 0.0, 0.0, neck=0.0, usual_neck=0.0, dimension=9.0).strength < 1


# --- many observations ----------------------------------------------------------------------------


@pytest.fixture
def few_judged(monkeypatch):
    monkeypatch.setattr(neighbourhoods, "MOST_JUDGED", 200)
    monkeypatch.setattr(neighbourhoods, "JUDGED_A_CLUSTER", 5)
    monkeypatch.setattr(neighbourhoods, "MOST_JUDGED_AT_ALL", 300)


def test_thinning_keeps_one_of_each_cluster(few_judged):
    X = np.random.default_rng(0).standard_normal((2000, 2))
    clusters = np.zeros(2000, np.int64)
    clusters[:30] = np.arange(30)  # clusters of one
    batches = np.arange(2000) % 2
    graph = thinned(connect(X, clusters, batches), np.random.default_rng(0))
    assert 200 <= len(graph.clusters) <= 230
    assert set(graph.clusters.tolist()) == set(range(30))
    rows = [int(np.flatnonzero((x == X).all(axis=1))[0]) for x in graph.features]
    assert len(set(rows)) == len(rows)
    assert np.array_equal(clusters[rows], graph.clusters)
    assert np.array_equal(batches[rows], graph.batches)
    # The large cluster has its share of fifteen neighbours in a batch, the others the fewest.
    degrees = graph.adjacency.sum(axis=1)
    assert degrees[graph.clusters == 0].min() >= 15 // 2
    assert 3 <= degrees[graph.clusters > 0].min() < 15 // 2


@pytest.mark.parametrize(("k", "most"), [(10, 200), (50, 250), (100, 300)])
def test_more_clusters_are_judged_by_more_observations(few_judged, k, most):
    X = np.random.default_rng(0).standard_normal((2000, 2))
    graph = connect(X, np.arange(2000) % k)
    assert most <= len(thinned(graph, np.random.default_rng(0)).clusters) <= most + k


def test_few_observations_are_all_judged_by():
    X = np.random.default_rng(0).standard_normal((300, 2))
    graph = connect(X, np.arange(300) % 3)
    assert thinned(graph, np.random.default_rng(0)) is graph


def test_what_counts_for_no_cluster_is_not_judged_by(few_judged):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((300, 2)), 99 + rng.standard_normal((300, 2))])
    known = np.where(np.arange(600) < 100, np.arange(600) % 3, -1)
    graph = connect(X, known)
    assert (graph.clusters < 0).sum() == 300
    assert (thinned(graph, rng).clusters >= 0).all()


def test_all_edges_are_reported_though_some_are_judged_by(few_judged):
    X, lump = lumps(2000, 2, distance=4.0, n_lumps=2)
    graph = connect(X, lump)
    found = Neighbourhoods(graph, np.random.default_rng(0)).connection(0, 1)
    left, right = (np.flatnonzero(graph.clusters == cluster) for cluster in (0, 1))
    assert found.edges == graph.adjacency[left][:, right].sum()


def test_the_answer_is_the_same_judged_by_some(few_judged):
    X, lump = lumps(3000, 2, distance=9.0, n_lumps=4, seed=1)
    clusters = pieces(X, 8, seed=1)
    # Of fewer than FEWEST_JUDGED only edges are counted, which say less in few dimensions.
    sample = thinned(connect(X, clusters), np.random.default_rng(0))
    assert np.bincount(sample.clusters).min() >= FEWEST_JUDGED
    assert found_exactly(merged_by_neighbours(X, clusters), lump)


# --- in a merge tree ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cut():
    """Two lumps of three clusters each, which only touch; the estimate, data and labels."""
    means = [[0, 0], [2.5, 0], [0, 2.5], [20, 0], [22.5, 0], [20, 2.5]]
    result, X = gaussian_estimate(means, 150)
    return result, X, labels_of(result)


def test_a_tree_has_what_neighbours_say(cut):
    result, X, labels = cut
    graph = neighbour_graph(X, labels)
    tree = merge(result, neighbours=graph, labels_from="clustering", random_state=0)
    assert tree.groups.tolist() == [0, 0, 0, 1, 1, 1]
    assert tree.statistic == "edges"
    assert tree.stopped == ENDING
    below = members_of_nodes(tree.merges, 6)
    for step in (*tree.merges, *tree.apart):
        members = [np.isin(graph.clusters, below[node]) for node in (step.left, step.right)]
        edges = graph.adjacency[np.flatnonzero(members[0])][:, np.flatnonzero(members[1])].sum()
        assert step.edges == edges
        assert 0 <= step.neck <= 1
    assert all(step.strength >= 1 for step in tree.merges[:4])
    assert tree.merges[4].strength < 1
    assert tree.merges[4].why == "beyond the cut: no edge between them in the neighbour graph"
    (apart,) = tree.apart
    assert apart.why == "no edge between them in the neighbour graph"
    assert (apart.strength, apart.verdict) == (0, "different")


def test_without_a_graph_nothing_is_said_of_neighbours(cut):
    tree = merge(cut[0], rule=Always())
    for step in (*tree.merges, *tree.apart):
        for name in ("edges", "times_chance", "neck", "strength"):
            assert math.isnan(getattr(step, name))


def test_names_do_not_matter(cut):
    result, X, labels = cut
    names = np.array(["10", "9", "2", "x", "a", "1"])
    # The same estimate under other names, in their order.
    order = np.argsort(names)
    renamed = result.reordered(order)
    object.__setattr__(renamed, "cluster_ids", names[order])
    tree = merge(
        result, neighbours=neighbour_graph(X, labels), labels_from="clustering", random_state=0
    )
    other = merge(
        renamed,
        neighbours=neighbour_graph(X, names[labels]),
        labels_from="clustering",
        random_state=0,
    )
    old = {name: tree.mapping[i] for i, name in enumerate(names.tolist())}
    assert len(set(zip(old.values(), [other.mapping[n] for n in old], strict=True))) == 2
    found, expected = (
        [(m.edges, m.strength, m.statistic, m.why) for m in t.merges] for t in (other, tree)
    )
    assert found == expected


def test_a_number_of_clusters_is_on_the_tree_of_auto(cut):
    result, X, labels = cut
    graph = neighbour_graph(X, labels)
    tree = merge(result, neighbours=graph, labels_from="clustering", random_state=0)
    for n in (1, 3, 5):
        asked = merge(
            result, neighbours=graph, n_clusters=n, labels_from="clustering", random_state=0
        )
        assert asked.groups.tolist() == tree.cut(n_clusters=n).groups.tolist()


def test_a_graph_of_other_clusters_is_refused(cut):
    result, X, labels = cut
    sentence = "neighbours has 3 clusters but distances has 6; make both from the same labels"
    with pytest.raises(InputError, match=sentence):
        merge(result, neighbours=neighbour_graph(X, labels // 2))
    with pytest.raises(InputError, match='rank_by="edges" needs neighbours; pass'):
        merge(result, rank_by="edges")


@pytest.mark.parametrize("rank_by", ["auto", "lecam"])
def test_every_ranking_goes_by_neighbours(rank_by):
    X, lump = lumps(240, 2, distance=12.0, n_lumps=2)
    merger = ClusterMerger(
        rank_by=rank_by, cv=2, training=TrainConfig(epochs=15), random_state=0, device="cpu"
    )
    assert found_exactly(merger.fit_predict(X, initial_labels=pieces(X, 6)), lump)
    assert merger.tree_.stopped.startswith(ENDING)


# --- features of data that are no vectors ---------------------------------------------------------


def test_images_have_neighbours_in_the_features_passed():
    rng = np.random.default_rng(0)
    labels, features = np.arange(60) % 3, rng.standard_normal((60, 2))
    images = rng.random((60, 8, 8)).astype(np.float32)
    merger = ClusterMerger(
        backbone="single-layer", cv=2, training=TrainConfig(epochs=1), device="cpu", random_state=0
    )
    found = merger.fit(images, initial_labels=labels, features=features)
    assert np.array_equal(
        Connections(found.neighbours_).edges,
        Connections(neighbour_graph(features, labels)).edges,
    )
    by_scores = merger.fit(images, initial_labels=labels).neighbours_
    assert by_scores.features.shape == (60, 3)  # probabilities of the clusters
    assert np.allclose((by_scores.features**2).sum(axis=1), 1)
    for wrong in (features[:9], features[:59]):
        with pytest.raises(InputError) as caught:
            merger.fit(images, initial_labels=labels, features=wrong)
        assert str(caught.value) == (
            "features must have one row for each of the 60 observations in X, got shape "
            f"{wrong.shape}; pass the features of the same observations."
        )


def test_vectors_may_have_other_features_too():
    X, _ = lumps(160, 2, distance=9.0, n_lumps=2)
    labels = pieces(X, 4)
    shuffled = np.random.default_rng(0).standard_normal((160, 2))  # say nothing of the lumps
    merger = ClusterMerger(cv=2, training=TrainConfig(epochs=1), device="cpu", random_state=0)
    own, other = (
        merger.fit(X, initial_labels=labels, features=features).neighbours_
        for features in (None, shuffled)
    )
    assert np.array_equal(np.sort(own.features, axis=0), np.sort(X, axis=0))
    assert np.array_equal(np.sort(other.features, axis=0), np.sort(shuffled, axis=0))


def test_a_cluster_that_held_nothing_out_goes_where_the_networks_put_it():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(121, 8, 8)).astype(np.float32)
    images[60:] += 2.0
    labels = np.repeat([0, 1], [60, 61])
    labels[-1] = 2  # alone, and one of the second
    merger = ClusterMerger(
        backbone="single-layer", cv=3, training=TrainConfig(epochs=20), device="cpu", random_state=0
    )
    with pytest.warns(SmallClusterWarning):
        merger.fit(images, initial_labels=labels)
    assert merger.tree_.groups.tolist() == [0, 1, 1]
    assert "the network assigns them to this cluster" in merger.tree_.merges[0].why
