"""The losses over blocks of clusters: the scores (b, k) of a batch are never held at once.

With a million clusters, the scores of 4,096 observations and their gradient would take 30 GiB.
Here the scores of one block of clusters are computed, turned into their gradient in place, and
multiplied with the features and the weights before the next block begins.  So the gradients are
known when the loss is, and the backward pass only hands them over.

Both losses are sums over the *other* clusters j of an observation with own score z_own, and what
must be known of them before the gradient is one number per observation, the shift s:

- pairwise: the loss is Σ softplus(z_j − s), the slope of z_j is sigmoid(z_j − s), s = z_own;
- softmax: the slope of z_j is exp(z_j − s), s = log Σ exp(z) over all clusters, and the loss is
  s − z_own.  This takes one more product of features and weights, to find s.

The slope of the own score is minus the sum of the others.  The clusters may be divided between
processes: each computes the blocks of its own, and `Ranks` add up what has one number
per observation, and the gradient of the features.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from unsplit.devices import ALONE, Ranks
from unsplit.networks.chunked_kernel import KernelLogSumExp, KernelSums, usable

# Elements of a block of scores.  That of a processor should stay in its cache; on an H200, blocks
# that do were slower than larger ones, whose products are more efficient (docs/scale.md).
CPU_BLOCK = 2**20
GPU_BLOCK = 2**27


@dataclass(frozen=True)
class Blocks:
    """How the blocks are computed; what suits the device is chosen by :func:`blocks_for`.

    Parameters
    ----------
    size : int
        Clusters in a block.
    kernel : bool
        Turn scores into slopes with one kernel of Triton.
    """

    size: int
    kernel: bool = False


def chunked_loss(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    columns: Tensor,
    loss: str = "softmax",
    blocks: Blocks | None = None,
    n_clusters: int | None = None,
    ranks: Ranks = ALONE,
) -> Tensor:
    """Mean loss of observations drawn evenly from the clusters, over blocks of clusters.

    It equals the mean of :data:`unsplit.networks.network.LOSSES` of the scores
    ``features @ weight.T + bias``.  If each of several processes holds some of the clusters, all
    pass the same features and get the same loss and the whole gradient of the features; each gets
    the gradient of its own weights.

    Parameters
    ----------
    features : Tensor of shape (b, h)
    weight : Tensor of shape (k, h)
    bias : Tensor of shape (k,)
    columns : integer Tensor of shape (b,)
        Place of the own cluster in ``weight``; −1 if another process holds it.
    loss : {"softmax", "pairwise"}
    blocks : Blocks, optional
    n_clusters : int, optional
        Number of clusters of all processes; k if None.
    ranks : Ranks

    Returns
    -------
    Tensor of shape ()

    Examples
    --------
    >>> features, weight = torch.zeros(2, 3), torch.zeros(4, 3)
    >>> chunked_loss(features, weight, torch.zeros(4), torch.tensor([0, 3])).item()  # log(4)
    1.386294...
    """
    kind, inputs = product_type(features, weight), (features, weight, bias)
    with torch.no_grad(), torch.autocast(features.device.type, enabled=False):
        blocks = blocks or blocks_for(len(features), kind, features.device)
        size = min(blocks.size, len(weight))
        features = features.to(kind)
        own = ranks.sum(own_scores(features, weight, bias, columns))
        shift, factor = own, 1 / len(features)
        if loss == "softmax":
            others = log_sum_exp(features, weight, bias, columns, blocks)
            shift = torch.logaddexp(own, ranks.log_sum_exp(others))
        else:
            factor = 1 / (len(features) * max((n_clusters or len(weight)) - 1, 1))
        sums = (KernelSums if blocks.kernel else PlainSums)(columns, shift, loss, size)
        gradients = over_blocks(sums, features, weight, bias, factor, blocks)
        if loss == "softmax":
            values, slopes = shift - own, -torch.expm1(own - shift)
        else:
            values, slopes = ranks.sum(sums.values), ranks.sum(sums.slopes)
        _add_own(gradients, features, weight, columns, -factor * slopes)
        gradients[0] = ranks.sum(gradients[0])
        value = factor * values.sum()
    known: Tensor = _Known.apply(value, gradients, *inputs)
    return known


@torch.no_grad()
def mean_hits(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    columns: Tensor,
    n_clusters: int | None = None,
    ranks: Ranks = ALONE,
) -> Tensor:
    """Share of the other clusters that score lower than the own cluster; ties count half.

    Parameters are those of :func:`chunked_loss`.

    Examples
    --------
    >>> weight = torch.tensor([[3.0], [1.0], [2.0], [2.0]])
    >>> mean_hits(torch.ones(1, 1), weight, torch.zeros(4), torch.tensor([2]))
    tensor([0.5000])
    """
    kind = product_type(features, weight)
    found = torch.zeros(len(features), dtype=torch.long, device=features.device)
    with torch.autocast(features.device.type, enabled=False):
        blocks = blocks_for(len(features), kind, features.device)
        features = features.to(kind)
        own = ranks.sum(own_scores(features, weight, bias, columns))[:, None]
        for start, _, scores in _scores(features, weight, blocks):
            scores = scores.to(own.dtype).add_(bias[start : start + scores.shape[1]])
            scores = without_own(scores, columns - start)
            found += 2 * (scores < own).sum(1) + (scores == own).sum(1)
    # The score of the own cluster was made the lowest of all.
    found = ranks.sum(found - 2 * (columns >= 0).long())
    return found / (2 * max((n_clusters or len(weight)) - 1, 1))


class _Known(torch.autograd.Function):
    """A value whose gradients were computed together with it."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *inputs: Tensor) -> Tensor:
        pairs = zip(gradients, inputs, strict=True)
        ctx.save_for_backward(*(gradient.to(x.dtype) for gradient, x in pairs))
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = slopes
        gradients = ctx.saved_tensors
        # Usually the loss is not scaled, and a product would copy the largest tensors there are.
        if float(slope) != 1:
            gradients = [slope.to(gradient.dtype) * gradient for gradient in gradients]
        return (None, None, *gradients)


def product_type(features: Tensor, weight: Tensor) -> torch.dtype:
    """Choose the type of the numbers that are multiplied.

    bfloat16 on CUDA, where autocast or the features have it; otherwise at least float32, because
    a CPU gains nothing from less, and the slopes of many clusters are too small for float16.
    """
    wanted = torch.promote_types(features.dtype, weight.dtype)
    if features.device.type == "cuda":
        if torch.is_autocast_enabled("cuda"):
            wanted = torch.get_autocast_dtype("cuda")
        elif torch.bfloat16 in (features.dtype, weight.dtype):
            wanted = torch.bfloat16
        if wanted == torch.bfloat16:
            return wanted
    return torch.promote_types(wanted, torch.float32)


def blocks_for(n_rows: int, kind: torch.dtype, device: torch.device) -> Blocks:
    """Choose how the blocks of a batch of ``n_rows`` observations are computed."""
    elements = GPU_BLOCK if device.type == "cuda" else CPU_BLOCK
    # A multiple of 256, as tiles of products are.
    size = max(256, elements // max(n_rows, 1) // 256 * 256)
    return Blocks(size, kernel=kind != torch.float64 and usable(device))


def own_scores(features: Tensor, weight: Tensor, bias: Tensor, columns: Tensor) -> Tensor:
    """Scores for the own clusters, at least float32; zero where ``columns`` is −1."""
    wide = wide_type(features.dtype)
    if not len(weight):
        return torch.zeros(len(features), dtype=wide, device=features.device)
    at = columns.clamp(min=0)
    rows = weight[at].to(features.dtype).to(wide)
    scores = (features.to(wide) * rows).sum(1) + bias[at].to(wide)
    return scores.where(columns >= 0, 0.0)


def log_sum_exp(
    features: Tensor, weight: Tensor, bias: Tensor, columns: Tensor, blocks: Blocks
) -> Tensor:
    """Logarithm of Σ exp(score) over all clusters but the own; −∞ if there are no others."""
    wide = wide_type(features.dtype)
    size = min(blocks.size, len(weight))
    sums = (KernelLogSumExp if blocks.kernel else PlainLogSumExp)(columns, size)
    for start, _, scores in _scores(features, weight, blocks):
        sums.add(scores, bias[start : start + scores.shape[1]], start)
    return sums.value.to(wide)


def over_blocks(
    sums: Any, features: Tensor, weight: Tensor, bias: Tensor, factor: float, blocks: Blocks
) -> list[Tensor]:
    """Gradients of features, weights and bias, times a factor, without those of the own clusters.

    ``sums`` gets the sums of the slopes and, for the pairwise loss, of softplus(z_j − shift).
    """
    wide, device = wide_type(features.dtype), features.device
    d_weight, d_bias = torch.empty_like(weight), torch.empty(len(weight), dtype=wide, device=device)
    d_features = torch.zeros(features.shape, dtype=wide, device=device)
    for start, rows, scores in _scores(features, weight, blocks):
        here = slice(start, start + scores.shape[1])
        sums.turn(scores, bias[here], start, d_bias[here])
        _product(d_features, scores, rows, 1.0, add=True)
        _product(d_weight[here], scores.T, features, factor)
    return [factor * d_features, d_weight, d_bias.mul_(factor)]


def _scores(
    features: Tensor, weight: Tensor, blocks: Blocks
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """First cluster, weights and scores without bias of each block; the next overwrites them."""
    kind, n = features.dtype, len(features)
    size = min(blocks.size, len(weight))
    scores = torch.empty(n * size, dtype=kind, device=features.device)
    for start in range(0, len(weight), max(size, 1)):
        rows = weight[start : start + size].to(kind)
        out = scores[: n * len(rows)].view(n, len(rows))
        yield start, rows, torch.mm(features, rows.T, out=out)


def _product(out: Tensor, one: Tensor, other: Tensor, factor: float, add: bool = False) -> None:
    """Write the product of two matrices, times a factor, straight into ``out``, or add it."""
    if out.dtype == one.dtype:
        torch.addmm(out, one, other, beta=int(add), alpha=factor, out=out)
    elif _WIDENS and out.is_cuda and out.dtype == torch.float32:
        torch.ops.aten.addmm.dtype_out(
            out, one, other, torch.float32, beta=int(add), alpha=factor, out=out
        )
    elif add:
        out.add_(torch.mm(one, other), alpha=factor)
    else:
        out.copy_(torch.mm(one, other).mul_(factor))


# Newer versions of torch write products of bfloat16 as float32.
_WIDENS = hasattr(torch.ops.aten.addmm, "dtype_out")


def _add_own(
    gradients: list[Tensor], features: Tensor, weight: Tensor, columns: Tensor, slopes: Tensor
) -> None:
    """Add what the own scores, with these slopes, give to the gradients."""
    if not len(weight):
        return
    of_features, of_weight, of_bias = gradients
    at, wide = columns.clamp(min=0), of_features.dtype
    slopes = slopes.where(columns >= 0, 0.0)
    own = slopes[:, None] * features.to(wide)
    # index_put_ adds in a fixed order on a GPU, and index_add_ does not.
    of_weight.index_put_((at,), own.to(weight.dtype), accumulate=True)
    of_bias.index_put_((at,), slopes, accumulate=True)
    of_features.addcmul_(slopes[:, None], weight[at].to(features.dtype).to(wide))


# What one block adds; chunked_kernel.py does the same faster where Triton runs.


class PlainSums:
    """Turns scores into slopes in place, and sums them by observation."""

    def __init__(self, columns: Tensor, shift: Tensor, loss: str, size: int) -> None:
        self.columns, self.shift, self.loss = columns, shift[:, None], loss
        self.values, self.slopes = torch.zeros_like(shift), torch.zeros_like(shift)

    def turn(self, scores: Tensor, bias: Tensor, start: int, of_bias: Tensor) -> None:
        """Replace scores by slopes, and write the sum of the slopes of every cluster."""
        margins = scores.to(self.shift.dtype).add_(bias).sub_(self.shift)
        margins = without_own(margins, self.columns - start)
        if self.loss == "softmax":
            slopes = margins.exp_()
        else:
            self.values -= F.logsigmoid(-margins).sum(1)
            slopes = margins.sigmoid_()
        self.slopes += slopes.sum(1)
        torch.sum(slopes, 0, out=of_bias)
        if slopes is not scores:
            scores.copy_(slopes)


class PlainLogSumExp:
    """Logarithm of the sum of exp(score) over all blocks, for every observation."""

    def __init__(self, columns: Tensor, size: int) -> None:
        self.columns = columns
        self.value = torch.tensor(-torch.inf, device=columns.device).expand(len(columns))

    def add(self, scores: Tensor, bias: Tensor, start: int) -> None:
        """Add a block of scores."""
        scores = scores.to(wide_type(scores.dtype)).add_(bias)
        scores = without_own(scores, self.columns - start)
        self.value = torch.logaddexp(self.value, scores.logsumexp(1))


def without_own(scores: Tensor, places: Tensor) -> Tensor:
    """Write −∞ over the scores for the own clusters that are in this block."""
    n = scores.shape[1]
    inside = ((places >= 0) & (places < n))[:, None]
    at = places.clamp(0, n - 1)[:, None]
    return scores.scatter_(1, at, scores.gather(1, at).masked_fill_(inside, -torch.inf))


def wide_type(kind: torch.dtype) -> torch.dtype:
    """Type of sums: at least float32."""
    return torch.promote_types(kind, torch.float32)
