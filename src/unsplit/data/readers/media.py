"""Folders of images, sounds and point clouds: each file is one observation.

Every file is parsed once in a process of its own; those that cannot be are left out.
"""

import os
import zlib
from collections import Counter
from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.signal import resample_poly
from torch import Tensor
from torch.utils.data import Dataset

from unsplit.data.pixels import open_image, pillow, square_pixels
from unsplit.data.readers import isolated
from unsplit.data.readers.broken import content_of, leave_out, reason, shown_place
from unsplit.data.readers.folders import FileList
from unsplit.data.readers.parsers import MESHES, content_key
from unsplit.data.readers.tables import Progress, require_module
from unsplit.data.rows.datasets import MOST_WORKERS
from unsplit.data.rows.sequences import Ragged
from unsplit.devices import generator_of, n_cores
from unsplit.errors import InputError

LARGEST_AUTO_SIZE = 224
# Resampling by a larger factor is a sign of a wrong header, and could fill the memory.
LARGEST_FACTOR = 100
LONGEST_FILTER = 1_000_000
# Points that are taken of each cloud.
N_POINTS = 1024
# With fewer files, another process takes longer to start than it saves.
FILES_PER_WORKER = 100


def parse_into(
    found: Any, parser: str, requests: Sequence[Any], progress: Progress | None
) -> dict[int, str]:
    """Parse files and store what is found in an array or list; return why some are broken.

    ``parser`` is the name of a function in :mod:`unsplit.data.readers.parsers`.
    """
    why: dict[int, str] = {}
    workers = min(MOST_WORKERS, n_cores(), 1 + len(requests) // FILES_PER_WORKER)
    function = f"unsplit.data.readers.parsers:{parser}"
    parsing = isolated.parse_all(function, requests, workers)
    for done, (index, result) in enumerate(parsing, start=1):
        if isinstance(result, isolated.Broken):
            why[index] = result.why
        else:
            found[index] = result
        if progress is not None:
            progress(done, len(requests))
    return why


# --- images ---------------------------------------------------------------------------------------


class ImageFiles(Dataset[Tensor]):
    """Image files as uint8 tensors of shape (channels, size, size).

    The short side is scaled to ``size`` and the middle is cut out.  Images are turned upright as
    the camera noted; transparent pixels become white.

    Parameters
    ----------
    paths : sequence of str
    size : int
    channels : int
        3, or 1 for shades of grey.
    depth : int
        Number of bits that images of more than 8 bits use; the upper 8 of them are kept.

    Attributes
    ----------
    keys : ndarray of uint64 of shape (n,), optional
        Hash of each file's content, as :func:`read_images` returns it; with it, results do not
        depend on the order of the files, and a file that has changed since is refused.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.png")
    >>> pillow().new("RGB", (40, 30)).save(path)
    >>> ImageFiles([path], size=16)[0].shape
    torch.Size([3, 16, 16])
    """

    keys: NDArray[np.uint64] | None = None

    def __init__(self, paths: Sequence[str], size: int, channels: int = 3, depth: int = 16) -> None:
        pillow()
        # One block of memory, which worker processes share.
        self.paths = np.array([os.fsencode(path) for path in paths])
        self.size = size
        self.channels = channels
        self.depth = depth

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        path = os.fsdecode(self.paths[index])
        try:
            data = content_of(path)
            # Only what was decoded before, within limits of time and memory, is decoded here.
            if self.keys is not None and content_key(data) % 2**64 != self.keys[index]:
                raise ValueError("it has changed since the start")
            pixels = square_pixels(open_image(data), self.size, self.channels, self.depth)
        except Exception as error:  # Pillow raises many types of error on damaged files
            raise InputError(
                f"{shown_place(path)} cannot be read ({reason(error)}); restore it, or remove it "
                "and start again."
            ) from error
        return torch.from_numpy(pixels)


def read_images(
    images: FileList, progress: Progress | None = None, size: int | None = None
) -> tuple[ImageFiles, FileList]:
    """Read every image once, to find broken ones and to choose how to decode the others.

    ``size`` is the width and height of decoded images; by default the median short side, at most
    224.  Returns the images that can be read to their end, with ``keys``, and their list.

    Examples
    --------
    >>> import tempfile
    >>> from unsplit.data.readers.folders import find_files
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, shade in [("black", 0), ("white", 255)]:
    ...     (folder / name).mkdir()
    ...     pillow().new("L", (40, 30), shade).save(folder / name / "1.png")
    >>> files, kept = read_images(find_files(folder)[0])
    >>> files.size, files.channels, kept.labels.tolist()
    (30, 1, ['black', 'white'])
    """
    pillow()
    # Key, short side, whether grey, and depth of each.
    facts = np.zeros((len(images.row_ids), 4), np.int64)
    why = parse_into(facts, "look_at", images.paths, progress)
    kept = images.only(leave_out(why, images.row_ids, "images"))
    key, side, grey, depth = np.delete(facts, list(why), axis=0).T
    size = size or min(LARGEST_AUTO_SIZE, int(np.median(side)))
    files = ImageFiles(kept.paths, size, 1 if grey.all() else 3, int(depth.max()))
    files.keys = key.view(np.uint64)
    return files, kept


# --- sound ----------------------------------------------------------------------------------------


def read_audio(files: FileList, progress: Progress | None = None) -> tuple[Ragged, FileList]:
    """Read sounds, and list those that can be read.

    Channels are averaged, and files are resampled to the most common sampling rate; of several, to
    the highest.

    Examples
    --------
    >>> import tempfile
    >>> from scipy.io import wavfile
    >>> folder = tempfile.mkdtemp()
    >>> wavfile.write(folder + "/1.wav", 8000, np.zeros(100, np.int16))
    >>> sounds, _ = read_audio(FileList(folder, np.array(["1.wav"]), np.array(["a"])))
    >>> sounds.lengths, sounds.rate
    (array([100]), 8000)
    """
    read: list[Any] = [None] * len(files.row_ids)
    why = parse_into(read, "read_wav", files.paths, progress)
    rates = Counter(found[0] for found in read if found)
    usual = max(rates, key=lambda rate: (rates[rate], rate), default=0)
    for index, found in enumerate(read):
        if found and not _can_resample(found[0], usual):
            why[index] = f"its header says {found[0]:,} Hz, but most files have {usual:,} Hz"
    kept = files.only(leave_out(why, files.row_ids, f".wav files in {files.folder}"))
    sounds = [resampled(read[i][1], read[i][0], usual) for i in range(len(read)) if i not in why]
    return Ragged.of(sounds, usual), kept


def _can_resample(rate: int, wanted: int) -> bool:
    """Return whether two rates are so close that resampling takes little memory and time."""
    low, high = sorted([rate, wanted])
    return high <= LARGEST_FACTOR * low and high // gcd(low, high) <= LONGEST_FILTER


def resampled(sound: NDArray[Any], rate: int, wanted: int) -> NDArray[Any]:
    """Resample a sound (L,) to another rate; if the rates are equal, return the same object."""
    if rate == wanted:
        return sound
    return resample_poly(sound.astype(np.float32), wanted, rate)


# --- clouds ---------------------------------------------------------------------------------------


def read_clouds(
    files: FileList, progress: Progress | None = None
) -> tuple[NDArray[np.float32], FileList]:
    """Read 1024 points of every cloud, neither centred nor scaled, and list those that can be read.

    Points of a mesh are drawn from its surface; points of other files are chosen at random, and
    repeated only if a file has fewer.  What is drawn from a file depends on its path in the folder,
    not on the other files.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> np.save(folder + "/1.npy", np.eye(3))
    >>> read_clouds(FileList(folder, np.array(["1.npy"]), np.array(["a"])))[0].shape
    (1, 1024, 3)
    """
    if any(name.lower().endswith(MESHES) for name in files.row_ids.tolist()):
        require_module("trimesh", f"reading {', '.join(MESHES)} files", "points")
    seed = int(generator_of(0).integers(2**63))
    requests = [
        (path, N_POINTS, [seed, zlib.crc32(name.encode())])
        for path, name in zip(files.paths, files.row_ids.tolist(), strict=True)
    ]
    points = np.zeros((len(requests), N_POINTS, 3), np.float32)
    why = parse_into(points, "read_cloud", requests, progress)
    kept = files.only(leave_out(why, files.row_ids, f"point clouds in {files.folder}"))
    return np.delete(points, list(why), axis=0), kept
