"""What all kinds of observations share: batches on the training device, keys, moments, checks."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsplit._typing import Index
from unsplit.data.labels import refuse_annotated
from unsplit.errors import InputError, observation

# Numbers of a block that is looked at from beginning to end; it should fit into the cache.
BLOCK = 2**18
# Numbers that are converted or measured at once.
CHUNK_ELEMENTS = 2**22
# Squares of larger values are beyond single precision, and so may be sums of them.
LARGEST = np.float32(1e30)
# Number of rows from which the scale of channels is estimated.
LOOKED_AT = 1024
# Batches that are fetched ahead of the network.
AHEAD = 4
# With fewer points, an array is more likely a sequence of three channels.
LEAST_POINTS = 8
# Share of the device's free memory that data may take.
SHARE_FOR_DATA = 0.4

SHAPES = {
    "vectors": "(n, d)",
    "images": "(n, h, w) or (n, h, w, c)",
    "points": "(n, points, 3)",
    "sequences": "(n, length) or (n, length, channels)",
}


class Rows:
    """Observations in an array whose first axis they are, handed out in batches on the device.

    ``kind`` says what they are: "vectors", "counts" (sparse), "images", "points" or "sequences";
    ``rate`` is the number of samples per second of sound, None for everything else; ``stackable``
    says whether batches of several networks can be taken at once, with an index of two axes.

    Images are stored (n, H, W, C), the order in which networks are fastest, and handed out
    (b, C, H, W), bytes as bytes; clouds are (n, p, 3 + features), sequences (n, L, C).  An array
    that fits is copied to the device; a larger one stays where it is, and batches are fetched
    ahead.  Observations of other types are subclasses, which have at least ``kind``, ``device``,
    ``take``, ``stream``, ``keys``, ``moments``, ``first``, ``another`` and a length.

    Examples
    --------
    >>> rows = Rows.of(np.zeros((5, 8, 8), np.uint8), "images", torch.device("cpu"))
    >>> len(rows), rows.kind, rows.shape
    (5, 'images', (1, 8, 8))
    """

    rate: int | None = None
    stackable: bool = False

    def __init__(
        self, values: Any, kind: str, device: torch.device, origin: NDArray[Any] | None = None
    ) -> None:
        self.values = values
        self.kind = kind
        self.device = device
        self.on_device: Tensor | None = None
        if origin is not None:
            self.origin = origin
        if not is_mapped(values) and self._fits():
            self.on_device = torch.from_numpy(self._stored(values)).to(device)

    @classmethod
    def of(cls, X: Any, kind: str, device: torch.device) -> Self:
        """Check X, in any layout, and wrap it without copying it."""
        return cls(_checked(X, kind), kind, device)

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation as a network gets it."""
        return tuple(self.take(torch.zeros(1, dtype=torch.long, device=self.device)).shape[1:])

    def take(self, index: Tensor) -> Tensor:
        """Return observations as a network gets them, shape (*index.shape, ...)."""
        places = index.ravel()
        if self.on_device is None:
            stored = self._fetched(places).to(self.device)
        else:
            stored = self.on_device[places]
        return self._formed(stored).unflatten(0, index.shape)

    def stream(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield what ``take`` returns for each of the batches, in order."""
        batches = list(batches)
        ready = self._batches([index.ravel() for index in batches])
        for index, stored in zip(batches, ready, strict=True):
            yield self._formed(stored).unflatten(0, index.shape)

    def _batches(self, places: list[Tensor]) -> Iterator[Tensor]:
        """The observations of each batch as they are stored, on the device."""
        if self.on_device is not None:
            return map(self.on_device.__getitem__, places)
        return prefetched(self._fetched, places, self.device)

    def _fetched(self, places: Tensor) -> Tensor:
        return torch.from_numpy(self._stored(gathered(self.values, places.cpu().numpy())))

    def _formed(self, stored: Tensor) -> Tensor:
        """Observations (b, …) as a network gets them."""
        if self.kind == "images":
            return stored.movedim(-1, 1)
        if self.kind == "sequences":
            channels = stored.float().movedim(-1, 1)
            return torch.cat([channels, torch.ones_like(channels[:, :1])], 1)
        return stored.float()

    @cached_property
    def origin(self) -> NDArray[Any]:
        """What is subtracted from every channel before values become float32.

        Map coordinates, for example, have a large common offset, which would use up the digits.
        """
        if np.can_cast(self.values.dtype, np.float32):
            return np.zeros(1)
        return middle_of(self.values[np.argmin(self.keys)])

    def _stored(self, values: NDArray[Any]) -> NDArray[Any]:
        """Keep bytes and float16 as they are; subtract the origin from others, as float32."""
        if self.origin.any():
            out = np.empty(values.shape, np.float32)
            return np.subtract(values, self.origin, out, dtype=np.float64, casting="same_kind")
        kept: Any = np.float16 if values.dtype == np.float16 else np.float32
        if values.dtype in (np.uint8, np.bool_):
            kept = np.uint8
        # Writable, because torch warns about read-only arrays.
        return np.require(values, kept, ["C", "W"])

    def _fits(self) -> bool:
        if self.device.type != "cuda":
            return True
        return self._n_bytes() <= SHARE_FOR_DATA * torch.cuda.mem_get_info(self.device)[0]

    def _n_bytes(self) -> int:
        """Bytes that all observations take as they are stored."""
        return int(self.values.size * self._stored(self.values[:0]).dtype.itemsize)

    def moments(self, index: Index) -> tuple[Tensor, Tensor]:
        """Return mean and scale of channels over some of the rows, to standardise batches with.

        The scale is never zero.
        """
        some = index if self.kind == "vectors" else evenly(index)
        parts = parts_of(some, math.prod(self.shape), CHUNK_ELEMENTS)
        places = [torch.from_numpy(part.copy()) for part in parts]
        mean, scale = channel_moments((x.cpu().numpy() for x in self._batches(places)), self.kind)
        return mean.to(self.device), scale.to(self.device)

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """One number per row that depends only on its content, where the content is known."""
        return keys_of_bytes(self.values)

    def first(self, n: int) -> Self:
        """Return the first n rows, with the origin that all rows have."""
        return self._with(np.array(self.values[:n]))

    def another(self, X: Any) -> Self:
        """Wrap new observations for a network that was trained on these."""
        new = self._with(_checked(X, self.kind))
        require_like(new, self)
        return new

    def _with(self, values: Any) -> Self:
        return type(self)(values, self.kind, self.device, self.origin)


# --- what X is ------------------------------------------------------------------------------------


def kind_of(shape: tuple[int, ...], dtype: Any) -> str:
    """Return which kind of data an array of this shape (n, …) most likely holds.

    Bytes and booleans of three axes are images, other numbers sequences.

    Examples
    --------
    >>> kind_of((100, 1024, 3), np.float32), kind_of((100, 64, 64, 3), np.uint8)
    ('points', 'images')
    >>> kind_of((100, 28, 28), np.uint8), kind_of((100, 500, 6), np.float32)
    ('images', 'sequences')
    """
    if len(shape) == 2:
        return "vectors"
    if len(shape) == 4:
        return "images"
    if len(shape) == 3 and shape[2] == 3 and shape[1] >= LEAST_POINTS:
        return "points"
    if len(shape) == 3:
        return "images" if np.dtype(dtype) in (np.uint8, np.bool_) else "sequences"
    raise InputError(
        f"X has the unsupported shape {shape}; reshape it to vectors (n, d), images (n, h, w) or "
        "(n, h, w, c), point clouds (n, points, 3) or sequences (n, length, channels)."
    )


def require_kind(kind: str, shape: tuple[int, ...]) -> None:
    """Raise an error if a shape (n, …) cannot hold this kind of observations."""
    n_axes = {"vectors": (2,), "images": (3, 4), "points": (3,), "sequences": (2, 3)}[kind]
    if len(shape) not in n_axes or (kind == "points" and shape[2] < 3):
        raise InputError(f"{kind} must have shape {SHAPES[kind]}, got {shape}; reshape X.")


def require_numbers(values: Any, name: str = "X") -> None:
    """Raise an error if an array or sparse matrix is empty or holds no real numbers."""
    if 0 in values.shape:
        raise InputError(f"{name} is empty (shape {values.shape}); pass at least two observations.")
    if values.dtype.kind not in "fiub":
        raise InputError(
            f"{name} must hold numbers, got values of type {values.dtype}; encode them as numbers "
            "first."
        )


def refuse_gaps_in_columns(
    X: NDArray[Any], names: Sequence[Any], what: str, advice: str = ""
) -> None:
    """Raise an error that names the columns with missing or infinite values, and how many."""
    n_gaps = (~np.isfinite(X)).sum(axis=0)
    columns = np.flatnonzero(n_gaps)
    if not len(columns):
        return
    named = [f"{n_gaps[j]:,} in column {names[j]!r}" for j in columns[:5]]
    more = f" and more in {len(columns) - 5:,} other columns" if len(columns) > 5 else ""
    raise InputError(
        f"{what} has missing or infinite values ({', '.join(named)}{more}); "
        f"remove those rows or fill in the values first{advice}."
    )


def as_array(X: Any) -> NDArray[Any]:
    """Return X as an array; an array that is mapped from disk stays mapped."""
    X = plain_array(X)
    if isinstance(X, np.ndarray):
        return X
    if isinstance(X, (list, tuple)):
        X = [plain_array(x) for x in X]
    try:
        return plain_array(np.asarray(X))
    except InputError:
        raise
    except ValueError:
        raise InputError(
            "the observations in X differ in shape; give all of them the same shape."
        ) from None


def plain_array(X: Any) -> Any:
    """Turn tensors, masked arrays and matrices into arrays; refuse those without usable numbers.

    Everything else is returned as it is.

    Examples
    --------
    >>> plain_array(torch.ones(2, dtype=torch.bfloat16, requires_grad=True))
    array([1., 1.], dtype=float32)
    >>> plain_array(np.ma.masked_array([1, 2], mask=[True, False]))
    Traceback (most recent call last):
    unsplit.errors.InputError: X has 1 masked values; fill them in or remove those rows first.
    """
    if isinstance(X, Tensor):
        return _values_of(X)
    if isinstance(X, np.matrix):
        return np.asarray(X)
    if scipy.sparse.issparse(X) and X.format in ("csr", "csc"):
        try:
            X.check_format(full_check=True)
        except ValueError as error:
            raise InputError(
                f"X is a damaged sparse matrix ({error}); read or build it again."
            ) from None
        return X
    if not isinstance(X, np.ndarray):
        refuse_annotated(X)
    if isinstance(X, np.ma.MaskedArray):
        n_hidden = int(np.ma.getmaskarray(X).sum())
        if n_hidden:
            raise InputError(
                f"X has {n_hidden} masked values; fill them in or remove those rows first."
            )
        X = X.data
    if isinstance(X, np.ndarray) and X.dtype.kind in "mM":
        raise InputError(
            f"X must hold numbers, got dates or durations of type {X.dtype}; turn them into "
            "numbers first, for example days since the first date."
        )
    return X


def _values_of(tensor: Tensor) -> NDArray[Any]:
    known = (torch.float16, torch.float32, torch.float64)
    try:
        if tensor.is_floating_point() and tensor.dtype not in known:
            tensor = tensor.float()  # NumPy has no bfloat16
        return tensor.numpy(force=True)
    except (NotImplementedError, RuntimeError, TypeError):
        raise InputError(
            "X is a sparse or nested torch tensor, or one that holds no values, which is not "
            "supported; pass a dense tensor, a SciPy sparse matrix or a list of sequences."
        ) from None


def middle_of(item: NDArray[Any]) -> NDArray[np.float64]:
    """Mean of every channel of one observation."""
    return item.reshape(-1, item.shape[-1]).mean(axis=0, dtype=np.float64)


def require_like(new: Rows, old: Rows) -> None:
    """Raise an error if new observations have another shape; sequences may differ in length."""
    n_axes = 1 if old.kind == "sequences" else len(old.shape)
    if new.shape[:n_axes] != old.shape[:n_axes]:
        raise InputError(
            f"X has observations of shape {new.shape}, but the network was trained on shape "
            f"{old.shape}; pass observations of that shape."
        )


def as_stored(values: Any, kind: str) -> Any:
    """Return an array or tensor in the axis order in which it is stored, without copying it.

    Examples
    --------
    >>> as_stored(np.zeros((5, 3, 8, 9)), "images").shape
    (5, 8, 9, 3)
    >>> as_stored(np.zeros((5, 100)), "sequences").shape
    (5, 100, 1)
    """
    if (kind, values.ndim) in (("sequences", 2), ("images", 3)):
        return values[..., None]
    if kind == "images" and values.shape[-1] > 4 and values.shape[1] < values.shape[-1]:
        return values.swapaxes(1, 2).swapaxes(2, 3)
    return values


def _checked(X: Any, kind: str) -> NDArray[Any]:
    """Return X as an array of numbers that float32 can hold, in the stored axis order."""
    values = as_array(X)
    require_kind(kind, values.shape)
    require_numbers(values)
    if values.dtype.kind == "f":
        refuse_gaps(values)
    return as_stored(values, kind)


def refuse_gaps(values: NDArray[Any]) -> None:
    """Raise an error that names the first observation with values that float32 cannot hold."""
    for part in parts_of(np.arange(len(values)), math.prod(values.shape[1:])):
        with np.errstate(over="ignore"):
            narrow = values[part[0] : part[-1] + 1].astype(np.float32, copy=False)
        usable = np.abs(narrow) <= LARGEST
        if not usable.all():
            bad = ~usable.reshape(len(part), -1).all(axis=1)
            raise InputError(
                f"{observation(int(part[np.argmax(bad)]))} has values that are NaN, infinite or "
                f"larger than {LARGEST:g}; remove such observations or fill in the values first."
            )


# --- order by content -----------------------------------------------------------------------------


def canonical_order(
    keys: NDArray[np.uint64], clusters: Index, *others: Index | None
) -> tuple[Index, Index]:
    """Order rows and number clusters by content, so that neither order nor names matter.

    Returns the clustered rows in order, and for every row the new number of its cluster (−1 for
    noise).  Clusters that hold the same rows are told apart by what ``others``, such as the batches
    of all rows, hold.
    """
    used = np.flatnonzero(clusters >= 0)
    order = used[np.argsort(keys[used], kind="stable")]
    _, first = np.unique(clusters[order], return_index=True)
    # Clusters with the same first row are ordered by the rest of their content; the one added
    # makes rows of zeros count, whose key is 0.
    hashed = scrambled(keys) + np.uint64(1)
    within = sum((_content(hashed, of) for of in others if of is not None), start=hashed)
    rest, beside = (_content(of, clusters)[order[first]] for of in (hashed, scrambled(within)))
    number = np.empty(len(first), np.int64)
    number[np.lexsort((beside, rest, keys[order[first]]))] = np.arange(len(first))
    renamed = np.full(len(clusters), -1, np.int64)
    renamed[used] = number[clusters[used]]
    return order[np.argsort(renamed[order], kind="stable")], renamed


def _content(hashed: NDArray[np.uint64], clusters: Index) -> NDArray[np.uint64]:
    """For each row, the sum over its cluster of what stands for a row; −1 is a cluster, too."""
    total = np.zeros(int(clusters.max()) + 2, np.uint64)
    np.add.at(total, clusters, hashed)
    return total[clusters]


def keys_of_bytes(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Hash the bytes of each entry along the first axis.

    Examples
    --------
    >>> a, b, c = keys_of_bytes(np.array([[1, 2], [1, 2], [2, 1]], np.uint8))
    >>> bool(a == b), bool(a == c)
    (True, False)
    """
    size = math.prod(values.shape[1:]) * values.dtype.itemsize
    multipliers = odd_numbers(-(-size // 8))
    parts = [np.zeros(0, np.uint64)]
    for some in parts_of(np.arange(len(values)), size, 8 * CHUNK_ELEMENTS):
        chunk = np.ascontiguousarray(values[some[0] : some[-1] + 1])
        padded = np.zeros((len(chunk), 8 * len(multipliers)), np.uint8)
        padded[:, :size] = chunk.view(np.uint8).reshape(len(chunk), size)
        parts.append((scrambled(padded.view(np.uint64)) * multipliers).sum(1, dtype=np.uint64))
    return np.concatenate(parts)


def odd_numbers(n: int) -> NDArray[np.uint64]:
    """Return n odd numbers, the same at every call."""
    drawn = np.random.default_rng(0).integers(2**63, size=n, dtype=np.uint64)
    return drawn * np.uint64(2) + np.uint64(1)


def scrambled(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix bits so that small whole numbers differ in all 64 of them; 0 stays 0."""
    # The last steps of splitmix64.
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


# --- parts of arrays, also of those on disk -------------------------------------------------------


def is_mapped(values: Any) -> bool:
    """Whether an array, or the array that it is a view of, is mapped from a file."""
    while values is not None and not isinstance(values, np.memmap):
        values = getattr(values, "base", None)
    return values is not None


def parts_of(index: Index, width: int, elements: int | None = None) -> list[Index]:
    """Split row indices so that each part has about ``elements`` values, ``width`` in each row.

    Examples
    --------
    >>> [part.tolist() for part in parts_of(np.arange(3), 2**17)]
    [[0, 1], [2]]
    """
    step = max(1, (elements or BLOCK) // max(1, width))
    return [index[start : start + step] for start in range(0, len(index), step)]


def blocks_of(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield consecutive rows of a matrix, as many at a time as fit into the processor's cache."""
    for part in parts_of(np.arange(len(values)), values.shape[1]):
        yield values[part[0] : part[-1] + 1]


def gathered(values: Any, index: Index) -> Any:
    """Return rows of an array in memory; those on disk are read in the order in which they lie.

    Examples
    --------
    >>> gathered(np.array([[1.0], [2.0], [3.0]]), np.array([2, 0, 2])).ravel()
    array([3., 1., 3.])
    """
    if not is_mapped(values):
        return values[index]
    order = np.argsort(index, kind="stable")
    found = np.empty((len(index), *values.shape[1:]), values.dtype)
    for some in parts_of(order, math.prod(values.shape[1:])):
        found[some] = values[index[some]]
    return found


def prefetched(
    fetch: Callable[[Tensor], Tensor], batches: Iterable[Tensor], device: torch.device
) -> Iterator[Tensor]:
    """Yield ``fetch`` of each batch on the device, in order, fetched a few batches ahead.

    On CUDA batches are pinned, so that copying them does not hold up the computation.

    Examples
    --------
    >>> numbers = torch.arange(6)
    >>> batches = [torch.tensor([0, 1]), torch.tensor([5])]
    >>> [x.tolist() for x in prefetched(lambda i: numbers[i], batches, torch.device("cpu"))]
    [[0, 1], [5]]
    """
    cuda = device.type == "cuda"

    def ready(index: Tensor) -> Tensor:
        found = fetch(index)
        return found.pin_memory() if cuda else found

    waiting: deque[Future[Tensor]] = deque()
    pool = ThreadPoolExecutor(1)
    try:
        for index in batches:
            waiting.append(pool.submit(ready, index))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result().to(device, non_blocking=cuda)
        while waiting:
            yield waiting.popleft().result().to(device, non_blocking=cuda)
    finally:
        # A caller that stops early does not wait for batches it no longer needs.
        pool.shutdown(cancel_futures=True)


# --- moments --------------------------------------------------------------------------------------


def evenly(index: Index, n: int = LOOKED_AT) -> Index:
    """Return at most n evenly spaced entries, in their order.

    They are not sorted first: then the choice would depend on the order of the rows.

    Examples
    --------
    >>> evenly(np.array([7, 1, 5, 0, 2]), 3)
    array([7, 5, 2])
    """
    return index[:: -(-len(index) // n)]


def channel_moments(parts: Iterable[NDArray[Any]], kind: str) -> tuple[Tensor, Tensor]:
    """Return mean and scale of the last axis, shaped to fit the batches that a network gets.

    Point clouds have one scale for x, y and z, so that they keep their shape; the mask of
    sequences has mean 0 and scale 1.  The scale is 1 where nothing varies.

    Examples
    --------
    >>> clouds = np.array([[[0.0, 0.0, 5.0], [2.0, 4.0, 5.0]]])
    >>> channel_moments([clouds], "points")[1] ** 2  # of the variances 1, 4 and 0
    tensor([1.6667, 1.6667, 1.6667])
    """
    with np.errstate(invalid="ignore"):  # infinity is refused later
        mean, variance = _mean_and_variance(parts)
    variance[variance <= (1e-8 * mean) ** 2] = 0.0  # only rounding error
    if kind == "points":
        variance[:3] = variance[:3].mean()
    scale = np.where(variance > 0, np.sqrt(variance), 1.0)
    if kind == "sequences":
        mean, scale = np.append(mean, 0.0), np.append(scale, 1.0)
    extra = {"images": (1, 1), "sequences": (1,)}.get(kind, ())
    mean_, scale_ = (torch.from_numpy(v).float().reshape(-1, *extra) for v in (mean, scale))
    return mean_, scale_


def _mean_and_variance(
    parts: Iterable[NDArray[Any]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    shift: Any = None
    n, first, second = 0, 0.0, 0.0
    for part in parts:
        values = part.reshape(-1, part.shape[-1]).astype(np.float64)
        # Centred roughly first, because squares of large numbers would lose digits.
        shift = values.mean(axis=0) if shift is None else shift
        values -= shift
        n += len(values)
        first = first + values.sum(axis=0)
        second = second + np.einsum("ij,ij->j", values, values)
    mean = np.asarray(first) / n
    return mean + shift, np.maximum(second / n - mean**2, 0.0)
