"""Backbone for observations that are plain vectors."""

import torch
from torch import Tensor, nn


class Standardize(nn.Module):
    """Subtract a mean and divide by a scale; both are fixed numbers, not learned."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        """Standardised copy of x."""
        return (x - self.mean) / self.scale


class Blur(nn.Module):
    """Add Gaussian noise while training, so that what is learned are densities blurred by it.

    Clusters that touch then overlap a little, and a border that cuts through a dense region looks
    different from one along a valley.  The width is in standard deviations of the features.
    """

    def __init__(self, width: float = 0.5) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        """Blurred x in training, x itself otherwise."""
        return x + self.width * torch.randn_like(x) if self.training else x


class MLP(nn.Module):
    """Vectors (n, d) to features (n, width).

    Two hidden layers.  The first is normalised: on small, noisy clusters that was worth more than
    any other single change, and normalising the second too costs accuracy where the best boundary
    is linear (docs/method.md, "The network").  Normalised features are bounded, though, which
    bends score differences far from a border; where their shape matters, leave it out.
    """

    def __init__(self, in_features: int, width: int = 256, normalize: bool = True) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(in_features, width),
            nn.LayerNorm(width) if normalize else nn.Identity(),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features of x."""
        return self.layers(x)
