import numpy as np
import pytest
import scipy.cluster.hierarchy as sch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgba

from tests.plot_cases import (
    chain,
    dashed_lines,
    quick,
    random_linkage,
    random_tree,
    tree_of,
    trees,
    wedges,
)
from unsplit import plots
from unsplit.errors import InputError
from unsplit.merging.tree import members_of_nodes
from unsplit.plots.style import GREY, leaf_order, new_clusters, places

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
    assert data.names[:2] == ("0 + 1,800 more", "1801")
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
    left, right = plots.dendrogram(tree_of(Z, 5)).get_xlim()
    assert (right, left) == (data.base, pytest.approx(highest + 0.04 * (highest - data.base)))


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
        assert name == (f"{members.min()} + {n - 1} more" if n > 1 else str(members[0]))
        new = set(tree.groups[members].tolist())
        assert cluster == (new.pop() if len(new) == 1 else -1)


@pytest.mark.parametrize("most_leaves", [15, 40])
def test_groups_are_the_leaves_of_each_merged_cluster(most_leaves):
    tree = random_tree(40, 30)
    data = plots.dendrogram_data(tree, most_leaves=most_leaves)
    for cluster, first, last in data.groups.tolist():
        inside = np.flatnonzero(data.leaf_clusters == cluster).tolist()
        assert inside == list(range(first, last + 1))
    merged = np.flatnonzero(np.bincount(tree.groups) > 1)
    assert sorted(data.groups[:, 0]) == sorted(merged)
    assert (np.diff(data.groups[:, 1]) > 0).all()


def test_new_clusters_are_not_folded_together_without_need():
    assert len(plots.dendrogram_data(random_tree(600, 250)).names) == 350
    assert len(plots.dendrogram_data(random_tree(600, 500)).names) == 200
    assert len(plots.dendrogram_data(random_tree(700, 50)).names) == 500


def test_too_few_leaves_are_refused():
    with pytest.raises(InputError, match="most_leaves must be a whole number of at least 2, got 1"):
        plots.dendrogram_data(random_tree(5, 2), most_leaves=1)


# ---- dendrogram: drawn ----


def branch_lines(ax):
    return next(c for c in ax.collections if type(c).__name__ == "LineCollection")


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
        by_cluster.setdefault(cluster, set()).add(drawn[y[1], x[1], y[2], x[2]])
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
    assert line.get_xdata()[0] == plots.dendrogram_data(tree).cut
    assert dashed_lines(plots.dendrogram(tree.undo(2))) == []


def test_dendrogram_says_what_it_shows():
    ax = plots.dendrogram(random_tree(30, 22, statistic="overlap"))
    assert ax.get_xlabel() == (
        "1 − overlap of the densities: 0 = same, 1 = no overlap\n"
        "grey lines: merges that were not made"
    )
    assert ax.get_title(loc="left") == "30 clusters merged into 8"


def test_dendrogram_draws_a_wedge_for_each_folded_leaf_and_says_so():
    tree = random_tree(60, 50)
    ax = plots.dendrogram(tree, most_leaves=20)
    data = plots.dendrogram_data(tree, most_leaves=20)
    assert len(wedges(ax).get_paths()) == (data.n_members > 1).sum() > 0
    assert "wedges: the first 40 merges" in ax.get_xlabel()
    assert "several new clusters" not in ax.get_xlabel()
    assert "grey wedges: several" in plots.dendrogram(tree, most_leaves=5).get_xlabel()
    assert "wedges" not in plots.dendrogram(tree).get_xlabel()


def test_dendrogram_of_very_many_clusters_has_two_hundred_leaves():
    ax = plots.dendrogram(random_tree(600, 450))
    assert len(branch_lines(ax).get_segments()) == 199
    assert len(ax.get_yticklabels()) == 200


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
    plots.distances(tree, [[0.0]]).figure.canvas.draw()
