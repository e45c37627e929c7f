"""Random changes to images that do not change what they show."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unsplit.errors import InputError
from unsplit.networks.network import integers, uniform


class ImageAugmentation(nn.Module):
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
        for name, value in {"crop": crop, "zoom": zoom, "colour": colour}.items():
            if not 0 <= value < 1:
                raise InputError(f"{name} must be at least 0 and less than 1, got {value!r}.")
        self.crop = crop
        self.zoom = zoom
        self.flip = flip
        self.colour = colour

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

    def forward(self, x: Tensor) -> Tensor:
        """Return changed copies of the images (b, C, H, W) in training, otherwise x itself."""
        if not self.training:
            return x
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
    """Shift images by whole pixels, less than a side, and then mirror some of them.

    Parameters
    ----------
    x : Tensor of shape (b, C, H, W)
    down, right : integer Tensors of shape (b,)
        Pixels by which each image moves; the gap is filled by reflection at the border.
    mirror : bool Tensor of shape (b,)

    Examples
    --------
    >>> x = torch.tensor([[[[1.0, 2.0, 3.0]]]])
    >>> shifted(x, torch.tensor([0]), torch.tensor([1]), torch.tensor([False]))
    tensor([[[[1., 1., 2.]]]])
    """
    n_images, n_channels, height, width = x.shape
    across = torch.arange(width, device=x.device)
    across = torch.where(mirror[:, None], width - 1 - across, across)
    columns = _reflected(across - right[:, None], width)
    rows = _reflected(torch.arange(height, device=x.device) - down[:, None], height)
    pixel = (rows[:, :, None] * width + columns[:, None, :]).flatten(1)
    # Done in one step, without a padded copy, and in the memory order of x.
    if _memory_format(x) == torch.channels_last:
        start = height * width * torch.arange(n_images, device=x.device)
        pixels = x.permute(0, 2, 3, 1).flatten(0, 2)
        taken = pixels.index_select(0, (start[:, None] + pixel).flatten())
        return taken.view(n_images, height, width, n_channels).permute(0, 3, 1, 2)
    index = pixel[:, None].expand(-1, n_channels, -1)
    return x.flatten(2).gather(2, index).view(x.shape)


def _reflected(position: Tensor, side: int) -> Tensor:
    """Reflect positions from −side to 2·side − 1 at the border."""
    position = torch.where(position < 0, -1 - position, position)
    return torch.where(position >= side, 2 * side - 1 - position, position)


def zoomed(x: Tensor, scale: Tensor, down: Tensor, right: Tensor, mirror: Tensor) -> Tensor:
    """Enlarge a part of each image to the size of the image, by interpolation.

    Parameters
    ----------
    x : Tensor of shape (b, C, H, W)
    scale : Tensor of shape (b,)
        Sides of the part as a share of those of the image, at most 1.  The part is in the middle.
    down, right : Tensors of shape (b,)
        Pixels, or fractions of pixels, by which each image moves before it is cut.
    mirror : bool Tensor of shape (b,)

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
    return sampled.to(x.dtype, memory_format=_memory_format(x))


def _centres(side: int, x: Tensor) -> Tensor:
    """Centres of the pixels, in coordinates from −1 to 1 across the image."""
    return (2 * torch.arange(side, device=x.device) + 1) / side - 1


def _memory_format(x: Tensor) -> torch.memory_format:
    last = x.shape[1] > 1 and x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def tinted(x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor) -> Tensor:
    """Change brightness, contrast and saturation of images; 0 means no change.

    Parameters
    ----------
    x : Tensor of shape (b, C, H, W)
    brightness : Tensor of shape (b,)
        Added to every pixel.
    contrast, saturation : Tensors of shape (b,)
        Relative change of the distance of each pixel to the mean of the image, and to its own
        grey value.

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
