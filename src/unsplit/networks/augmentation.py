"""Random changes to observations in training that do not change what they show or mean."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unsplit.errors import InputError
from unsplit.networks.network import integers, normal_like, uniform

__all__ = ["ImageAugmentation", "PointAugmentation", "SequenceAugmentation"]

# Noise of points is limited to this many standard deviations.
CLIP = 3.0


class Augmentation(nn.Module):
    """Changes batches in training, every observation in its own way."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a changed copy of x in training, otherwise x itself."""
        return self.changed(x) if self.training else x

    def changed(self, x: Tensor) -> Tensor:
        """Return a changed copy of x."""
        raise NotImplementedError


def _check(most: float, **shares: float) -> None:
    for name, value in shares.items():
        if not 0 <= value < most:
            raise InputError(f"{name} must be at least 0 and less than {most}, got {value!r}.")


class ImageAugmentation(Augmentation):
    """Shift, zoom, mirror and tint images at random in training, each in its own way.

    Parameters
    ----------
    crop : float
        Shift by up to this share of the sides, in whole pixels; the gap is filled by reflection.
    zoom : float
        Cut the image down by up to this share of its sides, and enlarge it to its full size.
    flip : bool
        Mirror half of the images from left to right.
    colour : float
        Change contrast and saturation by up to this share, and brightness by up to this many
        standard deviations.

    Examples
    --------
    >>> augmentation = ImageAugmentation.for_images(n_channels=3)
    >>> augmentation(torch.randn(8, 3, 32, 32)).shape
    torch.Size([8, 3, 32, 32])
    """

    def __init__(
        self, crop: float = 0.125, zoom: float = 0.0, flip: bool = False, colour: float = 0.0
    ) -> None:
        super().__init__()
        _check(1, crop=crop, zoom=zoom, colour=colour)
        self.crop, self.zoom, self.flip, self.colour = crop, zoom, flip, colour

    @classmethod
    def for_images(cls, n_channels: int, more: bool = False) -> "ImageAugmentation":
        """Choose changes that are unlikely to make an image look like one of another cluster.

        All images are shifted.  Images with three channels are treated as photographs, and are also
        mirrored and slightly tinted.  Other images are not: a mirrored "b" is a "d", a mirrored
        chest has its heart on the right, and the brightness of a grey scan may be what was
        measured.  Clusters that differ only in this would look the same.  If this is true of your
        three-channel images (signs, stained tissue), use ``ImageAugmentation()``.

        Parameters
        ----------
        n_channels : int
        more : bool
            Also zoom into photographs, and tint them more.  This raises A of deep networks, which
            know few images by heart; small networks do not get that far and lose by it
            (docs/photos.md).

        Examples
        --------
        >>> ImageAugmentation.for_images(1).flip
        False
        """
        if n_channels != 3:
            return cls()
        return cls(flip=True, zoom=0.4, colour=0.3) if more else cls(flip=True, colour=0.1)

    def changed(self, x: Tensor) -> Tensor:
        """Return changed copies of the images (b, C, H, W)."""
        if self.crop or self.zoom or self.flip:
            x = self._move(x)
        if self.colour:
            x = tinted(x, *(self._spread(x, self.colour).to(x.dtype) for _ in range(3)))
        return x

    def _move(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        down, right = (self._shifts(x, side) for side in (height, width))
        mirror = uniform((len(x),), x.device) < (0.5 if self.flip else 0.0)
        if not self.zoom:
            return shifted(x, down, right, mirror)
        scale = 1 - self.zoom * uniform((len(x),), x.device)
        # The part may lie anywhere in the image, and is then shifted.
        down = down + (1 - scale) * self._spread(x, height / 2)
        right = right + (1 - scale) * self._spread(x, width / 2)
        return zoomed(x, scale, down, right, mirror)

    def _shifts(self, x: Tensor, side: int) -> Tensor:
        most = round(self.crop * side)
        return integers(-most, most + 1, len(x), x.device)

    def _spread(self, x: Tensor, reach: float) -> Tensor:
        return reach * (2 * uniform((len(x),), x.device) - 1)


def shifted(x: Tensor, down: Tensor, right: Tensor, mirror: Tensor) -> Tensor:
    """Shift images (b, C, H, W) by whole pixels, less than a side, and then mirror some of them.

    The gap is filled by reflection at the border.

    Examples
    --------
    >>> x = torch.tensor([[[[1.0, 2.0, 3.0]]]])
    >>> shifted(x, torch.tensor([0]), torch.tensor([1]), torch.tensor([False]))
    tensor([[[[1., 1., 2.]]]])
    """
    height, width = x.shape[2:]
    across = torch.arange(width, device=x.device)
    across = torch.where(mirror[:, None], width - 1 - across, across)
    columns = _reflected(across - right[:, None], width)
    rows = _reflected(torch.arange(height, device=x.device) - down[:, None], height)
    pixel = (rows[:, :, None] * width + columns[:, None, :]).flatten(1)
    # Done in one step, without a padded copy.
    index = pixel[:, None].expand(-1, x.shape[1], -1)
    return x.flatten(2).gather(2, index).view(x.shape)


def _reflected(position: Tensor, side: int) -> Tensor:
    """Reflect positions from −side to 2·side − 1 at the border."""
    position = torch.where(position < 0, -1 - position, position)
    return torch.where(position >= side, 2 * side - 1 - position, position)


def zoomed(x: Tensor, scale: Tensor, down: Tensor, right: Tensor, mirror: Tensor) -> Tensor:
    """Enlarge the middle of each image (b, C, H, W) to the size of the image, by interpolation.

    ``scale`` is the side of the middle as a share of that of the image; before it is cut, the image
    moves by ``down`` and ``right`` pixels.

    Examples
    --------
    >>> x = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    >>> nothing, still = torch.zeros(1), torch.tensor([False])
    >>> zoomed(x, torch.tensor([0.5]), nothing, nothing, still)
    tensor([[[[1.7500, 2.2500, 2.7500, 3.2500]]]])
    """
    height, width = x.shape[2:]
    # Not affine_grid: it multiplies matrices, which autocast would do in bfloat16.
    rows = scale[:, None] * _centres(height, x) - 2 / height * down[:, None]
    columns = torch.where(mirror, -scale, scale)[:, None] * _centres(width, x)
    columns = columns - 2 / width * right[:, None]
    grid = torch.stack(torch.broadcast_tensors(columns[:, None, :], rows[:, :, None]), dim=-1)
    sampled = F.grid_sample(x.float(), grid, padding_mode="reflection", align_corners=False)
    return sampled.to(x.dtype)


def _centres(side: int, x: Tensor) -> Tensor:
    """Centres of the pixels, in coordinates from −1 to 1 across the image."""
    return (2 * torch.arange(side, device=x.device) + 1) / side - 1


def tinted(x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor) -> Tensor:
    """Change brightness, contrast and saturation of images (b, C, H, W); 0 means no change.

    Brightness is added to every pixel; contrast and saturation change its distance to the mean of
    the image, and to its own grey value.

    Examples
    --------
    >>> x = torch.tensor([[[[1.0, 3.0]]]])
    >>> one, none = torch.ones(1), torch.zeros(1)
    >>> tinted(x, one, none, none), tinted(x, none, one, none)
    (tensor([[[[2., 4.]]]]), tensor([[[[0., 4.]]]]))
    """
    brightness, contrast, saturation = (
        change[:, None, None, None] for change in (brightness, contrast, saturation)
    )
    grey = x.mean(dim=1, keepdim=True)
    mean = grey.mean(dim=(2, 3), keepdim=True)
    # All changes in one formula, because every pass over the batch takes time.
    own = (1 + contrast) * (1 + saturation)
    shared = brightness - contrast * mean - (1 + contrast) * saturation * grey
    return own * x + shared


class PointAugmentation(Augmentation):
    """Jitter and thin out point clouds at random in training, each in its own way.

    If points have more than three numbers, only the first three (x, y and z) are moved.

    Parameters
    ----------
    jitter : float
        Standard deviation of the Gaussian noise by which points move, in units of the size of the
        cloud: the root of the mean squared distance from its centre.  Noise is limited to three
        standard deviations.
    dropout : float
        Remove up to this share of the points, as if they had not been measured.  They are replaced
        by copies of the first point that is kept, so that the array keeps its shape.

    Examples
    --------
    >>> augmentation = PointAugmentation.for_points()
    >>> clouds = torch.randn(8, 100, 3)
    >>> augmentation(clouds).shape
    torch.Size([8, 100, 3])
    >>> augmentation.eval()(clouds) is clouds
    True
    """

    def __init__(self, jitter: float = 0.0, dropout: float = 0.0) -> None:
        super().__init__()
        _check(1, jitter=jitter, dropout=dropout)
        self.jitter, self.dropout = jitter, dropout

    @classmethod
    def for_points(cls) -> "PointAugmentation":
        """Choose changes that cannot make a cloud look like one of another cluster.

        Points are jittered and removed, because another scan of the same object has other points
        of its surface, with small errors.  Clouds are not rotated or scaled, because two clusters
        may differ only in the orientation or size of the objects.

        Examples
        --------
        >>> PointAugmentation.for_points().dropout
        0.5
        """
        return cls(jitter=0.02, dropout=0.5)

    def changed(self, x: Tensor) -> Tensor:
        """Return changed copies of clouds (b, p, 3 + features)."""
        if self.jitter:
            x = torch.cat([self._moved(x[..., :3]), x[..., 3:]], dim=2)
        # Done last, so that copies of a point are equal and can be recognised as one point.
        if self.dropout:
            share = self.dropout * uniform((len(x), 1), x.device)
            x = thinned(x, uniform(x.shape[:2], x.device) >= share)
        return x

    def _moved(self, points: Tensor) -> Tensor:
        centre = points.mean(dim=1, keepdim=True)
        points = points - centre
        size = points.square().sum(dim=2, keepdim=True).mean(dim=1, keepdim=True).sqrt()
        noise = normal_like(points).clamp(-CLIP, CLIP)
        return points + self.jitter * size * noise + centre


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


class SequenceAugmentation(Augmentation):
    """Shift sequences in time, hide a part of them and add noise in training.

    Input and output are standardised channels with their mask, shape (b, C + 1, L).  The mask is
    changed too: what moves out of the array is lost, and what is hidden or moves in is padding.
    There is little noise by default, because loudness spans orders of magnitude: noise that is
    hardly heard in a loud recording drowns a quiet one.

    Parameters
    ----------
    shift : float
        Largest shift, earlier or later, as a share of the length of the sequence.
    hide : float
        Longest hidden part, as a share of the length of the sequence.
    noise : float
        Largest standard deviation of the noise, in standard deviations of the channels.  It is
        drawn for every sequence, so that some stay as clean as those that are scored later.

    Examples
    --------
    >>> augmentation = SequenceAugmentation()
    >>> x = torch.ones(2, 3, 100)
    >>> augmentation(x).shape, augmentation.eval()(x) is x
    (torch.Size([2, 3, 100]), True)
    """

    def __init__(self, shift: float = 0.1, hide: float = 0.1, noise: float = 0.02) -> None:
        super().__init__()
        _check(0.5, shift=shift, hide=hide)
        _check(math.inf, noise=noise)
        self.shift, self.hide, self.noise = shift, hide, noise

    def changed(self, x: Tensor) -> Tensor:
        """Return a changed copy of x."""
        if self.shift:
            x = later(x, self._moves(x))
        if self.hide:
            x = x * self._seen(x)
        return self._noisy(x) if self.noise else x

    def _moves(self, x: Tensor) -> Tensor:
        """Draw the shift of each sequence, shape (b, 1); negative means earlier."""
        length = x[:, -1].sum(-1, keepdim=True)
        return ((2 * uniform(length.shape, x.device) - 1) * self.shift * length).trunc().long()

    def _seen(self, x: Tensor) -> Tensor:
        """Draw the part to hide: 0 there, 1 elsewhere, shape (b, 1, L)."""
        mask = x[:, -1]
        length = mask.sum(-1, keepdim=True)
        hidden = (uniform(length.shape, x.device) * self.hide * length).trunc()
        start = (uniform(length.shape, x.device) * (length - hidden + 1)).trunc()
        place = mask.cumsum(-1) - 1  # counts positions that are not padding
        seen = (place < start) | (place >= start + hidden)
        return seen.unsqueeze(1).to(x.dtype)

    def _noisy(self, x: Tensor) -> Tensor:
        values, mask = x[:, :-1], x[:, -1:]
        width = self.noise * uniform((len(x), 1, 1), x.device)
        return torch.cat([values + width * normal_like(values) * mask, mask], dim=1)


def later(x: Tensor, moves: Tensor) -> Tensor:
    """Shift every sequence (b, C, L) by ``moves`` (b, 1) positions; zeros move in.

    Examples
    --------
    >>> later(torch.tensor([[[1, 2, 3]], [[4, 5, 6]]]), torch.tensor([[1], [-2]]))
    tensor([[[0, 1, 2]],
            [[6, 0, 0]]])
    """
    length = x.shape[-1]
    source = torch.arange(length, device=x.device) - moves
    inside = ((source >= 0) & (source < length)).unsqueeze(1)
    source = source.clamp(0, length - 1).unsqueeze(1).expand(x.shape)
    return x.gather(-1, source) * inside
