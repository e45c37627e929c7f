"""Simple features of shapes and sounds; no label is looked at."""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsplit.networks.backbones.sequences import mel_filters

RATE = 8000
WINDOW, HOP = 256, 80  # 32 and 10 ms
BANDS = 24
FLOOR = 1e-6  # of the loudest, lest silence has a logarithm of its own


def axis_quantiles(points: NDArray[np.float64], number: int = 64) -> NDArray[np.float64]:
    """Quantiles of x, of y and of z: (n, m, 3) to (n, 3 · number).

    They tell how the surface lies along each axis.  Neither the order of the points nor what is
    where across the axes matters; that the objects stand upright does.
    """
    step = points.shape[1] // number
    quantiles = np.sort(points, axis=1)[:, step // 2 :: step][:, :number]
    return quantiles.transpose(0, 2, 1).reshape(len(points), -1)


def log_mel(sound: NDArray[Any], n_steps: int = 16) -> NDArray[np.float64]:
    """Log-mel bands at evenly spaced times: one sound to (n_steps · BANDS,).

    Silence at both ends is cut off, and loudness is taken out of each moment.
    """
    padded = np.pad(sound.astype(np.float64), (0, max(0, WINDOW + HOP - len(sound))))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    power = np.abs(np.fft.rfft(frames * np.hanning(WINDOW))) ** 2
    bands = power @ _filters()
    loudness = bands.sum(axis=1)
    heard = np.flatnonzero(loudness > 1e-3 * loudness.max())
    bands = bands[heard[0] : heard[-1] + 1]
    logs = np.log(bands + FLOOR * bands.max())
    logs -= logs.mean(axis=1, keepdims=True)
    times = np.linspace(0, len(logs) - 1, n_steps)
    before = np.minimum(times.astype(int), max(0, len(logs) - 2))
    after = np.minimum(before + 1, len(logs) - 1)
    share = (times - before)[:, None]
    return ((1 - share) * logs[before] + share * logs[after]).ravel()


@functools.cache
def _filters() -> NDArray[np.float64]:
    return mel_filters(BANDS, WINDOW, RATE).numpy().T.astype(np.float64)
