"""Backbone that knows nothing of the data's structure, to compare with those that do."""

import math
from collections.abc import Sequence

from torch import Tensor, nn


class SingleLayer(nn.Module):
    """Observations (b, …) to features (b, width): all numbers in a row, one hidden layer.

    The baseline of the paper's experiment on point clouds.  The paper does not tell its width.
    Points have no order of their own, so it sees coordinates of points in arbitrary places.

    Parameters
    ----------
    in_features : int or sequence of int
        Numbers per observation, or its shape.
    width : int

    Examples
    --------
    >>> import torch
    >>> SingleLayer((100, 3))(torch.rand(2, 100, 3)).shape
    torch.Size([2, 1024])
    """

    def __init__(self, in_features: int | Sequence[int], width: int = 1024) -> None:
        super().__init__()
        n = in_features if isinstance(in_features, int) else math.prod(in_features)
        self.out_features = width
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(n, width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """Features of x."""
        return self.layers(x)
