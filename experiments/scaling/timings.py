"""Wall time and GPU memory of one part of the work after another."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def wait(device: torch.device) -> None:
    """Until all that a GPU was asked for is done."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def tidy(device: torch.device) -> None:
    """Give back what nobody uses any more; errors hold what they interrupted in a circle."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


class Laps:
    """A watch that is read whenever a part of the work ends; no time is left out.

    Examples
    --------
    >>> laps = Laps(torch.device("cpu"))
    >>> laps.end("training", n_images=256)
    >>> laps.end("training", n_images=256)
    >>> laps.parts()["training"]["images"]
    512
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.cuda = device, device.type == "cuda"
        self.laps: list[dict[str, Any]] = []
        wait(device)
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        self._start = time.perf_counter()

    def end(self, name: str, n_images: int = 0, n_batches: int = 0) -> None:
        """What was done since the last time was this, with so many images."""
        wait(self.device)
        now = time.perf_counter()
        self.laps.append(
            {
                "part": name,
                "seconds": now - self._start,
                "images": n_images,
                "batches": n_batches,
                "bytes": torch.cuda.max_memory_allocated() if self.cuda else 0,
                "held": torch.cuda.max_memory_reserved() if self.cuda else 0,
            }
        )
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        self._start = time.perf_counter()

    def rename_last(self, name: str) -> None:
        """What the last part was shows only when nothing like it follows."""
        self.laps[-1]["part"] = name

    def parts(self) -> dict[str, dict[str, Any]]:
        """Sums of time and images, and the largest memory, by part, in the order they came."""
        found: dict[str, dict[str, Any]] = {}
        for lap in self.laps:
            part = found.setdefault(
                lap["part"], {"seconds": 0.0, "images": 0, "batches": 0, "bytes": 0, "held": 0}
            )
            for key in ("seconds", "images", "batches"):
                part[key] += lap[key]
            for key in ("bytes", "held"):
                part[key] = max(part[key], lap[key])
        return found


@contextmanager
def at_most(budget: int, device: torch.device) -> Iterator[None]:
    """Let torch have no more than so many bytes of a GPU: whoever asks for more fails.

    Elsewhere nothing is limited.
    """
    if device.type != "cuda":
        yield
        return
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    tidy(device)  # what was held before would count
    torch.cuda.set_per_process_memory_fraction(min(1.0, budget / total))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
