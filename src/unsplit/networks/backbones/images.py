"""Backbone for images: ResNet-18, with a stem that suits their size."""

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unsplit.errors import InputError


class ResNet18(nn.Module):
    """Images (b, C, H, W) to features (b, 512).

    The network of He et al. (2016) without its classifier.  Names and shapes of everything in it
    are torchvision's, so that a checkpoint of theirs can be read.  Images of any size go in,
    whatever ``image_size`` was.

    Parameters
    ----------
    in_channels : int
        Channels of the images: 1 for grey, 3 for colour, or any other number.
    image_size : int
        The images' shorter side in pixels; it chooses the stem.  From 96 on it is the standard
        one, a 7×7 convolution and a pooling, a stride of 4 together.
    weights : path, optional
        A file of ``torch.save`` with the weights to start from: a state dict, or a mapping with
        one at "state_dict".  The classifier in it is not used.  If it is for 3 channels and the
        images have one, that one counts as all three.

    Examples
    --------
    >>> backbone = ResNet18(in_channels=1, image_size=28).eval()
    >>> backbone(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 512])
    """

    out_features = 512

    def __init__(
        self,
        in_channels: int = 3,
        image_size: int = 224,
        weights: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        for name, value in {"in_channels": in_channels, "image_size": image_size}.items():
            if value < 1:
                raise InputError(f"{name} must be at least 1, got {value!r}.")
        kernel, stride, pool = stem(image_size)
        self.conv1 = _convolution(in_channels, 64, kernel, stride)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if pool else nn.Identity()
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        if weights is not None:
            load_weights(self, weights)

    def forward(self, x: Tensor) -> Tensor:
        """Features of x."""
        x = self.conv1(_channels_last(x))
        x = self.maxpool(F.relu(self.bn1(x), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean(dim=(2, 3))


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is projected where the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(in_channels, out_channels, 3, stride)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = _convolution(out_channels, out_channels, 3)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != out_channels:
            projection = _convolution(in_channels, out_channels, 1, stride)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        """Maps (b, C', H', W') of x."""
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return F.relu(out, inplace=True)


def stem(image_size: int) -> tuple[int, int, bool]:
    """Kernel and stride of the first convolution, and whether pooling follows.

    What follows costs in proportion to the area that the stem leaves, and of less than 16 pixels
    a side its four stages make nothing.  Hence a side of 16 to 95 pixels becomes one of 16 to 32.
    At 64 that takes the standard stem's stride of 4: with 2, a step would cost over three times
    as much.

    Examples
    --------
    >>> stem(32), stem(48), stem(64), stem(224)
    ((3, 1, False), (3, 2, False), (3, 2, True), (7, 2, True))
    """
    if image_size >= 96:
        return 7, 2, True
    return 3, 1 if image_size <= 32 else 2, image_size >= 64


def _convolution(in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    convolution = nn.Conv2d(
        in_channels, out_channels, kernel, stride, padding=kernel // 2, bias=False
    )
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution


def _channels_last(x: Tensor) -> Tensor:
    """X with the channels of a pixel side by side, the order tensor cores work in."""
    b, c, h, w = x.shape
    # Not .contiguous(memory_format=...): of one channel it would leave the strides as they are,
    # and what follows would be in the other order.
    return x.permute(0, 2, 3, 1).flatten().view(b, h, w, c).permute(0, 3, 1, 2)


def load_weights(network: ResNet18, path: str | os.PathLike[str]) -> None:
    """Write the weights in a file into the network, all or none.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "weights.pt"
    >>> torch.save(ResNet18().state_dict(), path)
    >>> load_weights(ResNet18(in_channels=1), path)
    """
    found, expected = _read_weights(path), network.state_dict()
    first = found.get("conv1.weight")
    if network.conv1.in_channels == 1 and isinstance(first, Tensor) and first.shape[1:2] == (3,):
        # The same as giving the grey image three times.
        found["conv1.weight"] = first.sum(dim=1, keepdim=True)
    for name in sorted(expected.keys() | found.keys()):
        # Files older than these counters lack them; torch then starts them at zero.
        if name not in found and name.endswith("num_batches_tracked"):
            continue
        have, need = (_shape(state.get(name)) for state in (found, expected))
        if have != need:
            raise InputError(
                f"weights in {path} are not of this ResNet-18: {name} has {have} there and "
                f"{need} here; {_advice(name)}."
            )
    network.load_state_dict(found, strict=False)


def _read_weights(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Tensors by name, without the classifier's and without the prefix of parallel training."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot read weights from {path}: {reason}; give a file.") from None
    except Exception:  # bytes that torch did not write can fail anywhere in its reader
        content = None
    if isinstance(content, dict):
        content = content.get("state_dict", content)
    if not isinstance(content, dict) or not content:
        raise InputError(
            f"cannot read weights from {path}: it holds no state dict; write one with "
            "torch.save(network.state_dict(), path)."
        )
    named = {str(name).removeprefix("module."): value for name, value in content.items()}
    return {name: value for name, value in named.items() if not name.startswith("fc.")}


def _shape(value: Any) -> str:
    if not isinstance(value, Tensor):
        return "nothing" if value is None else "no tensor"
    return f"shape {tuple(value.shape)}"


def _advice(name: str) -> str:
    if name == "conv1.weight":
        return "give as many in_channels as the file has, and image_size=224 for the standard stem"
    return "give a file with the weights of torchvision's resnet18"
