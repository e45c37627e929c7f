"""Arrays of images, clouds and sequences: layouts, types, files, moments."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.any_data_cases import CPU, clouds, everything, images, mapped
from tests.checks import about
from unsplit.data.rows import base
from unsplit.data.rows.base import LOOKED_AT, Rows, as_stored, evenly, is_mapped
from unsplit.errors import InputError

quick = settings(deadline=None, max_examples=30, derandomize=True)

SEQUENCES = np.random.default_rng(1).standard_normal((10, 7, 2))

KINDS = {
    "images": images(),
    "points": clouds().astype(np.float32),
    "sequences": SEQUENCES.astype(np.float32),
}


def rows_of(X, kind="images"):
    return Rows.of(X, kind, CPU)


def naive_batch(kind, values, place):
    """What a network gets, entry by entry; ``values`` as stored, channels last."""
    items = [np.moveaxis(values[i], -1, 0) if kind != "points" else values[i] for i in place]
    if kind == "sequences":
        items = [np.concatenate([item, np.ones((1, item.shape[1]))]) for item in items]
    return np.stack(items).astype(float)


# Layouts

LAYOUTS = {
    "channels last": lambda x: x,
    "channels first": lambda x: x.transpose(0, 3, 1, 2),
    "channels first, contiguous": lambda x: x.transpose(0, 3, 1, 2).copy(),
    "torch": lambda x: torch.from_numpy(x.transpose(0, 3, 1, 2).copy()),
    "list": list,
    "fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=0)[::2],
    "reversed": lambda x: x[:, ::-1].copy()[:, ::-1],
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_images_of_every_layout_are_handed_out_the_same(layout):
    rows = rows_of(LAYOUTS[layout](images()))
    batch = everything(rows)
    assert batch.dtype == torch.uint8
    assert rows.shape == (3, 6, 6)
    np.testing.assert_array_equal(batch, images().transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(rows.keys, rows_of(images()).keys)


def test_grey_images_have_one_channel_with_or_without_an_axis_for_it():
    grey = images(channels=1)
    for X in (grey, grey[..., 0]):
        np.testing.assert_array_equal(everything(rows_of(X)), grey.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("given_shape", "stored"),
    [
        ((2, 28, 28), (2, 28, 28, 1)),
        ((2, 28, 30, 1), (2, 28, 30, 1)),
        ((2, 28, 30, 4), (2, 28, 30, 4)),
        ((2, 1, 28, 30), (2, 28, 30, 1)),
        ((2, 3, 28, 30), (2, 28, 30, 3)),
        ((2, 12, 28, 30), (2, 28, 30, 12)),
        ((2, 28, 30, 12), (2, 28, 30, 12)),
        ((2, 5, 5, 3), (2, 5, 5, 3)),
        ((2, 3, 5, 5), (2, 5, 5, 3)),
    ],
)
def test_where_the_channels_are(given_shape, stored):
    values = np.zeros(given_shape)
    assert as_stored(values, "images").shape == stored
    assert np.shares_memory(as_stored(values, "images"), values)


def test_sequences_of_one_channel_need_no_axis_for_it():
    rows = rows_of(SEQUENCES[:, :, 0], "sequences")
    assert rows.shape == (2, 7)
    found = everything(rows).numpy()[:, 0] + rows.origin[0]
    np.testing.assert_allclose(found, SEQUENCES[:, :, 0], atol=1e-6)


# Types

TYPES = {
    "uint8": torch.uint8,
    "bool": torch.uint8,
    "float16": torch.float16,
    "float32": torch.float32,
    ">f4": torch.float32,
    "int16": torch.float32,
    "uint16": torch.float32,
}


@pytest.mark.parametrize("dtype", TYPES)
def test_bytes_stay_bytes_and_everything_else_becomes_floats(dtype):
    values = (images() % 7).astype(dtype)
    batch = everything(rows_of(values))
    assert batch.dtype == TYPES[dtype]
    expected = values.astype(float).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(batch.double(), expected)


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint32", "int32"])
def test_wide_numbers_are_measured_from_an_origin_of_each_channel(dtype):
    values = images().astype(dtype)
    rows = rows_of(values)
    batch = everything(rows)
    assert batch.dtype == torch.float32
    expected = (values - rows.origin).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(batch, expected.astype(np.float32))


def test_a_large_common_offset_uses_up_no_digits():
    small = clouds()
    place = np.array([499_000.0, 5_411_000.0, 120.0])  # metres on a map
    rows = rows_of(small + place, "points")
    back = everything(rows).double().numpy() + rows.origin - place
    np.testing.assert_allclose(back, small, atol=1e-5)
    again = rows.another((small + place).astype(np.float32))
    assert again.origin is rows.origin
    mean, scale = rows.moments(np.arange(24))
    np.testing.assert_allclose(scale, rows_of(small, "points").moments(np.arange(24))[1], 1e-5)
    middle = mean.numpy() + rows.origin - place
    np.testing.assert_allclose(middle, small.mean(axis=(0, 1)), atol=1e-5)


def test_an_origin_is_kept_by_parts_and_asked_of_new_observations_of_any_type():
    values = images().astype(np.int64) + 10**6
    rows = rows_of(values)
    assert rows.first(3).origin is rows.origin
    new = rows.another(values.astype(np.float32)[:5])
    torch.testing.assert_close(everything(new), everything(rows)[:5])
    # And what had none gets none.
    bytes_only = rows_of(images())
    torch.testing.assert_close(
        everything(bytes_only.another(images().astype(float))), everything(bytes_only).float()
    )


# In memory and on disk


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(place=st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_take_gives_what_a_loop_gives(kind, place):
    rows = rows_of(KINDS[kind], kind)
    batch = rows.take(torch.tensor(place))
    np.testing.assert_array_equal(batch.double(), naive_batch(kind, rows.values, place))


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_may_have_any_shape(kind):
    rows = rows_of(KINDS[kind], kind)
    index = torch.tensor([[1, 0, 1], [9, 3, 2]])
    taken = rows.take(index)
    assert taken.shape == (2, 3, *rows.shape)
    torch.testing.assert_close(taken[1, 0], rows.take(torch.tensor([9]))[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["as it is", "float64", "float16"])
def test_mapped_arrays_stay_on_disk_and_give_the_same_to_the_bit(kind, dtype, tmp_path):
    values = KINDS[kind] if dtype == "as it is" else KINDS[kind].astype(dtype)
    inside, outside = rows_of(values, kind), rows_of(mapped(values, tmp_path / "x.npy"), kind)
    assert inside.on_device is not None
    assert outside.on_device is None
    assert is_mapped(outside.values)
    for index in (torch.tensor([3, 1, 3, 0]), torch.tensor([[2, 1], [0, 2]])):
        assert torch.equal(outside.take(index), inside.take(index))
        assert outside.take(index).stride() == inside.take(index).stride()
    np.testing.assert_array_equal(outside.keys, inside.keys)
    for one, other in zip(outside.moments(np.arange(8)), inside.moments(np.arange(8)), strict=True):
        assert torch.equal(one, other)
    batches = [torch.tensor([4, 4, 1]), torch.tensor([[0, 2]]), torch.tensor([7])]
    streams = zip(outside.stream(batches), inside.stream(batches), strict=True)
    assert [torch.equal(one, other) for one, other in streams] == [True, True, True]


@pytest.mark.parametrize("view", ["whole", "slice", "channels first", "as plain array", "grey"])
def test_views_of_a_mapped_array_stay_on_disk(view, tmp_path):
    whole = mapped(images(), tmp_path / "x.npy")
    views = {
        "whole": whole,
        "slice": whole[::2],
        "channels first": whole.transpose(0, 3, 1, 2),
        "as plain array": np.asarray(whole),
        "grey": whole[..., 0],
    }
    rows = rows_of(views[view])
    assert rows.on_device is None
    expected = rows_of(np.array(views[view]))
    assert expected.on_device is not None
    assert torch.equal(everything(rows), everything(expected))


def test_a_mapped_array_is_read_only_where_it_is_asked_for(tmp_path):
    # A file of 80 GB, of which only what is written takes place; few could hold it all.
    huge = np.memmap(tmp_path / "huge", np.uint8, "w+", shape=(10**7, 64, 64, 2))
    huge[7] = 5
    rows = rows_of(huge)
    taken = rows.take(torch.tensor([7, 10**7 - 1]))
    assert taken.float().mean(dim=(1, 2, 3)).tolist() == [5, 0]
    mean, scale = rows.moments(np.array([7, 8, 9, 10]))
    assert mean.ravel().tolist() == [1.25, 1.25]
    assert scale.ravel().tolist() == pytest.approx([75**0.5 / 4] * 2)
    assert len(rows.first(1)) == 1


def test_what_does_not_fit_on_the_device_is_fetched_from_memory(monkeypatch):
    monkeypatch.setattr(Rows, "_fits", lambda self: False)
    rows = rows_of(images())
    assert rows.on_device is None
    batches = [torch.tensor([2, 1]), torch.tensor([0])]
    for index, batch in zip(batches, rows.stream(batches), strict=True):
        np.testing.assert_array_equal(batch, images()[index.tolist()].transpose(0, 3, 1, 2))


@pytest.mark.parametrize(("free", "expected"), [(10**4, True), (6000, False)])
def test_data_take_a_share_of_the_free_memory_of_a_gpu(free, expected, monkeypatch):
    rows = rows_of(images())  # 24 · 6 · 6 · 3 = 2592 bytes
    rows.device = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 10**9))
    assert rows._fits() is expected


# Keys


@pytest.mark.parametrize("kind", KINDS)
def test_keys_depend_on_content_alone(kind):
    values = KINDS[kind]
    order = np.random.default_rng(0).permutation(len(values))
    rows = rows_of(values, kind)
    assert len(np.unique(rows.keys)) == len(values)
    np.testing.assert_array_equal(rows_of(values[order], kind).keys, rows.keys[order])


# Moments


def naive_moments(kind, values):
    """Mean and scale of every channel, one channel at a time."""
    mean = [values[..., c].astype(float).mean() for c in range(values.shape[-1])]
    scale = [values[..., c].astype(float).std() for c in range(values.shape[-1])]
    if kind == "points":
        scale[:3] = [np.sqrt(np.mean(np.square(scale[:3])))] * 3
    if kind == "sequences":
        mean, scale = [*mean, 0.0], [*scale, 1.0]
    return np.array(mean), np.array([s or 1.0 for s in scale])


MOMENTS = KINDS | {
    "images of 2 channels": images(channels=2).astype(np.float32) * [1, 100],
    "images with a dead channel": images() * np.array([1, 0, 1], np.uint8),
    "binary images": images(channels=1) > 200,
    "points with colours": np.concatenate([clouds() * [5, 1, 0], 200 + clouds(seed=1)], axis=2),
}


@pytest.mark.parametrize("case", MOMENTS)
def test_moments_are_those_of_a_loop(case, monkeypatch):
    kind = case.split()[0] if case != "binary images" else "images"
    values = MOMENTS[case]
    rows = rows_of(values, kind)
    index = np.array([5, 0, 3, 8, 9])
    mean, scale = naive_moments(kind, values[index])
    mean[: values.shape[-1]] -= rows.origin
    for chunk in (2**22, 100):
        monkeypatch.setattr(base, "CHUNK_ELEMENTS", chunk)
        found = rows.moments(index)
        for given_, expected in zip(found, (mean, scale), strict=True):
            np.testing.assert_allclose(given_.ravel(), expected, rtol=1e-5, atol=1e-6)
            assert given_.dtype == torch.float32
    # They fit a batch.
    assert ((everything(rows) - found[0]) / found[1]).shape == everything(rows).shape


def test_clouds_keep_their_shape_whatever_their_scale():
    flat = clouds(points=100) * [10, 1, 0.1]
    rows = rows_of(flat, "points")
    mean, scale = rows.moments(np.arange(24))
    assert scale.unique().numel() == 1
    spread = ((everything(rows) - mean) / scale).std(dim=(0, 1))
    torch.testing.assert_close(spread / spread[0], torch.tensor([1, 0.1, 0.01]), rtol=0.1, atol=0)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_clouds_of_one_point_have_scale_one(value):
    rows = rows_of(np.full((4, 9, 3), value, np.float32), "points")
    assert rows.moments(np.arange(4))[1].tolist() == [1, 1, 1]


def test_of_many_rows_some_are_looked_at_whatever_order_they_are_in():
    values = np.random.default_rng(0).random((3 * LOOKED_AT, 2, 1, 1), np.float32)
    rows = rows_of(values)
    canonical = np.argsort(rows.keys)[::-1]
    order = np.random.default_rng(1).permutation(len(values))
    shuffled = rows_of(values[order])
    found = shuffled.moments(np.argsort(shuffled.keys)[::-1])
    for one, other in zip(found, rows.moments(canonical), strict=True):
        assert torch.equal(one, other)
    assert len(evenly(canonical)) == LOOKED_AT
    np.testing.assert_allclose(found[0].item(), values[canonical[::3]].mean(), rtol=1e-6)


# Others like these


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_rows_and_others_like_these(kind):
    rows = rows_of(KINDS[kind], kind)
    few = rows.first(2)
    assert (len(few), few.kind, few.shape) == (2, kind, rows.shape)
    assert not np.shares_memory(few.values, rows.values)
    new = few.another(KINDS[kind][4:7])
    torch.testing.assert_close(everything(new), everything(rows)[4:7])


def test_others_of_another_shape_are_refused():
    sentence = (
        "X has observations of shape (3, 5, 6), but … trained on … (3, 6, 6); pass observations …"
    )
    with pytest.raises(InputError, match=about(sentence)):
        rows_of(images()).another(images()[:, 1:])


BAD = {
    "NaN": (
        np.where(np.arange(10) == 7, np.nan, 0.0)[:, None, None, None] + np.zeros((10, 6, 6, 3)),
        "observation 7 of X has values that are NaN, infinite or larger than 1e+30; remove "
        "such observations or fill in the values first.",
    ),
    "too large": (
        np.full((2, 6, 6, 3), 1e300),
        "observation 0 of X has values that are NaN, infinite or larger than 1e+30; remove "
        "such observations or fill in the values first.",
    ),
    "infinite float16": (
        np.full((2, 6, 6, 3), np.inf, np.float16),
        "observation 0 of X has values that are NaN, infinite or larger than 1e+30; remove "
        "such observations or fill in the values first.",
    ),
    "text": (
        np.full((2, 6, 6, 3), "a"),
        "X must hold numbers, got values of type <U1; encode them as numbers first.",
    ),
    "complex": (
        np.zeros((2, 6, 6, 3), complex),
        "X must hold numbers, got values of type complex128; encode them as numbers first.",
    ),
    "empty": (
        np.zeros((0, 6, 6, 3)),
        "X is empty (shape (0, 6, 6, 3)); pass at least two observations.",
    ),
    "no pixels": (
        np.zeros((4, 0, 6, 3)),
        "X is empty (shape (4, 0, 6, 3)); pass at least two observations.",
    ),
    "of different shapes": (
        [np.zeros((6, 6, 3)), np.zeros((5, 6, 3))],
        "the observations in X differ in shape; give all of them the same shape.",
    ),
    "table": (
        np.zeros((4, 6)),
        "images must have shape (n, h, w) or (n, h, w, c), got (4, 6); reshape X.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays_get_one_sentence_when_new_and_when_fitted(case, monkeypatch):
    monkeypatch.setattr(base, "CHUNK_ELEMENTS", 300)  # of 108 numbers, two at a time
    X, sentence = BAD[case]
    with pytest.raises(InputError, match=about(sentence)):
        rows_of(X)
    with pytest.raises(InputError, match=about(sentence)):
        rows_of(images()).another(X)
