"""Layers before every backbone, which bring observations to a common scale."""

from torch import Tensor, nn

from unsplit.networks.random_numbers import normal_like


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
        return x + self.width * normal_like(x) if self.training else x
