"""Random changes to point clouds that do not change what they show."""

import math

import torch
from torch import Tensor, nn

from unsplit.errors import InputError
from unsplit.networks.network import normal_like, uniform

# Noise is limited to this many standard deviations.
CLIP = 3.0


class PointAugmentation(nn.Module):
    """Rotate, scale, jitter and thin out point clouds at random in training, each in its own way.

    Clouds are rotated and scaled about their own centre.  If points have more than three numbers,
    only the first three (x, y and z) are changed.

    Parameters
    ----------
    rotation : bool
        Rotate by a random angle about the vertical axis.
    scaling : float
        Enlarge or shrink by up to this share, both equally often.
    jitter : float
        Standard deviation of the Gaussian noise by which points move, in units of the size of the
        cloud: the root of the mean squared distance from its centre.  Noise is limited to three
        standard deviations.
    dropout : float
        Remove up to this share of the points, as if they had not been measured.  They are replaced
        by copies of the first point that is kept, so that the array keeps its shape.
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
        """Choose changes that cannot make a cloud look like one of another cluster.

        Points are jittered and removed, because another scan of the same object has other points
        of its surface, with small errors.  Clouds are not rotated or scaled, because two clusters
        may differ only in the orientation or size of the objects.  If these mean nothing in your
        data, ``PointAugmentation(rotation=True, …)`` helps to learn from few clouds.

        Examples
        --------
        >>> PointAugmentation.for_points().rotation
        False
        """
        return cls(jitter=0.02, dropout=0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return changed copies of clouds (b, p, 3 + features) in training, otherwise x itself."""
        if not self.training:
            return x
        if self.rotation or self.scaling or self.jitter:
            x = torch.cat([self._moved(x[..., :3]), x[..., 3:]], dim=2)
        # Done last, so that copies of a point are equal and can be recognised as one point.
        return self._thinned(x) if self.dropout else x

    def _moved(self, points: Tensor) -> Tensor:
        n, device = len(points), points.device
        centre = points.mean(dim=1, keepdim=True)
        points = points - centre
        if self.rotation:
            points = turned(points, 2 * math.pi * uniform((n,), device), self.up)
        if self.scaling:
            power = 2 * uniform((n, 1, 1), device) - 1
            points = points * (1 + self.scaling) ** power
        if self.jitter:
            size = points.square().sum(dim=2, keepdim=True).mean(dim=1, keepdim=True).sqrt()
            noise = normal_like(points).clamp(-CLIP, CLIP)
            points = points + self.jitter * size * noise
        return points + centre

    def _thinned(self, x: Tensor) -> Tensor:
        share = self.dropout * uniform((len(x), 1), x.device)
        return thinned(x, uniform(x.shape[:2], x.device) >= share)


def turned(points: Tensor, angle: Tensor, up: str) -> Tensor:
    """Rotate points (b, p, 3) about the axis ``up`` by angles (b,), counter-clockwise from above.

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
    """Replace points of clouds (b, p, c) by the first kept point where ``keep`` (b, p) is false.

    If no point is kept, all become the first point.

    Examples
    --------
    >>> thinned(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[False, True, False]]))
    tensor([[[2.],
             [2.],
             [2.]]])
    """
    first = keep.to(torch.uint8).argmax(dim=1)[:, None, None].expand(-1, 1, x.shape[2])
    return torch.where(keep[:, :, None], x, x.gather(1, first))
