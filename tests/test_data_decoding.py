import gc
import multiprocessing

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from tests.checks import about, exactly, parsed_here
from unsplit.data.readers.folders import FileList
from unsplit.data.readers.media import ImageFiles, read_images
from unsplit.data.rows.datasets import Decoder, default_workers
from unsplit.errors import InputError

NUMBERS = np.random.default_rng(0).integers(256, size=(12, 3, 4, 4), dtype=np.uint8)
BATCHES = [np.array([3, 1]), np.array([11, 0, 3]), np.array([7])]

# On a machine with one core torch finds two workers too many.
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def decoded(dataset, batches, workers=None):
    return Decoder(dataset, workers).stream(batches)


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def refuses(sentence, dataset, batches):
    with pytest.raises(InputError, match=about(sentence)):
        list(decoded(dataset, batches, workers=0))


def same(batches, expected):
    for batch, numbers in zip(batches, expected, strict=True):
        np.testing.assert_array_equal(batch, numbers)
    return True


# In this process

KINDS = {
    "arrays": lambda x: x,
    "tensors": torch.from_numpy,
    "tuples": lambda x: (x, "label"),
    "lists": lambda x: [torch.from_numpy(x), 7],
    "images": lambda x: Image.fromarray(x.transpose(1, 2, 0)),
    "transposed": lambda x: np.asfortranarray(x)[:, ::-1][:, ::-1],
}


@pytest.mark.parametrize("kind", KINDS)
def test_items_of_every_kind_are_stacked_in_order(kind):
    dataset = Items([KINDS[kind](x) for x in NUMBERS])
    batches = list(decoded(dataset, BATCHES, workers=0))
    assert all(batch.dtype == torch.uint8 and batch.is_contiguous() for batch in batches)
    same(batches, [NUMBERS[batch] for batch in BATCHES])


@given(st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=5), max_size=5))
def test_any_batches_give_what_a_loop_gives(batches):
    expected = [np.stack([NUMBERS[i] for i in batch]) for batch in batches]
    tensors = TensorDataset(torch.from_numpy(NUMBERS))
    assert same(decoded(tensors, [torch.tensor(b) for b in batches]), expected)


@pytest.mark.parametrize("dtype", [">f4", "<i8", "?", "f2"])
def test_numbers_of_any_type_stay_what_they_are(dtype):
    values = NUMBERS.astype(dtype)
    values.flags.writeable = False
    (batch,) = decoded(Items(values), [np.arange(12)])
    np.testing.assert_array_equal(batch, values)
    assert batch.numpy().dtype == np.dtype(dtype).newbyteorder("=")


def test_images_without_colours_have_one_channel_and_holes_are_white():
    grey = Image.fromarray(NUMBERS[0, 0])
    hole = Image.new("RGBA", (4, 4), (1, 2, 3, 0))
    pixels = Decoder(Items([grey])).take(np.array([0]))
    np.testing.assert_array_equal(pixels, NUMBERS[None, 0, :1])
    assert (Decoder(Items([hole])).take(np.array([0])) == 255).all()


def test_items_that_differ_are_refused_within_a_batch_and_between_batches():
    items = [np.zeros((3, 4)), np.zeros((3, 4)), np.zeros((4, 3)), np.zeros((3, 4), np.float32)]
    for batches in ([[1, 0, 2]], [[1, 0], [2]]):
        sentence = "item 2 … shape (4, 3) … item 1 has (3, 4) … the same shape and type."
        refuses(sentence, Items(items), batches)
    for batches in ([[1, 0, 3]], [[1, 0], [3]]):
        sentence = "item 3 … type torch.float32 … item 1 has (3, 4) and torch.float64; …"
        refuses(sentence, Items(items), batches)


@pytest.mark.parametrize(
    ("item", "what"),
    [
        ({"x": 1}, "dict"),
        ("text", "str"),
        ((), "tuple"),
        (None, "NoneType"),
        (np.array(["a"]), "an array of type <U1"),
    ],
)
def test_items_that_are_no_numbers_are_refused(item, what):
    sentence = (
        f"item 1 of the dataset is {what}; it must be a tensor, an array of numbers or a PIL "
        "image, or a tuple whose first entry is one."
    )
    refuses(sentence, Items([np.zeros(2), item]), [[0, 1]])


class OfLength(Items):
    def __init__(self, length):
        super().__init__(list(NUMBERS[:3]))
        self.length = length

    def __len__(self):
        return self.length


def test_a_length_that_lies_is_found_out():
    for length in (3, 5):
        with pytest.raises(IndexError, match=exactly("list index out of range")):
            list(decoded(OfLength(length), [[0, 3]]))


def test_a_dataset_needs_items():
    refuses("the dataset has length 0; pass one with items.", OfLength(0), [[0]])


def test_there_are_workers_where_they_pay(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(3), raising=False)
    assert [default_workers(n) for n in (10, 1_999, 2_000)] == [0, 0, 3]
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(64), raising=False)
    assert default_workers(10**6) == 8
    # Such a process may have none of its own.
    monkeypatch.setattr(multiprocessing.current_process(), "_config", {"daemon": True})
    assert default_workers(10**6) == 0


def test_exceptions_arrive_as_they_are():
    class Fails(Items):
        def __getitem__(self, index):
            raise KeyError(index, "gone")

    with pytest.raises(KeyError) as raised:
        list(decoded(Fails(NUMBERS), [[4]]))
    assert raised.value.args == (4, "gone")


# In other processes


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for i, pixels in enumerate(NUMBERS):
        Image.fromarray(pixels.transpose(1, 2, 0)).save(folder / f"{i}.png")
    (folder / "broken.png").write_bytes(b"nothing")
    return [str(folder / f"{i}.png") for i in range(len(NUMBERS))] + [str(folder / "broken.png")]


@pytest.fixture(scope="module")
def decoder(files):
    decoder = Decoder(ImageFiles(files, 4), workers=2)
    yield decoder
    decoder.close()
    gc.collect()
    assert not pids()


def pids():
    return {process.pid for process in multiprocessing.active_children()}


def test_workers_give_what_a_loop_gives_stream_after_stream(decoder):
    expected = [NUMBERS[batch] for batch in BATCHES]
    assert same(decoder.stream(BATCHES), expected)
    before = pids()
    for _ in range(2):
        assert same(decoder.stream(iter(BATCHES[::-1])), expected[::-1])
    assert not list(decoder.stream([]))
    assert len(before) == 2
    assert pids() == before


def test_a_stream_left_early_does_not_leak_into_the_next(decoder):
    left = decoder.stream([np.array([5])] * 100)
    assert same([next(left)], [NUMBERS[[5]]])
    left.close()
    assert same(decoder.stream(BATCHES), [NUMBERS[batch] for batch in BATCHES])


def test_workers_survive_an_exception_which_arrives_as_it_is(decoder, files):
    list(decoder.stream(BATCHES))
    before = pids()
    sentence = f"{files[-1]} cannot be read (not an image); restore it, …"
    with pytest.raises(InputError, match=about(sentence)):
        list(decoder.stream([[0], [12], [1]]))
    assert same(decoder.stream(BATCHES), [NUMBERS[batch] for batch in BATCHES])
    assert pids() == before


def test_batches_that_cannot_be_made_end_the_workers(decoder):
    def failing():
        yield np.array([0])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(decoder.stream(failing()))
    assert same(decoder.stream(BATCHES), [NUMBERS[batch] for batch in BATCHES])


def test_no_shared_random_state_is_touched(decoder):
    state = torch.get_rng_state()
    list(decoder.stream(BATCHES))
    assert torch.equal(torch.get_rng_state(), state)


def test_workers_see_what_is_seen_without(files, monkeypatch):
    monkeypatch.setattr("unsplit.data.readers.broken.MOST_BROKEN", 0.1)
    found = FileList("", np.array(files), np.array(["a", "b"] * 6 + ["a"]))
    with pytest.warns(UserWarning, match="^1 of 13 images cannot be read and are left out: "):
        helped, kept = read_images(found)
    monkeypatch.setattr("unsplit.data.readers.isolated.parse_all", parsed_here)
    with pytest.warns(UserWarning, match="^1 of 13 images cannot be read and are left out: "):
        alone, left = read_images(found)
    np.testing.assert_array_equal(left.row_ids, kept.row_ids)
    np.testing.assert_array_equal(alone.keys, helped.keys)
    assert (alone.size, alone.channels, alone.depth) == (helped.size, helped.channels, helped.depth)
