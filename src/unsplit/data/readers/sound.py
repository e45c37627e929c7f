"""Read sound: a folder of .wav files with a subfolder for each cluster, or arrays of samples."""

import os
from collections import Counter
from collections.abc import Callable
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
from scipy.signal import resample_poly

from unsplit.data.readers.broken import leave_out, size_of
from unsplit.data.readers.folders import clusters_in
from unsplit.data.readers.isolated import parse_into
from unsplit.data.readers.tables import shortened
from unsplit.data.readers.wav_files import HIGHEST_RATE, Sound
from unsplit.data.rows.datasets import default_workers
from unsplit.data.rows.sequences import Audio, Ragged
from unsplit.errors import InputError

SOUND_ENDINGS = (".wav", ".wave")
RATE_NAMES = ("rate", "sample_rate")

# Resampling by a larger factor is a sign of a wrong header, and could fill the memory.
LARGEST_FACTOR = 100
LONGEST_FILTER = 1_000_000

# Reading this many bytes of sound takes about as long as decoding an image.
_LIKE_AN_IMAGE = 2**18


def read_audio(
    folder: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
) -> Audio:
    """Read the sounds of a folder, and the cluster of each.

    Parameters
    ----------
    folder : str or path
        With ``.wav`` or ``.wave`` files, and a subfolder for each cluster (see
        :func:`unsplit.data.readers.folders.clusters_in`).  Channels are averaged, and files are
        resampled to the most common sampling rate; of several, to the highest.
    progress : callable, optional
        Called with the number of files read so far and the number of all.

    Examples
    --------
    >>> import tempfile
    >>> from scipy.io import wavfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("yes", "no"):
    ...     (folder / name).mkdir()
    ...     wavfile.write(folder / name / "1.wav", 8000, np.zeros(100, np.int16))
    >>> audio = read_audio(folder)
    >>> audio.labels.tolist(), audio.row_ids.tolist(), audio.rate
    (['no', 'yes'], ['no/1.wav', 'yes/1.wav'], 8000)
    """
    files = clusters_in(folder, SOUND_ENDINGS, ".wav files")
    workers = max(1, default_workers(sum(map(size_of, files.paths)) // _LIKE_AN_IMAGE))
    read: list[Any] = [None] * len(files.row_ids)
    parser = "unsplit.data.readers.wav_files:read_wav"
    why = parse_into(read, parser, files.paths, workers, progress)
    rates = Counter(found[0] for found in read if found)
    usual = max(rates, key=lambda rate: (rates[rate], rate), default=0)
    for index, found in enumerate(read):
        if found and not _can_resample(found[0], usual):
            why[index] = f"its header says {found[0]:,} Hz, but most files have {usual:,} Hz"
    what = f".wav files in {files.folder}"
    kept = files.only(leave_out(why, files.row_ids, what))
    sounds = [resampled(read[i][1], read[i][0], usual) for i in range(len(read)) if i not in why]
    broken = {str(files.row_ids[index]): why[index] for index in sorted(why)}
    return Audio(Ragged.of(sounds), kept.labels, kept.row_ids, usual, broken)


def _can_resample(rate: int, wanted: int) -> bool:
    """Return whether two rates are so close that resampling takes little memory and time."""
    low, high = sorted([rate, wanted])
    return high <= LARGEST_FACTOR * low and high // gcd(low, high) <= LONGEST_FILTER


def resampled(sound: Sound, rate: int, wanted: int) -> Sound:
    """Resample a sound to another rate; if the rates are equal, return the same object.

    Parameters
    ----------
    sound : ndarray of shape (L,)
    rate, wanted : int
        Samples per second of the sound and of the result.

    Examples
    --------
    >>> resampled(np.ones(100), 8000, 16000).shape
    (200,)
    """
    if rate == wanted:
        return sound
    return resample_poly(sound.astype(np.float32), wanted, rate)


def audio_in(path: Path, arrays: dict[str, Any]) -> Audio:
    """Find the sounds in the arrays of an .npz file.

    Parameters
    ----------
    path : Path
        The file, for messages.
    arrays : dict of str to ndarray
        The samples of all sounds joined in ``audio``, the start of each sound and the end of the
        last in ``offsets``, and perhaps the sampling rate in ``rate``.

    Examples
    --------
    >>> arrays = {"audio": np.arange(5), "offsets": np.array([0, 3, 5]), "rate": np.array(8000)}
    >>> audio_in(Path("sounds.npz"), arrays).sounds.lengths
    array([3, 2])
    """
    try:
        sounds = Ragged.of_flat(arrays["audio"], arrays["offsets"])
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if sounds.n_channels > 1:
        sounds = sounds.moved(None)
        sounds = Ragged(sounds.flat.mean(axis=1, keepdims=True, dtype=np.float32), sounds.offsets)
    rates = [_rate_in(path, arrays[name]) for name in RATE_NAMES if name in arrays]
    return Audio(sounds, None, np.arange(len(sounds)), rates[0] if rates else None, {})


def _rate_in(path: Path, rate: Sound) -> int:
    whole = rate.size == 1 and rate.dtype.kind in "fiu" and float(rate.item()).is_integer()
    if not whole or not 1 <= rate.item() <= HIGHEST_RATE:
        raise InputError(
            f"the rate in {path} must be one whole number of samples per second, at most "
            f"{HIGHEST_RATE:,}, got {shortened(str(rate))}; correct it, or leave it out."
        )
    return int(rate.item())
