"""Read sound: a folder of .wav files with a subfolder for each cluster, or one .npz file."""

import os
from collections import Counter
from collections.abc import Callable
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

from unsplit.data.readers.broken import check_max_broken, leave_out, size_of
from unsplit.data.readers.folders import clusters_in
from unsplit.data.readers.formats import read_file
from unsplit.data.readers.isolated import Broken, parse_all
from unsplit.data.readers.tables import shortened
from unsplit.data.readers.wav_files import HIGHEST_RATE, Sound
from unsplit.data.rows.ragged import Ragged
from unsplit.data.rows.sequences import Audio
from unsplit.data.rows.workers import default_workers
from unsplit.errors import InputError

SOUND_ENDINGS = (".wav", ".wave")
RATE_NAMES = ("rate", "sample_rate")

# Resampling by a larger factor is a sign of a wrong header, and could fill the memory.
LARGEST_FACTOR = 100
LONGEST_FILTER = 1_000_000

# Reading this many bytes of sound takes about as long as decoding an image.
_LIKE_AN_IMAGE = 2**18


def read_audio(
    path: str | os.PathLike[str],
    max_broken: float = 0.05,
    progress: Callable[[int, int], None] | None = None,
) -> Audio:
    """Read sounds, and the cluster of each if they are in subfolders.

    Parameters
    ----------
    path : str or path
        A folder of ``.wav`` or ``.wave`` files with a subfolder for each cluster (see
        :func:`unsplit.data.readers.folders.clusters_in`).  Channels are averaged, and files are
        resampled to the most common sampling rate.  Or an ``.npz`` file with the samples of all
        sounds joined in ``audio``, the start of each sound and the end of the last in
        ``offsets``, and perhaps the sampling rate in ``rate``.
    max_broken : float
        Share of files that may be broken; they are left out and named in a warning.  More are
        an error.
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
    path = Path(path)
    check_max_broken(max_broken)
    if path.is_dir():
        return _read_folder(path, max_broken, progress)
    if path.exists() and path.suffix.lower() != ".npz":
        raise InputError(
            f"{path} has an unsupported file type; pass a folder of .wav files or an .npz file."
        )
    return audio_in(path, read_file(path).arrays)


def _read_folder(
    folder: Path, max_broken: float, progress: Callable[[int, int], None] | None
) -> Audio:
    files = clusters_in(folder, SOUND_ENDINGS, ".wav files")
    read: dict[str, tuple[int, Sound]] = {}
    broken: dict[str, str] = {}
    names = files.row_ids.tolist()
    workers = max(1, default_workers(sum(map(size_of, files.paths)) // _LIKE_AN_IMAGE))
    parse = "unsplit.data.readers.wav_files:read_wav"
    found: dict[int, Any] = {}
    for index, sound in parse_all(parse, files.paths, workers):
        found[index] = sound
        if progress is not None:
            progress(len(found), len(names))
    for index, name in enumerate(names):
        sound = found.pop(index)
        if isinstance(sound, Broken):
            broken[name] = sound.why
        else:
            read[name] = sound
    usual = most_common_rate([rate for rate, _ in read.values()]) if read else 0
    broken |= {
        name: f"its header says {rate:,} Hz, but most files have {usual:,} Hz"
        for name, (rate, _) in read.items()
        if not can_resample(rate, usual)
    }
    what = f".wav files in {files.folder}"
    leave_out(list(broken), len(files.row_ids), what, broken.__getitem__, max_broken)
    sounds = [resampled(read[n][1], read[n][0], usual) for n in read if n not in broken]
    kept = files.only(np.array([name not in broken for name in files.row_ids.tolist()]))
    return Audio(Ragged.of(sounds), kept.labels, kept.row_ids, usual, broken)


def most_common_rate(rates: list[int]) -> int:
    """Return the most common rate; of several equally common ones, the highest.

    Parameters
    ----------
    rates : list of int

    Examples
    --------
    >>> most_common_rate([8000, 44100, 8000, 44100, 16000])
    44100
    """
    return max(Counter(rates).items(), key=lambda item: (item[1], item[0]))[0]


def can_resample(rate: int, wanted: int) -> bool:
    """Return whether two rates are so close that resampling takes little memory and time.

    Parameters
    ----------
    rate, wanted : int

    Examples
    --------
    >>> can_resample(44_100, 8_000), can_resample(10, 44_100)
    (True, False)
    """
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
    common = gcd(rate, wanted)
    return resample_poly(sound.astype(np.float32), wanted // common, rate // common)


def audio_in(path: Path, arrays: dict[str, Any]) -> Audio:
    """Find the sounds in the arrays of an .npz file.

    Parameters
    ----------
    path : Path
        The file, for messages.
    arrays : dict of str to ndarray
        ``audio``, ``offsets`` and perhaps ``rate``, as for :func:`read_audio`.

    Examples
    --------
    >>> arrays = {"audio": np.arange(5), "offsets": np.array([0, 3, 5]), "rate": np.array(8000)}
    >>> audio_in(Path("sounds.npz"), arrays).sounds.lengths
    array([3, 2])
    """
    lacking = [name for name in ("audio", "offsets") if name not in arrays]
    if lacking:
        raise InputError(
            f"{path} has no array {lacking[0]!r}; save the samples of all sounds as 'audio', and "
            "the start of each sound and the end of the last as 'offsets'."
        )
    try:
        sounds = Ragged.of_flat(arrays["audio"], arrays["offsets"])
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if sounds.n_channels > 1:
        sounds = sounds.moved(None)
        sounds = Ragged(sounds.flat.mean(axis=1, keepdims=True, dtype=np.float32), sounds.offsets)
    rates = [arrays[name] for name in RATE_NAMES if name in arrays]
    return Audio(
        sounds, None, np.arange(len(sounds)), _rate_in(path, rates[0]) if rates else None, {}
    )


def _rate_in(path: Path, rate: NDArray[Any]) -> int:
    whole = rate.size == 1 and rate.dtype.kind in "fiu" and float(rate.item()).is_integer()
    if not whole or not 1 <= rate.item() <= HIGHEST_RATE:
        raise InputError(
            f"the rate in {path} must be one whole number of samples per second, at most "
            f"{HIGHEST_RATE:,}, got {shortened(str(rate))}; correct it, or leave it out."
        )
    return int(rate.item())
