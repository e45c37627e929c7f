"""Random changes of point clouds that leave what they show the same."""

import math

import torch
from torch import Tensor, nn

from unsplit.errors import InputError

# Noise beyond so many standard deviations is cut.
CLIP = 3.0


class PointAugmentation(nn.Module):
    """Turn, scale, jitter and thin out every cloud of a batch by its own draw, while training.

    Everything happens about the cloud's own centre.  Of points that have more than three numbers
    the first three, x, y and z, are changed.

    Parameters
    ----------
    rotation : bool
        Turn by any angle about the vertical.
    scaling : float
        Make larger or smaller by up to this share, as often the one as the other.
    jitter : float
        Move every point by Gaussian noise of this standard deviation, cut at three, in units of
        the cloud's own size: the root of the mean squared distance from its centre.
    dropout : float
        Leave out up to this share of the points, as if they had not been measured.  Their places
        are filled with the first point that is kept, so that the shape stays.
    up : "x", "y" or "z"
        The vertical axis.

    Examples
    --------
    >>> augmentation = PointAugmentation.for_points()
    >>> clouds = torch.randn(8, 100, 3)
    >>> augmentation(clouds).shape
    torch.Size([8, 100, 3])
    >>> augmentation.eval()(clouds) is clouds
    True
    """

    def __init__(
        self,
        rotation: bool = False,
        scaling: float = 0.0,
        jitter: float = 0.0,
        dropout: float = 0.0,
        up: str = "z",
    ) -> None:
        super().__init__()
        for name, value in {"scaling": scaling, "jitter": jitter, "dropout": dropout}.items():
            if not 0 <= value < 1:
                raise InputError(f"{name} must be at least 0 and less than 1, got {value!r}.")
        if up not in ("x", "y", "z"):
            raise InputError(f'up must be "x", "y" or "z", got {up!r}.')
        self.rotation = rotation
        self.scaling = scaling
        self.jitter = jitter
        self.dropout = dropout
        self.up = up

    @classmethod
    def for_points(cls) -> "PointAugmentation":
        """What cannot turn a cloud into one of another cluster.

        Another scan of the same object has other points of its surface, not quite in place.
        Clouds are neither turned nor scaled: how an object stands or how large it is may be all
        that tells two clusters apart, and they would look the same.  Where it is known to mean
        nothing, ``PointAugmentation(rotation=True, …)`` makes more of few clouds.

        Examples
        --------
        >>> PointAugmentation.for_points().rotation
        False
        """
        return cls(jitter=0.02, dropout=0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Changed copies of clouds (b, p, 3 + features) in training, x itself otherwise."""
        if not self.training:
            return x
        if self.rotation or self.scaling or self.jitter:
            x = torch.cat([self._moved(x[..., :3]), x[..., 3:]], dim=2)
        # Last, so that the copies of a point are equal and can be seen to be one.
        return self._thinned(x) if self.dropout else x

    def _moved(self, points: Tensor) -> Tensor:
        n, device = len(points), points.device
        centre = points.mean(dim=1, keepdim=True)
        points = points - centre
        if self.rotation:
            points = turned(points, 2 * math.pi * torch.rand(n, device=device), self.up)
        if self.scaling:
            power = 2 * torch.rand(n, 1, 1, device=device) - 1
            points = points * (1 + self.scaling) ** power
        if self.jitter:
            size = points.square().sum(dim=2, keepdim=True).mean(dim=1, keepdim=True).sqrt()
            noise = torch.randn_like(points).clamp(-CLIP, CLIP)
            points = points + self.jitter * size * noise
        return points + centre

    def _thinned(self, x: Tensor) -> Tensor:
        share = self.dropout * torch.rand(len(x), 1, device=x.device)
        return thinned(x, torch.rand(x.shape[:2], device=x.device) >= share)


def turned(points: Tensor, angle: Tensor, up: str) -> Tensor:
    """Points (b, p, 3) turned about the axis ``up`` by angles (b,), counter-clockwise from above.

    Examples
    --------
    >>> points = torch.tensor([[[1.0, 0.0, 7.0]]])
    >>> turned(points, torch.tensor([math.pi / 2]), "z").round()
    tensor([[[-0.,  1.,  7.]]])
    """
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    axis = "xyz".index(up)
    first, second = (axis + 1) % 3, (axis + 2) % 3
    a, b = points[..., first], points[..., second]
    columns = {axis: points[..., axis], first: cos * a - sin * b, second: sin * a + cos * b}
    return torch.stack([columns[i] for i in range(3)], dim=-1)


def thinned(x: Tensor, keep: Tensor) -> Tensor:
    """Clouds (b, p, c) with the first kept point wherever ``keep`` (b, p) is false.

    If none is kept, that is the first point.

    Examples
    --------
    >>> thinned(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[False, True, False]]))
    tensor([[[2.],
             [2.],
             [2.]]])
    """
    first = keep.to(torch.uint8).argmax(dim=1)[:, None, None].expand(-1, 1, x.shape[2])
    return torch.where(keep[:, :, None], x, x.gather(1, first))
