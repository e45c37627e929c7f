"""Backbones for images: ResNet-18, a small network for CPUs, and networks of other libraries."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Names of the classifier in networks of torchvision and timm.
OUTPUTS = ("fc", "classifier", "head", "heads")


def convolution(
    of: type[nn.Conv1d] | type[nn.Conv2d], n_in: int, n_out: int, kernel: int, stride: int = 1
) -> Any:
    """A convolution without bias, whose output is as long as its input divided by the stride."""
    made = of(n_in, n_out, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(made.weight, mode="fan_out", nonlinearity="relu")
    return made


_conv = partial(convolution, nn.Conv2d)


class ResNet18(nn.Module):
    """Turns images (b, C, H, W) into features (b, 512).

    The network of He et al. (2016) without its classifier.  Weights have the same names and shapes
    as in torchvision.  The network takes images of any size, whatever ``image_size`` is.

    Parameters
    ----------
    in_channels : int
        Channels of the images: 1 for grey, 3 for colour, or any other number.
    image_size : int
        Shorter side of the images in pixels, by which the first layers are chosen.  From 96 pixels,
        these are the standard ones: a 7×7 convolution and pooling, with a total stride of 4.

    Examples
    --------
    >>> backbone = ResNet18(in_channels=1, image_size=28).eval()
    >>> backbone(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 512])
    """

    out_features = 512

    def __init__(self, in_channels: int = 3, image_size: int = 224) -> None:
        super().__init__()
        kernel, stride, pool = stem(image_size)
        self.conv1 = _conv(in_channels, 64, kernel, stride)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if pool else nn.Identity()
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the features of x."""
        x = self.conv1(_channels_last(x))
        x = self.maxpool(F.relu(self.bn1(x), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean(dim=(2, 3))


class ConvNet(nn.Module):
    """Turns small images (b, C, H, W) into features (b, 256), quickly also without a GPU.

    Three 3×3 convolutions, the first with a stride of 2, each followed by batch normalisation; the
    image is halved between them.  Mean and maximum over the image are the features.  An image of 32
    pixels takes a sixtieth of the work that ResNet-18 has with one of 64.

    Parameters
    ----------
    in_channels : int
        Channels of the images: 1 for grey, 3 for colour, or any other number.
    image_size : int
        Shorter side of the images in pixels.  Up to 16 pixels, the first stride is 1.

    Examples
    --------
    >>> ConvNet(in_channels=1, image_size=28).eval()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 256])
    """

    out_features = 256

    def __init__(self, in_channels: int = 3, image_size: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels, stride in ((32, 1 if image_size <= 16 else 2), (64, 1), (128, 1)):
            if layers:
                # ceil_mode, so that images of a single pixel pass as well
                layers.append(nn.MaxPool2d(2, ceil_mode=True))
            layers.append(_conv(in_channels, channels, 3, stride))
            layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
            in_channels = channels
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the features of x."""
        maps = self.layers(_channels_last(x))
        return torch.cat([maps.mean(dim=(2, 3)), maps.amax(dim=(2, 3))], dim=1)


class Shrink(nn.Module):
    """Reduces images so that their shorter side has at most this many pixels, by averaging.

    Parameters
    ----------
    side : int

    Examples
    --------
    >>> Shrink(16)(torch.zeros(2, 3, 64, 96)).shape
    torch.Size([2, 3, 16, 24])
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        """Return smaller images as float32; images that are small enough are returned as is."""
        height, width = x.shape[2:]
        shorter = min(height, width)
        if shorter <= self.side:
            return x
        size = round(height * self.side / shorter), round(width * self.side / shorter)
        return F.adaptive_avg_pool2d(x.float(), size)


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut, which is projected if the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(in_channels, out_channels, 3, stride)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = _conv(out_channels, out_channels, 3)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != out_channels:
            projection = _conv(in_channels, out_channels, 1, stride)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        """Compute feature maps (b, C', H', W') of x."""
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return F.relu(out, inplace=True)


def stem(image_size: int) -> tuple[int, int, bool]:
    """Choose kernel and stride of the first convolution, and whether pooling follows.

    The cost of the other layers is proportional to the area that these leave, and their four
    stages need a side of at least 16 pixels.  Images with sides of 16 to 95 pixels are therefore
    reduced to 16 to 32 pixels.  At 64 pixels this takes the standard stride of 4; with a stride of
    2, a step would cost more than three times as much.

    Examples
    --------
    >>> stem(32), stem(48), stem(64), stem(224)
    ((3, 1, False), (3, 2, False), (3, 2, True), (7, 2, True))
    """
    if image_size >= 96:
        return 7, 2, True
    return 3, 1 if image_size <= 32 else 2, image_size >= 64


def _channels_last(x: Tensor) -> Tensor:
    """Store the channels of a pixel side by side, which is fastest on tensor cores."""
    b, c, h, w = x.shape
    # Not .contiguous(memory_format=...), which keeps the strides of images with one channel, so
    # that the following layers would use the other order.
    return x.permute(0, 2, 3, 1).flatten().view(b, h, w, c).permute(0, 3, 1, 2)


def without_classifier(network: nn.Module) -> nn.Module:
    """Remove the last layer of a network of torchvision or timm; leave any other unchanged.

    Examples
    --------
    >>> without_classifier(nn.Linear(3, 2))
    Linear(in_features=3, out_features=2, bias=True)
    """
    reset: Any = getattr(network, "reset_classifier", None)
    if callable(reset):
        reset(0)
    elif type(network).__module__.startswith("torchvision."):
        for name in OUTPUTS:
            if isinstance(getattr(network, name, None), nn.Module):
                setattr(network, name, _without_last_linear(getattr(network, name)))
                break
    return network


def _without_last_linear(classifier: nn.Module) -> nn.Module:
    """Keep the layers before the last linear one; an identity if there are none."""
    if not isinstance(classifier, nn.Sequential):
        return nn.Identity()
    linear = [i for i, layer in enumerate(classifier) if isinstance(layer, nn.Linear)]
    # Without a linear layer, as in SqueezeNet, the layers turn a feature map into a vector.
    return classifier[: linear[-1]] if linear else classifier
