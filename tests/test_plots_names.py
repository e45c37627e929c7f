from itertools import pairwise

import matplotlib.figure
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plot_cases import quick, random_matrix, random_tree
from unsplit import plots
from unsplit.plots.style import COLOURS, LONGEST_NAME, colours_of, short_name


def overlaps(ax, side):
    """How many neighbouring tick labels touch."""
    ax.figure.canvas.draw()
    labels = ax.get_xticklabels() if side == "x" else ax.get_yticklabels()
    boxes = [label.get_window_extent() for label in labels]
    return sum(a.overlaps(b) for a, b in pairwise(boxes))


LONG = "regulatory T cells of donor {}, third replicate"


@pytest.mark.slow
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
