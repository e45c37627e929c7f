"""Maps that never lengthen a distance, many of them side by side."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

# How far Adam's usual step takes a matrix, in the Frobenius norm, and a bias, in units of its first
# value.  Matrices stay within the reach of Newton's iteration, 0.73, at 2.35 times that, and with
# the betas below no step is longer.
TURN = 0.2
MOVE = 0.05

# From singular values in 1 ± TURN, as many take them to 1 within single precision.
NEWTON_STEPS = 4


class FoldingMaps(nn.Module):
    """M · B maps x → (x − UUᵀx, ψ(Uᵀx)); each folds a few directions and leaves the others alone.

    U has ``width`` orthonormal columns (or rows, where there are fewer features), and ψ alternates
    rotations, shifts and sorting in pairs, none of which lengthens a distance.  So a map does not
    either, and without the folds it would be an isometry: differences of means are there from the
    start, and training can only add to them.

    What a map does to the difference δ of two observations is known from δ itself and what
    :meth:`forward` gives: with the signs (+, −) for its two halves,

        |map(x) − map(y)|² = |δ|² + Σ signs · (forward(x) − forward(y))².

    Parameters
    ----------
    n_models, n_maps : int
        M models, one for each fold say, of B maps.
    n_features, width, depth : int
        Features of x, and coordinates (even) and layers of ψ.

    Rows x should have mean zero and E|x|² = 1: the first biases, which say where to fold, are drawn
    to suit.
    """

    signs: Tensor

    def __init__(self, n_models: int, n_maps: int, n_features: int, width: int, depth: int) -> None:
        super().__init__()
        sizes = [n_features] + [width] * depth
        stack = n_models, n_maps
        self.weights = nn.ParameterList(
            [_orthonormal(*stack, a, b) for a, b in pairwise(sizes)]
        )
        self.typical = 1 / math.sqrt(max(n_features, width))
        self.biases = nn.ParameterList(
            [self.typical * torch.randn(*stack, 1, width // 2) for _ in range(depth)]
        )
        self.register_buffer("signs", torch.tensor([1.0, -1.0]).repeat_interleave(width))

    def forward(self, x: Tensor) -> Tensor:
        """ψ(Uᵀx) and Uᵀx, shape (M, B, b, 2 · width), of x (M, b, n_features)."""
        inside = x[:, None] @ self.weights[0]
        folded = fold(inside, self.biases[0])
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            folded = fold(folded @ weight, bias)
        return torch.cat([folded, inside], dim=-1)

    def optimizer(self) -> torch.optim.Adam:
        """Adam with steps that :meth:`straighten` can follow."""
        turns = [
            {"params": [w], "lr": TURN / math.sqrt(w.shape[-1] * w.shape[-2])} for w in self.weights
        ]
        moves = {"params": list(self.biases), "lr": MOVE * self.typical}
        return torch.optim.Adam([*turns, moves], betas=(0.9, 0.99))

    @torch.no_grad()
    def straighten(self) -> None:
        """Make all matrices orthonormal again after a step."""
        for weight in self.weights:
            weight.copy_(nearest_orthonormal(weight))


def fold(z: Tensor, bias: Tensor) -> Tensor:
    """Fold half of the coordinates, each at minus its bias; no distance grows.

    Between rotations this is as much as sorting coordinates in pairs, which is the same turned by
    45 degrees, and quicker.

    Examples
    --------
    >>> fold(torch.tensor([-3.0, 1.0, -5.0, 7.0]), torch.tensor([1.0, 1.0]))
    tensor([ 2.,  2., -5.,  7.])
    """
    half = bias.shape[-1]
    return torch.cat([(z[..., :half] + bias).abs(), z[..., half:]], dim=-1)


def nearest_orthonormal(weight: Tensor) -> Tensor:
    """The orthonormal matrix (..., a, b) closest to one that is nearly so.

    Newton's iteration for the polar factor: products only, so it is quick on every device.

    Examples
    --------
    >>> nearest_orthonormal(torch.tensor([[0.9, 0.0], [0.0, 1.1]]))
    tensor([[1.0000, 0.0000],
            [0.0000, 1.0000]])
    """
    tall = weight.shape[-2] > weight.shape[-1]
    for _ in range(NEWTON_STEPS):
        cubed = weight @ (weight.mT @ weight) if tall else (weight @ weight.mT) @ weight
        weight = 1.5 * weight - 0.5 * cubed
    return weight


def _orthonormal(n_models: int, n_maps: int, a: int, b: int) -> Tensor:
    """Random matrices (M, B, a, b) with orthonormal columns, or rows if there are fewer of them."""
    drawn = torch.linalg.qr(torch.randn(n_models, n_maps, max(a, b), min(a, b))).Q
    return (drawn if a >= b else drawn.mT).contiguous()
