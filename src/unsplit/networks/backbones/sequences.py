"""Backbone for sequences of different lengths: a residual network that ignores padding.

A batch (b, C + 1, L) has C channels and a mask, which is 1 for real positions and 0 for padding.
All values are zero where the mask is zero, and position i of the output of a convolution lies over
position i·stride of its input.  The features of a sequence thus do not depend on how much padding
follows it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unsplit.errors import InputError

# The first layer leaves about this many positions, with a stride of at most the second number.
POSITIONS = 256
LONGEST_STRIDE = 32

EPSILON = 1e-5


class ResNet1d(nn.Module):
    """Turns sequences with their mask (b, C + 1, L) into features (b, 4 · width).

    A first convolution shortens long sequences, three of four residual blocks halve the length,
    and the mean and maximum over all real positions are taken.  The mask is an input too, because
    a value of zero differs from padding, and where a sequence ends can matter.

    Parameters
    ----------
    in_channels : int
        Number of channels, C, without the mask.
    length : int
        Typical length of a sequence, by which the stride of the first layer is chosen.  The
        network takes sequences of any length.
    width : int
        Number of channels of the first layer.

    Examples
    --------
    >>> backbone = ResNet1d(in_channels=3, length=100)
    >>> backbone(torch.ones(2, 4, 50)).shape
    torch.Size([2, 256])
    """

    def __init__(self, in_channels: int, length: int = POSITIONS, width: int = 64) -> None:
        super().__init__()
        numbers = {"in_channels": in_channels, "length": length, "width": width}
        for name, value in numbers.items():
            if value < 1:
                raise InputError(f"{name} must be at least 1, got {value!r}.")
        self.stride = first_stride(length)
        self.first = _convolution(in_channels + 1, width, max(7, 2 * self.stride + 1), self.stride)
        self.norm = MaskedNorm(width)
        self.blocks = nn.ModuleList(
            [
                Block(width, width, 1),
                Block(width, width, 2),
                Block(width, 2 * width, 2),
                Block(2 * width, 2 * width, 2),
            ]
        )
        self.out_features = 4 * width

    def forward(self, x: Tensor) -> Tensor:
        """Compute the features of x."""
        mask = x[:, -1:]
        x = self.first(x * mask)
        mask = coarse_mask(mask, self.stride)
        x = F.relu(self.norm(x, mask))
        for block in self.blocks:
            x, mask = block(x, mask)
        return pooled(x, mask)


class Block(nn.Module):
    """Two convolutions and a shortcut, which is projected if the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = _convolution(in_channels, out_channels, 3, stride)
        self.norm1 = MaskedNorm(out_channels)
        self.conv2 = _convolution(out_channels, out_channels, 3)
        self.norm2 = MaskedNorm(out_channels)
        same = stride == 1 and in_channels == out_channels
        self.shortcut = None if same else _convolution(in_channels, out_channels, 1, stride)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Compute features (b, out_channels, ⌈L / stride⌉) of x, and their mask."""
        mask = coarse_mask(mask, self.stride)
        out = F.relu(self.norm1(self.conv1(x), mask))
        out = self.norm2(self.conv2(out), mask)
        beside = x if self.shortcut is None else self.shortcut(x) * mask
        return F.relu(out + beside), mask


class MaskedNorm(nn.Module):
    """Normalises each sequence over its channels and real positions.

    Batch normalisation would include the padding.  Normalising every position by itself would not,
    but would make silence as loud as sound.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Normalise x (b, channels, L); the result is zero where the mask (b, 1, L) is zero."""
        x = masked_standard(x.float(), mask)  # long sums need more digits than bfloat16 has
        return (x * self.weight + self.bias) * mask


def masked_standard(x: Tensor, mask: Tensor) -> Tensor:
    """Scale each sequence to mean 0 and variance 1 over its channels and real positions.

    Parameters
    ----------
    x : Tensor of shape (b, C, L)
    mask : Tensor of shape (b, 1, L)

    Examples
    --------
    >>> masked_standard(torch.tensor([[[2.0, 4.0, 9.0]]]), torch.tensor([[[1.0, 1.0, 0.0]]]))
    tensor([[[-1.0000,  1.0000,  0.0000]]])
    """
    count = (mask.sum((1, 2), keepdim=True) * x.shape[1]).clamp(min=1)
    centred = (x - (x * mask).sum((1, 2), keepdim=True) / count) * mask
    variance = centred.square().sum((1, 2), keepdim=True) / count
    return centred * (variance + EPSILON).rsqrt()


def pooled(x: Tensor, mask: Tensor) -> Tensor:
    """Mean and maximum over the real positions, shape (b, 2 · C).

    Parameters
    ----------
    x : Tensor of shape (b, C, L)
        Not negative, and zero where the mask is zero.
    mask : Tensor of shape (b, 1, L)

    Examples
    --------
    >>> pooled(torch.tensor([[[2.0, 4.0, 0.0]]]), torch.tensor([[[1.0, 1.0, 0.0]]]))
    tensor([[3., 4.]])
    """
    mean = x.sum(-1) / mask.sum(-1).clamp(min=1)
    return torch.cat([mean, x.amax(-1)], dim=1)


def coarse_mask(mask: Tensor, stride: int) -> Tensor:
    """Shorten a mask: each position stands for ``stride`` positions, and is 1 if any of them is.

    Parameters
    ----------
    mask : Tensor of shape (b, 1, L)
    stride : int

    Returns
    -------
    Tensor of shape (b, 1, ⌈L / stride⌉)

    Examples
    --------
    >>> coarse_mask(torch.tensor([[[1.0, 1.0, 1.0, 0.0, 0.0]]]), 2)
    tensor([[[1., 1., 0.]]])
    """
    if stride == 1:
        return mask
    return F.pad(mask, (0, -mask.shape[-1] % stride)).unflatten(-1, (-1, stride)).amax(-1)


def first_stride(length: int) -> int:
    """Choose a power of two that shortens a sequence to 1 to 2 times :data:`POSITIONS`.

    Examples
    --------
    >>> first_stride(100), first_stride(1500), first_stride(16_000)
    (1, 4, 32)
    """
    return min(LONGEST_STRIDE, 2 ** (max(1, length // POSITIONS).bit_length() - 1))


def _convolution(in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> nn.Conv1d:
    convolution = nn.Conv1d(
        in_channels, out_channels, kernel, stride, padding=kernel // 2, bias=False
    )
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution
