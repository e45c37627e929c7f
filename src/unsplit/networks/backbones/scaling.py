"""What comes before every backbone: observations brought to a common scale."""

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


class StandardizeSequences(Standardize):
    """The same for sequences with a mask as last channel; padding stays zero."""

    def forward(self, x: Tensor) -> Tensor:
        """Standardised copy of x (b, C + 1, L)."""
        return super().forward(x) * x[:, -1:]


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
