import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unsplit.data.labels import as_named, encode_labels
from unsplit.errors import InputError

quick = settings(deadline=None, max_examples=30, derandomize=True)


def exactly(sentence):
    return "^" + re.escape(sentence) + "$"


def check(labels, cluster_ids, clusters):
    encoded = encode_labels(labels, len(clusters))
    assert encoded.cluster_ids.tolist() == cluster_ids
    assert encoded.clusters.tolist() == clusters
    assert encoded.clusters.dtype == np.int64
    assert encoded.n_noise == clusters.count(-1)
    # Results are saved without pickle.
    assert encoded.cluster_ids.dtype != object


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.float32, float])
def test_integers_with_gaps_are_numbered_in_sorted_order(dtype):
    check(np.array([7, 3, 7, 100], dtype), [3, 7, 100], [1, 0, 1, 2])


def test_minus_one_is_noise_but_other_negative_numbers_are_clusters():
    check([5, -1, -2, 5], [-2, 5], [1, -1, 0, 1])


def test_largest_unsigned_value_is_not_mistaken_for_minus_one():
    check(np.array([0, 255, 255], np.uint8), [0, 255], [0, 1, 1])


def test_strings_are_numbered_in_sorted_order():
    check(["b", "a", "b"], ["a", "b"], [1, 0, 1])


def test_minus_one_as_text_and_empty_text_are_noise():
    check(["b", "-1", "", "a"], ["a", "b"], [1, -1, -1, 0])


def test_strings_of_digits_stay_strings():
    check(["10", "9"], ["10", "9"], [0, 1])


def test_none_is_noise_among_strings():
    check(["b", None, "a"], ["a", "b"], [1, -1, 0])


def test_none_is_noise_among_integers_and_they_stay_integers():
    check([4, None, -1, 2], [2, 4], [1, -1, -1, 0])


def test_every_way_to_say_noise_works_in_an_object_array():
    noise = [None, float("nan"), pd.NA, pd.NaT, -1, -1.0, "-1", np.int64(-1), np.float64("nan")]
    labels = np.array(["b", *noise, "a"], object)
    check(labels, ["a", "b"], [1, *[-1] * len(noise), 0])


def test_nan_is_noise_among_floats_and_whole_floats_become_integers():
    encoded = encode_labels(np.array([2.0, np.nan, 1.0, -1.0]), 4)
    assert encoded.cluster_ids.dtype == np.int64
    check(np.array([2.0, np.nan, 1.0, -1.0]), [1, 2], [1, -1, 0, -1])


def test_pandas_float_series_made_by_missing_values():
    # pandas turns integers with a gap into floats with NaN.
    check(pd.Series([3, None, 1]), [1, 3], [1, -1, 0])


@pytest.mark.parametrize("dtype", ["Int64", "Int8", "Float64"])
def test_pandas_nullable_numbers_with_missing_values(dtype):
    check(pd.array([3, None, 1], dtype=dtype), [1, 3], [1, -1, 0])


def test_pandas_text_with_missing_values():
    check(pd.Series(["b", None, "-1", "a"]), ["a", "b"], [1, -1, -1, 0])


def test_pandas_categorical_of_text_with_missing_values():
    categories = pd.Categorical(["b", None, "a"], categories=["b", "a", "unused"])
    check(categories, ["a", "b"], [1, -1, 0])


def test_pandas_categorical_of_numbers_with_missing_values():
    check(pd.Series([30, None, 4], dtype="category"), [4, 30], [1, -1, 0])


def test_pandas_index_of_the_series_does_not_matter():
    check(pd.Series([1, 0, 1], index=[9, 9, 2]), [0, 1], [1, 0, 1])


def test_bools_are_two_clusters():
    check([True, False, True], [False, True], [1, 0, 1])


def test_bools_with_missing_values():
    check(pd.array([True, None, False], dtype="boolean"), [False, True], [1, -1, 0])


def test_integers_and_strings_together_are_compared_as_strings():
    check(np.array([1, "a", 1], object), ["1", "a"], [0, 1, 0])


@quick
@given(st.lists(st.integers(-3, 6), min_size=2, max_size=40))
def test_names_are_recovered_and_noise_is_marked(labels):
    values = np.array(labels)
    if len(set(labels) - {-1}) < 2:
        with pytest.raises(InputError, match="at least two clusters"):
            encode_labels(values, len(values))
        return
    encoded = encode_labels(values, len(values))
    used = encoded.clusters >= 0
    np.testing.assert_array_equal(used, values != -1)
    np.testing.assert_array_equal(encoded.cluster_ids[encoded.clusters[used]], values[used])
    assert np.bincount(encoded.clusters[used]).min() > 0


def test_length_mismatch_says_both_lengths():
    sentence = "X has 4 observations but labels has 3; pass one label for each row of X."
    with pytest.raises(InputError, match=exactly(sentence)):
        encode_labels([0, 1, 1], 4)


@pytest.mark.parametrize(("labels", "name"), [([7, 7, -1], "7"), (["cat", "cat", ""], "cat")])
def test_one_cluster_is_named(labels, name):
    sentence = (
        f"labels hold only one cluster ({name}), so there is no pair to compare; "
        "pass labels with at least two clusters."
    )
    with pytest.raises(InputError, match=exactly(sentence)):
        encode_labels(labels, 3)


def test_one_cluster_is_taken_where_one_will_do():
    encoded = encode_labels(["cat", "", "cat"], 3, at_least=1)
    assert encoded.cluster_ids.tolist() == ["cat"]
    assert encoded.clusters.tolist() == [0, -1, 0]


def test_no_cluster_at_all_is_refused_even_where_one_will_do():
    with pytest.raises(InputError, match=r"^every label is noise"):
        encode_labels([-1, None], 2, at_least=1)


@pytest.mark.parametrize(
    "labels", [[-1, -1], [None, None], ["-1", ""], [np.nan, -1.0], pd.array([pd.NA, pd.NA]), []]
)
def test_only_noise_is_refused(labels):
    sentence = (
        "every label is noise (-1 or missing), so there is nothing to compare; "
        "pass labels with at least two clusters."
    )
    with pytest.raises(InputError, match=exactly(sentence)):
        encode_labels(labels, len(labels))


@pytest.mark.parametrize(
    ("labels", "shape"), [([[0, 1], [1, 0]], "(2, 2)"), ([[0], [1]], "(2, 1)"), (3, "()")]
)
def test_labels_that_are_not_one_dimensional_are_refused_with_their_shape(labels, shape):
    sentence = (
        f"labels must be one label per observation, got an array of shape {shape}; "
        "pass a one-dimensional array."
    )
    with pytest.raises(InputError, match=exactly(sentence)):
        encode_labels(labels, 2)


def test_measurements_are_refused_and_one_is_shown():
    sentence = (
        "labels must be integers or strings, got the number 2.5; "
        "convert measurements to cluster names first."
    )
    with pytest.raises(InputError, match=exactly(sentence)):
        encode_labels([2.5, 1.0, np.nan], 3)


@pytest.mark.parametrize(
    ("labels", "ids", "n_noise"),
    [
        (pd.Series(["a", "", "b"]), ["a", "b"], 1),
        (np.array(["a", "", "b"]), ["a", "b"], 1),
        (np.array([0.0, 1.0, None], object), [0, 1], 1),
        (np.array([b"x", b"-1", b"y"]), ["x", "y"], 1),
        (np.array([1, "a", np.float32("nan")], object), ["1", "a"], 1),
    ],
)
def test_the_same_rules_whatever_the_container(labels, ids, n_noise):
    encoded = encode_labels(labels, 3)
    assert encoded.cluster_ids.tolist() == ids
    assert encoded.n_noise == n_noise


@pytest.mark.parametrize("bad", [2.5, np.inf, 1e300])
def test_the_offending_number_is_named(bad):
    with pytest.raises(InputError, match=f"got the number {bad!s}".replace("+", r"\+")):
        encode_labels([1.0, bad, 3.0], 3)


@pytest.mark.parametrize("value", [2.0**53, -(2.0**53), 1e300])
def test_floats_too_large_to_tell_whole_numbers_apart_are_refused(value):
    # From 2**53 on, the next whole number is the same float.
    with pytest.raises(InputError, match="labels"):
        encode_labels(np.array([value, 1.0]), 2)
    encoded = encode_labels(np.array([2.0**53 - 1, 1.0]), 2)
    assert encoded.cluster_ids.tolist() == [1, 2**53 - 1]


@pytest.mark.parametrize("unit", ["D", "ns"])
def test_dates_are_names_and_missing_ones_noise(unit):
    days = np.array(["2020-01-03", "2020-01-01", "NaT"], f"M8[{unit}]")
    encoded = encode_labels(days)
    assert encoded.clusters.tolist() == [1, 0, -1]
    assert [name[:10] for name in encoded.cluster_ids.tolist()] == ["2020-01-01", "2020-01-03"]


def test_labels_are_named_as_their_clusters_are():
    assert as_named(np.array([1.0, np.nan, 0.0, -1.0])).tolist()[::2] == [1, 0]
    named = as_named(np.array([b"a", None, "b"], object))
    assert named.tolist() == ["a", None, "b"]
    assert as_named(np.array([3, -1])).tolist() == [3, -1]
