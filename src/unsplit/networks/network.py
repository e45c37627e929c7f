"""What all networks share (scaling, head, loss, random numbers), and the network for vectors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from unsplit._typing import Index
from unsplit.data.rows.base import Rows
from unsplit.devices import own_generator
from unsplit.errors import InputError, observation


class MLP(nn.Module):
    """Turns vectors (n, d) into features (n, 2·width): those of two layers side by side.

    The first layer is normalised, which helped more than any other single change on small, noisy
    clusters.  As it is before its ReLU, the head can draw linear boundaries at once, so that half
    the width is enough (docs/method.md, "The network").

    Parameters
    ----------
    in_features : int
        Number of features of the data, d.
    width : int
        Units of both layers.

    Examples
    --------
    >>> import torch
    >>> MLP(3, width=16)(torch.rand(2, 3)).shape
    torch.Size([2, 32])
    """

    def __init__(self, in_features: int, width: int = 128) -> None:
        super().__init__()
        self.out_features = 2 * width
        self.first = nn.Sequential(nn.Linear(in_features, width), nn.LayerNorm(width))
        self.second = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """Compute the features of x."""
        linear = self.first(x)
        return torch.cat([self.second(linear), linear], dim=-1)


class Standardize(nn.Module):
    """Subtracts a mean and divides by a scale; both are fixed, not learned."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        """Return a standardised copy of x."""
        return (x - self.mean) / self.scale


class StandardizeSequences(Standardize):
    """Standardises sequences whose last channel is a mask; padding stays zero."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a standardised copy of x (b, C + 1, L)."""
        return super().forward(x) * x[:, -1:]


def margins(scores: Tensor, clusters: Tensor) -> Tensor:
    """Score of the own cluster minus the score of every cluster.

    Half precision is widened first, because the difference of two large bfloat16 numbers keeps
    almost no digits.

    Parameters
    ----------
    scores : Tensor of shape (..., n, k)
    clusters : integer Tensor of shape (..., n)

    Returns
    -------
    Tensor of shape (..., n, k)
        Zero in the column of the own cluster.

    Examples
    --------
    >>> margins(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0]))
    tensor([[0., 2., 1.]])
    """
    scores = _at_least_float32(scores)
    return scores.gather(-1, clusters.unsqueeze(-1)) - scores


def pairwise_logistic_loss(scores: Tensor, clusters: Tensor) -> Tensor:
    r"""The paper's balanced pairwise logistic loss of every observation, from k scores.

    .. math:: \frac{1}{k-1} \sum_{j \ne i} \log(1 + e^{z_j(x) - z_i(x)})

    The row term and the column term of the paper's formula are the same number with the same
    weight (docs/method.md), so k scores do the work of k² outputs.  The paper's total loss is the
    mean over clusters of the mean over their observations.

    Parameters
    ----------
    scores : Tensor of shape (..., n, k)
    clusters : integer Tensor of shape (..., n)

    Returns
    -------
    Tensor of shape (..., n)

    Examples
    --------
    >>> scores = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    >>> pairwise_logistic_loss(scores, torch.tensor([0, 1]))  # log(1 + e**-2)
    tensor([0.1269, 0.1269])
    """
    return _mean_of_others(-F.logsigmoid(margins(scores, clusters)), clusters)


def softmax_loss(scores: Tensor, clusters: Tensor) -> Tensor:
    """Cross-entropy of every observation, which has the same minimiser as the pairwise loss.

    Examples
    --------
    >>> softmax_loss(torch.zeros(2, 4), torch.tensor([0, 3]))  # log(4)
    tensor([1.3863, 1.3863])
    """
    log_softmax = F.log_softmax(_at_least_float32(scores), dim=-1)
    return -log_softmax.gather(-1, clusters.unsqueeze(-1)).squeeze(-1)


def pair_matrix_loss(logits: Tensor, clusters: Tensor) -> Tensor:
    """The paper's loss of every observation, from one output per ordered pair (..., n, k, k).

    An observation of cluster i counts with label 0 in row i and with label 1 in column i; all
    other outputs are masked.

    Examples
    --------
    >>> pair_matrix_loss(torch.zeros(2, 3, 3), torch.tensor([0, 2]))  # log(2)
    tensor([0.6931, 0.6931])
    """
    row, column = own_row_and_column(logits, clusters)
    return _mean_of_others(-(F.logsigmoid(-row) + F.logsigmoid(column)) / 2, clusters)


def balanced(losses: Tensor, clusters: Tensor, sizes: Tensor) -> Tensor:
    """Mean over clusters of the mean of their losses (..., n), where clusters have these sizes."""
    return (losses / sizes.to(losses)[clusters]).sum(-1) / len(sizes)


def own_row_and_column(logits: Tensor, clusters: Tensor) -> tuple[Tensor, Tensor]:
    """Row i and column i of each observation's (k, k) outputs, where i is its own cluster.

    Examples
    --------
    >>> own_row_and_column(torch.arange(4.0).reshape(1, 2, 2), torch.tensor([0]))
    (tensor([[0., 1.]]), tensor([[0., 2.]]))
    """
    logits, own = _at_least_float32(logits), clusters[..., None, None]
    row = logits.take_along_dim(own, dim=-2).squeeze(-2)
    column = logits.take_along_dim(own, dim=-1).squeeze(-1)
    return row, column


def _at_least_float32(scores: Tensor) -> Tensor:
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def _mean_of_others(per_pair: Tensor, clusters: Tensor) -> Tensor:
    others = per_pair.scatter(-1, clusters.unsqueeze(-1), 0.0).sum(-1)
    return others / (per_pair.shape[-1] - 1)


LOSSES = {"pairwise": pairwise_logistic_loss, "softmax": softmax_loss}
"""Losses of observations with k scores, by name."""


# Weights of a head that is so large that copies of it count (256 MiB in float32).
LARGE_HEAD = 2**26


class ScoreHead(nn.Linear):
    """Computes k scores from h features: k·h parameters for all k(k−1)/2 pairs.

    Starts at zero, so an untrained network calls every pair a tie.

    Parameters
    ----------
    in_features : int
        Number of features, h.
    n_clusters : int
        Number of clusters, k.
    loss : {"pairwise", "softmax"}
        Name of the loss in :data:`LOSSES`.

    Examples
    --------
    >>> import torch
    >>> ScoreHead(8, 3)(torch.ones(5, 8)).shape
    torch.Size([5, 3])
    """

    def __init__(self, in_features: int, n_clusters: int, loss: str = "pairwise") -> None:
        super().__init__(in_features, n_clusters)
        self.n_clusters = n_clusters
        self.loss_name = loss
        self.loss_function: Callable[..., Tensor] = LOSSES[loss]
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def reset_parameters(self) -> None:
        """Draw weights, unless there are very many: they start at zero in any case."""
        if self.weight.numel() <= LARGE_HEAD:
            super().reset_parameters()

    def loss(self, scores: Tensor, clusters: Tensor) -> Tensor:
        """Mean loss of observations drawn evenly from the clusters."""
        return self.loss_function(scores, clusters).mean(-1)

    def margins(self, scores: Tensor, clusters: Tensor) -> Tensor:
        """Score for the own cluster minus the score for every cluster, shape (..., n, k)."""
        return margins(scores, clusters)


class PairMatrixHead(ScoreHead):
    """One logit per ordered pair of clusters: k²·h parameters.

    Parameters
    ----------
    in_features, n_clusters : int
        As for :class:`ScoreHead`.

    Examples
    --------
    >>> PairMatrixHead(8, 3)(torch.ones(5, 8)).shape
    torch.Size([5, 3, 3])
    """

    def __init__(self, in_features: int, n_clusters: int) -> None:
        super().__init__(in_features, n_clusters * n_clusters)
        self.n_clusters = n_clusters
        self.loss_function = pair_matrix_loss

    def forward(self, features: Tensor) -> Tensor:
        """Logits of shape (..., n, k, k)."""
        return super().forward(features).unflatten(-1, (self.n_clusters, self.n_clusters))

    def margins(self, logits: Tensor, clusters: Tensor) -> Tensor:
        """Mean of the two outputs of each pair, shape (..., n, k)."""
        row, column = own_row_and_column(logits, clusters)
        return (column - row) / 2


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

    @torch.no_grad()
    def features_of(self, rows: Rows, index: Index, found: NDArray[np.float32]) -> None:
        """Write the features of the rows at ``index`` into ``found``, shape (len(index), h)."""
        places = torch.from_numpy(index).to(rows.device)
        batches = [batch for batch in places.split(self.most_at_once) if len(batch)]
        done = 0
        for batch, x in zip(batches, rows.stream(batches), strict=True):
            features = self.backbone(x).float()
            refuse_gaps(features, batch)
            found[done : done + len(batch)] = features.cpu().numpy()
            done += len(batch)


def refuse_gaps(values: Tensor, index: Tensor) -> None:
    """Raise an error if a network returned NaN or infinity for a row in ``index``.

    Such a score would count as a miss, as if the network had been wrong.  ``values`` has the shape
    (*index.shape, ...).
    """
    bad = ~torch.isfinite(values).flatten(index.ndim).all(dim=-1)
    if bad.any():
        raise InputError(
            f"the network returned NaN or infinity for {observation(int(index[bad][0]))}; check "
            "it, or your own network for a division by zero."
        )


# Random numbers: from the generator of the run, never from torch's global one.

# Functions and methods of torch that take a generator and draw from the global one without it.
_DRAWING = {
    "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial",
    "normal_", "uniform_", "bernoulli_", "exponential_", "random_",
}  # fmt: skip


def uniform(size: Sequence[int], device: torch.device) -> Tensor:
    """Draw numbers from 0 to 1.

    Examples
    --------
    >>> uniform((2, 3), torch.device("cpu")).shape
    torch.Size([2, 3])
    """
    return torch.rand(size, device=device, generator=own_generator(device))


def normal_like(x: Tensor) -> Tensor:
    """Draw standard normal numbers, of the shape and type of x."""
    return torch.empty_like(x).normal_(generator=own_generator(x.device))


def integers(low: int, high: int, n: int, device: torch.device) -> Tensor:
    """Draw n whole numbers from ``low`` to ``high`` − 1.

    Examples
    --------
    >>> integers(3, 4, 2, torch.device("cpu"))
    tensor([3, 3])
    """
    return torch.randint(low, high, (n,), device=device, generator=own_generator(device))


class DrawFromRun(TorchFunctionMode):
    """Inside this block, torch's layers are initialised from the generator of the run.

    torch calls this for every function, so it is for building networks, not for training them.

    Examples
    --------
    >>> from unsplit.devices import private_randomness
    >>> before = torch.get_rng_state()
    >>> with private_randomness(0), DrawFromRun():
    ...     layer = torch.nn.Linear(2, 3)
    >>> torch.equal(before, torch.get_rng_state())
    True
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, with a generator if it takes one and has none."""
        given = dict(kwargs or {})
        takes_one = "generator" in given or getattr(func, "__name__", "") in _DRAWING
        if takes_one and given.get("generator") is None:
            given["generator"] = own_generator(_device_of(args, given))
        return func(*args, **given)


def _device_of(args: Sequence[Any], given: Mapping[str, Any]) -> torch.device:
    tensors = [value for value in (*args, *given.values()) if isinstance(value, Tensor)]
    if tensors:
        return tensors[0].device
    return torch.device(given.get("device") or "cpu")
