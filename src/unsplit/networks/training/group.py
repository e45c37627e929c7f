"""Networks that are trained in the same steps: one of any kind, or small ones computed as one.

Also the optimizer that moves them: AdamW as torch computes it, and AdamW that keeps fewer numbers
for very large heads.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim.adamw import adamw

from unsplit._typing import Index
from unsplit.data.memory import is_out_of_memory
from unsplit.data.rows.base import Rows
from unsplit.devices import BLOCK_ELEMENTS, mixed_precision
from unsplit.errors import InputError, OutOfMemoryWarning, warn
from unsplit.networks.chunked import chunked_loss, mean_hits
from unsplit.networks.chunked_kernel import move_rows, usable
from unsplit.networks.network import LARGE_HEAD, Network, refuse_gaps
from unsplit.networks.training.recorded import STEPS_BEFORE, RecordedStep, can_be_recorded

# With more clusters, A is counted over blocks of them: their scores of 256 observations would not
# fit into one block.
MANY_CLUSTERS = BLOCK_ELEMENTS // 256

# With at most this many times as many clusters as observations in a batch, all are seen soon.
SOON_SEEN = 4

# Scores that A is measured from after an epoch, at most: 2¹⁸ observations and 2²⁰ clusters.
MOST_VALIDATION_SCORES = 2**38

# Observations from which batch normalisation measures activations, and the most batches for it.
SETTLING = 1024
MOST_SETTLING = 8

# A network with more parameters than this keeps the hardware busy by itself, and stacking would
# only multiply the memory for its activations.
SMALL_NETWORK = 2_000_000

State = dict[str, Tensor]

# Of one network, by the names of its parameters and buffers: "weights", "mean" and "kept"; of the
# first of a group also "moments", what the optimizer keeps for each parameter.
NetworkState = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Fold:
    """The observations of one network, as row indices.

    ``train`` is for training, ``validation`` for choosing the epoch, and ``test`` is held out for
    the estimate.
    """

    train: Index
    validation: Index
    test: Index

    @property
    def validates_on_test(self) -> bool:
        """Whether the epoch is chosen on the test rows."""
        return np.array_equal(self.validation, self.test)

    def of(self, rows: Index) -> "Fold":
        """The same fold of some rows, given their positions."""
        return Fold(rows[self.train], rows[self.validation], rows[self.test])

    def without_validation(self) -> "Fold":
        """The same for what needs no rows to choose an epoch: all but the test rows train."""
        if self.validates_on_test:
            return self
        return Fold(np.concatenate([self.train, self.validation]), self.test, self.test)


class Group:
    """A network of any kind and size in training; :class:`Stacked` has several.

    A running mean of the weights is kept beside the weights being trained.  The averaged weights
    are tried after every epoch, and the best of them are kept.

    Parameters
    ----------
    networks, folds : sequences of Network and Fold
        One of each; several if they are stacked.
    learning_rate, weight_decay : float
    """

    stacked = False

    def __init__(
        self,
        networks: Sequence[Network],
        folds: Sequence[Fold],
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        self.networks, self.folds = networks, folds
        self.head = networks[0].head
        self.k = self.head.n_clusters
        self.device = next(networks[0].parameters()).device
        large = self._has_large_head()
        # Those that are trained, and those with the averaged weights.
        self.present, self.means = self._prepared(networks)
        self.params, averages = self._joined(self.present), self._joined(self.means)
        self._means = [mean.detach() for mean in averages.values()]
        self._present = [param.detach() for param in self.params.values()]
        # They are needed once an epoch, so a large head is kept where there is more memory.
        place = torch.device("cpu") if large else self.device
        self.kept = [
            {name: value.to(place, copy=True) for name, value in tensors_of(mean).items()}
            for mean in self.means
        ]
        moved = [param for param in self.params.values() if param.requires_grad]
        rates = learning_rate, weight_decay, self.device
        self.optimizer = (
            LargeHeadAdamW(moved, [self.params["head.weight"]], *rates)
            if large
            else AdamW(moved, *rates)
        )
        self.steps_taken = 0
        # Sum of the losses in the present epoch.
        self.total = torch.zeros((), device=self.device)
        # Number of parts in which batches are computed, more than one after memory ran out.
        self.parts = 1
        # A step to repeat; None at the start, and wherever it cannot be recorded.
        self.recorded: RecordedStep | None = None
        self.recordable = self.device.type == "cuda" and can_be_recorded(networks[0])
        self._unrecorded = 0

    # One network, or several in one

    def _has_large_head(self) -> bool:
        """Whether the head is updated with few bytes for each weight."""
        return self.head.weight.numel() > LARGE_HEAD

    def _prepared(self, networks: Sequence[Network]) -> tuple[list[Network], list[Network]]:
        """The networks to train, and copies of them for the averaged weights."""
        (network,) = networks
        if self.device.type in ("cpu", "cuda") and _has_convolutions(network):
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return [network], [copy.deepcopy(network)]

    def _joined(self, networks: Sequence[Network]) -> State:
        """The parameters by name, of all networks together."""
        return dict(networks[0].named_parameters())

    def shaped(self, index: Tensor) -> Tensor:
        """Reshape row indices (m, b) as the networks need them: (b,) for one."""
        return index[0]

    def taken(self, index: Tensor) -> Tensor:
        """Which of these rows this process needs."""
        return index

    def at_once(self) -> int:
        """Number of observations to score at a time: fewer if scores would not fit a block."""
        most = self.networks[0].most_at_once
        if self.k > MANY_CLUSTERS:
            return most
        return max(1, min(most, BLOCK_ELEMENTS // self.k))

    def scores(self, x: Tensor, of_mean: bool = False) -> Tensor:
        """Compute the scores of a batch; with the averaged weights if ``of_mean``."""
        return self.means[0](x) if of_mean else self.present[0](x)

    def loss(self, x: Tensor, own: Tensor) -> Tensor:
        """Sum of the losses of a batch, over blocks of clusters if its scores are many."""
        with mixed_precision(self.device):
            # Fixed, so that rounding does not depend on the memory of the machine.
            if not self.stacked and len(own) * self.k > BLOCK_ELEMENTS:
                features, head = self.present[0].backbone(x), self.head
                return chunked_loss(features, head.weight, head.bias, own, head.loss_name)
            scores = self.scores(x)
        return self.head.loss(scores, own).sum()

    def hits(self, x: Tensor, own: Tensor, index: Tensor) -> Tensor:
        """For each observation, the share of other clusters that score lower than its own."""
        with mixed_precision(self.device):
            if not self.stacked and self.k > MANY_CLUSTERS:
                features = self.means[0].backbone(x)
                refuse_gaps(features, index)
                head = self.means[0].head
                return mean_hits(features, head.weight, head.bias, own)
            scores = self.scores(x, of_mean=True)
        refuse_gaps(scores, index)
        return mean_hit(self.head.margins(scores, own))

    # Steps

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
        taken = [self.taken(index) for index in shaped]
        for index, x in zip(shaped[first:], rows.stream(taken[first:]), strict=True):
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
        self.settle(taken, rows)
        mean = float(self.total) / (len(batches) * len(self.networks))
        if not np.isfinite(mean):
            raise InputError(
                f"the loss became {mean} within {self.steps_taken} steps of training; check X for "
                "extreme values, or choose a lower learning_rate."
            )
        return mean

    def train(self, training: bool) -> None:
        """Switch between training and evaluation mode."""
        for network in self.present:
            network.train(training)
        for mean in self.means:
            mean.eval()

    def body(self) -> list[Tensor]:
        """Parameters of the backbones."""
        return [param for name, param in self.params.items() if not name.startswith("head.")]

    def steps_of_head(self, batch_size: int) -> int:
        """Number of steps at the start in which only the head is trained.

        The head starts at zero, and the clusters of the batches so far score higher than those
        that are still to come.  While that is all it knows, the way to a lower loss is smaller
        features: with 4,000 clusters and batches of 256 all were zero after 25 steps, for good.
        So every cluster comes twice before features change.  Batch normalisation keeps features
        alive, and with few clusters there is no time to go wrong.
        """
        if self.k <= SOON_SEEN * batch_size or any(map(is_batch_norm, self.networks[0].modules())):
            return 0
        return -(-2 * self.k // batch_size)

    def gradients(self, index: Tensor, x: Tensor, rows: Rows, clusters: Tensor) -> Tensor:
        """Compute the gradients of a batch; its loss.

        If memory runs out, the batch is computed again in half as large parts, whose gradients
        are added up, and so are all that follow.
        """
        while True:
            self.optimizer.zero_grad()
            try:
                return self._attempt(index, x, rows, clusters)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error) or index.shape[-1] < 4 * self.parts:
                    raise
                reason = (str(error).splitlines() or [type(error).__name__])[0]
            self._halve(index.shape[-1], reason)

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
        small = self.parts == 1 and own.numel() * self.k <= BLOCK_ELEMENTS
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

    # Averaged weights

    @torch.no_grad()
    def average(self, share: float) -> None:
        """Move the averaged weights by this share towards the present weights."""
        torch._foreach_lerp_(self._means, self._present, share)

    @torch.no_grad()
    def settle(self, batches: Sequence[Tensor], rows: Rows) -> None:
        """Prepare the averaged weights for evaluation, with batches of the last epoch.

        Batch normalisation has not measured their activations yet, because no batch was passed
        through these weights.
        """
        for mean, present in zip(self.means, self.present, strict=True):
            for value, other in zip(mean.buffers(), present.buffers(), strict=True):
                value.copy_(other)  # other buffers that changed in training
        mean = self.means[0].train()
        # A batch normalisation that its network keeps frozen is left alone.
        norms: list[Any] = [m for m in mean.modules() if is_batch_norm(m) and m.training]
        norms = [] if self.stacked else norms
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the plain mean over these batches
        n = min(MOST_SETTLING, -(-SETTLING // max(batches[0].shape[-1], 1)))
        for x in rows.stream(batches[-n:] if norms else []):
            with mixed_precision(self.device):
                mean.backbone(x)
        mean.eval()

    @torch.no_grad()
    def validation_accuracy(self, rows: Rows, clusters: Tensor) -> NDArray[np.float64]:
        """Compute A of each network, with averaged weights, on the ``validation`` rows of its fold.

        NaN if there are no such rows.
        """
        self.train(False)
        hits = torch.zeros(len(self.networks), self.k, dtype=torch.float64)
        counts = torch.zeros_like(hits)
        validation = [validation_part(fold.validation, clusters, self.k) for fold in self.folds]
        chunks = list(padded_chunks(validation, self.at_once()))
        shaped = [self.shaped(index.to(self.device)) for index, _ in chunks]
        taken = [self.taken(index) for index in shaped]
        for (_, valid), index, x in zip(chunks, shaped, rows.stream(taken), strict=True):
            own = clusters[index].clamp(min=0)  # padding may point at noise
            found = self.hits(x, own, index).cpu().double().reshape(valid.shape)
            own = own.cpu().reshape(valid.shape)
            hits.scatter_add_(1, own, found * valid)
            counts.scatter_add_(1, own, valid)
        return _mean_of_nonempty(hits.numpy(), counts.numpy())

    @torch.no_grad()
    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Remember the averaged weights of the networks in ``mask``."""
        for kept, mean, chosen in zip(self.kept, self.means, mask, strict=True):
            if chosen:
                copy_into(kept, tensors_of(mean))

    @torch.no_grad()
    def restore(self) -> None:
        """Write the remembered weights into the networks, and set them to evaluation mode."""
        for network, kept in zip(self.networks, self.kept, strict=True):
            copy_into(tensors_of(network), kept)
            network.eval()

    # Checkpoints

    def state(self) -> list[NetworkState]:
        """Weights, averages, kept weights and the optimizer's numbers of every network."""
        known = self.optimizer.state
        moments = {
            name: dict(known[param]) for name, param in self.params.items() if param in known
        }
        states: list[NetworkState] = [
            {"weights": tensors_of(present), "mean": tensors_of(mean), "kept": kept}
            for present, mean, kept in zip(self.present, self.means, self.kept, strict=True)
        ]
        states[0]["moments"] = moments  # of all networks together
        return states

    @torch.no_grad()
    def load(self, states: Sequence[NetworkState]) -> None:
        """Continue from what :meth:`state` returned."""
        of_networks = zip(states, self.present, self.means, self.kept, strict=True)
        for state, present, mean, kept in of_networks:
            copy_into(tensors_of(present), state["weights"])
            copy_into(tensors_of(mean), state["mean"])
            copy_into(kept, state["kept"])
        for name, moments in states[0]["moments"].items():
            param = self.params[name]
            self.optimizer.state[param] = {n: like(param, v) for n, v in moments.items()}


class Stacked(Group):
    """Small networks that ``torch.func`` computes as one.

    Their parameters are parts of the same tensors, which the optimizer moves.
    """

    stacked = True

    def _has_large_head(self) -> bool:
        return False

    def _prepared(self, networks: Sequence[Network]) -> tuple[list[Network], list[Network]]:
        present, means = ([copy.deepcopy(n) for n in networks] for _ in range(2))
        self._whole, self._whole_means = _stacked(present), _stacked(means)
        return present, means

    def _joined(self, networks: Sequence[Network]) -> State:
        whole = self._whole if networks is self.present else self._whole_means
        return {name: whole[name] for name, _ in networks[0].named_parameters()}

    def shaped(self, index: Tensor) -> Tensor:
        """Leave row indices (m, b) as they are."""
        return index

    def at_once(self) -> int:
        """As many as fit into a block of scores."""
        return max(1, BLOCK_ELEMENTS // (self.k * len(self.networks)))

    def scores(self, x: Tensor, of_mean: bool = False) -> Tensor:
        """Compute scores (m, n, ...) of observations x (m, n, ...) with m networks."""

        def one(state: State, x: Tensor) -> Tensor:
            return functional_call(self.present[0], state, (x,))

        whole = self._whole_means if of_mean else self._whole
        return vmap(one, randomness="different")(whole, x)


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


def _stacked(networks: Sequence[nn.Module]) -> State:
    """Make the tensors of all networks parts of larger ones, and return these by name."""
    params, buffers = stack_module_state(list(networks))
    whole: State = {**params, **buffers}
    for i, network in enumerate(networks):
        for name, tensor in (*network.named_parameters(), *network.named_buffers()):
            tensor.data = whole[name].detach()[i]
    return whole


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


def _has_convolutions(module: nn.Module) -> bool:
    return any(isinstance(m, nn.Conv2d) for m in module.modules())


def is_batch_norm(module: nn.Module) -> bool:
    """Whether a module is a batch normalisation."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm)


# A after an epoch


def validation_part(validation: Index, clusters: Tensor, k: int) -> Index:
    """The rows that A is measured from: all, unless that would take as long as the epoch.

    A part has rows of as many clusters as possible, the same after every epoch.  A quarter of a
    million of them is enough: they are compared with themselves, and the standard error of A is
    below 0.001 even if every hit rate were a coin toss.
    """
    step = -(-len(validation) * k // MOST_VALIDATION_SCORES)
    if step <= 1:
        return validation
    by_cluster = np.argsort(clusters.cpu().numpy()[validation], kind="stable")
    return validation[by_cluster[::step]]


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


# The optimizer

# Numbers of a matrix that are updated at a time.
AT_ONCE = 2**24

BETAS, EPS = (0.9, 0.999), 1e-8


class AdamW:
    """AdamW by torch's own function, fused into one kernel if the device supports that.

    ``torch.optim.AdamW`` does the same, but loads torch's compiler when it is made, which nothing
    here uses: two seconds and 75 MiB in every program.
    """

    # Whether a GPU can repeat a step by itself: nothing of it is computed by the processor.
    can_be_recorded = True

    def __init__(
        self,
        params: Iterable[Tensor],
        learning_rate: float,
        weight_decay: float,
        device: torch.device,
    ) -> None:
        self.params = list(params)
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.fused = device.type in ("cpu", "cuda")
        # Of each parameter that was moved: the number of steps, and both moments.
        self.state: dict[Tensor, dict[str, Any]] = {}

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for param in self.params:
            param.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move all parameters that have a gradient by one step."""
        moved = [param for param in self.params if param.grad is not None]
        if not moved:
            return
        states = [self._state_of(param) for param in moved]
        names = "exp_avg", "exp_avg_sq", "step"
        first, second, steps = ([state[name] for state in states] for name in names)
        adamw(
            moved,
            [param.grad for param in moved if param.grad is not None],
            first,
            second,
            [],
            steps,
            fused=self.fused,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            eps=EPS,
            maximize=False,
        )

    def _state_of(self, param: Tensor) -> dict[str, Any]:
        if param not in self.state:
            device = param.device if self.fused else None  # where the kernel looks for it
            self.state[param] = {
                "step": torch.zeros((), device=device),
                "exp_avg": torch.zeros_like(param),
                "exp_avg_sq": torch.zeros_like(param),
            }
        return self.state[param]


class LargeHeadAdamW(AdamW):
    """AdamW that keeps 2 bytes instead of 8 for each weight of the matrices in ``large``.

    The first moment is stored in bfloat16, whose steps are much finer than what one batch changes
    of it.  Of the second moment only the mean of each row is stored: all weights of a cluster have
    one scale, and a cluster that is seldom drawn another than one that is drawn often.
    """

    can_be_recorded = False  # the corrections for the number of steps are the processor's

    def __init__(
        self,
        params: Sequence[Tensor],
        large: Sequence[Tensor],
        learning_rate: float,
        weight_decay: float,
        device: torch.device,
    ) -> None:
        super().__init__(params, learning_rate, weight_decay, device)
        self.large, self.kernel = large, usable(device)

    @torch.no_grad()
    def step(self) -> None:
        """Move all parameters that have a gradient by one step."""
        gradients = [weight.grad for weight in self.large]
        for weight in self.large:
            weight.grad = None  # AdamW leaves out what has no gradient
        super().step()
        for weight, gradient in zip(self.large, gradients, strict=True):
            weight.grad = gradient
            if gradient is not None:
                self._move(weight, gradient)

    def _move(self, weight: Tensor, gradient: Tensor) -> None:
        if weight not in self.state:
            self.state[weight] = {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(weight, dtype=torch.bfloat16),
                "row_avg_sq": weight.new_zeros((len(weight), 1)),
            }
        state = self.state[weight]
        state["step"] += 1
        done = float(state["step"])
        corrections = 1 - BETAS[0] ** done, 1 - BETAS[1] ** done
        shrink = 1 - self.learning_rate * self.weight_decay
        first, second = state["exp_avg"], state["row_avg_sq"]
        numbers = BETAS, corrections, self.learning_rate, shrink, EPS
        if self.kernel:
            move_rows(weight, gradient.contiguous(), first, second, *numbers)
            return
        n = max(1, AT_ONCE // weight.shape[1])
        parts = (x.split(n) for x in (weight, gradient, first, second))
        for w, g, m, v in zip(*parts, strict=True):
            _move_rows(w, g, m, v, *numbers)


def _move_rows(
    weight: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    betas: tuple[float, float],
    corrections: tuple[float, float],
    rate: float,
    shrink: float,
    eps: float,
) -> None:
    """What the kernel :func:`move_rows` does, in plain torch."""
    norms = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    second.lerp_(norms.square_() / gradient.shape[1], 1 - betas[1])
    mean = first.to(weight.dtype).lerp_(gradient, 1 - betas[0])
    first.copy_(mean)
    scale = (second / corrections[1]).sqrt_().add_(eps)
    weight.mul_(shrink).sub_(mean.mul_(rate / corrections[0] / scale))
