"""What X is taken for, sparse batches, and sequences of different lengths."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.any_data_cases import CPU, Items, clouds, everything, images, ragged
from tests.checks import about
from unsplit.data.rows.base import Rows, kind_of, require_kind
from unsplit.data.rows.datasets import DatasetRows
from unsplit.data.rows.kinds import CountRows, VectorRows, differ_in_length, observations
from unsplit.data.rows.sequences import Ragged, RaggedRows
from unsplit.errors import InputError
from unsplit.networks.network import StandardizeSequences

quick = settings(deadline=None, max_examples=30, derandomize=True)

TABLE = np.arange(12.0).reshape(4, 3) % 5
SOUND = Ragged.of([[1, 2, 3], [4, 5]], rate=8000)


class ArrayLike:
    """What other libraries have for an array."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values


@pytest.mark.parametrize(
    ("shape", "dtype", "kind"),
    [
        ((9, 4), np.float64, "vectors"),
        ((9, 4), np.uint8, "vectors"),
        ((9, 28, 28), np.uint8, "images"),
        ((9, 28, 28), np.bool_, "images"),
        ((9, 28, 28), np.float32, "sequences"),
        ((9, 28, 28, 3), np.uint8, "images"),
        ((9, 3, 28, 28), np.float64, "images"),
        ((9, 8, 3), np.float32, "points"),
        ((9, 7, 3), np.float32, "sequences"),
        ((9, 7, 3), np.uint8, "images"),
        ((9, 1024, 6), np.float32, "sequences"),
    ],
)
def test_kind_by_shape_and_type(shape, dtype, kind):
    assert kind_of(shape, dtype) == kind
    assert observations(np.zeros(shape, dtype), CPU).kind == kind


@pytest.mark.parametrize("shape", [(), (9,), (9, 2, 2, 2, 2)])
def test_shapes_that_are_nothing_are_refused(shape):
    sentence = (
        f"X has the unsupported shape {shape}; reshape it to vectors (n, d), images (n, h, w) … "
        "point clouds (n, points, 3) … sequences (n, length, channels)."
    )
    with pytest.raises(InputError, match=about(sentence)):
        kind_of(shape, np.float32)


TAKEN = {
    "table": (TABLE, None, VectorRows, "vectors", (3,)),
    "list of rows": (TABLE.tolist(), None, VectorRows, "vectors", (3,)),
    "data frame": (pd.DataFrame(TABLE), None, VectorRows, "vectors", (3,)),
    "tensor": (torch.from_numpy(TABLE), None, VectorRows, "vectors", (3,)),
    "bfloat16": (torch.zeros(4, 3, dtype=torch.bfloat16), None, VectorRows, "vectors", (3,)),
    "with a gradient": (torch.zeros(4, 3, requires_grad=True), None, VectorRows, "vectors", (3,)),
    "sparse": (scipy.sparse.csr_array(TABLE), None, CountRows, "counts", (3,)),
    "sparse for dense": (scipy.sparse.coo_matrix(TABLE), "vectors", VectorRows, "vectors", (3,)),
    "dense for sparse": (TABLE, "counts", CountRows, "counts", (3,)),
    "images": (images(), None, Rows, "images", (3, 6, 6)),
    "tensor of images": (torch.zeros(4, 3, 9, 9), None, Rows, "images", (3, 9, 9)),
    "list of images": (list(images()), None, Rows, "images", (3, 6, 6)),
    "array-like": (ArrayLike(images()), None, Rows, "images", (3, 6, 6)),
    "float images": (np.zeros((4, 9, 9)), "images", Rows, "images", (1, 9, 9)),
    "images as vectors": (images(), "vectors", VectorRows, "vectors", (108,)),
    "images as counts": (images(), "counts", CountRows, "counts", (108,)),
    "clouds": (clouds(), None, Rows, "points", (12, 3)),
    "few points": (clouds(points=5), "points", Rows, "points", (5, 3)),
    "coloured points": (clouds(numbers=6), "points", Rows, "points", (12, 6)),
    "sequences": (clouds(numbers=2), None, Rows, "sequences", (3, 12)),
    "table of sequences": (TABLE, "sequences", Rows, "sequences", (2, 3)),
    "movements": (clouds(), "sequences", Rows, "sequences", (4, 12)),
    "ragged list": ([[1, 2], [3]], None, RaggedRows, "sequences", (2, 1)),
    "ragged tuple": (([1, 2], [3]), None, RaggedRows, "sequences", (2, 1)),
    "ragged array": (np.array([[1, 2], [3]], object), None, RaggedRows, "sequences", (2, 1)),
    "Ragged": (Ragged.of([[1, 2], [3, 4]]), None, RaggedRows, "sequences", (2, 2)),
    "sound": (SOUND, None, RaggedRows, "sequences", (2, 2)),
    "Dataset": (Items(torch.zeros(4, 3, 9, 9)), None, DatasetRows, "images", (3, 9, 9)),
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_x_is_taken_for(case):
    X, asked, rows_type, kind, shape = TAKEN[case]
    rows = observations(X, CPU, asked)
    assert type(rows) is rows_type
    assert (rows.kind, rows.shape) == (kind, shape)
    batch = everything(rows)
    assert len(batch) == len(rows) == len(rows.keys)
    assert observations(rows, CPU) is rows


def test_an_array_of_equal_lists_is_a_table():
    listed = np.empty(2, object)
    listed[:] = [[1, 2], [3, 4]]
    assert observations(listed, CPU).shape == (2,)


def test_the_rate_of_sound_is_kept():
    assert observations(SOUND, CPU).rate == 8000
    assert observations([[1, 2], [3]], CPU).rate is None


REFUSED = {
    "numbers": ([1, 2, 3], None, "got shape (3,); reshape it to (observations, features)."),
    "one number": (7, None, "got shape (); reshape it to (observations, features)."),
    "nothing": (None, None, "got shape (); reshape it to (observations, features)."),
    "empty list": ([], None, "got shape (0,); reshape it to (observations, features)."),
    "five axes": (np.zeros((2,) * 5), None, "sequences (n, length, channels)."),
    "list of words": (["a", "b"], None, "got shape (2,); reshape it to (observations, features)."),
    "rows and numbers": (
        [[1, 2], 3],
        None,
        "the observations in X differ in shape; give all of them the same shape.",
    ),
    "crooked rows": (
        [[[1, 2], [3]], [[1, 2], [3]]],
        None,
        "sequence 0 is not rectangular; give every sample the same number of values.",
    ),
    "images of different sizes": (
        [np.zeros((4, 4, 3)), np.zeros((5, 5, 3))],
        None,
        "(length,) or (length, channels), got (4, 4, 3); reshape or remove it.",
    ),
    "clouds of different sizes": (
        [np.zeros((4, 3)), np.zeros((5, 3))],
        "points",
        "in their number of points; take the same number of points from each.",
    ),
    "table as images": (
        TABLE,
        "images",
        "images must have shape (n, h, w) or (n, h, w, c), got (4, 3); reshape X.",
    ),
    "table as points": (
        TABLE,
        "points",
        "points must have shape (n, points, 3), got (4, 3); reshape X.",
    ),
    "flat points": (
        clouds(numbers=2),
        "points",
        "points must have shape (n, points, 3), got (24, 12, 2); reshape X.",
    ),
    "images as sequences": (
        images(),
        "sequences",
        "sequences must have shape (n, length) or (n, length, channels), got (24, 6, 6, 3); "
        "reshape X.",
    ),
    "Dataset of counts": (
        Items(torch.zeros(4, 3)),
        "counts",
        'pass a sparse matrix, or use backbone="mlp".',
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_taken_gets_one_sentence(case):
    X, asked, end = REFUSED[case]
    with pytest.raises(InputError) as caught:
        observations(X, CPU, asked)
    assert str(caught.value).endswith(end)
    assert "\n" not in str(caught.value)


def can_hold(kind, shape):
    try:
        require_kind(kind, shape)
    except InputError:
        return False
    return True


@pytest.mark.parametrize(
    ("shape", "kinds"),
    [
        ((4,), []),
        ((4, 5), ["sequences", "vectors"]),
        ((4, 9, 2), ["images", "sequences"]),
        ((4, 9, 3), ["images", "points", "sequences"]),
        ((4, 9, 9, 3), ["images"]),
        ((4, 9, 9, 9, 3), []),
    ],
)
def test_what_an_array_of_some_shape_can_hold(shape, kinds):
    assert [k for k in ("images", "points", "sequences", "vectors") if can_hold(k, shape)] == kinds


def test_differ_in_length_looks_at_lists_only():
    assert differ_in_length([[1, 2], [3]])
    assert differ_in_length([np.zeros((2, 3)), np.zeros((4, 3))])
    for same in ([[1, 2], [3, 4]], [1, 2], [], "ab", np.zeros((2, 2)), TABLE, [[1], 2]):
        assert not differ_in_length(same)


# Counts


def some_counts(n=30, d=8, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.4, (n, d)).astype(float)
    counts[3] = 0  # and a row of nothing
    return counts


@quick
@given(st.lists(st.integers(0, 29), min_size=1, max_size=9))
def test_sparse_batches_are_what_dense_rows_are(place):
    counts = some_counts()
    batch = observations(scipy.sparse.csr_array(counts), CPU).take(torch.tensor(place))
    assert batch.layout == torch.sparse_csr
    assert batch.dtype == torch.float32
    assert batch.shape == (len(place), 8)
    np.testing.assert_array_equal(batch.to_dense(), counts[place])


def test_sparse_rows_stream_have_a_first_and_take_others_dense_or_sparse():
    counts = some_counts()
    rows = observations(scipy.sparse.csc_matrix(counts), CPU)
    batches = [torch.tensor([2, 2]), torch.tensor([3])]
    streamed = [batch.to_dense() for batch in rows.stream(batches)]
    np.testing.assert_array_equal(torch.cat(streamed), counts[[2, 2, 3]])
    few = rows.first(1)
    assert len(few) == 1
    for X in (counts[5:9], scipy.sparse.coo_array(counts[5:9]), torch.from_numpy(counts[5:9])):
        new = few.another(X)
        assert type(new) is CountRows
        np.testing.assert_array_equal(everything(new).to_dense(), counts[5:9])
    sentence = "X has 7 features, but … trained on 8; pass the same features."
    with pytest.raises(InputError, match=about(sentence)):
        few.another(counts[:, 1:])


def test_images_fitted_as_vectors_are_taken_as_images_again():
    rows = observations(images(), CPU, "vectors")
    new = rows.first(1).another(images()[5:8])
    torch.testing.assert_close(everything(new), everything(rows)[5:8])
    with pytest.raises(InputError, match=r"X has 75 features, but .* trained on 108"):
        rows.another(images(size=5))


# Sequences of different lengths


def naive_padded(sequences, place):
    longest = max(len(sequences[i]) for i in place)
    batch = np.zeros((len(place), sequences[0].shape[1] + 1, longest))
    for row, i in enumerate(place):
        for position, sample in enumerate(sequences[i]):
            batch[row, :, position] = [*sample, 1.0]
    return batch


@quick
@given(st.lists(st.integers(0, 23), min_size=1, max_size=6))
def test_sequences_are_padded_and_masked(place):
    rows = observations(ragged(), CPU)
    expected = naive_padded(ragged(), place)
    np.testing.assert_allclose(rows.take(torch.tensor(place)), expected, rtol=1e-6)
    (streamed,) = rows.stream([torch.tensor(place)])
    np.testing.assert_allclose(streamed, expected, rtol=1e-6)


def test_moments_of_sequences_count_what_is_real():
    sequences = [10 * x + [3, 0] for x in ragged()]
    index = np.array([4, 0, 7])
    mean, scale = observations(sequences, CPU).moments(index)
    joined = np.concatenate([sequences[i] for i in index])
    np.testing.assert_allclose(mean.ravel(), [*joined.mean(axis=0), 0], rtol=1e-5)
    np.testing.assert_allclose(scale.ravel(), [*joined.std(axis=0), 1], rtol=1e-5)
    assert mean.shape == scale.shape == (3, 1)


def test_padding_stays_zero_and_the_mask_stays_a_mask_when_standardised():
    rows = observations([5 + x for x in ragged()], CPU)
    batch = everything(rows)
    standard = StandardizeSequences(*rows.moments(np.arange(24)))(batch)
    mask = batch[:, -1:]
    assert torch.equal(standard[:, -1:], mask)
    assert (standard * (1 - mask) == 0).all()
    real = standard[:, :-1][mask.expand(-1, 2, -1) == 1]
    torch.testing.assert_close(real.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(real.std(), torch.tensor(1.0), atol=0.01, rtol=0)


def test_the_usual_length_does_not_depend_on_the_order_of_the_rows():
    lengths = [600, 2, 2, 2, 600, 600, 600]
    for order in (lengths, lengths[::-1], sorted(lengths)):
        assert observations([np.zeros(n) for n in order], CPU).shape == (2, 600)


def test_keys_of_sequences_depend_on_content_alone():
    order = np.random.default_rng(0).permutation(24)
    keys = observations(ragged(), CPU).keys
    assert len(np.unique(keys)) == 24
    shuffled = observations([ragged()[i] for i in order], CPU).keys
    np.testing.assert_array_equal(shuffled, keys[order])


def test_the_first_sequences_and_others_like_these():
    rows = observations(ragged(), CPU)
    few = rows.first(2)
    assert len(few) == 2
    assert not np.shares_memory(few.sequences.flat, rows.sequences.flat)
    others = {"list": ragged()[4:6], "Ragged": Ragged.of(ragged()[4:6])}
    for X in others.values():
        new = few.another(X)
        torch.testing.assert_close(everything(new), rows.take(torch.tensor([4, 5])))
    assert len(few.another(np.zeros((3, 11, 2)))) == 3
    sentence = "X has sequences with 1 channels, but … trained on 2; pass the same channels."
    with pytest.raises(InputError, match=about(sentence)):
        few.another([[1, 2], [3]])


def test_other_sound_must_have_the_same_rate():
    rows = observations(SOUND, CPU).first(1)
    assert len(rows.another(SOUND)) == 2
    assert rows.another(SOUND).rate == 8000
    other = replace(SOUND, rate=16000)
    sentence = "X has 16000 samples per second, but … trained on 8000; resample X."
    with pytest.raises(InputError, match=about(sentence)):
        rows.another(other)


def test_a_backbone_can_be_told_what_is_padding():
    # The mean over what is real, whatever else is in the batch.
    class Mean(nn.Module):
        def forward(self, x):
            return x[:, :-1].sum(-1) / x[:, -1:].sum(-1)

    rows = observations(ragged(), CPU)
    alone = torch.cat([Mean()(rows.take(torch.tensor([i]))) for i in range(24)])
    torch.testing.assert_close(Mean()(everything(rows)), alone)
    np.testing.assert_allclose(alone, [x.mean(axis=0) for x in ragged()], rtol=1e-5)
