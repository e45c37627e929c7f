"""Where to compute, and how much memory is there."""

import os

import torch

from unsplit.errors import InputError


def choose_device(device: str | torch.device) -> torch.device:
    """CUDA, else MPS, else CPU for ``"auto"``; otherwise the device named.

    Examples
    --------
    >>> choose_device("cpu")
    device(type='cpu')
    """
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


def mixed_precision(device: torch.device) -> torch.autocast:
    """bfloat16 where a GPU is fast at it, full precision elsewhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def device_for_sums() -> torch.device:
    """Where to sum over pairs: CUDA or the CPU, because MPS has no float64."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def available_memory() -> int:
    """Bytes of main memory that can still be had, as nearly as the system tells."""
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


def require_memory(needed: int, available: int, what: str, advice: str) -> None:
    """Refuse before the work starts what would not fit at the end of it."""
    if needed > available:
        raise InputError(
            f"{what} would need about {needed / 2**30:,.1f} GiB and {available / 2**30:,.1f} GiB "
            f"are available; {advice}."
        )
