"""Backbone for point clouds: PointNet++ (Qi et al., 2017) with one scale per level.

A cloud is a set of points.  The points are first sorted by their coordinates, and repeated points
count once.  The features thus depend neither on the order of the points nor on repeated points.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from unsplit.errors import InputError
from unsplit.networks.backbones.geometry import (
    content_order,
    farthest_points,
    is_new,
    neighbors,
    own_frame,
    take,
)

# Clouds computed at a time without gradients; the distances in many would fill the memory.
CHUNK = 256


class PointNet2(nn.Module):
    """Turns clouds (b, p, in_features) into features (b, out_features), for any p ≥ 1.

    Centroids are spread over the cloud.  A small network reads the points around each centroid and
    keeps its largest responses.  This is repeated with fewer centroids, then for the whole cloud.

    Parameters
    ----------
    in_features : int
        Numbers per point.  The first three are x, y and z; others, such as colours, are features.
    n_centroids : sequence of int
        Number of centroids at each level, not increasing.  A smaller cloud uses all its points.
    radii : sequence of float
        Radius of the neighbourhoods at each level, in units of the size of the cloud: the mean
        distance of its points from their centre.  Clouds of all sizes are thus treated alike; the
        last layer still sees their size and place.  For a cloud that fills the unit sphere, whose
        size is about 0.55, the default radii are about 0.2 and 0.4.
    n_neighbors : int
        Largest number of points in a neighbourhood: the nearest ones within the radius.
    out_features : int

    Notes
    -----
    Two layers are normalised over their channels.  Without the normalisation in the first layer
    for the whole cloud, learning is slow; normalising around every centroid slows it down too.
    Without the last normalisation, all features can become zero for good if there are many small
    clusters, whose first steps are mostly noise.  Batch normalisation is not used: features of a
    cloud would depend on the other clouds, and its running means would belong to the last weights,
    not to the averaged weights that are kept after training.

    Examples
    --------
    >>> clouds = torch.rand(2, 100, 3)
    >>> network = PointNet2(out_features=64)
    >>> features = network(clouds)
    >>> features.shape
    torch.Size([2, 64])
    >>> torch.equal(network(clouds.flip(1)), features)
    True
    """

    def __init__(
        self,
        in_features: int = 3,
        n_centroids: Sequence[int] = (128, 32),
        radii: Sequence[float] = (0.4, 0.8),
        n_neighbors: int = 16,
        out_features: int = 512,
    ) -> None:
        super().__init__()
        _refuse(in_features, n_centroids, radii)
        self.in_features = in_features
        self.n_centroids = tuple(n_centroids)
        self.out_features = out_features
        widths = [in_features - 3, *(128 * 2**level for level in range(len(radii)))]
        self.levels = nn.ModuleList(
            SetAbstraction(narrow, wide, radius, n_neighbors)
            for (narrow, wide), radius in zip(pairwise(widths), radii, strict=True)
        )
        self.whole = nn.Sequential(
            nn.Linear(3 + widths[-1], 256),
            nn.LayerNorm(256),
            nn.ReLU(),
            nn.Linear(256, out_features),
            nn.ReLU(),
        )
        self.last = nn.Sequential(
            nn.Linear(out_features + 4, out_features), nn.LayerNorm(out_features), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Compute the features of x."""
        if x.ndim != 3 or x.shape[-1] != self.in_features:
            raise InputError(
                f"PointNet2 takes clouds of shape (batch, points, {self.in_features}), got "
                f"{tuple(x.shape)}; set in_features to the number of values per point."
            )
        if len(x) > CHUNK and not torch.is_grad_enabled():
            return torch.cat([self(part) for part in x.split(CHUNK)])
        # In half precision, neighbours could not be told apart.  Autocast has no effect here,
        # because there is no matrix product.
        x = x.float()
        x = take(x, content_order(x))
        new = is_new(x)
        points, centre, size = own_frame(x[..., :3], new)
        features = x[..., 3:]
        order, new_in_order = farthest_points(points, self.n_centroids[0])
        centroids = take(points, order)
        for level, n in zip(self.levels, self.n_centroids, strict=True):
            # The first points in this order are themselves spread over the cloud.
            centroids = centroids[:, :n]
            features = level(points, features, new, centroids)
            points, new = centroids, new_in_order[:, :n]
        whole = self.whole(torch.cat([points, features], -1)).max(dim=1).values
        return self.last(torch.cat([whole, centre.asinh(), size.clamp(min=1e-6).log()], -1))


class SetAbstraction(nn.Module):
    """Computes features (b, m, out_features) of the neighbourhoods of m centroids."""

    def __init__(
        self, in_features: int, out_features: int, radius: float, n_neighbors: int
    ) -> None:
        super().__init__()
        self.radius = radius
        self.n_neighbors = n_neighbors
        hidden = out_features // 2
        # Together these are one linear layer of place and features.  They are separate so that the
        # wider part runs once for every point and not once for every neighbour.
        self.of_place = nn.Linear(3, hidden)
        self.of_features = nn.Linear(in_features, hidden, bias=False) if in_features else None
        self.of_neighbor = nn.Sequential(nn.ReLU(), nn.Linear(hidden, out_features))

    def forward(self, points: Tensor, features: Tensor, new: Tensor, centroids: Tensor) -> Tensor:
        """Compute features at centroids (b, m, 3) from points (b, p, 3) with features (b, p, f)."""
        near = neighbors(points, centroids, self.radius, self.n_neighbors, new)
        places = (take(points, near) - centroids.unsqueeze(2)) / self.radius
        hidden = self.of_place(places)
        if self.of_features is not None:
            hidden = hidden + take(self.of_features(features), near)
        # Taking the maximum before the ReLU gives the same result with less work.
        return self.of_neighbor(hidden).max(dim=2).values.relu()


def _refuse(in_features: int, n_centroids: Sequence[int], radii: Sequence[float]) -> None:
    if in_features < 3:
        raise InputError(
            f"in_features must be at least 3, for x, y and z, got {in_features}; add a column of "
            "zeros to flat clouds."
        )
    falling = all(a >= b >= 1 for a, b in pairwise([*n_centroids, 1]))
    if not n_centroids or len(n_centroids) != len(radii) or not falling:
        raise InputError(
            "n_centroids and radii must have the same length, and n_centroids must be positive and "
            f"not increase, got {tuple(n_centroids)} and {tuple(radii)}."
        )
