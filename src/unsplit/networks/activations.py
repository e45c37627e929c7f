"""Memory that a network takes for each observation in a batch, found by trying a few of them."""

import copy
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from unsplit.data.rows.base import Rows
from unsplit.devices import mixed_precision, private_randomness

# Numbers of observations that are tried.  Batch normalisation needs two.
TRIED = 2, 3


@dataclass(frozen=True)
class Activations:
    """Bytes that a backbone takes beside its parameters.

    Parameters
    ----------
    fixed : int
        Whatever the number of observations.
    saved : int
        Kept of each observation until the gradients are computed.
    passing : int
        Taken for each observation by the layer that takes most, only while it computes.

    Examples
    --------
    >>> Activations(100, 20, 5).of_training(4), Activations(100, 20, 5).of_evaluation(4)
    (200, 20)
    """

    fixed: int
    saved: int
    passing: int

    def of_training(self, n: int) -> int:
        """Bytes that a step with n observations takes."""
        return self.fixed + n * (self.saved + self.passing)

    def of_evaluation(self, n: int) -> int:
        """Bytes that the features of n observations take while they are computed."""
        return n * self.passing


def activations_of(
    backbone: nn.Module, rows: Rows, lent_on: torch.device | None = None
) -> Activations:
    """Pass a few rows through a copy of a backbone, and note what it keeps for the gradients.

    Neither the backbone nor the random numbers of the run change.

    Parameters
    ----------
    backbone : torch.nn.Module
        On the device of the rows.
    rows : Rows
        The largest is tried.
    lent_on : torch.device, optional
        As for :func:`unsplit.devices.private_randomness`.

    Examples
    --------
    >>> from unsplit.data import observations
    >>> rows = observations([[1.0, 2.0], [3.0, 5.0]], torch.device("cpu"))
    >>> backbone = nn.Sequential(nn.Linear(2, 100), nn.Sigmoid())
    >>> activations_of(backbone, rows).saved  # input and output of 4 bytes each
    408
    """
    tried = copy.deepcopy(backbone).train()
    with private_randomness(0, lent_on):
        (few, passing), (more, _) = (_bytes_for(tried, rows, n) for n in TRIED)
    saved = (more - few) // (TRIED[1] - TRIED[0])
    return Activations(max(0, few - TRIED[0] * saved), saved, passing // TRIED[0])


def _bytes_for(backbone: nn.Module, rows: Rows, n: int) -> tuple[int, int]:
    """Bytes that n rows leave behind for the gradients, and that the largest layer works with."""
    kept: dict[int, int] = {}
    largest = 0
    own = {tensor.untyped_storage().data_ptr() for tensor in _tensors_of(backbone)}

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    def look(_: nn.Module, given: Any, found: Any) -> None:
        nonlocal largest
        both = (*given, found) if isinstance(given, tuple) else (given, found)
        tensors = [value for value in both if isinstance(value, Tensor)]
        # Bytes become numbers of four bytes somewhere inside.
        widened = sum(4 * t.numel() for t in tensors if t.element_size() == 1)
        largest = max(largest, sum(t.element_size() * t.numel() for t in tensors) + widened)

    index = torch.full((n,), rows.largest, device=rows.device)
    with ExitStack() as stack:
        for module in backbone.modules():
            stack.callback(module.register_forward_hook(look).remove)
        stack.enter_context(saved_tensors_hooks(note, lambda tensor: tensor))
        stack.enter_context(mixed_precision(rows.device))
        stack.enter_context(torch.enable_grad())
        features = backbone(rows.take(index))
        # Held until here, so that no two storages had the same place.
        del features
    return sum(kept.values()), largest


def _tensors_of(backbone: nn.Module) -> list[Tensor]:
    return [*backbone.parameters(), *backbone.buffers()]
