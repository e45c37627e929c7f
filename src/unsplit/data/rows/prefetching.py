"""Fetch batches in the background while a network works on the current one."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

AHEAD = 4


def prefetched(
    fetch: Callable[[Tensor], Tensor], batches: Iterable[Tensor], device: torch.device
) -> Iterator[Tensor]:
    """Yield ``fetch`` of each batch on the device, in order, fetched a few batches ahead.

    On CUDA batches are pinned, so that copying them does not hold up the computation.

    Parameters
    ----------
    fetch : callable
        Returns the batch for an index, on the CPU.
    batches : iterable of index tensors
    device : torch.device

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
