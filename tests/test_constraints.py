"""What the user knows already, and contradictions in it."""

import math
import re

import numpy as np
import pytest
import scipy.cluster.hierarchy as sch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.merging_cases import gaussian_estimate, partition_of
from unsplit import InputError, merge

quick = settings(deadline=None, max_examples=40, derandomize=True)


def line(k):
    """Clusters 0, 1, 2 … on a line, far from each other in the order of their numbers."""
    places = np.cumsum(np.arange(k)) / math.comb(k, 2)
    return np.abs(places[:, None] - places)


def refuses(sentence, **merge_options):
    merge_options = (
        {"max_tvd": 0.3} | merge_options if "n_clusters" not in merge_options else merge_options
    )
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        merge(line(5), **merge_options)


# --- must_link ------------------------------------------------------------------------------------


def test_must_links_come_first_with_height_zero():
    tree = merge(line(6), max_tvd=0.01, constraints={"must_link": [(1, 5), (0, 4)]})
    assert tree.groups.tolist() == [0, 1, 2, 3, 0, 1]
    assert [m.why for m in tree.merges[:2]] == ["required by must_link"] * 2
    assert [m.height for m in tree.merges[:2]] == [0, 0]
    # What they are ranked by is told all the same.
    assert [m.statistic for m in tree.merges[:2]] == [line(6)[1, 5], line(6)[0, 4]]
    assert sch.is_valid_linkage(tree.linkage)
    assert tree.merges[2].why == "beyond the cut: TVD 0.200 is above 0.01"


@pytest.mark.parametrize(
    "links",
    [
        [(0, 2), (2, 4)],
        [(4, 2), (2, 0), (0, 4)],
        [(0, 2, 4)],
        [[4, 0, 2]],
        [np.array([0, 2, 4])],
        ((a, b) for a, b in [(0, 2), (4, 2)]),
    ],
)
def test_chains_and_triples_of_must_links(links):
    tree = merge(line(5), n_clusters=3, constraints={"must_link": links})
    assert tree.groups.tolist() == [0, 1, 0, 2, 0]
    assert [m.why for m in tree.merges].count("required by must_link") == 2


def test_links_by_name():
    result, _ = gaussian_estimate([0, 0, 5, 5], 20, names=["10", "2", "9", "x"])
    tree = merge(
        result, n_clusters=2, constraints={"must_link": [("10", "x")], "cannot_link": [("9", "x")]}
    )
    assert tree.mapping == {"10": 0, "2": 0, "9": 1, "x": 0}
    numbers, _ = gaussian_estimate([0, 0, 5, 5], 20, names=[-5, 2, 9, 10])
    assert merge(numbers, n_clusters=2, constraints={"must_link": [(10, -5)]}).mapping[10] == 0


def test_must_links_of_scores_are_reported_like_other_merges():
    result, _ = gaussian_estimate([0, 0, 5], 30)
    first = merge(result, alpha=0.05, constraints={"must_link": [(0, 2)]}).merges[0]
    assert first.why == "required by must_link"
    assert first.height == 0 < first.statistic
    assert first.tvd == pytest.approx(result.tvd[0, 2])
    assert first.p_adjusted == pytest.approx(3 * result.p_value[0, 2])


# --- cannot_link ----------------------------------------------------------------------------------


def test_cannot_link_keeps_apart_what_is_closest():
    tree = merge(line(5), max_tvd=1.0, constraints={"cannot_link": [(0, 1)]})
    assert tree.n_clusters == 2
    assert tree.groups[0] != tree.groups[1]
    assert tree.n_forbidden == 1
    assert tree.merges[-1].why == "kept apart by cannot_link"
    assert [m.why for m in tree.merges].count("kept apart by cannot_link") == 1
    triple = merge(line(5), max_tvd=1.0, constraints={"cannot_link": [(0, 1, 2)]})
    assert len(set(triple.groups[:3])) == 3
    assert (triple.n_clusters, triple.n_forbidden) == (3, 2)


def test_cuts_below_a_cannot_link_are_refused():
    tree = merge(line(5), max_tvd=0.2, constraints={"cannot_link": [(0, 1, 2)]})
    sentence = "n_clusters=2 is not possible without breaking a link; choose 3 to 5."
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        tree.cut(n_clusters=2)
    assert tree.cut(n_clusters=3).n_clusters == 3
    assert tree.cut(height=9.0).n_clusters == 3


@quick
@given(st.integers(0, 10**6), st.integers(3, 9), st.data())
def test_links_hold_at_every_cut(seed, k, data):
    rng = np.random.default_rng(seed)
    points = rng.random((k, 2))
    matrix = np.linalg.norm(points[:, None] - points, axis=-1)
    pairs = st.tuples(st.integers(0, k - 1), st.integers(0, k - 1)).filter(lambda p: p[0] != p[1])
    cannot = data.draw(st.lists(pairs, max_size=5))
    must = data.draw(st.lists(pairs, max_size=2))
    linked = merge(
        matrix, n_clusters=len(partition_of(_joined(k, must))), constraints={"must_link": must}
    )
    if any(linked.groups[a] == linked.groups[b] for a, b in cannot):
        with pytest.raises(InputError, match=r"but must_link or other answers join them; drop one"):
            merge(matrix, max_tvd=0.5, constraints={"must_link": must, "cannot_link": cannot})
        return
    tree = merge(matrix, max_tvd=0.5, constraints={"must_link": must, "cannot_link": cannot})
    assert sch.is_valid_linkage(tree.linkage, throw=True)
    n_linked = k - linked.n_clusters
    assert [m.why for m in tree.merges[:n_linked]] == ["required by must_link"] * n_linked
    for n in range(1 + tree.n_forbidden, linked.n_clusters + 1):
        groups = tree.cut(n_clusters=n).groups
        assert all(groups[a] != groups[b] for a, b in cannot)
        assert all(groups[a] == groups[b] for a, b in must)
    if n_linked:
        with pytest.raises(InputError, match=r"not possible without breaking a link; choose"):
            tree.cut(n_clusters=k)
    # No more are called forbidden than have to be: all that are left are kept apart.
    last = tree.cut(n_clusters=1 + tree.n_forbidden).groups
    apart = {frozenset((last[a], last[b])) for a, b in cannot}
    assert len(apart) == math.comb(1 + tree.n_forbidden, 2)


def _joined(k, pairs):
    group = list(range(k))
    for a, b in pairs:
        group = [group[a] if g == group[b] else g for g in group]
    return group


# --- how many -------------------------------------------------------------------------------------


def test_min_clusters_stops_the_rule():
    assert merge(line(6), max_tvd=1.0).n_clusters == 1
    tree = merge(line(6), max_tvd=1.0, n_clusters=(4, None))
    assert tree.n_clusters == 4
    assert tree.stopped == "at least 4 clusters were requested"
    assert merge(line(6), max_tvd=0.01, n_clusters=(4, None)).n_clusters == 6


def test_max_clusters_goes_on_where_the_rule_stops():
    assert merge(line(6), max_tvd=0.0).n_clusters == 6
    tree = merge(line(6), max_tvd=0.0, n_clusters=(None, 3))
    assert tree.n_clusters == 3
    forced = "; merged to reach the requested number of clusters"
    assert all(m.why.endswith(forced) for m in tree.merges[:3])
    assert tree.merges[3].why.startswith("beyond the cut: TVD ")
    assert tree.stopped == "every remaining pair has a TVD above 0"
    assert merge(line(6), max_tvd=1.0, n_clusters=(None, 3)).n_clusters == 1
    assert merge(line(6), max_tvd=0.0, n_clusters=(3, 3)).n_clusters == 3


def test_what_the_rule_allows_comes_before_what_is_forced():
    matrix = np.full((4, 4), 0.85)
    matrix[0, 1] = matrix[1, 0] = 0.5
    matrix[2, 3] = matrix[3, 2] = 0.1
    tree = merge(matrix, max_tvd=0.2, n_clusters=(None, 2))
    assert tree.groups.tolist() == [0, 0, 1, 1]
    assert [m.why for m in tree.merges] == [
        "TVD 0.100 is at most 0.2",
        "TVD 0.500 is above 0.2; merged to reach the requested number of clusters",
        "beyond the cut: TVD 0.850 is above 0.2",
    ]


def test_ties_among_forced_merges_go_to_the_first():
    tree = merge(np.ones((5, 5)), max_tvd=0.5, n_clusters=(None, 2))
    assert [(m.left, m.right) for m in tree.merges] == [(0, 1), (5, 2), (6, 3), (7, 4)]


@pytest.mark.parametrize("n", range(1, 7))
def test_exactly_as_many_as_asked_for(n):
    assert merge(line(6), n_clusters=n, random_state=0).n_clusters == n
    if 2 <= n <= 5:
        tree = merge(
            line(6),
            n_clusters=n,
            random_state=0,
            constraints={"must_link": [(0, 5)], "cannot_link": [(1, 2)]},
        )
        assert tree.n_clusters == n
        assert tree.groups[0] == tree.groups[5]
        assert tree.groups[1] != tree.groups[2]


# --- contradictions -------------------------------------------------------------------------------


def test_links_against_each_other():
    refuses(
        "1 and 3 are to be kept apart (cannot_link, or an answer), but must_link or other answers "
        "join them; drop one of these links.",
        constraints={"must_link": [(1, 2), (3, 2)], "cannot_link": [(0, 4), (1, 3)]},
    )


def test_links_to_itself():
    sentence = "{} must hold pairs of cluster names, got {}; pass a list such as [(3, 7)]."
    for name in ("must_link", "cannot_link"):
        refuses(sentence.format(name, "(0, 1, 1)"), constraints={name: [(0, 1, 1)]})


@pytest.mark.parametrize("name", ["must_link", "cannot_link"])
def test_links_that_are_no_pairs(name):
    sentence = "{} must hold pairs of cluster names, got {}; pass a list such as [(3, 7)]."
    refuses(sentence.format(name, "'ab'"), constraints={name: ["ab"]})
    refuses(sentence.format(name, "(1,)"), constraints={name: [(1,)]})
    # One pair where a list of pairs is wanted.
    refuses(sentence.format(name, "0"), constraints={name: (0, 1)})
    refuses(sentence.format(name, "'a'"), constraints={name: ("a", "b")})


@pytest.mark.parametrize("name", ["must_link", "cannot_link"])
def test_links_between_unknown_clusters(name):
    refuses(
        f"{name} names 7, which is not a cluster; the clusters are 0, 1, 2, 3, 4.",
        constraints={name: [(0, 7)]},
    )
    with pytest.raises(InputError, match=r"the clusters are 0, 1, 2, 3, 4, 5, 6, 7, …\.$"):
        merge(line(9), n_clusters=2, constraints={name: [("x", 0)]})


@pytest.mark.parametrize("value", [0, 6, -1, 2.5, "2"])
def test_bounds_out_of_range(value):
    for n_clusters in (value, (value, None), (None, value)):
        refuses(
            "n_clusters must be a whole number from 1 to 5, the number of initial clusters, or a "
            f"pair (fewest, most), got {n_clusters!r}.",
            n_clusters=n_clusters,
            **({} if n_clusters == value else {"max_tvd": 0.5}),
        )


def test_bounds_against_each_other():
    refuses(
        "n_clusters asks for at least 4 and at most 2 clusters; swap the two numbers.",
        n_clusters=(4, 2),
        max_tvd=0.5,
    )


def test_bounds_against_links():
    refuses(
        "must_link leaves 3 clusters, fewer than the 4 requested; drop a link or request fewer "
        "clusters.",
        constraints={"must_link": [(0, 1, 2)]},
        n_clusters=(4, None),
        max_tvd=0.5,
    )
    refuses(
        "must_link leaves 3 clusters, fewer than the 4 requested; drop a link or request fewer "
        "clusters.",
        constraints={"must_link": [(0, 1, 2)]},
        n_clusters=4,
    )
    sentence = (
        "merging the closest pairs first, cannot_link leaves 3 clusters, more than the 2 "
        "requested; drop some of these links, add must_link for clusters that belong together, or "
        "request more clusters."
    )
    refuses(sentence, constraints={"cannot_link": [(0, 1, 2)]}, n_clusters=(None, 2), max_tvd=0.3)
    refuses(sentence, constraints={"cannot_link": [(0, 1, 2)]}, n_clusters=2)


def test_a_cut_at_any_height_keeps_must_links():
    tree = merge(line(6), n_clusters=2, constraints={"must_link": [(1, 5)]})
    assert tree.cut(height=-1).n_clusters == 5
