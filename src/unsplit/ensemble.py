"""Networks of several folds that take their training steps together."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from unsplit.data.base import Rows
from unsplit.devices import mixed_precision
from unsplit.errors import InputError
from unsplit.heads import PairMatrixHead, ScoreHead
from unsplit.sampling import Fold, Index

State = dict[str, Tensor]

# Above this many parameters a network keeps the hardware busy by itself, and stacking only
# multiplies the memory its activations need.
SMALL_NETWORK = 2_000_000

# Elements of the largest score block held at once (64 MiB in float32).
BLOCK_ELEMENTS = 2**24

# Observations that tell batch normalisation the scale of activations, and the most batches.
SETTLING = 1024
MOST_SETTLING = 8


class Network(nn.Module):
    """A backbone and a head.

    ``most_at_once`` is how many observations it should be given at a time.
    """

    def __init__(
        self, backbone: nn.Module, head: ScoreHead | PairMatrixHead, most_at_once: int = 4096
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.most_at_once = most_at_once

    def forward(self, x: Tensor) -> Tensor:
        """Scores of x."""
        return self.head(self.backbone(x))


def can_be_stacked(networks: Sequence[Network], rows: Rows) -> bool:
    """Whether the networks are small and ``torch.func`` can batch them (tried on two rows)."""
    if len(networks) == 1 or sum(p.numel() for p in networks[0].parameters()) > SMALL_NETWORK:
        return False
    if not rows.stackable:
        return False
    if any(_is_batch_norm(module) for module in networks[0].modules()):
        return False
    device = next(networks[0].parameters()).device
    index = torch.zeros(len(networks), 2, dtype=torch.long, device=device)
    try:
        with torch.no_grad():
            Stacked(networks, (), learning_rate=0.0, weight_decay=0.0).scores(rows.take(index))
    except Exception:  # anybody's network may fail in any way, and then trains by itself
        return False
    return True


class Group(ABC):
    """One or more networks, each with its own rows, stepping as one.

    What is trained has a running mean, which is what is tried; the best mean is kept.
    """

    def __init__(self, networks: Sequence[Network], folds: Sequence[Fold]) -> None:
        self.networks = networks
        self.folds = folds
        self.head = networks[0].head
        self.device = next(networks[0].parameters()).device
        self.steps_taken = 0
        self.optimizer: torch.optim.Optimizer

    @abstractmethod
    def scores(self, x: Tensor, of_mean: bool = False) -> Tensor:
        """Scores of a batch as :meth:`read` gives it."""

    @abstractmethod
    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Remember the present mean weights of the networks in ``mask``."""

    @abstractmethod
    def restore(self) -> None:
        """Write the remembered weights into the networks and ready them for use."""

    @abstractmethod
    def average(self, share: float) -> None:
        """Move the running mean by this share towards the present weights."""

    @abstractmethod
    def at_once(self) -> int:
        """Observations of each network to try at a time."""

    def shaped(self, index: Tensor) -> Tensor:
        """Row indices (m, b) as the networks want them."""
        return index

    @abstractmethod
    def settle(self, batches: Sequence[Tensor], rows: Rows) -> None:
        """Ready the mean weights to be tried; these batches were trained on."""

    def run(self, batches: Tensor, rows: Rows, clusters: Tensor, averaging: float) -> float:
        """One step per batch of row indices (steps, m, b); the mean loss per network."""
        self.train(True)
        total = torch.zeros((), device=self.device)
        batches = batches.to(self.device)
        shaped = [self.shaped(index) for index in batches]
        for index, x in zip(shaped, rows.stream(shaped), strict=True):
            with mixed_precision(self.device):
                scores = self.scores(x)
            loss = self.head.loss(scores, clusters[index]).sum()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.steps_taken += 1
            # Early on, forget quickly: the first weights are no good.
            decay = min(averaging, self.steps_taken / (self.steps_taken + 9))
            self.average(1 - decay)
            total += loss.detach()
        self.settle(shaped, rows)
        mean = float(total) / (len(batches) * len(self.networks))
        if not np.isfinite(mean):
            raise InputError(
                f"the loss became {mean} within {self.steps_taken} steps of training; look for "
                "extreme values in the data, or lower the learning rate of your own network."
            )
        return mean

    @torch.no_grad()
    def watched_accuracy(self, rows: Rows, clusters: Tensor) -> NDArray[np.float64]:
        """A of each network's mean weights on its fold's ``watch`` rows; NaN if there are none."""
        self.train(False)
        k = self.head.n_clusters
        hits = torch.zeros(len(self.networks), k, dtype=torch.float64)
        counts = torch.zeros_like(hits)
        watch = [fold.watch for fold in self.folds]
        most = max(1, min(self.at_once(), BLOCK_ELEMENTS // (k * len(watch))))
        chunks = list(padded_chunks(watch, most))
        shaped = [self.shaped(index.to(self.device)) for index, _ in chunks]
        for (_, valid), index, x in zip(chunks, shaped, rows.stream(shaped), strict=True):
            own = clusters[index].clamp(min=0)  # padding may point at noise
            with mixed_precision(self.device):
                scores = self.scores(x, of_mean=True)
            refuse_gaps(scores, index)
            found = mean_hit(self.head.margins(scores, own)).cpu().double().reshape(valid.shape)
            own = own.cpu().reshape(valid.shape)
            hits.scatter_add_(1, own, found * valid)
            counts.scatter_add_(1, own, valid)
        return _mean_of_nonempty(hits.numpy(), counts.numpy())

    @abstractmethod
    def train(self, training: bool) -> None:
        """Switch between training and trying."""


class Stacked(Group):
    """Small networks as one, with ``torch.func``."""

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
        """Switch between training and trying."""
        self.skeleton.train(training)

    def at_once(self) -> int:
        """As many as the block of scores allows."""
        return BLOCK_ELEMENTS

    def settle(self, batches: Sequence[Tensor], rows: Rows) -> None:
        """Nothing to do: networks with batch normalisation are not stacked."""

    def scores(self, x: Tensor, of_mean: bool = False) -> Tensor:
        """Scores (m, n, ...) of observations x (m, n, ...) from m networks."""

        def one(params: State, buffers: State, x: Tensor) -> Tensor:
            return functional_call(self.skeleton, (params, buffers), (x,))

        params = self.mean if of_mean else self.params
        return vmap(one, randomness="different")(params, self.buffers, x)

    @torch.no_grad()
    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Remember the present mean weights of the networks in ``mask``."""
        chosen = torch.from_numpy(mask).to(self.device)
        for name, value in self._state().items():
            self.kept[name][chosen] = value[chosen]

    @torch.no_grad()
    def restore(self) -> None:
        """Write the remembered weights into the networks and ready them for use."""
        for i, network in enumerate(self.networks):
            network.load_state_dict({name: value[i] for name, value in self.kept.items()})
            network.eval()

    def _state(self) -> State:
        return {**self.mean, **self.buffers}

    @torch.no_grad()
    def average(self, share: float) -> None:
        """Move the running mean by this share towards the present weights."""
        for name, mean in self.mean.items():
            mean.lerp_(self.params[name], share)


class Alone(Group):
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
        if self.device.type == "cuda" and _has_convolutions(self.network):
            self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.mean = copy.deepcopy(self.network)
        self.kept = {name: v.clone() for name, v in self.mean.state_dict().items()}
        params = [p for p in self.network.parameters() if p.requires_grad]
        self.optimizer = adam(params, learning_rate, weight_decay, self.device)
        self._pairs = (
            [p.detach() for p in self.mean.parameters()],
            [p.detach() for p in self.network.parameters()],
        )
        self._norms: list[Any] = [m for m in self.mean.modules() if _is_batch_norm(m)]

    def train(self, training: bool) -> None:
        """Switch between training and trying."""
        self.network.train(training)
        self.mean.eval()

    def at_once(self) -> int:
        """What the network says."""
        return self.network.most_at_once

    def shaped(self, index: Tensor) -> Tensor:
        """Row indices (1, b) as (b,)."""
        return index[0]

    def scores(self, x: Tensor, of_mean: bool = False) -> Tensor:
        """Scores (n, ...) of observations x (n, ...)."""
        return self.mean(x) if of_mean else self.network(x)

    @torch.no_grad()
    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Remember the present mean weights if the mask says so."""
        if mask.any():
            for name, value in self.mean.state_dict().items():
                self.kept[name].copy_(value)

    @torch.no_grad()
    def restore(self) -> None:
        """Write the remembered weights into the network and ready it for use."""
        self.network.load_state_dict(self.kept)
        self.network.eval()

    @torch.no_grad()
    def average(self, share: float) -> None:
        """Move the running mean towards the present weights."""
        torch._foreach_lerp_(*self._pairs, share)

    @torch.no_grad()
    def settle(self, batches: Sequence[Tensor], rows: Rows) -> None:
        """Measure what batch normalisation needs for the mean weights, which no batch has seen."""
        for mean, present in zip(self.mean.buffers(), self.network.buffers(), strict=True):
            mean.copy_(present)  # whatever else was learned on the way
        self.mean.train()
        # One that its network keeps frozen stays as it is.
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


def adam(
    params: Iterable[Tensor], learning_rate: float, weight_decay: float, device: torch.device
) -> torch.optim.Optimizer:
    """Adam with decoupled decay, in one kernel where that exists."""
    fused = device.type in ("cpu", "cuda")
    return torch.optim.AdamW(params, lr=learning_rate, weight_decay=weight_decay, fused=fused)


def mean_hit(margins: Tensor) -> Tensor:
    """Share of the other clusters that an observation's own cluster beats; ties count half."""
    k = margins.shape[-1]
    hits = (margins > 0).sum(-1) + (margins == 0).sum(-1) / 2
    # The own column is a tie.
    return (hits - 0.5) / (k - 1)


def refuse_gaps(values: Tensor, index: Tensor) -> None:
    """Refuse what a network gave for the rows at ``index``, shape (*index.shape, ...), if NaN.

    Such a score would count as a miss, as if the network had been wrong.
    """
    bad = ~torch.isfinite(values).flatten(index.ndim).all(dim=-1)
    if bad.any():
        raise InputError(
            f"the network gives NaN or infinity for observation {int(index[bad][0])}; look for "
            "such values in it, or for a division by zero in your own network."
        )


def padded_chunks(indices: Sequence[Index], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Walk several index lists side by side: (m, ≤ size) rows, and 1.0 where they are real."""
    longest = max(len(index) for index in indices)
    padded = torch.zeros(len(indices), longest, dtype=torch.long)
    valid = torch.zeros(len(indices), longest, dtype=torch.float64)
    for i, index in enumerate(indices):
        padded[i, : len(index)] = torch.from_numpy(index)
        valid[i, : len(index)] = 1.0
    for start in range(0, longest, size):
        yield padded[:, start : start + size], valid[:, start : start + size]


def _mean_of_nonempty(
    sums: NDArray[np.float64], counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean over clusters of the clusters' means, leaving out empty ones; NaN if all are."""
    means = sums / np.maximum(counts, 1)
    n_seen = (counts > 0).sum(axis=1)
    return np.where(n_seen > 0, means.sum(axis=1) / np.maximum(n_seen, 1), np.nan)


def _has_convolutions(module: nn.Module) -> bool:
    return any(isinstance(m, nn.Conv2d) for m in module.modules())


def _is_batch_norm(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.batchnorm._BatchNorm)
