import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unsplit.merging.pairs import ClosestPairs

quick = settings(deadline=None, max_examples=60, derandomize=True)


def naive_closest(distances):
    """The first pair in reading order among those with the least finite distance."""
    k = len(distances)
    pairs = [(distances[a, b], a, b) for a in range(k) for b in range(a + 1, k)]
    least, a, b = min(pairs)
    return None if least == np.inf else (a, b)


def random_matrix(rng, k, n_values=1000):
    """Symmetric, with as many ties as few values give."""
    values = rng.integers(n_values, size=(k, k)) / n_values
    return np.triu(values, 1) + np.triu(values, 1).T


def change(rng, pairs, twin, n_values):
    """One random change to the search and to a plain matrix."""
    k = len(twin)
    a, b = rng.choice(k, 2, replace=False).tolist()
    kind = rng.choice(["row", "blocked row", "forbid", "closest", "remove"])
    if kind == "forbid" or kind == "closest":
        a, b = (naive_closest(twin) or (a, b)) if kind == "closest" else (a, b)
        pairs.forbid(a, b)
        twin[a, b] = twin[b, a] = np.inf
        return
    row = rng.integers(n_values, size=k) / n_values
    if kind == "blocked row":
        row[rng.random(k) < 0.5] = np.inf
    if kind == "remove":
        pairs.remove(a)
        row = np.full(k, np.inf)
    else:
        pairs.set_row(a, row)
    twin[a], twin[:, a], twin[a, a] = row, row, np.inf


@quick
@given(st.integers(0, 10**6), st.integers(2, 9), st.sampled_from([1, 2, 5, 1000]))
def test_any_sequence_of_changes_against_looking_at_all_pairs(seed, k, n_values):
    rng = np.random.default_rng(seed)
    twin = random_matrix(rng, k, n_values)
    pairs = ClosestPairs(twin)
    np.fill_diagonal(twin, np.inf)
    for _ in range(25):
        assert pairs.closest() == naive_closest(twin)
        change(rng, pairs, twin, n_values)
        np.testing.assert_array_equal(pairs.distances, twin)
        np.testing.assert_array_equal(pairs.least, twin.min(axis=1))
    assert pairs.closest() == naive_closest(twin)


@quick
@given(st.integers(0, 10**6), st.integers(2, 8))
def test_refusing_the_closest_again_and_again_visits_all_pairs_in_order(seed, k):
    matrix = random_matrix(np.random.default_rng(seed), k, 3)
    pairs = ClosestPairs(matrix)
    seen = []
    while (closest := pairs.closest()) is not None:
        seen.append(closest)
        pairs.forbid(*closest)
    everything = [(a, b) for a in range(k) for b in range(a + 1, k)]
    assert seen == sorted(everything, key=lambda pair: (matrix[pair], pair))


def test_ties_go_to_the_first_pair():
    pairs = ClosestPairs(np.ones((4, 4)))
    assert pairs.closest() == (0, 1)
    pairs.forbid(0, 1)
    assert pairs.closest() == (0, 2)
    pairs.remove(0)
    assert pairs.closest() == (1, 2)
    pairs.set_row(0, np.ones(4))
    assert pairs.closest() == (0, 1)


def test_a_new_row_takes_back_a_refusal():
    pairs = ClosestPairs(np.array([[0, 1.0, 5], [1, 0, 4], [5, 4, 0]]))
    pairs.forbid(0, 1)
    assert pairs.closest() == (1, 2)
    pairs.set_row(0, np.array([0, 2.0, 3.0]))
    assert pairs.closest() == (0, 1)


def test_two_clusters():
    pairs = ClosestPairs(np.array([[0.0, 0.3], [0.3, 0.0]]))
    assert pairs.closest() == (0, 1)
    pairs.forbid(1, 0)
    assert pairs.closest() is None


def test_nothing_is_left_when_all_but_one_are_removed():
    pairs = ClosestPairs(random_matrix(np.random.default_rng(0), 5))
    for gone in (1, 4, 0):
        pairs.remove(gone)
        assert gone not in pairs.closest()
    pairs.remove(2)
    assert pairs.closest() is None


@pytest.mark.parametrize("method", ["set_row", "forbid", "remove"])
def test_the_matrices_it_is_given_stay_as_they_are(method):
    matrix, row = np.ones((3, 3)), np.arange(3.0)
    before = matrix.copy(), row.copy()
    arguments = {"set_row": (0, row), "forbid": (0, 1), "remove": (0,)}[method]
    getattr(ClosestPairs(matrix), method)(*arguments)
    np.testing.assert_array_equal(matrix, before[0])
    np.testing.assert_array_equal(row, before[1])


def naive_within_reach(known, refused, reach):
    """The same among the pairs of which one is among the nearest of the other."""
    horizon = np.sort(known, axis=1)[:, reach - 1]
    near = (known <= horizon[:, None]) | (known <= horizon)
    return naive_closest(np.where(near & ~refused, known, np.inf))


@quick
@given(
    st.integers(0, 10**6),
    st.integers(3, 9),
    st.integers(1, 4),
    st.sampled_from([1, 3, 1000]),
)
def test_only_neighbours_are_looked_at(seed, k, reach, n_values):
    rng = np.random.default_rng(seed)
    known = random_matrix(rng, k, n_values)
    pairs = ClosestPairs(known, reach)
    np.fill_diagonal(known, np.inf)
    refused = np.zeros((k, k), bool)
    reach = min(reach, k - 1)
    for _ in range(25):
        found = pairs.closest()
        assert found == naive_within_reach(known, refused, reach)
        if found is not None and rng.random() < 0.6:
            pairs.forbid(*found)
            refused[found] = refused[found[::-1]] = True
            continue
        a = int(rng.integers(k))
        row = rng.integers(n_values, size=k) / n_values
        row[(rng.random(k) < 0.3) | (rng.random() < 0.3)] = np.inf
        pairs.set_row(a, row)
        known[a], known[:, a], known[a, a] = row, row, np.inf
        refused[a] = refused[:, a] = False
