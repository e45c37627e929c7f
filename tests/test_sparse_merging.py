"""Merging from a sparse estimate gives what merging from all pairs gives."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage
from sklearn.cluster import KMeans

import unsplit
from tests.sparse_cases import both_forms, scores_of_means, whole_scores
from tests.test_tiny_clusters import EveryPair
from unsplit import ClusterMerger, InputError, merge, neighbour_graph
from unsplit.merging.decision import UNCONNECTED, Always
from unsplit.merging.sparse_pairs import ClosestStoredPairs, LinkedPairs
from unsplit.pairwise import api

N_GROUPS, PER_GROUP = 12, 120


def data(seed, kind, dimensions=6):
    """Groups of Gaussians, split at random or cut by k-means."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat(np.arange(N_GROUPS), PER_GROUP))
    centres = 2.5 * rng.normal(size=(N_GROUPS, dimensions))
    X = centres[truth] + rng.normal(size=(len(truth), dimensions))
    if kind == "random":
        return X, truth * 5 + rng.integers(5, size=len(X)), truth
    return X, KMeans(60, n_init=1, random_state=seed).fit_predict(X).astype(np.int64), truth


@cache
def estimates(seed, kind, dimensions=6):
    X, clusters, truth = data(seed, kind, dimensions)
    dense, sparse = both_forms(scores_of_means(X, clusters))
    return dense, sparse, neighbour_graph(X, clusters), truth, clusters


@pytest.mark.filterwarnings("ignore::unsplit.errors.PartitionWarning")
@pytest.mark.parametrize(("kind", "seed"), [("random", 0), ("kmeans", 1)])
@pytest.mark.parametrize(
    "options",
    [{}, {"n_clusters": N_GROUPS}, {"max_tvd": 0.4}, {"alpha": 0.05}],
    ids=str,
)
def test_labels_are_those_of_the_dense_form(options, kind, seed):
    dense, sparse, graph, *_ = estimates(seed, kind)
    tree, expected = (merge(form, neighbours=graph, **options) for form in (sparse, dense))
    np.testing.assert_array_equal(tree.groups, expected.groups)
    assert tree.statistic == expected.statistic
    assert tree.stopped == expected.stopped


def test_many_clusters_without_a_graph():
    rng = np.random.default_rng(0)
    # Large enough for the test, with which the graph of scores of the dense form then agrees.
    truth = rng.permutation(np.repeat(np.arange(8), 200))
    X = 2 * rng.normal(size=(8, 8))[truth] + rng.normal(size=(len(truth), 8))
    dense, sparse = both_forms(scores_of_means(X, truth * 10 + rng.integers(10, size=len(X))))
    for options in ({}, {"n_clusters": 8}):
        trees = [merge(form, **options) for form in (dense, sparse)]
        np.testing.assert_array_equal(trees[0].groups, trees[1].groups)
    assert trees[1].n_clusters == 8


def test_the_evidence_of_merges_is_that_of_the_dense_form():
    dense, sparse, graph, *_ = estimates(0, "random")
    trees = [merge(form, neighbours=graph) for form in (dense, sparse)]
    known = [
        {frozenset(_leaves(tree, m)): m for m in tree.merges if np.isfinite(m.tvd)}
        for tree in trees
    ]
    shared = known[0].keys() & known[1].keys()
    assert len(shared) >= 20
    for sides in shared:
        one, other = known[0][sides], known[1][sides]
        assert one.tvd == pytest.approx(other.tvd, abs=1e-6)
        assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=1e-6)
        assert one.p_adjusted == pytest.approx(other.p_adjusted, rel=1e-3)


def _leaves(tree, merge):
    below = [{leaf} for leaf in range(tree.n_initial)]
    for step in tree.merges:
        below.append(below[step.left] | below[step.right])
        if step is merge:
            return {frozenset(below[step.left]), frozenset(below[step.right])}
    raise AssertionError


def test_few_dimensions_are_judged_by_necks_as_in_the_dense_form():
    dense, sparse, graph, *_ = estimates(1, "kmeans", dimensions=2)
    tree, expected = (merge(form, neighbours=graph, random_state=0) for form in (sparse, dense))
    np.testing.assert_array_equal(tree.groups, expected.groups)
    assert any(np.isfinite(m.neck) for m in tree.merges)


@pytest.mark.parametrize("kind", ["random", "kmeans"])
def test_the_tree_is_complete_and_can_be_cut_and_saved(kind, tmp_path):
    _, sparse, graph, *_ = estimates(0, kind)
    tree = merge(sparse, neighbours=graph)
    assert len(tree.merges) == tree.n_initial - 1
    assert tree.cut(n_clusters=2).n_clusters == 2
    assert (np.diff(tree.linkage[:, 2]) >= 0).all()
    tree.save(tmp_path / "tree.npz")
    assert (unsplit.MergeTree.load(tmp_path / "tree.npz").groups == tree.groups).all()
    review = tree.review_table()
    assert {"merged", "kept apart"} == set(review["done"])


def far_apart(k=8):
    """An estimate of clusters that are never confused, of sizes 3, 4, 5 and so on."""
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(k), np.arange(3, k + 3))
    X = 100 * np.eye(k)[clusters] + rng.normal(size=(len(clusters), k))
    return both_forms(scores_of_means(X, clusters))[1]


def test_what_nothing_connects_is_joined_largest_first():
    sparse = far_apart()
    assert len(sparse.pairs) == 0
    tree = merge(sparse)
    assert tree.n_clusters == 8
    assert [merge.right if merge.left >= 8 else merge.left for merge in tree.merges[:2]] == [6, 5]
    assert tree.merges[0].reason == UNCONNECTED
    told = merge(sparse, n_clusters=3)
    assert told.n_clusters == 3
    assert told.mapping == {0: 0, 1: 1, 2: 2, 3: 2, 4: 2, 5: 2, 6: 2, 7: 2}


def test_links_are_obeyed():
    _, sparse, graph, *_ = estimates(0, "random")
    free = merge(sparse, neighbours=graph)
    together = np.flatnonzero(free.groups == free.groups[0])[:3].tolist()
    other = int(np.flatnonzero(free.groups != free.groups[0])[0])
    tree = merge(
        sparse,
        neighbours=graph,
        constraints={
            "must_link": [(together[0], other)],
            "cannot_link": [(together[0], together[1])],
        },
    )
    assert tree.groups[together[0]] == tree.groups[other]
    assert tree.groups[together[0]] != tree.groups[together[1]]
    assert tree.n_forbidden >= 1
    assert "cannot_link" in tree.stopped
    with pytest.raises(InputError, match="more than the 2 requested"):
        merge(sparse, n_clusters=2, constraints={"cannot_link": [(0, 5, 10)]})


@pytest.mark.parametrize(("bounds", "n_left"), [((30, None), 30), ((None, 6), 6)])
def test_bounds_hold(bounds, n_left):
    dense, sparse, graph, *_ = estimates(2, "kmeans")
    tree, expected = (merge(form, bounds, neighbours=graph) for form in (sparse, dense))
    assert tree.n_clusters == n_left
    np.testing.assert_array_equal(tree.groups, expected.groups)


def test_what_needs_all_pairs_is_refused_in_a_sentence():
    with pytest.raises(InputError, match='rank_by="overlap" needs the distances of all pairs'):
        merge(far_apart(), rank_by="overlap")


def test_a_user_can_bring_a_rule():
    _, sparse, graph, *_ = estimates(0, "random")
    tree = merge(sparse, neighbours=graph, rule=Always())
    # Pairs that are neither confused nor connected are not judged.
    assert tree.n_clusters < N_GROUPS
    assert tree.stopped == "no pair is left to merge"


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(2, 12), reach=st.sampled_from([None, 1, 2, 3]))
def test_the_heap_finds_what_looking_at_all_pairs_finds(seed, k, reach):
    rng = np.random.default_rng(seed)
    matrix = np.triu(np.round(rng.random((k, k)), 1) * 0.9, 1)
    stored = np.triu(rng.random((k, k)) < 0.6, 1)
    matrix = np.where(stored, matrix, np.inf)
    matrix = np.minimum(matrix, matrix.T)
    near = [{int(b): float(row[b]) for b in np.flatnonzero(row < np.inf)} for row in matrix]
    heap = ClosestStoredPairs(near, reach)
    every = EveryPair(matrix, reach)
    alive = set(range(k))
    for _ in range(4 * k):
        closest = heap.closest()
        assert closest == every.closest()
        if closest is None:
            return
        a, b = closest
        assert heap.distance(a, b) == every.distance(a, b)
        if rng.random() < 0.4:
            heap.forbid(a, b)
            every.forbid(a, b)
            continue
        row = np.minimum(every.known[a], every.known[b]) + 0.05
        row[[a, b]] = np.inf
        row[rng.random(k) < 0.1] = np.inf  # as if cannot_link kept them apart from now on
        alive.remove(b)
        every.remove(b)
        every.set_row(a, row)
        heap.remove(b)
        heap.set_row(a, {int(c): float(row[c]) for c in alive if np.isfinite(row[c])})


def test_merges_of_stored_pairs_are_those_of_scipy():
    rng, k = np.random.default_rng(0), 40
    distances = rng.random(k * (k - 1) // 2)
    ranking = LinkedPairs(k, *np.triu_indices(k, 1), distances, "tv")
    search = ClosestStoredPairs([ranking.near(a) for a in range(k)])
    heights = []
    while (pair := search.closest()) is not None:
        heights.append(search.distance(*pair))
        ranking.merge(*pair)
        search.remove(pair[1])
        search.set_row(pair[0], ranking.near(pair[0]))
    np.testing.assert_allclose(heights, linkage(distances, "average")[:, 2])


@pytest.mark.parametrize("options", [{}, {"max_tvd": 0.9}, {"n_clusters": 1}])
def test_a_merge_of_everything_says_so(options):
    rng = np.random.default_rng(0)
    X, clusters = rng.normal(size=(400, 6)), rng.permutation(np.arange(400) % 8)
    _, sparse = both_forms(scores_of_means(X, clusters))
    assert merge(sparse, **options).stopped == "only one cluster is left"


@pytest.mark.parametrize("seed", range(2))
def test_clusters_too_small_to_compare_are_merged_as_in_the_dense_form(seed):
    dense, sparse = both_forms(whole_scores(20, 4, 2, seed), most=20)
    assert sparse.too_small.any()
    trees = [
        merge(form, constraints={"must_link": [(0, 10)]}, max_tvd=0.3) for form in (dense, sparse)
    ]
    np.testing.assert_array_equal(trees[0].groups, trees[1].groups)


def test_an_estimator_of_many_clusters_is_sparse(monkeypatch):
    monkeypatch.setattr(api, "MANY_CLUSTERS", 3)
    X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0], [9, 0]], 60, random_state=0)
    merger = ClusterMerger(cv=2, training=unsplit.TrainConfig(epochs=5), random_state=0).fit(
        X, initial_labels=labels
    )
    assert merger.pairwise_.is_sparse
    assert merger.tree_.mapping == {0: 0, 1: 0, 2: 1, 3: 1}
    assert merger.tvd_[0, 2] == 1
    assert merger.predict([[0, 0], [9, 0]]).tolist() == [0, 1]


def test_what_needs_all_pairs_is_refused_before_training(monkeypatch):
    monkeypatch.setattr(api, "MANY_CLUSTERS", 3)
    X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0], [9, 0]], 20, random_state=0)
    told = []
    merger = ClusterMerger(
        training=unsplit.TrainConfig(epochs=2), progress=told.append, rank_by="overlap"
    )
    with pytest.raises(InputError, match="needs the distances of all pairs"):
        merger.fit(X, initial_labels=labels)
    assert not told
