"""Where and with whom to compute, and random numbers that touch nobody else's."""

import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
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


def version_of(package: str) -> str:
    """Version of a package, also of one that runs from its folder without being installed.

    Examples
    --------
    >>> version_of("no such package")
    'not installed'
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return str(getattr(sys.modules.get(package), "__version__", "not installed"))


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


def seeded(model: Any, random_state: object) -> Any:
    """Set a seed wherever a model of scikit-learn would use NumPy's global random state.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> seeded(KMeans(3, random_state=7), 0).random_state, seeded(KMeans(3), 0).random_state
    (7, 1826701614)
    """
    rng = generator_of(random_state)
    unset = [
        name
        for name, value in sorted(model.get_params(deep=True).items())
        if name.split("__")[-1] == "random_state" and value is None
    ]
    return model.set_params(**{name: int(rng.integers(2**31)) for name in unset})


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

        for kind in self._made.keys() - states.keys():
            del self._made[kind]
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


@contextmanager
def drawn_again_after_errors() -> Iterator[None]:
    """Let this thread draw the same numbers again if there is an error inside the block.

    Examples
    --------
    >>> import torch
    >>> with private_randomness(3):
    ...     try:
    ...         with drawn_again_after_errors():
    ...             one = torch.rand(1, generator=own_generator(torch.device("cpu")))
    ...             raise MemoryError
    ...     except MemoryError:
    ...         other = torch.rand(1, generator=own_generator(torch.device("cpu")))
    >>> bool(one == other)
    True
    """
    generators = _own.generators
    before = None if generators is None else generators.states()
    try:
        yield
    except BaseException:
        if generators is not None and before is not None:
            generators.continue_from(before)
        raise


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
        # In a step of training, what processes tell each other before each message.
        self.alarm: Any = None

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
        self._ready()
        dist.all_reduce(values)
        return values

    def _ready(self) -> None:
        """Nothing more is allocated before a message is sent."""
        if self.alarm is not None:
            self.alarm.meet()

    def most(self, values: "torch.Tensor") -> "torch.Tensor":
        """Return the largest values of all processes."""
        if self.size == 1:
            return values
        import torch.distributed as dist

        values = values.clone()
        self._ready()
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
        self._ready()
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
