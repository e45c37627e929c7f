import sys
from dataclasses import replace

import matplotlib
import matplotlib.figure
import numpy as np
import pytest

from tests.plot_cases import (
    chain,
    dashed_lines,
    random_linkage,
    random_matrix,
    random_tree,
    tree_of,
)
from unsplit import plots
from unsplit.errors import InputError
from unsplit.plots.style import axes_or_new

# ---- merge curve ----


@pytest.mark.parametrize("n_taken", [0, 1, 12, 18, 19])
def test_cut_of_the_curve_lies_between_the_last_merge_made_and_the_next(n_taken):
    (line,) = dashed_lines(plots.merge_curve(random_tree(20, n_taken)))
    assert list(line.get_xdata()) == [20 - n_taken - 0.5] * 2


def labels_above(ax):
    return [text.get_text() for text in ax.texts]


def test_ticks_of_the_curve_are_whole_and_different():
    for k in (2, 3, 20):
        ax = plots.merge_curve(random_tree(k, 1))
        ax.figure.draw_without_rendering()
        ticks = [label.get_text() for label in ax.get_xticklabels()]
        assert len(set(ticks)) == len(ticks) >= 1


def test_merge_curve_goes_from_many_clusters_to_few():
    ax = plots.merge_curve(random_tree(20, 12))
    left, right = ax.get_xlim()
    assert left > 19
    assert right < 1
    assert ax.get_xlabel() == "clusters left (merging goes from left to right)"


def test_merge_curve_marks_the_cut():
    ax = plots.merge_curve(random_tree(20, 12))
    (line,) = dashed_lines(ax)
    assert list(line.get_xdata()) == [7.5, 7.5]
    assert labels_above(ax) == ["stopped at 8 clusters"]
    assert labels_above(plots.merge_curve(random_tree(20, 19))) == ["stopped at 1 cluster"]


def test_merge_curve_shows_merges_left_out_as_hollow():
    tree = tree_of(chain(10), 8)
    ax = plots.merge_curve(replace(tree, taken=np.array([1, 1, 0, 0, 0, 1, 0, 0, 0], bool)))
    assert labels_above(ax) == ["stopped at 7 clusters, 3 earlier merges not made"]
    hollow = ax.collections[-1]
    np.testing.assert_allclose(hollow.get_offsets(), [[7, 0.3], [6, 0.4], [5, 0.5]])
    one = plots.merge_curve(replace(tree, taken=np.array([0, 1, 0, 0, 0, 0, 0, 0, 0], bool)))
    assert labels_above(one) == ["stopped at 9 clusters, 1 earlier merge not made"]


def curve_lines(ax):
    named = [line for line in ax.lines if not line.get_label().startswith("_")]
    return {line.get_label(): line.get_ydata() for line in named}


def test_merge_curve_has_the_statistic_beside_the_tvd():
    Z = random_linkage(20)
    tree = tree_of(Z, 12, tvd=Z[:, 2] / 2)
    ax = plots.merge_curve(tree)
    lines = curve_lines(ax)
    np.testing.assert_array_equal(lines["TVD with 95% interval"], Z[:, 2] / 2)
    np.testing.assert_array_equal(
        lines["Le Cam distance (soft accuracy): 0 = same, 1 = never confused"], Z[:, 2]
    )
    bars = np.array(ax.collections[0].get_segments())
    np.testing.assert_allclose(bars[:, 0, 1], [merge.low for merge in tree.merges])
    np.testing.assert_allclose(bars[:, 1, 1], [merge.high for merge in tree.merges])


def test_a_statistic_beyond_one_is_shown_as_a_whole():
    Z = random_linkage(20) * [1, 1, 7, 1]
    ax = plots.merge_curve(tree_of(Z, 12, tvd=0.5, statistic="energy"))
    assert list(curve_lines(ax)) == ["TVD with 95% interval", "energy: 0 = same"]
    assert ax.get_ylim()[1] > Z[-1, 2]


def test_the_tvd_is_not_drawn_twice():
    ax = plots.merge_curve(random_tree(20, 12, statistic="tv"))
    assert list(curve_lines(ax)) == ["TVD with 95% interval"]


def test_a_tree_from_a_plain_matrix_shows_the_statistic_only():
    tree = random_tree(20, 12, tvd=np.nan, statistic="euclidean").undo(2)
    ax = plots.merge_curve(tree)
    ax.figure.draw_without_rendering()
    assert ax.get_ylabel() == "euclidean\n0 = same"
    (drawn,) = curve_lines(ax).values()
    np.testing.assert_array_equal(drawn, tree.linkage[:, 2])
    assert np.isfinite(ax.collections[-1].get_offsets()).all()


def test_merge_curve_names_the_last_merge_and_the_next():
    names = ["a", "b", "c", "d"]
    ax = plots.merge_curve(tree_of(chain(4), 2, names=names))
    assert (
        ax.get_title(loc="left")
        == "last merge: a + 1 more with c\nfirst not made: a + 2 more with d"
    )
    assert plots.merge_curve(tree_of(chain(4), 3, names=names)).get_title(loc="left") == (
        "last merge: a + 2 more with d"
    )
    first = plots.merge_curve(tree_of(chain(4), 0, names=names)).get_title(loc="left")
    assert first == "first not made: a with b"


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

    before, figures = matplotlib.rcParams.copy(), plt.get_fignums()
    ax = DRAWN[name](random_tree(8, 4))
    ax.figure.draw_without_rendering()
    assert plt.get_fignums() == figures
    assert matplotlib.rcParams == before


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"figures need matplotlib: pip install unsplit\[fig"):
        axes_or_new(None, 3, 3)


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
    tree, before = random_tree(3, 1), matplotlib.rcParams.copy()
    once, twice = (plots.save_figures(tmp_path / name, tree) for name in "ab")
    for a, b in zip(once, twice, strict=True):
        assert a.read_bytes() == b.read_bytes()
    assert b"Matplotlib" not in once[0].read_bytes()
    assert matplotlib.rcParams == before


def test_save_figures_refuses_distances_of_another_tree_and_writes_nothing(tmp_path):
    with pytest.raises(InputError, match="tvd must have shape"):
        plots.save_figures(tmp_path / "out", random_tree(8, 4), random_matrix(7))
    assert not (tmp_path / "out").exists()
