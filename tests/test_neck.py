"""How narrow a graph is between two clusters: graphs made by hand, and borders of known kinds."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans

from unsplit.merging.neighbours.evidence import (
    DIMENSIONS,
    NARROWEST,
    SIZES,
    edges_across,
    narrowest_usual,
    neck,
    potential,
)
from unsplit.merging.neighbours.graph import Connections, connect


def graph_of(n, edges):
    """An adjacency matrix from pairs of observations."""
    left, right = np.array(edges).T
    half = sparse.csr_array((np.ones(len(left)), (left, right)), (n, n))
    return (half + half.T).tocsr()


def line(n):
    return [(i, i + 1) for i in range(n - 1)]


def clique(members):
    return [(i, j) for i in members for j in members if i < j]


# --- graphs made by hand --------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "cut"), [(2, 1), (8, 4), (50, 10), (50, 49), (300, 120)])
def test_a_line_has_no_neck(n, cut):
    assert neck(graph_of(n, line(n)), np.arange(cut), np.arange(cut, n)) == 1.0


def test_an_edge_between_two_cliques_is_a_neck():
    edges = clique(range(10)) + clique(range(10, 20))
    both = [np.arange(10), np.arange(10, 20)]
    # At most 25 edges lead across a clique of ten.
    assert neck(graph_of(20, [*edges, (0, 10)]), *both) == pytest.approx(1 / 25)
    found = [neck(graph_of(20, [*edges, *((i, 10 + i) for i in range(n))]), *both) for n in (1, 5)]
    assert found[0] < found[1] < 0.5
    assert neck(graph_of(20, clique(range(20))), *both) == 1.0


def test_the_smaller_side_says_what_is_wide():
    # At most 4 edges lead across a clique of four, and 36 across one of twelve.
    edges = [*clique(range(4)), *clique(range(4, 16)), (0, 4)]
    small, large = np.arange(4), np.arange(4, 16)
    assert neck(graph_of(16, edges), small, large) == pytest.approx(1 / 4)
    assert neck(graph_of(16, edges), large, small) == pytest.approx(1 / 4)


def test_the_neck_is_found_beside_the_border_of_the_clusters():
    # Three observations of the second clique are in the first cluster.
    edges = [*clique(range(20)), *clique(range(20, 40)), (0, 39)]
    found = neck(graph_of(40, edges), np.arange(23), np.arange(23, 40))
    assert found == pytest.approx(1 / 100)
    # Further away it is not looked for: these are other clusters.
    assert neck(graph_of(40, edges), np.arange(30), np.arange(30, 40)) > 0.5


def test_without_an_edge_between_there_is_nothing_to_pass():
    edges = clique(range(6)) + clique(range(6, 14))
    assert neck(graph_of(14, edges), np.arange(6), np.arange(6, 14)) == 0.0
    # And without any edge at all.
    assert neck(sparse.csr_array((4, 4)), np.arange(2), np.arange(2, 4)) == 0.0


def test_a_grid_is_as_wide_at_the_border_as_inside():
    def at(i, j):
        return 6 * i + j

    edges = [(at(i, j), at(i + 1, j)) for i in range(19) for j in range(6)]
    edges += [(at(i, j), at(i, j + 1)) for i in range(20) for j in range(5)]
    left, right = np.arange(60), np.arange(60, 120)
    # Six edges lead across between two columns, up to ten within one.
    assert neck(graph_of(120, edges), left, right) >= 6 / 10
    # Closed but for one of six lanes, the border is a neck.
    closed = [(a, b) for a, b in edges if not (a < 60 <= b and a % 6)]
    assert neck(graph_of(120, closed), left, right) <= 1 / 6


def test_a_few_observations_beyond_the_border_do_not_hide_the_neck():
    edges = [*clique(range(20)), *clique(range(20, 40)), (0, 20)]
    graph = graph_of(40, edges)
    clean = neck(graph, np.arange(20), np.arange(20, 40))
    left = np.array([*range(18), 20, 21])
    right = np.setdiff1d(np.arange(40), left)
    assert neck(graph, left, right) == pytest.approx(clean)


def test_order_and_others_do_not_matter():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 2)) + 3 * (np.arange(150) % 3)[:, None]
    clusters = np.arange(150) % 3
    adjacency = connect(X, clusters).adjacency
    left, right = (np.flatnonzero(clusters == c) for c in (0, 1))
    expected = neck(adjacency, left, right)
    assert 0 < expected < 1
    assert neck(adjacency, right, left) == pytest.approx(expected)
    assert neck(adjacency, rng.permutation(left), rng.permutation(right)) == pytest.approx(expected)
    alone = np.concatenate([left, right])
    part = adjacency[alone][:, alone].tocsr()
    assert neck(part, np.arange(50), np.arange(50, 100)) == pytest.approx(expected)


# --- the order and what crosses it ----------------------------------------------------------------


def test_the_voltage_falls_all_the_way():
    for n, cut in [(10, 5), (40, 8)]:
        voltage = potential(graph_of(n, line(n)), cut)
        assert (np.diff(voltage) < 0).all()


def test_edges_across_against_counting_them():
    rng = np.random.default_rng(0)
    adjacency = sparse.csr_array(np.triu(rng.random((30, 30)) < 0.2, 1).astype(float))
    adjacency = (adjacency + adjacency.T).tocsr()
    position = rng.permutation(30).astype(float)
    order = np.argsort(position)
    dense = adjacency.toarray()[np.ix_(order, order)]
    expected = [dense[: i + 1, i + 1 :].sum() for i in range(29)]
    assert edges_across(adjacency, position).tolist() == expected


# --- borders of known kinds -----------------------------------------------------------------------


def width_and_limit(X, clusters):
    clusters = clusters.astype(np.int64)
    graph = connect(X, clusters)
    left, right = (np.flatnonzero(clusters == c) for c in (0, 1))
    dimension = Connections(graph).dimension(0, 1)
    usual = narrowest_usual(dimension, min(len(left), len(right)))
    return neck(graph.adjacency, left, right), usual


def test_one_lump_cut_in_two_has_no_neck_and_two_lumps_have():
    wide, narrow = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((300, 2))
        found, usual = width_and_limit(X, KMeans(2, n_init=1, random_state=seed).fit_predict(X))
        wide.append(found >= usual)
        half = np.arange(300) % 2
        found, usual = width_and_limit(X + 6 * half[:, None] * [1, 0], half)
        narrow.append(found < usual)
    assert sum(wide) >= 38
    assert sum(narrow) == 40


def test_the_shape_does_not_matter():
    # A ring is no more of a neck than a disc, though its border is two short lines.
    rng = np.random.default_rng(0)
    angle, radius = rng.uniform(0, 2 * np.pi, 800), 3 + 0.3 * rng.standard_normal(800)
    ring = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    found, usual = width_and_limit(ring, ring[:, 0] > 0)
    assert found >= usual
    # Nor is a disc that is long in one direction, whichever way it is cut.
    X = rng.standard_normal((600, 2)) * [8, 1]
    for axis in (0, 1):
        found, usual = width_and_limit(X, X[:, axis] > 0)
        assert found >= usual


# --- the table ------------------------------------------------------------------------------------


def test_the_table_is_given_back_where_it_was_made():
    for row, dimension in zip(NARROWEST, DIMENSIONS, strict=True):
        for value, size in zip(row, SIZES, strict=True):
            assert narrowest_usual(dimension, size) == pytest.approx(value)
            assert 0 < value < 1


def test_more_dimensions_are_never_narrower():
    for size in (12, 20, 50, 100, 400, 1000):
        found = [narrowest_usual(d, size) for d in np.linspace(1, 6, 60)]
        assert (np.diff(found) >= -1e-12).all()


def test_between_the_entries_lies_what_is_between():
    for dimension in (1.3, 1.7, 2.3, 3.0, 4.2):
        above = np.searchsorted(DIMENSIONS, dimension)
        for column, size in enumerate(SIZES):
            ends = sorted((NARROWEST[above - 1][column], NARROWEST[above][column]))
            assert ends[0] <= narrowest_usual(dimension, size) <= ends[1]


def test_beyond_the_table_its_edge_counts():
    corners = [narrowest_usual(d, n) for d, n in [(0.2, 1), (0.2, 1e6), (100, 1), (100, 1e6)]]
    assert corners == [NARROWEST[i][j] for i in (0, -1) for j in (0, -1)]
    assert narrowest_usual(2.0, 0) == narrowest_usual(2.0, SIZES[0])
