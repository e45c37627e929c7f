"""Backbone for observations that are plain vectors."""

from torch import Tensor, nn


class MLP(nn.Module):
    """Vectors (n, d) to features (n, width).

    Two hidden layers.  The first is normalised: on small, noisy clusters that was worth more than
    any other single change, and normalising the second too costs accuracy where the best boundary
    is linear (docs/method.md, "The network").  Normalised features are bounded, though, which
    bends score differences far from a border; where their shape matters, leave it out.
    """

    def __init__(self, in_features: int, width: int = 256, normalize: bool = True) -> None:
        super().__init__()
        self.out_features = width
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
