"""Where and with whom to compute, free memory, and random numbers that touch nobody else's."""

import json
import math
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from unsplit.errors import InputError, is_whole, shown

if TYPE_CHECKING:
    import torch

# Elements of the largest score block held at once (64 MiB in float32).
BLOCK_ELEMENTS = 2**24


def choose_device(device: "str | torch.device") -> "torch.device":
    """Choose CUDA, else MPS, else the CPU for ``"auto"``; otherwise the named device.

    Parameters
    ----------
    device : str or torch.device

    Examples
    --------
    >>> choose_device("cpu")
    device(type='cpu')
    """
    import torch

    if not isinstance(device, (str, torch.device)):
        raise InputError(
            f'device must be a str or a torch.device, got {shown(device)}; use "auto" or "cpu".'
        )
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.ones(1, device=chosen).item()
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0].split(". ")[0][:200]
        raise InputError(
            f'device={str(device)!r} cannot be used here ({reason}); use "auto" or "cpu".'
        ) from None
    return chosen


def mixed_precision(device: "torch.device") -> "torch.autocast":
    """Compute in bfloat16 on CUDA, and in full precision elsewhere."""
    import torch

    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def device_for_sums() -> "torch.device":
    """Choose where to sum over pairs: CUDA or the CPU, because MPS has no float64."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def n_cores() -> int:
    """Number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int:
    """Bytes of main memory that this process can still take, as far as the system reports them.

    Limits of the process and of its container or job count as well (Linux).
    """
    return max(0, min([_free_memory(), *_left_of_limits(), *_left_in_groups()]))


def _free_memory() -> int:
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 2**63 - 1


def _left_of_limits() -> list[int]:
    """What is left of the limits of this process, as ``ulimit`` sets them."""
    try:
        import resource

        pages = Path("/proc/self/statm").read_text().split()
        size, _, _, _, _, data, _ = (int(n) * os.sysconf("SC_PAGE_SIZE") for n in pages)
    except (ImportError, OSError, ValueError):
        return []
    limits = (resource.RLIMIT_AS, size), (resource.RLIMIT_DATA, data)
    soft = [(resource.getrlimit(limit)[0], used) for limit, used in limits]
    return [limit - used for limit, used in soft if limit != resource.RLIM_INFINITY]


# Where containers and jobs have their limits: version 2 of control groups, then version 1.
GROUPS = (
    ("/sys/fs/cgroup", "max", "current", "inactive_file"),
    ("/sys/fs/cgroup/memory", "limit_in_bytes", "usage_in_bytes", "total_inactive_file"),
)


def _left_in_groups() -> list[int]:
    """What is left of the limits of the control groups that this process is in."""
    left = []
    for root, limit, usage, cached in GROUPS:
        for folder in _groups_below(Path(root)):
            try:
                most = int((folder / f"memory.{limit}").read_text())
                used = int((folder / f"memory.{usage}").read_text())
                stat = (folder / "memory.stat").read_text().split()
            except (OSError, ValueError):  # there is none, or the limit is "max"
                continue
            # What files have cached makes room when it is needed.
            spare = int(stat[stat.index(cached) + 1]) if cached in stat else 0
            left.append(most - used + spare)
    return left


def _groups_below(root: Path) -> list[Path]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    fields = [line.split(":", 2) for line in lines]
    own = [Path(path.lstrip("/")) for _, kind, path in fields if kind in ("", "memory")]
    return [root / folder for path in own for folder in (path, *path.parents)]


def free_memory(device: "torch.device") -> int:
    """Bytes of free memory of a device.

    Examples
    --------
    >>> import torch
    >>> free_memory(torch.device("cpu")) > 0
    True
    """
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_memory()


def memory_size() -> float:
    """Return the size of this computer's memory in bytes; infinity if it is not known.

    Examples
    --------
    >>> memory_size() > 1e6
    True
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf


def require_memory(needed: int, available: int, what: str, advice: str) -> None:
    """Raise an error, before any work starts, if the work will not fit into memory."""
    if needed > available:
        raise InputError(
            f"{what} would need about {needed / 2**30:,.1f} GiB of memory, but only "
            f"{available / 2**30:,.1f} GiB are available; {advice}."
        )


def most_that_fits(needed: Callable[[int], int], available: int, most: int) -> int:
    """Return the largest number up to ``most`` for which memory suffices; 0 if none does.

    Parameters
    ----------
    needed : callable
        Bytes that a number of features, clusters or the like needs; not decreasing.
    available, most : int

    Examples
    --------
    >>> most_that_fits(lambda n: 8 * n * n, 1000, 50)
    11
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if needed(middle) <= available else (low, middle - 1)
    return low


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python, NumPy or torch says that memory is used up.

    Examples
    --------
    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("another reason"))
    (True, False)
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # On the CPU, torch raises a plain RuntimeError.
    signs = ("allocate memory", "not enough memory", "out of memory", "size calculation overflowed")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


@contextmanager
def memory_errors(what: str, advice: str) -> Iterator[None]:
    """Turn errors about memory inside the ``with`` block into a sentence with advice.

    Parameters
    ----------
    what : str
        What needs the memory, such as "merging 9,000 clusters".
    advice : str
        What to do, without a full stop.

    Examples
    --------
    >>> with memory_errors("this", "use less data"):
    ...     raise MemoryError
    Traceback (most recent call last):
    unsplit.errors.InputError: this needs more memory than is available (...); use less data.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = (str(error).splitlines() or [""])[0].rstrip(". ") or type(error).__name__
        raise InputError(
            f"{what} needs more memory than is available ({reason}); {advice}."
        ) from error


def generator_of(random_state: object) -> np.random.Generator:
    """Turn any ``random_state`` into a NumPy generator; None gives different numbers every time.

    Examples
    --------
    >>> bool(generator_of(3).random() == generator_of(3).random())
    True
    """
    check_seed(random_state)
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    if random_state is None:
        return np.random.default_rng()
    return np.random.default_rng(int(cast(int, random_state)))


def check_seed(random_state: object) -> None:
    """Raise an error unless :func:`generator_of` takes this; nothing is drawn from it.

    Examples
    --------
    >>> check_seed(3)
    """
    generators = (np.random.Generator, np.random.RandomState)
    if random_state is None or isinstance(random_state, generators):
        return
    if not is_whole(random_state) or cast(int, random_state) < 0:
        raise InputError(
            "random_state must be a whole number of at least 0, a numpy Generator or RandomState, "
            f"or None, got {shown(random_state)}; use 0 if any seed will do."
        )


class Generators:
    """One generator for each type of device, made with the same seed when it is needed.

    Parameters
    ----------
    seed : int

    Examples
    --------
    >>> import torch
    >>> generators = Generators(3)
    >>> generators.of(torch.device("cpu")).initial_seed()
    3
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._made: dict[str, torch.Generator] = {}

    def of(self, device: "torch.device") -> "torch.Generator":
        """Return the generator of a device."""
        import torch  # here, so that modules without torch can use generator_of

        if device.type not in self._made:
            self._made[device.type] = torch.Generator(device).manual_seed(self.seed)
        return self._made[device.type]

    def copy(self) -> "Generators":
        """Return generators that will draw the same numbers."""
        other = Generators(self.seed)
        other._made = {kind: one.clone_state() for kind, one in self._made.items()}
        return other

    def states(self) -> "dict[str, torch.Tensor]":
        """Return the states of all generators that were made, by type of device."""
        return {kind: one.get_state() for kind, one in self._made.items()}

    def continue_from(self, states: "Mapping[str, torch.Tensor]") -> None:
        """Draw from now on what would have been drawn after these states."""
        import torch

        for kind, state in states.items():
            self.of(torch.device(kind)).set_state(state)


class _Own(threading.local):
    """The generators of the run in this thread; None if it has none."""

    generators: Generators | None = None


_own = _Own()


Draws = Callable[[Generators], AbstractContextManager[object]]


@contextmanager
def private_randomness(seed: int, draws: Draws = nullcontext) -> Iterator[None]:
    """Let this thread draw from generators of its own, seeded with ``seed``.

    Parameters
    ----------
    seed : int
    draws : callable
        :func:`unsplit.randomness.redirected` if modules that are not ours draw as well.
    """
    before = _own.generators
    _own.generators = Generators(seed)
    try:
        with draws(_own.generators):
            yield
    finally:
        _own.generators = before


def own_generators() -> Generators:
    """Return the generators from which this thread draws.

    Examples
    --------
    >>> with private_randomness(3):
    ...     own_generators().seed
    3
    """
    assert _own.generators is not None, "only within private_randomness"
    return _own.generators


def own_generator(device: "torch.device") -> "torch.Generator | None":
    """Return the generator from which this thread draws; None means torch's global one.

    Parameters
    ----------
    device : torch.device
        Where the numbers are needed.

    Examples
    --------
    >>> import torch
    >>> with private_randomness(3):
    ...     one = torch.rand(1, generator=own_generator(torch.device("cpu")))
    >>> bool(one == torch.rand(1, generator=torch.Generator().manual_seed(3)))
    True
    """
    return None if _own.generators is None else _own.generators.of(device)


# What rank 0 tells the others when they are no longer needed.
DONE = "done"
# What a process leaves behind that ends because of an error.
OVER = "unsplit/over"
# Seconds between two looks for what it tells.
PAUSE = 0.05


class Ranks:
    """The processes of a run, seen from one of them; by default there is only one.

    Parameters
    ----------
    rank, size : int
        Number of this process, and how many there are.
    store : torch.distributed.Store, optional
        Where they leave each other messages.

    Examples
    --------
    >>> Ranks().share("the same for all")
    'the same for all'
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Any = None) -> None:
        self.rank, self.size, self._store = rank, size, store
        self._n_orders = self._n_shared = 0

    def share(self, value: Any) -> Any:
        """Return the value that rank 0 passes, however long that takes."""
        if self.size == 1:
            return value
        self._n_shared += 1
        key = f"unsplit/shared/{self._n_shared}"
        if self.rank == 0:
            self._store.set(key, pickle.dumps(value))
            return value
        return pickle.loads(self._awaited(key))

    def _awaited(self, key: str) -> bytes:
        # Not a collective operation: rank 0 may take longer than any patience.
        while not self._store.check([key]):
            if self._store.check([OVER]):
                raise ConnectionResetError("Connection reset by peer")
            time.sleep(PAUSE)
        found: bytes = self._store.get(key)
        return found

    def agree(self, choice: bool) -> bool:
        """Return what rank 0 chooses."""
        if self.size == 1:
            return choice
        import torch
        import torch.distributed as dist

        box = torch.tensor([int(choice)])
        dist.broadcast(box, src=0)
        return bool(box.item())

    def sum(self, values: "torch.Tensor") -> "torch.Tensor":
        """Add up the tensors of all processes, in place where possible."""
        if self.size == 1:
            return values
        import torch.distributed as dist

        values = values.contiguous()
        dist.all_reduce(values)
        return values

    def most(self, values: "torch.Tensor") -> "torch.Tensor":
        """Return the largest values of all processes."""
        if self.size == 1:
            return values
        import torch.distributed as dist

        values = values.clone()
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return values

    def part(self, n: int, rank: int | None = None) -> slice:
        """Return which of n rows are those of a rank; parts differ by at most one row.

        Examples
        --------
        >>> [Ranks(rank, 3).part(5) for rank in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
        """
        rank = self.rank if rank is None else rank
        size, more = divmod(n, self.size)
        start = rank * size + min(rank, more)
        return slice(start, start + size + (rank < more))

    def joined(self, part: "torch.Tensor", n: int) -> "torch.Tensor":
        """Put the parts of all processes together, n rows in all."""
        if self.size == 1:
            return part
        import torch
        import torch.distributed as dist

        longest = self.part(n, 0).stop
        padded = part.new_zeros((longest, *part.shape[1:]))
        padded[: len(part)] = part
        found = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(found, padded)
        spans = [self.part(n, rank) for rank in range(self.size)]
        return torch.cat([x[: s.stop - s.start] for x, s in zip(found, spans, strict=True)])

    def collected(self, values: "torch.Tensor") -> "torch.Tensor":
        """Put tensors of one axis and any length together, in the order of the ranks."""
        if self.size == 1:
            return values
        import torch

        here = torch.arange(self.size, device=values.device) == self.rank
        lengths = self.sum(here * len(values))
        padded = values.new_zeros(int(lengths.max()))
        padded[: len(values)] = values
        found = self.joined(padded, self.size * len(padded)).view(self.size, -1)
        return torch.cat([part[:n] for part, n in zip(found, lengths.tolist(), strict=True)])

    def end(self) -> None:
        """Let those who wait for this process know that they wait for nothing."""
        if self.size > 1:
            self._store.set(OVER, "1")

    def order(self, what: str, **details: Any) -> None:
        """Tell the others what comes next; only rank 0 does."""
        if self.size > 1:
            self._n_orders += 1
            text = json.dumps({"what": what, **details})
            self._store.set(f"unsplit/order/{self._n_orders}", text)

    def orders(self) -> Iterator[Mapping[str, Any]]:
        """Yield what rank 0 tells, until it is done."""
        while True:
            self._n_orders += 1
            order = json.loads(self._awaited(f"unsplit/order/{self._n_orders}"))
            if order["what"] == DONE:
                return
            yield order


ALONE = Ranks()
_computing_with = [ALONE]


@contextmanager
def computing_with(ranks: Ranks) -> Iterator[None]:
    """Compute with other processes inside this block."""
    _computing_with.append(ranks)
    try:
        yield
    finally:
        _computing_with.pop()


def current() -> Ranks:
    """Return the processes of this run.

    Examples
    --------
    >>> current().size
    1
    """
    return _computing_with[-1]
