"""Networks of several folds that are trained together, and small ones that are computed as one."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from unsplit._typing import Index
from unsplit.data.memory import is_out_of_memory
from unsplit.data.rows.base import Rows
from unsplit.devices import BLOCK_ELEMENTS, drawn_again_after_errors, mixed_precision
from unsplit.errors import InputError, OutOfMemoryWarning, warn
from unsplit.networks.network import Network, refuse_gaps
from unsplit.networks.training.optimizer import AdamW
from unsplit.networks.training.recorded import STEPS_BEFORE, RecordedStep, can_be_recorded


@dataclass(frozen=True)
class Fold:
    """The observations of one network, as row indices.

    ``train`` is for training, ``watch`` for choosing the epoch, and ``test`` is held out for the
    estimate.
    """

    train: Index
    watch: Index
    test: Index

    @property
    def watches_test(self) -> bool:
        """Whether the epoch is chosen on the test rows."""
        return np.array_equal(self.watch, self.test)

    def without_watched(self) -> "Fold":
        """The same for what needs no rows to choose an epoch: all but the test rows train."""
        if self.watches_test:
            return self
        return Fold(np.concatenate([self.train, self.watch]), self.test, self.test)


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
        # Sum of the losses in the present epoch.
        self.total = torch.zeros((), device=self.device)
        # Batches are computed in so many parts, more than one after memory ran out.
        self.parts = 1
        self.optimizer: AdamW
        # A step to repeat; None at the start, and wherever it cannot be recorded.
        self.recorded: RecordedStep | None = None
        self.recordable = self.device.type == "cuda" and can_be_recorded(networks[0])
        self._unrecorded = 0

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
    def state(self) -> list["NetworkState"]:
        """Return weights, averages, kept weights and the optimizer's numbers of every network."""

    @abstractmethod
    def load(self, states: Sequence["NetworkState"]) -> None:
        """Continue from what :meth:`state` returned, for networks in any kind of group."""

    @abstractmethod
    def at_once(self) -> int:
        """Number of observations per network to score at a time."""

    def shaped(self, index: Tensor) -> Tensor:
        """Reshape row indices (m, b) as the networks need them."""
        return index

    def taken(self, index: Tensor) -> Tensor:
        """Which of these rows this process needs."""
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
        first: int = 0,
    ) -> float:
        """Take one step for each batch; the mean loss per network.

        Parameters
        ----------
        batches : integer Tensor of shape (steps, m, b)
            Rows of each step, for m networks.
        rows : Rows
        clusters : integer Tensor of shape (n,)
        averaging : float
            Share of the averaged weights that is kept in a step.
        on_step : callable, optional
            Called after every step.
        first : int
            Steps before it were taken already, and their losses are in ``total``.
        """
        self.train(True)
        head_alone = self.steps_of_head(batches.shape[-1])
        if first == 0:
            self.total.zero_()
        batches = batches.to(self.device)
        shaped = [self.shaped(index) for index in batches]
        taken = [self.taken(index) for index in shaped[first:]]
        for index, x in zip(shaped[first:], rows.stream(taken), strict=True):
            if self.recorded is not None and self.recorded.fits(x):
                loss = self.recorded(x, clusters[index])
            else:
                loss = self.gradients(index, x, rows, clusters)
                self._move(head_alone=self.steps_taken < head_alone)
                if self.steps_taken >= head_alone:
                    self._record(x, clusters[index])
            self.steps_taken += 1
            # Forget quickly at first, because the first weights are poor.
            decay = min(averaging, self.steps_taken / (self.steps_taken + 9))
            self.average(1 - decay)
            self.total += loss
            if on_step is not None:
                on_step()
        self.settle(shaped, rows)
        mean = float(self.total) / (len(batches) * len(self.networks))
        if not np.isfinite(mean):
            raise InputError(
                f"the loss became {mean} within {self.steps_taken} steps of training; check X for "
                "extreme values, or choose a lower learning_rate."
            )
        return mean

    @abstractmethod
    def body(self) -> Sequence[Tensor]:
        """Parameters of the networks without those of their heads."""

    def steps_of_head(self, batch_size: int) -> int:
        """Number of steps at the start in which only the head is trained.

        The head starts at zero, and the clusters of the batches so far score higher than those
        that are still to come.  While that is all it knows, the way to a lower loss is smaller
        features: with 4,000 clusters and batches of 256 all were zero after 25 steps, for good.
        So every cluster comes twice before features change.  Batch normalisation keeps features
        alive, and with few clusters there is no time to go wrong.
        """
        k = self.head.n_clusters
        if k <= SOON_SEEN * batch_size or any(map(is_batch_norm, self.networks[0].modules())):
            return 0
        return -(-2 * k // batch_size)

    def loss(self, x: Tensor, own: Tensor) -> Tensor:
        """Sum over networks of the loss of a batch."""
        with mixed_precision(self.device):
            scores = self.scores(x)
        return self.head.loss(scores, own).sum()

    def gradients(self, index: Tensor, x: Tensor, rows: Rows, clusters: Tensor) -> Tensor:
        """Compute the gradients of a batch; its loss.

        If memory runs out, the batch is computed again in half as large parts, whose gradients
        are added up, and so are all that follow.
        """
        while True:
            self.optimizer.zero_grad()
            try:
                # The same numbers again: of several processes, not all have drawn as many.
                with drawn_again_after_errors():
                    return self._attempt(index, x, rows, clusters)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error) or index.shape[-1] < self.least_in_parts():
                    raise
                reason = (str(error).splitlines() or [type(error).__name__])[0]
            self._halve(index.shape[-1], reason)

    def _move(self, head_alone: bool) -> None:
        """Move the weights along their gradients."""
        if head_alone:
            for param in self.body():
                param.grad = None  # the optimizer leaves out what has no gradient
        self.optimizer.step()

    def _record(self, x: Tensor, own: Tensor) -> None:
        """Record a step after the first few, if it can be recorded."""
        self._unrecorded += 1
        # Over blocks of clusters it would save little.
        small = self.parts == 1 and own.numel() * self.head.n_clusters <= BLOCK_ELEMENTS
        possible = self.recordable and self.optimizer.can_be_recorded and small
        if possible and self._unrecorded > STEPS_BEFORE:
            self.recordable = False  # it is tried once
            try:
                self.recorded = RecordedStep(self._recorded_step, x, own)
            except RuntimeError:  # such as too little memory; training goes on without
                self.optimizer.zero_grad()

    def _recorded_step(self, x: Tensor, own: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = _backward(self.loss(x, own))
        self.optimizer.step()
        return loss

    def least_in_parts(self) -> int:
        """Observations that a batch must have to be computed in twice as many parts."""
        return 4 * self.parts

    def _attempt(self, index: Tensor, x: Tensor, rows: Rows, clusters: Tensor) -> Tensor:
        if self.parts == 1:
            return _backward(self.loss(x, clusters[index]))
        total, n = torch.zeros((), device=self.device), index.shape[-1]
        for part in index.tensor_split(self.parts, dim=-1):
            loss = self.loss(rows.take(part), clusters[part])
            total += _backward(loss * (part.shape[-1] / n))
        return total

    def _halve(self, n: int, reason: str) -> None:
        self.parts *= 2
        self.optimizer.zero_grad()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        warn(
            f"memory ran out in training ({reason.rstrip('. ')}), so batches of {n:,} observations "
            f"are now computed in {self.parts} parts; a smaller batch_size avoids that.",
            OutOfMemoryWarning,
        )

    def hits(self, x: Tensor, own: Tensor, index: Tensor) -> Tensor:
        """For each observation, the share of other clusters that score lower than its own."""
        with mixed_precision(self.device):
            scores = self.scores(x, of_mean=True)
        refuse_gaps(scores, index)
        return mean_hit(self.head.margins(scores, own))

    @torch.no_grad()
    def watched_accuracy(self, rows: Rows, clusters: Tensor) -> NDArray[np.float64]:
        """Compute A of each network, with averaged weights, on the ``watch`` rows of its fold.

        NaN if there are no such rows.
        """
        self.train(False)
        k = self.head.n_clusters
        hits = torch.zeros(len(self.networks), k, dtype=torch.float64)
        counts = torch.zeros_like(hits)
        watch = [watched_part(fold.watch, clusters, k) for fold in self.folds]
        most = self.at_once()
        chunks = list(padded_chunks(watch, most))
        shaped = [self.shaped(index.to(self.device)) for index, _ in chunks]
        taken = [self.taken(index) for index in shaped]
        for (_, valid), index, x in zip(chunks, shaped, rows.stream(taken), strict=True):
            own = clusters[index].clamp(min=0)  # padding may point at noise
            found = self.hits(x, own, index).cpu().double().reshape(valid.shape)
            own = own.cpu().reshape(valid.shape)
            hits.scatter_add_(1, own, found * valid)
            counts.scatter_add_(1, own, valid)
        return _mean_of_nonempty(hits.numpy(), counts.numpy())

    @abstractmethod
    def train(self, training: bool) -> None:
        """Switch between training and evaluation mode."""


State = dict[str, Tensor]

# Of one network, by the names of its parameters and buffers: "weights", "mean" and "kept", and in
# "moments" what the optimizer keeps for each parameter.
NetworkState = dict[str, dict[str, Any]]


def tensors_of(module: nn.Module) -> State:
    """Return the parameters and all buffers of a module by name, without gradients."""
    return {
        name: tensor.detach()
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }


def copy_into(targets: State, values: State) -> None:
    """Copy tensors into those of the same names; all must be there."""
    if targets.keys() != values.keys():
        raise KeyError
    for name, target in targets.items():
        if target.shape != values[name].shape:
            raise ValueError
        target.copy_(values[name])


def like(param: Tensor, value: Any) -> Any:
    """Copy a number of an optimizer to the device of its parameter, in the same order in memory."""
    if not isinstance(value, Tensor):
        return value
    if value.shape == param.shape:
        return torch.empty_like(param, dtype=value.dtype, requires_grad=False).copy_(value)
    return value.to(param.device, copy=True)


def _backward(loss: Tensor) -> Tensor:
    loss.backward()
    return loss.detach()


# With at most this many times as many clusters as observations in a batch, all are seen soon.
SOON_SEEN = 4

# Scores that A is measured from after an epoch, at most: 2¹⁸ observations and 2²⁰ clusters.
MOST_WATCHED = 2**38


def watched_part(watch: Index, clusters: Tensor, k: int) -> Index:
    """The rows that A is measured from: all, unless that would take as long as the epoch.

    A part has rows of as many clusters as possible, the same after every epoch.  A quarter of a
    million of them is enough: they are compared with themselves, and the standard error of A is
    below 0.001 even if every hit rate were a coin toss.
    """
    step = -(-len(watch) * k // MOST_WATCHED)
    if step <= 1:
        return watch
    by_cluster = np.argsort(clusters.cpu().numpy()[watch], kind="stable")
    return watch[by_cluster[::step]]


def mean_hit(margins: Tensor) -> Tensor:
    """Share of the other clusters that score lower than the own cluster; ties count half."""
    k = margins.shape[-1]
    hits = (margins > 0).sum(-1) + (margins == 0).sum(-1) / 2
    # The own cluster counts as a tie with itself.
    return (hits - 0.5) / (k - 1)


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
        self.optimizer = AdamW(self.params.values(), learning_rate, weight_decay, self.device)

    def train(self, training: bool) -> None:
        """Switch between training and evaluation mode."""
        self.skeleton.train(training)

    def body(self) -> list[Tensor]:
        """Parameters of all backbones."""
        return [p for name, p in self.params.items() if not name.startswith("head.")]

    def at_once(self) -> int:
        """As many as fit into a block of scores."""
        return max(1, BLOCK_ELEMENTS // (self.head.n_clusters * len(self.networks)))

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

    def state(self) -> list[NetworkState]:
        """What a checkpoint keeps of the networks, one by one."""
        return [self._state_of(i) for i in range(len(self.networks))]

    def _state_of(self, i: int) -> NetworkState:
        moments: dict[str, Any] = {}
        for name, param in self.params.items():
            kept = self.optimizer.state.get(param, {})
            moments[name] = {
                n: v[i] if isinstance(v, Tensor) and v.shape == param.shape else v
                for n, v in kept.items()
            }
        parts = {"weights": {**self.params, **self.buffers}, "mean": self._state()}
        found = {
            part: {name: value[i] for name, value in values.items()}
            for part, values in (parts | {"kept": self.kept}).items()
        }
        return found | {"moments": {name: values for name, values in moments.items() if values}}

    @torch.no_grad()
    def load(self, states: Sequence[NetworkState]) -> None:
        """Continue from a checkpoint."""
        weights, mean, kept = (
            {name: torch.stack([state[part][name] for state in states]) for name in states[0][part]}
            for part in ("weights", "mean", "kept")
        )
        copy_into({**self.params, **self.buffers}, weights)
        copy_into(self._state(), mean)
        copy_into(self.kept, kept)
        for name, moments in states[0]["moments"].items():
            param, all_moments = self.params[name], [state["moments"][name] for state in states]
            # The number of steps is one number for all networks.
            self.optimizer.state[param] = {
                n: like(param, v if n == "step" else torch.stack([m[n] for m in all_moments]))
                for n, v in moments.items()
            }

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
