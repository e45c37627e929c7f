import sys
import warnings
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist
from scipy.stats import anderson
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import adjusted_rand_score, homogeneity_score, silhouette_score

import unsplit
from benchmarks.baselines import confusion_merging
from benchmarks.peers.methods import (
    FROM_SCRATCH,
    METHODS,
    SLOW,
    confusion,
    forest_test,
    ours,
    trees,
)
from benchmarks.peers.methods.choir import choir
from benchmarks.peers.methods.choose_number import kmeans_by_silhouette, mixture_by_bic
from benchmarks.peers.methods.confusion import confusion_loop
from benchmarks.peers.methods.dip import dip_p_value, dip_statistic
from benchmarks.peers.methods.dipdeck import Given, dipdeck
from benchmarks.peers.methods.energy import energy_clustering, energy_linkage
from benchmarks.peers.methods.finch import _package, finch, finch_of_clusters
from benchmarks.peers.methods.gmeans import CRITICAL, anderson_darling, gmeans
from benchmarks.peers.methods.leiden import leiden
from benchmarks.peers.methods.linkage import (
    average_of_clusters,
    average_of_means,
    centroid_of_clusters,
    from_scratch,
    ward_of_clusters,
)
from benchmarks.peers.methods.ours import merged_otherwise, unsplit_family
from benchmarks.peers.methods.sccaf import sccaf
from benchmarks.peers.methods.scratch import (
    genie,
    hdbscan,
    hdbscan_of_hundredths,
    kmeans,
    lumbermark,
    plscan,
    spectral,
    without_noise,
)
from benchmarks.peers.methods.transport import transport_linkage
from benchmarks.peers.methods.uniforce import is_unimodal, uniforce, without_small
from benchmarks.peers.task import Outcome, Task

leiden_one = leiden(1.0)
PACKAGES = {
    transport_linkage: "ot",
    finch: "finch",
    finch_of_clusters: "finch",
    sccaf: "igraph",
    dipdeck: "clustpy",
    leiden_one: "leidenalg",
    genie: "genieclust",
    lumbermark: "lumbermark",
    plscan: "fast_hdbscan",
}
GIVEN_NUMBER = [
    ward_of_clusters,
    average_of_clusters,
    centroid_of_clusters,
    average_of_means,
    energy_linkage,
    energy_clustering,
    transport_linkage,
    kmeans,
    from_scratch("ward"),
    from_scratch("average"),
    from_scratch("centroid"),
    finch,
    finch_of_clusters,
    genie,
    lumbermark,
    spectral,
]
AUTOMATIC = [
    choir,
    sccaf,
    hdbscan,
    hdbscan_of_hundredths,
    mixture_by_bic,
    kmeans_by_silhouette,
    gmeans,
    uniforce,
]


def blobs(n_blobs, splits, size=30, d=3):
    """Far apart, each cut at random into so many clusters; the task and the blobs."""
    rng = np.random.default_rng(0)
    blob = np.repeat(np.arange(n_blobs), splits * size)
    centers = 30.0 * rng.permutation(np.eye(max(n_blobs, d)))[:n_blobs, :d]
    clusters = blob * splits + rng.permutation(len(blob)) % splits
    clusters = np.unique(clusters, return_inverse=True)[1]
    return Task(centers[blob] + rng.standard_normal((len(blob), d)), clusters, 0), blob


def run(method, task):
    if method in PACKAGES:
        pytest.importorskip(PACKAGES[method])
    return method(task)


@pytest.mark.slow
@pytest.mark.parametrize("method", GIVEN_NUMBER)
def test_given_the_number_blobs_are_found(method):
    task, blob = blobs(3, 2)
    outcome = run(method, task)
    labels = outcome.at(3)
    assert labels.shape == blob.shape
    assert adjusted_rand_score(blob, labels) == 1.0


@pytest.mark.parametrize("method", [*GIVEN_NUMBER[:7], kmeans, from_scratch("centroid"), genie])
def test_as_many_groups_as_asked_for(method):
    task, _ = blobs(3, 4)
    outcome = run(method, task)
    assert [len(np.unique(outcome.at(n))) for n in range(1, 13)] == list(range(1, 13))


@pytest.mark.parametrize("method", GIVEN_NUMBER[:7])
def test_cuts_of_a_tree_are_nested(method):
    task, _ = blobs(3, 4)
    outcome = run(method, task)
    assert outcome.tree
    for n in range(1, 12):
        pairs = np.unique(np.column_stack([outcome.at(n), outcome.at(n + 1)]), axis=0)
        assert len(pairs) == n + 1


@pytest.mark.parametrize("method", AUTOMATIC)
def test_left_alone_blobs_are_found(method):
    task, blob = blobs(3, 2)
    assert adjusted_rand_score(blob, run(method, task).automatic) == 1.0


def test_leiden_keeps_far_groups_apart_and_finds_fewer_at_a_lower_resolution():
    task, blob = blobs(3, 2)
    fine, coarse = run(leiden_one, task).automatic, leiden(0.1)(task).automatic
    assert homogeneity_score(blob, fine) == pytest.approx(1.0)
    assert adjusted_rand_score(blob, coarse) == 1.0
    assert len(np.unique(fine)) >= len(np.unique(coarse))
    np.testing.assert_array_equal(fine, leiden_one(task).automatic)


@pytest.mark.parametrize("method", [mixture_by_bic, gmeans])
def test_one_gaussian_is_left_whole(method):
    X = np.random.default_rng(6).standard_normal((400, 3))
    assert not method(Task(X, np.zeros(400, np.int64), 0)).automatic.any()


@pytest.mark.slow
def test_plscan_keeps_far_groups_apart():
    task, blob = blobs(3, 2, size=60)
    outcome = run(plscan, task)
    assert homogeneity_score(blob, outcome.automatic) == pytest.approx(1.0)
    assert outcome.automatic.min() == 0
    assert outcome.seconds < 5  # compiling is not counted


def test_a_pair_is_unimodal_if_there_is_no_valley():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((400, 3))
    left = X[:, 0] < 0.3
    assert is_unimodal(X[left], X[~left], rng)
    assert not is_unimodal(X[left], X[~left] + np.array([2.0, 0, 0]), rng)


def test_uniforce_dissolves_what_is_too_small_for_a_test():
    X = np.concatenate([np.zeros((30, 1)), np.full((5, 1), 9.0), np.full((40, 1), 10.0)])
    clusters = np.repeat([0, 1, 2], [30, 5, 40])
    np.testing.assert_array_equal(without_small(X, clusters), np.repeat([0, 1], [30, 45]))
    few = clusters[25:35]
    np.testing.assert_array_equal(without_small(X[25:35], few), few)


def test_the_dip_has_its_known_values():
    assert dip_statistic(np.array([1.0, 2, 3, 4, 11, 12, 13, 14])) == pytest.approx(0.175)
    assert dip_statistic(np.arange(5.0)) == pytest.approx(0.1)
    assert dip_p_value(0.0703, 50) == pytest.approx(0.05, abs=0.002)  # as published
    assert dip_p_value(0.1, 5) == 1.0
    rng = np.random.default_rng(9)
    p = [dip_p_value(dip_statistic(rng.uniform(size=60)), 60) for _ in range(300)]
    assert np.mean(np.array(p) < 0.1) == pytest.approx(0.1, abs=0.05)


def test_the_statistic_of_g_means_is_scipys_and_its_level_is_kept():
    rng = np.random.default_rng(7)
    values = rng.standard_normal(50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy announces another return value
        expected = anderson(values, "norm").statistic
    assert anderson_darling(values) == pytest.approx(expected * (1 + 4 / 50 - 25 / 50**2))
    drawn = [anderson_darling(rng.standard_normal(100)) for _ in range(1000)]
    assert np.quantile(drawn, 0.95) == pytest.approx(0.752, abs=0.07)  # a published quantile
    assert np.mean(np.array(drawn) > CRITICAL) < 0.004


def test_g_means_leaves_few_or_equal_observations_alone():
    X = np.repeat([[0.0, 0.0], [5.0, 5.0]], [30, 3], axis=0)
    assert len(np.unique(gmeans(Task(X, np.zeros(33, np.int64), 0)).automatic)) == 2
    assert not gmeans(Task(X[:30], np.zeros(30, np.int64), 0)).automatic.any()


def test_finch_answers_the_partition_of_highest_silhouette():
    pytest.importorskip("finch")
    task, blob = blobs(3, 2)
    answer = finch(task).automatic
    offered = _package()(task.X, distance="euclidean")[0].T
    best = max(offered, key=lambda labels: silhouette_score(task.X, labels))
    assert adjusted_rand_score(best, answer) == 1.0
    # The blobs themselves it leaves out, as it does a partition that joins only two.
    assert len(np.unique(answer)) == 4
    assert homogeneity_score(blob, answer) == pytest.approx(1.0)


@pytest.fixture
def few_epochs(monkeypatch):
    quick = partial(unsplit.ClusterMerger, training=unsplit.TrainConfig(epochs=10))
    monkeypatch.setattr(ours, "ClusterMerger", quick)


@pytest.mark.usefixtures("few_epochs")
def test_the_family_shares_one_training():
    task, blob = blobs(2, 2, size=40)
    outcomes = unsplit_family(task) | merged_otherwise(task)
    assert len(outcomes) == 3 + 5
    for name, outcome in outcomes.items():
        assert outcome.seconds > 0, name
        if outcome.automatic is not None:
            assert adjusted_rand_score(blob, outcome.automatic) == 1.0, name
        if outcome.at is not None:
            assert adjusted_rand_score(blob, outcome.at(2)) == 1.0, name


@pytest.mark.parametrize(
    ("method", "of_clusters"),
    [
        ("ward", ward_of_clusters),
        ("average", average_of_clusters),
        ("centroid", centroid_of_clusters),
    ],
)
def test_clusters_of_one_give_scipys_tree(method, of_clusters):
    X = np.random.default_rng(1).standard_normal((25, 3))
    outcome = of_clusters(Task(X, np.arange(25), 0))
    expected = trees.outcome_of(linkage(X, method)[:, :2], np.arange(25))
    for n in range(1, 26):
        assert adjusted_rand_score(expected.at(n), outcome.at(n)) == 1.0


def squares(X):
    return ((X - X.mean(axis=0)) ** 2).sum()


def energies(X):
    """Half the mean distance, times the size: what energy clustering sums over the groups."""
    return cdist(X, X).sum() / len(X) / 2


def slow_merges(X, clusters, cost):
    """Groups of rows after each merge that adds least to the cost."""
    groups = [set(np.flatnonzero(clusters == c)) for c in range(clusters.max() + 1)]
    while len(groups) > 1:

        def added(pair):
            a, b = (X[sorted(group)] for group in pair)
            return cost(np.concatenate([a, b])) - cost(a) - cost(b)

        a, b = min(combinations(groups, 2), key=added)
        groups = [group for group in groups if group not in (a, b)] + [a | b]
        yield groups


@pytest.mark.parametrize(
    ("method", "cost"), [(ward_of_clusters, squares), (energy_clustering, energies)]
)
def test_merging_adds_least_to_the_cost(method, cost):
    rng = np.random.default_rng(2)
    X, clusters = rng.standard_normal((60, 2)), np.repeat(np.arange(7), [1, 2, 5, 7, 10, 15, 20])
    outcome = method(Task(X, clusters, 0))
    for groups in slow_merges(X, clusters, cost):
        labels = outcome.at(len(groups))
        assert {frozenset(np.flatnonzero(labels == g)) for g in set(labels)} == {
            frozenset(map(int, group)) for group in groups
        }


def test_energy_linkage_joins_the_least_energy_distance_first():
    rng = np.random.default_rng(3)
    clusters = np.repeat(np.arange(5), [4, 6, 8, 10, 12])
    X = rng.standard_normal((40, 2)) + clusters[:, None] ** 1.5
    parts = [X[clusters == c] for c in range(5)]
    slow = {
        (i, j): 2 * cdist(a, b).mean() - cdist(a, a).mean() - cdist(b, b).mean()
        for (i, a), (j, b) in combinations(enumerate(parts), 2)
    }
    labels = energy_linkage(Task(X, clusters, 0)).at(4)
    i, j = min(slow, key=slow.get)
    assert labels[clusters == i][0] == labels[clusters == j][0]


def test_the_loop_stops_where_it_would_have_and_goes_on(monkeypatch):
    small = partial(confusion_merging, n_estimators=10)
    monkeypatch.setattr(confusion, "confusion_merging", small)
    X = np.concatenate([blobs(2, 1, size=20)[0].X, [[30.0, 30.0, 30.0]]])
    task = Task(X, np.array([0, 1] * 10 + [2] * 20 + [2]), 0)
    outcome = confusion_loop(task)
    expected = small(task.X, task.clusters, random_state=task.seed)
    assert expected.n_clusters == 2
    np.testing.assert_array_equal(outcome.automatic, expected.labels)
    np.testing.assert_array_equal(outcome.at(3), task.clusters)
    assert not outcome.at(1).any()


def test_noise_joins_its_neighbour():
    X = np.array([[0.0], [1.0], [9.0], [8.0]])
    np.testing.assert_array_equal(without_noise(X, np.array([0, -1, 1, -1])), [0, 0, 1, 1])
    np.testing.assert_array_equal(without_noise(X, np.full(4, -1)), [0, 0, 0, 0])


def test_forests_vote_like_scikit_learns():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((200, 9)).astype(np.float32)
    y = (X[:, 0] + 0.5 * rng.standard_normal(200) > 0).astype(float)
    forest = RandomForestClassifier(50, random_state=0).fit(X[:100], y[:100])
    votes = forest_test._votes(X[:100], y[:100], X[100:], rng)
    assert np.corrcoef(votes, forest.predict_proba(X[100:])[:, 1])[0, 1] > 0.9


@pytest.mark.parametrize(("shift", "expected"), [(0.0, False), (1.2, True), (5.0, True)])
def test_forests_tell_apart_what_differs(shift, expected, monkeypatch):
    monkeypatch.setattr(forest_test, "DIVISIONS", 10)
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((2, 80, 4)).astype(np.float32)
    assert forest_test.told_apart(a, b + np.float32(shift), 0.05, rng) is expected


def test_given_clusters_take_the_place_of_kmeans():
    labels = np.array([0, 1, 1])
    np.testing.assert_array_equal(Given(2, labels).fit(np.zeros((3, 1))).labels_, labels)


@pytest.mark.parametrize(
    ("method", "package"), [(m, p) for m, p in PACKAGES.items() if m is not finch_of_clusters]
)
def test_a_missing_package_is_named(method, package, monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    task, _ = blobs(2, 2)
    with pytest.raises(ImportError, match=r"pip install (unsplit\[peers\]|--no-deps clustpy)"):
        method(task)
    assert "torchvision" not in sys.modules or sys.modules["torchvision"].__spec__ is not None


def test_the_register_holds_every_method():
    assert set(METHODS) > FROM_SCRATCH
    assert set(METHODS) > SLOW
    task, _ = blobs(2, 2)
    outcomes = METHODS["Ward of clusters"](task)
    assert list(outcomes) == ["Ward of clusters"]
    assert isinstance(outcomes["Ward of clusters"], Outcome)
