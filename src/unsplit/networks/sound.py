"""Sound as vectors: how it sounds on average, how much that varies, and how it changes."""

from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.fft import dct
from torch import Tensor

from unsplit.data.rows.kinds import VectorRows
from unsplit.data.rows.sequences import Ragged, RaggedRows
from unsplit.networks.backbones.sequences import LogMel

# Coefficients of each frame.
N_CEPSTRAL = 20
# Frames that are computed at once (20 seconds), so that long recordings need little memory.
FRAMES = 2048


class SoundRows(VectorRows):
    """Sounds as vectors of cepstral statistics, which are computed once.

    A network for vectors then needs seconds where one that reads the sounds needs minutes, and
    neighbours and classifiers of scikit-learn use the same vectors.

    Examples
    --------
    >>> sounds = Ragged.of([np.sin(np.arange(4000)), np.cos(np.arange(900))], rate=8000)
    >>> SoundRows(sounds, torch.device("cpu")).shape
    (80,)
    """

    def __init__(self, sounds: Ragged, device: torch.device) -> None:
        self.sounds = RaggedRows(sounds, device)
        super().__init__(cepstral_statistics(sounds), device, np.zeros(1))

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """Hashes of the sounds, which no rounding changes."""
        return self.sounds.keys

    def first(self, n: int) -> Self:
        """Return the first n sounds, without the others."""
        return type(self)(self.sounds.first(n).sequences, self.device)

    def another(self, X: Any) -> Self:
        """Wrap new sounds for a network that was trained on these."""
        return type(self)(self.sounds.another(X).sequences, self.device)


def cepstral_statistics(sounds: Ragged) -> NDArray[np.float32]:
    """Mean and standard deviation of the coefficients, and of how they change; shape (n, 80).

    Each sound is computed by itself, so its vector does not depend on the others.

    Examples
    --------
    >>> rising = np.sin(np.cumsum(np.linspace(0.1, 2, 8000)))
    >>> found = cepstral_statistics(Ragged.of([rising, 3 * rising, rising[::-1]], rate=8000))
    >>> np.allclose(found[0], found[1], atol=1e-4), np.allclose(found[0], found[2], atol=0.1)
    (True, False)
    """
    mel = LogMel(int(sounds.rate or 0))
    parts = (sounds.flat[start:end] for start, end in pairwise(sounds.offsets))
    return np.stack([_statistics(_cepstra(part, mel)) for part in parts])


def _cepstra(samples: NDArray[Any], mel: LogMel) -> NDArray[np.float64]:
    """Cepstral coefficients (20, frames) of a sound, whatever its loudness."""
    sound = samples.mean(axis=1, dtype=np.float64)
    sound -= sound.mean()
    sound /= np.sqrt(np.mean(sound**2)) or 1.0
    pieces: tuple[Tensor, ...] = torch.from_numpy(sound[None]).split(FRAMES * mel.hop, dim=1)
    bands = [mel.bands_of(x)[0, :, : -(-x.shape[1] // mel.hop)].numpy() for x in pieces]
    found: NDArray[np.float64] = dct(np.concatenate(bands, axis=1), axis=0, norm="ortho")
    return found[:N_CEPSTRAL]


def _statistics(cepstra: NDArray[np.float64]) -> NDArray[np.float32]:
    # A sound of a single frame does not change.
    changes = np.diff(cepstra, axis=1) if cepstra.shape[1] > 1 else 0 * cepstra
    parts = [f(axis=1) for of in (cepstra, changes) for f in (of.mean, of.std)]
    return np.concatenate(parts).astype(np.float32)
