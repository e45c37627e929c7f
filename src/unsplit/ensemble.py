"""Networks of several folds that take their training steps together."""

import copy
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from unsplit.heads import PairMatrixHead, ScoreHead
from unsplit.sampling import Fold, Index

State = dict[str, Tensor]

# Above this many parameters a network keeps the hardware busy by itself, and stacking only
# multiplies the memory its activations need.
SMALL_NETWORK = 2_000_000

# Elements of the largest score block held at once (64 MiB in float32).
BLOCK_ELEMENTS = 2**24


class Rows(Protocol):
    """Where observations come from."""

    def __len__(self) -> int:
        """Number of observations."""

    def take(self, index: Tensor) -> Tensor:
        """Observations at ``index`` (of any shape), on the training device."""


class Network(nn.Module):
    """A backbone and a head."""

    def __init__(self, backbone: nn.Module, head: ScoreHead | PairMatrixHead) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """Scores of x."""
        return self.head(self.backbone(x))


def can_be_stacked(networks: Sequence[Network], rows: Rows) -> bool:
    """Whether the networks are small and ``torch.func`` can batch them (tried on two rows)."""
    if len(networks) == 1 or sum(p.numel() for p in networks[0].parameters()) > SMALL_NETWORK:
        return False
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in networks[0].modules()):
        return False
    device = next(networks[0].parameters()).device
    index = torch.zeros(len(networks), 2, dtype=torch.long, device=device)
    try:
        with torch.no_grad():
            Group(networks, (), learning_rate=0.0, weight_decay=0.0).scores(rows.take(index))
    except RuntimeError:
        return False
    return True


class Group:
    """One or more networks, each with its own rows, stepping as one.

    ``params`` are trained, ``mean`` is their running mean, ``kept`` the best mean so far.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        folds: Sequence[Fold],
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        self.networks = networks
        self.folds = folds
        self.head = networks[0].head
        self.device = next(networks[0].parameters()).device
        self.params, self.buffers = stack_module_state(list(networks))
        self.mean = {name: p.detach().clone() for name, p in self.params.items()}
        self.kept = {name: p.detach().clone() for name, p in self._state().items()}
        self.steps_taken = 0
        self.skeleton = copy.deepcopy(networks[0]).to("meta")
        self.optimizer = torch.optim.AdamW(
            self.params.values(),
            lr=learning_rate,
            weight_decay=weight_decay,
            fused=self.device.type in ("cpu", "cuda"),
        )

    def scores(self, x: Tensor, params: State | None = None) -> Tensor:
        """Scores (m, n, ...) of observations x (m, n, ...) from m networks."""

        def one(params: State, buffers: State, x: Tensor) -> Tensor:
            return functional_call(self.skeleton, (params, buffers), (x,))

        params = self.params if params is None else params
        if len(self.networks) == 1:
            return one(_member(params, 0), _member(self.buffers, 0), x[0]).unsqueeze(0)
        return vmap(one, randomness="different")(params, self.buffers, x)

    def run(self, batches: Tensor, rows: Rows, clusters: Tensor, averaging: float) -> float:
        """One step per batch of row indices (steps, m, b); the mean loss per network."""
        self.skeleton.train()
        total = torch.zeros((), device=self.device)
        for index in batches.to(self.device):
            with torch.autocast(
                self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"
            ):
                scores = self.scores(rows.take(index))
            loss = self.head.loss(scores, clusters[index]).sum()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self._average(averaging)
            total += loss.detach()
        return float(total) / (len(batches) * len(self.networks))

    @torch.no_grad()
    def watched_accuracy(self, rows: Rows, clusters: Tensor) -> NDArray[np.float64]:
        """A of each network's mean weights on its fold's ``watch`` rows; NaN if there are none."""
        self.skeleton.eval()
        k = self.head.n_clusters
        hits = torch.zeros(len(self.networks), k, dtype=torch.float64)
        counts = torch.zeros_like(hits)
        watch = [fold.watch for fold in self.folds]
        for index, valid in padded_chunks(watch, max(1, BLOCK_ELEMENTS // (k * len(watch)))):
            index = index.to(self.device)
            own = clusters[index].clamp(min=0)  # padding may point at noise
            margins = self.head.margins(self.scores(rows.take(index), self.mean), own)
            own = own.cpu()
            hits.scatter_add_(1, own, mean_hit(margins).cpu().double() * valid)
            counts.scatter_add_(1, own, valid)
        return _mean_of_nonempty(hits.numpy(), counts.numpy())

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
            network.load_state_dict(_member(self.kept, i))
            network.eval()

    def _state(self) -> State:
        return {**self.mean, **self.buffers}

    @torch.no_grad()
    def _average(self, decay: float) -> None:
        self.steps_taken += 1
        # Early on, forget quickly: the first weights are no good.
        decay = min(decay, self.steps_taken / (self.steps_taken + 9))
        for name, mean in self.mean.items():
            mean.lerp_(self.params[name], 1 - decay)


def mean_hit(margins: Tensor) -> Tensor:
    """Share of the other clusters that an observation's own cluster beats; ties count half."""
    k = margins.shape[-1]
    hits = (margins > 0).sum(-1) + (margins == 0).sum(-1) / 2
    # The own column is a tie.
    return (hits - 0.5) / (k - 1)


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


def _member(state: State, i: int) -> State:
    return {name: value[i] for name, value in state.items()}


def _mean_of_nonempty(
    sums: NDArray[np.float64], counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean over clusters of the clusters' means, leaving out empty ones; NaN if all are."""
    means = sums / np.maximum(counts, 1)
    n_seen = (counts > 0).sum(axis=1)
    return np.where(n_seen > 0, means.sum(axis=1) / np.maximum(n_seen, 1), np.nan)
