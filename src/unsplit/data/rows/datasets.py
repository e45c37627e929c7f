"""Any torch Dataset as observations, decoded in worker processes while a network trains."""

import multiprocessing
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from unsplit._typing import Index
from unsplit.data.pixels import GREY_MODES, channels_first, grey_or_rgb
from unsplit.data.rows.base import (
    SHARE_FOR_DATA,
    Rows,
    as_stored,
    kind_of,
    middle_of,
    plain_array,
    require_kind,
    require_like,
)
from unsplit.devices import Generators, available_memory, n_cores
from unsplit.errors import InputError

BATCH = 256

# The most bytes of decoded items to keep in main memory: thousands of photographs, which would
# take longer to decode in every epoch than a small network takes to learn from them.
KEPT_ON_CPU = 2**29

MOST_WORKERS = 8
# Fewer items than this are decoded faster than workers start.
FEW_ITEMS = 2_000


class DatasetRows(Rows):
    """Items of a Dataset: images (C, H, W), clouds (p, 3), sequences (L, C) or vectors (d,).

    On a GPU, items that fit into its memory are read once and kept there, bytes as bytes; on a CPU,
    so are items of up to 512 MiB.  Otherwise nothing is kept: items are read again in every epoch,
    and memory does not grow with their number.

    Examples
    --------
    >>> rows = DatasetRows.of([torch.zeros(3, 8, 8)] * 5, torch.device("cpu"))
    >>> len(rows), rows.kind, rows.shape
    (5, 'images', (3, 8, 8))
    """

    def __init__(
        self, dataset: Any, kind: str, device: torch.device, origin: NDArray[Any] | None = None
    ) -> None:
        self.dataset = dataset
        self.kind = kind
        self.device = device
        self.decoder = Decoder(dataset, pin=device.type == "cuda")
        self.on_device: Tensor | None = None
        if origin is not None:
            self.origin = origin

    @classmethod
    def of(cls, dataset: Any, device: torch.device, kind: str | None = None) -> Self:  # type: ignore[override]
        """Wrap a Dataset; if ``kind`` is None, its first item shows what kind of data it is."""
        item = Decoder(dataset, workers=0).take(np.array([0]))[0]
        shape = (len(dataset), *item.shape)
        if kind is None:
            small = item.dtype in (torch.uint8, torch.bool)
            kind = kind_of(shape, np.uint8 if small else np.float32)
        if kind == "counts":
            raise InputError(
                'counts cannot be read from a Dataset; pass a sparse matrix, or use backbone="mlp".'
            )
        require_kind(kind, shape if kind != "vectors" or item.ndim < 2 else shape[:2])
        return cls(dataset, kind, device)

    def __len__(self) -> int:
        return len(self.dataset)

    def _batches(self, places: list[Tensor]) -> Iterator[Tensor]:
        if self.on_device is None and self._fits():
            self.on_device = self._read_all()
        return super()._batches(places) if self.on_device is not None else self._decoded(places)

    def _decoded(self, places: Iterable[Tensor]) -> Iterator[Tensor]:
        # All at once: copying each index from the GPU in turn would make it wait every time.
        wanted = [index.cpu().numpy() for index in places]
        for items in self.decoder.stream(wanted):
            yield self._converted(items).to(self.device, non_blocking=self.decoder.pin)

    def _fetched(self, places: Tensor) -> Tensor:
        return self._converted(self.decoder.take(places.cpu().numpy()))

    def _converted(self, items: Tensor) -> Tensor:
        """Items as they are stored, less their origin, which would use up float32's digits."""
        items = self._in_order(items)
        items = items.byte() if items.dtype == torch.bool else items
        if items.dtype in (torch.uint8, torch.float16, torch.float32):
            return items
        return (items.double() - torch.from_numpy(self.origin)).float()

    def _in_order(self, items: Tensor) -> Tensor:
        if self.kind == "vectors":
            return items.flatten(1)
        if self.kind == "images" and items.ndim == 4 and items.shape[1] <= 4:
            return items.movedim(1, -1)  # items of torch have their channels first, however narrow
        return as_stored(items, self.kind)

    @cached_property
    def _first(self) -> Tensor:
        """The first item as it is stored."""
        return self._fetched(torch.zeros(1, dtype=torch.long))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of one item as a network gets it."""
        return tuple(self._formed(self._first).shape[1:])

    def _fits(self) -> bool:
        if self.device.type == "cpu":
            return self._n_bytes() <= min(KEPT_ON_CPU, SHARE_FOR_DATA * available_memory())
        return self.device.type == "cuda" and super()._fits()

    def _n_bytes(self) -> int:
        return self._first.nbytes * len(self)

    def _read_all(self) -> Tensor:
        shape = len(self), *self._first.shape[1:]
        found = torch.empty(shape, dtype=self._first.dtype, device=self.device)
        places = torch.arange(len(self)).split(BATCH)
        for place, items in zip(places, self._decoded(places), strict=True):
            found[int(place[0]) : int(place[-1]) + 1] = items
        self.decoder.close()
        return found

    @cached_property
    def origin(self) -> NDArray[Any]:
        """What is subtracted from every channel, or from every feature of vectors; often zero."""
        item = self._in_order(self.decoder.take(np.array([int(np.argmin(self.keys))])))[0].numpy()
        return np.zeros(1) if np.can_cast(item.dtype, np.float32) else middle_of(item)

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """The Dataset's ``keys`` if it has any; otherwise positions, so that the order matters."""
        given = getattr(self.dataset, "keys", None)
        if given is None or callable(given):
            return np.arange(len(self), dtype=np.uint64)
        keys = np.asarray(given)
        if keys.shape != (len(self),):
            raise InputError(
                f"the keys of the Dataset have shape {keys.shape}, but it has {len(self)} items; "
                "give each item one number that depends only on its content."
            )
        return keys.astype(np.uint64)

    def moments(self, index: Index) -> tuple[Tensor, Tensor]:
        """Return mean and scale of channels over some of the items."""
        mean, scale = super().moments(index)
        if not (mean.isfinite().all() and scale.isfinite().all()):
            raise InputError(
                "items of the Dataset have values that are NaN or infinite; remove such items or "
                "fill in the values first."
            )
        return mean, scale

    def first(self, n: int) -> Self:
        """Return the first n items, without the Dataset."""
        items = list(self.decoder.take(np.arange(n)))
        return type(self)(items, self.kind, self.device, self.origin)

    def another(self, X: Any) -> Self:
        """Wrap the items of another Dataset."""
        new = type(self).of(X, self.device, self.kind)
        new.origin = self.origin
        require_like(new, self)
        return new


# --- reading --------------------------------------------------------------------------------------


def default_workers(n_items: int) -> int:
    """Return 0 for few items or where processes are not allowed, else one per core, at most 8."""
    if n_items < FEW_ITEMS or multiprocessing.current_process().daemon:
        return 0
    return min(MOST_WORKERS, n_cores())


class Decoder:
    """Batches of a dataset, decoded and stacked by workers that serve one stream after another.

    Parameters
    ----------
    dataset : map-style Dataset
        Its items are tensors, arrays or PIL images of one shape and type, or tuples whose first
        entry is one.
    workers : int, optional
        Number of processes; 0 decodes in the calling process, None uses
        :func:`default_workers`.
    pin : bool
        Whether to put batches into page-locked memory, from which a GPU can copy them.

    Examples
    --------
    >>> decoder = Decoder([np.array([i]) for i in range(4)], workers=0)
    >>> [batch.tolist() for batch in decoder.stream([np.array([2, 0]), np.array([3])])]
    [[[2], [0]], [[3]]]
    """

    def __init__(self, dataset: Any, workers: int | None = None, pin: bool = False) -> None:
        if not len(dataset):
            raise InputError("the dataset has length 0; pass one with items.")
        self._items = _Stacked(dataset)
        self.workers = default_workers(len(dataset)) if workers is None else workers
        self.pin = pin
        self._wanted: list[Index] = []  # of the present stream; the loader reads them
        self._loader: DataLoader[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_wanted": [], "_loader": None}  # workers are not copied

    def stream(self, batches: Iterable[Index]) -> Iterator[Tensor]:
        """Decode batches in their order; a new stream ends an unfinished one.

        Yields
        ------
        Tensor of shape (b, *item)
        """
        self._wanted[:] = batches
        if self._loader is None:
            self._loader = DataLoader(
                self._items,
                batch_size=None,
                sampler=self._wanted,
                num_workers=self.workers,
                pin_memory=self.pin,
                # Starting workers takes longer than reading a small dataset.
                persistent_workers=self.workers > 0,
                multiprocessing_context="fork"
                if self.workers and sys.platform == "linux"
                else None,
                # Its own, because otherwise every stream would draw from torch's global generator.
                generator=torch.Generator(),
            )
        try:
            for found in self._loader:
                yield _unless_refused(found)
        except RuntimeError as error:
            self.close()
            if "DataLoader worker (pid" not in str(error):
                raise
            raise InputError(
                "a process that reads the items of the dataset ended unexpectedly; it may have run "
                "out of memory, or an item may have crashed it; look for a damaged file."
            ) from error

    def take(self, batch: Index) -> Tensor:
        """Decode one batch in this process; a running stream continues."""
        return _unless_refused(self._items[batch])

    def close(self) -> None:
        """End the workers; the next stream starts new ones."""
        self._loader = None  # torch ends the workers of a loader that nobody holds any more


def _unless_refused(found: Tensor | InputError) -> Tensor:
    if isinstance(found, InputError):
        raise found
    return found


class _Stacked(Dataset[Any]):
    """A dataset whose items are batches, or an :class:`InputError`, which workers can send."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._generators = Generators(0)
        self._first: tuple[int, torch.Size, torch.dtype] | None = None

    def __getitem__(self, indices: Index) -> Tensor | InputError:
        # Somebody else's dataset may draw from torch's generator, which is not that of the run.
        own = nullcontext() if get_worker_info() else self._generators.lent(torch.device("cpu"))
        try:
            with own:
                return torch.stack([self._item(index) for index in np.asarray(indices).tolist()])
        except InputError as error:
            return error

    def _item(self, index: int) -> Tensor:
        item = self.dataset[index]
        item = _tensor(item[0] if isinstance(item, (tuple, list)) and item else item, index)
        self._first = self._first or (index, item.shape, item.dtype)
        first, shape, dtype = self._first
        if (item.shape, item.dtype) != (shape, dtype):
            raise InputError(
                f"item {index} of the dataset has shape {tuple(item.shape)} and type {item.dtype}, "
                f"but item {first} has {tuple(shape)} and {dtype}; give all items the same shape "
                "and type."
            )
        return item


def _tensor(item: Any, index: int) -> Tensor:
    """An item of any type as a tensor."""
    if hasattr(item, "getbands"):
        item = channels_first(grey_or_rgb(item, 1 if item.mode in GREY_MODES else 3))
    try:
        item = plain_array(item)
    except InputError as error:
        raise InputError(str(error).replace("X", f"item {index} of the dataset", 1)) from None
    if isinstance(item, np.ndarray) and item.dtype.kind in "fiub":
        # A copy, because torch shares no array that cannot be written or is in another byte order.
        return torch.from_numpy(np.array(item, item.dtype.newbyteorder("="), order="C"))
    what = f"an array of type {item.dtype}" if hasattr(item, "dtype") else type(item).__name__
    raise InputError(
        f"item {index} of the dataset is {what}; it must be a tensor, an array of numbers or a PIL "
        "image, or a tuple whose first entry is one."
    )
