from itertools import combinations, pairwise

import matplotlib.figure
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plot_cases import quick, random_matrix, random_tree
from unsplit import plots
from unsplit.merging.options import RANKINGS
from unsplit.plots.style import (
    LONGEST_NAME,
    SMALLEST_TEXT,
    axis_label,
    group_name,
    short_name,
)


def boxes(labels):
    return [label.get_window_extent() for label in labels]


def overlaps(ax, side):
    """How many neighbouring tick labels touch."""
    ax.figure.draw_without_rendering()
    labels = ax.get_xticklabels() if side == "x" else ax.get_yticklabels()
    return sum(a.overlaps(b) for a, b in pairwise(boxes(labels)))


LONG = "regulatory T cells of donor {}, third replicate"


@pytest.mark.parametrize(("k", "pattern"), [(5, "{}"), (40, LONG), (90, "{}")])
def test_names_do_not_touch(k, pattern):
    tree = random_tree(k, k // 2, names=[pattern.format(i) for i in range(k)])
    tree_axes, matrix_axes = plots.dendrogram(tree), plots.distances(tree, random_matrix(k))
    assert len(tree_axes.get_yticklabels()) == k
    assert overlaps(tree_axes, "y") == 0
    assert overlaps(matrix_axes, "x") == overlaps(matrix_axes, "y") == 0


# ---- names of merged clusters ----


def merged_clusters(tree):
    return np.flatnonzero(np.bincount(tree.groups) > 1)


def drawn_at(ax, dpi):
    """Draw with this many dots per inch, as saving a figure does."""
    ax.figure.set_dpi(dpi)
    ax.figure.draw_without_rendering()


LARGE = pytest.param(1000, 890, 150, marks=pytest.mark.slow)
DRAW = {
    "dendrogram": plots.dendrogram,
    "distances": lambda tree: plots.distances(tree, random_matrix(tree.n_initial)),
}


@pytest.mark.parametrize(("k", "n_taken", "dpi"), [(20, 14, 100), (200, 170, 150), LARGE])
@pytest.mark.parametrize("figure", DRAW)
def test_merged_clusters_are_named_and_do_not_overlap(figure, k, n_taken, dpi):
    tree = random_tree(k, n_taken, names=[f"cluster {i}" for i in range(k)])
    ax = DRAW[figure](tree)
    drawn_at(ax, dpi)
    expected = {group_name(tree, cluster) for cluster in merged_clusters(tree)}
    shown = {text.get_text() for text in ax.texts}
    if shown != expected:  # small ones among a thousand rows
        assert k == 1000
        assert shown < expected
        assert f"named: {len(shown)} of {len(expected)} merged clusters" in ax.get_xlabel()
    assert len(expected) >= 3
    places = boxes(ax.texts)
    assert not any(a.overlaps(b) for a, b in combinations(places, 2))
    # Nor do they cover names of initial clusters, or leave the figure.
    names = boxes(ax.get_yticklabels())
    assert not any(a.overlaps(b) for a in places for b in names)
    whole = ax.figure.bbox
    assert all(whole.x0 <= box.x0 and box.x1 <= whole.x1 for box in places)
    assert all(whole.y0 <= box.y0 and box.y1 <= whole.y1 for box in places)
    assert all(text.get_fontsize() >= SMALLEST_TEXT for text in ax.texts)


@pytest.mark.parametrize("k", [20, 200, pytest.param(1000, marks=pytest.mark.slow)])
def test_initial_clusters_are_named_where_they_fit(k):
    tree = random_tree(k, k - k // 9)
    shown = [label.get_text() for label in plots.dendrogram(tree).get_yticklabels()]
    assert len(shown) == min(k, 200)
    assert all(shown)
    on_matrix = plots.distances(tree, random_matrix(k)).get_yticklabels()
    assert len(on_matrix) == (k if k == 20 else 0)


@pytest.mark.parametrize("k", [2, 20])
def test_every_axis_says_what_its_values_mean(k):
    tree, D = random_tree(k, k // 2), random_matrix(k)
    tree_axes, matrix_axes, curve = (
        plots.dendrogram(tree), plots.distances(tree, D), plots.merge_curve(tree)
    )  # fmt: skip
    ends = "0 = same, 1 = never confused"
    assert tree_axes.get_xlabel().startswith(f"Le Cam distance (soft accuracy): {ends}")
    assert ends in matrix_axes.images[0].colorbar.ax.get_ylabel()
    assert "initial clusters" in matrix_axes.get_xlabel()
    assert "initial clusters" in matrix_axes.get_ylabel()
    assert ends in curve.get_ylabel()
    assert "clusters left" in curve.get_xlabel()


@pytest.mark.parametrize("statistic", RANKINGS)
def test_every_statistic_is_explained(statistic):
    if statistic != "auto":
        assert ": 0 = same, " in axis_label(statistic)


def test_where_room_is_short_the_largest_merged_clusters_are_named():
    tree = random_tree(200, 120)
    ax = plots.dendrogram(tree, matplotlib.figure.Figure(figsize=(5, 2)).add_subplot())
    ax.figure.draw_without_rendering()
    n_merged, sizes = len(merged_clusters(tree)), np.bincount(tree.groups)
    named = [int(text.get_text().split(":")[0]) for text in ax.texts]
    assert 3 < len(named) < n_merged
    assert f"named: {len(named)} of {n_merged} merged clusters" in ax.get_xlabel()
    assert sizes[named].max() == sizes.max()
    assert not any(a.overlaps(b) for a, b in combinations(boxes(ax.texts), 2))


# ---- single names ----


def test_names_that_could_not_be_read_are_left_out():
    tree = random_tree(100, 50)
    figure = matplotlib.figure.Figure(figsize=(4, 3))
    ax = plots.dendrogram(tree, figure.add_subplot())
    assert ax.get_yticklabels() == []


def test_short_names_stand_level_and_long_ones_upright():
    D = random_matrix(40)
    level = plots.distances(random_tree(5, 2), random_matrix(5))
    long = random_tree(40, 2, names=[LONG.format(i) for i in range(40)])
    assert {label.get_rotation() for label in level.get_xticklabels()} == {0}
    assert {label.get_rotation() for label in plots.distances(long, D).get_xticklabels()} == {90}


def test_a_dollar_in_a_name_is_no_formula():
    names = [r"$\frac$", "$5", "a\nb", r"\alpha$^$", "_x_"]
    tree = random_tree(5, 2, names=names)
    ax = plots.dendrogram(tree)
    ax.figure.draw_without_rendering()
    assert {label.get_text() for label in ax.get_yticklabels()} == {*names, "a b"} - {"a\nb"}
    plots.distances(tree, random_matrix(5)).figure.draw_without_rendering()
    plots.merge_curve(tree).figure.draw_without_rendering()


@given(st.text(max_size=60))
@quick
def test_short_name_is_one_line_and_keeps_both_ends(name):
    short, whole = short_name(name), " ".join(name.split())
    assert len(short) <= LONGEST_NAME
    assert "\n" not in short
    head, _, tail = short.partition("…") if short != whole else (short, "", "")
    assert whole.startswith(head)
    assert whole.endswith(tail)
