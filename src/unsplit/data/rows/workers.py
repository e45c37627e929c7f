"""Read batches of any dataset in worker processes.

**How workers start.**  A process that has computed with torch has threads, and forking it may copy
a lock that no thread of the copy will ever release.  Workers for a dataset that is marked as
``self_contained`` are therefore forked from a small separate process that has imported this
package and done nothing else.  They do not run the user's script again, so it needs no
``if __name__ == "__main__"``.  Other datasets may depend on anything the program has done so far;
their workers start as torch starts them, so that what works in a ``DataLoader`` works here.

**Why workers are kept.**  Starting them takes seconds, often longer than reading a small dataset.
One :class:`Decoder` therefore serves all streams of a dataset with the same workers.
"""

import multiprocessing
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from unsplit._typing import Index
from unsplit.data.rows.base import plain_array
from unsplit.data.rows.pixels import GREY_MODES, channels_first, grey_or_rgb
from unsplit.devices import Generators, n_cores
from unsplit.errors import InputError

MOST_WORKERS = 8
# Fewer items than this are decoded faster than workers start.
FEW_ITEMS = 2_000


def decode_in_workers(
    dataset: Any, batches: Iterable[Index], workers: int | None = None, pin: bool = False
) -> Iterator[Tensor]:
    """Decode one stream of batches in workers that end with it; see :class:`Decoder`.

    Parameters
    ----------
    dataset, workers, pin
        As for :class:`Decoder`.
    batches : iterable of 1-D integer arrays
        Items of each batch.

    Examples
    --------
    >>> squares = [torch.tensor([i, i * i]) for i in range(5)]
    >>> list(decode_in_workers(squares, [np.array([3, 1]), np.array([4])]))
    [tensor([[3, 9], [1, 1]]), tensor([[ 4, 16]])]
    """
    with Decoder(dataset, workers, pin) as decoder:
        yield from decoder.stream(batches)


def default_workers(n_items: int) -> int:
    """Return 0 for few items or where processes are not allowed, else one per core, at most 8.

    Parameters
    ----------
    n_items : int

    Examples
    --------
    >>> default_workers(100)
    0
    """
    if n_items < FEW_ITEMS or multiprocessing.current_process().daemon:
        return 0
    return min(MOST_WORKERS, n_cores())


class Decoder:
    """Batches of a dataset, decoded and stacked by workers that serve one stream after another.

    Parameters
    ----------
    dataset : map-style Dataset
        Its items are tensors, arrays or PIL images of one shape and type, or tuples whose first
        entry is one.  An attribute ``self_contained`` that is true says that items depend on
        nothing but the dataset, and that it can be pickled.
    workers : int, optional
        Number of processes; 0 decodes in the calling process, None uses
        :func:`default_workers`.
    pin : bool
        Whether to put batches into page-locked memory, from which a GPU can copy them.

    Examples
    --------
    >>> with Decoder([np.array([i]) for i in range(4)], workers=0) as decoder:
    ...     [batch.tolist() for batch in decoder.stream([np.array([2, 0]), np.array([3])])]
    [[[2], [0]], [[3]]]
    """

    def __init__(self, dataset: Any, workers: int | None = None, pin: bool = False) -> None:
        self._items = _Stacked(dataset, _length(dataset))
        self.workers = default_workers(self._items.length) if workers is None else workers
        if self.workers < 0:
            raise InputError(f"workers must be 0 or more, got {workers}; use None for the default.")
        self.pin = pin
        self._feed = _Feed()
        self._loader: DataLoader[Any] | None = None
        self._results: Any = None
        self._turn = 0
        self._example: tuple[int, Tensor] | None = None

    def __enter__(self) -> "Decoder":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers are not copied.
        return Decoder, (self._items.dataset, self.workers, self.pin)

    def stream(self, batches: Iterable[Index]) -> Iterator[Tensor]:
        """Decode batches in their order.

        Only one stream runs at a time: a new one ends an unfinished one.

        Parameters
        ----------
        batches : iterable of 1-D integer arrays
            Items of each batch; the iterable is read a few batches ahead.

        Yields
        ------
        Tensor of shape (b, *item)
        """
        self._turn += 1
        turn = self._turn
        with self._or_close():
            self._begin(batches)
        while (batch := self._next(turn)) is not None:
            yield batch

    def take(self, batch: Index) -> Tensor:
        """Decode one batch in this process; a running stream continues."""
        return self._checked(self._items[np.asarray(batch)])

    def close(self) -> None:
        """End the workers; the next stream starts new ones."""
        self._turn += 1
        # torch ends the workers of a loader that nobody holds any more.
        self._results = self._loader = None

    def _begin(self, batches: Iterable[Index]) -> None:
        self._feed.batches = batches
        clean = self.workers > 0 and getattr(self._items.dataset, "self_contained", False)
        if self._loader is None:
            self._loader = self._new_loader(_clean_start() if clean else None)
        with _main_left_out() if clean else nullcontext():
            self._results = iter(self._loader)

    @contextmanager
    def _or_close(self) -> Iterator[None]:
        """End the workers if one died or the user interrupted."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _new_loader(self, start_method: str | None) -> DataLoader[Any]:
        return DataLoader(
            self._items,
            batch_size=None,
            sampler=self._feed,
            collate_fn=_as_it_is,
            num_workers=self.workers,
            pin_memory=self.pin,
            persistent_workers=self.workers > 0,
            multiprocessing_context=start_method,
            worker_init_fn=_end_with_main if self.workers else None,
            # Its own, because otherwise every stream would draw from torch's global generator.
            generator=torch.Generator(),
        )

    def _next(self, turn: int) -> Tensor | None:
        if turn != self._turn:
            raise RuntimeError("this stream has ended: its decoder was closed or started another")
        with self._or_close():
            try:
                result = next(self._results, None)
            except RuntimeError as error:
                if "DataLoader worker" not in str(error):
                    raise
                raise InputError(
                    "a process that reads the items of the dataset ended unexpectedly; it may have "
                    "run out of memory, or an item may have crashed it; use fewer workers, or look "
                    "for a damaged file that has changed since the start."
                ) from error
        return None if result is None else self._checked(result)

    def _checked(self, result: Any) -> Tensor:
        if isinstance(result, _Failure):
            raise result.error
        first, batch = result
        if self._example is None:
            # Only its shape and type.
            self._example = first, torch.empty_like(batch[0], device="meta")
        _refuse_unlike(first, batch[0], *self._example)
        return batch


class _Feed:
    """Hands the batches of the current stream to the loader."""

    batches: Iterable[Index] = ()

    def __iter__(self) -> Iterator[Index]:
        return map(np.asarray, self.batches)


class _Failure:
    """An exception on its way to the process that can raise it."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Stacked(Dataset[Any]):
    """A dataset whose items are batches: the first index, and the items at all of them."""

    def __init__(self, dataset: Any, length: int) -> None:
        self.dataset = dataset
        self.length = length
        self._generators = Generators(0)

    def __getitem__(self, indices: Index) -> tuple[int, Tensor] | _Failure:
        try:
            numbers = indices.tolist()
            with self._own_numbers():
                items = [self._item(index) for index in numbers]
            for index, item in zip(numbers, items, strict=True):
                _refuse_unlike(index, item, numbers[0], items[0])
            return numbers[0], default_collate(items)
        except Exception as error:
            return _Failure(error if torch.utils.data.get_worker_info() is None else _sent(error))

    def _own_numbers(self) -> AbstractContextManager[None]:
        """Where somebody else's dataset may draw from torch's generator in this process."""
        worker = torch.utils.data.get_worker_info()
        if worker is not None or getattr(self.dataset, "self_contained", False):
            return nullcontext()
        return self._generators.lent(torch.device("cpu"))

    def _item(self, index: int) -> Tensor:
        try:
            item = self.dataset[index]
        except IndexError as error:
            if not 0 <= index < self.length:
                raise
            raise InputError(
                f"item {index} of the dataset cannot be read (IndexError: {error}) although its "
                f"length is {self.length}; make __len__ return the number of items."
            ) from error
        return _tensor(item[0] if isinstance(item, (tuple, list)) and item else item, index)


def _tensor(item: Any, index: int) -> Tensor:
    if isinstance(item, Tensor) and item.layout == torch.strided and not item.is_meta:
        return item.detach()
    if isinstance(item, (Tensor, np.ma.MaskedArray)):
        try:
            item = plain_array(item)
        except InputError as error:
            raise InputError(str(error).replace("X", f"item {index} of the dataset", 1)) from None
    if hasattr(item, "getbands"):
        item = channels_first(grey_or_rgb(item, 1 if item.mode in GREY_MODES else 3))
    if isinstance(item, np.ndarray) and item.dtype.kind in "fiub":
        # A copy, because torch shares no array that cannot be written or is in another byte order.
        return torch.from_numpy(np.array(item, item.dtype.newbyteorder("="), order="C"))
    what = f"an array of type {item.dtype}" if hasattr(item, "dtype") else type(item).__name__
    raise InputError(
        f"item {index} of the dataset is {what}; it must be a tensor, an array of numbers or a PIL "
        "image, or a tuple whose first entry is one."
    )


def _refuse_unlike(index: int, item: Tensor, first: int, example: Tensor) -> None:
    if item.shape != example.shape:
        raise InputError(
            f"item {index} of the dataset has shape {tuple(item.shape)}, but item {first} has "
            f"{tuple(example.shape)}; give all items the same shape."
        )
    if item.dtype != example.dtype:
        raise InputError(
            f"item {index} of the dataset has type {item.dtype}, but item {first} has "
            f"{example.dtype}; give all items the same type."
        )


def _length(dataset: Any) -> int:
    try:
        length = len(dataset)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise InputError(
            f"the dataset ({type(dataset).__name__}) has no usable length ({error}); give it "
            "__len__ and __getitem__."
        ) from None
    if not length:
        raise InputError("the dataset has length 0; pass one with items.")
    return length


def _sent(error: Exception) -> Exception:
    """Return an error that can be pickled, with a note of where it came from."""
    if not isinstance(error, InputError):
        error.add_note(f"In a worker process:\n{traceback.format_exc()}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # some errors cannot be unpickled
        return RuntimeError("".join(traceback.format_exception_only(error)).strip())
    return error


def _end_with_main(worker: int) -> None:
    """Let this worker end with the process that it works for, however that one ends.

    torch only watches the process from which workers are forked, and that one waits for them.
    """
    main = multiprocessing.parent_process()
    if main is not None:
        threading.Thread(target=_wait_and_leave, args=[main], daemon=True).start()


def _wait_and_leave(main: Any) -> None:
    main.join()
    os._exit(1)


def _as_it_is(batch: Any) -> Any:
    return batch


def _clean_start() -> str:
    """Return the start method whose processes inherit nothing from this one."""
    if sys.platform != "linux":
        return "spawn"
    # Imported once, before the fork, and not by every worker.
    multiprocessing.set_forkserver_preload([__name__, "PIL.Image"])
    return "forkserver"


@contextmanager
def _main_left_out() -> Iterator[None]:
    """Hide the script, which new processes would otherwise run again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
