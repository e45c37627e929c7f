"""How much memory is free, and what to say if work needs more."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from unsplit.errors import InputError

if TYPE_CHECKING:
    import torch

# Where containers and jobs have their limits: version 2 of control groups, then version 1.
GROUPS = (
    ("/sys/fs/cgroup", "max", "current", "inactive_file"),
    ("/sys/fs/cgroup/memory", "limit_in_bytes", "usage_in_bytes", "total_inactive_file"),
)


def available_memory() -> int:
    """Bytes of main memory that this process can still take, as far as the system reports them.

    Limits of the process and of its container or job count as well (Linux).
    """
    return int(max(0, min([_free_memory(), *_left_of_limits(), *_left_in_groups()])))


def _free_memory() -> float:
    with suppress(OSError), open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return min(memory_size(), 2.0**62)


def memory_size() -> float:
    """Return the size of this computer's memory in bytes; infinity if it is not known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf


def _left_of_limits() -> list[int]:
    """What is left of the limits of this process, as ``ulimit`` sets them."""
    try:
        import resource

        pages = Path("/proc/self/statm").read_text().split()
    except (ImportError, OSError):
        return []
    used = {resource.RLIMIT_AS: int(pages[0]), resource.RLIMIT_DATA: int(pages[5])}
    soft = {limit: resource.getrlimit(limit)[0] for limit in used}
    page = os.sysconf("SC_PAGE_SIZE")
    return [soft[x] - page * used[x] for x in used if soft[x] != resource.RLIM_INFINITY]


def _left_in_groups() -> list[int]:
    """What is left of the limits of the control groups that this process is in."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    fields = [line.split(":", 2) for line in lines]
    own = [Path(path.lstrip("/")) for _, kind, path in fields if kind in ("", "memory")]
    inside = [folder for path in own for folder in (path, *path.parents)]
    left = []
    for root, limit, usage, cached in GROUPS:
        for folder in (Path(root) / path for path in inside):
            # There may be none, or the limit is "max".
            with suppress(OSError, ValueError):
                most = int((folder / f"memory.{limit}").read_text())
                used = int((folder / f"memory.{usage}").read_text())
                stat = (folder / "memory.stat").read_text().split()
                # What files have cached makes room when it is needed.
                spare = int(stat[stat.index(cached) + 1]) if cached in stat else 0
                left.append(most - used + spare)
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
