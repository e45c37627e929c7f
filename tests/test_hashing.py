"""Rows are hashed, and by these keys ordered, so that neither their order nor names matter."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays

from tests.any_data_cases import images, mapped
from unsplit import TrainConfig, pairwise_tvd
from unsplit.data.rows import base as hashing
from unsplit.data.rows.base import canonical_order, keys_of_bytes, odd_numbers, scrambled

# --- Keys of rows: a slow twin, and what they may depend on ---


quick = settings(deadline=None, max_examples=100, derandomize=True)

small_arrays = numpy_arrays(
    st.sampled_from([np.uint8, np.bool_, np.float16, np.int32, np.float64]),
    st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 5)),
)


def splitmix(bits):
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
    return bits ^ bits >> 31


def naive_keys(values):
    """From the definition: words of eight bytes, mixed, times odd numbers, summed."""
    keys = []
    for row in values:
        text = row.tobytes()
        text += bytes(-len(text) % 8)
        words = [int.from_bytes(text[i : i + 8], sys.byteorder) for i in range(0, len(text), 8)]
        odd = odd_numbers(len(words)).tolist()
        keys.append(sum(splitmix(w) * m for w, m in zip(words, odd, strict=True)) % 2**64)
    return keys


@quick
@given(small_arrays)
def test_keys_are_those_of_the_slow_twin(values):
    keys = keys_of_bytes(values)
    assert keys.dtype == np.uint64
    assert keys.tolist() == naive_keys(values)


@quick
@given(small_arrays, st.randoms(use_true_random=False))
def test_permuting_rows_permutes_keys(values, random):
    order = np.array(random.sample(range(len(values)), len(values)))
    np.testing.assert_array_equal(keys_of_bytes(values[order]), keys_of_bytes(values)[order])


@quick
@given(
    numpy_arrays(np.uint8, st.tuples(st.just(1), st.integers(1, 30))),
    st.integers(0, 29),
    st.integers(1, 255),
)
def test_every_byte_counts(values, place, change):
    changed = values.copy()
    changed[0, place % values.shape[1]] ^= change
    assert keys_of_bytes(changed)[0] != keys_of_bytes(values)[0]


LAYOUTS = {
    "in order": lambda x: x,
    "reversed twice": lambda x: x[:, ::-1].copy()[:, ::-1],
    "fortran": np.asfortranarray,
    "channels moved": lambda x: np.moveaxis(np.moveaxis(x, -1, 1).copy(), 1, -1),
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_in_memory_does_not_count(layout):
    expected = keys_of_bytes(images())
    np.testing.assert_array_equal(keys_of_bytes(LAYOUTS[layout](images())), expected)


def test_neither_chunks_nor_the_disk_change_keys(monkeypatch, tmp_path):
    expected = keys_of_bytes(images())
    np.testing.assert_array_equal(keys_of_bytes(mapped(images(), tmp_path / "x.npy")), expected)
    monkeypatch.setattr(hashing, "CHUNK_ELEMENTS", 31)  # two images and a bit
    np.testing.assert_array_equal(keys_of_bytes(images()), expected)


def test_the_place_of_a_value_counts():
    assert len(np.unique(keys_of_bytes(np.eye(200, dtype=np.uint8)))) == 200
    swapped = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert len(np.unique(keys_of_bytes(swapped))) == 2


def test_keys_tell_many_rows_apart():
    distinct = np.arange(50_000, dtype=np.int64)[:, None]
    assert len(np.unique(keys_of_bytes(distinct))) == 50_000


def test_no_rows_have_no_keys_and_rows_of_nothing_are_equal():
    assert keys_of_bytes(np.zeros((0, 3), np.uint8)).shape == (0,)
    assert keys_of_bytes(np.zeros((2, 0), np.uint8)).tolist() == [0, 0]


def test_scrambled_loses_nothing_and_leaves_zero():
    bits = np.concatenate([np.arange(1000), 2 ** np.arange(64, dtype=np.uint64)]).astype(np.uint64)
    assert len(np.unique(scrambled(bits))) == len(np.unique(bits))
    assert scrambled(np.zeros(1, np.uint64))[0] == 0
    assert scrambled(bits[:5]).tolist() == [splitmix(b) for b in bits[:5].tolist()]


def test_odd_numbers_are_odd_and_the_same_at_every_call():
    numbers = odd_numbers(100)
    assert (numbers % np.uint64(2) == 1).all()
    assert len(np.unique(numbers)) == 100
    np.testing.assert_array_equal(odd_numbers(100), numbers)


# --- Neither the order of the rows nor the names of the clusters matter ---


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
