"""Read one .wav file; imported by the processes that parse files, so without torch."""

import io
import os
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import wavfile

from unsplit.data.readers.broken import content_of

# All sound is measured in units of 16-bit samples; this is their largest magnitude.
FULL_SCALE = 2**15

# Rates of real recordings lie far within these, from seismometers to bat detectors.
LOWEST_RATE, HIGHEST_RATE = 10, 10_000_000

Sound = NDArray[Any]


def read_wav(path: str | os.PathLike[str]) -> tuple[int, Sound]:
    """Read the rate and the samples (L,) of a .wav file, as int16 if that is exact, else float32.

    Parameters
    ----------
    path : str or path

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "beep.wav"
    >>> wavfile.write(path, 8000, np.array([0.0, 0.5, -1.0], np.float32))
    >>> read_wav(path)
    (8000, array([     0.,  16384., -32768.], dtype=float32))
    """
    with warnings.catch_warnings():
        # Unknown chunks beside the sound do no harm; a file that is cut short does.
        warnings.simplefilter("ignore", wavfile.WavFileWarning)
        warnings.filterwarnings("error", "Reached EOF", wavfile.WavFileWarning)
        # From memory, because scipy believes the lengths in the header and allocates that much.
        rate, samples = wavfile.read(io.BytesIO(content_of(path)))
    if not samples.size or rate < 1:
        raise ValueError("it holds no sound")
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise ValueError(f"its header says {rate:,} samples per second")
    sound = _in_16_bits(samples)
    if sound.ndim == 2:
        sound = sound.mean(axis=1, dtype=np.float32)
    if not np.isfinite(sound).all():
        raise ValueError("it has values that are NaN or infinite")
    return int(rate), sound


def _in_16_bits(samples: Sound) -> Sound:
    """Convert samples to units of 16 bits, as float32 if whole units are too coarse."""
    if samples.dtype == np.int16:
        return samples
    if samples.dtype == np.uint8:
        return (samples.astype(np.int16) - 128) * np.int16(256)
    full = 1 if samples.dtype.kind == "f" else -float(np.iinfo(samples.dtype).min)
    return (samples * (FULL_SCALE / full)).astype(np.float32)
