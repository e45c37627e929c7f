"""Networks that are trained in the same steps: one of any kind, or small ones computed as one.

Also the optimizer that moves them: AdamW as torch computes it, and AdamW that keeps fewer numbers
for very large heads.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim.adamw import adamw

from unsplit._typing import Index
from unsplit.data.rows.base import Rows
from unsplit.data.rows.kinds import VectorRows
from unsplit.devices import ALONE, BLOCK_ELEMENTS, is_out_of_memory, mixed_precision
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
# With fewer parameters than this, a network of vectors gains less than a third of the time from a
# second thread that has a core to itself, and loses several times as much if it has not.
ONE_THREAD = 250_000

State = dict[str, Tensor]
OnStep = Callable[[int], None]


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
    """A network of any kind and size in training, or several small ones that are stacked.

    The parameters of stacked networks are parts of the same tensors, and ``torch.func`` computes
    them as one.

    A running mean of the weights is kept beside the weights being trained.  The averaged weights
    are tried after every epoch, and the best of them are kept.

    Parameters
    ----------
    networks, folds : sequences of Network and Fold
        One of each; several if they are stacked.
    learning_rate, weight_decay : float
    averaging : float
        Share of the averaged weights that is kept in a step.
    n_clusters : int, optional
        Number of clusters; by default those of the head.
    """

    # The processes that hold the clusters; others than this one in :class:`Sharded` only.
    ranks = ALONE

    def __init__(
        self,
        networks: Sequence[Network],
        folds: Sequence[Fold],
        learning_rate: float,
        weight_decay: float,
        averaging: float = 0.99,
        *,
        n_clusters: int | None = None,
    ) -> None:
        self.networks, self.folds, self.averaging = networks, folds, averaging
        self.stacked = len(networks) > 1
        self.head = networks[0].head
        self.k = self.head.n_clusters if n_clusters is None else n_clusters
        self.device = next(networks[0].parameters()).device
        convolves = any(isinstance(module, nn.Conv2d) for module in networks[0].modules())
        if convolves and self.device.type in ("cpu", "cuda"):
            networks[0].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # Those that are trained, and those with the averaged weights.
        self.present = [copy.deepcopy(n) for n in networks] if self.stacked else list(networks)
        self.means = [copy.deepcopy(network).eval() for network in networks]
        self.joined, averages = joined(self.present), joined(self.means)
        names = [name for name, _ in networks[0].named_parameters()]
        self.params = {name: self.joined[name] for name in names}
        self._means = [averages[name].detach() for name in names]
        self._present = [param.detach() for param in self.params.values()]
        # A large head is updated with few bytes for each weight.
        large = self.head.in_features * self.k > LARGE_HEAD and not self.stacked
        # They are needed once an epoch, so a large head is kept where there is more memory.
        place = torch.device("cpu") if large else self.device
        self.kept = [
            {name: value.to(place, copy=True) for name, value in tensors_of(mean).items()}
            for mean in self.means
        ]
        moved = [param for param in self.params.values() if param.requires_grad]
        rates = learning_rate, weight_decay
        self.optimizer = (
            LargeHeadAdamW(moved, self.params["head.weight"], *rates)
            if large
            else AdamW(moved, *rates)
        )
        self.steps_taken = 0
        # Number of parts in which batches are computed, more than one after memory ran out.
        self.parts = 1
        # A step to repeat; None at the start, and wherever it cannot be recorded.
        self.recorded: RecordedStep | None = None
        # The numbers of a large head's optimizer are the processor's.
        on_gpu = self.device.type == "cuda" and not large
        self.recordable = on_gpu and can_be_recorded(networks[0])
        self._unrecorded = 0

    def taken(self, index: Tensor) -> Tensor:
        """Which of these rows this process needs."""
        return index

    def at_once(self) -> int:
        """Number of observations to score at a time: fewer if scores would not fit a block."""
        most = self.networks[0].most_at_once
        if self.k > MANY_CLUSTERS:
            return most
        return max(1, min(most, BLOCK_ELEMENTS // self.k))

    def scores(self, x: Tensor) -> Tensor:
        """Compute the scores of a batch; of x (m, n, ...) with m networks if they are stacked."""
        if not self.stacked:
            return self.present[0](x)

        def one(state: State, x: Tensor) -> Tensor:
            return functional_call(self.present[0], state, (x,))

        return vmap(one, randomness="different")(self.joined, x)

    def features(self, network: Network, x: Tensor, n: int) -> Tensor:
        """Features of all n observations of a batch, of which x are those of this process."""
        return network.backbone(x)

    def columns(self, clusters: Tensor) -> Tensor:
        """Places of clusters in the head; −1 for those of other processes."""
        return clusters

    def loss(self, x: Tensor, own: Tensor) -> Tensor:
        """Sum of the losses of a batch, over blocks of clusters if its scores are many."""
        with mixed_precision(self.device):
            # Fixed, so that rounding does not depend on the memory of the machine.
            many = not self.stacked and len(own) * self.k > BLOCK_ELEMENTS
            if many or self.ranks.size > 1:
                features, head = self.features(self.present[0], x, len(own)), self.head
                given = features, head.weight, head.bias, self.columns(own), head.loss_name
                return chunked_loss(*given, n_clusters=self.k, ranks=self.ranks)
            scores = self.scores(x)
        return self.head.loss(scores, own).sum()

    def hits(self, mean: Network, x: Tensor, own: Tensor, index: Tensor) -> Tensor:
        """For each observation, the share of other clusters that score lower than its own."""
        with mixed_precision(self.device):
            if self.k > MANY_CLUSTERS or self.ranks.size > 1:
                features = self.features(mean, x, len(own))
                refuse_gaps(features, index)
                given = features, mean.head.weight, mean.head.bias, self.columns(own)
                return mean_hits(*given, self.k, self.ranks)
            scores = mean(x)
        refuse_gaps(scores, index)
        return mean_hit(self.head.margins(scores, own))

    # Steps

    def run(
        self, batches: Tensor, rows: Rows, clusters: Tensor, on_step: OnStep | None = None
    ) -> float:
        """Take one step for each batch; the mean loss per network.

        Parameters
        ----------
        batches : integer Tensor of shape (steps, m, b)
            Rows of each step, for m networks.
        rows : Rows
        clusters : integer Tensor of shape (n,)
        on_step : callable, optional
            Called with the number of steps after each of them.
        """
        for network in self.present:
            network.train()
        head_alone = self.steps_of_head(batches.shape[-1])
        total = torch.zeros((), device=self.device)
        shaped = list(batches.to(self.device))
        if not self.stacked:
            shaped = [index[0] for index in shaped]
        taken = [self.taken(index) for index in shaped]
        for step, (index, x) in enumerate(zip(shaped, rows.stream(taken), strict=True), 1):
            if self.recorded is not None and self.recorded.fits(x):
                loss = self.recorded(x, clusters[index])
            else:
                loss = self.gradients(index, x, rows, clusters)
                if self.steps_taken < head_alone:
                    for param in self.body():
                        param.grad = None  # the optimizer leaves out what has no gradient
                self.optimizer.step()
                if self.steps_taken >= head_alone:
                    self._record(x, clusters[index])
            self.steps_taken += 1
            # Forget quickly at first, because the first weights are poor.
            decay = min(self.averaging, self.steps_taken / (self.steps_taken + 9))
            self.average(1 - decay)
            total += loss
            if on_step is not None:
                on_step(step)
        self.settle(taken, rows)
        mean = float(total) / (len(batches) * len(self.networks))
        if not np.isfinite(mean):
            raise InputError(
                f"the loss became {mean} within {self.steps_taken} steps of training; check X for "
                "extreme values, or choose a lower learning_rate."
            )
        return mean

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
        self.optimizer.zero_grad()
        n = index.shape[-1]
        try:
            if self.parts == 1:
                return _backward(self.loss(x, clusters[index]))
            total = torch.zeros((), device=self.device)
            for part in index.tensor_split(self.parts, dim=-1):
                loss = self.loss(rows.take(part), clusters[part])
                total += _backward(loss * (part.shape[-1] / n))
            return total
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or n < 4 * self.parts:
                raise
        self.parts *= 2
        warn(
            f"memory ran out in training, so batches of {n:,} observations are now computed in "
            f"{self.parts} parts; a smaller batch_size avoids that.",
            OutOfMemoryWarning,
        )
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return self.gradients(index, x, rows, clusters)

    def _record(self, x: Tensor, own: Tensor) -> None:
        """Record a step after the first few, if it can be recorded."""
        self._unrecorded += 1
        # Over blocks of clusters it would save little.
        small = self.parts == 1 and own.numel() * self.k <= BLOCK_ELEMENTS
        if self.recordable and small and self._unrecorded > STEPS_BEFORE:
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
        of_networks = zip(self.means, self.folds, strict=True)
        return np.array([self._accuracy(*one, rows, clusters) for one in of_networks])

    def _accuracy(self, mean: Network, fold: Fold, rows: Rows, clusters: Tensor) -> float:
        hits, counts = np.zeros(self.k), np.zeros(self.k)
        validation = validation_part(fold.validation, clusters, self.k)
        places = torch.from_numpy(validation).to(self.device)
        chunks = [chunk for chunk in places.split(self.at_once()) if len(chunk)]
        for index, x in zip(chunks, rows.stream([self.taken(c) for c in chunks]), strict=True):
            own = clusters[index]
            found = self.hits(mean, x, own, index).cpu().numpy()
            hits += np.bincount(own.cpu(), found, self.k)
            counts += np.bincount(own.cpu(), minlength=self.k)
        n_seen = np.count_nonzero(counts)
        return float((hits / np.maximum(counts, 1)).sum() / n_seen) if n_seen else np.nan

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

    def state(self) -> dict[str, Any]:
        """Weights, averages and kept weights of every network, and the optimizer's numbers."""
        known = self.optimizer.state
        moments = {name: known[param] for name, param in self.params.items() if param in known}
        networks = [
            {"weights": tensors_of(present), "mean": tensors_of(mean), "kept": kept}
            for present, mean, kept in zip(self.present, self.means, self.kept, strict=True)
        ]
        return {"networks": networks, "moments": moments, "steps_taken": self.steps_taken}

    @torch.no_grad()
    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` returned."""
        of_networks = zip(state["networks"], self.present, self.means, self.kept, strict=True)
        for values, present, mean, kept in of_networks:
            copy_into(tensors_of(present), values["weights"])
            copy_into(tensors_of(mean), values["mean"])
            copy_into(kept, values["kept"])
        for name, moments in state["moments"].items():
            copy_into(self.optimizer.state_of(self.params[name]), moments)
        self.steps_taken = state["steps_taken"]


def can_be_stacked(networks: Sequence[Network], rows: Rows) -> bool:
    """Whether the networks are small and ``torch.func`` can batch them, tried on two rows."""
    large = sum(p.numel() for p in networks[0].parameters()) > SMALL_NETWORK
    if len(networks) == 1 or large or not rows.stackable:
        return False
    if any(is_batch_norm(module) for module in networks[0].modules()):
        return False
    device = next(networks[0].parameters()).device
    index = torch.zeros(len(networks), 2, dtype=torch.long, device=device)
    try:
        with torch.no_grad():
            Group(networks, (), learning_rate=0.0, weight_decay=0.0).scores(rows.take(index))
    except Exception:  # a user's network may fail in any way; it is then trained by itself
        return False
    return True


def one_is_enough(networks: Sequence[Network], rows: Rows) -> bool:
    """Whether networks are so small that one thread should train them."""
    n_parameters = sum(p.numel() for p in networks[0].parameters())
    return isinstance(rows, VectorRows) and n_parameters < ONE_THREAD


def joined(networks: Sequence[nn.Module]) -> State:
    """Parameters and buffers by name; those of several networks become parts of larger ones."""
    if len(networks) == 1:
        return {**dict(networks[0].named_parameters()), **dict(networks[0].named_buffers())}
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
    """Copy tensors into those of the same names."""
    for name, target in targets.items():
        if target.shape != values[name].shape:
            raise ValueError
        target.copy_(values[name])


def _backward(loss: Tensor) -> Tensor:
    loss.backward()
    return loss.detach()


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


# Batches

Draw = Callable[[Index, int, np.random.Generator], Index]

# Fewer steps than this per epoch are too few for A to change.
MIN_STEPS = 10

# An epoch has at most this many draws for each cluster, so that with large clusters A is tried as
# often as the number of clusters asks for, and not only after all observations.
MOST_DRAWS = 400
# Not fewer than this in all, which takes little time.
ALWAYS_DRAWN = 20_000


def balanced_draws(clusters: Index, n_draws: int, rng: np.random.Generator) -> Index:
    """Draw rows so that every cluster is drawn equally often; positions in ``clusters``.

    Each run of k draws has one row of every cluster.  The members of a cluster come in random
    order, and all of them come before any is repeated.  If all clusters have the same size and
    ``n_draws = len(clusters)``, this is a plain shuffled epoch.
    """
    sizes = np.bincount(clusters)
    present = np.flatnonzero(sizes)
    rounds = -(-n_draws // len(present))
    visits = rng.permuted(np.tile(present, (rounds, 1)), axis=1).ravel()[:n_draws]
    wanted = np.bincount(visits, minlength=len(sizes))
    passes = -(-wanted // np.maximum(sizes, 1))
    # Each pass has every member once, in random order.
    again = passes[clusters]
    members = np.repeat(np.arange(len(clusters)), again)
    turn = np.arange(len(members)) - np.repeat(np.cumsum(again) - again, again)
    members = members[np.argsort(rng.random(len(members)) + turn)]
    members = members[by_cluster(clusters[members])]
    starts = np.cumsum(passes * sizes) - passes * sizes
    # The t-th draw from a cluster takes the t-th entry of its list.
    order = by_cluster(visits)
    visit_rank = np.arange(n_draws) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    drawn = np.empty(n_draws, np.int64)
    drawn[order] = members[starts[visits[order]] + visit_rank]
    return drawn


def by_cluster(clusters: Index) -> Index:
    """Positions sorted by their clusters, as a stable argsort does it, but six times as fast."""
    positions = np.arange(len(clusters))
    return sparse.csr_array((positions, (clusters, positions))).data


def draws_in_epoch(n_rows: int, n_clusters: int) -> int:
    """Number of observations that are drawn in one epoch, of ``n_rows``.

    Examples
    --------
    >>> draws_in_epoch(10_000, 50), draws_in_epoch(500_000, 500)
    (10000, 200000)
    """
    return min(n_rows, max(MOST_DRAWS * n_clusters, ALWAYS_DRAWN))


def epoch_minibatches(
    train: Sequence[Index],
    clusters: Index,
    batch_size: int,
    rng: np.random.Generator,
    draw: Draw = balanced_draws,
) -> Tensor:
    """Draw one epoch for m networks, each from its own rows; row indices (steps, m, b).

    An epoch is a pass over all rows, or over a part of every cluster where clusters are large.
    """
    k = int(clusters.max()) + 1
    longest = draws_in_epoch(max(len(rows) for rows in train), k)
    batch_size = min(batch_size, longest)
    steps = max(-(-longest // batch_size), MIN_STEPS)
    draws = [rows[draw(clusters[rows], steps * batch_size, rng)] for rows in train]
    return torch.from_numpy(np.stack(draws)).unflatten(1, (steps, batch_size)).transpose(0, 1)


# The optimizer

BETAS, EPS = (0.9, 0.999), 1e-8
# Weights of a large head that are moved at a time.
MOVED_AT_ONCE = 2**24


class AdamW:
    """AdamW by torch's own function, fused into one kernel if the device supports that.

    ``torch.optim.AdamW`` does the same, but loads torch's compiler when it is made, which nothing
    here uses: two seconds and 75 MiB in every program.
    """

    def __init__(self, params: list[Tensor], learning_rate: float, weight_decay: float) -> None:
        self.params = params
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.fused = params[0].device.type in ("cpu", "cuda")
        # Of each parameter that was moved: the number of steps, and both moments.
        self.state: dict[Tensor, State] = {}

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for param in self.params:
            param.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move all parameters that have a gradient by one step."""
        moved = [param for param in self.params if param.grad is not None]
        states = [self.state_of(param) for param in moved]
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

    def state_of(self, param: Tensor) -> State:
        """Numbers of a parameter, zeros at first."""
        if param not in self.state:
            device = param.device if self.fused else None  # where the kernel looks for it
            self.state[param] = {
                "step": torch.zeros((), device=device),
                "exp_avg": torch.zeros_like(param),
                "exp_avg_sq": torch.zeros_like(param),
            }
        return self.state[param]


class LargeHeadAdamW(AdamW):
    """AdamW that keeps 2 bytes instead of 8 for each weight of the matrix ``large``.

    The first moment is stored in bfloat16, whose steps are much finer than what one batch changes
    of it.  Of the second moment only the mean of each row is stored: all weights of a cluster have
    one scale, and a cluster that is seldom drawn another than one that is drawn often.
    """

    def __init__(
        self, params: list[Tensor], large: Tensor, learning_rate: float, weight_decay: float
    ) -> None:
        super().__init__(params, learning_rate, weight_decay)
        self.large, self.kernel = large, usable(large.device)

    @torch.no_grad()
    def step(self) -> None:
        """Move all parameters that have a gradient by one step."""
        gradient, self.large.grad = self.large.grad, None  # AdamW leaves out what has none
        super().step()
        self.large.grad = gradient
        if gradient is None:
            return
        state = self.state_of(self.large)
        state["step"] += 1
        done, rate = float(state["step"]), self.learning_rate
        corrections = 1 - BETAS[0] ** done, 1 - BETAS[1] ** done
        shrink = 1 - rate * self.weight_decay
        moments = state["exp_avg"], state["row_avg_sq"]
        tensors = self.large, gradient.contiguous(), *moments
        if self.kernel:
            move_rows(*tensors, BETAS, corrections, rate, shrink, EPS)
            return
        n = max(1, MOVED_AT_ONCE // self.large.shape[1])
        for w, g, m, v in zip(*(x.split(n) for x in tensors), strict=True):
            norms = torch.linalg.vector_norm(g, dim=1, keepdim=True)
            v.lerp_(norms.square_() / g.shape[1], 1 - BETAS[1])
            mean = m.to(w.dtype).lerp_(g, 1 - BETAS[0])
            m.copy_(mean)
            scale = (v / corrections[1]).sqrt_().add_(EPS)
            w.mul_(shrink).sub_(mean.mul_(rate / corrections[0] / scale))

    def state_of(self, param: Tensor) -> State:
        """Numbers of a parameter, zeros at first."""
        if param is self.large and param not in self.state:
            self.state[param] = {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(param, dtype=torch.bfloat16),
                "row_avg_sq": param.new_zeros((len(param), 1)),
            }
        return super().state_of(param)
