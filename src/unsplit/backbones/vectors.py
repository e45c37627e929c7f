"""Backbone for observations that are plain vectors."""

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


class MLP(nn.Module):
    """Vectors (n, d) to features (n, width).

    Two hidden layers.  The first is normalised: on small, noisy clusters that was worth more than
    any other single change, and normalising the second too costs accuracy where the best boundary
    is linear (docs/method.md, "The network").
    """

    def __init__(self, in_features: int, width: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(in_features, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features of x."""
        return self.layers(x)
