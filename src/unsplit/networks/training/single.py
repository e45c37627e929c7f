"""Train one network of any kind and size by itself."""

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unsplit.data.rows.base import Rows
from unsplit.devices import mixed_precision
from unsplit.networks.training.group import Group, Network, adam, is_batch_norm
from unsplit.networks.training.sampling import Fold

# Observations from which batch normalisation measures activations, and the most batches for it.
SETTLING = 1024
MOST_SETTLING = 8


class Single(Group):
    """One network of any kind and size."""

    def __init__(
        self,
        networks: Sequence[Network],
        folds: Sequence[Fold],
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        super().__init__(networks, folds)
        (self.network,) = networks
        if self.device.type in ("cpu", "cuda") and _has_convolutions(self.network):
            self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.mean = copy.deepcopy(self.network)
        self.kept = {name: v.clone() for name, v in self.mean.state_dict().items()}
        params = [p for p in self.network.parameters() if p.requires_grad]
        self.optimizer = adam(params, learning_rate, weight_decay, self.device)
        self._pairs = (
            [p.detach() for p in self.mean.parameters()],
            [p.detach() for p in self.network.parameters()],
        )
        self._norms: list[Any] = [m for m in self.mean.modules() if is_batch_norm(m)]

    def train(self, training: bool) -> None:
        """Switch between training and evaluation mode."""
        self.network.train(training)
        self.mean.eval()

    def at_once(self) -> int:
        """The limit of the network itself."""
        return self.network.most_at_once

    def shaped(self, index: Tensor) -> Tensor:
        """Reshape row indices (1, b) to (b,)."""
        return index[0]

    def scores(self, x: Tensor, of_mean: bool = False) -> Tensor:
        """Compute the scores (n, ...) of observations x (n, ...)."""
        return self.mean(x) if of_mean else self.network(x)

    @torch.no_grad()
    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Remember the averaged weights if the mask is true."""
        if mask.any():
            for name, value in self.mean.state_dict().items():
                self.kept[name].copy_(value)

    @torch.no_grad()
    def restore(self) -> None:
        """Write the remembered weights into the network, and set it to evaluation mode."""
        self.network.load_state_dict(self.kept)
        self.network.eval()

    def averaged(self) -> list[Network]:
        """The network with its averaged weights, for evaluation only."""
        self.mean.eval()
        return [self.mean]

    @torch.no_grad()
    def average(self, share: float) -> None:
        """Move the averaged weights by this share towards the present weights."""
        torch._foreach_lerp_(*self._pairs, share)

    @torch.no_grad()
    def settle(self, batches: Sequence[Tensor], rows: Rows) -> None:
        """Measure the batch-normalisation statistics of the averaged weights.

        They have not been measured yet, because no batch was passed through these weights.
        """
        for mean, present in zip(self.mean.buffers(), self.network.buffers(), strict=True):
            mean.copy_(present)  # other buffers that changed in training
        self.mean.train()
        # A batch normalisation that its network keeps frozen is left alone.
        norms = [norm for norm in self._norms if norm.training]
        if norms:
            enough = min(MOST_SETTLING, -(-SETTLING // len(batches[0])))
            self._measure(norms, rows.stream(batches[-enough:]))
        self.mean.eval()

    def _measure(self, norms: Sequence[Any], batches: Iterable[Tensor]) -> None:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the plain mean over these batches
        for x in batches:
            with mixed_precision(self.device):
                self.mean.backbone(x)


def _has_convolutions(module: nn.Module) -> bool:
    return any(isinstance(m, nn.Conv2d) for m in module.modules())
