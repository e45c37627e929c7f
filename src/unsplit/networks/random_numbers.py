"""Random numbers of networks: from the generator of the run, never from torch's global one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from unsplit.devices import own_generator

# Functions and methods of torch that take a generator and draw from the global one without it.
_DRAWING = {
    "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial",
    "normal_", "uniform_", "bernoulli_", "exponential_", "random_",
}  # fmt: skip


def uniform(size: Sequence[int], device: torch.device) -> Tensor:
    """Draw numbers from 0 to 1.

    Examples
    --------
    >>> uniform((2, 3), torch.device("cpu")).shape
    torch.Size([2, 3])
    """
    return torch.rand(size, device=device, generator=own_generator(device))


def uniform_like(x: Tensor) -> Tensor:
    """Draw numbers from 0 to 1, of the shape and type of x.

    Examples
    --------
    >>> uniform_like(torch.zeros(3)).shape
    torch.Size([3])
    """
    return torch.empty_like(x).uniform_(generator=own_generator(x.device))


def normal_like(x: Tensor) -> Tensor:
    """Draw standard normal numbers, of the shape and type of x.

    Examples
    --------
    >>> normal_like(torch.zeros(3)).shape
    torch.Size([3])
    """
    return torch.empty_like(x).normal_(generator=own_generator(x.device))


def integers(low: int, high: int, n: int, device: torch.device) -> Tensor:
    """Draw whole numbers from ``low`` to ``high`` − 1.

    Examples
    --------
    >>> integers(3, 4, 2, torch.device("cpu"))
    tensor([3, 3])
    """
    return torch.randint(low, high, (n,), device=device, generator=own_generator(device))


class OwnNumbers(TorchFunctionMode):
    """Inside this block, torch's layers are initialised from the generator of the run.

    torch calls this for every function, so it is for building networks, not for training them.

    Examples
    --------
    >>> from unsplit.devices import private_randomness
    >>> before = torch.get_rng_state()
    >>> with private_randomness(0, torch.device("cpu")), OwnNumbers():
    ...     layer = torch.nn.Linear(2, 3)
    >>> torch.equal(before, torch.get_rng_state())
    True
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, with a generator if it takes one and has none."""
        given = dict(kwargs or {})
        takes_one = "generator" in given or getattr(func, "__name__", "") in _DRAWING
        if takes_one and given.get("generator") is None:
            given["generator"] = own_generator(_device_of(args, given))
        return func(*args, **given)


def _device_of(args: Sequence[Any], given: Mapping[str, Any]) -> torch.device:
    tensors = [value for value in (*args, *given.values()) if isinstance(value, Tensor)]
    if tensors:
        return tensors[0].device
    return torch.device(given.get("device") or "cpu")
