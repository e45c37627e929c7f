"""Parse one file of somebody else's format: an image, a sound, a cloud.

Only the processes of :mod:`unsplit.data.readers.isolated` call these functions, so nothing here
imports torch.
"""

import hashlib
import io
import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import wavfile

from unsplit.data.pixels import GREY_MODES, open_image, square_pixels
from unsplit.data.readers.broken import content_of

MESHES = (".off", ".ply", ".obj", ".stl")
CLOUD_ENDINGS = (*MESHES, ".npy", ".xyz")

# All sound is measured in units of 16-bit samples; this is their largest magnitude.
FULL_SCALE = 2**15
# Rates of real recordings lie far within these, from seismometers to bat detectors.
LOWEST_RATE, HIGHEST_RATE = 10, 10_000_000

# Images are scaled to so few pixels that it takes no time, while all of a file is still read.
_GLANCE = 8


# --- images ---------------------------------------------------------------------------------------


def content_key(data: bytes) -> int:
    """Return a hash of the content of a file, as a signed number of 64 bits."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), signed=True)


def look_at(path: str) -> tuple[int, int, int, int]:
    """Decode an image; return a hash of its file, its short side, whether it is grey, its depth."""
    data = content_of(path)
    image = open_image(data)
    side, grey = min(image.size), image.mode in GREY_MODES
    square_pixels(image, _GLANCE, channels=3)
    deep = image.mode.startswith("I")
    depth = int(np.asarray(image).max()).bit_length() if deep else 0
    return content_key(data), side, int(grey), max(8, depth)


# --- sound ----------------------------------------------------------------------------------------


def read_wav(path: str | os.PathLike[str]) -> tuple[int, NDArray[Any]]:
    """Read the rate and the samples (L,) of a .wav file, as int16 if that is exact, else float32.

    Examples
    --------
    >>> import tempfile
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


def _in_16_bits(samples: NDArray[Any]) -> NDArray[Any]:
    """Convert samples to units of 16 bits, as float32 if whole units are too coarse."""
    if samples.dtype == np.int16:
        return samples
    if samples.dtype == np.uint8:
        return (samples.astype(np.int16) - 128) * np.int16(256)
    full = 1 if samples.dtype.kind == "f" else -float(np.iinfo(samples.dtype).min)
    return (samples * (FULL_SCALE / full)).astype(np.float32)


# --- clouds ---------------------------------------------------------------------------------------


def read_cloud(request: tuple[str, int, list[int]]) -> NDArray[np.float32]:
    r"""Read points from a file, given its path, the number of points and the seed of its draw.

    Points of a mesh are drawn evenly from its surface.  From a cloud, or from the vertices of a
    mesh without faces, points are chosen at random, and repeated only if there are fewer than
    wanted.  A file that cannot be used raises a ValueError or an error of its parser.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "square.off"
    >>> _ = path.write_text("OFF\n4 1 0\n0 0 5\n1 0 5\n1 1 5\n0 1 5\n4 0 1 2 3\n")
    >>> points = read_cloud((str(path), 100, [0]))
    >>> points.shape, points.min(axis=0).round(), points.max(axis=0).round()
    ((100, 3), array([0., 0., 5.], dtype=float32), array([1., 1., 5.], dtype=float32))
    """
    path, n_points, seed = request
    rng = np.random.default_rng(seed)
    data, ending = content_of(path), Path(path).suffix.lower()
    read = {".npy": _read_npy, ".xyz": _read_xyz}
    if ending in read:
        points = _chosen(read[ending](data), n_points, rng)
    else:
        points = _from_mesh(data, ending, n_points, rng)
    with np.errstate(over="ignore"):
        rounded = points.astype(np.float32)
    if np.abs(rounded - points).max() > 1e-3 * np.ptp(points, axis=0).max() > 0:
        raise ValueError("it is too far from the origin for single precision")
    return rounded


def _from_mesh(
    data: bytes, ending: str, n_points: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    import trimesh

    if ending == ".off":
        _refuse_cut(data)
    scene = trimesh.load_scene(io.BytesIO(data), file_type=ending[1:], process=False)
    parts = list(scene.geometry.values())
    corners = np.concatenate([np.empty((0, 3)), *(part.vertices for part in parts)])
    _refuse_gaps(corners)
    surfaces = [part for part in parts if len(getattr(part, "faces", ())) and part.area > 0]
    if surfaces:
        surface = trimesh.util.concatenate(surfaces)
        seed = int(rng.integers(2**32))
        return np.asarray(trimesh.sample.sample_surface(surface, n_points, seed=seed)[0])
    return _chosen(corners, n_points, rng)


def _refuse_cut(data: bytes) -> None:
    """Raise if an OFF file has fewer lines than it says, which trimesh does not notice."""
    lines = re.sub(rb"#.*", b"", data).partition(b"OFF")[2].split(b"\n")
    lines = [line for line in lines if line.strip()]
    if not lines or len(lines) < 1 + sum(map(int, lines[0].split()[:2])):
        raise ValueError("it is cut short")


def _chosen(points: NDArray[Any], n_points: int, rng: np.random.Generator) -> NDArray[np.float64]:
    if points.ndim != 2 or points.shape[1] != 3 or points.dtype.kind not in "fiu":
        raise ValueError(f"it holds {points.dtype} of shape {points.shape}, not (points, 3)")
    if not len(points):
        raise ValueError("it has no points")
    _refuse_gaps(points)
    # Every point is used once before any is repeated.
    rounds = [rng.permutation(len(points)) for _ in range(-(-n_points // len(points)))]
    return points[np.concatenate(rounds)[:n_points]].astype(np.float64)


def _refuse_gaps(points: NDArray[Any]) -> None:
    if not np.isfinite(points).all():
        raise ValueError("it has coordinates that are NaN or infinite")


def _read_npy(data: bytes) -> NDArray[Any]:
    # NumPy treats unknown content as a pickle.
    if not data.startswith(b"\x93NUMPY"):
        raise ValueError("it is not a NumPy file")
    return np.asarray(np.load(io.BytesIO(data), allow_pickle=False))


def _read_xyz(data: bytes) -> NDArray[Any]:
    text = io.StringIO(data.decode().replace(",", " "))
    return np.loadtxt(text, usecols=(0, 1, 2), ndmin=2)
