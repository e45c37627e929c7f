"""Keys of rows: a slow twin, and what they may depend on."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays

from tests.any_data_cases import images, mapped
from unsplit.data.rows import base as hashing
from unsplit.data.rows.base import keys_of_bytes, odd_numbers, scrambled

quick = settings(deadline=None, max_examples=40, derandomize=True)

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
