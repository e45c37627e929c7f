"""Train the small networks of several folds as one, which keeps the hardware busy."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from unsplit.data.rows.base import Rows
from unsplit.devices import BLOCK_ELEMENTS
from unsplit.networks.training.group import Group, Network, adam, is_batch_norm
from unsplit.networks.training.sampling import Fold

State = dict[str, Tensor]

# A network with more parameters than this keeps the hardware busy by itself, and stacking would
# only multiply the memory for its activations.
SMALL_NETWORK = 2_000_000


def can_be_stacked(networks: Sequence[Network], rows: Rows) -> bool:
    """Whether the networks are small and ``torch.func`` can batch them, tried on two rows."""
    if len(networks) == 1 or sum(p.numel() for p in networks[0].parameters()) > SMALL_NETWORK:
        return False
    if not rows.stackable:
        return False
    if any(is_batch_norm(module) for module in networks[0].modules()):
        return False
    device = next(networks[0].parameters()).device
    index = torch.zeros(len(networks), 2, dtype=torch.long, device=device)
    try:
        with torch.no_grad():
            Stacked(networks, (), learning_rate=0.0, weight_decay=0.0).scores(rows.take(index))
    except Exception:  # a user's network may fail in any way; it is then trained by itself
        return False
    return True


class Stacked(Group):
    """Small networks that ``torch.func`` computes as one."""

    def __init__(
        self,
        networks: Sequence[Network],
        folds: Sequence[Fold],
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        super().__init__(networks, folds)
        self.params, self.buffers = stack_module_state(list(networks))
        self.mean = {name: p.detach().clone() for name, p in self.params.items()}
        self.kept = {name: p.detach().clone() for name, p in self._state().items()}
        self.skeleton = copy.deepcopy(networks[0]).to("meta")
        self.optimizer = adam(self.params.values(), learning_rate, weight_decay, self.device)

    def train(self, training: bool) -> None:
        """Switch between training and evaluation mode."""
        self.skeleton.train(training)

    def at_once(self) -> int:
        """As many as fit into a block of scores."""
        return BLOCK_ELEMENTS

    def settle(self, batches: Sequence[Tensor], rows: Rows) -> None:
        """Nothing to do: networks with batch normalisation are not stacked."""

    def scores(self, x: Tensor, of_mean: bool = False) -> Tensor:
        """Compute scores (m, n, ...) of observations x (m, n, ...) with m networks."""

        def one(params: State, buffers: State, x: Tensor) -> Tensor:
            return functional_call(self.skeleton, (params, buffers), (x,))

        params = self.mean if of_mean else self.params
        return vmap(one, randomness="different")(params, self.buffers, x)

    @torch.no_grad()
    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Remember the averaged weights of the networks in ``mask``."""
        chosen = torch.from_numpy(mask).to(self.device)
        for name, value in self._state().items():
            self.kept[name][chosen] = value[chosen]

    @torch.no_grad()
    def restore(self) -> None:
        """Write the remembered weights into the networks, and set them to evaluation mode."""
        _write(self.kept, self.networks)

    def averaged(self) -> list[Network]:
        """Copies of the networks with their averaged weights, for evaluation."""
        copies = [copy.deepcopy(network) for network in self.networks]
        _write(self._state(), copies)
        return copies

    def _state(self) -> State:
        return {**self.mean, **self.buffers}

    @torch.no_grad()
    def average(self, share: float) -> None:
        """Move the averaged weights by this share towards the present weights."""
        for name, mean in self.mean.items():
            mean.lerp_(self.params[name], share)


def _write(state: State, networks: Sequence[Network]) -> None:
    """Write the stacked weights into the networks, and set them to evaluation mode."""
    for i, network in enumerate(networks):
        network.load_state_dict({name: value[i] for name, value in state.items()})
        network.eval()
