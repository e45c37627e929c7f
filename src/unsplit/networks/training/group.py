"""Networks of several folds that are trained together."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unsplit._typing import Index
from unsplit.data.rows.base import Rows
from unsplit.devices import BLOCK_ELEMENTS, mixed_precision
from unsplit.errors import InputError
from unsplit.networks.heads import ScoreHead
from unsplit.networks.training.sampling import Fold


class Network(nn.Module):
    """A backbone and a head.

    ``most_at_once`` is the largest number of observations to pass at a time.
    """

    def __init__(self, backbone: nn.Module, head: ScoreHead, most_at_once: int = 4096) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.most_at_once = most_at_once

    def forward(self, x: Tensor) -> Tensor:
        """Scores of x."""
        return self.head(self.backbone(x))


class Group(ABC):
    """One or more networks that are trained in the same steps, each on its own rows.

    A running mean of the weights is kept beside the weights being trained.  The averaged weights
    are tried after every epoch, and the best of them are kept.
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
        """Compute the scores of a batch; with the averaged weights if ``of_mean``."""

    @abstractmethod
    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Remember the averaged weights of the networks in ``mask``."""

    @abstractmethod
    def restore(self) -> None:
        """Write the remembered weights into the networks, and set them to evaluation mode."""

    @abstractmethod
    def averaged(self) -> Sequence[Network]:
        """The networks with their averaged weights, for evaluation only."""

    @abstractmethod
    def average(self, share: float) -> None:
        """Move the averaged weights by this share towards the present weights."""

    @abstractmethod
    def at_once(self) -> int:
        """Number of observations per network to score at a time."""

    def shaped(self, index: Tensor) -> Tensor:
        """Reshape row indices (m, b) as the networks need them."""
        return index

    @abstractmethod
    def settle(self, batches: Sequence[Tensor], rows: Rows) -> None:
        """Prepare the averaged weights for evaluation, with batches of the last epoch."""

    def run(
        self,
        batches: Tensor,
        rows: Rows,
        clusters: Tensor,
        averaging: float,
        on_step: Callable[[], None] | None = None,
    ) -> float:
        """Take one step for each batch of row indices (steps, m, b); the mean loss per network."""
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
            # Forget quickly at first, because the first weights are poor.
            decay = min(averaging, self.steps_taken / (self.steps_taken + 9))
            self.average(1 - decay)
            total += loss.detach()
            if on_step is not None:
                on_step()
        self.settle(shaped, rows)
        mean = float(total) / (len(batches) * len(self.networks))
        if not np.isfinite(mean):
            raise InputError(
                f"the loss became {mean} within {self.steps_taken} steps of training; check X for "
                "extreme values, or choose a lower learning_rate."
            )
        return mean

    @torch.no_grad()
    def watched_accuracy(self, rows: Rows, clusters: Tensor) -> NDArray[np.float64]:
        """Compute A of each network, with averaged weights, on the ``watch`` rows of its fold.

        NaN if there are no such rows.
        """
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
        """Switch between training and evaluation mode."""


def adam(
    params: Iterable[Tensor], learning_rate: float, weight_decay: float, device: torch.device
) -> torch.optim.Optimizer:
    """Make an AdamW optimizer, fused into one kernel if the device supports that."""
    fused = device.type in ("cpu", "cuda")
    return torch.optim.AdamW(params, lr=learning_rate, weight_decay=weight_decay, fused=fused)


def mean_hit(margins: Tensor) -> Tensor:
    """Share of the other clusters that score lower than the own cluster; ties count half."""
    k = margins.shape[-1]
    hits = (margins > 0).sum(-1) + (margins == 0).sum(-1) / 2
    # The own cluster counts as a tie with itself.
    return (hits - 0.5) / (k - 1)


def refuse_gaps(values: Tensor, index: Tensor) -> None:
    """Raise an error if a network returned NaN or infinity for a row in ``index``.

    Such a score would count as a miss, as if the network had been wrong.  ``values`` has the shape
    (*index.shape, ...).
    """
    bad = ~torch.isfinite(values).flatten(index.ndim).all(dim=-1)
    if bad.any():
        raise InputError(
            f"the network returned NaN or infinity for observation {int(index[bad][0])}; check "
            "this row of X, or your own network for a division by zero."
        )


def padded_chunks(indices: Sequence[Index], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield several index lists side by side, in chunks.

    Each chunk has rows (m, ≤ size), padded with 0, and 1.0 for each entry that is not padding.
    """
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
    """Average the means of all clusters that are not empty; NaN if all are empty."""
    means = sums / np.maximum(counts, 1)
    n_seen = (counts > 0).sum(axis=1)
    return np.where(n_seen > 0, means.sum(axis=1) / np.maximum(n_seen, 1), np.nan)


def is_batch_norm(module: nn.Module) -> bool:
    """Whether a module is a batch normalisation."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm)
