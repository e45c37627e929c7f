"""Backbone that ignores the structure of the data, as a baseline for the others."""

import math
from collections.abc import Sequence

from torch import Tensor, nn


class SingleLayer(nn.Module):
    """Turns observations (b, …) into features (b, width) with one layer on all their numbers.

    The baseline of the paper's experiment on point clouds; the paper does not state its width.
    The points of a cloud have no order, so the layer gets their coordinates in an arbitrary order.

    Parameters
    ----------
    in_features : int or sequence of int
        Number of values per observation, or the shape of an observation.
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
        """Compute the features of x."""
        return self.layers(x)
