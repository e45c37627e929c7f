"""Whole groups are held out: observations of one track, session or donor are not independent."""

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from sklearn.model_selection import StratifiedGroupKFold

import unsplit as package
from tests.cli_cases import QUICK, read_csv, read_json, succeeds, unsplit
from unsplit import (
    ClusterMerger,
    InputError,
    PairwiseTVD,
    TrainConfig,
    merge,
    neighbour_graph,
    pairwise_tvd,
    read,
)
from unsplit.data.labels import Parts
from unsplit.data.rows.kinds import nearer_than_later, warn_of_order
from unsplit.errors import DependenceWarning, SmallClusterWarning
from unsplit.merging.api import _drawn
from unsplit.merging.neighbours.graph import graph_of_scores, nearest
from unsplit.merging.pairs import Mixtures
from unsplit.pairwise import statistics as stats
from unsplit.pairwise.groups import deal_groups, effective_numbers, group_p_value, separate_groups
from unsplit.pairwise.heldout_scores import crossfit_folds, holdout_fold
from unsplit.pairwise.result import by_groups

FAST = {"training": TrainConfig(epochs=3), "random_state": 0, "device": "cpu"}


def tracks(n_tracks, length, d, rho, rng):
    """Tracks of one stationary process: each row is close to the one before it."""
    x = rng.standard_normal((n_tracks, length, d))
    for t in range(1, length):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * x[:, t]
    return x.reshape(-1, d)


def clusters_of_tracks(k=3, per_cluster=10, length=10, d=3, rho=0.9, shift=6.0, seed=0):
    """Clusters of several tracks each; the last one is shifted."""
    X = tracks(k * per_cluster, length, d, rho, np.random.default_rng(seed))
    labels, groups = np.repeat(np.arange(k), per_cluster * length), np.arange(len(X)) // length
    X[labels == k - 1, 0] += shift
    return X, labels, groups


def crossed(n_groups=8, k=3, seed=0):
    """Every cluster has observations of every group, and a group shifts all of its own."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), 15)
    labels = rng.integers(0, k, len(groups))
    X = rng.standard_normal((len(groups), 2)) + 2 * rng.standard_normal((n_groups, 2))[groups]
    return X, labels, groups


@pytest.fixture(scope="module")
def nested():
    X, labels, groups = clusters_of_tracks()
    return pairwise_tvd(X, labels, groups=groups, **FAST)


@pytest.fixture(scope="module")
def shared():
    X, labels, groups = crossed()
    return pairwise_tvd(X, labels, groups=groups, **FAST)


@pytest.fixture(scope="module")
def lonely():
    """Like ``nested``, but the second cluster is a single group."""
    X, labels, groups = clusters_of_tracks()
    groups = np.where(labels == 1, groups[labels == 1][0], groups)
    with pytest.warns(SmallClusterWarning, match=r"1 of 3 clusters are one group each \(1\)"):
        result = pairwise_tvd(X, labels, groups=groups, **FAST)
    return X, labels, groups, result


# --- folds ----------------------------------------------------------------------------------------


def unbalanced(seed, n_groups=60, k=5):
    """Groups of very different sizes, each with a few clusters."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 40, n_groups)
    groups = np.repeat(np.arange(n_groups), sizes)
    of = rng.integers(0, k, (n_groups, 2))
    return of[groups, rng.integers(0, 2, len(groups))], groups


@pytest.mark.parametrize("make", [unbalanced, lambda s: crossed(seed=s)[1:]])
@pytest.mark.parametrize("seed", range(3))
def test_whole_groups_are_held_out_once_and_every_cluster_is_trained_on(make, seed):
    clusters, groups = make(seed)
    folds = crossfit_folds(clusters, 5, None, groups)
    held_out = np.concatenate([fold.test for fold in folds])
    assert np.array_equal(np.sort(held_out), np.arange(len(clusters)))
    for fold in folds:
        assert not set(groups[fold.train]) & set(groups[fold.test])
        assert set(clusters[fold.train]) == set(clusters)


@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_spread_over_folds_at_least_as_well_as_by_scikit_learn(seed):
    clusters, groups = unbalanced(seed)

    def imbalance(tests):
        table = np.stack([np.bincount(clusters[test], minlength=5) for test in tests])
        return ((table / table.sum(axis=0) - 1 / 5) ** 2).sum()

    theirs = StratifiedGroupKFold(5).split(np.zeros(len(clusters)), clusters, groups)
    ours = imbalance([fold.test for fold in crossfit_folds(clusters, 5, None, groups)])
    assert ours <= imbalance([test for _, test in theirs])


def test_a_single_group_is_always_trained_on():
    clusters, groups = np.repeat([0, 1, 2], 6), np.repeat([0, 0, 1, 2, 3, 4], 3)
    for fold in crossfit_folds(clusters, 3, None, groups):
        assert set(np.flatnonzero(clusters == 0)) <= set(fold.train)
        assert not set(np.flatnonzero(clusters == 0)) & set(fold.test)


def test_a_cluster_whose_groups_must_all_be_held_out_together_is_not_held_out():
    # Two groups that weigh little in cluster 1 but fill all of the first fold.
    clusters = np.array([0, 0, 1, 1])
    assert (deal_groups(clusters, np.array([0, 0, 0, 0]), [0.5, 0.5]) == -1).all()
    fold_of = deal_groups(clusters, np.array([0, 1, 0, 1]), [0.5, 0.5])
    assert fold_of.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("holdout", [0.2, 0.4])
def test_one_share_of_every_cluster_is_held_out_in_whole_groups(holdout):
    clusters, groups = unbalanced(0)
    fold = holdout_fold(clusters, holdout, None, groups)
    parts = [set(groups[rows]) for rows in (fold.train, fold.validation, fold.test)]
    assert not any(a & b for a, b in itertools.combinations(parts, 2))
    share = np.bincount(clusters[fold.test]) / np.bincount(clusters)
    assert np.abs(share - holdout).max() < 0.1
    two = np.repeat([0, 1], 4), np.repeat([0, 1, 2, 3], 2)  # at least one group of each
    assert set(two[0][holdout_fold(two[0], holdout, None, two[1]).test]) == {0, 1}


def test_few_clusters_of_many_groups_choose_the_epoch_by_other_groups():
    clusters, groups = np.repeat([0, 1], 60), np.arange(120) // 3
    for fold in crossfit_folds(clusters, 5, None, groups):
        parts = [set(groups[rows]) for rows in (fold.train, fold.validation, fold.test)]
        assert not any(a & b for a, b in itertools.combinations(parts, 2))
        assert set(clusters[fold.validation]) == {0, 1}


def test_neither_the_order_of_rows_nor_names_matter():
    X, labels, groups = clusters_of_tracks()
    rng = np.random.default_rng(3)
    order, names = rng.permutation(len(X)), rng.permutation(int(groups.max()) + 1)
    first = pairwise_tvd(X, labels, groups=groups, **FAST)
    again = pairwise_tvd(
        X[order], labels[order], groups=[f"track {names[g]}" for g in groups[order]], **FAST
    )
    for name in ("hit_rate", "n_effective", "n_groups", "p_value"):
        assert np.array_equal(getattr(first, name), getattr(again, name)), name


# --- errors ---------------------------------------------------------------------------------------


def slow_effective_number(hits_of_groups, sizes):
    """The number for one side of a pair, from a list of hit rates of groups."""
    n, G = sum(sizes), sum(sizes) ** 2 / sum(size**2 for size in sizes)
    rate = (G * sum(h * s for h, s in zip(hits_of_groups, sizes, strict=True)) / n + 1) / (G + 2)
    spread = sum((s * (h - rate)) ** 2 for h, s in zip(hits_of_groups, sizes, strict=True))
    spread = spread / sum(s**2 for s in sizes)
    variance = (G * spread + rate**2 + (1 - rate) ** 2) / ((G + 2) * (G + 3))
    return min(n, G * rate * (1 - rate) / ((G + 3) * variance))


def test_effective_numbers_are_those_of_a_slow_loop(nested):
    scores, z = nested.scores, nested.scores.dense()
    for i, j in ((0, 1), (2, 0)):
        own = scores.clusters == i
        hits = z[own, i] > z[own, j]
        groups = scores.groups[own]
        rates = [hits[groups == g].mean() for g in np.unique(groups)]
        expected = slow_effective_number(rates, [(groups == g).sum() for g in np.unique(groups)])
        assert nested.n_effective[i, j] == pytest.approx(expected)


def test_groups_of_one_observation_change_no_error_and_no_p_value():
    X, labels, _ = clusters_of_tracks(rho=0.0)
    plain = pairwise_tvd(X, labels, **FAST)
    single = by_groups(plain, np.arange(len(plain.scores.rows)))
    np.testing.assert_allclose(single.stderr, plain.stderr)
    np.testing.assert_allclose(single.confidence_interval(), plain.confidence_interval())
    np.testing.assert_allclose(single.p_value, plain.p_value, atol=1e-12)


def parts_of(cluster, group, sizes):
    """Parts of these sizes, as if their rows were known."""
    return Parts(np.repeat(np.arange(len(sizes)), sizes), cluster, group)


def test_few_groups_that_agree_are_no_certainty():
    hits = np.array([[0.5, 1.0], [0.5, 1.0], [0.5, 1.0], [1.0, 0.5], [1.0, 0.5], [1.0, 0.5]])
    cluster, sizes = np.repeat([0, 1], 3), np.full(6, 1000)
    rate = np.array([[0.5, 1.0], [1.0, 0.5]])
    found = effective_numbers(hits, parts_of(cluster, np.arange(6), sizes), rate)
    assert found[0, 1] == pytest.approx(3.0)


def test_groups_in_both_clusters_widen_errors_if_they_rise_and_fall_together():
    rng = np.random.default_rng(0)
    effect = rng.uniform(-0.3, 0.3, 20)
    cluster, sizes = np.repeat([0, 1], 20), np.full(40, 50)
    rate = np.array([[0.5, 0.7], [0.7, 0.5]])
    numbers = {}
    for sign in (1, -1):
        hits = np.full((40, 2), 0.5)
        hits[:20, 1], hits[20:, 0] = 0.7 + effect, 0.7 + sign * effect
        apart, both = (
            effective_numbers(hits, parts_of(cluster, g, sizes), rate)[0, 1]
            for g in (np.arange(40), np.tile(np.arange(20), 2))
        )
        numbers[sign] = both / apart
    assert numbers[1] < 0.6
    assert numbers[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("n_groups", [5, 10, 40])
@pytest.mark.parametrize("mean", [0.6, 0.9])
def test_intervals_hold_the_truth_as_often_as_they_say(n_groups, mean):
    """Hit rates of groups are drawn from a beta distribution, and hits within them."""
    rng = np.random.default_rng(0)
    size, repeats, inside = 30, 400, 0
    cluster, groups = np.repeat([0, 1], n_groups), np.arange(2 * n_groups)
    for _ in range(repeats):
        rates = rng.beta(4 * mean, 4 * (1 - mean), 2 * n_groups)
        hits = np.full((2 * n_groups, 2), 0.5)
        hits[groups, 1 - cluster] = rng.binomial(size, rates) / size
        rate = np.full((2, 2), 0.5)
        rate[0, 1], rate[1, 0] = hits[:n_groups, 1].mean(), hits[n_groups:, 0].mean()
        parts = parts_of(cluster, groups, np.full(2 * n_groups, size))
        n = effective_numbers(hits, parts, rate)
        low, high = stats.accuracy_interval(stats.Hits.of(rate, n), 0.95)
        inside += low[0, 1] <= mean <= high[0, 1]
    assert inside / repeats >= 0.92


# --- tests ----------------------------------------------------------------------------------------


def slow_p_value(values, of_a, folds, groups, n_folds):
    """Fold by fold, with ranks of SciPy and lists of groups; few groups apart all at once."""
    sizes = [len(set(groups[side])) for side in (of_a, ~of_a)]
    if n_folds > 1 and max(sizes) < 20 and not set(groups[of_a]) & set(groups[~of_a]):
        rank = rankdata(values)
        means = [[rank[groups == g].mean() for g in set(groups[side])] for side in (of_a, ~of_a)]
        U = sum((a > b) + (a == b) / 2 for a in means[0] for b in means[1])
        return stats.rank_sum_survival(*sizes, stats.CROSSFIT_VARIANCE)[int(U)]
    excess, variance, n_permutations = 0.0, 0.0, 1
    for fold in np.unique(folds):
        inside = folds == fold
        rank, a, group = rankdata(values[inside]), of_a[inside], groups[inside]
        sides = [{g: rank[(group == g) & s].mean() for g in set(group[s])} for s in (a, ~a)]
        again = rankdata([*sides[0].values(), *sides[1].values()])
        sides[0] = dict(zip(sides[0], again, strict=False))
        sides[1] = dict(zip(sides[1], again[len(sides[0]) :], strict=True))
        both = set(sides[0]) & set(sides[1])
        for g in both:
            excess += (sides[0][g] - sides[1][g]) / 2
            variance += (sides[0][g] - sides[1][g]) ** 2 / 4
        single = [[side[g] for g in side if g not in both] for side in sides]
        n_a, n_b, pooled = len(single[0]), len(single[1]), [*single[0], *single[1]]
        n_permutations *= 2 ** len(both) * math.comb(n_a + n_b, n_a)
        if n_a and n_b:
            excess += sum(single[0]) - n_a * np.mean(pooled)
            variance += n_a * n_b / (n_a + n_b) * np.var(pooled, ddof=1)
    z = (excess - 0.5) / np.sqrt(variance * (stats.CROSSFIT_VARIANCE if n_folds > 1 else 1))
    return max(stats.ndtr(-z), 1 / n_permutations if n_permutations > 1e3 else 0)


@pytest.mark.parametrize("name", ["nested", "shared"])
def test_p_values_of_all_pairs_are_those_of_one_pair_after_another(name, request):
    result = request.getfixturevalue(name)
    scores, z = result.scores, result.scores.dense().astype(float)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        rows = np.flatnonzero((scores.clusters == i) | (scores.clusters == j))
        of_i, fold, group = scores.clusters[rows] == i, scores.folds[rows], scores.groups[rows]
        p = slow_p_value(z[rows, i] - z[rows, j], of_i, fold, group, scores.n_folds)
        assert result.p_value[i, j] == pytest.approx(p, rel=1e-6, abs=1e-12)


def all_rank_sums(mean, first, group):
    """Rank sums under every permutation of whole groups, in one fold."""
    rank = rankdata(mean)
    paired = [np.flatnonzero(group == g) for g in np.unique(group)]
    pairs = [rows for rows in paired if len(rows) == 2]
    single = np.concatenate([rows for rows in paired if len(rows) == 1])
    n_first = int(first[single].sum())
    for chosen in itertools.combinations(single, n_first):
        for side in itertools.product((0, 1), repeat=len(pairs)):
            yield rank[list(chosen)].sum() + sum(
                rank[rows[s]] for rows, s in zip(pairs, side, strict=True)
            )


def test_the_moments_are_those_of_all_permutations_of_whole_groups():
    rng = np.random.default_rng(1)
    group = np.array([0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7])
    first = np.array([1, 0, 1, 0, 1, 0, 1, 1, 0, 0, 0], bool)
    for _ in range(5):
        mean = rng.standard_normal(11) + first
        sums = np.array(list(all_rank_sums(mean, first, group)))
        z = (rankdata(mean)[first].sum() - sums.mean() - 0.5) / sums.std()
        expected = max(stats.ndtr(-z), 1 / len(sums))
        found = group_p_value(mean, first, np.zeros(11, int), group, 1)
        assert found == pytest.approx(expected)


@pytest.mark.parametrize("effect", ["rise", "centred"])
def test_p_values_are_valid_where_groups_occur_in_both_clusters(effect):
    """A group shifts all of its observations, or its mean was subtracted from them."""
    rng = np.random.default_rng(0)
    groups, of_a = np.repeat(np.arange(12), 10), np.tile(np.arange(10) < 5, 12)
    found = []
    for _ in range(600):
        values = rng.standard_normal((12, 10))
        if effect == "rise":
            values += rng.standard_normal((12, 1))
        else:
            values -= values.mean(axis=1, keepdims=True)
        found.append(group_p_value(values.ravel(), of_a, np.zeros(120, int), groups, 1))
    assert np.mean(np.array(found) <= 0.05) <= 0.07
    assert np.mean(np.array(found) <= 0.05) >= 0.02


@pytest.mark.parametrize("effect", [0.0, 0.5])
@pytest.mark.parametrize("sign", [-1, 1])
def test_p_values_are_valid_where_groups_differ_in_size(effect, sign):
    """Skewed scores; groups of one cluster are small, those of the other large."""
    rng = np.random.default_rng(0)
    sizes = np.concatenate([rng.integers(1, 10, 20), rng.integers(20, 60, 20)])
    groups, found = np.repeat(np.arange(40), sizes), []
    for _ in range(600):
        values = sign * rng.exponential(size=len(groups))
        values += effect * rng.standard_normal(40)[groups]
        found.append(group_p_value(values, groups < 20, np.zeros_like(groups), groups, 1))
    assert np.mean(np.array(found) <= 0.05) <= 0.08


def test_a_side_without_held_out_groups_has_p_1():
    groups = np.arange(4)
    assert group_p_value(np.arange(4.0), np.ones(4, bool), np.zeros(4, int), groups, 1) == 1.0


@pytest.mark.slow
def test_clusters_of_one_process_are_not_called_different():
    found = {True: [], False: []}
    for seed in range(3):
        X, labels, groups = clusters_of_tracks(4, 10, 20, 5, 0.9, 0.0, seed)
        for used, p in found.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DependenceWarning)
                result = pairwise_tvd(
                    X, labels, groups=groups if used else None, device="cpu", random_state=seed
                )
            p.extend(result.p_value[np.triu_indices(4, 1)])
    assert np.mean(np.array(found[False]) < 0.05) > 0.9
    assert np.mean(np.array(found[True]) < 0.05) < 0.1


def test_clusters_that_differ_are_told_apart(nested):
    assert nested.p_value[0, 2] < 0.01
    assert nested.p_value[0, 1] > 0.1
    low, _ = nested.confidence_interval()
    assert low[0, 2] > 0.3
    assert low[0, 1] == 0


# --- what cannot be decided -----------------------------------------------------------------------


def test_nothing_is_known_about_a_cluster_of_one_group(lonely):
    _, _, _, result = lonely
    assert result.n_groups.tolist() == [10, 0, 10]
    assert result.comparable.tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    low, high = result.confidence_interval()
    for other in (0, 2):
        values = result.tvd, result.p_value, low, high, result.divergence("lecam")
        assert [value[1, other] for value in values] == [1, 1, 0, 1, 1]
    table = result.table()
    assert sorted(zip(table["groups_a"], table["groups_b"], strict=True)) == [
        (0, 10), (10, 0), (10, 10),
    ]  # fmt: skip
    assert result.mean_accuracy == result.balanced_accuracy[0, 2]
    assert "20 whole groups" in repr(result)


@pytest.mark.filterwarnings("ignore:the clusters look like a partition")
def test_a_cluster_of_one_group_is_kept_apart_and_the_reason_says_why(lonely):
    X, labels, groups, result = lonely
    for options in ({}, {"labels_from": "elsewhere"}, {"alpha": 0.05}, {"max_tvd": 0.99}):
        tree = merge(result, neighbours=neighbour_graph(X, labels, groups=groups), **options)
        assert tree.mapping[0] != tree.mapping[1] != tree.mapping[2]
        assert "one cluster is a single group" in str(tree.why(0, 1)), options
    assert merge(result, n_clusters=1).n_clusters == 1
    assert (
        len(set(merge(result, n_clusters=2, constraints={"must_link": [(0, 1)]}).groups[:2])) == 1
    )


def test_if_no_pair_can_be_compared_nothing_is_trained():
    X, labels, _ = clusters_of_tracks()
    with pytest.raises(InputError, match=r"3 of 3 clusters are one group each.*blocks of a track"):
        pairwise_tvd(X, labels, groups=labels, **FAST)


# --- merging --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nested", "shared"])
@pytest.mark.parametrize("columns", [True, False])
def test_evidence_about_a_pair_is_that_of_the_estimate(name, columns, request):
    result = request.getfixturevalue(name)
    low, high = result.confidence_interval()
    contrast = Mixtures(result, columns).contrast(0, 2)
    assert contrast.interval == pytest.approx((low[0, 2], high[0, 2]))
    assert contrast.p_value == pytest.approx(result.p_value[0, 2], rel=1e-4)
    assert contrast.comparable


def test_clusters_of_one_process_are_merged(nested):
    assert merge(nested, labels_from="elsewhere").mapping == {0: 0, 1: 0, 2: 1}
    X, labels, groups = clusters_of_tracks()
    merger = ClusterMerger(**FAST).fit(X, initial_labels=labels, groups=groups)
    assert merger.n_clusters_ == 2
    assert merger.refined_labels_.shape == labels.shape
    assert np.array_equal(
        ClusterMerger(**FAST).fit_predict(X, initial_labels=labels, groups=groups), merger.labels_
    )


def test_re_merges_draw_whole_groups():
    groups = np.repeat(np.arange(50), 4)
    drawn = _drawn(np.zeros(200, int), 200, np.random.default_rng(0), groups)
    counts = np.bincount(groups[drawn], minlength=50)
    assert set(counts) <= {0, 1, 4}  # one observation of the cluster is always kept
    assert (counts == 4).sum() == 40


# --- neighbours -----------------------------------------------------------------------------------


def slow_neighbours(X, groups, n_neighbours):
    apart = np.linalg.norm(X[:, None] - X, axis=2)
    apart[(groups[:, None] == groups) & (groups >= 0)] = np.inf
    np.fill_diagonal(apart, np.inf)
    order = np.argsort(apart, axis=1, kind="stable")[:, :n_neighbours]
    return order, np.take_along_axis(apart, order, axis=1)


@pytest.mark.parametrize("d", [2, 12])
def test_neighbours_are_the_nearest_in_other_groups(d):
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2, -1], [60, 5, 30, 10])
    X = rng.standard_normal((105, d)) + 5 * groups[:, None]
    rows, distances = nearest(X, 7, groups=groups)
    expected, apart = slow_neighbours(X, groups, 7)
    assert np.array_equal(rows, expected)
    np.testing.assert_allclose(distances, apart, rtol=1e-6)


def test_missing_neighbours_are_infinitely_far():
    groups = np.repeat([0, 1], [20, 3])
    distances = nearest(np.arange(23.0)[:, None], 5, groups=groups)[1]
    assert np.isfinite(distances).sum(axis=1).tolist() == [3] * 20 + [5] * 3


def test_very_many_observations_have_no_neighbours_in_their_group(monkeypatch):
    monkeypatch.setattr("unsplit.merging.neighbours.graph.MOST_FOR_EXACT", 10)
    X = np.random.default_rng(0).standard_normal((400, 10))
    groups = np.arange(400) // 4
    rows, distances = nearest(X, 7, torch.device("cpu"), groups)
    assert not (groups[rows] == groups[:, None]).any()
    np.testing.assert_allclose(distances, slow_neighbours(X, groups, 7)[1], rtol=1e-5)


def test_no_edge_is_within_a_group_unless_the_group_is_the_cluster(lonely):
    X, labels, groups, result = lonely
    for graph in (neighbour_graph(X, labels, groups=groups), graph_of_scores(result)):
        left, right = graph.adjacency.nonzero()
        of, cluster = groups[graph.rows], labels[graph.rows]
        within = of[left] == of[right]
        assert (cluster[left[within]] == 1).all()
    assert within.sum() == 0  # of the single group, nothing was held out
    assert separate_groups(np.array([0, 0, -1, 1]), np.array([2, 2, 2, 3])).tolist() == [
        -1, -1, 2, -1,
    ]  # fmt: skip


# --- files, commands, other doors -----------------------------------------------------------------


def test_a_saved_estimate_keeps_its_groups(nested, tmp_path):
    nested.save(tmp_path / "d.npz")
    plain = PairwiseTVD.load(tmp_path / "d.npz")
    nested.save(tmp_path / "d.npz", scores=True)
    again = PairwiseTVD.load(tmp_path / "d.npz")
    for loaded in (plain, again):
        for name, column in nested.table().items():
            assert np.array_equal(loaded.table()[name], column), name
        assert loaded.comparable.all()
    assert np.array_equal(again.scores.groups, nested.scores.groups)
    assert merge(again).mapping == merge(nested).mapping
    order = np.array([2, 0, 1])
    turned = nested.reordered(order)
    assert np.array_equal(turned.n_groups, nested.n_groups[order])
    np.testing.assert_allclose(turned.stderr, nested.stderr[np.ix_(order, order)])


def test_groups_and_batches_exclude_each_other():
    X, labels, groups = clusters_of_tracks()
    with pytest.raises(InputError, match="pass groups or batch, not both"):
        pairwise_tvd(X, labels, groups=groups, batch=groups % 2, **FAST)
    with pytest.raises(InputError, match="cannot compare clusters within batches or count"):
        pairwise_tvd(X, labels, groups=groups, form="sparse", **FAST)


@pytest.mark.parametrize("call", [pairwise_tvd, neighbour_graph])
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0, 1], "X has 6 observations but groups has 2; pass one group for each row"),
        ([0, 0, 1, 1, 2, None], r"groups is missing \(-1, NaN or empty\) for 1 of 6"),
    ],
)
def test_wrong_groups_are_refused(call, groups, message):
    with pytest.raises(InputError, match=message):
        call(np.eye(6)[:, :2], [0, 0, 0, 1, 1, 1], groups=groups)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, labels, groups = clusters_of_tracks()
    rows = zip(X.tolist(), labels, groups, strict=True)
    lines = [",".join([*map(str, x), f"{c}", f"t{g}"]) for x, c, g in rows]
    (tmp_path / "data.csv").write_text("\n".join(["x,y,z,cluster,track", *lines]))
    (tmp_path / "tracks.csv").write_text("\n".join(["track", *(f"t{g}" for g in groups)]))
    return X, labels, groups


def test_the_command_holds_out_groups(table):
    X, labels, groups = table
    expected = pairwise_tvd(
        X, labels, groups=groups, cv=2, training=TrainConfig(epochs=3), device="cpu", random_state=3
    )
    for column in ("track", "tracks.csv"):
        where = ("data.csv", "--labels", "cluster", "--groups", column, "--out", "out", "--seed", 3)
        drop = () if column == "track" else ("--drop", "track")
        succeeds(unsplit("distances", *where, *drop, *QUICK))
        found = PairwiseTVD.load("out/distances.npz")
        assert np.array_equal(found.hit_rate, expected.hit_rate)
        assert set(read_csv("out/pairs.csv")["groups_a"]) == {"10"}
        assert read_json("out/distances.json")["groups"] == column
    both = unsplit("distances", *where, "--batch", "track", *QUICK)
    assert "--groups and --batch cannot be used together" in both.stderr
    succeeds(unsplit("distances", *where, "--drop", "track", "--backbone", "select", *QUICK))
    assert len(read_csv("out/candidates.csv")["candidate"]) == 5


def test_merge_takes_groups(table):
    where = ("data.csv", "--labels", "cluster", "--groups", "track", "--out", "out", "--seed", 3)
    succeeds(unsplit("merge", *where, "--device", "cpu"))
    assert read_json("out/result.json")["mapping"] == {"0": "0 + 1", "1": "0 + 1", "2": "2"}
    assert read_json("out/result.json")["groups"] == "track"


def test_read_finds_groups(table):
    found = read("data.csv", "cluster", groups="track")
    assert found.batch is None
    assert found.groups[:11].tolist() == ["t0"] * 10 + ["t1"]
    with pytest.raises(InputError, match="groups and batch cannot be used together"):
        read("data.csv", "cluster", "track", groups="track")


def test_cells_are_held_out_by_donor():
    anndata = pytest.importorskip("anndata")
    X, labels, groups = clusters_of_tracks()
    obs = {"leiden": labels.astype(str), "donor": [f"d{g}" for g in groups]}
    adata = anndata.AnnData(obsm={"X_pca": X}, obs=obs)
    package.anndata.merge(adata, groups_key="donor", **FAST | {"random_state": 0})
    assert adata.obs["unsplit"].value_counts().to_dict() == {"0 + 1": 200, "2": 100}
    assert adata.uns["unsplit"]["params"]["groups_key"] == "donor"


# --- the order of rows ----------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "rho"), [(2, 0.9), (5, 0.7), (20, 0.5), (3, 0.999)])
def test_tracks_without_groups_are_noticed(d, rho):
    X = tracks(6, 200, d, rho, np.random.default_rng(0))
    labels = np.repeat(np.arange(6), 200)
    with pytest.warns(DependenceWarning, match="resemble each other.*with groups"):
        warn_of_order(X, labels)
    mixed = np.random.default_rng(1).permutation(len(X))
    warn_of_order(X[mixed], labels[mixed])


def test_estimates_warn_unless_there_are_groups():
    X, labels, groups = clusters_of_tracks(length=30)
    with pytest.warns(DependenceWarning, match="pass|name the track"):
        pairwise_tvd(X, labels, **FAST)
    with pytest.warns(DependenceWarning):
        ClusterMerger(labels_from="clustering", **FAST).fit(X, initial_labels=labels)
    pairwise_tvd(X, labels, groups=groups, **FAST)


@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize("d", [1, 10])
def test_neither_random_order_nor_sorted_clusters_are_taken_for_dependence(sort, d):
    shares = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 5, 600)
        labels = np.sort(labels) if sort else labels
        X = rng.standard_normal((600, d)) + 3 * labels[:, None]
        warn_of_order(X, labels)
        shares.append(nearer_than_later(X, labels)[0])
    assert abs(np.mean(shares) - 0.5) < 0.02


def test_rows_sorted_by_larger_categories_are_not_taken_for_dependence():
    rng = np.random.default_rng(0)
    category = np.repeat(np.arange(4), 500)
    X, labels = rng.standard_normal((2000, 3)) + 9 * category[:, None], rng.integers(0, 2, 2000)
    warn_of_order(X, labels)  # a warning would be an error
    assert abs(nearer_than_later(X, labels)[0] - 0.5) < 0.05


def test_clusters_too_small_to_have_an_order_say_nothing():
    assert nearer_than_later(np.arange(16.0)[:, None], np.repeat([0, 1], 8)) == (0.5, 0)
    assert nearer_than_later(np.zeros((0, 2)), np.zeros(0, int)) == (0.5, 0)
