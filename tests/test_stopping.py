"""Stopping rules: what each lets through, when it warns, what it refuses."""

import math
import re
import warnings
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.cluster import KMeans

from tests.merging_cases import gaussian_estimate, labels_of, regrouped
from unsplit import ClusterMerger, InputError, TrainConfig, merge, pairwise_tvd
from unsplit.datasets import gaussians
from unsplit.errors import PartitionWarning, SmallClusterWarning
from unsplit.merging.decision import (
    ALIKE,
    GRAPH,
    NEIGHBOURS,
    NUMBER,
    SIGNIFICANCE,
    TESTS,
    USERS_RULE,
    Auto,
    Decision,
    Ending,
    Pair,
    Reason,
    stopped,
)
from unsplit.merging.neighbours.evidence import Connection
from unsplit.merging.neighbours.graph import graph_of_scores, neighbour_graph
from unsplit.merging.plan import (
    RANKINGS,
    MergeOptions,
    looks_like_partition,
    origin,
    split_at_random,
)

MATRIX = [[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]]


@cache
def overlapping():
    """Pieces of three distributions, drawn at random."""
    return gaussian_estimate([0, 0, 0, 2, 2, 9], 60)[0]


@cache
def touching():
    """Two lumps of which each was cut in three: neighbours touch and hardly overlap."""
    return gaussian_estimate([0, 2, 4, 20, 22, 24], 150)[0]


def quietly(*arguments, **merge_options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartitionWarning)
        return merge(*arguments, **merge_options)


def left_over(result, tree, name):
    """Values of the pairs of clusters that were not merged."""
    union = regrouped(result, tree.groups)
    return getattr(union, name)[np.triu_indices(tree.n_clusters, 1)]


def taken(tree):
    return [step for step, merged in zip(tree.merges, tree.taken, strict=True) if merged]


# --- n_clusters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 7))
def test_n_clusters_is_exact_and_warns_of_nothing(n):
    for result in (overlapping(), touching()):
        tree = merge(result, n_clusters=n, random_state=0)
        assert tree.n_clusters == n == len(set(tree.groups))
        assert len(tree.merges) == 5
        expected = "only one cluster is left" if n == 1 else f"{n} clusters were requested"
        assert tree.stopped == expected


# --- max_tvd --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0.0, 0.15, 0.5, 0.8, 1.0])
def test_max_tvd_leaves_only_pairs_above_it(limit):
    result = overlapping()
    tree = merge(result, max_tvd=limit)
    assert all(step.tvd <= limit for step in taken(tree))
    assert (left_over(result, tree, "tvd") > limit).all()
    if limit == 1:
        assert tree.stopped == "only one cluster is left"
    else:
        assert tree.stopped == f"every remaining pair has a TVD above {limit:g}"
    first = tree.merges[0]
    if tree.taken[0]:
        assert first.why == f"TVD {first.tvd:.3f} is at most {limit:g}"


def test_max_tvd_of_a_matrix_is_its_linkage_distance():
    assert merge(MATRIX, max_tvd=0.84).groups.tolist() == [0, 0, 1]
    assert merge(MATRIX, max_tvd=0.86).n_clusters == 1
    assert merge(MATRIX, max_tvd=0.0).n_clusters == 3


# --- alpha ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-9, 0.05, 0.5])
def test_alpha_leaves_only_pairs_that_differ(alpha):
    result = overlapping()
    tree = merge(result, alpha=alpha)
    assert all(step.p_adjusted > alpha for step in taken(tree))
    # All 15 initial pairs count to the end.
    assert (15 * left_over(result, tree, "p_value") <= alpha).all()
    assert tree.stopped == f"every remaining pair differs significantly (adjusted p ≤ {alpha:g})"


def test_alpha_finds_the_distributions():
    assert merge(overlapping(), alpha=0.05).groups.tolist() == [0, 0, 0, 1, 1, 2]


def test_p_values_are_adjusted_for_all_initial_pairs_that_may_be_equal():
    result = overlapping()
    for step in merge(result, alpha=0.05).merges:
        if step.left < 6 and step.right < 6:
            expected = min(1.0, result.n_possibly_equal * result.p_value[step.left, step.right])
            assert step.p_adjusted == pytest.approx(expected)


def test_a_pair_at_the_limit():
    result, _ = gaussian_estimate([0, 0.5], 40)
    (step,) = merge(result, n_clusters=2).merges
    assert 0.001 < step.p_adjusted < 0.2
    assert merge(result, alpha=step.p_adjusted).n_clusters == 2
    assert merge(result, alpha=step.p_adjusted * 0.999).n_clusters == 1
    assert merge(result, max_tvd=step.tvd).n_clusters == 1
    assert merge(result, max_tvd=step.tvd * 0.999).n_clusters == 2


def test_a_pair_that_is_refused_does_not_stop_others():
    # Two large clusters are closer but surely different; two small ones may well be the same.
    result, _ = gaussian_estimate([0, 0.5, 10, 11.3], [400, 400, 4, 4])
    tree = merge(result, alpha=0.05)
    assert tree.groups.tolist() == [0, 1, 2, 2]
    assert tree.merges[1].statistic < tree.merges[0].statistic
    assert {tree.merges[1].left, tree.merges[1].right} == {0, 1}


# --- auto -----------------------------------------------------------------------------------------


def test_auto_is_a_test_where_clusters_overlap():
    tree = merge(overlapping())
    tested = merge(overlapping(), alpha=0.05)
    assert tree.groups.tolist() == tested.groups.tolist() == [0, 0, 0, 1, 1, 2]
    assert tree.stopped.startswith("every remaining pair of nearby clusters differs significantly")
    assert all(step.why.startswith(SAME_WHY) for step in taken(tree))
    rest = tree.merges[len(taken(tree)) :]
    assert all(step.why.startswith("beyond the cut: significant difference") for step in rest)


def test_auto_asks_the_graph_of_the_scores_where_clusters_only_touch():
    tree = merge(touching())
    assert tree.groups.tolist() == [0, 0, 0, 1, 1, 1]
    assert "is too weakly connected in the neighbour graph" in tree.stopped
    assert {step.reason for step in tree.merges} == {GRAPH}
    assert all(step.why.startswith("strongly connected: strength ") for step in taken(tree))
    assert tree.merges[-1].why == "beyond the cut: no edge between them in the neighbour graph"
    assert quietly(touching(), alpha=0.05).n_clusters == 6


def test_the_graph_that_merge_makes_is_that_of_images():
    given = merge(touching(), neighbours=graph_of_scores(touching()))
    assert merge(touching()).table() == given.table()
    # A number of clusters is a cut of the same tree.
    assert (
        merge(touching(), n_clusters=3).groups.tolist() == given.cut(n_clusters=3).groups.tolist()
    )


def test_without_a_graph_only_tests_decide(monkeypatch):
    monkeypatch.setattr("unsplit.merging.api.graph_of_scores", lambda result: None)
    tree = merge(touching())
    assert tree.n_clusters == 6
    assert tree.ending == Ending(SIGNIFICANCE, 0.05, nearby=True)
    assert merge(overlapping()).groups.tolist() == [0, 0, 0, 1, 1, 2]


def test_auto_asks_the_test_before_the_neighbours():
    result, _ = gaussian_estimate([0, 0, 20, 40, 60, 80], 30)
    tree = quietly(result)
    assert tree.groups.tolist() == [0, 0, 1, 2, 3, 4]
    assert tree.merges[0].why.startswith(f"{SAME_WHY} 1, TVD at most 0.")


def test_the_warning_says_what_it_saw_and_what_happens_now():
    nearest = np.median((touching().tvd + np.diag([np.inf] * 6)).min(axis=1))
    for rule in ({"alpha": 0.05}, {"max_tvd": 0.5}, {"alpha": 0.0}, {"max_tvd": 0.0}):
        with pytest.warns(PartitionWarning) as caught:
            merge(touching(), **rule)
        (sentence,) = (str(warning.message) for warning in caught)
        assert f"(median TVD to the nearest neighbour {nearest:.2f})" in sentence
        assert "leave both out to merge by density" in sentence
        # The line blamed is the user's.
        assert caught[0].filename == __file__


def test_no_warning_where_the_rule_knows_what_to_do():
    # Warnings are errors here.
    for rule in ({}, {"n_clusters": 2}, {"n_clusters": (None, 3)}):
        assert merge(touching(), **rule).n_clusters == 2


def test_no_warning_where_clusters_overlap():
    for rule in ({}, {"alpha": 0.05}, {"max_tvd": 0.5}, {"n_clusters": 2}):
        assert merge(overlapping(), **rule).n_clusters >= 1
    assert merge(np.ones((3, 3)), max_tvd=0.5).n_clusters == 3


def test_two_clusters():
    near, _ = gaussian_estimate([0, 0], 40)
    far, _ = gaussian_estimate([0, 9], 40)
    assert merge(near).groups.tolist() == [0, 0]
    assert merge(far).groups.tolist() == [0, 1]
    assert merge([[0, 0.5], [0.5, 0]], n_clusters=1).groups.tolist() == [0, 0]


# --- auto, pair by pair ---------------------------------------------------------------------------

N_PAIRS = 10


def candidate(p, interval, *, strength=None, at_random=False, nearest_tvd=0.0, n_pairs=N_PAIRS):
    """A pair of which this is known: the p-value before adjustment, and the rest."""
    scores = SimpleNamespace(
        contrast=lambda a, b: SimpleNamespace(interval=interval, tvd=sum(interval) / 2),
    )
    graph = None
    if strength is not None:
        link = Connection(9, strength, 1.0, math.nan, 0.0, 9.0)
        graph = SimpleNamespace(connection=lambda a, b: link)
    return Pair(0, 1, 0.3, n_pairs, scores, graph, at_random, nearest_tvd, p_value=p)


SAME_WHY = "no significant difference: adjusted p"
SAME = {"p": 0.5, "interval": (0.0, 0.3)}
OTHER = {"p": 1e-9, "interval": (0.8, 1.0)}
NOT_SURE = {"p": 0.5, "interval": (0.0, 0.51)}


@pytest.mark.parametrize("by", [TESTS, NEIGHBOURS])
@pytest.mark.parametrize("more", [{}, {"strength": 0.0}, {"at_random": True}])
def test_what_cannot_be_told_apart_is_merged_whatever_else_is_known(by, more):
    decision = Auto(by).judge(candidate(**SAME, **more))
    assert decision.merge
    assert decision.reason == Reason(ALIKE, 0.05)


@pytest.mark.parametrize(
    "change",
    [
        {"p": 0.005},  # adjusted it is 0.05
        {"interval": (0.0, 0.51)},  # too few observations to be sure
        {"nearest_tvd": 0.51},  # no part of the one is near a part of the other
    ],
)
def test_alike_takes_enough_evidence(change):
    alike, unsure = candidate(**SAME), candidate(**SAME | change)
    assert (alike.alike(0.05), unsure.alike(0.05)) == (True, False)
    # On the limits.
    edge = {"p": 0.00501, "interval": (0.0, 0.5), "nearest_tvd": 0.5}
    assert candidate(**edge).alike(0.05)
    # Then neighbours decide, though nothing is significant.
    kept = Auto(NEIGHBOURS).judge(candidate(**SAME | change, strength=0.99))
    assert (kept.merge, kept.reason) == (False, Reason(GRAPH, 1.0))


def test_a_pair_without_scores_is_not_alike():
    assert not Pair(0, 1, 0.1, N_PAIRS, None).alike(0.05)


@pytest.mark.parametrize("by", [TESTS, NEIGHBOURS])
def test_of_what_was_split_at_random_tests_decide_if_they_can(by):
    different = candidate(**OTHER, at_random=True, strength=9.0)
    assert Auto(by).judge(different) == Decision(False, Reason(SIGNIFICANCE, 0.05))
    assert different.connection is None
    # No difference is significant, but the TVD may be large: neighbours know more.
    for strength, merged in ((9.0, True), (0.5, False)):
        unsure = candidate(**NOT_SURE, at_random=True, strength=strength)
        assert Auto(by).judge(unsure) == Decision(merged, Reason(GRAPH, 1.0))
    alone = candidate(**NOT_SURE, at_random=True)
    assert Auto(by).judge(alone) == Decision(True, Reason(SIGNIFICANCE, 0.05))


@pytest.mark.parametrize("by", [TESTS, NEIGHBOURS])
@pytest.mark.parametrize("known", [OTHER, NOT_SURE])
def test_of_what_was_cut_neighbours_decide_where_there_are_some(by, known):
    for strength, merged in ((0.0, False), (0.99, False), (1.0, True), (9.0, True)):
        decision = Auto(by).judge(candidate(**known, strength=strength))
        assert decision == Decision(merged, Reason(GRAPH, 1.0))


def test_of_what_was_cut_tests_decide_where_there_is_no_graph():
    for known, merged in ((OTHER, False), (NOT_SURE, True)):
        decision = Auto(TESTS).judge(candidate(**known))
        assert decision == Decision(merged, Reason(SIGNIFICANCE, 0.05))


@pytest.mark.parametrize(
    ("by", "sentence"),
    [
        (TESTS, "differs significantly (adjusted p ≤ 0.05)"),
        (NEIGHBOURS, "is too weakly connected in the neighbour graph"),
    ],
)
def test_the_ending_says_what_decided_most(by, sentence):
    assert stopped(Auto(by).ending).startswith("every remaining pair ")
    assert stopped(Auto(by).ending).endswith(sentence)


def test_twins_were_split_at_random_and_cells_were_not():
    result, _ = gaussian_estimate([0, 0, 20, 20, 20, 40, 43, 46], 60)
    found = split_at_random(result)
    assert found.tolist() == [True] * 5 + [False] * 3
    assert not split_at_random(touching()).any()
    assert split_at_random(gaussian_estimate([1, 1], 60)[0]).all()
    # Of so few nobody could say that they are alike.
    assert not split_at_random(gaussian_estimate([0, 20, 40, 40], [60, 60, 9, 9])[0])[:2].any()


@pytest.mark.parametrize("has_graph", [True, False])
def test_what_most_observations_are_in_decides(has_graph):
    result, X = gaussian_estimate([0, 20, 40, 60], [40, 40, 30, 30])
    graph = neighbour_graph(X, labels_of(result)) if has_graph else None
    otherwise = NEIGHBOURS if has_graph else TESTS
    for at_random, by in (
        ([True, True, False, False], TESTS),
        ([False, False, True, True], otherwise),
        ([True, False, True, False], TESTS),  # exactly half
        ([False] * 4, otherwise),
    ):
        judged, decides = origin(result, graph, np.array(at_random), MergeOptions())
        assert decides == by
        assert judged.tolist() == at_random


@pytest.fixture(scope="module")
def half_and_half():
    """Two lumps split at random in three, and two cut by k-means in three, in one data set."""
    rng = np.random.default_rng(0)
    lump = np.repeat(np.arange(4), 120)
    X = rng.standard_normal((480, 2)) + np.array([[0, 0], [9, 0], [0, 9], [9, 9]])[lump]
    labels = 3 * lump + rng.integers(3, size=480)
    for cut in (2, 3):
        cells = KMeans(3, n_init=1, random_state=0).fit_predict(X[lump == cut])
        labels[lump == cut] = 3 * cut + cells
    merger = ClusterMerger(training=TrainConfig(epochs=15), cv=2, random_state=0, device="cpu")
    return merger.fit(X, initial_labels=labels), lump


def test_each_pair_is_judged_by_what_says_something_about_it(half_and_half):
    merger, lump = half_and_half
    tree = merger.tree_
    assert tree.groups.tolist() == np.repeat([0, 1, 2, 3], 3).tolist()
    assert np.array_equal(merger.labels_, lump)
    assert split_at_random(merger.pairwise_).tolist() == [True] * 6 + [False] * 6
    below = {i: {i // 3} for i in range(12)}
    for step, made in enumerate(tree.merges):
        lumps = below[made.left] | below[made.right]
        below[12 + step] = lumps
        if step >= 8:
            break
        if min(lumps) < 2:
            assert made.why.startswith(SAME_WHY)
            assert math.isnan(made.edges)
            assert math.isnan(made.strength)
        else:
            assert made.why.startswith("strongly connected: strength ")
            assert made.strength >= 1
            assert made.edges > 0
            assert made.p_adjusted < 0.05  # cells can be told apart
        assert made.verdict in ("same", "probably same")


def test_pairs_left_say_what_keeps_them_apart(half_and_half):
    merger, _ = half_and_half
    for pair in merger.tree_.apart:
        assert pair.verdict == "different"
        if math.isnan(pair.strength):
            assert pair.why.startswith("significant difference")
        else:
            assert pair.strength < 1
            assert pair.why.startswith(("weakly connected: strength ", "no edge between"))
    assert len(merger.tree_.apart) == 6


# --- what is refused ------------------------------------------------------------------------------


def refuses(sentence, distances, **merge_options):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        merge(distances, **merge_options)


def test_two_rules_at_once():
    refuses(
        "n_clusters and max_tvd are two stopping rules; choose one.",
        MATRIX,
        n_clusters=2,
        max_tvd=0.5,
    )
    refuses(
        "max_tvd and alpha are two stopping rules; choose one.",
        overlapping(),
        max_tvd=0.5,
        alpha=0.05,
    )


@pytest.mark.parametrize("name", ["max_tvd", "alpha"])
@pytest.mark.parametrize("value", [-0.1, 1.01, math.nan])
def test_levels_out_of_range(name, value):
    refuses(f"{name} must lie between 0 and 1, got {value!r}.", overlapping(), **{name: value})


@pytest.mark.parametrize("value", [0, 4, -2, 1.5, "2"])
def test_numbers_of_clusters_out_of_range(value):
    refuses(
        "n_clusters must be a whole number from 1 to 3, the number of initial clusters, or a "
        f"pair (fewest, most), got {value!r}.",
        MATRIX,
        n_clusters=value,
    )


@pytest.mark.parametrize("rule", [{}, {"alpha": 0.05}])
def test_a_matrix_without_scores_has_no_tests(rule):
    refuses(
        "n_clusters or max_tvd is required for a plain matrix, which has no scores to test; pass "
        "one of them, or a PairwiseTVD.",
        MATRIX,
        **rule,
    )


MISTYPED = [
    ("rank_by", "kl", ", ".join(RANKINGS)),
    ("labels_from", "nowhere", "auto, clustering, elsewhere"),
]


@pytest.mark.parametrize(("name", "value", "known"), MISTYPED)
def test_mistyped_names_are_refused_before_any_training(name, value, known, monkeypatch):
    sentence = f"{name} must be one of {known}, got {value!r}."
    for distances in (MATRIX, overlapping()):
        refuses(sentence, distances, n_clusters=2, **{name: value})
    for work in ("overcluster", "fit"):
        monkeypatch.setattr(f"unsplit.estimator.{work}", lambda *_, **__: pytest.fail("too late"))
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        ClusterMerger(**{name: value}).fit(np.zeros((9, 2)))


def test_edges_need_neighbours():
    with pytest.raises(InputError, match='rank_by="edges" needs neighbours; pass'):
        merge(overlapping(), rank_by="edges")


def test_plain_k_means_is_merged_without_a_warning():
    # Warnings are errors here.
    X = np.random.default_rng(0).standard_normal((300, 2))
    merger = ClusterMerger(
        overclusterer=KMeans(6), training=TrainConfig(epochs=5), cv=2, random_state=0, device="cpu"
    )
    assert merger.fit(X).tree_.n_initial == 6
    assert looks_like_partition(merger.pairwise_)


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        ("abc", "distances must be an array of numbers with 2 axes, got 'abc'"),
        (None, "distances must be an array of numbers with 2 axes, got None"),
        ([0.1, 0.2, 0.3], "distances must be an array of numbers with 2 axes, got [0.1, 0.2"),
        (np.zeros((2, 3)), "negative, got one of shape (2, 3); pass all pairs, not a condensed"),
        ([[0.0]], "distances must be a square matrix for at least two clusters, symmetric and"),
        ([[0, math.nan], [math.nan, 0]], "pass finite numbers in rows of one length."),
        ([[0, -0.1], [-0.1, 0]], "two clusters, symmetric and not negative, got one of shape (2,"),
        ([[0, 0.1], [0.2, 0]], "two clusters, symmetric and not negative, got one of shape (2,"),
    ],
)
def test_matrices_that_are_none(matrix, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        merge(matrix, n_clusters=1)


def test_more_than_the_rule_allows_is_merged_to_reach_a_number():
    tree = merge(touching(), n_clusters=1)
    assert [step.stage == NUMBER for step in tree.merges] == [False] * 4 + [True]
    end = "; merged to reach the requested number of clusters"
    assert tree.merges[-1].why == f"no edge between them in the neighbour graph{end}"


def test_a_cluster_of_one_does_not_hide_a_partition():
    """All clusters look near to it, because nothing of it can be held out."""
    X, _ = gaussians([[0, 0]], 200)
    labels = KMeans(8, n_init=1, random_state=0).fit_predict(X)
    labels[0] = 8
    with pytest.warns(SmallClusterWarning):
        result = pairwise_tvd(
            X, labels, training=TrainConfig(epochs=10), cv=2, random_state=0, device="cpu"
        )
    assert np.median(np.sort(result.tvd, axis=1)[:, 1]) <= 0.5
    assert looks_like_partition(result)


# --- a rule of one's own --------------------------------------------------------------------------


class OnlyTheFirst:
    """Merge only with the first cluster."""

    ending = "the first cluster is not in any pair"
    reach = None

    def judge(self, pair):
        first = min(pair.a, pair.b) == 0
        return Decision(first, "the first cluster may be merged" if first else "another cluster")


def test_a_rule_of_ones_own_decides():
    D = np.array([[0, 0.5, 0.6], [0.5, 0, 0.1], [0.6, 0.1, 0]])
    tree = merge(D, rule=OnlyTheFirst())
    # The closest pair is refused, because it does not hold the first cluster.
    assert tree.merges[0].left == 0
    assert tree.merges[0].why == "the first cluster may be merged"
    assert (tree.merges[0].reason, tree.ending.kind) == (USERS_RULE, "one left")
    assert merge(D, rule=OnlyTheFirst(), n_clusters=(2, None)).n_clusters == 2


def test_a_rule_must_be_able_to_judge_and_stand_alone():
    D = np.array([[0, 0.5], [0.5, 0]])
    with pytest.raises(InputError, match=r"rule must be an object with a method judge.*got 0\.5"):
        merge(D, rule=0.5)
    with pytest.raises(InputError, match="max_tvd and rule are two stopping rules"):
        merge(D, rule=OnlyTheFirst(), max_tvd=0.3)


# --- how clusters were split ----------------------------------------------------------------------


def test_how_clusters_were_split_does_not_depend_on_their_order():
    """The third cluster is near the first two, which are alike, but differs from both."""
    result = gaussian_estimate([0, 0, 1.2, 8, 9.2], 400)[0]
    expected = split_at_random(result)
    assert expected.tolist() == [True, True, False, False, False]
    for order in ([2, 0, 1, 4, 3], [4, 3, 2, 1, 0], [1, 2, 0, 3, 4]):
        found = split_at_random(result.reordered(np.array(order)))
        np.testing.assert_array_equal(found, expected[order])


class OnlyJudges:
    def judge(self, pair):
        return Decision(pair.tvd < 0.2, "close enough")


def test_a_rule_need_only_judge():
    tree = merge(overlapping(), rule=OnlyJudges())
    assert tree.groups.tolist() == [0, 0, 0, 1, 1, 2]
    assert tree.stopped == "the rule allows no further merge"


def test_warnings_name_the_line_that_called():
    X, labels = gaussians([[0, 0], [6, 0], [12, 0]], 60, random_state=0)
    dense, sparse = (
        pairwise_tvd(X, labels, form=form, cv=2, training=TrainConfig(epochs=15), random_state=0)
        for form in ("dense", "sparse")
    )
    merger = ClusterMerger(max_tvd=0.1, cv=2, training=TrainConfig(epochs=15), random_state=0)
    calls = [
        lambda: merge(dense, max_tvd=0.1),
        lambda: merge(sparse, max_tvd=0.1),
        lambda: merger.fit(X, initial_labels=labels),
    ]
    for call in calls:
        with pytest.warns(PartitionWarning) as told:
            call()
        assert [warning.filename for warning in told] == [__file__]


def test_clusters_of_one_observation_alone_are_refused_before_training():
    told = []
    merger = ClusterMerger(progress=told.append)
    with pytest.raises(InputError, match="every cluster has only one observation"):
        merger.fit(np.eye(5), initial_labels=np.arange(5))
    assert not told


class SaysWhy:
    def judge(self, pair):
        return SimpleNamespace(merge=pair.tvd < 0.2, why="in words of its own")


def test_a_rule_may_answer_with_anything_that_has_merge_and_why():
    tree = merge(MATRIX, rule=SaysWhy())
    assert tree.groups.tolist() == [0, 0, 1]
    assert tree.merges[0].why == tree.apart[0].why == "in words of its own"
    assert tree.stopped == "the rule allows no further merge"
