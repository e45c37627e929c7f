import numpy as np
import pytest
import scipy.cluster.hierarchy as sch
from hypothesis import given
from matplotlib.colors import to_hex, to_rgba

from tests.plot_cases import (
    chain,
    dashed_lines,
    quick,
    random_linkage,
    random_tree,
    tree_of,
    trees,
)
from unsplit import plots
from unsplit.errors import InputError
from unsplit.merging.review import members_of_nodes
from unsplit.plots.style import GREY


def branch_lines(ax):
    return [line for line in ax.lines if not line.is_dashed()]


def segments(ax):
    """Height and row of the four corners of every branch."""
    return np.array([line.get_xydata() for line in branch_lines(ax)])


def n_leaves(ax):
    return 1 + len(branch_lines(ax))


def leaf_names(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def leaf_order(tree):
    return sch.leaves_list(tree.linkage)


# ---- layout ----


@quick
@given(trees)
def test_branches_are_those_of_scipy(tree):
    ax = plots.dendrogram(tree)
    expected = sch.dendrogram(tree.linkage, no_plot=True)
    base = ax.get_xlim()[1]
    height, row = np.moveaxis(segments(ax), 2, 0)
    # SciPy has leaves at 5, 15, … and at height 0, and lists the branches in another order.
    ours = sorted(np.hstack([10 * row + 5, np.where(height == base, 0, height)]).tolist())
    theirs = sorted(np.hstack([expected["icoord"], expected["dcoord"]]).tolist())
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    assert leaf_names(ax) == expected["ivl"]


def test_a_chain_of_two_thousand_merges_is_not_too_deep():
    tree = tree_of(chain(2000), 1990)
    assert leaf_names(plots.dendrogram(tree))[:2] == ["0 + 1,800 more", "1801"]
    assert n_leaves(plots.dendrogram(tree, most_leaves=5000)) == 500  # no more are drawn


def colours_of_branches(tree, ax):
    """The colour of every merge, found by the height and the middle of its two sides."""
    at = {
        (round(corners[1, 0], 9), round(corners[1:3, 1].mean(), 9)): to_hex(line.get_color())
        for line, corners in zip(branch_lines(ax), segments(ax), strict=True)
    }
    row = np.append(np.argsort(leaf_order(tree)), np.zeros(len(tree.merges)))
    found = []
    for step, merge in enumerate(tree.merges):
        row[tree.n_initial + step] = (row[merge.left] + row[merge.right]) / 2
        found.append(at[round(merge.height, 9), round(row[tree.n_initial + step], 9)])
    return found


def test_branches_have_the_colour_of_the_new_cluster_and_those_not_made_are_grey():
    for tree in (random_tree(30, 22), random_tree(30, 22).undo(3)):
        members = members_of_nodes(tree.merges, 30)[30:]
        by_cluster = {}
        colours = colours_of_branches(tree, plots.dendrogram(tree))
        for colour, taken, leaves in zip(colours, tree.taken, members, strict=True):
            if taken:
                (cluster,) = set(tree.groups[leaves].tolist())
                by_cluster.setdefault(cluster, set()).add(colour)
            else:
                assert colour == GREY.lower()
        assert all(len(colours) == 1 for colours in by_cluster.values())
        assert len(set.union(*by_cluster.values())) == len(by_cluster) <= 10


def cuts(taken, Z=None):
    Z = np.array([[0, 1, 0.1, 2], [2, 3, 0.2, 2], [4, 5, 0.3, 4]]) if Z is None else Z
    return [line.get_xdata()[0] for line in dashed_lines(plots.dendrogram(tree_of(Z, taken)))]


def test_the_cut_is_marked_only_where_a_height_separates():
    tree = random_tree(30, 22)
    heights = tree.linkage[:, 2]
    (line,) = dashed_lines(plots.dendrogram(tree))
    assert heights[21] < line.get_xdata()[0] < heights[22]
    assert dashed_lines(plots.dendrogram(tree.undo(2))) == []
    for taken in ([True, True, True], [False, False, False], [False, True, False]):
        assert cuts(taken) == []
    Z = np.array([[0, 1, 0.2, 2], [2, 3, 0.2, 2], [4, 5, 0.3, 4]])
    assert cuts(1, Z) == []  # not between merges of one height
    assert cuts(2, Z) == pytest.approx([0.25])


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
    left, base = plots.dendrogram(tree_of(Z, 5)).get_xlim()
    assert base < lowest
    assert (base < 0) == with_zero
    assert left == pytest.approx(highest + 0.04 * (highest - base))


@pytest.mark.parametrize("n_taken", [0, 10, 25, 39])
def test_folded_leaves_hold_what_was_merged_first(n_taken):
    tree = random_tree(40, n_taken)
    ax = plots.dendrogram(tree, most_leaves=15)
    # The same groups of leaves as when the tree is cut at fifteen, from top to bottom.
    order = leaf_order(tree)
    groups = tree.cut(n_clusters=15).groups[order]
    folded = np.split(order, np.flatnonzero(np.diff(groups)) + 1)
    names = [f"{m.min()} + {len(m) - 1} more" if len(m) > 1 else str(m[0]) for m in folded]
    assert leaf_names(ax) == names
    np.testing.assert_allclose(sorted(segments(ax)[:, 1, 0]), tree.linkage[25:, 2])
    # Wedges end at the last merge inside them, and have a colour if that was made.
    members = [set(inside) for inside in members_of_nodes(tree.merges, 40)]
    inside = [(row, set(m.tolist())) for row, m in enumerate(folded) if len(m) > 1]
    tips = [(tree.linkage[members.index(one) - 40, 2], row) for row, one in inside]
    np.testing.assert_allclose([wedge.get_xy()[1] for wedge in ax.patches], tips)
    several = [not tree.taken[members.index(one) - 40] for _, one in inside]
    assert [wedge.get_facecolor() == to_rgba(GREY) for wedge in ax.patches] == several


def test_new_clusters_are_not_folded_together_without_need():
    assert n_leaves(plots.dendrogram(random_tree(600, 250))) == 350
    assert n_leaves(plots.dendrogram(random_tree(700, 50))) == 500


def test_too_few_leaves_are_refused():
    with pytest.raises(InputError, match="most_leaves must be a whole number of at least 2, got 1"):
        plots.dendrogram(random_tree(5, 2), most_leaves=1)


# ---- look ----


def test_dendrogram_draws_grey_branches_first():
    grey = [
        line.get_color() == GREY for line in branch_lines(plots.dendrogram(random_tree(30, 22)))
    ]
    assert sum(grey) == 7
    assert all(grey[:7])


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
    assert len(ax.patches) == sum("more" in name for name in leaf_names(ax)) > 0
    assert "wedges: the first 40 merges" in ax.get_xlabel()
    assert "several new clusters" not in ax.get_xlabel()
    assert "grey wedges: several" in plots.dendrogram(tree, most_leaves=5).get_xlabel()
    assert "wedges" not in plots.dendrogram(tree).get_xlabel()


def test_dendrogram_of_very_many_clusters_has_two_hundred_leaves():
    ax = plots.dendrogram(random_tree(600, 450))
    assert n_leaves(ax) == 200
    assert len(ax.get_yticklabels()) == 200


@pytest.mark.parametrize("n_taken", [0, 1])
def test_two_clusters_can_be_drawn(n_taken):
    tree = tree_of(np.array([[0, 1, 0.0, 2]]), n_taken)
    for ax in (
        plots.dendrogram(tree), plots.merge_curve(tree), plots.distances(tree, np.zeros((2, 2)))
    ):  # fmt: skip
        ax.figure.draw_without_rendering()
        assert ax.has_data()
