import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.any_data_cases import CPU
from tests.checks import about
from unsplit.data.rows import sequences as rows_of_sequences
from unsplit.data.rows.sequences import Ragged, RaggedRows
from unsplit.errors import InputError

quick = settings(deadline=None, max_examples=40, derandomize=True)

lengths_lists = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def some_sequences(lengths, channels=2, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((length, channels)).astype(np.float32) for length in lengths]


def moments_of(sequences, index):
    """Mean and scale of the channels without those of the mask."""
    mean, scale = RaggedRows(Ragged.of(sequences), CPU).moments(index)
    assert (mean[-1], scale[-1]) == (0, 1)
    return mean[:-1, 0], scale[:-1, 0]


def slow_batch(sequences, index):
    """Sample by sample."""
    longest = max(len(sequences[i]) for i in index)
    channels = sequences[0].shape[1]
    batch = np.zeros((len(index), channels + 1, longest), np.float32)
    for row, i in enumerate(index):
        for place, sample in enumerate(sequences[i]):
            batch[row, :channels, place] = sample
            batch[row, channels, place] = 1
    return batch


@quick
@given(lengths_lists, st.integers(1, 3), st.data())
def test_batch_against_a_loop(lengths, channels, data):
    sequences = some_sequences(lengths, channels)
    places = st.integers(0, len(lengths) - 1)
    index = np.array(data.draw(st.lists(places, min_size=1, max_size=10)))
    batch = Ragged.of(sequences).batch(index)
    assert batch.dtype == torch.float32
    np.testing.assert_array_equal(batch.numpy(), slow_batch(sequences, index))


def test_lengths_and_channels():
    sequences = Ragged.of(some_sequences([3, 1, 4], channels=5))
    assert (len(sequences), sequences.n_channels) == (3, 5)
    assert sequences.lengths.tolist() == [3, 1, 4]
    assert sequences.offsets.tolist() == [0, 3, 4, 8]


def test_one_axis_is_one_channel():
    sequences = Ragged.of([np.array([1.0, 2.0]), np.array([[3.0], [4.0], [5.0]])])
    assert sequences.n_channels == 1
    assert sequences.flat.ravel().tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("int16", "int16"),
        ("int8", "int16"),
        ("uint8", "int16"),
        ("uint16", "float32"),
        ("int64", "float32"),
        ("bool", "float32"),
        ("float16", "float32"),
        ("float64", "float32"),
        (">i2", "int16"),
        (">f4", "float32"),
    ],
)
def test_what_values_are_kept_as(given, kept):
    sequences = Ragged.of([np.array([0, 1, 1], given), np.array([1], given)])
    assert sequences.flat.dtype == np.dtype(kept)
    assert sequences.batch(np.array([0, 1]))[:, 0].tolist() == [[0, 1, 1], [1, 0, 0]]


def test_int16_among_floats_becomes_float():
    sequences = Ragged.of([np.array([-32768, 5], np.int16), np.array([0.25])])
    assert sequences.flat.dtype == np.float32
    assert sequences.flat.ravel().tolist() == [-32768, 5, 0.25]


def test_the_sequences_given_are_left_as_they_were():
    given = np.array([1, 2, 3], np.int16)
    sequences = Ragged.of([given, given])
    sequences.batch(np.array([0]))[:] = 7
    assert given.tolist() == [1, 2, 3]
    assert sequences.flat.ravel().tolist() == [1, 2, 3, 1, 2, 3]


@quick
@given(lengths_lists, st.data())
def test_moments_are_those_of_all_real_samples(lengths, data):
    sequences = some_sequences(lengths)
    places = st.integers(0, len(lengths) - 1)
    index = np.array(data.draw(st.lists(places, min_size=1, max_size=8, unique=True)))
    mean, scale = moments_of(sequences, index)
    chosen = np.concatenate([sequences[i] for i in index]).astype(np.float64)
    np.testing.assert_allclose(mean.numpy(), chosen.mean(axis=0), atol=1e-6)
    expected = chosen.std(axis=0) if len(chosen) > 1 else [1.0, 1.0]
    np.testing.assert_allclose(scale.numpy(), expected, rtol=1e-4)


def test_moments_of_whole_numbers_do_not_overflow():
    both = [np.full(1000, 30_000, np.int16), [-30_000] * 1000]
    mean, scale = moments_of(both, np.arange(2))
    assert mean.tolist() == [0.0]
    assert scale.tolist() == [30_000.0]


def test_a_constant_channel_has_scale_one():
    _, scale = moments_of([np.full((4, 1), 0.3), np.full((2, 1), 0.3)], np.arange(2))
    assert scale.tolist() == [1.0]


@quick
@given(lengths_lists, st.integers(1, 12))
def test_moments_and_keys_do_not_depend_on_the_chunks(lengths, elements):
    sequences = some_sequences(lengths)
    whole, chunked = (RaggedRows(Ragged.of(sequences), CPU) for _ in range(2))
    index = np.arange(len(lengths))
    moments, keys = whole.moments(index), whole.keys
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_of_sequences, "CHUNK_ELEMENTS", elements)
        for found, expected in zip(chunked.moments(index), moments, strict=True):
            torch.testing.assert_close(found, expected)
        np.testing.assert_array_equal(chunked.keys, keys)


@quick
@given(lengths_lists, st.randoms(use_true_random=False))
def test_the_order_of_sequences_permutes_keys(lengths, random):
    sequences = some_sequences(lengths)
    order = random.sample(range(len(lengths)), len(lengths))
    keys = Ragged.of(sequences).keys
    assert keys.dtype == np.uint64
    np.testing.assert_array_equal(Ragged.of([sequences[i] for i in order]).keys, keys[order])


def test_keys_tell_apart_values_places_channels_and_lengths():
    different = [
        [[1, 2], [3, 4]],
        [[3, 4], [1, 2]],
        [[2, 1], [4, 3]],
        [[1, 2], [3, 4], [0, 0]],
        [[0, 0], [1, 2], [3, 4]],
        [[1, 2]],
        [[0, 0]],
        [[0, 0], [0, 0]],
        [[1, 2], [3, -4]],
    ]
    keys = Ragged.of(different).keys
    assert len(np.unique(keys)) == len(different)


def test_keys_do_not_collide_for_many_short_sequences_of_few_values():
    rng = np.random.default_rng(0)
    table = rng.integers(0, 2, (20_000, 20)).astype(np.int16)
    distinct = len(np.unique(table, axis=0))
    assert len(np.unique(Ragged.of(list(table)).keys)) == distinct


def test_equal_sequences_have_equal_keys_whatever_the_type_and_sign_of_zero():
    keys = [
        Ragged.of([np.array([0, 3, 200], dtype)]).keys[0]
        for dtype in (np.int16, np.int64, np.float32)
    ]
    keys.append(Ragged.of([[-0.0, 3.0, 200.0]]).keys[0])
    assert len(set(keys)) == 1


def refuses(sentence, make):
    with pytest.raises(InputError, match=about(sentence)):
        make()


def test_no_sequences_are_refused():
    refuses("there are no sequences; pass at least two.", lambda: Ragged.of([]))


def test_an_empty_sequence_is_named():
    refuses(
        "sequence 1 must have shape …",
        lambda: Ragged.of([[1.0], np.zeros(0), [2.0]]),
    )
    refuses(
        "sequence 0 must have shape …",
        lambda: Ragged.of([np.zeros((0, 2)), [[2.0, 1.0]]]),
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39, -1e300])
def test_values_that_are_not_finite_are_refused_with_their_sequence(bad):
    sentence = (
        "sequence 2 has values that are NaN, infinite or beyond single precision; remove the "
        "sequence or fill in the values first."
    )
    sequences = [[[1.0, 2.0]], [[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [1.0, bad]], [[bad, 0.0]]]
    refuses(sentence, lambda: Ragged.of(sequences))


def test_differing_channels_are_refused():
    refuses(
        "sequence 2 has 3 channels, but sequence 0 has 2; … the same number of channels.",
        lambda: Ragged.of(some_sequences([4, 5], 2) + some_sequences([4], 3)),
    )


@pytest.mark.parametrize("bad", [["a", "b"], [1j], [None], [np.datetime64("2020-01-01")]])
def test_what_is_no_number_is_refused(bad):
    sentence = (
        f"sequence 1 must hold numbers, got values of type {np.asarray(bad).dtype}; encode them "
        "as numbers first."
    )
    refuses(sentence, lambda: Ragged.of([[1.0], bad]))


@pytest.mark.parametrize(
    ("bad", "shape"),
    [(5.0, "()"), (np.zeros((2, 3, 4)), "(2, 3, 4)"), (np.zeros((2, 0)), "(2, 0)")],
)
def test_other_shapes_are_refused(bad, shape):
    sentence = f"sequence 1 must have shape (length,) or (length, channels), got {shape}; …"
    refuses(sentence, lambda: Ragged.of([[1.0], bad]))


def test_samples_of_differing_width_are_refused():
    refuses(
        "sequence 0 is not rectangular; give every sample the same number of values.",
        lambda: Ragged.of([[[1.0, 2.0], [3.0]]]),
    )
