"""The tree itself: cutting, undoing, labels, SciPy's view of it, files."""

import json
import math
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.cluster.hierarchy as sch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.merging_cases import gaussian_estimate, partition_of, regrouped, same_merges
from unsplit import InputError, MergeTree, merge
from unsplit.errors import PartitionWarning
from unsplit.merging.api import merge_with
from unsplit.merging.decision import ALIKE, CANNOT_LINK, GRAPH, Merge
from unsplit.merging.plan import MergeOptions
from unsplit.merging.tree import members_of_nodes

quick = settings(deadline=None, max_examples=30, derandomize=True)


def random_matrix(k, seed=0):
    """Distances between points, all different."""
    points = np.random.default_rng(seed).random((k, 3))
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    return distances / distances.max()


def random_tree(k, n_clusters=1, seed=0, **more):
    return merge(random_matrix(k, seed), n_clusters=n_clusters, **more)


def named_tree(names, n_clusters):
    """Four clusters, of which 0 and 3, then 1 and 2 belong together, with these names."""
    result, _ = gaussian_estimate([0, 5, 5.3, 0.1], 30, names=names)
    return merge(result, n_clusters=n_clusters)


def naive_groups(tree):
    """Join the two sides of every merge taken, then number by first member."""
    k = tree.n_initial
    members = members_of_nodes(tree.merges, k)
    group = list(range(k))
    for step in np.flatnonzero(tree.taken):
        joined = members[k + step]
        group = [min(joined) if i in joined else g for i, g in enumerate(group)]
    return [sorted(set(group)).index(g) for g in group]


# --- as SciPy knows it ----------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 12])
@pytest.mark.parametrize("rule", [{"n_clusters": 1}, {"n_clusters": 2}, {"max_tvd": 0.2}])
def test_linkage_is_complete_and_valid_wherever_merging_stopped(k, rule):
    Z = merge(random_matrix(k), **rule).linkage
    assert Z.shape == (k - 1, 4)
    assert Z.dtype == np.float64
    assert sch.is_valid_linkage(Z, throw=True)
    assert sch.is_monotonic(Z)
    assert np.isfinite(Z).all()
    assert Z[-1, 3] == k
    drawn = sch.dendrogram(Z, no_plot=True)
    assert sorted(drawn["leaves"]) == list(range(k))


@quick
@given(st.integers(0, 10**6), st.integers(2, 12))
def test_cuts_are_those_of_fcluster(seed, k):
    tree = random_tree(k, seed=seed)
    for n in range(1, k + 1):
        ours = tree.cut(n_clusters=n)
        theirs = sch.fcluster(tree.linkage, n, "maxclust")
        assert partition_of(ours.groups) == partition_of(theirs)
        assert ours.n_clusters == len(partition_of(theirs)) == n
    for height in [-0.1, 0.0, 0.3, *tree.linkage[:, 2], 2.0]:
        if height >= 0:
            theirs = partition_of(sch.fcluster(tree.linkage, height, "distance"))
        else:
            theirs = partition_of(range(k))
        assert partition_of(tree.cut(height=height).groups) == theirs


def test_heights_never_go_down_though_statistics_do():
    # The closest pair is kept apart, so that it is joined last, to complete the tree.
    matrix = [[0, 0.1, 0.5], [0.1, 0, 0.6], [0.5, 0.6, 0]]
    tree = merge(matrix, n_clusters=2, constraints={"cannot_link": [(0, 1)]})
    assert [m.statistic for m in tree.merges] == pytest.approx([0.5, 0.35])
    assert tree.linkage[:, 2].tolist() == [0.5, 0.5]


# --- groups, labels, names ------------------------------------------------------------------------


@quick
@given(st.integers(0, 10**6), st.integers(2, 10), st.data())
def test_groups_against_joining_one_by_one(seed, k, data):
    tree = random_tree(k, n_clusters=data.draw(st.integers(1, k)), seed=seed)
    while True:
        assert tree.groups.tolist() == naive_groups(tree)
        assert tree.n_clusters == max(tree.groups) + 1
        # Numbered by first member: a new number is always the next one.
        _, first = np.unique(tree.groups, return_index=True)
        assert (np.diff(first) > 0).all()
        if not tree.taken.any():
            break
        tree = tree.undo(data.draw(st.sampled_from(np.flatnonzero(tree.taken).tolist())))


def test_sizes_add_up():
    result, _ = gaussian_estimate([0, 1, 2, 3], [5, 9, 14, 3])
    tree = merge(result, n_clusters=2)
    below = members_of_nodes(tree.merges, 4)
    assert tree.sizes.tolist() == [5, 9, 14, 3]
    for step in tree.merges:
        assert step.size_left == tree.sizes[below[step.left]].sum()
        assert step.size_right == tree.sizes[below[step.right]].sum()


@pytest.mark.parametrize(
    "names", [["10", "2", "9", "x"], [-7, 2, 9, 10], ["b", "bb", "é", "新"], [10, 9, 2, 3]]
)
def test_names_and_their_order_are_kept(names):
    tree = named_tree(names, 2)
    assert tree.cluster_ids.tolist() == names
    assert list(tree.mapping) == names
    assert tree.mapping == dict(zip(names, [0, 1, 1, 0], strict=True))
    shuffled = np.random.default_rng(0).permutation(np.repeat(names, 3))
    assert tree.labels(shuffled).tolist() == [tree.mapping[name] for name in shuffled.tolist()]
    both = {tree.name(tree.merges[0].left), tree.name(tree.merges[0].right)}
    assert both in ({str(names[0]), str(names[3])}, {str(names[1]), str(names[2])})


def test_labels_keep_noise_and_take_some_of_the_clusters():
    tree = named_tree([3, 4, 10, 11], 2)
    assert tree.labels([11, -1, 4, 3, -1]).tolist() == [0, -1, 1, 0, -1]
    assert tree.labels([10]).tolist() == [1]
    assert tree.labels(np.array([4.0, np.nan, 11.0])).tolist() == [1, -1, 0]
    strings = named_tree(["10", "2", "9", "x"], 2)
    assert strings.labels(["x", None, "-1", "2"]).tolist() == [0, -1, -1, 1]


def test_unknown_labels_are_refused():
    tree = named_tree([3, 4, 10, 11], 2)
    sentence = "cluster 5 is not in the tree; pass the labels that the tree was made from."
    with pytest.raises(InputError, match=sentence):
        tree.labels([3, 5, 4])
    with pytest.raises(InputError, match="one label per observation"):
        tree.labels([[3, 4]])


def test_labels_may_all_be_noise():
    tree = named_tree([3, 4, 10, 11], 2)
    assert tree.labels([-1, -1]).tolist() == [-1, -1]
    assert tree.labels([]).tolist() == []


# --- cutting and undoing --------------------------------------------------------------------------


def test_cut_takes_exactly_one_wish():
    tree = random_tree(4)
    for merge_options in ({}, {"n_clusters": 2, "height": 0.5}):
        with pytest.raises(InputError, match="takes one of n_clusters and height; pass exactly"):
            tree.cut(**merge_options)


@pytest.mark.parametrize("n", [0, 5, -1, 2.5, "2"])
def test_impossible_cuts_are_refused(n):
    sentence = f'n_clusters="?{n}"? is not possible; choose 1 to 4'
    with pytest.raises(InputError, match=sentence):
        random_tree(4).cut(n_clusters=n)


def test_a_height_that_is_no_number_is_refused():
    with pytest.raises(InputError, match="height must be a number, got nan"):
        random_tree(4).cut(height=float("nan"))


def test_cut_says_so_and_leaves_the_tree_alone():
    tree = random_tree(6, n_clusters=2)
    fewer = tree.cut(n_clusters=1)
    assert (tree.n_clusters, fewer.n_clusters) == (2, 1)
    assert fewer.stopped == "the tree was cut at 1 cluster"
    assert tree.cut(height=0.25).stopped == "the tree was cut at height 0.25"
    assert same_merges(tree, fewer)
    assert tree.cut(n_clusters=2).groups.tolist() == tree.groups.tolist()


@quick
@given(st.integers(0, 10**6), st.integers(2, 12), st.data())
def test_undo_takes_back_a_merge_and_what_was_built_on_it(seed, k, data):
    tree = random_tree(k, seed=seed)
    step = data.draw(st.integers(0, k - 2))
    undone = tree.undo(step)
    below = [set(members) for members in members_of_nodes(tree.merges, k)]
    expected = [not below[k + other] >= below[k + step] for other in range(k - 1)]
    assert undone.taken.tolist() == expected
    assert tree.taken.all()
    assert undone.stopped == f"only one cluster is left; merge {step} was undone"
    # The two sides are now clusters of their own.
    for side in (tree.merges[step].left, tree.merges[step].right):
        assert frozenset(below[side]) in partition_of(undone.groups)


def test_undo_of_a_merge_not_taken_is_refused():
    tree = random_tree(6, n_clusters=3)
    for step in (3, 4, 5, -1):
        with pytest.raises(InputError, match=f"step must be a merge of this cut, got {step};"):
            tree.undo(step)
    with pytest.raises(InputError, match="this cut has no merges to undo"):
        tree.cut(n_clusters=6).undo(0)
    once = tree.undo(0)
    with pytest.raises(
        InputError, match="step must be a merge of this cut, got 0; choose one of 2"
    ):
        once.undo(0)


def test_undoing_the_first_merge_leaves_unrelated_ones():
    # 0–1 and 2–3 first, then both together, then 4.
    D = np.full((5, 5), 0.9)
    D[0, 1] = D[1, 0] = 0.1
    D[2, 3] = D[3, 2] = 0.2
    D[:2, 2:4] = D[2:4, :2] = 0.5
    tree = merge(D, n_clusters=1)
    assert tree.undo(0).groups.tolist() == [0, 1, 2, 2, 3]
    assert tree.undo(1).groups.tolist() == [0, 0, 1, 2, 3]
    assert tree.undo(2).groups.tolist() == [0, 0, 1, 1, 2]
    assert tree.undo(1).cut(n_clusters=1).groups.tolist() == [0] * 5


# --- what a person should look at -----------------------------------------------------------------


def pairs_of(review, done):
    """The pairs as sets of names, of those merged or kept apart."""
    sides = zip(review["left"], review["right"], review["done"], strict=True)
    return [{a, b} for a, b, what in sides if what == done]


def test_review_has_every_merge_and_every_pair_left():
    result, _ = gaussian_estimate([0, 9, 9, 0, 18], [30, 40, 50, 60, 70], names=list("abcde"))
    tree = merge(result, alpha=0.05)
    review = tree.review_table()
    assert list(review)[:4] == ["verdict", "done", "left", "right"]
    assert {len(column) for column in review.values()} == {2 + 3}
    assert sorted(map(sorted, pairs_of(review, "merged"))) == [["a", "d"], ["b", "c"]]
    apart = [["a + d", "b + c"], ["a + d", "e"], ["b + c", "e"]]
    assert sorted(map(sorted, pairs_of(review, "kept apart"))) == apart
    sizes = {"a": 30, "b": 40, "c": 50, "d": 60, "e": 70}
    new = {"a": "a + d", "b": "b + c", "c": "b + c", "d": "a + d", "e": "e"}
    for side in ("left", "right"):
        names = [name.split(" + ") for name in review[side]]
        assert review[f"size_{side}"] == [sum(sizes[n] for n in part) for part in names]
        assert review[f"new_{side}"] == [new[part[0]] for part in names]
    steps = {
        what: [s for s, d in zip(review["step"], review["done"], strict=True) if d == what]
        for what in ("merged", "kept apart")
    }
    assert (sorted(steps["merged"]), steps["kept apart"]) == ([0, 1], [None] * 3)
    frame = tree.review()
    assert frame["why"].tolist() == review["why"]
    assert sorted(frame["step"].dropna().tolist()) == [0, 1]
    assert tree.undo(frame["step"].dropna().iloc[0]).n_clusters == 4


@pytest.mark.parametrize("n_clusters", [1, 2, 4])
def test_pairs_kept_apart_are_as_an_estimate_for_the_answer_says(n_clusters):
    result, _ = gaussian_estimate([[0, 0], [1, 0], [0, 1.3], [3, 3], [4.1, 3.2]], 30)
    result = replace(result, n_noise=1000)  # of cores only the number decides
    options = MergeOptions(n_clusters=n_clusters)
    tree = merge_with(result, options)
    union = regrouped(result, tree.groups)
    low, high = union.confidence_interval()
    assert len(tree.apart) == math.comb(n_clusters, 2)
    below = members_of_nodes(tree.merges, 5)
    for pair in tree.apart:
        a, b = tree.groups[below[pair.left][0]], tree.groups[below[pair.right][0]]
        assert pair.tvd == pytest.approx(union.tvd[a, b], abs=1e-9)
        assert (pair.low, pair.high) == pytest.approx((low[a, b], high[a, b]), abs=1e-6)
        expected = min(1.0, union.p_value[a, b] * result.n_possibly_equal)
        assert pair.p_adjusted == pytest.approx(expected, rel=0.02)
        assert pair.why == "the requested number of clusters was reached"


def test_pairs_of_a_partition_are_judged_by_the_graph():
    touching, _ = gaussian_estimate([0, 2, 4, 20, 22, 24], 150)
    tree = merge(touching)
    (pair,) = tree.apart
    assert (pair.verdict, pair.reason, pair.limit) == ("different", GRAPH, 1.0)
    assert all(step.strength >= 1 and step.reason == GRAPH for step in tree.merges[:-1])
    with pytest.warns(PartitionWarning):
        tested = merge(touching, alpha=0.05)
    assert np.isnan(tested.merges[0].strength)  # no graph is made where a test decides
    overlapping, _ = gaussian_estimate([0, 0, 1], 150)
    assert merge(overlapping).merges[0].reason == ALIKE


def test_links_are_given_as_the_reason():
    result, _ = gaussian_estimate([0, 0, 0, 9], 100)
    tree = merge(result, alpha=0.05, constraints={"must_link": [(2, 3)], "cannot_link": [(0, 1)]})
    review = tree.review_table()
    rows = zip(review["left"], review["right"], review["why"], review["verdict"], strict=True)
    why = {frozenset((a, b)): (reason, word) for a, b, reason, word in rows}
    assert why[frozenset(("0", "1"))] == ("kept apart by cannot_link", "same")
    assert why[frozenset(("2", "3"))] == ("required by must_link", "different")


def test_of_many_clusters_neighbours_are_compared():
    result, _ = gaussian_estimate(3.0 * np.arange(30), 20)
    tree = merge(result, n_clusters=30)
    near = {tuple(sorted((pair.left, pair.right))) for pair in tree.apart}
    assert len(near) == len(tree.apart) < math.comb(30, 2)
    assert near >= {(i, i + 1) for i in range(29)}
    compared = np.bincount(np.array(list(near)).ravel())
    assert compared.min() >= 10


def test_review_of_another_cut_has_what_is_known_of_it():
    result, _ = gaussian_estimate([0, 5, 5.3, 0.1], 30, names=list("abcd"))
    tree = merge(result, n_clusters=2)
    apart = {frozenset(pair) for pair in pairs_of(tree.review_table(), "kept apart")}
    assert apart == {frozenset(("a + d", "b + c"))}
    first = {tree.name(tree.merges[0].left), tree.name(tree.merges[0].right)}
    undone = tree.undo(0).review_table()
    assert pairs_of(undone, "kept apart") == [first]
    assert len(pairs_of(undone, "merged")) == 1
    whole = tree.cut(n_clusters=1).review_table()
    assert (len(pairs_of(whole, "merged")), pairs_of(whole, "kept apart")) == (3, [])
    # The last merge is of a pair kept apart at first, and is not there twice.
    assert len(tree.review_table()["done"]) == 3


# --- tables and files -----------------------------------------------------------------------------

COLUMNS = ["step", "left", "right", "size_left", "size_right", "statistic", "height"]
COLUMNS += ["tvd", "low", "high", "p_adjusted"]
COLUMNS += ["edges", "times_chance", "neck", "strength"]
COLUMNS += ["stage", "reason", "limit", "stability", "why", "verdict", "merged"]


def test_table_has_a_row_for_every_merge():
    tree = named_tree(["10", "2", "9", "x"], 2)
    table = tree.table()
    assert list(table) == COLUMNS
    assert {len(column) for column in table.values()} == {3}
    assert table["step"] == [0, 1, 2]
    assert table["merged"] == [True, True, False]
    assert {table["left"][2], table["right"][2]} == {"step 0", "step 1"}
    assert table["tvd"] == [m.tvd for m in tree.merges]
    assert table["verdict"] == ["probably same", "probably same", "different"]
    frame = tree.to_frame()
    assert list(frame) == COLUMNS
    assert frame["why"].tolist() == table["why"]


def test_to_frame_without_pandas_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for method in ("to_frame", "review"):
        with pytest.raises(ImportError, match=r"needs pandas: pip install unsplit\[tables\]"):
            getattr(random_tree(3), method)()


def test_repr():
    tree = random_tree(5, n_clusters=2)
    assert repr(tree) == (
        "MergeTree: 5 clusters merged into 2 (average linkage, distance)\n"
        "  stopped: 2 clusters were requested"
    )


@pytest.mark.parametrize("names", [["10", "2", "9", "新"], [-7, 2, 9, 10], None])
def test_save_and_load_give_the_same_tree(names, tmp_path):
    tree = (
        random_tree(4, 2, constraints={"cannot_link": [(0, 1)]})
        if names is None
        else named_tree(names, 2)
    )
    tree = tree.undo(0)
    tree.save(tmp_path / "tree.npz")
    again = MergeTree.load(tmp_path / "tree.npz")
    assert same_merges(tree, again)
    assert all(isinstance(m, Merge) for m in (*again.merges, *again.apart))
    assert repr(again.apart) == repr(tree.apart) != "()"
    assert repr(again.review_table()) == repr(tree.review_table())
    assert again.mapping == tree.mapping
    assert again.taken.tolist() == tree.taken.tolist()
    assert again.sizes.tolist() == tree.sizes.tolist()
    assert again.n_forbidden == tree.n_forbidden
    assert repr(again) == repr(tree)
    again.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "tree.npz").read_bytes()


def test_load_refuses_other_files(tmp_path):
    path = tmp_path / "other.npz"
    random_tree(4).save(path)
    written = path.read_bytes()
    broken = bytearray(written)
    broken[300:330] = bytes(30)
    for content in (b"", b"not a tree", written[: len(written) // 2], bytes(broken)):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"other\.npz is not a MergeTree saved by unsplit"):
            MergeTree.load(path)
    np.savez(path, taken=np.zeros(2))
    with pytest.raises(InputError, match=r"other\.npz is not a MergeTree saved by unsplit"):
        MergeTree.load(path)
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(InputError, match=r"array\.npy is not a MergeTree saved by unsplit"):
        MergeTree.load(tmp_path / "array.npy")
    with pytest.raises(FileNotFoundError):
        MergeTree.load(tmp_path / "missing.npz")


def test_load_refuses_an_estimate(tmp_path):
    result, _ = gaussian_estimate([0, 1], 5)
    result.save(tmp_path / "estimate.npz")
    with pytest.raises(
        InputError, match=r"estimate\.npz has format .unsplit\.PairwiseTVD/\d., this version reads"
    ):
        MergeTree.load(tmp_path / "estimate.npz")


def test_load_refuses_another_format(tmp_path):
    path = tmp_path / "old.npz"
    random_tree(4).save(path)
    with np.load(path) as file:
        content = dict(file)
    meta = json.loads(str(content["meta"])) | {"format": "unsplit.MergeTree/0"}
    np.savez(path, **content | {"meta": np.array(json.dumps(meta))})
    with pytest.raises(InputError, match="MergeTree/0', this version reads 'unsplit"):
        MergeTree.load(path)


def test_arrays_cannot_be_changed():
    tree = random_tree(4)
    for array in (tree.cluster_ids, tree.sizes, tree.taken):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


# --- why two clusters are together or apart -------------------------------------------------------

LINE = [[0, 0.1, 0.9, 0.9], [0.1, 0, 0.8, 0.9], [0.9, 0.8, 0, 0.3], [0.9, 0.9, 0.3, 0]]


def test_why_two_clusters_are_together():
    tree = merge(LINE, max_tvd=0.5)
    found = tree.why(1, 0)
    assert (found.together, found.step, found.left, found.right) == (True, 0, ("1",), ("0",))
    assert found.pair is tree.merges[0]
    assert str(found).splitlines() == [
        "1 and 0 are in one cluster",
        "  step 0 merged: 1 and 0",
        "  reason: TVD 0.100 is at most 0.5",
        "  verdict: unclear",
    ]


def test_why_two_clusters_are_apart():
    tree = merge(LINE, max_tvd=0.5)
    found = tree.why("3", 0)
    assert (found.together, found.step) == (False, 2)
    assert (found.left, found.right) == (("2", "3"), ("0", "1"))
    assert found.pair is tree.apart[0]
    assert found.reason == "TVD 0.875 is above 0.5"
    assert str(found).endswith("verdict: unclear\n  step 2 of the tree would merge them")


def test_why_linked_and_forbidden():
    tree = merge(LINE, max_tvd=0.5, constraints={"must_link": [(0, 3)], "cannot_link": [(0, 1)]})
    linked, forbidden = tree.why(0, 3), tree.why(0, 1)
    assert (linked.together, linked.reason) == (True, "required by must_link")
    assert not forbidden.together
    assert tree.merges[forbidden.step].stage == CANNOT_LINK
    reached = merge(LINE, n_clusters=3).why(2, 3)
    assert reached.reason == "the requested number of clusters was reached"
    close = merge([[0, 0.1], [0.1, 0]], max_tvd=0.5, constraints={"cannot_link": [(0, 1)]}).why(
        0, 1
    )
    assert close.reason == "kept apart by cannot_link"


def test_why_after_a_cut_and_an_undo():
    tree = merge(LINE, max_tvd=0.5)
    whole = tree.cut(n_clusters=1).why(0, 3)
    assert (whole.together, whole.reason) == (True, "TVD 0.875 is above 0.5; merged by this cut")
    undone = tree.undo(1).why(2, 3)
    assert (undone.together, undone.step) == (False, 1)
    assert undone.reason == "TVD 0.300 is at most 0.5; taken apart by a cut or an undo"
    # The clusters of this cut were never compared, so the pair that would join them is shown.
    assert tree.undo(1).why(0, 3).right == ("2", "3")
    assert tree.cut(n_clusters=4).why(0, 1).reason.endswith("; taken apart by a cut or an undo")


def test_why_of_names_that_are_none():
    tree = merge(LINE, n_clusters=2)
    for names, sentence in (
        ((9, 0), "a names 9, which is not a cluster of the tree; the clusters are 0, 1, 2, 3."),
        ((0, "x"), "b names 'x', which is not a cluster of the tree; the clusters are 0, 1, 2, 3."),
        ((1, "1"), "a and b are both cluster 1; name two different clusters."),
    ):
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            tree.why(*names)
