import numpy as np
import pytest
from scipy.cluster.hierarchy import leaves_list

from tests.plot_cases import random_matrix, random_tree
from unsplit import plots
from unsplit.errors import InputError
from unsplit.pairwise.divergences import ScoreCounts
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots.figures import matrix_of


def test_distances_are_in_the_order_of_the_tree():
    tree, D = random_tree(12, 6, names=list("abcdefghijkl")), random_matrix(12)
    ax, order = plots.distances(tree, D), leaves_list(tree.linkage)
    assert [label.get_text() for label in ax.get_xticklabels()] == list(tree.cluster_ids[order])
    np.testing.assert_array_equal(ax.images[0].get_array(), D[np.ix_(order, order)])


def pairwise_tvd_of(tvd, names):
    k = len(tvd)
    scores, nine = ScoreCounts(np.full((1, k), 9), 1), np.full(k, 9)
    return PairwiseTVD(np.array(names), nine, nine, (tvd + 1) / 2, scores, None)


def test_distances_take_a_result_as_well_as_its_matrix():
    tree, D = random_tree(12, 6, names=list("abcdefghijkl")), random_matrix(12)
    result = pairwise_tvd_of(D, list("abcdefghijkl"))
    np.testing.assert_array_equal(matrix_of(tree, result), matrix_of(tree, result.tvd))


@pytest.mark.parametrize("names", [list("abcde"), list("abcx")])
def test_a_result_of_other_clusters_is_refused(names):
    k = len(names)
    result = pairwise_tvd_of(random_matrix(k), names)
    with pytest.raises(InputError, match=rf"the 4 clusters of the tree, got {k} clusters or other"):
        plots.distances(random_tree(4, 2, names=list("abcd")), result)


def test_a_matrix_of_another_shape_is_refused():
    message = r"tvd must have shape \(4, 4\).* got \(3, 3\);"
    with pytest.raises(InputError, match=message):
        plots.distances(random_tree(4, 2), random_matrix(3))


@pytest.mark.parametrize(("factor", "got"), [(2.0, "0 to 1.5"), (-1.0, "-0.75 to 0")])
def test_a_matrix_outside_zero_and_one_is_refused(factor, got):
    D = factor * np.array([[0, 0.75], [0.75, 0]]) + 0.0  # no -0
    with pytest.raises(InputError, match=rf"tvd must lie in \[0, 1\], got {got}; divide"):
        plots.distances(random_tree(2, 1), D)


def test_distances_outline_every_new_cluster_of_more_than_one():
    tree = random_tree(30, 22)
    ax = plots.distances(tree, random_matrix(30))
    squares = [line.get_path().get_extents() for line in ax.lines]
    sizes = np.bincount(tree.groups)
    assert sorted(round(s.width) for s in squares) == sorted(sizes[sizes > 1])
    groups = tree.groups[leaves_list(tree.linkage)]
    assert all(len({*groups[round(s.x0 + 0.5) : round(s.x1 + 0.5)]}) == 1 for s in squares)
    assert all(s.width == s.height and s.x0 == s.y0 for s in squares)


@pytest.mark.parametrize(
    ("smallest", "lowest"), [(0.0, 0.0), (0.09, 0.0), (0.1, 0.1), (0.87, 0.8), (1.0, 0.9)]
)
def test_colours_begin_at_the_smallest_distance(smallest, lowest):
    D = np.maximum(random_matrix(6), smallest)
    D[0, 1] = D[1, 0] = smallest
    np.fill_diagonal(D, 0)
    image = plots.distances(random_tree(6, 3), D).images[0]
    assert image.get_clim() == pytest.approx((lowest, 1))
    assert image.colorbar.extend == ("min" if lowest else "neither")


def test_distances_say_what_they_show():
    ax = plots.distances(random_tree(6, 3), random_matrix(6))
    label = ax.images[0].colorbar.ax.get_ylabel()
    assert label == "total variation distance (TVD)\n0 = same, 1 = never confused"
    assert ax.get_title(loc="left") == "Distances between 6 clusters, merged into 3 (blue outlines)"
