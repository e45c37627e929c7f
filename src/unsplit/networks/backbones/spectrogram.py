"""Backbone for sound: a spectrogram in mel bands, then a network for sequences."""

import torch
from torch import Tensor, nn

from unsplit.errors import InputError
from unsplit.networks.backbones.sequences import ResNet1d, coarse_mask, masked_standard

# Mel bands are made for human hearing and mean nothing below this many samples per second.
LEAST_RATE = 1000

# Power added before taking the logarithm; 60 dB below the mean power of the data, which is 1.
FLOOR = 1e-6


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
    window, hop : float
        Length of a frame and distance between frames, in seconds.

    Examples
    --------
    >>> LogMel(rate=8000)(torch.ones(3, 2, 4000)).shape  # 10 ms are 80 samples
    torch.Size([3, 41, 50])
    """

    window: Tensor
    filters: Tensor

    def __init__(
        self, rate: int, bands: int = 40, window: float = 0.025, hop: float = 0.01
    ) -> None:
        super().__init__()
        if rate < LEAST_RATE:
            raise InputError(
                f"rate must be at least {LEAST_RATE:,} samples per second for a spectrogram, got "
                f"{rate!r}; use ResNet1d on the samples themselves."
            )
        self.bands = bands
        self.hop = round(rate * hop)
        size = 2 * round(rate * window / 2)  # even, so that there is a middle
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
        # The range of a power spectrum is too large for bfloat16 and half precision.
        with torch.autocast(x.device.type, enabled=False):
            spectrum = torch.stft(
                (x[:, 0] * mask[:, 0]).float(),
                self.n_fft,
                self.hop,
                len(self.window),
                self.window,
                pad_mode="constant",
                return_complex=True,
            )
            power = self.filters @ (spectrum.real.square() + spectrum.imag.square())
            mask = coarse_mask(mask, self.hop)
            bands = masked_standard(torch.log(power + FLOOR)[..., : mask.shape[-1]], mask)
        return torch.cat([bands, mask], dim=1)


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
