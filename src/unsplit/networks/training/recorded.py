"""Steps of training that a GPU records once and then repeats by itself.

A step starts about a hundred kernels.  If a network for vectors has few outputs, a processor needs
several times as long to start them as the GPU needs to run them; a recorded step (a CUDA graph)
starts them all at once.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from unsplit.networks.network import MLP, Network, ScoreHead, Standardize

# Steps before the one that is recorded, in which kernels are loaded and chosen.
STEPS_BEFORE = 3

# Modules that do the same in every step, and draw no random numbers.
SAME_IN_EVERY_STEP = {
    Network, MLP, ScoreHead, Standardize,
    nn.Sequential, nn.Linear, nn.LayerNorm, nn.ReLU, nn.Identity,
}  # fmt: skip


def can_be_recorded(network: nn.Module) -> bool:
    """Whether a network does the same in every step; a user's own may do anything.

    Examples
    --------
    >>> can_be_recorded(Network(MLP(3), ScoreHead(256, 4)))
    True
    >>> can_be_recorded(Network(nn.Dropout(), ScoreHead(256, 4)))
    False
    """
    return all(type(module) in SAME_IN_EVERY_STEP for module in network.modules())


class RecordedStep:
    """A step for other batches of the same shape.

    Parameters
    ----------
    step : callable
        Takes observations and their clusters, and returns the loss.
    x, own : Tensors
        A batch on a GPU; nothing is computed from it.
    """

    def __init__(self, step: Callable[[Tensor, Tensor], Tensor], x: Tensor, own: Tensor) -> None:
        self._x, self._own = x.clone(), own.clone()
        self._graph = torch.cuda.CUDAGraph()
        # Other threads of this process may use the GPU meanwhile.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._loss = step(self._x, self._own)

    def fits(self, x: Tensor) -> bool:
        """Whether this step can be taken for a batch."""
        return x.shape == self._x.shape and x.dtype == self._x.dtype

    def __call__(self, x: Tensor, own: Tensor) -> Tensor:
        """Take the step; the loss is overwritten by the next one."""
        self._x.copy_(x)
        self._own.copy_(own)
        self._graph.replay()
        return self._loss
