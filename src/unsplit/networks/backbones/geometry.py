"""Order, size, spread and neighbours of points, computed for batches of clouds."""

import torch
from torch import Tensor


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
    weight = (new / new.sum(dim=1, keepdim=True)).unsqueeze(-1)
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
