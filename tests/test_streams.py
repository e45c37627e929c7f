"""Any Dataset as observations: what its items may be, what is kept, and Datasets that lie."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from tests.any_data_cases import CPU, Items, clouds, everything, images
from tests.checks import about
from unsplit.data.rows import base
from unsplit.data.rows import datasets as streams
from unsplit.data.rows.base import Rows
from unsplit.data.rows.datasets import DatasetRows
from unsplit.data.rows.kinds import observations
from unsplit.errors import InputError

CHANNELS_FIRST = np.ascontiguousarray(images().transpose(0, 3, 1, 2))
SEQUENCES = clouds(numbers=2).astype(np.float32)
BATCHES = [torch.tensor([3, 1, 3]), torch.tensor([[0, 2], [5, 4]]), torch.tensor([7])]

# Items, their kind, and the array that gives the same batches.
SOURCES = {
    "vectors": (clouds()[:, :, 0].astype(np.float32), "vectors", None),
    "images": (CHANNELS_FIRST, "images", images()),
    "channels last": (images(), "images", images()),
    "grey bytes": (images()[..., 0], "images", images()[..., 0]),
    "points": (clouds().astype(np.float32), "points", clouds().astype(np.float32)),
    "sequences": (SEQUENCES, "sequences", SEQUENCES),
}


def rows_of(items, kind=None):
    return DatasetRows.of(Items(items), CPU, kind)


WRAPPED = {
    "arrays": lambda x: x,
    "tensors": lambda x: torch.from_numpy(x.copy()),
    "tuples": lambda x: (torch.from_numpy(x.copy()), "a label"),
    "lists": lambda x: [x, 7],
}


@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("source", SOURCES)
def test_items_of_every_kind_give_what_arrays_give(source, wrapped):
    items, kind, array = SOURCES[source]
    rows = rows_of([WRAPPED[wrapped](item) for item in items])
    assert rows.kind == kind
    expected = torch.from_numpy(items) if array is None else everything(Rows.of(array, kind, CPU))
    assert rows.shape == tuple(expected.shape[1:])
    for index, streamed in zip(BATCHES, rows.stream(BATCHES), strict=True):
        assert torch.equal(rows.take(index), expected[index])
        assert torch.equal(streamed, expected[index])


def test_a_tensor_dataset_is_one_too():
    data = TensorDataset(torch.from_numpy(SEQUENCES), torch.zeros(24))
    rows = observations(data, CPU)
    assert (rows.kind, len(rows), rows.shape) == ("sequences", 24, (3, 12))


ITEM_TYPES = {
    "uint8": torch.uint8,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float32,
    "int64": torch.float32,
    "bool": torch.uint8,
}


@pytest.mark.parametrize("dtype", ITEM_TYPES)
def test_images_of_every_type_can_be_standardised(dtype):
    items = (CHANNELS_FIRST % 7).astype(dtype)
    rows = rows_of(items)
    batch = everything(rows)
    assert batch.dtype == ITEM_TYPES[dtype]
    moved = (items - rows.origin[:, None, None]).astype(np.float32)
    np.testing.assert_array_equal(batch.float(), moved if rows.origin.any() else items)
    mean, scale = rows.moments(np.arange(24))
    assert ((batch - mean) / scale).dtype == torch.float32


@pytest.mark.parametrize("kind", ["vectors", "sequences", "points"])
def test_items_can_be_taken_for_another_kind(kind):
    items = clouds().astype(np.float32)
    rows = rows_of(items, kind)
    assert rows.kind == kind
    assert rows.shape == {"vectors": (36,), "sequences": (4, 12), "points": (12, 3)}[kind]


def test_items_of_one_axis_can_be_sequences():
    rows = rows_of(SEQUENCES[:, :, 0], "sequences")
    expected = everything(Rows.of(SEQUENCES[:, :, 0], "sequences", CPU))
    assert torch.equal(everything(rows), expected)


@pytest.mark.parametrize(
    ("items", "kind", "sentence"),
    [
        (
            torch.zeros(4),
            None,
            "X has the unsupported shape (4,); reshape it to vectors (n, d), images (n, h, w) … "
            "point clouds (n, points, 3) … sequences (n, length, channels).",
        ),
        (torch.zeros(4), "vectors", "vectors must have shape (n, d), got (4,); reshape X."),
        (
            torch.zeros(4, 5),
            "images",
            "images must have shape (n, h, w) or (n, h, w, c), got (4, 5); reshape X.",
        ),
        (
            torch.zeros(4, 5, 2),
            "points",
            "points must have shape (n, points, 3), got (4, 5, 2); reshape X.",
        ),
    ],
)
def test_items_that_cannot_be_of_this_kind_are_refused(items, kind, sentence):
    with pytest.raises(InputError, match=about(sentence)):
        rows_of(items, kind)


# Moments


@pytest.mark.parametrize("source", SOURCES)
def test_moments_are_those_of_arrays(source, monkeypatch):
    items, kind, array = SOURCES[source]
    monkeypatch.setattr(base, "CHUNK_ELEMENTS", 200)
    index = np.array([7, 0, 3, 8, 9, 1, 20])
    found = rows_of(items).moments(index)
    if array is None:
        expected = [torch.from_numpy(v) for v in (items[index].mean(axis=0), items[index].std(0))]
    else:
        expected = Rows.of(array, kind, CPU).moments(index)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_items_that_are_not_finite_are_refused(bad):
    items = CHANNELS_FIRST.astype(np.float32)
    items[13, 0, 2, 2] = bad
    sentence = (
        "items of the Dataset have values that are NaN or infinite; remove such items or fill in "
        "the values first."
    )
    with pytest.raises(InputError, match=about(sentence)):
        rows_of(items).moments(np.arange(24))


# Datasets that lie


def test_items_of_another_shape_are_refused():
    items = [torch.zeros(3, 6, 6)] * 5 + [torch.zeros(3, 5, 6)]
    rows = rows_of(items)
    sentence = "item 5 … shape (3, 5, 6) … but item 0 has (3, 6, 6) … the same shape and type."
    with pytest.raises(InputError, match=about(sentence)):
        rows.take(torch.tensor([0, 5]))
    with pytest.raises(InputError, match=r"item 5 of the dataset has shape \(3, 5, 6\)"):
        list(rows.stream([torch.tensor([1]), torch.tensor([5])]))


def test_a_length_that_is_too_large_is_found_out(monkeypatch):
    monkeypatch.setattr(streams, "KEPT_ON_CPU", 0)
    rows = DatasetRows.of(Items(list(CHANNELS_FIRST), length=30), CPU)
    with pytest.raises(IndexError):
        rows.take(torch.tensor([3, 27]))
    with pytest.raises(IndexError):
        list(rows.stream([torch.tensor([3]), torch.tensor([27])]))
    with pytest.raises(IndexError):
        rows._read_all()


def test_an_error_of_the_dataset_itself_is_shown_as_it_is():
    class Broken(Items):
        def __getitem__(self, index):
            if index == 2:
                raise OSError("no such file")
            return super().__getitem__(index)

    rows = DatasetRows.of(Broken(CHANNELS_FIRST), CPU)
    with pytest.raises(OSError, match="no such file"):
        rows.take(torch.tensor([1, 2]))


def test_an_empty_dataset_is_refused():
    with pytest.raises(InputError, match="the dataset has length 0; pass one with items"):
        observations(Items([]), CPU)


# Keys


def test_keys_are_the_datasets_own_or_else_the_places():
    data = Items(CHANNELS_FIRST)
    assert DatasetRows.of(data, CPU).keys.tolist() == list(range(24))
    data.keys = list(range(100, 124))
    np.testing.assert_array_equal(DatasetRows.of(data, CPU).keys, np.arange(100, 124))


def test_a_method_called_keys_is_something_else():
    class Mapping(Items):
        def keys(self):
            return ["image", "label"]

    assert DatasetRows.of(Mapping(CHANNELS_FIRST), CPU).keys.tolist() == list(range(24))


def test_keys_of_another_number_are_refused():
    data = Items(CHANNELS_FIRST)
    data.keys = [1, 2, 3]
    sentence = (
        "the keys of the Dataset have shape (3,), but it has 24 items; give each item one number …"
    )
    with pytest.raises(InputError, match=about(sentence)):
        _ = DatasetRows.of(data, CPU).keys


# What is kept


@pytest.mark.parametrize("source", SOURCES)
def test_items_that_fit_on_the_device_are_read_once(source, monkeypatch):
    items, _, _ = SOURCES[source]
    monkeypatch.setattr(streams, "BATCH", 7)
    reads = np.zeros(24, int)

    class Counting(Items):
        def __getitem__(self, index):
            reads[index] += 1
            return super().__getitem__(index)

    rows = DatasetRows.of(Counting(items), CPU)
    expected = [rows.take(index) for index in BATCHES]
    moments = rows_of(items).moments(np.arange(24))
    monkeypatch.setattr(rows, "_fits", lambda: True)
    assert rows.shape == tuple(expected[0].shape[1:])
    reads[:] = 0
    for _ in range(3):
        for one, other in zip(rows.stream(BATCHES), expected, strict=True):
            assert torch.equal(one, other)
    for index, other in zip(BATCHES, expected, strict=True):
        assert torch.equal(rows.take(index), other)
    for one, other in zip(rows.moments(np.arange(24)), moments, strict=True):
        torch.testing.assert_close(one, other)
    assert reads.tolist() == [1] * 24
    assert (rows.on_device.dtype == torch.uint8) == (expected[0].dtype == torch.uint8)


def test_kept_images_lie_as_convolutions_like_them():
    rows = rows_of(CHANNELS_FIRST)
    list(rows.stream(BATCHES))
    batch = rows.take(torch.arange(9))
    assert batch.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("limit", "free", "expected"),
    [(2592, 10**9, True), (2591, 10**9, False), (10**9, 10**4, True), (10**9, 6000, False)],
)
def test_a_cpu_keeps_a_few_thousand_photos_if_memory_is_free(limit, free, expected, monkeypatch):
    rows = rows_of(CHANNELS_FIRST)  # 24 · 3 · 6 · 6 = 2592 bytes
    monkeypatch.setattr(streams, "KEPT_ON_CPU", limit)
    monkeypatch.setattr(streams, "available_memory", lambda: free)
    assert len(list(rows.stream(BATCHES))) == 3
    assert (rows.on_device is not None) is expected


@pytest.mark.parametrize(("free", "expected"), [(10**4, True), (6000, False)])
def test_a_gpu_keeps_what_fits_into_a_share_of_its_free_memory(free, expected, monkeypatch):
    rows = rows_of(CHANNELS_FIRST)  # 24 · 3 · 6 · 6 = 2592 bytes
    assert rows.shape == (3, 6, 6)
    rows.device = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 10**9))
    assert rows._fits() is expected


# Others like these


@pytest.mark.parametrize("source", SOURCES)
def test_the_first_items_need_the_dataset_no_more(source):
    items, kind, _ = SOURCES[source]
    rows = rows_of(items)
    few = pickle.loads(pickle.dumps(rows.first(2)))
    assert (len(few), few.kind, few.shape) == (2, kind, rows.shape)
    assert not isinstance(few.dataset, Items)
    assert torch.equal(everything(few), rows.take(torch.tensor([0, 1])))
    new = few.another(Items(items[4:7]))
    assert torch.equal(everything(new), rows.take(torch.tensor([4, 5, 6])))
    assert torch.equal(everything(few.another(items[4:7])), everything(new))


def test_other_items_must_be_alike():
    rows = rows_of(CHANNELS_FIRST).first(1)
    sentence = "X has observations of shape (1, 6, 6), but … (3, 6, 6); pass observations …"
    with pytest.raises(InputError, match=about(sentence)):
        rows.another(Items(CHANNELS_FIRST[:, :1]))
    with pytest.raises(InputError, match="images must have shape"):
        rows.another(Items(clouds()[:, :, 0]))


def test_other_sequences_may_have_another_length_but_not_other_channels():
    rows = rows_of(SEQUENCES).first(1)
    assert rows.another(Items(SEQUENCES[:, :5])).shape == (3, 5)
    sentence = "X has observations of shape (2, 12), but … trained on … (3, 12); …"
    with pytest.raises(InputError, match=about(sentence)):
        rows.another(Items(SEQUENCES[:, :, :1]))
