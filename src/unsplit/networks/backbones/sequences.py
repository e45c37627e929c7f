"""Backbone for sequences of different lengths: a residual network that knows what is padding.

A batch (b, C + 1, L) holds C channels and a mask, 1 where a sequence is real and 0 where it is
padding.  Everything is zero where the mask is, and all convolutions put position i of their output
over position i·stride of their input, so what comes out for a sequence does not depend on how much
padding follows it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unsplit.errors import InputError

# The first layer leaves about as many positions, unless that takes a longer stride.
POSITIONS = 256
LONGEST_STRIDE = 32

EPSILON = 1e-5


class ResNet1d(nn.Module):
    """Sequences with their mask (b, C + 1, L) to features (b, 4 · width).

    A first convolution that shortens long sequences, four residual blocks of which three halve
    the length, then the mean and the maximum over what is real.  The mask is an input too: a zero
    is not the same as nothing, and where a sequence ends can matter.

    Parameters
    ----------
    in_channels : int
        C, without the mask.
    length : int
        The usual length of a sequence; it chooses the stride of the first layer.  Sequences of
        any length go in.
    width : int
        Channels of the first layer.

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
        """Features of x."""
        mask = x[:, -1:]
        x = self.first(x * mask)
        mask = coarse_mask(mask, self.stride)
        x = F.relu(self.norm(x, mask))
        for block in self.blocks:
            x, mask = block(x, mask)
        return pooled(x, mask)


class Block(nn.Module):
    """Two convolutions beside a shortcut, which is projected where the shape changes."""

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
        """Features (b, out_channels, ⌈L / stride⌉) of x (b, in_channels, L), and their mask."""
        mask = coarse_mask(mask, self.stride)
        out = F.relu(self.norm1(self.conv1(x), mask))
        out = self.norm2(self.conv2(out), mask)
        beside = x if self.shortcut is None else self.shortcut(x) * mask
        return F.relu(out + beside), mask


class MaskedNorm(nn.Module):
    """Mean zero and variance one over the channels and the real positions of each sequence.

    Batch normalisation would count the padding.  Normalising every position by itself would not,
    but makes silence as loud as sound.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Normalised x (b, channels, L); zero where the mask (b, 1, L) is."""
        x = masked_standard(x.float(), mask)  # long sums need more digits than bfloat16 has
        return (x * self.weight + self.bias) * mask


def masked_standard(x: Tensor, mask: Tensor) -> Tensor:
    """X with mean zero and variance one over the channels and real positions of each sequence.

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
        Not negative, and zero where the mask is.
    mask : Tensor of shape (b, 1, L)

    Examples
    --------
    >>> pooled(torch.tensor([[[2.0, 4.0, 0.0]]]), torch.tensor([[[1.0, 1.0, 0.0]]]))
    tensor([[3., 4.]])
    """
    mean = x.sum(-1) / mask.sum(-1).clamp(min=1)
    return torch.cat([mean, x.amax(-1)], dim=1)


def coarse_mask(mask: Tensor, stride: int) -> Tensor:
    """The mask with ``stride`` positions in one, which is real if any of them is.

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
    """A power of two that brings a sequence down to between 1 and 2 times :data:`POSITIONS`.

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
