"""Answers that once contradicted their own evidence, and must not do so again."""

import warnings
from collections import Counter

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from benchmarks.one_and_ten import Run, draw
from benchmarks.peers.overclusterings import OVERCLUSTERINGS
from benchmarks.peers.task import Problem
from benchmarks.small_groups import far_apart, forty_pairs, rare_groups, twelve_groups
from unsplit import ClusterMerger, TrainConfig, neighbour_graph
from unsplit.merging.neighbours.refine import merge_units

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True, scope="module")
def few_remerges():
    """Merge again as often as users do."""


def fitted(X, labels, **options):
    return ClusterMerger(device="cpu", random_state=0, **options).fit(X, initial_labels=labels)


# --- small groups ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [6, 14])
def test_twelve_far_groups_of_a_few_stay_apart(n):
    case = twelve_groups(n, np.random.default_rng(0))
    merger = fitted(case.X, case.clusters)
    assert merger.n_clusters_ == 12
    assert (merger.refined_labels_ == merger.labels_).all()


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, 10])
def test_rare_groups_stay_beside_large_ones_that_merge(n):
    case = rare_groups(n, np.random.default_rng(0))
    merger = fitted(case.X, case.clusters)
    assert adjusted_rand_score(case.y, merger.labels_) == 1
    assert adjusted_rand_score(case.y, merger.refined_labels_) > 0.99


@pytest.mark.slow
def test_forty_far_groups_in_pairs_of_five_are_found():
    case = forty_pairs(np.random.default_rng(0))
    assert adjusted_rand_score(case.y, fitted(case.X, case.clusters).labels_) == 1


@pytest.mark.parametrize("n", [4, 8])
def test_alpha_never_merges_what_is_perfectly_separated(n):
    X, y = far_apart(np.full(20, n), np.random.default_rng(0))
    tree = fitted(X, y, alpha=0.05).tree_
    assert tree.n_clusters == 20
    undecided = "undecided" in {pair.reason for pair in tree.apart}
    assert undecided == ("or has too few observations to decide" in tree.stopped)
    assert undecided == (n < 5)  # clusters of five can differ significantly


def few_images(n_groups, n, per_group):
    """Images of unlike patterns, in ``per_group`` clusters of each."""
    rng = np.random.default_rng(0)
    patterns, y = rng.uniform(size=(n_groups, 16, 16)), np.repeat(np.arange(n_groups), n)
    X = np.clip(patterns[y] + 0.3 * rng.standard_normal((len(y), 16, 16)), 0, 1)
    return X[:, None].astype(np.float32), y, per_group * y + np.arange(len(y)) % per_group


@pytest.mark.slow
def test_a_few_images_of_each_group_stay_apart():
    X, _, clusters = few_images(12, 6, 1)
    merger = fitted(X, clusters)
    assert merger.n_clusters_ == 12
    assert (merger.refined_labels_ == merger.labels_).all()
    # So few decide nothing, and the review says so.
    whys = merger.review_["why"]
    assert whys.str.startswith("cannot decide: TVD ").all()
    assert set(merger.review_["verdict"]) == {"unclear"}


@pytest.mark.slow
def test_pairs_of_a_few_images_are_put_together():
    X, y, clusters = few_images(20, 10, 2)
    merger = fitted(X, clusters)
    assert adjusted_rand_score(y, merger.labels_) > 0.8
    assert not any(
        row.step is not None and row.pair.verdict == "different" for row in merger.tree_.reviewed
    )


# --- data without structure -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "d"),
    [
        ("gaussian", 2), ("uniform", 2), ("exponential", 50), ("log-normal", 2), ("student t", 5),
        ("correlated", 10), ("poisson", 2), ("banana", 2), ("ring", 2), ("bars", 2),
    ],
)  # fmt: skip
def test_data_without_structure_are_one_cluster(kind, d):
    X = draw(Run(kind, d, "k-means", 0, True))
    pieces = KMeans(20, n_init=3, random_state=0).fit_predict(X)
    graph = neighbour_graph(X, pieces, device="cpu")
    assert len(np.unique(merge_units(graph, graph.clusters, None))) == 1


# --- labels from elsewhere ------------------------------------------------------------------------


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_classes_stay_apart_where_labels_come_from_elsewhere(load):
    X, y = load(return_X_y=True)
    merger = fitted(StandardScaler().fit_transform(X), y, labels_from="elsewhere")
    assert (merger.labels_ == y).all()


# --- what is said -------------------------------------------------------------------------------


def test_what_is_merged_is_never_called_different_and_what_is_same_is_never_apart():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((n, 4)) + 3.5 * i for i, n in enumerate((300, 90, 40))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pieces = KMeans(15, n_init=1, random_state=0).fit_predict(X)
    rows = fitted(X, pieces, cv=2).tree_.reviewed
    made = Counter((row.done, row.pair.verdict) for row in rows if not row.told)
    assert made["merged", "different"] == 0
    assert made["kept apart", "probably same"] == made["kept apart", "same"] == 0


def test_a_refused_pair_is_judged_again_when_the_limit_has_fallen():
    # The fewer clusters are left, the fewer edges the closest two have.  This came back as three
    # clusters, of which two had a strength of 1.4.
    run = Run("correlated", 10, "leiden", 2, True)
    X = draw(run)
    problem = Problem(run.kind, X, np.zeros(len(X), np.int64))
    labels = OVERCLUSTERINGS["leiden"](problem, 20, run.seed)
    assert fitted(X, labels, training=TrainConfig(epochs=2), cv=2).n_clusters_ == 1
