"""Several processes that train together, as torchrun starts them.

Each has a number, its rank.  Rank 0 alone prints, writes and merges; the others train with it.  If
one of them ends, all end, and one of them says so.

Every process computes the features of its part of a batch with a backbone that all have, and holds
the weights of its part of the clusters.  In a step

1. each computes the features of its observations, and all exchange them;
2. each computes what its clusters add to the loss (:mod:`unsplit.networks.chunked`); the scores of
   the own clusters, one or two sums per observation and the gradient of the features are added up;
3. each goes back through its backbone with the gradient of its observations, and the gradients of
   the backbones are added up.

So all backbones stay equal, and the result is that of one process but for the order of sums.  Batch
normalisation and random changes see the part of a batch that their process has.
"""

import contextlib
import copy
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from unsplit.data.rows.base import Rows
from unsplit.devices import ALONE, Ranks, choose_device, computing_with
from unsplit.errors import InputError
from unsplit.networks.network import Network, ScoreHead
from unsplit.networks.training.group import Fold, Group, copy_into, tensors_of

# How long a process waits for another that is alive: rank 0 may select a network meanwhile.
PATIENCE = timedelta(days=1)


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
    ranks, screen = Ranks(dist.get_rank(), dist.get_world_size()), sys.stderr
    with contextlib.ExitStack() as stack:
        if ranks.rank:  # only rank 0 prints and is interrupted: when it ends, so do the others
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        stack.enter_context(computing_with(ranks))
        try:
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


def _leave(error: BaseException, ranks: Ranks, screen: Any, kept: Callable[[], str]) -> NoReturn:
    """End after an error, without waiting for the others; the first that has one says it."""
    if is_lost(error):
        error = InputError(
            f"one of the {ranks.size} processes of this run has ended or was stopped, and the "
            f"others cannot go on without it; {kept()}."
        )
    if not isinstance(error, (ValueError, OSError)) and not hasattr(error, "exit_code"):
        raise error
    if _is_first():
        if ranks.rank == 0:
            raise error  # it is said as in a run of one process
        sentence = str(getattr(error, "message", error))
        screen.write(f"unsplit: {' '.join(sentence.split())}\n")
        screen.flush()
    os._exit(2)


def is_lost(error: BaseException) -> bool:
    """Return whether an error says that another process has ended or no longer answers.

    Examples
    --------
    >>> is_lost(RuntimeError("[/pytorch/third_party/gloo/pair.cc:1] Connection closed by peer"))
    True
    >>> is_lost(ValueError("x"))
    False
    """
    if isinstance(error, (dist.DistError, ConnectionResetError)):
        return True
    signs = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def _is_first() -> bool:
    """Return whether this process is the first to say why the run is over."""
    try:
        store = dist.distributed_c10d._get_default_store()
        return bool(store.add("unsplit/reason", 1) == 1)
    except Exception:  # whoever held the messages has ended too
        return True


class Sharded(Group):
    """A network whose clusters are divided between the processes of a run.

    Parameters
    ----------
    networks, folds : sequences of one Network and one Fold
        The same in all processes.
    ranks : Ranks
    *rates : float
        Learning rate, weight decay and averaging, as of a Group.
    """

    def __init__(
        self, networks: Sequence[Network], folds: Sequence[Fold], ranks: Ranks, *rates: float
    ) -> None:
        (self.whole,) = networks
        head, self.ranks = self.whole.head, ranks
        self.own = ranks.part(head.n_clusters)
        super().__init__([self._shard()], folds, *rates, n_clusters=head.n_clusters)
        self.recordable = False  # processes wait for each other in a step
        self._shared = [param for param in self.body() if param.requires_grad]

    def _shard(self) -> Network:
        """Copy the network, with the output weights of the own clusters alone."""
        n, head = self.own.stop - self.own.start, self.whole.head
        part = ScoreHead(head.in_features, n, head.loss_name)
        if not head.weight.is_meta:
            part.load_state_dict({name: v[self.own] for name, v in head.state_dict().items()})
        backbone = copy.deepcopy(self.whole.backbone)
        where = next(p.device for p in self.whole.parameters() if not p.is_meta)
        return Network(backbone, part.to(where), self.whole.most_at_once)

    def at_once(self) -> int:
        """Number of observations of all processes, each with as many as its network takes."""
        return super().at_once() * self.ranks.size

    def taken(self, index: Tensor) -> Tensor:
        """The part of the rows whose features this process computes."""
        return index[self.ranks.part(len(index))]

    def features(self, network: Network, x: Tensor, n: int) -> Tensor:
        """The features of all n observations of a batch, of which x are the own."""
        return _Gathered.apply(network.backbone(x), n, self.ranks)

    def columns(self, clusters: Tensor) -> Tensor:
        """Places of clusters among the own ones; −1 for those of other processes."""
        inside = (clusters >= self.own.start) & (clusters < self.own.stop)
        return (clusters - self.own.start).where(inside, -1)

    def gradients(self, index: Tensor, x: Tensor, rows: Rows, clusters: Tensor) -> Tensor:
        """Compute the gradients of a batch; those of the backbones are added up."""
        self.optimizer.zero_grad()
        loss = self.loss(x, clusters[index])
        loss.backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._shared]
        if grads:
            whole = self.ranks.sum(torch.cat([grad.flatten() for grad in grads]))
            parts = whole.split([grad.numel() for grad in grads])
            for param, part in zip(self._shared, parts, strict=True):
                param.grad = part.view(param.shape)
        return loss.detach()

    @torch.no_grad()
    def settle(self, batches: Sequence[Tensor], rows: Rows) -> None:
        """Prepare the averaged weights for evaluation: all use the mean of what each measured."""
        super().settle(batches, rows)
        for value in self.means[0].buffers():
            if value.is_floating_point():
                value.copy_(self.ranks.sum(value.clone()) / self.ranks.size)

    # The whole network, for checkpoints and at the end

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the network, with the weights of all clusters."""
        return self._joined_heads(super().state())

    @torch.no_grad()
    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint, of any number of processes."""
        super().load(_of_heads(state, lambda rows: rows[self.own]))

    def _joined_heads(self, state: Any) -> Any:
        """Put the rows of all processes together where values belong to clusters."""
        return _of_heads(state, lambda rows: self.ranks.joined(rows, self.k))

    @torch.no_grad()
    def restore(self) -> None:
        """Write the remembered weights into the network, and set it to evaluation mode."""
        if self.whole.head.weight.is_meta:
            # A head that was too large to be made before is made now.
            self.whole.head.to_empty(device=self.device)
        copy_into(tensors_of(self.whole), self._joined_heads(self.kept[0]))
        self.whole.eval()


def _of_heads(state: Any, change: Callable[[Tensor], Tensor], of_head: bool = False) -> Any:
    """Change the tensors that have a row for each cluster."""
    if isinstance(state, dict):
        return {
            name: _of_heads(value, change, of_head or name.startswith("head."))
            for name, value in state.items()
        }
    if isinstance(state, list):
        return [_of_heads(value, change) for value in state]
    return change(state) if of_head and state.ndim else state


class _Gathered(torch.autograd.Function):
    """The rows of all processes; each goes back with the gradient of its own."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, n: int, ranks: Ranks) -> Tensor:
        ctx.span = ranks.part(n)
        return ranks.joined(own, n)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return slopes[0][ctx.span].contiguous(), None, None
