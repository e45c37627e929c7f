"""Backbone for vectors."""

from torch import Tensor, nn


class MLP(nn.Module):
    """Turns vectors (n, d) into features (n, width) with two hidden layers.

    The first layer is normalised, which helped more than any other single change on small, noisy
    clusters.  Normalising the second layer too costs accuracy if the best boundary is linear
    (docs/method.md, "The network").  Normalised features are bounded, so score differences level
    off far from a border; use ``normalize=False`` if their shape matters.

    Parameters
    ----------
    in_features : int
        Number of features of the data, d.
    width : int
        Units of both layers.
    normalize : bool
        Normalise the first layer.

    Examples
    --------
    >>> import torch
    >>> MLP(3, width=16)(torch.rand(2, 3)).shape
    torch.Size([2, 16])
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
        """Compute the features of x."""
        return self.layers(x)
