import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays

from tests.checks import exactly
from unsplit.data.rows import base
from unsplit.data.rows.kinds import vector_rows
from unsplit.errors import InputError

quick = settings(deadline=None, max_examples=30, derandomize=True)
CPU = torch.device("cpu")

small_tables = numpy_arrays(
    np.float64,
    st.tuples(st.integers(1, 8), st.integers(1, 5)),
    # Many zeros of both signs.
    elements=st.one_of(st.sampled_from([0.0, -0.0, 1.0]), st.floats(-1e6, 1e6)),
)


def some_zeros(n=40, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4)


def all_rows(rows):
    return rows.take(torch.arange(len(rows))).numpy()


def from_first_row(rows):
    """Values without the shift that dense rows carry."""
    values = all_rows(rows).astype(float)
    return values - values[0]


FORMATS = ["csr", "csc", "coo", "lil"]


@pytest.mark.parametrize("sparse_format", FORMATS)
def test_dense_and_sparse_rows_differ_by_the_same_amounts(sparse_format):
    X = some_zeros()
    sparse = vector_rows(scipy.sparse.csr_array(X).asformat(sparse_format), CPU)
    np.testing.assert_allclose(from_first_row(sparse), X - X[0], atol=1e-6)
    np.testing.assert_allclose(from_first_row(vector_rows(X, CPU)), X - X[0], atol=1e-6)


def test_old_style_sparse_matrix_is_taken():
    X = some_zeros()
    rows = vector_rows(scipy.sparse.csr_matrix(X), CPU)
    np.testing.assert_allclose(all_rows(rows), X, atol=1e-6)


@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_take_keeps_the_shape_and_order_of_the_index(wrap):
    X = some_zeros()
    rows = vector_rows(wrap(X), CPU)
    index = torch.tensor([[5, 0, 5], [39, 1, 2]])
    taken = rows.take(index)
    assert taken.shape == (2, 3, 6)
    assert taken.dtype == torch.float32
    expected = X[index.numpy()] - X[5]
    np.testing.assert_allclose((taken - taken[0, 0]).numpy(), expected, atol=1e-6)


def test_length_and_number_of_features():
    rows = vector_rows(some_zeros(n=7, d=3), CPU)
    assert (len(rows), rows.n_features) == (7, 3)


@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_moments_standardise_the_chosen_rows(wrap):
    X = some_zeros() * 3 + (some_zeros(seed=1) != 0)
    rows = vector_rows(wrap(X), CPU)
    index = np.arange(0, 40, 3)
    mean, scale = rows.moments(index)
    np.testing.assert_allclose(scale.numpy(), X[index].std(axis=0), rtol=1e-5)
    # The mean is in the same shifted units as the rows.
    standardised = (all_rows(rows) - mean.numpy()) / scale.numpy()
    expected = (X - X[index].mean(axis=0)) / X[index].std(axis=0)
    np.testing.assert_allclose(standardised, expected, atol=1e-5)


@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_moments_and_keys_do_not_depend_on_the_chunks(wrap, monkeypatch):
    X = some_zeros()
    rows = vector_rows(wrap(X), CPU)
    (mean, scale), keys = rows.moments(np.arange(30)), rows.keys
    monkeypatch.setattr(base, "CHUNK_ELEMENTS", 20)
    mean_in_chunks, scale_in_chunks = rows.moments(np.arange(30))
    torch.testing.assert_close(mean_in_chunks, mean)
    torch.testing.assert_close(scale_in_chunks, scale)
    np.testing.assert_array_equal(rows.keys, keys)


@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("constant", [0.0, 0.1, -7.3, 1e9])
def test_constant_features_have_scale_one(wrap, constant):
    X = some_zeros()
    X[:, 2] = constant
    _, scale = vector_rows(wrap(X), CPU).moments(np.arange(40))
    assert scale[2] == 1.0
    assert (scale > 0).all()


def test_feature_constant_only_among_the_chosen_rows_has_scale_one():
    X = some_zeros()
    X[:20, 0] = 0.3
    rows = vector_rows(X, CPU)
    mean, scale = rows.moments(np.arange(20))
    assert scale[0] == 1.0
    np.testing.assert_allclose(all_rows(rows)[:20, 0], mean[0], atol=1e-6)


@pytest.mark.parametrize("offset", [1e9, -1e9])
def test_large_common_offset_keeps_precision(offset):
    small = some_zeros()
    X = small + offset
    rows = vector_rows(X, CPU)
    # What float64 still holds at this offset, and float32 would not.
    np.testing.assert_allclose(from_first_row(rows), small - small[0], atol=1e-6)
    _, scale = rows.moments(np.arange(40))
    np.testing.assert_allclose(scale.numpy(), small.std(axis=0), rtol=1e-5)


@quick
@given(small_tables)
def test_keys_of_dense_and_sparse_rows_agree(X):
    dense = vector_rows(X, CPU).keys
    sparse = vector_rows(scipy.sparse.csr_array(X), CPU).keys
    assert dense.dtype == np.uint64
    np.testing.assert_array_equal(dense, sparse)


@quick
@given(small_tables, st.randoms(use_true_random=False))
def test_permuting_rows_permutes_keys(X, random):
    order = np.array(random.sample(range(len(X)), len(X)))
    keys, permuted = vector_rows(X, CPU).keys, vector_rows(X[order], CPU).keys
    np.testing.assert_array_equal(permuted, keys[order])


@quick
@given(small_tables)
def test_negative_zero_is_zero_in_keys(X):
    without = np.where(X == 0, 0.0, X)
    np.testing.assert_array_equal(vector_rows(X, CPU).keys, vector_rows(without, CPU).keys)


def test_zeros_stored_in_a_sparse_matrix_do_not_change_keys():
    stored = scipy.sparse.csr_array(([0.0, -0.0, 2.0], [0, 2, 1], [0, 2, 3]), shape=(2, 3))
    assert stored.nnz == 3
    expected = vector_rows(stored.toarray(), CPU).keys
    np.testing.assert_array_equal(vector_rows(stored, CPU).keys, expected)


@pytest.mark.parametrize(
    "repeated",
    [
        scipy.sparse.coo_array(([1.0, 2.0, 3.0, 4.0], ([0, 0, 1, 0], [2, 0, 1, 2])), shape=(2, 3)),
        scipy.sparse.csr_array(([1.0, 2.0, 4.0, 3.0], [2, 0, 2, 1], [0, 3, 4]), shape=(2, 3)),
    ],
    ids=["coo", "csr"],
)
def test_unsorted_and_repeated_sparse_entries_do_not_change_keys(repeated):
    assert repeated.nnz == 4
    expected = vector_rows([[2.0, 0.0, 5.0], [0.0, 3.0, 0.0]], CPU).keys
    np.testing.assert_array_equal(vector_rows(repeated, CPU).keys, expected)


def test_keys_tell_rows_apart_and_see_the_place_of_a_value():
    X = np.random.default_rng(0).standard_normal((5000, 3))
    assert len(np.unique(vector_rows(X, CPU).keys)) == 5000
    assert len(np.unique(vector_rows(np.eye(8), CPU).keys)) == 8


def test_equal_rows_have_equal_keys_whatever_the_number_type():
    X = np.array([[1, 0, 3], [2, 2, 0], [1, 0, 3]])
    expected = vector_rows(X, CPU).keys
    assert expected[0] == expected[2] != expected[1]
    for dtype in (np.int8, np.uint16, np.float16, np.float32, np.float64):
        np.testing.assert_array_equal(vector_rows(X.astype(dtype), CPU).keys, expected)


INPUTS = {
    "int": np.array([[1, 5], [3, 2], [0, 0]]),
    "uint8": np.array([[1, 5], [3, 2], [0, 0]], np.uint8),
    "bool": np.array([[True, False], [False, True], [True, True]]),
    "float16": np.array([[1.5, 5], [3, 2], [0, 0]], np.float16),
    "float32": np.array([[1.5, 5], [3, 2], [0, 0]], np.float32),
    "fortran": np.asfortranarray([[1.5, 5], [3, 2], [0, 0]]),
    "strided": np.arange(24.0).reshape(6, 4)[::2, ::2],
    "read-only": np.frombuffer(np.arange(6.0).tobytes()).reshape(3, 2),
    "big-endian": np.array([[1.5, 5], [3, 2], [0, 0]], ">f8"),
    "list": [[1.5, 5], [3, 2], [0, 0]],
    "list of arrays": [np.array([1.5, 5]), np.array([3, 2]), np.array([0, 0])],
    "object": np.array([[1.5, 5], [3, 2], [0, 0]], object),
    "frame": pd.DataFrame({"a": [1, 3, 0], "b": [5.5, 2, 0]}),
}


@pytest.mark.parametrize("X", INPUTS.values(), ids=INPUTS.keys())
def test_every_kind_of_numeric_table_is_taken(X):
    expected = np.array(X, dtype=float)
    rows = vector_rows(X, CPU)
    assert rows.take(torch.tensor([0])).dtype == torch.float32
    np.testing.assert_allclose(from_first_row(rows), expected - expected[0], rtol=1e-6)
    _, scale = rows.moments(np.arange(3))
    np.testing.assert_allclose(scale.numpy(), expected.std(axis=0), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.int32, bool, np.float32])
def test_sparse_matrices_of_other_number_types_are_taken(dtype):
    X = np.array([[1, 0, 0], [0, 1, 1]], dtype)
    rows = vector_rows(scipy.sparse.csr_array(X), CPU)
    np.testing.assert_array_equal(all_rows(rows), X.astype(float))


def test_sparse_matrix_without_any_entry_is_taken():
    rows = vector_rows(scipy.sparse.csr_array((4, 3)), CPU)
    np.testing.assert_array_equal(all_rows(rows), np.zeros((4, 3)))
    assert rows.moments(np.arange(4))[1].tolist() == [1.0, 1.0, 1.0]


def test_the_input_is_left_as_it_was():
    dense = some_zeros()
    vector_rows(dense, CPU)
    np.testing.assert_array_equal(dense, some_zeros())
    stored = scipy.sparse.csr_array(([0.0, 5.0, 2.0], [2, 2, 1], [0, 2, 3]), shape=(2, 3))
    vector_rows(stored, CPU)
    assert stored.data.tolist() == [0.0, 5.0, 2.0]
    assert stored.indices.tolist() == [2, 2, 1]


@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_and_infinite_values_are_counted(wrap, dtype):
    X = np.array([[1.0, np.nan], [np.inf, -np.inf], [0.0, 2.0]], dtype)
    sentence = (
        "X has missing or infinite values (1 in column 0, 2 in column 1); remove those "
        "rows or fill in the values first."
    )
    with pytest.raises(InputError, match=exactly(sentence)):
        vector_rows(wrap(X), CPU)


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4)])
def test_other_than_two_dimensions_are_refused_with_the_shape(shape):
    sentence = (
        f"X must be a table with one row per observation, got shape {shape}; "
        "reshape it to (observations, features)."
    )
    with pytest.raises(InputError, match=exactly(sentence)):
        vector_rows(np.zeros(shape), CPU)


@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_empty_tables_are_refused_with_the_shape(wrap, shape):
    sentence = f"X is empty (shape {shape}); pass at least two observations."
    with pytest.raises(InputError, match=exactly(sentence)):
        vector_rows(wrap(np.zeros(shape)), CPU)


@pytest.mark.parametrize(
    ("X", "where"),
    [
        (np.array([["red", "blue"], ["a", "b"]]), "'red' in row 0, column 0"),
        (np.array([[1.0, 3.0], [2.0, "blue"]], object), "'blue' in row 1, column 1"),
        (np.array([[1, {}], [2, 3]], object), "'{}' in row 0, column 1"),
    ],
    ids=["strings", "mixed", "dict"],
)
def test_values_that_are_no_numbers_are_refused_with_their_place(X, where):
    with pytest.raises(InputError, match=f"X must hold numbers, got {where}; encode text"):
        vector_rows(X, CPU)


@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_values_beyond_single_precision_are_refused(wrap):
    sentence = (
        "X has values as large as 3e+200 (observation 0 of X, feature 1), beyond what single "
        "precision holds; rescale the features first."
    )
    with pytest.raises(InputError, match=exactly(sentence)):
        vector_rows(wrap(np.array([[1.0, -3e200], [0.0, 1.0]])), CPU)


def test_values_up_to_the_limit_stay_finite():
    rows = vector_rows([[1e30, 1.0], [-1e30, 2.0]], CPU)
    assert np.isfinite(all_rows(rows)).all()
    mean, scale = rows.moments(np.arange(2))
    assert torch.isfinite(mean).all()
    assert scale[0].item() == pytest.approx(1e30, rel=1e-5)


def test_keys_of_whole_numbers_do_not_collide():
    # As float64, small whole numbers differ in their high bits only.
    X = np.random.default_rng(0).integers(0, 2, (5000, 40)).astype(float)
    distinct = len(np.unique(X, axis=0))
    assert len(np.unique(vector_rows(X, CPU).keys)) == distinct


def test_complex_and_ragged_input_are_refused():
    with pytest.raises(InputError, match="X must hold numbers, got values of type complex128"):
        vector_rows(np.ones((2, 2), complex), CPU)
    with pytest.raises(InputError, match="observations in X differ in shape"):
        vector_rows([[1.0, 2.0], [3.0]], CPU)
