"""Layers before every backbone, which bring observations to a common scale."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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


class Shrink(nn.Module):
    """Reduces images so that their shorter side has at most this many pixels, by averaging.

    Parameters
    ----------
    side : int

    Examples
    --------
    >>> Shrink(16)(torch.zeros(2, 3, 64, 96)).shape
    torch.Size([2, 3, 16, 24])
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        """Return smaller images as float32; images that are small enough are returned as is."""
        height, width = x.shape[2:]
        shorter = min(height, width)
        if shorter <= self.side:
            return x
        size = round(height * self.side / shorter), round(width * self.side / shorter)
        return F.adaptive_avg_pool2d(x.float(), size)


class Blur(nn.Module):
    """Adds Gaussian noise in training, so that the network learns blurred densities.

    Clusters that touch then overlap a little, and a border through a dense region looks different
    from a border along a density valley.  The width is in standard deviations of the features.
    """

    def __init__(self, width: float = 0.5) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        """Return x with noise in training, otherwise x itself."""
        return x + self.width * torch.randn_like(x) if self.training else x
