"""A network of any kind and size that is trained by itself."""

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unsplit.data.rows.base import Rows
from unsplit.devices import BLOCK_ELEMENTS, mixed_precision
from unsplit.networks.network import LARGE_HEAD, Network, refuse_gaps
from unsplit.networks.training.group import (
    Fold,
    Group,
    NetworkState,
    copy_into,
    is_batch_norm,
    like,
    tensors_of,
)
from unsplit.networks.training.optimizer import AdamW, LargeHeadAdamW

# Observations from which batch normalisation measures activations, and the most batches for it.
SETTLING = 1024
MOST_SETTLING = 8


def settling(n: int) -> int:
    """How many batches of n observations batch normalisation measures activations from."""
    return min(MOST_SETTLING, -(-SETTLING // n))


# With more clusters, A is counted over blocks of them: their scores of 256 observations would not
# fit into one block.
MANY_CLUSTERS = BLOCK_ELEMENTS // 256


class Single(Group):
    """One network of any kind and size.

    Parameters
    ----------
    networks, folds : sequences of one Network and one Fold
    learning_rate, weight_decay : float
    large : bool, optional
        Whether the head is updated with few bytes for each weight; None decides by its size.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        folds: Sequence[Fold],
        learning_rate: float,
        weight_decay: float,
        large: bool | None = None,
    ) -> None:
        super().__init__(networks, folds)
        (self.network,) = networks
        if self.device.type in ("cpu", "cuda") and _has_convolutions(self.network):
            self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.mean = copy.deepcopy(self.network)
        if large is None:  # otherwise the head is a part of a larger one
            large = self.head.weight.numel() > LARGE_HEAD
        # They are needed once an epoch, so a large head is kept where there is more memory.
        place = torch.device("cpu") if large else self.device
        self.kept = {n: v.to(place, copy=True) for n, v in self.mean.state_dict().items()}
        params = [p for p in self.network.parameters() if p.requires_grad]
        rates = learning_rate, weight_decay, self.device
        self.optimizer = (
            LargeHeadAdamW(params, [self.head.weight], *rates) if large else AdamW(params, *rates)
        )
        self._pairs = (
            [p.detach() for p in self.mean.parameters()],
            [p.detach() for p in self.network.parameters()],
        )
        self._norms: list[Any] = [m for m in self.mean.modules() if is_batch_norm(m)]

    def train(self, training: bool) -> None:
        """Switch between training and evaluation mode."""
        self.network.train(training)
        self.mean.eval()

    def body(self) -> list[Tensor]:
        """Parameters of the backbone."""
        return list(self.network.backbone.parameters())

    def at_once(self) -> int:
        """The limit of the network itself; fewer if the scores would not fit into a block."""
        most = self.network.most_at_once
        if self.head.n_clusters > MANY_CLUSTERS:
            return most
        return max(1, min(most, BLOCK_ELEMENTS // self.head.n_clusters))

    def shaped(self, index: Tensor) -> Tensor:
        """Reshape row indices (1, b) to (b,)."""
        return index[0]

    def scores(self, x: Tensor, of_mean: bool = False) -> Tensor:
        """Compute the scores (n, ...) of observations x (n, ...)."""
        return self.mean(x) if of_mean else self.network(x)

    def loss(self, x: Tensor, own: Tensor) -> Tensor:
        """Loss of a batch, over blocks of clusters if its scores are many."""
        # Fixed, so that rounding does not depend on the memory of the machine.
        if len(own) * self.head.n_clusters <= BLOCK_ELEMENTS:
            return super().loss(x, own)
        with mixed_precision(self.device):
            return self.head.loss_of_features(self.network.backbone(x), own)

    def hits(self, x: Tensor, own: Tensor, index: Tensor) -> Tensor:
        """For each observation, the share of other clusters that score lower than its own."""
        if self.head.n_clusters <= MANY_CLUSTERS:
            return super().hits(x, own, index)
        with mixed_precision(self.device):
            features = self.mean.backbone(x)
            refuse_gaps(features, index)
            return self.mean.head.mean_hits(features, own)

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

    def state(self) -> list[NetworkState]:
        """What a checkpoint keeps of the network."""
        moments = {
            name: dict(self.optimizer.state[param])
            for name, param in self.network.named_parameters()
            if param in self.optimizer.state
        }
        weights, mean = tensors_of(self.network), tensors_of(self.mean)
        return [{"weights": weights, "mean": mean, "kept": self.kept, "moments": moments}]

    @torch.no_grad()
    def load(self, states: Sequence[NetworkState]) -> None:
        """Continue from a checkpoint."""
        (state,) = states
        copy_into(tensors_of(self.network), state["weights"])
        copy_into(tensors_of(self.mean), state["mean"])
        copy_into(self.kept, state["kept"])
        params = dict(self.network.named_parameters())
        for name, moments in state["moments"].items():
            param = params[name]
            self.optimizer.state[param] = {n: like(param, v) for n, v in moments.items()}

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
            self._measure(norms, rows.stream(batches[-settling(len(batches[0])) :]))
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
