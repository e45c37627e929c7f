"""Backbones for sequences of different lengths: a residual network that ignores padding.

Sound is turned into a spectrogram in mel bands first.

A batch (b, C + 1, L) has C channels and a mask, which is 1 for real positions and 0 for padding.
All values are zero where the mask is zero, and position i of the output of a convolution lies over
position i·stride of its input.  The features of a sequence thus do not depend on how much padding
follows it.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unsplit.errors import InputError
from unsplit.networks.backbones.images import convolution

# The first layer leaves about this many positions, with a stride of at most the second number.
POSITIONS = 256
LONGEST_STRIDE = 32

EPSILON = 1e-5

# Mel bands are made for human hearing and mean nothing below this many samples per second.
LEAST_RATE = 1000

# Length of a frame and distance between frames, in seconds.
WINDOW, HOP = 0.025, 0.01

# Power added before taking the logarithm; 60 dB below the mean power of the data, which is 1.
FLOOR = 1e-6

_conv = partial(convolution, nn.Conv1d)


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
        self.stride = first_stride(length)
        self.first = _conv(in_channels + 1, width, max(7, 2 * self.stride + 1), self.stride)
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
        self.conv1 = _conv(in_channels, out_channels, 3, stride)
        self.norm1 = MaskedNorm(out_channels)
        self.conv2 = _conv(out_channels, out_channels, 3)
        self.norm2 = MaskedNorm(out_channels)
        same = stride == 1 and in_channels == out_channels
        self.shortcut = None if same else _conv(in_channels, out_channels, 1, stride)

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


class LogMel(nn.Module):
    """Turns sound and its mask (b, 2, L) into log-mel bands and their mask.

    The result has the shape (b, bands + 1, ⌈L / hop⌉).

    Frame i is centred on sample i · hop, and is real if any sample before the next frame is real.
    Each recording is then standardised by one mean and one standard deviation over all its bands
    and real frames.  This removes loudness; one mean per band would also remove the timbre of a
    steady sound.

    Parameters
    ----------
    rate : int
        Samples per second.
    bands : int
        Number of mel bands, from 0 Hz to half the rate.

    Examples
    --------
    >>> LogMel(rate=8000)(torch.ones(3, 2, 4000)).shape  # 10 ms are 80 samples
    torch.Size([3, 41, 50])
    """

    window: Tensor
    filters: Tensor

    def __init__(self, rate: int, bands: int = 40) -> None:
        super().__init__()
        if rate < LEAST_RATE:
            raise InputError(
                f"rate must be at least {LEAST_RATE:,} samples per second for a spectrogram, got "
                f"{rate!r}; use ResNet1d on the samples themselves."
            )
        self.bands = bands
        self.hop = round(rate * HOP)
        size = 2 * round(rate * WINDOW / 2)  # even, so that there is a middle
        # The narrowest band, the first, must have at least two points of the spectrum.
        self.n_fft = max(size, int(2 * rate / mel_edges(bands, rate / 2)[1]))
        self.n_fft += self.n_fft % 2
        shape = torch.hann_window(size, dtype=torch.float64)
        # With this scale, noise of variance one has power one at every frequency.
        self.register_buffer("window", (shape / shape.square().sum().sqrt()).float())
        self.register_buffer("filters", mel_filters(bands, self.n_fft, rate))

    def forward(self, x: Tensor) -> Tensor:
        """Compute standardised log-mel bands of x, followed by their mask."""
        mask = x[:, 1:]
        with torch.autocast(x.device.type, enabled=False):
            bands = self.bands_of(x[:, 0] * mask[:, 0])
            mask = coarse_mask(mask, self.hop)
            bands = masked_standard(bands[..., : mask.shape[-1]], mask)
        return torch.cat([bands, mask], dim=1)

    def bands_of(self, sound: Tensor) -> Tensor:
        """Logarithms of the power in each band, of sound (b, L)."""
        spectrum = torch.stft(
            sound.float(),  # the range of powers is too large for bfloat16 and half precision
            self.n_fft,
            self.hop,
            len(self.window),
            self.window,
            pad_mode="constant",
            return_complex=True,
        )
        power = self.filters @ (spectrum.real.square() + spectrum.imag.square())
        return torch.log(power + FLOOR)


class AudioNet(nn.Sequential):
    """Turns sound and its mask (b, 2, L) into features: :class:`LogMel`, then :class:`ResNet1d`.

    Examples
    --------
    >>> backbone = AudioNet(rate=8000)
    >>> backbone(torch.ones(2, 2, 4000)).shape, backbone.out_features
    (torch.Size([2, 256]), 256)
    """

    def __init__(self, rate: int, bands: int = 40, width: int = 64) -> None:
        network = ResNet1d(bands, width=width)
        super().__init__(LogMel(rate, bands), network)
        self.out_features = network.out_features


def mel_edges(bands: int, highest: float) -> Tensor:
    """Frequencies where bands begin, peak and end: ``bands + 2`` in Hz, evenly spaced in mel.

    Mel is defined as by O'Shaughnessy: 2595 · log10(1 + f / 700).

    Examples
    --------
    >>> mel_edges(3, 4000.0).round()
    tensor([   0.,  427., 1114., 2220., 4000.], dtype=torch.float64)
    """
    top = torch.log1p(torch.tensor(highest / 700, dtype=torch.float64))
    return 700 * torch.expm1(torch.linspace(0, 1, bands + 2, dtype=torch.float64) * top)


def mel_filters(bands: int, n_fft: int, rate: int) -> Tensor:
    """Triangular filters over the spectrum, shape (bands, n_fft // 2 + 1), each with sum one.

    Examples
    --------
    >>> mel_filters(2, 8, 8000)
    tensor([[0.0000, 1.0000, 0.0000, 0.0000, 0.0000],
            [0.0000, 0.1926, 0.5382, 0.2691, 0.0000]])
    """
    frequency = torch.arange(n_fft // 2 + 1, dtype=torch.float64) * (rate / n_fft)
    low, peak, high = mel_edges(bands, rate / 2).unfold(0, 3, 1).unsqueeze(-1).unbind(1)
    rising, falling = (frequency - low) / (peak - low), (high - frequency) / (high - peak)
    triangles = torch.minimum(rising, falling).clamp(min=0)
    return (triangles / triangles.sum(1, keepdim=True)).float()
