"""Backbones for point clouds: PointNet++ (Qi et al., 2017), and a small one for CPUs.

A cloud is a set of points.  The points are first sorted by their coordinates, and repeated points
count once.  The features thus depend neither on the order of the points nor on repeated points.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from unsplit.errors import InputError

# Clouds computed at a time without gradients; the distances in many would fill the memory.
CHUNK = 256

# Points of a cloud that the small network reads.  A was not higher with more: docs/data.md.
POINTS_READ = 128


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
        _require_space(in_features)
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
        if len(x) > CHUNK and not torch.is_grad_enabled():
            return torch.cat([self(part) for part in x.split(CHUNK)])
        points, features, new, centre, size = framed(x)
        order, new_in_order = farthest_points(points, self.n_centroids[0])
        centroids = take(points, order)
        for level, n in zip(self.levels, self.n_centroids, strict=True):
            # The first points in this order are themselves spread over the cloud.
            centroids = centroids[:, :n]
            features = level(points, features, new, centroids)
            points, new = centroids, new_in_order[:, :n]
        whole = self.whole(torch.cat([points, features], -1)).max(dim=1).values
        return self.last(torch.cat([whole, centre, size], -1))


class PointNet(nn.Module):
    """Turns clouds (b, p, in_features) into features (b, out_features), quickly without a GPU too.

    Two layers read each point by itself.  The largest response to any point and the mean response
    are kept, together with the place and the size of the cloud, as in PointNet (Qi et al., 2017).
    How points lie to each other, which :class:`PointNet2` reads, is not seen.  Of more than 128
    points 128 are read, evenly spaced in the order of their coordinates.

    Parameters
    ----------
    in_features : int
        Numbers per point.  The first three are x, y and z; others, such as colours, are features.
    out_features : int

    Examples
    --------
    >>> clouds = torch.rand(2, 100, 3)
    >>> network = PointNet()
    >>> network(clouds).shape, torch.equal(network(clouds.flip(1)), network(clouds))
    (torch.Size([2, 128]), True)
    """

    def __init__(self, in_features: int = 3, out_features: int = 128) -> None:
        super().__init__()
        _require_space(in_features)
        self.in_features = in_features
        self.out_features = out_features
        hidden = out_features // 2
        self.of_point = nn.Sequential(
            nn.Linear(in_features, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, out_features),
            nn.ReLU(),
        )
        self.last = nn.Sequential(
            nn.Linear(2 * out_features + 4, out_features), nn.LayerNorm(out_features), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Compute the features of x."""
        points, features, new, centre, size = framed(x)
        read = torch.cat([points, features], -1)
        if read.shape[1] > POINTS_READ:
            read = take(read, evenly_spaced(new, POINTS_READ))
            new = is_new(read)
        found = self.of_point(read)
        mean = (share(new) * found).sum(dim=1)
        return self.last(torch.cat([found.amax(dim=1), mean, centre, size], -1))


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


class SingleLayer(nn.Module):
    """Turns observations (b, …) into features (b, width) with one layer on all their numbers.

    The baseline of the paper's experiment on point clouds; the paper does not state its width.
    The points of a cloud have no order, so the layer gets their coordinates in an arbitrary order.

    Parameters
    ----------
    shape : sequence of int
        Of an observation.
    width : int

    Examples
    --------
    >>> import torch
    >>> SingleLayer((100, 3))(torch.rand(2, 100, 3)).shape
    torch.Size([2, 1024])
    """

    def __init__(self, shape: Sequence[int], width: int = 1024) -> None:
        super().__init__()
        self.out_features = width
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """Compute the features of x."""
        return self.layers(x)


def _require_space(in_features: int) -> None:
    if in_features < 3:
        raise InputError(
            f"in_features must be at least 3, for x, y and z, got {in_features}; add a column of "
            "zeros to flat clouds."
        )


def framed(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Sort the points of clouds (b, p, c), and see each cloud in a frame of its own.

    Returns the points (b, p, 3), their features (b, p, c − 3), whether each is new (b, p), and
    centre (b, 3) and size (b, 1) of the cloud as numbers of moderate size.
    """
    # In half precision, neighbours could not be told apart.  Autocast has no effect here, because
    # there is no matrix product.
    x = x.float()
    x = take(x, content_order(x))
    new = is_new(x)
    points, centre, size = own_frame(x[..., :3], new)
    return points, x[..., 3:], new, centre.asinh(), size.clamp(min=1e-6).log()


def take(values: Tensor, index: Tensor) -> Tensor:
    """Take the values (b, p, c) at index (b, …); shape (b, …, c).

    Examples
    --------
    >>> take(torch.tensor([[[5.0], [6.0]]]), torch.tensor([[1, 1, 0]])).flatten()
    tensor([6., 6., 5.])
    """
    # Unlike gather, this sums gradients in a fixed order, also on a GPU.
    rows = torch.arange(len(values), device=values.device)
    return values[rows.view(-1, *[1] * (index.ndim - 1)), index]


@torch.no_grad()
def content_order(x: Tensor) -> Tensor:
    """Index (b, p) that sorts the points of x (b, p, c) by their first number, second number, …

    Examples
    --------
    >>> content_order(torch.tensor([[[2.0, 1.0], [1.0, 9.0], [2.0, 0.0]]]))
    tensor([[1, 2, 0]])
    """
    order = x[..., -1].argsort(dim=1, stable=True)
    for column in reversed(x[..., :-1].unbind(-1)):
        order = order.gather(1, column.gather(1, order).argsort(dim=1, stable=True))
    return order


def is_new(x: Tensor) -> Tensor:
    """Whether each point of sorted x (b, p, c) differs from the one before it, shape (b, p).

    Examples
    --------
    >>> is_new(torch.tensor([[[1.0], [1.0], [2.0]]]))
    tensor([[ True, False,  True]])
    """
    differs = (x[:, 1:] != x[:, :-1]).any(dim=-1)
    return torch.cat([torch.ones_like(x[:, :1, 0], dtype=torch.bool), differs], dim=1)


def share(new: Tensor) -> Tensor:
    """Weight of each point in a mean over the points that are new, shape (b, p, 1).

    Examples
    --------
    >>> share(torch.tensor([[True, False, True]])).flatten()
    tensor([0.5000, 0.0000, 0.5000])
    """
    return (new / new.sum(dim=1, keepdim=True)).unsqueeze(-1)


def evenly_spaced(new: Tensor, n: int) -> Tensor:
    """Index (b, n) of points that are new, evenly spaced among them.

    Examples
    --------
    >>> evenly_spaced(torch.tensor([[True, False, True, True, True]]), 2)
    tensor([[0, 3]])
    """
    count = new.cumsum(dim=1)
    wanted = torch.arange(n, device=new.device) * count[:, -1:] // n + 1
    return torch.searchsorted(count, wanted)


def own_frame(points: Tensor, new: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centre points (b, p, 3) and divide them by their size.

    Returns the points, their centre (b, 3) and their size (b, 1).

    Examples
    --------
    >>> points = torch.tensor([[[1.0, 0.0, 0.0], [5.0, 0.0, 0.0]]])
    >>> points, centre, size = own_frame(points, is_new(points))
    >>> points[..., 0], centre, size
    (tensor([[-1.,  1.]]), tensor([[3., 0., 0.]]), tensor([[2.]]))
    """
    weight = share(new)
    centre = (weight * points).sum(dim=1, keepdim=True)
    points = points - centre
    # Not the root of the mean square, because a few stray points would make it much larger.
    size = (weight * points.norm(dim=-1, keepdim=True)).sum(dim=1, keepdim=True)
    return points / torch.where(size > 0, size, 1.0), centre.squeeze(1), size.squeeze(1)


@torch.no_grad()
def farthest_points(points: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Choose points that are far apart: first the farthest from the origin, then from all chosen.

    Parameters
    ----------
    points : Tensor of shape (b, p, 3)
    n : int

    Returns
    -------
    index, new : Tensor of shape (b, min(n, p))
        If all distinct points are chosen, one of them is repeated and ``new`` is false there.

    Examples
    --------
    >>> points = torch.tensor([[[0.0, 0, 0], [1, 0, 0], [3, 0, 0], [5, 0, 0]]])
    >>> farthest_points(points, 3)[0]
    tensor([[3, 0, 2]])
    """
    # With the coordinates first, the loop runs over long contiguous rows.
    points = points.movedim(-1, 0).contiguous()
    farthest = points.square().sum(0).argmax(dim=1, keepdim=True)
    gap = torch.full_like(points[0], torch.inf)
    chosen, is_far = [farthest], [torch.ones_like(farthest, dtype=torch.bool)]
    for _ in range(min(n, points.shape[-1]) - 1):
        last = points.gather(2, farthest.expand(3, -1, -1))
        gap = torch.minimum(gap, (points - last).square().sum(0))
        largest, farthest = gap.max(dim=1, keepdim=True)
        chosen.append(farthest)
        is_far.append(largest > 0)
    return torch.cat(chosen, dim=1), torch.cat(is_far, dim=1)


@torch.no_grad()
def neighbors(points: Tensor, centroids: Tensor, radius: float, n: int, new: Tensor) -> Tensor:
    """Index (b, m, min(n, p)) of the nearest points within the radius of each centroid.

    If there are fewer, the nearest point is repeated, even if it lies outside the radius.

    Examples
    --------
    >>> points = torch.tensor([[[0.0, 0, 0], [1, 0, 0], [3, 0, 0], [4, 0, 0]]])
    >>> neighbors(points, points[:, :1], 2.0, 3, is_new(points))
    tensor([[[0, 1, 0]]])
    """
    pairs = zip(centroids.unbind(-1), points.unbind(-1), strict=True)
    squared: Tensor = sum((c.unsqueeze(2) - p.unsqueeze(1)).square() for c, p in pairs)  # type: ignore[assignment]
    squared = torch.where(new.unsqueeze(1), squared, torch.inf)
    distance, index = squared.topk(min(n, points.shape[1]), dim=2, largest=False)
    return torch.where(distance <= radius**2, index, index[..., :1])
