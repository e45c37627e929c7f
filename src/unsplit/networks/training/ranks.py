"""Several processes that train together, as torchrun starts them.

Each has a number, its rank.  Rank 0 alone prints, writes and merges; the others train with it and
wait for what it asks next.  If one of them ends, all end, and one of them says so.

Every process computes the features of its part of a batch with a backbone that all have, and holds
the weights of its part of the clusters.  In a step

1. each computes the features of its observations, and all exchange them;
2. each computes what its clusters add to the loss (:mod:`unsplit.networks.chunked`); the scores of
   the own clusters, one or two sums per observation and the gradient of the features are added up;
3. each goes back through its backbone with the gradient of its observations, and the gradients of
   the backbones are added up.

So all backbones stay equal, and the result is that of one process but for the order of sums.
Random changes to observations are drawn for the whole batch, and so are the statistics of batch
normalisation measured.  If memory runs out in one process, all compute the batch in parts
(:class:`Alarm`).
"""

import contextlib
import copy
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from unsplit.data.memory import is_out_of_memory
from unsplit.data.rows.base import Rows
from unsplit.devices import ALONE, Ranks, choose_device, computing_with, current, mixed_precision
from unsplit.errors import InputError
from unsplit.networks.chunked import (
    blocks_for,
    hits_over_blocks,
    own_scores,
    product_type,
    sharded_loss,
)
from unsplit.networks.network import (
    LARGE_HEAD,
    Network,
    ScoreHead,
    drawing_a_part,
    refuse_gaps,
)
from unsplit.networks.training.group import Fold, Group, NetworkState, is_batch_norm
from unsplit.networks.training.optimizer import AdamW
from unsplit.networks.training.single import Single, settling

# How long a process waits in training for another that is alive but does nothing, and for rank 0
# to ask for more.
PATIENCE, ANY_TIME = timedelta(minutes=30), timedelta(days=365)
LOST = 1  # the exit code after another process has ended

# Steps of an epoch in which processes ask each other, before every message, whether memory has run
# out.  Later steps need no more than these, unless observations differ in size.
WATCHED_STEPS = 16


# The beginning and the end


@contextlib.contextmanager
def together(device: str | torch.device, kept: Callable[[], str]) -> Iterator[Ranks]:
    """Join the processes that torchrun started; without it, be alone.

    Parameters
    ----------
    device : str or torch.device
        Where they will compute; on CUDA each has a GPU of its own.
    kept : callable
        Says what an interrupted run leaves behind.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    _join(choose_device(device))
    everyone = dist.new_group(backend="gloo", timeout=ANY_TIME)
    ranks = Ranks(dist.get_rank(), dist.get_world_size(), everyone)
    screen = sys.stderr
    try:
        with _as_one_of(ranks), computing_with(ranks):
            yield ranks
    except BaseException as error:
        _leave(error, ranks, screen, kept)
    dist.destroy_process_group()


def _join(where: torch.device) -> None:
    if where.type not in ("cpu", "cuda"):
        raise InputError(
            f"several processes compute on a CPU or on CUDA, got {where.type}; use --device cpu."
        )
    # For tensors of the CPU there is always gloo, beside what the GPUs use.
    backend = "cpu:gloo,cuda:nccl" if where.type == "cuda" else "gloo"
    if where.type == "cuda":
        n_gpus, place = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", "0"))
        torch.cuda.set_device(place % n_gpus)
        if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > n_gpus:
            backend = "cpu:gloo,cuda:gloo"  # NCCL has no two processes on one GPU
    dist.init_process_group(backend, timeout=PATIENCE)


class StoppedError(BaseException):
    """torchrun ends this process, because another has ended or the run was interrupted."""


def _stop(*_: object) -> NoReturn:
    raise StoppedError


@contextlib.contextmanager
def _as_one_of(ranks: Ranks) -> Iterator[None]:
    """Let only rank 0 print and be interrupted: when it ends, so do the others."""
    with contextlib.ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _stop))
        if ranks.rank:
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            stack.callback(signal.signal, signal.SIGINT, before)
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        yield


def _leave(error: BaseException, ranks: Ranks, screen: Any, kept: Callable[[], str]) -> NoReturn:
    """End after an error, without waiting for the others; the first that has one says it."""
    lost, code = is_lost(error), getattr(error, "exit_code", None)
    if not lost and code is None and not isinstance(error, (ValueError, OSError)):
        raise error
    first = _is_first()
    if first and ranks.rank == 0 and not lost:
        raise error  # it is said as in a run of one process
    if first:
        sentence = str(getattr(error, "message", error))
        if lost:
            sentence = (
                f"one of the {ranks.size} processes of this run has ended or was stopped, and the "
                f"others cannot go on without it; {kept()}"
            )
        with contextlib.suppress(OSError):
            screen.write(f"unsplit: {' '.join(sentence.split())}\n")
    with contextlib.suppress(OSError):
        screen.flush()
    os._exit(LOST if lost else code or 2)


def is_lost(error: BaseException) -> bool:
    """Return whether an error says that another process has ended or no longer answers.

    Examples
    --------
    >>> is_lost(RuntimeError("[/pytorch/third_party/gloo/pair.cc:1] Connection closed by peer"))
    True
    >>> is_lost(ValueError("x"))
    False
    """
    if isinstance(error, (dist.DistError, ConnectionResetError, StoppedError)):
        return True
    signs = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def _is_first() -> bool:
    """Return whether this process is the first to say why the run is over."""
    try:
        store = dist.distributed_c10d._get_default_store()
        return bool(store.add("unsplit/told", 1) == 1)
    except Exception:  # whoever held the messages has ended too
        return True


# What processes tell each other about a batch


class OutOfMemoryElsewhereError(MemoryError):
    """Memory ran out in another process."""


class Alarm:
    """Lets all processes give a step up if memory runs out in one of them.

    The others would wait for its next message for ever.  So each message of a step follows a short
    one in which every process says whether it can go on; if one cannot, all give the step up.

    Batch normalisation sends messages from within a backbone, and a process that cannot go on does
    not know how many are still to come.  These are therefore as long as the short ones: it answers
    each of them with zeros, until the others meet.  An error that comes while a message is sent is
    not covered.

    Parameters
    ----------
    ranks : Ranks
    norms : sequence of modules
        The batch normalisations of a network, whose messages are sent through :meth:`sum`.
    device : torch.device
        Of the network.
    """

    def __init__(self, ranks: Ranks, norms: list[nn.BatchNorm1d], device: torch.device) -> None:
        self.ranks = ranks
        # The sums of all channels and the number of observations.
        width = 1 + max(norm.num_features for norm in norms) if norms else 0
        # Last, how many cannot go on, and how many have met.  Made now: later there may be no room.
        where = device if norms else torch.device("cpu")
        self._words = torch.zeros(width + 2, device=where)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Raise the alarm if memory runs out in this block, before whose messages all meet."""
        self.ranks.alarm = self
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            here = is_out_of_memory(error) and not isinstance(error, OutOfMemoryElsewhereError)
            if here:
                self._answer()
            raise
        finally:
            self.ranks.alarm = None

    def meet(self) -> None:
        """Wait for the others; raise an error if one of them cannot go on."""
        failed, _ = self._exchanged(0, 1)
        if failed:
            raise OutOfMemoryElsewhereError("in another process")

    def _answer(self) -> None:
        """Answer the messages of the others until all know that this process cannot go on."""
        met, failed = 0.0, 0.0
        while not met and failed < self.ranks.size:
            failed, met = self._exchanged(1, 0)

    def _exchanged(self, failed: int, met: int) -> list[float]:
        self._words.zero_()
        self._words[-2], self._words[-1] = failed, met
        dist.all_reduce(self._words)
        found: list[float] = self._words[-2:].tolist()
        return found

    def sum(self, values: Tensor) -> Tensor:
        """Add up what a batch normalisation sends, in a message as long as all others."""
        message = torch.zeros_like(self._words)
        message[: len(values)] = values
        dist.all_reduce(message)
        return message[: len(values)]


class Sharded(Group):
    """Networks of one or more folds, divided between the processes of a run.

    Parameters
    ----------
    networks, folds, learning_rate, weight_decay
        As for the other groups; the networks are the same in all processes.
    ranks : Ranks
    """

    def __init__(
        self,
        networks: Sequence[Network],
        folds: Sequence[Fold],
        learning_rate: float,
        weight_decay: float,
        ranks: Ranks,
    ) -> None:
        super().__init__(networks, folds)
        self.ranks = ranks
        self.recordable = False  # processes wait for each other in a step
        self.k = self.head.n_clusters
        self.own = ranks.part(self.k)
        large = self.k * self.head.in_features > LARGE_HEAD
        self.members = [
            Single([self._shard_of(network)], [fold], learning_rate, weight_decay, large)
            for network, fold in zip(networks, folds, strict=True)
        ]
        self.optimizer = _Together([member.optimizer for member in self.members])
        norms: list[Any] = [m for m in networks[0].backbone.modules() if is_batch_norm(m)]
        self.alarm = Alarm(ranks, norms, self.device)
        self._watched_until = WATCHED_STEPS
        self._shared: list[Tensor] = [
            param
            for member in self.members
            for param in member.network.backbone.parameters()
            if param.requires_grad
        ]

    def _shard_of(self, network: Network) -> Network:
        """Copy a network, with the output weights of the own clusters alone."""
        n, head = self.own.stop - self.own.start, network.head
        part = ScoreHead(head.in_features, n, head.loss_name).to(self.device)
        if not head.weight.is_meta:
            part.load_state_dict({name: v[self.own] for name, v in head.state_dict().items()})
        backbone = with_shared_statistics(copy.deepcopy(network.backbone))
        return Network(backbone, part, network.most_at_once)

    # What all groups do, for every network

    def train(self, training: bool) -> None:
        """Switch between training and evaluation mode; an epoch begins with the former."""
        self._watched_until = self.steps_taken + WATCHED_STEPS
        for member in self.members:
            member.train(training)

    def body(self) -> list[Tensor]:
        """Parameters of all backbones."""
        return self._shared

    def average(self, share: float) -> None:
        """Move the averaged weights by this share towards the present weights."""
        for member in self.members:
            member.average(share)

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Remember the averaged weights of the networks in ``mask``."""
        for member, kept in zip(self.members, np.split(mask, len(mask)), strict=True):
            member.keep(kept)

    def settle(self, batches: Sequence[Tensor], rows: Rows) -> None:
        """Measure the batch-normalisation statistics of the averaged weights."""
        n = batches[0].shape[-1]
        last = [self.taken(batch) for batch in batches[-settling(n) :]]
        for i, member in enumerate(self.members):
            with self._part_of(n):
                member.settle([self._rows_of(part, i) for part in last], rows)

    def at_once(self) -> int:
        """So many that every process has as many as its network takes at a time."""
        return self.members[0].at_once() * self.ranks.size

    def shaped(self, index: Tensor) -> Tensor:
        """Reshape row indices (1, b) of one network to (b,)."""
        return index[0] if len(self.networks) == 1 else index

    def taken(self, index: Tensor) -> Tensor:
        """The part of the rows whose features this process computes."""
        return index[..., self.ranks.part(index.shape[-1])]

    def _rows_of(self, values: Tensor, i: int) -> Tensor:
        """What belongs to one network."""
        return values if len(self.networks) == 1 else values[i]

    # The loss

    def scores(self, x: Tensor, of_mean: bool = False) -> Tensor:
        """Not available: no process has the scores for all clusters."""
        raise NotImplementedError

    def least_in_parts(self) -> int:
        """So many that every process has some of each part."""
        return super().least_in_parts() * self.ranks.size

    def _attempt(self, index: Tensor, x: Tensor, rows: Rows, clusters: Tensor) -> Tensor:
        """Compute the gradients of a batch, of which ``x`` is the own part; its loss."""
        total, n = torch.zeros((), device=self.device), index.shape[-1]
        watched = rows.ragged or self.steps_taken < self._watched_until
        with self.alarm.watching() if watched else contextlib.nullcontext():
            for part in index.tensor_split(self.parts, dim=-1):
                own = x if self.parts == 1 else rows.take(self.taken(part))
                total += self._pass(part, own, clusters, part.shape[-1] / n)
            grads, whole = self._sum_of_gradients()
        # Nothing is allocated from here on, so no process fails when the others go on.
        for grad, part in zip(grads, whole.split([g.numel() for g in grads]), strict=True):
            grad.copy_(part.view(grad.shape))
        return total

    def _pass(self, index: Tensor, x: Tensor, clusters: Tensor, share: float) -> Tensor:
        """Add the gradients of a part of a batch, which is this share of it; what it adds."""
        total = torch.zeros((), device=self.device)
        for i, member in enumerate(self.members):
            own = self._rows_of(clusters[index], i)
            with mixed_precision(self.device):
                features = self._features(member.network, self._rows_of(x, i), len(own))
                head = member.network.head
                loss = share * sharded_loss(
                    features, head.weight, head.bias, self._columns(own), self.k,
                    self.head.loss_name, self.ranks,
                )  # fmt: skip
            loss.backward()
            total += loss.detach()
        return total

    def _features(self, network: Network, x: Tensor, n: int) -> Tensor:
        """The features of all n observations of a batch, of which x are the own."""
        with self._part_of(n):
            own = network.backbone(x)
        whole: Tensor = _Gathered.apply(own, n, self.ranks)
        return whole

    def _part_of(self, n: int) -> Any:
        span = self.ranks.part(n)
        return drawing_a_part(span.start, span.stop, n)

    def _columns(self, clusters: Tensor) -> Tensor:
        """Places of clusters among the own ones; −1 for those of other processes."""
        inside = (clusters >= self.own.start) & (clusters < self.own.stop)
        return (clusters - self.own.start).where(inside, -1)

    def _sum_of_gradients(self) -> tuple[list[Tensor], Tensor]:
        """The gradients of the backbones, and their sums over all processes, in one message."""
        for param in self._shared:
            if param.grad is None:
                param.grad = torch.zeros_like(param)
        grads = [param.grad for param in self._shared if param.grad is not None]
        return grads, self.ranks.sum(torch.cat([grad.flatten() for grad in grads]))

    def hits(self, x: Tensor, own: Tensor, index: Tensor) -> Tensor:
        """For each observation, the share of other clusters that score lower than its own."""
        found = []
        for i, member in enumerate(self.members):
            clusters, head = self._rows_of(own, i), member.mean.head
            with mixed_precision(self.device):
                features = self._features(member.mean, self._rows_of(x, i), len(clusters))
                kind = product_type(features, head.weight)
            refuse_gaps(features, self._rows_of(index, i))
            features, columns = features.to(kind), self._columns(clusters)
            score = self.ranks.sum(own_scores(features, head.weight, head.bias, columns))
            blocks = blocks_for(len(features), kind, features.device)
            won = hits_over_blocks(features, head.weight, head.bias, columns, score, blocks)
            found.append(self.ranks.sum(won) / (2 * max(self.k - 1, 1)))
        return torch.stack(found)

    # Whole networks, for checkpoints and at the end

    def state(self) -> list[NetworkState]:
        """What a checkpoint keeps of the networks, with the weights of all clusters."""
        return [
            {part: self._whole(values) for part, values in state.items()}
            for member in self.members
            for state in member.state()
        ]

    def load(self, states: Sequence[NetworkState]) -> None:
        """Continue from a checkpoint, of any number of processes."""
        for member, state in zip(self.members, states, strict=True):
            own = {n: _of_heads(v, lambda rows: rows[self.own]) for n, v in state.items()}
            member.load([own])

    def _whole(self, values: dict[str, Any]) -> dict[str, Any]:
        """Put the rows of all processes together where values belong to clusters."""
        return _of_heads(values, lambda rows: self.ranks.joined(rows, self.k))

    @torch.no_grad()
    def restore(self) -> None:
        """Write the remembered weights into the networks, and set them to evaluation mode."""
        for member, network in zip(self.members, self.networks, strict=True):
            # A head that was too large to be made before is made now.
            network.load_state_dict(self._whole(member.kept), assign=network.head.weight.is_meta)
            network.eval()

    def averaged(self) -> list[Network]:
        """Copies of the networks with their averaged weights, for evaluation."""
        copies = [copy.deepcopy(network) for network in self.networks]
        for member, network in zip(self.members, copies, strict=True):
            network.load_state_dict(self._whole(member.mean.state_dict()))
            network.eval()
        return copies


def _of_heads(values: dict[str, Any], change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Change the tensors that have a row for each cluster."""

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: changed(one) for name, one in value.items()}
        return change(value) if value.ndim else value

    return {n: changed(v) if n.startswith("head.") else v for n, v in values.items()}


class _Together(AdamW):
    """Several optimizers as one."""

    def __init__(self, optimizers: Sequence[AdamW]) -> None:
        self.optimizers = optimizers

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()


class _Gathered(torch.autograd.Function):
    """The rows of all processes; each goes back with the gradient of its own."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, n: int, ranks: Ranks) -> Tensor:
        ctx.span = ranks.part(n)
        return ranks.joined(own, n)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return slopes[0][ctx.span].contiguous(), None, None


class _Summed(torch.autograd.Function):
    """The sum over all processes, whose gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ranks: Ranks) -> Tensor:
        # In a step its messages are those of the alarm.
        ctx.sum = ranks.sum if ranks.alarm is None else ranks.alarm.sum
        return ctx.sum(values.clone())

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.sum(slopes[0].clone()), None


class SharedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch normalisation by the mean and variance of the observations of all processes.

    torch has one for CUDA only.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of axes will do."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (n, channels, ...)."""
        ranks = current()
        if not self.training or ranks.size == 1:
            return super().forward(x)
        axes, shape = [0, *range(2, x.ndim)], (1, -1, *[1] * (x.ndim - 2))
        wide = x.float()
        n = torch.tensor([wide.numel() / wide.shape[1]], device=x.device)
        sums: Tensor = _Summed.apply(torch.cat([wide.sum(axes), n]), ranks)
        count = sums[-1:]
        mean = sums[:-1] / count
        centred = wide - mean.view(shape)
        squares: Tensor = _Summed.apply(centred.square().sum(axes), ranks)
        variance = squares / count
        self._remember(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        normal = centred * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if self.num_batches_tracked is None or self.running_mean is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        running: list[Any] = [self.running_mean, self.running_var]
        for kept, found in zip(running, (mean, variance), strict=True):
            kept.lerp_(found.to(kept.dtype), share)


def with_shared_statistics(module: nn.Module) -> nn.Module:
    """Let every batch normalisation of a module see the whole batch; the module itself changes.

    Examples
    --------
    >>> type(with_shared_statistics(nn.Sequential(nn.BatchNorm1d(2)))[0]).__name__
    'SharedBatchNorm'
    """
    for part in module.modules():
        if is_batch_norm(part):
            part.__class__ = SharedBatchNorm  # with the same weights, under the same names
    return module
