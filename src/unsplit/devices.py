"""Where, with whom and with which settings to compute; random numbers of a run; free memory."""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from unsplit.errors import InputError, is_whole, option, shown

if TYPE_CHECKING:
    import torch

# Elements of the largest score block held at once (64 MiB in float32).
BLOCK_ELEMENTS = 2**24
# Where containers and jobs have their limits.
GROUPS = Path("/sys/fs/cgroup")


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

    if isinstance(device, str) and device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.ones(1, device=chosen).item()
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0].split(". ")[0][:200]
        raise InputError(
            f'{option("device", device)} cannot be used here ({reason}); use "auto" or "cpu".'
        ) from None
    return chosen


def mixed_precision(device: "torch.device") -> "torch.autocast":
    """Compute in bfloat16 on CUDA, and in full precision elsewhere."""
    import torch

    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


@contextmanager
def usual_settings() -> Iterator[None]:
    """Compute with torch's usual settings, and put back those of the caller afterwards.

    These are gradients without inference mode, no automatic casts, and float32 in full precision,
    on the CPU where no device is named.  Type and precision are shared by all threads.

    Examples
    --------
    >>> import torch
    >>> with torch.inference_mode(), usual_settings():
    ...     torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    (True, False)
    """
    import torch

    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda", "mps"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


@contextmanager
def one_thread(is_enough: bool = True) -> Iterator[None]:
    """Compute with one of torch's threads, and put back the caller's number afterwards.

    Threads that share a core wait for each other: beside other programs, or if a library has raised
    their number.  So what is small uses one.  Threads of the program that begin meanwhile have the
    caller's number.

    Parameters
    ----------
    is_enough : bool
        Otherwise nothing changes.

    Examples
    --------
    >>> import torch
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    if not is_enough:
        yield
        return
    import torch  # here, so that modules without torch can use this

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    # Each thread has a number of its own, and a new one begins with what was set last anywhere.
    with ThreadPoolExecutor(1) as another:
        another.submit(torch.set_num_threads, before).result()
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
    """Raise an error unless :func:`generator_of` takes this; nothing is drawn from it."""
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
    (7, 1826701615)
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

    @contextmanager
    def lent(self, device: "torch.device") -> Iterator[None]:
        """Let torch's global generators draw these numbers, and put them back afterwards.

        Only one thread at a time does so; others that ask for it wait.

        Parameters
        ----------
        device : torch.device
            Where numbers are drawn, beside the CPU.
        """
        import torch

        with _lending:
            own = self._made
            lent = {"cpu": torch.default_generator, device.type: _global_generator(device)}
            before = {kind: one.get_state() for kind, one in lent.items()}
            for kind, one in lent.items():
                one.set_state(self.of(torch.device(kind)).get_state())
            self._made = own | lent
            try:
                yield
            finally:
                self._made = own
                for kind, one in lent.items():
                    own[kind].set_state(one.get_state())
                    one.set_state(before[kind])

    def states(self) -> "dict[str, torch.Tensor]":
        """Return the states of all generators that were made, by type of device."""
        return {kind: one.get_state() for kind, one in self._made.items()}

    def continue_from(self, states: "Mapping[str, torch.Tensor]") -> None:
        """Draw from now on what would have been drawn after these states."""
        import torch

        for kind in self._made.keys() - states.keys():
            self._made[kind].manual_seed(self.seed)
        for kind, state in states.items():
            self.of(torch.device(kind)).set_state(state)


# One run at a time is lent torch's global generators; the generators of the run in this context.
_lending = threading.RLock()
_own: ContextVar[Generators | None] = ContextVar("generators", default=None)


def _global_generator(device: "torch.device") -> "torch.Generator":
    """Return the generator that torch draws from on a device if it is given none."""
    import torch

    if device.type == "cpu":
        return torch.default_generator
    if device.type == "mps":
        return torch.mps._get_default_mps_generator()
    module = torch.get_device_module(device)
    place = module.current_device() if device.index is None else device.index
    return module.default_generators[place]


@contextmanager
def private_randomness(seed: int, lent_on: "torch.device | None" = None) -> Iterator[None]:
    """Let this thread draw from generators of its own, seeded with ``seed``.

    Parameters
    ----------
    seed : int
    lent_on : torch.device, optional
        Where modules of the user compute, if there are any: they draw from torch's global
        generators, which are seeded with ``seed`` meanwhile.
    """
    generators = Generators(seed)
    token = _own.set(generators)
    try:
        with nullcontext() if lent_on is None else generators.lent(lent_on):
            yield
    finally:
        _own.reset(token)


def own_generators() -> Generators:
    """Return the generators from which this thread draws.

    Examples
    --------
    >>> with private_randomness(3):
    ...     own_generators().seed
    3
    """
    generators = _own.get()
    assert generators is not None, "only within private_randomness"
    return generators


def own_generator(device: "torch.device") -> "torch.Generator | None":
    """Return the generator from which this thread draws; None means torch's global one.

    Parameters
    ----------
    device : torch.device
        Where the numbers are needed.
    """
    generators = _own.get()
    return None if generators is None else generators.of(device)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let a function of the user change torch's settings and draw numbers: nothing follows."""
    import torch

    generators, n_threads = _own.get(), torch.get_num_threads()
    before = None if generators is None else generators.states()
    with usual_settings():
        yield
    if torch.get_num_threads() != n_threads:
        torch.set_num_threads(n_threads)
    if generators is not None and before is not None:
        generators.continue_from(before)


class Ranks:
    """The processes of a run, seen from one of them; by default there is only one.

    Parameters
    ----------
    rank, size : int
        Number of this process, and how many there are.

    Examples
    --------
    >>> Ranks().share("the same for all")
    'the same for all'
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    def share(self, value: Any) -> Any:
        """Return the value that rank 0 passes."""
        return self.gathered(value)[0]

    def gathered(self, value: Any) -> list[Any]:
        """Return the values of all processes."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        found = [None] * self.size
        dist.all_gather_object(found, value)
        return found

    def sum(self, values: "torch.Tensor") -> "torch.Tensor":
        """Add up the tensors of all processes, in place where possible."""
        if self.size == 1:
            return values
        import torch.distributed as dist

        values = values.contiguous()
        dist.all_reduce(values)
        return values

    def log_sum_exp(self, values: "torch.Tensor") -> "torch.Tensor":
        """Return the logarithm of the sum of the exponentials of all processes."""
        if self.size == 1:
            return values
        import torch.distributed as dist

        most = values.clone()
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        finite = most.where(most.isfinite(), 0.0)
        return finite + self.sum((values - finite).exp()).log()

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

        # All of one length, as gloo needs them.
        padded = part.new_zeros((self.part(n, 0).stop, *part.shape[1:]))
        padded[: len(part)] = part
        found = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(found, padded)
        spans = [self.part(n, rank) for rank in range(self.size)]
        return torch.cat([x[: s.stop - s.start] for x, s in zip(found, spans, strict=True)])


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
    """Return the processes of this run."""
    return _computing_with[-1]


# --- memory ---------------------------------------------------------------------------------------


def available_memory() -> int:
    """Bytes of main memory that this process can still take, as far as the system reports them.

    A limit of the process and those of its container or job (control groups, version 2) count too.
    """
    return int(max(0, min([_free_in_computer(), *_left_of_limit(), *_left_in_groups()])))


def _free_in_computer() -> int:
    with suppress(OSError), open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 2**62


def _left_of_limit() -> list[int]:
    """What is left of the limit of this process, as ``ulimit -v`` sets it."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        return []
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    return [] if most == resource.RLIM_INFINITY else [most - resource.getpagesize() * pages]


def _left_in_groups() -> list[int]:
    """What is left of the limits of the control groups that this process is in."""
    left = []
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            own = GROUPS / line.removeprefix("0::/")
            for folder in (own, *own.parents):
                # There may be none, or the limit is "max".
                with suppress(OSError, ValueError):
                    most, used = (
                        int((folder / f"memory.{name}").read_text()) for name in ("max", "current")
                    )
                    stat = (folder / "memory.stat").read_text().split()
                    # What files have cached makes room when it is needed.
                    left.append(most - used + int(stat[stat.index("inactive_file") + 1]))
    return left


def free_memory(device: "torch.device") -> int:
    """Bytes of free memory of a device."""
    import torch

    if device.type == "cuda":
        # What torch holds and does not use is free as well.
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    return available_memory()


def require_memory(needed: int, available: int, what: str, advice: str) -> None:
    """Raise an error, before any work starts, if the work will not fit into memory.

    Parameters
    ----------
    needed, available : int
        Bytes.
    what : str
        What needs the memory, such as "merging 9,000 clusters".
    advice : str
        What to do, without a full stop.

    Examples
    --------
    >>> require_memory(2**40, 2**30, "this", "use less data")
    Traceback (most recent call last):
    unsplit.errors.InputError: this would need about 1,024.0 GiB of memory, but only 1.0 GiB are ...
    """
    if needed > available:
        raise InputError(
            f"{what} would need about {needed / 2**30:,.1f} GiB of memory, but only "
            f"{available / 2**30:,.1f} GiB are available; {advice}."
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python, NumPy or torch says that memory is used up."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # On the CPU, torch raises a plain RuntimeError.
    signs = (
        "allocate memory",
        "not enough memory",
        "out of memory",
        "size calculation overflowed",
        "STATUS_ALLOC_FAILED",  # of the libraries for products and convolutions on a GPU
    )
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


@contextmanager
def memory_errors(what: str, advice: str) -> Iterator[None]:
    """Turn errors about memory inside the ``with`` block into a sentence with advice.

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
