import sys
from dataclasses import replace
from itertools import pairwise

import matplotlib
import matplotlib.figure
import numpy as np
import pytest
import scipy.cluster.hierarchy as sch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgba

from unsplit import plots
from unsplit.errors import InputError
from unsplit.merging.tree import Merge, MergeTree, members_of_nodes
from unsplit.plots.layout import leaf_order, new_clusters, places
from unsplit.plots.style import COLOURS, GREY, LONGEST_NAME, colours_of, new_axes, short_name
from unsplit.result import PairwiseTVD

# Else merely comparing rcParams would choose a backend and change them.
matplotlib.use("Agg")

quick = settings(deadline=None, max_examples=30, derandomize=True)


def tree_of(linkage, taken, *, names=None, tvd=None, statistic="lecam"):
    """A tree from a SciPy linkage; ``taken`` a number of merges or one bool for each."""
    k = len(linkage) + 1
    tvd = linkage[:, 2] if tvd is None else np.broadcast_to(tvd, k - 1)
    sizes, merges = [10] * k, []
    for step, (left, right, height, _) in enumerate(linkage.tolist()):
        a, b = int(left), int(right)
        interval = max(0.0, tvd[step] - 0.1), min(1.0, tvd[step] + 0.1)
        sides = a, b, sizes[a], sizes[b]
        merges.append(Merge(*sides, height, height, float(tvd[step]), *interval, 1.0, "closest"))
        sizes.append(sizes[a] + sizes[b])
    return MergeTree(
        cluster_ids=np.arange(k) if names is None else np.array(names),
        sizes=np.full(k, 10),
        merges=tuple(merges),
        taken=np.arange(k - 1) < taken if np.isscalar(taken) else np.array(taken, bool),
        statistic=statistic,
        strategy="linkage",
        stopped="in a test",
    )


def random_linkage(k, seed=0, method="average"):
    Z = sch.linkage(np.random.default_rng(seed).random((k, 3)), method)
    Z[:, 2] /= Z[-1, 2]
    return Z


def random_tree(k, n_taken, seed=0, **more):
    return tree_of(random_linkage(k, seed), n_taken, **more)


def chain(k):
    """0 and 1 are joined, then one more at a time."""
    left = np.append(0, k + np.arange(k - 2))
    count = np.arange(1, k)
    return np.stack([left, count, count / k, count + 1.0], axis=1)


def random_matrix(k, seed=0):
    D = np.random.default_rng(seed).random((k, k))
    return np.triu(D, 1) + np.triu(D, 1).T


trees = st.builds(
    lambda k, share, seed, method: tree_of(random_linkage(k, seed, method), round(share * (k - 1))),
    st.integers(2, 30),
    st.floats(0, 1),
    st.integers(0, 99),
    st.sampled_from(["single", "average", "complete"]),
)


# ---- layout ----


@quick
@given(trees)
def test_leaf_order_is_that_of_scipy(tree):
    np.testing.assert_array_equal(leaf_order(tree), sch.leaves_list(tree.linkage))


@quick
@given(trees, st.integers(0, 99))
def test_places_keep_the_members_of_every_node_together(tree, n_folded):
    n_folded = min(n_folded, tree.n_initial - 2)
    first = places(tree, n_folded)
    below = tree.n_initial + n_folded
    shown = [node for node in range(below) if first[node] >= 0]
    assert sorted(first[shown]) == list(range(tree.n_initial - n_folded))
    members = members_of_nodes(tree.merges, tree.n_initial)
    assert sorted(leaf for node in shown for leaf in members[node]) == list(range(tree.n_initial))
    for node in range(below, len(first)):
        inside = sorted(first[leaf] for leaf in shown if set(members[leaf]) <= set(members[node]))
        assert inside == list(range(first[node], first[node] + len(inside)))


@quick
@given(trees)
def test_new_clusters_of_nodes_by_their_members(tree):
    members = members_of_nodes(tree.merges, tree.n_initial)
    for node, cluster in enumerate(new_clusters(tree)):
        groups = set(tree.groups[members[node]].tolist())
        assert cluster == (groups.pop() if len(groups) == 1 else -1)


# ---- dendrogram: data ----


@quick
@given(trees)
def test_brackets_are_those_of_scipy(tree):
    data = plots.dendrogram_data(tree)
    expected = sch.dendrogram(tree.linkage, no_plot=True)
    # SciPy has leaves at 5, 15, … and at height 0, and lists the branches in another order.
    x, y = 10 * data.x + 5, np.where(data.y == data.base, 0, data.y)
    ours = sorted(np.hstack([x, y]).tolist())
    theirs = sorted(np.hstack([expected["icoord"], expected["dcoord"]]).tolist())
    np.testing.assert_allclose(ours, theirs)
    assert list(data.names) == expected["ivl"]


def test_a_chain_of_two_thousand_merges_is_not_too_deep():
    tree = tree_of(chain(2000), 1990)
    data = plots.dendrogram_data(tree)
    assert len(data.names) == 200
    assert data.names[:2] == ("(1,801)", "1801")
    np.testing.assert_array_equal(leaf_order(tree), np.arange(2000))


def test_branches_have_the_new_cluster_of_what_they_join():
    tree = random_tree(25, 18)
    members = members_of_nodes(tree.merges, 25)[25:]
    data = plots.dendrogram_data(tree)
    for cluster, taken, leaves in zip(data.branch_clusters, tree.taken, members, strict=True):
        assert set(tree.groups[leaves]) == {cluster} if taken else cluster == -1


def test_branches_of_an_undone_merge_are_beyond_the_cut():
    tree = random_tree(25, 18)
    undone = tree.undo(3)
    n_undone = 18 - undone.taken.sum()
    assert n_undone >= 1
    assert (plots.dendrogram_data(undone).branch_clusters == -1).sum() == 6 + n_undone


def test_cut_lies_between_the_merges_made_and_the_others():
    tree = random_tree(25, 18)
    heights = tree.linkage[:, 2]
    assert heights[17] < plots.dendrogram_data(tree).cut < heights[18]


@pytest.mark.parametrize("taken", [[True, True, True], [False, False, False], [False, True, False]])
def test_no_height_cuts_where_none_separates(taken):
    Z = np.array([[0, 1, 0.1, 2], [2, 3, 0.2, 2], [4, 5, 0.3, 4]])
    assert np.isnan(plots.dendrogram_data(tree_of(Z, taken)).cut)


def test_no_height_cuts_between_merges_of_one_height():
    Z = np.array([[0, 1, 0.2, 2], [2, 3, 0.2, 2], [4, 5, 0.3, 4]])
    assert np.isnan(plots.dendrogram_data(tree_of(Z, 1)).cut)
    assert plots.dendrogram_data(tree_of(Z, 2)).cut == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("lowest", "highest", "with_zero"),
    [
        (0, 0, True),
        (0, 1, True),
        (0.2, 1, True),
        (0.8, 0.8, True),
        (0.7, 0.9, False),
        (-2, 1, True),
    ],
)
def test_leaves_hang_below_all_merges(lowest, highest, with_zero):
    # Merges at height zero would otherwise lie in the axis.
    Z = random_linkage(12)
    Z[:, 2] = np.linspace(lowest, highest, 11)
    data = plots.dendrogram_data(tree_of(Z, 5))
    assert data.base < lowest
    assert (data.base < 0) == with_zero
    assert (data.leaf_heights == data.base).all()
    low, high = plots.dendrogram(tree_of(Z, 5)).get_ylim()
    assert (low, high) == (data.base, pytest.approx(highest + 0.06 * (highest - data.base)))


@pytest.mark.parametrize("n_taken", [0, 10, 25, 39])
def test_folded_leaves_hold_what_was_merged_first(n_taken):
    tree = random_tree(40, n_taken)
    data = plots.dendrogram_data(tree, most_leaves=15)
    assert len(data.names) == 15
    assert data.n_folded == 25
    assert data.n_members.sum() == 40
    np.testing.assert_array_equal(data.y[:, 1], tree.linkage[25:, 2])
    # The same groups of leaves as when the tree is cut at fifteen, from left to right.
    order = leaf_order(tree)
    groups = tree.cut(n_clusters=15).groups[order]
    folded = np.split(order, np.flatnonzero(np.diff(groups)) + 1)
    for name, n, cluster, members in zip(
        data.names, data.n_members, data.leaf_clusters, folded, strict=True
    ):
        assert n == len(members)
        assert name == (f"({n})" if n > 1 else str(members[0]))
        new = set(tree.groups[members].tolist())
        assert cluster == (new.pop() if len(new) == 1 else -1)


def test_tops_are_the_last_merges_of_new_clusters():
    tree = random_tree(40, 30)
    members = members_of_nodes(tree.merges, 40)
    groups = [members[40 + step] for step in range(30)]
    # Nothing that was made contains them.
    last = [g for g in groups if not any(set(g) < set(other) for other in groups)]
    expected = {tree.groups[g[0]]: tree.linkage[groups.index(g), 2] for g in last}
    tops = plots.dendrogram_data(tree).tops
    assert {int(cluster): y for cluster, _, y in tops} == expected
    assert (np.diff(tops[:, 1]) > 0).all()


def test_too_few_leaves_are_refused():
    with pytest.raises(InputError, match=r"most_leaves must be at least 2, got 1; 200 is usual\."):
        plots.dendrogram_data(random_tree(5, 2), most_leaves=1)


# ---- dendrogram: drawn ----


def branch_lines(ax):
    return next(c for c in ax.collections if type(c).__name__ == "LineCollection")


def wedges(ax):
    return next(c for c in ax.collections if type(c).__name__ == "PolyCollection")


def dashed_lines(ax):
    return [line for line in ax.lines if line.is_dashed()]


def test_dendrogram_has_a_colour_for_each_new_cluster_and_grey_beyond():
    tree = random_tree(30, 22)
    data = plots.dendrogram_data(tree)
    lines = branch_lines(plots.dendrogram(tree))
    drawn = {
        (*segment[1], *segment[2]): to_hex(colour)
        for segment, colour in zip(lines.get_segments(), lines.get_colors(), strict=True)
    }
    by_cluster = {}
    for x, y, cluster in zip(data.x, data.y, data.branch_clusters.tolist(), strict=True):
        by_cluster.setdefault(cluster, set()).add(drawn[x[1], y[1], x[2], y[2]])
    assert by_cluster.pop(-1) == {GREY.lower()}
    assert all(len(colours) == 1 for colours in by_cluster.values())
    assert len(set.union(*by_cluster.values())) == len(by_cluster) <= 10


def test_dendrogram_draws_grey_branches_first():
    colours = branch_lines(plots.dendrogram(random_tree(30, 22))).get_colors()
    grey = (np.array(colours) == to_rgba(GREY)).all(axis=1)
    assert grey.sum() == 7
    assert grey[:7].all()


def test_dendrogram_marks_the_cut_only_where_a_height_separates():
    tree = random_tree(30, 22)
    (line,) = dashed_lines(plots.dendrogram(tree))
    assert line.get_ydata()[0] == plots.dendrogram_data(tree).cut
    assert dashed_lines(plots.dendrogram(tree.undo(2))) == []


def test_dendrogram_says_what_it_shows():
    ax = plots.dendrogram(random_tree(30, 22, statistic="overlap"))
    assert ax.get_ylabel() == "overlap"
    assert ax.get_title(loc="left") == "30 clusters merged into 8"
    tree = random_tree(30, 22)
    numbers = {text.get_text() for text in ax.texts}
    assert numbers == {str(g) for g in np.flatnonzero(np.bincount(tree.groups) > 1)}


def test_dendrogram_draws_a_wedge_for_each_folded_leaf_and_says_so():
    tree = random_tree(60, 50)
    ax = plots.dendrogram(tree, most_leaves=20)
    data = plots.dendrogram_data(tree, most_leaves=20)
    assert len(wedges(ax).get_paths()) == (data.n_members > 1).sum() > 0
    assert ax.get_xlabel() == "the first 40 merges are folded into wedges"
    assert plots.dendrogram(tree).get_xlabel() == ""


def test_dendrogram_of_very_many_clusters_without_names_or_numbers():
    ax = plots.dendrogram(random_tree(2000, 1850))
    ax.figure.canvas.draw()
    assert len(branch_lines(ax).get_segments()) == 199
    assert ax.get_xticklabels() == []
    assert list(ax.texts) == []


@pytest.mark.parametrize("n_taken", [0, 1])
def test_two_clusters_can_be_drawn(n_taken):
    tree = tree_of(np.array([[0, 1, 0.0, 2]]), n_taken)
    for ax in (
        plots.dendrogram(tree), plots.merge_curve(tree), plots.distances(tree, np.zeros((2, 2)))
    ):  # fmt: skip
        ax.figure.canvas.draw()
        assert ax.has_data()


def test_a_single_cluster_can_be_drawn():
    tree = tree_of(np.empty((0, 4)), 0)
    assert plots.dendrogram_data(tree).names == ("0",)
    plots.dendrogram(tree).figure.canvas.draw()
    plots.merge_curve(tree).figure.canvas.draw()
    assert plots.distances_data(tree, [[0.0]]).blocks.tolist() == [[0, 1]]


# ---- names ----


def overlaps(ax, side):
    """How many neighbouring tick labels touch."""
    ax.figure.canvas.draw()
    labels = ax.get_xticklabels() if side == "x" else ax.get_yticklabels()
    boxes = [label.get_window_extent() for label in labels]
    return sum(a.overlaps(b) for a, b in pairwise(boxes))


LONG = "regulatory T cells of donor {}, third replicate"


@pytest.mark.parametrize("pattern", ["{}", LONG])
@pytest.mark.parametrize("k", [5, 40, 90])
def test_names_do_not_touch(k, pattern):
    tree = random_tree(k, k // 2, names=[pattern.format(i) for i in range(k)])
    tree_axes, matrix_axes = plots.dendrogram(tree), plots.distances(tree, random_matrix(k))
    assert len(tree_axes.get_xticklabels()) == k
    assert overlaps(tree_axes, "x") == 0
    assert overlaps(matrix_axes, "x") == overlaps(matrix_axes, "y") == 0


def test_names_that_could_not_be_read_are_left_out():
    tree = random_tree(100, 50)
    figure = matplotlib.figure.Figure(figsize=(4, 3))
    ax = plots.dendrogram(tree, figure.add_subplot())
    assert ax.get_xticklabels() == []


def test_short_names_stand_level_and_long_ones_upright():
    level = plots.dendrogram(random_tree(5, 2))
    upright = plots.dendrogram(random_tree(40, 2, names=[LONG.format(i) for i in range(40)]))
    assert {label.get_rotation() for label in level.get_xticklabels()} == {0}
    assert {label.get_rotation() for label in upright.get_xticklabels()} == {90}


def test_a_dollar_in_a_name_is_no_formula():
    names = [r"$\frac$", "$5", "a\nb", r"\alpha$^$", "_x_"]
    tree = random_tree(5, 2, names=names)
    ax = plots.dendrogram(tree)
    ax.figure.canvas.draw()
    assert {label.get_text() for label in ax.get_xticklabels()} == {*names, "a b"} - {"a\nb"}
    plots.distances(tree, random_matrix(5)).figure.canvas.draw()


@given(st.text(max_size=60))
@quick
def test_short_name_is_one_line_and_keeps_both_ends(name):
    short, whole = short_name(name), " ".join(name.split())
    assert len(short) <= LONGEST_NAME
    assert "\n" not in short
    head, _, tail = short.partition("…") if short != whole else (short, "", "")
    assert whole.startswith(head)
    assert whole.endswith(tail)


def test_more_than_ten_clusters_share_colours_far_apart():
    colours = colours_of(range(23))
    assert [colours[i] for i in range(10)] == list(COLOURS)
    assert all(colours[i] == colours[i + 10] for i in range(13))


# ---- distances ----


@quick
@given(trees)
def test_blocks_are_the_new_clusters(tree):
    k = tree.n_initial
    data = plots.distances_data(tree, random_matrix(k))
    assert data.blocks[0, 0] == 0
    assert data.blocks[-1, 1] == k
    np.testing.assert_array_equal(data.blocks[1:, 0], data.blocks[:-1, 1])
    blocks = {frozenset(data.order[a:b].tolist()) for a, b in data.blocks}
    groups = {frozenset(np.flatnonzero(tree.groups == g).tolist()) for g in set(tree.groups)}
    assert blocks == groups


def test_distances_are_in_the_order_of_the_tree():
    tree, D = random_tree(12, 6, names=list("abcdefghijkl")), random_matrix(12)
    data = plots.distances_data(tree, D)
    for i in range(12):
        assert data.names[i] == tree.cluster_ids[data.order[i]]
        for j in range(12):
            assert data.tvd[i, j] == D[data.order[i], data.order[j]]


def pairwise_tvd_of(tvd, names):
    k = len(tvd)
    return PairwiseTVD(np.array(names), np.full(k, 9), np.full(k, 9), (tvd + 1) / 2, None, None)


def test_distances_take_a_result_as_well_as_its_matrix():
    tree, D = random_tree(12, 6, names=list("abcdefghijkl")), random_matrix(12)
    result = pairwise_tvd_of(D, list("abcdefghijkl"))
    ours, theirs = plots.distances_data(tree, result), plots.distances_data(tree, result.tvd)
    np.testing.assert_array_equal(ours.tvd, theirs.tvd)


@pytest.mark.parametrize("names", [list("abcde"), list("abcx")])
def test_a_result_of_other_clusters_is_refused(names):
    k = len(names)
    result = pairwise_tvd_of(random_matrix(k), names)
    with pytest.raises(InputError, match=rf"other clusters than the tree \({k} and 4, or other"):
        plots.distances_data(random_tree(4, 2, names=list("abcd")), result)


def test_a_matrix_of_another_shape_is_refused():
    message = r"tvd must have shape \(4, 4\) as the tree has, got \(3, 3\)\."
    with pytest.raises(InputError, match=message):
        plots.distances(random_tree(4, 2), random_matrix(3))


@pytest.mark.parametrize(("factor", "got"), [(2.0, "0 to 1.5"), (-1.0, "-0.75 to 0")])
def test_a_matrix_outside_zero_and_one_is_refused(factor, got):
    D = factor * np.array([[0, 0.75], [0.75, 0]]) + 0.0  # no -0
    with pytest.raises(InputError, match=rf"tvd must lie in \[0, 1\], got {got}; divide by"):
        plots.distances_data(random_tree(2, 1), D)


def test_distances_outline_every_new_cluster_of_more_than_one():
    tree = random_tree(30, 22)
    ax = plots.distances(tree, random_matrix(30))
    squares = [path.get_extents() for path in wedges(ax).get_paths()]
    sizes = np.bincount(tree.groups)
    assert sorted(round(s.width) for s in squares) == sorted(sizes[sizes > 1])
    assert all(s.width == s.height and s.x0 == s.y0 for s in squares)


@pytest.mark.parametrize(
    ("smallest", "lowest"), [(0.0, 0.0), (0.09, 0.0), (0.1, 0.1), (0.87, 0.8), (1.0, 0.9)]
)
def test_colours_begin_at_the_smallest_distance(smallest, lowest):
    D = np.maximum(random_matrix(6), smallest)
    D[0, 1] = D[1, 0] = smallest
    np.fill_diagonal(D, 0)
    assert plots.distances_data(random_tree(6, 3), D).lowest == pytest.approx(lowest)
    image = plots.distances(random_tree(6, 3), D).images[0]
    assert image.get_clim() == pytest.approx((lowest, 1))
    assert image.colorbar.extend == ("min" if lowest else "neither")


def test_distances_say_what_they_show():
    ax = plots.distances(random_tree(6, 3), random_matrix(6))
    assert ax.images[0].colorbar.ax.get_ylabel() == "TVD"
    assert ax.get_title(loc="left") == "6 clusters in the order of the tree, 3 after merging"


# ---- merge curve ----


def test_merge_curve_has_the_merges_in_order():
    tree = random_tree(20, 12)
    data = plots.merge_curve_data(tree)
    for step, merge in enumerate(tree.merges):
        assert data.n_left[step] == tree.n_initial - (step + 1)
        row = data.tvd[step], data.low[step], data.high[step], data.statistic[step]
        assert row == (merge.tvd, merge.low, merge.high, merge.statistic)
    np.testing.assert_array_equal(data.taken, tree.taken)


@pytest.mark.parametrize("n_taken", [0, 1, 12, 18, 19])
def test_cut_of_the_curve_lies_between_the_last_merge_made_and_the_next(n_taken):
    data = plots.merge_curve_data(random_tree(20, n_taken))
    np.testing.assert_array_equal(data.n_left > data.cut, data.taken)
    assert data.cut == 20 - n_taken - 0.5
    assert data.n_left_out == 0


def test_merges_left_out_before_the_cut_are_counted():
    tree = random_tree(20, 12)
    data = plots.merge_curve_data(tree.undo(2))
    before = data.n_left > data.cut
    assert data.n_left_out == (before & ~data.taken).sum() >= 1
    assert data.taken[before][-1]
    assert not data.taken[~before].any()


def labels_above(ax):
    return [text.get_text() for text in ax.texts]


def test_ticks_of_the_curve_are_whole_and_different():
    for k in (2, 3, 20):
        ax = plots.merge_curve(random_tree(k, 1))
        ax.figure.canvas.draw()
        ticks = [label.get_text() for label in ax.get_xticklabels()]
        assert len(set(ticks)) == len(ticks) >= 1


def test_merge_curve_goes_from_many_clusters_to_few():
    ax = plots.merge_curve(random_tree(20, 12))
    left, right = ax.get_xlim()
    assert left > 19
    assert right < 1
    assert ax.get_xlabel() == "clusters left"


def test_merge_curve_marks_the_cut():
    ax = plots.merge_curve(random_tree(20, 12))
    (line,) = dashed_lines(ax)
    assert list(line.get_xdata()) == [7.5, 7.5]
    assert labels_above(ax) == ["8 clusters"]
    assert labels_above(plots.merge_curve(random_tree(20, 19))) == ["1 cluster"]


def test_merge_curve_shows_merges_left_out_as_hollow():
    tree = tree_of(chain(10), 8)
    ax = plots.merge_curve(replace(tree, taken=np.array([1, 1, 0, 0, 0, 1, 0, 0, 0], bool)))
    assert labels_above(ax) == ["7 clusters, 3 earlier merges left out"]
    hollow = ax.collections[-1]
    np.testing.assert_allclose(hollow.get_offsets(), [[7, 0.3], [6, 0.4], [5, 0.5]])
    one = plots.merge_curve(replace(tree, taken=np.array([0, 1, 0, 0, 0, 0, 0, 0, 0], bool)))
    assert labels_above(one) == ["9 clusters, 1 earlier merge left out"]


def curve_lines(ax):
    return {line.get_label(): line.get_ydata() for line in ax.lines if not line.is_dashed()}


def test_merge_curve_has_the_statistic_beside_the_tvd():
    Z = random_linkage(20)
    tree = tree_of(Z, 12, tvd=Z[:, 2] / 2)
    ax = plots.merge_curve(tree)
    lines = curve_lines(ax)
    np.testing.assert_array_equal(lines["TVD, 95 % interval"], Z[:, 2] / 2)
    np.testing.assert_array_equal(lines["lecam"], Z[:, 2])
    bars = np.array(ax.collections[0].get_segments())
    np.testing.assert_allclose(bars[:, 0, 1], [merge.low for merge in tree.merges])
    np.testing.assert_allclose(bars[:, 1, 1], [merge.high for merge in tree.merges])


def test_a_statistic_beyond_one_has_its_own_axis():
    Z = random_linkage(20) * [1, 1, 7, 1]
    ax = plots.merge_curve(tree_of(Z, 12, tvd=0.5, statistic="energy"))
    ours, other = ax.figure.axes
    assert (ours.get_ylabel(), other.get_ylabel()) == ("TVD, 95 % interval", "energy")
    assert ours.get_ylim()[1] < 1.1 < other.get_ylim()[1]
    assert list(curve_lines(ours)) == ["TVD, 95 % interval"]


def test_the_tvd_is_not_drawn_twice():
    ax = plots.merge_curve(random_tree(20, 12, statistic="tv"))
    assert list(curve_lines(ax)) == ["TVD, 95 % interval"]
    assert ax.get_legend() is None


def test_a_tree_from_a_plain_matrix_shows_the_statistic_only():
    tree = random_tree(20, 12, tvd=np.nan, statistic="euclidean").undo(2)
    ax = plots.merge_curve(tree)
    ax.figure.canvas.draw()
    assert ax.get_ylabel() == "euclidean"
    (drawn,) = curve_lines(ax).values()
    np.testing.assert_array_equal(drawn, tree.linkage[:, 2])
    assert np.isfinite(ax.collections[-1].get_offsets()).all()


@pytest.mark.parametrize(
    ("k", "n_left", "scale"), [(50, 1, "linear"), (400, 100, "linear"), (400, 5, "log")]
)
def test_a_late_cut_among_many_merges_is_spread_out(k, n_left, scale):
    ax = plots.merge_curve(random_tree(k, k - n_left))
    assert ax.get_xscale() == scale
    (line,) = dashed_lines(ax)
    left, right = ax.get_xlim()
    assert right < line.get_xdata()[0] < left


# ---- axes, files, manners ----


DRAWN = {
    "dendrogram": plots.dendrogram,
    "distances": lambda tree, ax=None: plots.distances(tree, random_matrix(8), ax),
    "merge_curve": plots.merge_curve,
}


@pytest.mark.parametrize("name", DRAWN)
def test_figures_are_drawn_where_asked(name):
    ax = matplotlib.figure.Figure().add_subplot()
    assert DRAWN[name](random_tree(8, 4), ax=ax) is ax
    assert ax.has_data()


@pytest.mark.parametrize("name", DRAWN)
def test_figures_leave_no_trace_in_matplotlib(name):
    import matplotlib.pyplot as plt

    before = matplotlib.rcParams.copy()
    ax = DRAWN[name](random_tree(8, 4))
    ax.figure.canvas.draw()
    assert plt.get_fignums() == []
    assert matplotlib.rcParams == before


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"figures need matplotlib: pip install unsplit\[fig"):
        new_axes(3, 3)


def test_save_figures_writes_all_three(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "note.txt").write_text("mine")
    paths = plots.save_figures(tmp_path / "out", random_tree(8, 4), random_matrix(8))
    assert [path.name for path in paths] == ["dendrogram.png", "merge_curve.png", "distances.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "note.txt", *(path.name for path in paths)
    }  # fmt: skip


def test_save_figures_without_distances_writes_two(tmp_path):
    paths = plots.save_figures(tmp_path / "new", random_tree(8, 4))
    assert [path.name for path in paths] == ["dendrogram.png", "merge_curve.png"]
    assert set((tmp_path / "new").iterdir()) == set(paths)


def test_save_figures_writes_the_same_bytes_again(tmp_path):
    tree, formats = random_tree(3, 1), ("png", "pdf", "svg")
    before = matplotlib.rcParams.copy()
    once, twice = (
        plots.save_figures(tmp_path / name, tree, random_matrix(3), formats) for name in "ab"
    )
    assert [path.suffix for path in once[:3]] == [".png", ".pdf", ".svg"]
    assert len(once) == 9
    for a, b in zip(once, twice, strict=True):
        assert a.read_bytes() == b.read_bytes()
    assert b"Matplotlib" not in once[0].read_bytes()
    assert matplotlib.rcParams == before


def test_save_figures_refuses_other_formats_and_writes_nothing(tmp_path):
    with pytest.raises(InputError, match=r"formats has 'gif'; choose from png, pdf, svg\."):
        plots.save_figures(tmp_path / "out", random_tree(8, 4), formats=("png", "gif"))
    with pytest.raises(InputError, match="tvd must have shape"):
        plots.save_figures(tmp_path / "out", random_tree(8, 4), random_matrix(7))
    assert not (tmp_path / "out").exists()
