"""Neither the order of the rows nor the names of the clusters matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unsplit import TrainConfig, pairwise_tvd
from unsplit.data.rows.base import canonical_order

quick = settings(deadline=None, max_examples=200, derandomize=True)


def partition_by_number(keys, clusters):
    """The keys of each cluster in the order of the new numbers, and the keys in the new order."""
    order, renamed = canonical_order(np.array(keys, np.uint64), np.array(clusters))
    members = [
        tuple(sorted(np.array(keys)[renamed == number])) for number in range(renamed.max() + 1)
    ]
    return members, np.array(keys)[order].tolist()


@quick
@given(st.data())
def test_rows_and_names_do_not_matter_even_if_clusters_share_rows(data):
    # Few different rows, so that clusters often share the smallest and more.
    n = data.draw(st.integers(2, 12))
    keys = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    drawn = data.draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n))
    drawn[0] = 0  # at least one is no noise
    names, clusters = np.unique(np.array(drawn)[np.array(drawn) >= 0], return_inverse=True)
    labels = np.full(n, -1)
    labels[np.array(drawn) >= 0] = clusters
    shuffled = np.array(data.draw(st.permutations(range(n))))
    new_name = np.array([*data.draw(st.permutations(range(len(names)))), -1])
    found = partition_by_number(keys, labels)
    other = partition_by_number(np.array(keys)[shuffled], new_name[labels][shuffled])
    assert other == found


def test_rows_of_a_cluster_are_ordered_by_their_content():
    members, keys = partition_by_number([9, 3, 7, 1], [0, 0, 1, 1])
    assert members == [(1, 7), (3, 9)]
    assert keys == [1, 7, 3, 9]


def test_of_clusters_with_the_same_smallest_row_the_other_rows_decide():
    keys, clusters = [5, 9, 5, 7, 5, 8], [0, 0, 1, 1, 2, 2]
    first, _ = partition_by_number(keys, clusters)
    for names in ([1, 0, 2], [2, 1, 0], [1, 2, 0]):
        other, _ = partition_by_number(keys, np.array(names)[clusters])
        assert other == first
    assert sorted(first) == [(5, 7), (5, 8), (5, 9)]


@pytest.mark.parametrize("rest", [[], [7]])
def test_how_often_a_row_of_zeros_occurs_decides_too(rest):
    # The key of a row of zeros is 0.
    keys, clusters = [0, 0, 0, *rest, *rest], [0, 1, 1, *[0 for _ in rest], *[1 for _ in rest]]
    first, _ = partition_by_number(keys, clusters)
    other, _ = partition_by_number(keys, 1 - np.array(clusters))
    assert other == first


@pytest.mark.parametrize("names", [[1, 0, 2, 3], [3, 2, 1, 0]])
def test_distances_do_not_depend_on_names_where_clusters_share_their_smallest_row(names):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4, 12, 2)) + np.arange(4)[:, None, None]
    X[:, 0] = 0.0  # a row that all clusters have, with the smallest key: 0
    clusters, names = np.repeat(np.arange(4), 12), np.array(names)
    one, other = (
        pairwise_tvd(
            X.reshape(-1, 2), labels, training=TrainConfig(epochs=2), random_state=0, device="cpu"
        )
        for labels in (clusters, names[clusters])
    )
    np.testing.assert_array_equal(other.tvd[np.ix_(names, names)], one.tvd)
