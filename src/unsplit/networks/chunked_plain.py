"""What one block of scores adds to a loss over blocks of clusters, in plain torch.

:mod:`unsplit.networks.chunked_kernel` does the same faster where Triton runs.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


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
