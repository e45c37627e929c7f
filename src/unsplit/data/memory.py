"""How much memory is free, and what to say if work needs more."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from unsplit.errors import InputError

if TYPE_CHECKING:
    import torch


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
        # What torch holds and does not use is free as well.
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
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


def require_memory(needed: int, available: int, what: str, advice: str | Callable[[], str]) -> None:
    """Raise an error, before any work starts, if the work will not fit into memory.

    Parameters
    ----------
    needed, available : int
        Bytes.
    what : str
        What needs the memory, such as "merging 9,000 clusters".
    advice : str or callable
        What to do, without a full stop; a function that finds out is called only if it is needed.

    Examples
    --------
    >>> require_memory(2**40, 2**30, "this", "use less data")
    Traceback (most recent call last):
    unsplit.errors.InputError: this would need about 1,024.0 GiB of memory, but only 1.0 GiB are ...
    """
    if needed > available:
        advice = advice if isinstance(advice, str) else advice()
        raise InputError(
            f"{what} would need about {needed / 2**30:,.1f} GiB of memory, but only "
            f"{available / 2**30:,.1f} GiB are available; {advice}."
        )


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
